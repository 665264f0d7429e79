//! Input and output of a [`Pipe`](crate::Pipe).

use manyways_unit::{Size, Time};

/// A packet as the kernel passes it: one wire packet, or a super-packet that consists of several
/// wire packets ("segments").
///
/// Sizes are IP bytes: header and payload of each segment, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Identifier chosen by the caller. Packets inside the pipe at the same time must have
    /// different ids.
    pub id: u64,
    /// Number of wire packets; a packet with 0 segments is ignored.
    pub segments: u32,
    /// IP bytes of each segment except the last.
    pub segment: Size,
    /// IP bytes of the last segment, which is the only one of an ordinary packet.
    pub last: Size,
}

impl Packet {
    /// Creates an ordinary packet of `size` IP bytes.
    pub const fn single(id: u64, size: Size) -> Self {
        Self { id, segments: 1, segment: size, last: size }
    }

    /// Returns the IP bytes of segment `index`, counted from zero.
    pub const fn size_of(&self, index: u32) -> Size {
        // Written without a sum, which could overflow at the largest index.
        if index == self.segments.saturating_sub(1) { self.last } else { self.segment }
    }

    /// Returns the IP bytes of `count` segments from `first`.
    pub(crate) fn size_of_run(&self, first: u32, count: u32) -> Size {
        if count == 0 {
            return Size::ZERO;
        }
        let whole = self.segment.as_bytes().saturating_mul(u64::from(count - 1));
        Size::from_bytes(whole) + self.size_of(first + (count - 1))
    }
}

/// The outcome of consecutive segments of one packet.
///
/// Every segment is reported exactly once, delivered or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The segments arrive at the other end.
    Deliver {
        /// Arrival time of the last segment.
        at: Time,
        /// [`Packet::id`].
        id: u64,
        /// Index of the first segment, from zero.
        first: u32,
        /// Number of segments, at least one.
        count: u32,
    },
    /// The segments are dropped.
    Drop {
        /// Time of the drop.
        at: Time,
        /// [`Packet::id`].
        id: u64,
        /// Index of the first segment, from zero.
        first: u32,
        /// Number of segments, at least one.
        count: u32,
        cause: Cause,
    },
}

impl Output {
    pub const fn at(&self) -> Time {
        match self {
            Self::Deliver { at, .. } | Self::Drop { at, .. } => *at,
        }
    }
}

/// Reason of a drop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The queue was full.
    Queue,
    /// CoDel dropped the segment because the queueing delay was too high.
    Aqm,
    /// The segment was lost on the wire, after it had used capacity.
    Loss,
    /// The link was down, or went down while the segment was on it.
    Down,
}

/// Consecutive segments of one packet that wait together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub packet: Packet,
    /// Index of the first remaining segment.
    pub first: u32,
    /// Index after the last remaining segment.
    pub end: u32,
    pub arrived: Time,
}

impl Train {
    pub fn count(&self) -> u32 {
        self.end - self.first
    }

    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub fn size(&self) -> Size {
        self.packet.size_of_run(self.first, self.count())
    }

    /// Splits off the first `count` segments; the train must have at least as many.
    pub fn split_front(&mut self, count: u32) -> Self {
        let front = Self { end: self.first + count, ..*self };
        self.first = front.end;
        front
    }
}

/// One segment in the queue or on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub id: u64,
    pub index: u32,
    pub size: Size,
    pub arrived: Time,
}
