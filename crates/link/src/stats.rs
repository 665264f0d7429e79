//! Counters of a pipe.

use manyways_unit::Size;

use crate::Cause;

/// Wire packets and their IP bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Segments of super-packets count one by one.
    pub packets: u64,
    /// IP bytes.
    pub size: Size,
}

impl Count {
    pub(crate) fn add(&mut self, packets: u32, size: Size) {
        self.packets += u64::from(packets);
        self.size += size;
    }

    pub(crate) fn remove(&mut self, packets: u32, size: Size) {
        self.packets -= u64::from(packets);
        self.size -= size;
    }
}

/// Counters since the creation of the pipe, and its current contents.
///
/// `arrived` = `delivered` + all drops + `backlog` + `in_flight`, at all times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Passed to the pipe.
    pub arrived: Count,
    /// Reported as delivered.
    pub delivered: Count,
    /// Dropped because the queue was full.
    pub dropped_queue: Count,
    /// Dropped by CoDel.
    pub dropped_aqm: Count,
    /// Lost on the wire.
    pub dropped_loss: Count,
    /// Dropped because the link was down or went down.
    pub dropped_down: Count,
    /// Waiting, including the packet that is being sent.
    pub backlog: Count,
    /// In flight: after the wire, not yet delivered.
    pub in_flight: Count,
}

impl Stats {
    /// Returns the segments dropped for this reason.
    pub fn dropped(&self, cause: Cause) -> Count {
        match cause {
            Cause::Queue => self.dropped_queue,
            Cause::Aqm => self.dropped_aqm,
            Cause::Loss => self.dropped_loss,
            Cause::Down => self.dropped_down,
        }
    }

    /// Dropped packets for all reasons.
    pub fn dropped_packets(&self) -> u64 {
        [self.dropped_queue, self.dropped_aqm, self.dropped_loss, self.dropped_down]
            .iter()
            .map(|count| count.packets)
            .sum()
    }

    pub(crate) fn dropped_mut(&mut self, cause: Cause) -> &mut Count {
        match cause {
            Cause::Queue => &mut self.dropped_queue,
            Cause::Aqm => &mut self.dropped_aqm,
            Cause::Loss => &mut self.dropped_loss,
            Cause::Down => &mut self.dropped_down,
        }
    }
}
