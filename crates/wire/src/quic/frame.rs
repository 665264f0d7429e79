//! Frames in an Initial packet (RFC 9000, 12.4 and 19).

use super::reassembly::Reassembly;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;

/// Inserts the CRYPTO data of a packet into the ClientHello. `None` if a frame is not allowed in a
/// client's Initial packet, is truncated, or exceeds a limit.
pub(super) fn read(frames: &[u8], hello: &mut Reassembly) -> Option<()> {
    let mut fields = Cursor(frames);
    while !fields.0.is_empty() {
        match fields.byte()? {
            PADDING | PING => {}
            kind @ (ACK | ACK_ECN) => acknowledgement(&mut fields, kind == ACK_ECN)?,
            CRYPTO => {
                let at = fields.varint()?;
                let length = fields.varint()?;
                hello.insert(at, fields.bytes(length)?)?;
            }
            // CONNECTION_CLOSE, and frames that are not allowed here.
            _ => return None,
        }
    }
    Some(())
}

fn acknowledgement(fields: &mut Cursor<'_>, ecn: bool) -> Option<()> {
    let (_largest, _delay, ranges) = (fields.varint()?, fields.varint()?, fields.varint()?);
    let _first = fields.varint()?;
    for _ in 0..ranges {
        let (_gap, _length) = (fields.varint()?, fields.varint()?);
    }
    for _ in 0..if ecn { 3 } else { 0 } {
        fields.varint()?;
    }
    Some(())
}

/// The unread bytes.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Bytes after their length of one byte, which must be at most `limit`.
    pub(super) fn prefixed_bytes(&mut self, limit: usize) -> Option<&'a [u8]> {
        let length = usize::from(self.byte()?);
        if length > limit { None } else { self.bytes(length) }
    }

    /// Two connection IDs after one byte with both lengths: 0, or 3 less than the length.
    pub(super) fn shared_lengths(&mut self) -> Option<[&'a [u8]; 2]> {
        let lengths = self.byte()?;
        let length = |half: u8| if half == 0 { 0 } else { usize::from(half) + 3 };
        Some([self.bytes(length(lengths >> 4))?, self.bytes(length(lengths & 15))?])
    }

    /// A variable-length integer of 1, 2, 4 or 8 bytes (RFC 9000, 16).
    pub(super) fn varint(&mut self) -> Option<usize> {
        let first = self.byte()?;
        let more = self.bytes((1 << (first >> 6)) - 1)?;
        let start = u64::from(first & 0x3f);
        let number = more.iter().fold(start, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()
    }
}
