//! TLS records of one direction with missing bytes (RFC 8446, 5.1; RFC 5246, 6.2).

use std::num::NonZeroU8;

use manyways_unit::Time;

use crate::stream::Piece;

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;
/// RFC 6520. Accepted after other records, but never used to find a record boundary.
const HEARTBEAT: u8 = 24;
/// Type, version and length of a record.
pub(super) const HEADER: usize = 5;
/// Maximum length of a record; TLS 1.2 allows an expansion of 2,048 bytes.
const MAX_RECORD_LENGTH: u16 = (1 << 14) + 2048;

/// The next part of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordPart<'a> {
    /// A record with a complete header.
    Record(RecordHeader),
    /// A number of bytes of the current record, of which `bytes` were captured.
    Body { at: Time, bytes: &'a [u8], length: u64 },
    /// A number of bytes whose record is unknown.
    Stray { at: Time, length: u64 },
}

/// The header of a TLS record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// Time of the first byte.
    pub(super) start: Time,
    /// Time of the last byte of the header.
    pub(super) end: Time,
    pub(super) kind: u8,
    pub(super) length: u16,
}

/// Follows record boundaries. After a missing header, the next boundary is unknown until a piece
/// begins with a header. Pieces begin where packets begin, and senders begin their messages there.
/// Of ten million packets of random bytes, about one begins like a header by chance.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    header: [u8; HEADER],
    filled: u8,
    start: Time,
    /// Remaining bytes of the current record.
    remaining: u16,
    is_lost: bool,
    /// One more than the minor version of the last header; compact, because each connection has two
    /// readers.
    minor: Option<NonZeroU8>,
    /// How often the record boundary was lost.
    losses: u32,
    /// Whether bytes were found that cannot be a record.
    is_invalid: bool,
    /// Number of pieces, after a loss, that did not begin with a header.
    failed_resyncs: u8,
}

impl Reader {
    /// Creates a reader at the beginning of a stream, or within a stream if `is_midway`.
    pub(super) fn new(is_midway: bool) -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            start: Time::ZERO,
            remaining: 0,
            is_lost: is_midway,
            minor: None,
            losses: 0,
            is_invalid: false,
            failed_resyncs: 0,
        }
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.into()
    }

    pub(super) fn failed_resyncs(&self) -> u8 {
        self.failed_resyncs
    }

    /// Whether the stream began with bytes that cannot be a record.
    pub(super) fn is_not_tls(&self) -> bool {
        self.is_invalid && self.minor.is_none()
    }

    /// Reads the next piece and calls `tell` for each part.
    pub(super) fn handle<'a>(&mut self, piece: &Piece<'a>, mut tell: impl FnMut(RecordPart<'a>)) {
        let at = piece.at;
        let mut length = piece.length;
        let known = piece.bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        let mut bytes = piece.bytes.get(..known).unwrap_or_default();
        if self.is_lost && !bytes.is_empty() {
            self.resync(bytes);
        }
        while length > 0 {
            if self.is_lost {
                tell(RecordPart::Stray { at, length });
                return;
            }
            if self.remaining > 0 {
                let taken = u16::try_from(length)
                    .map_or(self.remaining, |length| self.remaining.min(length));
                let here = bytes.len().min(taken.into());
                let (body, rest) = bytes.split_at(here);
                tell(RecordPart::Body { at, bytes: body, length: taken.into() });
                self.remaining -= taken;
                length -= u64::from(taken);
                bytes = rest;
                continue;
            }
            let Some((byte, rest)) = bytes.split_first() else {
                self.lose_boundary();
                continue;
            };
            if self.filled == 0 {
                self.start = at;
            }
            if let Some(place) = self.header.get_mut(usize::from(self.filled)) {
                *place = *byte;
            }
            let there = self.header.get(..=usize::from(self.filled)).unwrap_or_default();
            if !may_begin(there, HEARTBEAT) {
                self.is_invalid = true;
                self.lose_boundary();
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
                self.remaining = size;
                tell(RecordPart::Record(RecordHeader {
                    start: self.start,
                    end: at,
                    kind,
                    length: size,
                }));
            }
        }
    }

    fn lose_boundary(&mut self) {
        self.is_lost = true;
        self.filled = 0;
        self.losses = self.losses.saturating_add(1);
    }

    /// Checks whether a piece begins with a complete header.
    fn resync(&mut self, bytes: &[u8]) {
        let header = bytes.first_chunk::<HEADER>();
        // Minor version 3 since TLS 1.2; earlier versions repeat their own number.
        self.is_lost = !header.is_some_and(|header| {
            let is_same =
                header[2] == 3 || self.minor.is_some_and(|one| one.get() - 1 == header[2]);
            is_same && may_begin(header, APPLICATION_DATA)
        });
        if self.is_lost {
            self.failed_resyncs = self.failed_resyncs.saturating_add(1);
        }
    }
}

/// Whether `header`, complete or not, is a valid record header.
fn may_begin(header: &[u8], last_kind: u8) -> bool {
    // 3 is the major version of SSL 3.0 and all TLS versions.
    header.iter().zip(0..).all(|(byte, place)| match place {
        0 => (CHANGE_CIPHER_SPEC..=last_kind).contains(byte),
        1 => *byte == 3,
        2 => *byte <= 4,
        _ => true,
    }) && header.get(3..HEADER).is_none_or(|length| {
        let length = length.iter().fold(0, |number, byte| number << 8 | u16::from(*byte));
        (1..=MAX_RECORD_LENGTH).contains(&length)
    })
}
