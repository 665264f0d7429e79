//! The events of a replay that are to come.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::super::graph::Node;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Event {
    Ready(Node),
    /// The priority of a request becomes high.
    Boost(usize),
    TaskEnd(usize),
    /// The main thread takes its next task.
    Next,
    /// The request looks for a connection.
    Started(usize),
    /// A connection to the origin is open, which began at that time.
    Opened {
        origin: usize,
        since: f64,
    },
    /// A part of the response comes to the bottleneck.
    AtLink(usize),
    Ended(usize),
}

/// Events by their time; those of one time in the order in which they were added.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Timed>>,
    added: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Timed {
    time: f64,
    order: usize,
    event: Event,
}

impl Events {
    pub fn add(&mut self, time: f64, event: Event) {
        self.added += 1;
        self.heap.push(Reverse(Timed { time, order: self.added, event }));
    }

    pub fn next(&self) -> Option<f64> {
        self.heap.peek().map(|Reverse(timed)| timed.time)
    }

    pub fn pop(&mut self) -> Option<(f64, Event)> {
        self.heap.pop().map(|Reverse(timed)| (timed.time, timed.event))
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.order.cmp(&other.order))
    }
}
