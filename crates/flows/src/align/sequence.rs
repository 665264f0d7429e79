//! Matches tracks of the same connection by TCP sequence numbers.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;

use super::Way;
use super::pairing::{How, Same};
use super::track::{Carries, Origin, Track};

/// Maximum number of candidates per track: ports and sequence numbers are not reused more often.
const CANDIDATES: usize = 16;

/// Key that tracks of the same connection have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Ends(Way, Carries, SocketAddr, SocketAddr),
    Isn(Way, Carries, u32),
}

/// Returns pairs of indices; each track is in at most one pair.
pub(super) fn pairs(first: &[Track], second: &[Track]) -> Vec<(usize, usize, How)> {
    let mut known: HashMap<Key, Vec<usize>> = HashMap::new();
    for (number, track) in second.iter().enumerate() {
        keys(track).for_each(|key| known.entry(key).or_default().push(number));
    }
    let mut found = Vec::new();
    for (a, track) in first.iter().enumerate() {
        let mut candidates: Vec<usize> = keys(track)
            .filter_map(|key| known.get(&key))
            .filter(|numbers| numbers.len() <= CANDIDATES)
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let same = candidates.into_iter().filter_map(|b| {
            let how = same_connection(track, second.get(b)?)?;
            Some((a, b, how))
        });
        found.extend(same);
    }
    only_best(found)
}

/// Returns the common bytes of two tracks.
pub(super) fn overlap(first: &Track, second: &Track) -> Option<Same> {
    let (a, b) = (first.origin()?, second.origin()?);
    let shift = i64::from(b.first.after(a.first));
    let from = shift.max(0) as u64;
    let there = (-shift).max(0) as u64;
    let length = first.length().checked_sub(from)?.min(second.length().checked_sub(there)?);
    (length > 0).then_some(Same { first: from, second: there, length })
}

fn keys(track: &Track) -> impl Iterator<Item = Key> {
    let way = track.way();
    track.origin().into_iter().flat_map(move |origin| {
        let ends = Key::Ends(way, origin.carries, origin.from, origin.to);
        let isn = origin.isn.map(|isn| Key::Isn(way, origin.carries, isn.0));
        [Some(ends), isn].into_iter().flatten()
    })
}

/// Returns the evidence that two tracks are of the same connection. Equal addresses do not suffice,
/// because ports are reused and a proxy may use the server's address; equal initial sequence
/// numbers of both SYNs do, even if a NAT changed the addresses.
fn same_connection(first: &Track, second: &Track) -> Option<How> {
    overlap(first, second)?;
    let (a, b): (&Origin, &Origin) = (first.origin()?, second.origin()?);
    let isn = a.isn.zip(b.isn).map(|(a, b)| a == b);
    let other = a.other_isn.zip(b.other_isn).map(|(a, b)| a == b);
    if isn == Some(false) || other == Some(false) {
        return None;
    }
    let is_known = isn.is_some() || other.is_some();
    match (a.from, a.to) == (b.from, b.to) {
        true if is_known => Some(How::Ends),
        true => Some(How::EndsOnly),
        false if isn.is_some() && other.is_some() => Some(How::Numbers),
        false => isn.map(|_| How::NumberOnly),
    }
}

/// Selects the most certain pair of each track; none if a track has two of the same certainty.
fn only_best(found: Vec<(usize, usize, How)>) -> Vec<(usize, usize, How)> {
    let best = |of: fn(&(usize, usize, How)) -> usize| {
        let mut best: HashMap<usize, (How, u32)> = HashMap::new();
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
    let is_only = |best: Option<&(How, u32)>, how: How| best == Some(&(how, 1));
    let mut only: Vec<_> = found
        .iter()
        .filter(|(a, b, how)| is_only(firsts.get(a), *how) && is_only(seconds.get(b), *how))
        .copied()
        .collect();
    only.sort_unstable();
    only
}
