//! The queue before the wire, and which packets are dropped when it is full.

use std::collections::VecDeque;

use manyways_trace::scenario::{Discipline, QueueLimit, QueueSpec};
use manyways_unit::{Rate, Size};

use crate::packet::{Segment, Train};
use crate::stats::Count;

/// Minimum of a limit in time: a slow link must be able to queue one packet.
const MIN_TIME_LIMIT: Size = Size::from_bytes(1500);

/// Packets in the order of their arrival, super-packets as trains of segments.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    trains: VecDeque<Train>,
    waiting: Count,
    limit: Limit,
    drop_head: bool,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Bytes(u64),
    Packets(u64),
    Unlimited,
}

impl Queue {
    /// `rate` converts a limit in time to bytes; `None` if the link is unlimited.
    pub fn new(spec: QueueSpec, rate: Option<Rate>) -> Self {
        let mut queue = Self {
            trains: VecDeque::new(),
            waiting: Count::default(),
            limit: Limit::Unlimited,
            drop_head: false,
        };
        queue.set(spec, rate);
        queue
    }

    /// Sets limit and discipline; waiting packets stay, even if they exceed the new limit.
    pub fn set(&mut self, spec: QueueSpec, rate: Option<Rate>) {
        self.drop_head = matches!(spec.discipline, Discipline::DropHead);
        self.limit = match (spec.limit, rate) {
            (QueueLimit::Bytes(size), _) => Limit::Bytes(size.as_bytes()),
            (QueueLimit::Packets(packets), _) => Limit::Packets(packets),
            (QueueLimit::Time(span), Some(rate)) => {
                Limit::Bytes(rate.size_in(span).max(MIN_TIME_LIMIT).as_bytes())
            }
            (QueueLimit::Time(_), None) | (QueueLimit::Unlimited, _) => Limit::Unlimited,
        };
    }

    pub fn waiting(&self) -> Count {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Enqueues the segments of `train` that fit. Passes dropped segments of this train or older
    /// ones to `drop`.
    pub fn admit(&mut self, mut train: Train, mut drop: impl FnMut(Train)) {
        if !self.drop_head {
            let enter = self.fitting_segments(&train);
            self.push(train.split_front(enter));
            if !train.is_empty() {
                drop(train);
            }
            return;
        }
        while !train.is_empty() {
            let segment = train.split_front(1);
            if !self.can_hold(&segment) {
                drop(segment);
                continue;
            }
            while self.fitting_segments(&segment) == 0 {
                // A queue without room for a segment that it could contain is not empty.
                let Some(oldest) = self.pop_train(1) else { break };
                drop(oldest);
            }
            self.push(segment);
        }
    }

    /// Enqueues all of `train`, whatever the limit.
    pub fn push(&mut self, train: Train) {
        if train.is_empty() {
            return;
        }
        self.waiting.add(train.count(), train.size());
        if let Some(back) = self.trains.back_mut()
            && back.packet.id == train.packet.id
            && back.end == train.first
            && back.arrived == train.arrived
        {
            back.end = train.end;
        } else {
            self.trains.push_back(train);
        }
    }

    /// Removes the oldest segment.
    pub fn pop(&mut self) -> Option<Segment> {
        let front = self.trains.front_mut()?;
        let (index, arrived) = (front.first, front.arrived);
        let (id, size) = (front.packet.id, front.packet.size_of(index));
        front.first += 1;
        if front.is_empty() {
            self.trains.pop_front();
        }
        self.waiting.remove(1, size);
        Some(Segment { id, index, size, arrived })
    }

    /// Removes the oldest train.
    pub fn pop_all(&mut self) -> Option<Train> {
        self.pop_train(u32::MAX)
    }

    fn pop_train(&mut self, max: u32) -> Option<Train> {
        let front = self.trains.front_mut()?;
        let gone = front.split_front(front.count().min(max));
        if front.is_empty() {
            self.trains.pop_front();
        }
        self.waiting.remove(gone.count(), gone.size());
        Some(gone)
    }

    fn can_hold(&self, segment: &Train) -> bool {
        match self.limit {
            Limit::Bytes(bytes) => segment.size().as_bytes() <= bytes,
            Limit::Packets(packets) => packets > 0,
            Limit::Unlimited => true,
        }
    }

    /// Returns how many leading segments fit.
    fn fitting_segments(&self, train: &Train) -> u32 {
        match self.limit {
            Limit::Unlimited => train.count(),
            Limit::Packets(packets) => {
                let room = packets.saturating_sub(self.waiting.packets);
                u32::try_from(room).map_or(train.count(), |room| room.min(train.count()))
            }
            Limit::Bytes(bytes) => {
                let room = bytes.saturating_sub(self.waiting.size.as_bytes());
                if train.size().as_bytes() <= room {
                    return train.count();
                }
                // The whole train does not fit, so that only segments before the last can.
                let each = train.packet.segment.as_bytes();
                let whole = room.checked_div(each).unwrap_or(u64::MAX);
                let before_last = train.count().saturating_sub(1);
                u32::try_from(whole).map_or(before_last, |whole| whole.min(before_last))
            }
        }
    }
}

#[cfg(test)]
mod tests;
