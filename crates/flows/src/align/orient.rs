//! Direction of streams along the chain.

use std::collections::HashSet;

use super::extract::CaptureTracks;
use super::pairing;
use super::report::PointLocation;

/// Sets the direction of the connections of `points`, which are in the order of the chain.
///
/// The server of a connection that passes the first two points is on the side with the shorter
/// round-trip time to it, unless the first point is [`PointLocation::Server`]; other servers are
/// before the first point. From point to point, a stream without a match in its assumed direction
/// is reversed if it has a match in the other direction: a proxy may have connected to a server
/// after it.
pub fn orient(points: &mut [(PointLocation, CaptureTracks)]) {
    for second in 1..points.len() {
        let (before, behind) = points.split_at_mut(second);
        let (Some((location, first)), Some((_, second_point))) =
            (before.last_mut(), behind.first_mut())
        else {
            return;
        };
        if second == 1 && *location != PointLocation::Server {
            orient_by_rtt(first, second_point);
        }
        orient_by_matches(first, second_point);
    }
}

/// Determines the direction from the distance to the server.
fn orient_by_rtt(first: &mut CaptureTracks, second: &mut CaptureTracks) {
    let found = pairing::pair(&first.tracks, &second.tracks).matches;
    let mut turned = [HashSet::new(), HashSet::new()];
    for one in found.iter().filter(|one| one.evidence != pairing::MatchEvidence::Content) {
        let numbers = first.connections.get(one.first).zip(second.connections.get(one.second));
        let Some((a, b)) = numbers else { continue };
        let trips = first.server_rtts.get(a).zip(second.server_rtts.get(b));
        if trips.is_some_and(|(first, second)| first > second) {
            turned[0].insert(*a);
            turned[1].insert(*b);
        }
    }
    first.reverse(&turned[0]);
    second.reverse(&turned[1]);
}

/// Determines the direction from matching bytes.
fn orient_by_matches(first: &CaptureTracks, second: &mut CaptureTracks) {
    let matched = |second: &CaptureTracks| -> HashSet<u32> {
        let found = pairing::pair(&first.tracks, &second.tracks).matches;
        found.iter().filter_map(|one| second.connections.get(one.second)).copied().collect()
    };
    let right = matched(second);
    let others: HashSet<u32> =
        second.connections.iter().copied().filter(|number| !right.contains(number)).collect();
    if others.is_empty() {
        return;
    }
    // Streams that are matched already are excluded.
    let mut turned = second.subset(&others);
    turned.reverse(&others);
    second.reverse(&matched(&turned));
}

impl CaptureTracks {
    fn reverse(&mut self, connections: &HashSet<u32>) {
        for (track, number) in self.tracks.iter_mut().zip(&self.connections) {
            if connections.contains(number) {
                track.reverse();
            }
        }
    }

    /// Returns the tracks of these connections.
    fn subset(&self, connections: &HashSet<u32>) -> Self {
        let both = self.tracks.iter().zip(&self.connections);
        let (tracks, connections) = both
            .filter(|(_, number)| connections.contains(number))
            .map(|(t, n)| (t.clone(), *n))
            .unzip();
        Self { tracks, connections, ..Self::default() }
    }
}
