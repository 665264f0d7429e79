//! Matches the streams of two points.

use super::track::{Track, TrackContent};
use super::{content, sequence};

/// Maximum number of tracks per point that are matched.
pub const MAX_TRACKS: usize = 1 << 13;
/// Maximum number of ambiguous streams that are reported by name.
pub const MAX_AMBIGUOUS: usize = 64;

/// How two tracks were matched, most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchEvidence {
    /// By equal addresses, ports and initial sequence numbers.
    TupleAndIsns,
    /// By equal initial sequence numbers of both SYNs; the addresses differ (NAT).
    BothIsns,
    /// By equal addresses and ports, and overlapping sequence numbers; no SYN was captured at both
    /// points.
    Tuple,
    /// By one equal initial sequence number that no other track has; the addresses differ.
    OneIsn,
    /// By equal bytes.
    Content,
}

/// Common bytes of two tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonRange {
    /// Offset in the first track.
    pub first: u64,
    /// Offset in the second track.
    pub second: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Two tracks with common bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the first point's track.
    pub first: usize,
    /// Index of the second point's track.
    pub second: usize,
    pub evidence: MatchEvidence,
    /// Common bytes, in the order of both tracks. Several parts if a proxy changes the framing or
    /// content.
    pub common: Vec<CommonRange>,
    /// Number of windows whose bytes agree.
    pub agreeing: u64,
    /// Number of windows whose bytes differ although both are known.
    pub differing: u64,
}

/// Matches of two points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Sorted by the index of the first track. A track may be in several matches, for example if a
    /// proxy multiplexes all streams into one.
    pub matches: Vec<Match>,
    /// Tracks of the second point with bytes of the first point that are ambiguous or too few: at
    /// most [`MAX_AMBIGUOUS`].
    pub ambiguous: Vec<usize>,
    /// Number of tracks beyond [`MAX_TRACKS`], which were not examined.
    pub skipped: usize,
}

impl CommonRange {
    /// Converts an offset of the second track to the first.
    pub(super) fn in_first(&self, offset: u64) -> i128 {
        i128::from(offset) - i128::from(self.second) + i128::from(self.first)
    }

    /// Converts an offset of the first track, not before [`Self::first`], to the second.
    pub(super) fn in_second(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.first).saturating_add(self.second)
    }
}

/// Finds the common bytes of two points' tracks. Only tracks of the same direction are compared,
/// and content only if sequence numbers give no match.
pub fn pair(first: &[Track], second: &[Track]) -> Pairing {
    let left_out = first.len().saturating_sub(MAX_TRACKS) + second.len().saturating_sub(MAX_TRACKS);
    let first = &first[..first.len().min(MAX_TRACKS)];
    let second = &second[..second.len().min(MAX_TRACKS)];
    let mut taken = [vec![false; first.len()], vec![false; second.len()]];
    let mut matches = Vec::new();
    for (a, b, evidence) in sequence::pairs(first, second) {
        let (Some(from), Some(to)) = (first.get(a), second.get(b)) else { continue };
        let Some(same) = sequence::overlap(from, to) else { continue };
        let (agreeing, differing) = content::compare(from, to, &[same]);
        // Different content overrules a match only if no second sequence number confirms it.
        if differing > agreeing && matches!(evidence, MatchEvidence::Tuple | MatchEvidence::OneIsn)
        {
            continue;
        }
        (taken[0][a], taken[1][b]) = (true, true);
        matches.push(Match {
            first: a,
            second: b,
            evidence,
            common: vec![same],
            agreeing,
            differing,
        });
    }
    let free = |tracks: &[Track], taken: &[bool]| -> Vec<usize> {
        let has_bytes = |track: &Track| {
            track.source().is_none_or(|origin| origin.content == TrackContent::Bytes)
        };
        let all = tracks.iter().zip(taken).enumerate();
        all.filter(|(_, (track, taken))| !**taken && has_bytes(track)).map(|(n, _)| n).collect()
    };
    let mut ambiguous = content::pairs(
        (first, &free(first, &taken[0])),
        (second, &free(second, &taken[1])),
        &mut matches,
    );
    ambiguous.truncate(MAX_AMBIGUOUS);
    matches.sort_by_key(|found| (found.first, found.second));
    Pairing { matches, ambiguous, skipped: left_out }
}
