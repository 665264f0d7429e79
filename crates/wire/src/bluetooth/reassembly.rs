//! Reassembles L2CAP packets from HCI fragments (vol 3, part A, 7.2).

use manyways_unit::Time;

use super::cursor::Cursor;

/// Length and channel ID before the payload of an L2CAP packet.
pub(super) const HEADER: usize = 4;

/// An incomplete packet, one for each direction of a connection because fragments of two packets
/// are never interleaved. Holds at most 65,539 bytes, the maximum of a packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    /// Captured bytes from the start of the packet.
    bytes: Vec<u8>,
    /// Number of `bytes` that belong to the first fragment.
    certain_length: usize,
    /// Number of received bytes, captured or not; `None` while no packet is expected.
    length: Option<usize>,
    /// Time of the last fragment.
    last: Time,
}

/// An L2CAP packet, or its beginning if the rest is missing.
#[derive(Clone, Debug)]
pub(super) struct L2capPacket {
    pub(super) bytes: Vec<u8>,
    pub(super) length: usize,
    pub(super) at: Time,
}

/// Effect of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentResult {
    /// More fragments are missing.
    Incomplete,
    /// The packet is complete.
    Complete,
    /// The fragment continues no known packet.
    Orphan,
    /// The fragment is longer than the rest of the packet.
    TooLong,
    /// The capture truncated the length field.
    TruncatedHeader,
}

/// Length of the whole packet with its header, from its first bytes.
pub(super) fn packet_length(rest: Cursor<'_>) -> Option<usize> {
    rest.u16(0).map(|length| HEADER + usize::from(length))
}

impl Reassembly {
    /// Adds the first fragment of a packet.
    pub(super) fn begin(&mut self, now: Time, part: Cursor<'_>) -> FragmentResult {
        self.bytes.clear();
        self.certain_length = part.bytes.len();
        self.length = Some(0);
        self.add(now, part)
    }

    /// Adds the next fragment.
    pub(super) fn add(&mut self, now: Time, part: Cursor<'_>) -> FragmentResult {
        let Some(before) = self.length else { return FragmentResult::Orphan };
        // Bytes after a truncated fragment would have a wrong offset.
        if self.bytes.len() == before {
            self.bytes.extend_from_slice(part.bytes);
        }
        let length = before + part.length;
        (self.length, self.last) = (Some(length), now);
        match packet_length(Cursor::new(&self.bytes, length)) {
            Some(whole) if length < whole => FragmentResult::Incomplete,
            Some(whole) if length == whole => FragmentResult::Complete,
            // The second byte of the length may be in the next fragment.
            None if length < 2 => FragmentResult::Incomplete,
            Some(_) => FragmentResult::TooLong,
            None => {
                self.length = None;
                FragmentResult::TruncatedHeader
            }
        }
    }

    /// Removes and returns the packet after its last fragment.
    pub(super) fn take(&mut self) -> Option<L2capPacket> {
        self.length.take()?;
        let length = packet_length(Cursor::new(&self.bytes, self.bytes.len()))?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(length);
        Some(L2capPacket { bytes, length, at: self.last })
    }

    /// Removes and returns the beginning of an incomplete packet. Fragments after the first may
    /// belong to another packet if some are missing.
    pub(super) fn take_incomplete(&mut self) -> Option<L2capPacket> {
        self.bytes.truncate(self.certain_length);
        self.take()
    }

    /// Keeps the allocation of `whole` for the next packet.
    pub(super) fn reuse(&mut self, whole: L2capPacket) {
        self.bytes = whole.bytes;
    }

    /// Channel ID of the incomplete packet and the first byte of its payload.
    pub(super) fn header(&self) -> Option<(u16, Option<u8>)> {
        self.length?;
        let rest = Cursor::new(&self.bytes, self.bytes.len());
        Some((rest.u16(2)?, rest.u8(HEADER)))
    }
}
