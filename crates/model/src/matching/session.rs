//! The course of a replay: which recorded exchanges were used.

use std::collections::HashMap;

use super::index::Entry;
use super::reading::Fields;

/// Connections of a client that are remembered.
const MAX_CONNECTIONS: usize = 4_096;

/// State of one replay. Its size is bounded by that of the recording.
#[derive(Clone, Debug, Default)]
pub struct Session {
    used: Vec<bool>,
    /// Connection of the recording for each one of the client.
    connections: HashMap<u64, u64>,
    /// The reverse.
    bound: HashMap<u64, u64>,
    /// Places before which all members of a group were used.
    cursors: HashMap<u64, usize>,
}

impl Session {
    /// Starts a replay.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn is_used(&self, place: usize) -> bool {
        self.used.get(place).copied().unwrap_or(false)
    }

    /// Returns where the unused members of a group begin.
    pub(super) fn first_unused(&mut self, group: u64, members: &[u32]) -> usize {
        let start = self.cursors.get(&group).copied().unwrap_or(0);
        let used =
            members.iter().skip(start).take_while(|member| self.is_used(**member as usize)).count();
        if used > 0 {
            self.cursors.insert(group, start + used);
        }
        start + used
    }

    pub(super) fn record(
        &mut self,
        place: usize,
        count: usize,
        connections: (Option<u64>, Option<u64>),
    ) {
        if self.used.len() < count {
            self.used.resize(count, false);
        }
        if let Some(used) = self.used.get_mut(place) {
            *used = true;
        }
        if let (Some(client), Some(recorded)) = connections
            && self.connections.len() < MAX_CONNECTIONS
            && !self.connections.contains_key(&client)
            && !self.bound.contains_key(&recorded)
        {
            self.connections.insert(client, recorded);
            self.bound.insert(recorded, client);
        }
    }

    /// Chooses among recorded requests that are equally good, given by their places in recorded order.
    ///
    /// First, the state of the client decides: its range and condition, the type it wants, and the
    /// names of its cookies. Of the remaining ones, the first unused is taken, with equal values of
    /// cookies if there are some, and not of a connection that belongs to another connection of the
    /// client. If all were used, the last is taken again.
    pub(super) fn choose(
        &self,
        entries: &[Entry],
        places: &[u32],
        asked: &Fields,
        connection: Option<u64>,
    ) -> Option<usize> {
        let of = |place: u32| entries.get(place as usize).map(|entry| (place as usize, entry));
        let known: Vec<(usize, &Entry)> = places.iter().filter_map(|place| of(*place)).collect();
        let state = |entry: &Entry| {
            let recorded = &entry.fields;
            let range = u32::from(recorded.range != asked.range)
                + u32::from(recorded.is_conditional != asked.is_conditional);
            let accept = recorded.accept != asked.accept;
            (
                range,
                accept,
                cookie_names(recorded, asked),
                recorded.authorization != asked.authorization,
            )
        };
        let states: Vec<_> = known.iter().map(|(_, entry)| state(entry)).collect();
        let best = *states.iter().min()?;
        let best = || {
            known.iter().zip(&states).filter(|(_, state)| **state == best).map(|(known, _)| known)
        };
        let unused = best().filter(|(place, _)| !self.is_used(*place));
        let order = |entry: &Entry| {
            (cookie_values(&entry.fields, asked), self.is_foreign(entry.connection, connection))
        };
        let first = unused.min_by_key(|(place, entry)| (order(entry), *place));
        first.or_else(|| best().next_back()).map(|(place, _)| *place)
    }

    /// Whether a recorded connection belongs to another connection of the client.
    fn is_foreign(&self, recorded: Option<u64>, client: Option<u64>) -> bool {
        let (Some(recorded), Some(client)) = (recorded, client) else { return false };
        match (self.connections.get(&client), self.bound.get(&recorded)) {
            (_, Some(owner)) => *owner != client,
            (Some(_), None) | (None, None) => false,
        }
    }
}

/// Counts the cookies that only one of two requests has.
fn cookie_names(a: &Fields, b: &Fields) -> usize {
    let lacks = |a: &Fields, b: &Fields| {
        let is_there = |name: u64| {
            let place = b.cookies.partition_point(|(other, _)| *other < name);
            b.cookies.get(place).is_some_and(|(other, _)| *other == name)
        };
        a.cookies.iter().filter(|(name, _)| !is_there(*name)).count()
    };
    lacks(a, b) + lacks(b, a)
}

/// Counts the cookies of the first request that the second has not with this value.
fn cookie_values(a: &Fields, b: &Fields) -> usize {
    a.cookies.iter().filter(|cookie| b.cookies.binary_search(cookie).is_err()).count()
}
