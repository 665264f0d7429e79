//! A channel of L2CAP.

use super::control::Direction;
use super::rest::Rest;
use super::rfcomm::Session;

/// The first number that is given to a channel when it is opened; those below are fixed.
pub(super) const FIRST_DYNAMIC: u16 = 0x40;

#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    /// The number that packets of each direction are addressed to.
    pub(super) to: [u16; 2],
    /// What it is for, where its request was captured.
    pub(super) psm: Option<u16>,
    /// It has credits and segments (vol 3, part A, 3.4).
    pub(super) is_credit_based: bool,
    /// The mode that each side asked for last (5.4). Where nobody does, it is the basic one.
    pub(super) modes: [u8; 2],
    /// How much of a message of each direction is to come in the next segments.
    pub(super) left: [Option<usize>; 2],
    pub(super) session: Session,
}

impl Channel {
    /// Its packets are nothing but what it carries.
    pub(super) fn is_basic(&self) -> bool {
        self.modes == [0, 0]
    }

    /// What a segment carries: the first one of each message has that one's length before it. None
    /// where it is not known which this is.
    pub(super) fn segment<'a>(
        &mut self,
        direction: Direction,
        segment: Rest<'a>,
    ) -> Option<Rest<'a>> {
        let left = self.left.get_mut(direction.index())?;
        let (payload, whole) = match left.take()? {
            0 => (segment.after(2)?, usize::from(segment.u16(0)?)),
            more => (segment, more),
        };
        *left = whole.checked_sub(payload.length);
        left.map(|_| payload)
    }
}
