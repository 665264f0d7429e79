//! Hosts behind a link, each at a distance of its own: the way between the far end of the link and
//! the host.
//!
//! Nothing is queued or lost on this way. It is behind the bottleneck: packets of the link's device
//! take it after the link, packets to the device before it. Packets of one host stay in order, and
//! may overtake those of a host that is farther away.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// One-way delays between a link and the hosts behind it, by address. An address without a delay
/// is directly at the link.
#[derive(Clone, Debug, Default)]
pub struct Distances(HashMap<IpAddr, OneWay>);

#[derive(Clone, Copy, Debug)]
struct OneWay {
    to_host: Span,
    to_link: Span,
}

impl Distances {
    /// Takes the round-trip time of each address. Half of it is spent on each way.
    pub fn new(round_trips: impl IntoIterator<Item = (IpAddr, Span)>) -> Self {
        let far = round_trips.into_iter().filter(|(_, round_trip)| !round_trip.is_zero());
        let one_way = far.map(|(address, round_trip)| {
            let to_host = Span::from_nanos(round_trip.as_nanos() / 2);
            (address, OneWay { to_host, to_link: round_trip - to_host })
        });
        Self(one_way.collect())
    }

    /// Whether no address has a delay.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the delay from the link to the host.
    pub fn to_host(&self, address: IpAddr) -> Span {
        self.0.get(&address).map_or(Span::ZERO, |one_way| one_way.to_host)
    }

    /// Returns the delay from the host to the link.
    pub fn to_link(&self, address: IpAddr) -> Span {
        self.0.get(&address).map_or(Span::ZERO, |one_way| one_way.to_link)
    }
}

/// Packets on their way between a link and the hosts, in the order of arrival; at the same time, in
/// the order of departure. An item, such as the id of a packet, costs O(log n) for n on their way.
#[derive(Clone, Debug)]
pub struct Transit<T> {
    items: BinaryHeap<Reverse<Ranked<T>>>,
    departed: u64,
}

impl<T> Default for Transit<T> {
    fn default() -> Self {
        Self { items: BinaryHeap::new(), departed: 0 }
    }
}

impl<T> Transit<T> {
    /// Adds an item that arrives at `at`.
    pub fn push(&mut self, at: Time, item: T) {
        self.items.push(Reverse(Ranked { at, rank: self.departed, item }));
        self.departed += 1;
    }

    /// Returns the next item that has arrived by `now`, and the time of its arrival. Call until
    /// `None`.
    pub fn poll(&mut self, now: Time) -> Option<(Time, T)> {
        self.next_wakeup().filter(|at| *at <= now)?;
        self.items.pop().map(|Reverse(Ranked { at, item, .. })| (at, item))
    }

    /// Returns the time of the next arrival; `None` if no item is on its way.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.items.peek().map(|Reverse(first)| first.at)
    }
}

/// An item with its time of arrival and its position in the order of departures.
#[derive(Clone, Debug)]
struct Ranked<T> {
    at: Time,
    rank: u64,
    item: T,
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.rank).cmp(&(other.at, other.rank))
    }
}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Ranked<T> {}

#[cfg(test)]
mod tests;
