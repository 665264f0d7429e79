//! Reassembles L2CAP packets from HCI fragments (vol 3, part A, 7.2).

use manyways_unit::Time;

use super::rest::Rest;

/// Length and channel ID before the payload of an L2CAP packet.
pub(super) const HEADER: usize = 4;

/// An incomplete packet, one for each direction of a connection because fragments of two packets
/// are never interleaved. Holds at most 65,539 bytes, the maximum of a packet.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    /// Captured bytes from the start of the packet.
    bytes: Vec<u8>,
    /// Number of `bytes` that belong to the first fragment.
    sure: usize,
    /// Number of received bytes, captured or not; `None` while no packet is expected.
    length: Option<usize>,
    /// Time of the last fragment.
    last: Time,
}

/// An L2CAP packet, or its beginning if the rest is missing.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    pub(super) length: usize,
    pub(super) at: Time,
}

/// Effect of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// More fragments are missing.
    Part,
    /// The packet is complete.
    Last,
    /// The fragment continues no known packet.
    Orphan,
    /// The fragment is longer than the rest of the packet.
    TooLong,
    /// The capture truncated the length field.
    Headless,
}

/// Length of the whole packet with its header, from its first bytes.
pub(super) fn whole_length(rest: Rest<'_>) -> Option<usize> {
    rest.u16(0).map(|length| HEADER + usize::from(length))
}

impl Assembly {
    /// Adds the first fragment of a packet.
    pub(super) fn begin(&mut self, now: Time, part: Rest<'_>) -> Added {
        self.bytes.clear();
        self.sure = part.bytes.len();
        self.length = Some(0);
        self.add(now, part)
    }

    /// Adds the next fragment.
    pub(super) fn add(&mut self, now: Time, part: Rest<'_>) -> Added {
        let Some(before) = self.length else { return Added::Orphan };
        // Bytes after a truncated fragment would have a wrong offset.
        if self.bytes.len() == before {
            self.bytes.extend_from_slice(part.bytes);
        }
        let length = before + part.length;
        (self.length, self.last) = (Some(length), now);
        match whole_length(Rest::new(&self.bytes, length)) {
            Some(whole) if length < whole => Added::Part,
            Some(whole) if length == whole => Added::Last,
            // The second byte of the length may be in the next fragment.
            None if length < 2 => Added::Part,
            Some(_) => Added::TooLong,
            None => {
                self.length = None;
                Added::Headless
            }
        }
    }

    /// Removes and returns the packet after its last fragment.
    pub(super) fn take(&mut self) -> Option<Whole> {
        self.length.take()?;
        let length = whole_length(Rest::new(&self.bytes, self.bytes.len()))?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(length);
        Some(Whole { bytes, length, at: self.last })
    }

    /// Removes and returns the beginning of an incomplete packet. Fragments after the first may
    /// belong to another packet if some are missing.
    pub(super) fn take_incomplete(&mut self) -> Option<Whole> {
        self.bytes.truncate(self.sure);
        self.take()
    }

    /// Keeps the allocation of `whole` for the next packet.
    pub(super) fn reuse(&mut self, whole: Whole) {
        self.bytes = whole.bytes;
    }

    /// Channel ID of the incomplete packet and the first byte of its payload.
    pub(super) fn header(&self) -> Option<(u16, Option<u8>)> {
        self.length?;
        let rest = Rest::new(&self.bytes, self.bytes.len());
        Some((rest.u16(2)?, rest.u8(HEADER)))
    }
}
