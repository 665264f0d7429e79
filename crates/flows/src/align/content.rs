//! Matches tracks by content.
//!
//! Anchors that are unique at both points identify the tracks that belong together. Consecutive
//! anchors of two tracks with the same shift form one stretch of common bytes; another shift is due
//! to framing, or to inserted or removed bytes. Repeated bytes, like zeros, have no unique anchor
//! and are never matched on their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::ChainDirection;
use super::anchor::{ANCHOR_LEN, AnchorOffset};
use super::pairing::{CommonRange, Match, MatchEvidence};
use super::track::Track;

/// Minimum number of common bytes of two tracks.
const MIN_COMMON_BYTES: u64 = 32;
const ANCHOR_BYTES: u64 = ANCHOR_LEN as u64;

/// The tracks of a point, and the indices of those that are compared.
type Tracks<'a> = (&'a [Track], &'a [usize]);
/// Track and offset of each anchor, over all tracks; `None` if ambiguous.
type Index = HashMap<(ChainDirection, u64), Option<(usize, u64)>>;

/// Adds the matches of the tracks. Returns the ambiguous tracks of the second point.
pub(super) fn pairs(first: Tracks<'_>, second: Tracks<'_>, matches: &mut Vec<Match>) -> Vec<usize> {
    let known = index(first);
    let mut hits: BTreeMap<(usize, usize), Vec<(u64, u64)>> = BTreeMap::new();
    let mut is_matched = BTreeMap::new();
    for (key, found) in index(second) {
        if let (Some((b, to)), Some(Some((a, from)))) = (found, known.get(&key)) {
            hits.entry((*a, b)).or_default().push((*from, to));
        }
    }
    for b in second.1 {
        let Some(track) = second.0.get(*b) else { continue };
        if track.anchors().iter().any(|(hash, _)| known.contains_key(&(track.direction(), hash))) {
            is_matched.insert(*b, false);
        }
    }
    for ((a, b), hits) in hits {
        let (Some(from), Some(to)) = (first.0.get(a), second.0.get(b)) else { continue };
        let same = common_ranges(hits);
        let bytes: u64 = same.iter().map(|(_, bytes)| bytes).sum();
        let mut same: Vec<CommonRange> = same.into_iter().map(|(same, _)| same).collect();
        let (agreeing, differing) = compare(from, to, &same);
        if bytes >= MIN_COMMON_BYTES && agreeing >= differing {
            extend_ends(from, to, &mut same);
            is_matched.insert(b, true);
            let evidence = MatchEvidence::Content;
            matches.push(Match {
                first: a,
                second: b,
                evidence,
                common: same,
                agreeing,
                differing,
            });
        }
    }
    is_matched.into_iter().filter(|(_, is_matched)| !is_matched).map(|(b, _)| b).collect()
}

fn index((tracks, numbers): Tracks<'_>) -> Index {
    let mut index = Index::new();
    for number in numbers {
        let Some(track) = tracks.get(*number) else { continue };
        for (hash, anchor) in track.anchors().iter() {
            let place = match anchor {
                AnchorOffset::Unique(place) => Some((*number, place)),
                AnchorOffset::Ambiguous => None,
            };
            index
                .entry((track.direction(), hash))
                .and_modify(|known| *known = None)
                .or_insert(place);
        }
    }
    index
}

