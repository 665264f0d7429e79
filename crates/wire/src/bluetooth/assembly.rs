//! L2CAP's packets, put together from the parts that pass the HCI (vol 3, part A, 7.2).

use manyways_unit::Time;

use super::rest::Rest;

/// The length and the channel before what a packet carries.
pub(super) const HEADER: usize = 4;

/// A packet that is not complete yet: one for each direction of a connection, as parts never mix.
/// It holds at most the 65,539 bytes that a packet can have.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    /// What is known from its beginning on.
    bytes: Vec<u8>,
    /// So many of these came in its first part.
    sure: usize,
    /// So many bytes of it passed; none are expected while this is nothing.
    length: Option<usize>,
    /// When the last of them did.
    last: Time,
}

/// A packet of L2CAP, or its beginning where the rest never came.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    pub(super) length: usize,
    pub(super) at: Time,
}

/// What a part did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// More is to come.
    Part,
    /// It was the last one.
    Last,
    /// It goes on with nothing.
    Orphan,
    /// It is longer than what was left to come.
    TooLong,
    /// It was cut before it says how long the packet is.
    Headless,
}

/// How long the whole packet is, by its beginning.
pub(super) fn whole_length(rest: Rest<'_>) -> Option<usize> {
    rest.u16(0).map(|length| HEADER + usize::from(length))
}

impl Assembly {
    /// The first part of a packet.
    pub(super) fn begin(&mut self, now: Time, part: Rest<'_>) -> Added {
        self.bytes.clear();
        self.sure = part.bytes.len();
        self.length = Some(0);
        self.add(now, part)
    }

    /// The next part.
    pub(super) fn add(&mut self, now: Time, part: Rest<'_>) -> Added {
        let Some(before) = self.length else { return Added::Orphan };
        // Where a part was cut, what follows has no place.
        if self.bytes.len() == before {
            self.bytes.extend_from_slice(part.bytes);
        }
        let length = before + part.length;
        (self.length, self.last) = (Some(length), now);
        match whole_length(Rest::new(&self.bytes, length)) {
            Some(whole) if length < whole => Added::Part,
            Some(whole) if length == whole => Added::Last,
            // One byte of the length may come in the next part.
            None if length < 2 => Added::Part,
            Some(_) => Added::TooLong,
            None => {
                self.length = None;
                Added::Headless
            }
        }
    }

    /// What is there after the last part.
    pub(super) fn take(&mut self) -> Option<Whole> {
        self.length.take()?;
        let length = whole_length(Rest::new(&self.bytes, self.bytes.len()))?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(length);
        Some(Whole { bytes, length, at: self.last })
    }

    /// What is there of a packet that stays incomplete. Where parts are missing, those that came
    /// after its first one may be another packet's.
    pub(super) fn take_incomplete(&mut self) -> Option<Whole> {
        self.bytes.truncate(self.sure);
        self.take()
    }

    /// The next packet can use the room of this one.
    pub(super) fn reuse(&mut self, whole: Whole) {
        self.bytes = whole.bytes;
    }

    /// The channel of the packet on its way, and the first byte of what that carries.
    pub(super) fn header(&self) -> Option<(u16, Option<u8>)> {
        self.length?;
        let rest = Rest::new(&self.bytes, self.bytes.len());
        Some((rest.u16(2)?, rest.u8(HEADER)))
    }
}
