//! Packets between the wire and the other end.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use manyways_unit::{Size, Time};

/// Consecutive segments of one packet that arrive at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub at: Time,
    pub id: u64,
    pub first: u32,
    pub count: u32,
    pub size: Size,
}

impl Arrival {
    /// Appends the next segments of the same packet; returns false if `next` does not follow.
    pub fn join(&mut self, next: &Self) -> bool {
        let follows = self.id == next.id && self.first + self.count == next.first;
        if follows {
            self.at = next.at;
            self.count += next.count;
            self.size += next.size;
        }
        follows
    }
}

/// All packets in flight.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    /// Packets arrive in the order of departure.
    Ordered(VecDeque<Arrival>),
    /// Packets arrive in the order of their arrival times; at the same time, in the order of
    /// departure.
    Reordered { heap: BinaryHeap<Reverse<Ranked>>, departed: u64 },
}

/// An arrival and its position in the order of departures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ranked {
    arrival: Arrival,
    rank: u64,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.arrival.at, self.rank).cmp(&(other.arrival.at, other.rank))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Flight {
    pub fn new(reorder: bool) -> Self {
        if reorder {
            Self::Reordered { heap: BinaryHeap::new(), departed: 0 }
        } else {
            Self::Ordered(VecDeque::new())
        }
    }

    pub fn reorders(&self) -> bool {
        matches!(self, Self::Reordered { .. })
    }

    /// Enables or disables reordering. Returns the latest arrival time of the packets in flight.
    pub fn set_reorder(&mut self, reorder: bool) -> Option<Time> {
        if reorder != self.reorders() {
            let mut old = std::mem::replace(self, Self::new(reorder));
            while let Some(arrival) = old.pop() {
                self.push(arrival);
            }
        }
        match self {
            Self::Ordered(queue) => queue.back().map(|arrival| arrival.at),
            Self::Reordered { .. } => None,
        }
    }

    /// Without reordering, `arrival` must not be earlier than the previous one.
    pub fn push(&mut self, arrival: Arrival) {
        match self {
            Self::Ordered(queue) => {
                if let Some(back) = queue.back_mut()
                    && back.at == arrival.at
                    && back.join(&arrival)
                {
                    return;
                }
                queue.push_back(arrival);
            }
            Self::Reordered { heap, departed } => {
                heap.push(Reverse(Ranked { arrival, rank: *departed }));
                *departed += 1;
            }
        }
    }

    pub fn front(&self) -> Option<&Arrival> {
        match self {
            Self::Ordered(queue) => queue.front(),
            Self::Reordered { heap, .. } => heap.peek().map(|Reverse(ranked)| &ranked.arrival),
        }
    }

    pub fn pop(&mut self) -> Option<Arrival> {
        match self {
            Self::Ordered(queue) => queue.pop_front(),
            Self::Reordered { heap, .. } => heap.pop().map(|Reverse(ranked)| ranked.arrival),
        }
    }

    /// Removes the packets that would arrive after `now`, in the order of their departure.
    pub fn cut(&mut self, now: Time) -> Vec<Arrival> {
        match self {
            Self::Ordered(queue) => {
                let stay = queue.partition_point(|arrival| arrival.at <= now);
                queue.drain(stay..).collect()
            }
            Self::Reordered { heap, .. } => {
                let (stay, mut gone): (Vec<_>, Vec<_>) =
                    heap.drain().partition(|Reverse(ranked)| ranked.arrival.at <= now);
                heap.extend(stay);
                gone.sort_by_key(|Reverse(ranked)| ranked.rank);
                gone.into_iter().map(|Reverse(ranked)| ranked.arrival).collect()
            }
        }
    }
}
