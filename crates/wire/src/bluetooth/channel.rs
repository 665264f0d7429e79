//! L2CAP channels.

use super::control::Direction;
use super::cursor::Cursor;
use super::rfcomm::Session;

/// First dynamically allocated channel ID; lower ones are fixed.
pub(super) const FIRST_DYNAMIC: u16 = 0x40;

#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    /// Destination channel ID of packets in each direction.
    pub(super) destination_cids: [u16; 2],
    /// `None` if the connection request was not captured.
    pub(super) psm: Option<u16>,
    /// Whether the channel has credits and segments (vol 3, part A, 3.4).
    pub(super) is_credit_based: bool,
    /// Mode that each side requested last (5.4); 0 is basic mode, the default.
    pub(super) modes: [u8; 2],
    /// Remaining bytes of a message in each direction; `None` if the message boundaries are
    /// unknown.
    pub(super) sdu_remaining: [Option<usize>; 2],
    pub(super) session: Session,
}

impl Channel {
    /// Whether packets carry the payload only, without ERTM or streaming headers.
    pub(super) fn is_basic(&self) -> bool {
        self.modes == [0, 0]
    }

    /// Removes the message length before the first segment of a message and returns the payload.
    /// `None` if the message boundaries are unknown.
    pub(super) fn sdu_payload<'a>(
        &mut self,
        direction: Direction,
        segment: Cursor<'a>,
    ) -> Option<Cursor<'a>> {
        let left = self.sdu_remaining.get_mut(direction.index())?;
        let (payload, whole) = match left.take()? {
            0 => (segment.skip(2)?, usize::from(segment.u16(0)?)),
            more => (segment, more),
        };
        *left = whole.checked_sub(payload.length);
        left.map(|_| payload)
    }
}
