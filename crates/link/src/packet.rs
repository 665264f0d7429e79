//! What goes into a [`Pipe`](crate::Pipe) and what comes out.

use manyways_unit::{Size, Time};

/// A packet as the kernel hands it over: one wire packet, or a super-packet that is cut into wire
/// packets ("segments") here.
///
/// Sizes are IP bytes: header and payload of each segment, as it would be on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The caller's name for it. Ids of packets inside the pipe at the same time must differ.
    pub id: u64,
    /// How many wire packets it is; a packet of none is ignored.
    pub segments: u32,
    /// IP bytes of each segment but the last.
    pub segment: Size,
    /// IP bytes of the last segment, which is the only one of an ordinary packet.
    pub last: Size,
}

impl Packet {
    /// An ordinary packet of `size` IP bytes.
    pub const fn single(id: u64, size: Size) -> Self {
        Self { id, segments: 1, segment: size, last: size }
    }

    /// IP bytes of segment `index`, counted from zero.
    pub const fn size_of(&self, index: u32) -> Size {
        // Written without a sum that could overflow at the largest index.
        if index == self.segments.saturating_sub(1) { self.last } else { self.segment }
    }

    /// IP bytes of `count` segments from `first` on.
    pub(crate) fn size_of_run(&self, first: u32, count: u32) -> Size {
        if count == 0 {
            return Size::ZERO;
        }
        let whole = self.segment.as_bytes().saturating_mul(u64::from(count - 1));
        Size::from_bytes(whole) + self.size_of(first + (count - 1))
    }
}

/// What became of some consecutive segments of one packet.
///
/// Every segment is reported exactly once, delivered or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// They arrive at the other end.
    Deliver {
        /// When the last of them arrives.
        at: Time,
        /// [`Packet::id`].
        id: u64,
        /// The first of them, counted from zero.
        first: u32,
        /// How many, at least one.
        count: u32,
    },
    /// They are gone.
    Drop {
        /// When that happened.
        at: Time,
        /// [`Packet::id`].
        id: u64,
        /// The first of them, counted from zero.
        first: u32,
        /// How many, at least one.
        count: u32,
        /// Why.
        cause: Cause,
    },
}

impl Output {
    /// When it happened.
    pub const fn at(&self) -> Time {
        match self {
            Self::Deliver { at, .. } | Self::Drop { at, .. } => *at,
        }
    }
}

/// Why a segment was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The queue had no room.
    Queue,
    /// CoDel found that packets had waited too long.
    Aqm,
    /// It was lost on the wire, after it had used capacity.
    Loss,
    /// The link was down, or went down while the segment was on it.
    Down,
}

/// Segments of one packet that waited, or wait, together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub packet: Packet,
    /// First segment that is left.
    pub first: u32,
    /// One past the last segment that is left.
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

    /// Takes the first `count` segments off; there must be as many.
    pub fn split_front(&mut self, count: u32) -> Self {
        let front = Self { end: self.first + count, ..*self };
        self.first = front.end;
        front
    }
}

/// One segment on its way through the queue and over the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub id: u64,
    pub index: u32,
    pub size: Size,
    pub arrived: Time,
}
