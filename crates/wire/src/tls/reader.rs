//! Records of one direction, of which parts may be unknown (RFC 8446, 5.1; RFC 5246, 6.2).

use std::num::NonZeroU8;

use manyways_unit::Time;

use crate::stream::Piece;

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;
/// RFC 6520. It may come behind others, but nothing is ever taken for a record because of it.
const HEARTBEAT: u8 = 24;
/// A record's type, version and length.
pub(super) const HEADER: usize = 5;
/// The most that a record carries: TLS 1.2 may add so much to what it seals.
const LENGTH_LIMIT: u16 = (1 << 14) + 2048;

/// What comes next in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A record whose header is there.
    Record(Record),
    /// So many bytes inside of the record before, of which these are known.
    Body { at: Time, bytes: &'a [u8], length: u64 },
    /// So many bytes of which nobody knows in what record they are.
    Stray { at: Time, length: u64 },
}

/// The header of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Its first byte.
    pub(super) at: Time,
    /// The last byte of its header.
    pub(super) known: Time,
    pub(super) kind: u8,
    pub(super) length: u16,
}

/// Goes from record to record. Where a header is not known, it does not know where the next one is
/// either, until one is at the beginning of a piece. That is where a packet begins, and where
/// senders begin what they have to say; one in some ten million packets of random bytes begins like
/// that as well.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    header: [u8; HEADER],
    filled: u8,
    began: Time,
    /// How much of the record is still to come.
    left: u16,
    is_lost: bool,
    /// One more than the version in the last header: there is a reader for each direction.
    minor: Option<NonZeroU8>,
    /// How often it did not know any more where the next record is.
    losses: u32,
    /// What was there could be no record.
    is_wrong: bool,
    /// How often it looked for a header at the beginning of a piece, and there was none.
    tries: u8,
}

impl Reader {
    /// At the beginning of a stream, or anywhere in one.
    pub(super) fn new(is_midway: bool) -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            began: Time::ZERO,
            left: 0,
            is_lost: is_midway,
            minor: None,
            losses: 0,
            is_wrong: false,
            tries: 0,
        }
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.into()
    }

    pub(super) fn tries(&self) -> u8 {
        self.tries
    }

    /// What it began with was there and could be no record.
    pub(super) fn is_wrong_from_start(&self) -> bool {
        self.is_wrong && self.minor.is_none()
    }

    /// Tells what is in the next piece.
    pub(super) fn handle<'a>(&mut self, piece: &Piece<'a>, mut tell: impl FnMut(Part<'a>)) {
        let at = piece.at;
        let mut length = piece.length;
        let known = piece.bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        let mut bytes = piece.bytes.get(..known).unwrap_or_default();
        if self.is_lost && !bytes.is_empty() {
            self.look(bytes);
        }
        while length > 0 {
            if self.is_lost {
                tell(Part::Stray { at, length });
                return;
            }
            if self.left > 0 {
                let taken = u16::try_from(length).map_or(self.left, |length| self.left.min(length));
                let here = bytes.len().min(taken.into());
                let (body, rest) = bytes.split_at(here);
                tell(Part::Body { at, bytes: body, length: taken.into() });
                self.left -= taken;
                length -= u64::from(taken);
                bytes = rest;
                continue;
            }
            let Some((byte, rest)) = bytes.split_first() else {
                self.lose();
                continue;
            };
            if self.filled == 0 {
                self.began = at;
            }
            if let Some(place) = self.header.get_mut(usize::from(self.filled)) {
                *place = *byte;
            }
            let there = self.header.get(..=usize::from(self.filled)).unwrap_or_default();
            if !may_begin(there, HEARTBEAT) {
                self.is_wrong = true;
                self.lose();
                continue;
            }
            self.filled += 1;
            bytes = rest;
            length -= 1;
            if usize::from(self.filled) == HEADER {
                self.filled = 0;
                let [kind, _, minor, high, low] = self.header;
                self.minor = Some(NonZeroU8::MIN.saturating_add(minor));
                let size = u16::from_be_bytes([high, low]);
                self.left = size;
                tell(Part::Record(Record { at: self.began, known: at, kind, length: size }));
            }
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.filled = 0;
        self.losses = self.losses.saturating_add(1);
    }

    /// Looks whether a piece begins with a whole header.
    fn look(&mut self, bytes: &[u8]) {
        let header = bytes.first_chunk::<HEADER>();
        // TLS 1.2 and later say 3, the others what they said before.
        self.is_lost = !header.is_some_and(|header| {
            let is_same =
                header[2] == 3 || self.minor.is_some_and(|one| one.get() - 1 == header[2]);
            is_same && may_begin(header, APPLICATION_DATA)
        });
        if self.is_lost {
            self.tries = self.tries.saturating_add(1);
        }
    }
}

/// Whether a record may begin like that.
fn may_begin(header: &[u8], last_kind: u8) -> bool {
    // 3 is SSL 3.0 and all that came after it.
    header.iter().zip(0..).all(|(byte, place)| match place {
        0 => (CHANGE_CIPHER_SPEC..=last_kind).contains(byte),
        1 => *byte == 3,
        2 => *byte <= 4,
        _ => true,
    }) && header.get(3..HEADER).is_none_or(|length| {
        let length = length.iter().fold(0, |number, byte| number << 8 | u16::from(*byte));
        (1..=LENGTH_LIMIT).contains(&length)
    })
}
