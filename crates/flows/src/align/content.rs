//! Which tracks have the same bytes.
//!
//! Each track has anchors, and those that are at one place of one track only, at both points, say
//! which track belongs to which. Of two tracks the anchors with the same shift in a row make one
//! stretch that both have; another shift is a frame, or something that was put in or left out. What
//! repeats, as zeros do, has no such anchor and is never matched by itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::Way;
use super::anchor::{Place, WINDOW};
use super::pairing::{How, Match, Same};
use super::track::Track;

/// Two tracks are the same by no fewer bytes.
const ENOUGH: u64 = 32;
const LENGTH: u64 = WINDOW as u64;

/// Tracks of a point, and the numbers of those that are compared.
type Tracks<'a> = (&'a [Track], &'a [usize]);
/// Where an anchor is, of all tracks: a track and a place in it; none where it is at several.
type Index = HashMap<(Way, u64), Option<(usize, u64)>>;

/// Adds what the tracks have in common, and says of which of the second ones it is not clear.
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
        if track.anchors().iter().any(|(hash, _)| known.contains_key(&(track.way(), hash))) {
            is_matched.insert(*b, false);
        }
    }
    for ((a, b), hits) in hits {
        let (Some(from), Some(to)) = (first.0.get(a), second.0.get(b)) else { continue };
        let same = stretches(hits);
        let bytes: u64 = same.iter().map(|(_, bytes)| bytes).sum();
        let mut same: Vec<Same> = same.into_iter().map(|(same, _)| same).collect();
        let (agreeing, differing) = compare(from, to, &same);
        if bytes >= ENOUGH && agreeing >= differing {
            widen(from, to, &mut same);
            is_matched.insert(b, true);
            let how = How::Content;
            matches.push(Match { first: a, second: b, how, same, agreeing, differing });
        }
    }
    is_matched.into_iter().filter(|(_, is_matched)| !is_matched).map(|(b, _)| b).collect()
}

fn index((tracks, numbers): Tracks<'_>) -> Index {
    let mut index = Index::new();
    for number in numbers {
        let Some(track) = tracks.get(*number) else { continue };
        for (hash, place) in track.anchors().iter() {
            let place = match place {
                Place::Once(place) => Some((*number, place)),
                Place::Often => None,
            };
            index.entry((track.way(), hash)).and_modify(|known| *known = None).or_insert(place);
        }
    }
    index
}

/// Stretches with one shift each, in the order of both tracks, and how many bytes of each are in
/// anchors.
fn stretches(mut hits: Vec<(u64, u64)>) -> Vec<(Same, u64)> {
    hits.sort_unstable();
    let mut all: Vec<(Same, u64)> = Vec::new();
    for (first, second) in hits {
        match all.last_mut() {
            Some((same, bytes)) if same.there(first) == second => {
                let end = same.first + same.length;
                *bytes += LENGTH.min((first + LENGTH).saturating_sub(end));
                same.length = first + LENGTH - same.first;
            }
            _ => all.push((Same { first, second, length: LENGTH }, LENGTH)),
        }
    }
    // What contradicts a longer stretch was moved, or said twice.
    all.sort_by_key(|(same, bytes)| (Reverse(*bytes), same.first));
    let mut kept: BTreeMap<u64, (Same, u64)> = BTreeMap::new();
    for (same, bytes) in all {
        let before = kept.range(..=same.first).next_back().map(|(_, (before, _))| before);
        let behind = kept.range(same.first..).next().map(|(_, (behind, _))| behind);
        if before.is_none_or(|before| before.is_before(&same))
            && behind.is_none_or(|behind| same.is_before(behind))
        {
            kept.insert(same.first, (same, bytes));
        }
    }
    let mut joined: Vec<(Same, u64)> = Vec::new();
    for (same, bytes) in kept.into_values() {
        match joined.last_mut() {
            Some((last, sum)) if last.there(same.first) == same.second => {
                last.length = same.first + same.length - last.first;
                *sum += bytes;
            }
            _ => joined.push((same, bytes)),
        }
    }
    joined
}

/// How many anchors of the first track are in the second where they have to be, and how many are
/// not though the bytes there are known. What is outside of all stretches has to be where the
/// stretch before it says.
pub(super) fn compare(first: &Track, second: &Track, same: &[Same]) -> (u64, u64) {
    let (mut agreeing, mut differing) = (0, 0);
    for (place, is_there) in expected(first, second, same) {
        let is_inside = same
            .get(same.partition_point(|same| same.first <= place).saturating_sub(1))
            .is_some_and(|same| same.first <= place && place + LENGTH <= same.first + same.length);
        match is_there {
            true if is_inside => agreeing += 1,
            true => {}
            false => differing += 1,
        }
    }
    (agreeing, differing)
}

/// The places of the first track's anchors of which the second one tells, and whether they are
/// there.
fn expected<'a>(
    first: &'a Track,
    second: &'a Track,
    same: &'a [Same],
) -> impl Iterator<Item = (u64, bool)> + 'a {
    let bits = second.anchors().bits();
    first.anchors().iter().filter_map(move |(hash, place)| {
        let Place::Once(place) = place else { return None };
        if hash.trailing_zeros() < bits {
            return None;
        }
        let before = same.partition_point(|same| same.first <= place).saturating_sub(1);
        let there = u64::try_from(same.get(before)?.forth(place)).ok()?;
        match second.anchors().find(hash) {
            Some(Place::Often) => None,
            Some(Place::Once(found)) if found == there => Some((place, true)),
            // It is elsewhere, so these bytes were not lost, or it is nowhere.
            _ => second.knows(there).then_some((place, false)),
        }
    })
}

/// What is before the first anchor and behind the last one is the same as well, as far as both
/// tracks reach and no anchor contradicts.
fn widen(first: &Track, second: &Track, same: &mut [Same]) {
    let (Some(head), Some(tail)) = (same.first().copied(), same.last().copied()) else { return };
    let end = tail.first + tail.length;
    let (mut begins, mut ends) = (0, first.length());
    for (place, is_there) in expected(first, second, same) {
        if is_there {
            continue;
        }
        if place < head.first {
            begins = begins.max(place + LENGTH);
        } else if place + LENGTH > end {
            ends = ends.min(place);
        }
    }
    if let Some(tail) = same.last_mut() {
        let more = ends.min(first.length()).saturating_sub(end);
        let room = second.length().saturating_sub(tail.second + tail.length);
        tail.length += more.min(room);
    }
    if let Some(head) = same.first_mut() {
        let more = head.first.saturating_sub(begins).min(head.second);
        head.first -= more;
        head.second -= more;
        head.length += more;
    }
}

impl Same {
    fn is_before(&self, other: &Self) -> bool {
        self.first + self.length <= other.first && self.second + self.length <= other.second
    }

    /// As [`Same::there`], for places before it as well.
    fn forth(&self, place: u64) -> i128 {
        i128::from(place) - i128::from(self.first) + i128::from(self.second)
    }
}
