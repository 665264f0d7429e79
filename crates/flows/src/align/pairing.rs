//! Which streams of two points are the same, and where.

use super::track::{Carries, Track};
use super::{content, sequence};

/// The most tracks of a point that are paired; others are left out.
pub const TRACKS: usize = 1 << 13;
/// The most streams that are called ambiguous by name.
pub const AMBIGUOUS: usize = 64;

/// How two tracks were recognised, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// The same addresses, ports, and numbers of a SYN.
    Ends,
    /// The same numbers of both SYNs, with other addresses: a router changed those.
    Numbers,
    /// The same addresses and ports, and numbers that overlap; no SYN was seen at both points.
    EndsOnly,
    /// The same number of one SYN, with other addresses, and no other track with it.
    NumberOnly,
    /// The same bytes.
    Content,
}

/// Bytes that are the same at both points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same {
    /// Where they begin in the first track.
    pub first: u64,
    /// Where they begin in the second one.
    pub second: u64,
    /// How many they are.
    pub length: u64,
}

/// Two tracks that have bytes in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The first point's track, by its number.
    pub first: usize,
    /// The second point's track.
    pub second: usize,
    /// How they were recognised.
    pub how: How,
    /// What they have in common, in the order of both. With a proxy that frames or rewrites, it is
    /// in several parts.
    pub same: Vec<Same>,
    /// So many windows of their bytes agree…
    pub agreeing: u64,
    /// …and so many do not, where both are known.
    pub differing: u64,
}

/// What two points have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Tracks with bytes in common, by the number of the first. One track may be in several, as
    /// where a proxy carries all streams in one.
    pub matches: Vec<Match>,
    /// Tracks of the second point whose bytes were seen at the first one, but at several places, or
    /// too few of them: up to [`AMBIGUOUS`] of them.
    pub ambiguous: Vec<usize>,
    /// So many tracks were not looked at, as there are more than [`TRACKS`].
    pub left_out: usize,
}

impl Same {
    /// A place of the second track, in those of the first.
    pub(super) fn back(&self, place: u64) -> i128 {
        i128::from(place) - i128::from(self.second) + i128::from(self.first)
    }

    /// A place of the first track, not before [`Self::first`], in those of the second.
    pub(super) fn there(&self, place: u64) -> u64 {
        place.saturating_sub(self.first).saturating_add(self.second)
    }
}

/// Finds the same bytes in the tracks of two points. Only tracks that go the same way are compared,
/// and where numbers tell, bytes are not asked.
pub fn pair(first: &[Track], second: &[Track]) -> Pairing {
    let left_out = first.len().saturating_sub(TRACKS) + second.len().saturating_sub(TRACKS);
    let first = &first[..first.len().min(TRACKS)];
    let second = &second[..second.len().min(TRACKS)];
    let mut taken = [vec![false; first.len()], vec![false; second.len()]];
    let mut matches = Vec::new();
    for (a, b, how) in sequence::pairs(first, second) {
        let (Some(from), Some(to)) = (first.get(a), second.get(b)) else { continue };
        let Some(same) = sequence::overlap(from, to) else { continue };
        let (agreeing, differing) = content::compare(from, to, &[same]);
        // Bytes speak against what a number says only where no other number says it too.
        if differing > agreeing && matches!(how, How::EndsOnly | How::NumberOnly) {
            continue;
        }
        (taken[0][a], taken[1][b]) = (true, true);
        matches.push(Match { first: a, second: b, how, same: vec![same], agreeing, differing });
    }
    let free = |tracks: &[Track], taken: &[bool]| -> Vec<usize> {
        let has_bytes =
            |track: &Track| track.origin().is_none_or(|origin| origin.carries == Carries::Bytes);
        let all = tracks.iter().zip(taken).enumerate();
        all.filter(|(_, (track, taken))| !**taken && has_bytes(track)).map(|(n, _)| n).collect()
    };
    let mut ambiguous = content::pairs(
        (first, &free(first, &taken[0])),
        (second, &free(second, &taken[1])),
        &mut matches,
    );
    ambiguous.truncate(AMBIGUOUS);
    matches.sort_by_key(|found| (found.first, found.second));
    Pairing { matches, ambiguous, left_out }
}