/// Returns stretches with one shift each, in the order of both tracks, and the number of bytes in
/// anchors of each.
fn common_ranges(mut hits: Vec<(u64, u64)>) -> Vec<(CommonRange, u64)> {
    hits.sort_unstable();
    let mut all: Vec<(CommonRange, u64)> = Vec::new();
    for (first, second) in hits {
        match all.last_mut() {
            Some((same, bytes)) if same.in_second(first) == second => {
                let end = same.first + same.length;
                *bytes += ANCHOR_BYTES.min((first + ANCHOR_BYTES).saturating_sub(end));
                same.length = first + ANCHOR_BYTES - same.first;
            }
            _ => all.push((CommonRange { first, second, length: ANCHOR_BYTES }, ANCHOR_BYTES)),
        }
    }
    // Bytes that contradict a longer stretch were moved or repeated.
    all.sort_by_key(|(same, bytes)| (Reverse(*bytes), same.first));
    let mut kept: BTreeMap<u64, (CommonRange, u64)> = BTreeMap::new();
    for (same, bytes) in all {
        let before = kept.range(..=same.first).next_back().map(|(_, (before, _))| before);
        let behind = kept.range(same.first..).next().map(|(_, (behind, _))| behind);
        if before.is_none_or(|before| before.is_before(&same))
            && behind.is_none_or(|behind| same.is_before(behind))
        {
            kept.insert(same.first, (same, bytes));
        }
    }
    let mut joined: Vec<(CommonRange, u64)> = Vec::new();
    for (same, bytes) in kept.into_values() {
        match joined.last_mut() {
            Some((last, sum)) if last.in_second(same.first) == same.second => {
                last.length = same.first + same.length - last.first;
                *sum += bytes;
            }
            _ => joined.push((same, bytes)),
        }
    }
    joined
}

/// Counts the anchors of the first track that are at the expected offset of the second, and those
/// that are not although the second track has these bytes. Outside of all stretches, the shift of
/// the previous stretch applies.
pub(super) fn compare(first: &Track, second: &Track, same: &[CommonRange]) -> (u64, u64) {
    let (mut agreeing, mut differing) = (0, 0);
    for (offset, is_there) in expected(first, second, same) {
        let is_inside = same
            .get(same.partition_point(|same| same.first <= offset).saturating_sub(1))
            .is_some_and(|same| {
                same.first <= offset && offset + ANCHOR_BYTES <= same.first + same.length
            });
        match is_there {
            true if is_inside => agreeing += 1,
            true => {}
            false => differing += 1,
        }
    }
    (agreeing, differing)
}

/// Returns the offsets of the first track's anchors that the second track covers, and whether they
/// are there.
fn expected<'a>(
    first: &'a Track,
    second: &'a Track,
    same: &'a [CommonRange],
) -> impl Iterator<Item = (u64, bool)> + 'a {
    let bits = second.anchors().zero_bits();
    first.anchors().iter().filter_map(move |(hash, anchor)| {
        let AnchorOffset::Unique(place) = anchor else { return None };
        if hash.trailing_zeros() < bits {
            return None;
        }
        let before = same.partition_point(|same| same.first <= place).saturating_sub(1);
        let there = u64::try_from(same.get(before)?.in_second_signed(place)).ok()?;
        match second.anchors().find(hash) {
            Some(AnchorOffset::Ambiguous) => None,
            Some(AnchorOffset::Unique(found)) if found == there => Some((place, true)),
            // The anchor is elsewhere, so the bytes were not lost, or it is nowhere.
            _ => second.is_known(there).then_some((place, false)),
        }
    })
}

/// Extends the first stretch to the front and the last one to the end, as far as both tracks reach
/// and no anchor contradicts.
fn extend_ends(first: &Track, second: &Track, same: &mut [CommonRange]) {
    let (Some(head), Some(tail)) = (same.first().copied(), same.last().copied()) else { return };
    let end = tail.first + tail.length;
    let (mut start, mut ends) = (0, first.length());
    for (offset, is_there) in expected(first, second, same) {
        if is_there {
            continue;
        }
        if offset < head.first {
            start = start.max(offset + ANCHOR_BYTES);
        } else if offset + ANCHOR_BYTES > end {
            ends = ends.min(offset);
        }
    }
    if let Some(tail) = same.last_mut() {
        let more = ends.min(first.length()).saturating_sub(end);
        let room = second.length().saturating_sub(tail.second + tail.length);
        tail.length += more.min(room);
    }
    if let Some(head) = same.first_mut() {
        let more = head.first.saturating_sub(start).min(head.second);
        head.first -= more;
        head.second -= more;
        head.length += more;
    }
}

impl CommonRange {
    fn is_before(&self, other: &Self) -> bool {
        self.first + self.length <= other.first && self.second + self.length <= other.second
    }

    /// Like [`Self::in_second`], but also for offsets before the stretch.
    fn in_second_signed(&self, offset: u64) -> i128 {
        i128::from(offset) - i128::from(self.first) + i128::from(self.second)
    }
}
