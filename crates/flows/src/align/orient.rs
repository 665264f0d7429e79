//! Which way along the chain streams go.

use std::collections::HashSet;

use super::follow::Followed;
use super::pairing;
use super::report::Place;

/// Turns the connections of points in the order in which bytes pass them, so that each goes the way
/// along the chain that it goes.
///
/// A connection that passes the first two points has its server on the side from which the way to
/// the server is shorter, unless the first point is [`Place::Server`]; any other one has it before
/// the first point. From point to point, what has no match the way it is taken to go is turned where
/// it has one the other way: a proxy may have connected to a server behind it.
pub fn orient(points: &mut [(Place, Followed)]) {
    for second in 1..points.len() {
        let (before, behind) = points.split_at_mut(second);
        let (Some((place, first)), Some((_, second_point))) =
            (before.last_mut(), behind.first_mut())
        else {
            return;
        };
        if second == 1 && *place != Place::Server {
            by_trips(first, second_point);
        }
        by_matches(first, second_point);
    }
}

/// Asks where a server is nearer.
fn by_trips(first: &mut Followed, second: &mut Followed) {
    let found = pairing::pair(&first.tracks, &second.tracks).matches;
    let mut turned = [HashSet::new(), HashSet::new()];
    for one in found.iter().filter(|one| one.how != pairing::How::Content) {
        let numbers = first.connections.get(one.first).zip(second.connections.get(one.second));
        let Some((a, b)) = numbers else { continue };
        let trips = first.trips.get(a).zip(second.trips.get(b));
        if trips.is_some_and(|(first, second)| first > second) {
            turned[0].insert(*a);
            turned[1].insert(*b);
        }
    }
    first.turn(&turned[0]);
    second.turn(&turned[1]);
}

/// Asks which way there are the same bytes.
fn by_matches(first: &Followed, second: &mut Followed) {
    let matched = |second: &Followed| -> HashSet<u32> {
        let found = pairing::pair(&first.tracks, &second.tracks).matches;
        found.iter().filter_map(|one| second.connections.get(one.second)).copied().collect()
    };
    let right = matched(second);
    let others: HashSet<u32> =
        second.connections.iter().copied().filter(|number| !right.contains(number)).collect();
    if others.is_empty() {
        return;
    }
    // Those that have their matches have no part in it.
    let mut turned = second.of(&others);
    turned.turn(&others);
    second.turn(&matched(&turned));
}

impl Followed {
    fn turn(&mut self, connections: &HashSet<u32>) {
        for (track, number) in self.tracks.iter_mut().zip(&self.connections) {
            if connections.contains(number) {
                track.turn();
            }
        }
    }

    /// The tracks of these connections.
    fn of(&self, connections: &HashSet<u32>) -> Self {
        let both = self.tracks.iter().zip(&self.connections);
        let (tracks, connections) = both
            .filter(|(_, number)| connections.contains(number))
            .map(|(t, n)| (t.clone(), *n))
            .unzip();
        Self { tracks, connections, ..Self::default() }
    }
}
