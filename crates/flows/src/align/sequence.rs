//! Matches tracks of the same connection by TCP sequence numbers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;

use super::ChainDirection;
use super::pairing::{CommonRange, MatchEvidence};
use super::track::{SequenceSource, Track, TrackContent};

/// Maximum number of candidates per track: ports and sequence numbers are not reused more often.
const MAX_CANDIDATES: usize = 16;

/// Key that tracks of the same connection have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Tuple(ChainDirection, TrackContent, SocketAddr, SocketAddr),
    Isn(ChainDirection, TrackContent, u32),
}

/// Returns pairs of indices; each track is in at most one pair.
pub(super) fn pairs(first: &[Track], second: &[Track]) -> Vec<(usize, usize, MatchEvidence)> {
    let mut known: HashMap<Key, Vec<usize>> = HashMap::new();
    for (number, track) in second.iter().enumerate() {
        keys(track).for_each(|key| known.entry(key).or_default().push(number));
    }
    let mut found = Vec::new();
    for (a, track) in first.iter().enumerate() {
        let mut candidates: Vec<usize> = keys(track)
            .filter_map(|key| known.get(&key))
            .filter(|numbers| numbers.len() <= MAX_CANDIDATES)
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let same = candidates.into_iter().filter_map(|b| {
            let evidence = connection_evidence(track, second.get(b)?)?;
            Some((a, b, evidence))
        });
        found.extend(same);
    }
    select_best(found)
}

/// Returns the common bytes of two tracks.
pub(super) fn overlap(first: &Track, second: &Track) -> Option<CommonRange> {
    let (a, b) = (first.source()?, second.source()?);
    let shift = i64::from(b.first_seq.distance_from(a.first_seq));
    let from = shift.max(0) as u64;
    let there = (-shift).max(0) as u64;
    let length = first.length().checked_sub(from)?.min(second.length().checked_sub(there)?);
    (length > 0).then_some(CommonRange { first: from, second: there, length })
}

fn keys(track: &Track) -> impl Iterator<Item = Key> {
    let direction = track.direction();
    track.source().into_iter().flat_map(move |origin| {
        let ends = Key::Tuple(direction, origin.content, origin.sender, origin.receiver);
        let isn = origin.isn.map(|isn| Key::Isn(direction, origin.content, isn.0));
        [Some(ends), isn].into_iter().flatten()
    })
}

/// Returns the evidence that two tracks are of the same connection. Equal addresses do not suffice,
/// because ports are reused and a proxy may use the server's address; equal initial sequence
/// numbers of both SYNs do, even if a NAT changed the addresses.
fn connection_evidence(first: &Track, second: &Track) -> Option<MatchEvidence> {
    overlap(first, second)?;
    let (a, b): (&SequenceSource, &SequenceSource) = (first.source()?, second.source()?);
    let isn = a.isn.zip(b.isn).map(|(a, b)| a == b);
    let other = a.peer_isn.zip(b.peer_isn).map(|(a, b)| a == b);
    if isn == Some(false) || other == Some(false) {
        return None;
    }
    let is_known = isn.is_some() || other.is_some();
    match (a.sender, a.receiver) == (b.sender, b.receiver) {
        true if is_known => Some(MatchEvidence::TupleAndIsns),
        true => Some(MatchEvidence::Tuple),
        false if isn.is_some() && other.is_some() => Some(MatchEvidence::BothIsns),
        false => isn.map(|_| MatchEvidence::OneIsn),
    }
}

/// Selects the most certain pair of each track; none if a track has two of the same certainty.
fn select_best(found: Vec<(usize, usize, MatchEvidence)>) -> Vec<(usize, usize, MatchEvidence)> {
    let best = |of: fn(&(usize, usize, MatchEvidence)) -> usize| {
        let mut best: HashMap<usize, (MatchEvidence, u32)> = HashMap::new();
        for pair in &found {
            let entry = best.entry(of(pair)).or_insert((pair.2, 0));
            match pair.2.cmp(&entry.0) {
                std::cmp::Ordering::Less => *entry = (pair.2, 1),
                std::cmp::Ordering::Equal => entry.1 += 1,
                std::cmp::Ordering::Greater => {}
            }
        }
        best
    };
    let (firsts, seconds) = (best(|pair| pair.0), best(|pair| pair.1));
    let is_only =
        |best: Option<&(MatchEvidence, u32)>, evidence: MatchEvidence| best == Some(&(evidence, 1));
    let mut only: Vec<_> = found
        .iter()
        .filter(|(a, b, evidence)| {
            is_only(firsts.get(a), *evidence) && is_only(seconds.get(b), *evidence)
        })
        .copied()
        .collect();
    only.sort_unstable();
    only
}
