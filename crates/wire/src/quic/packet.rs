//! A client's Initial packet (RFC 9000, 17.2.2).

use super::frame::Cursor;
use super::keys::{Keys, Version};

/// Maximum length of a connection ID.
const MAX_CID_LENGTH: usize = 20;
/// Offset of the header protection sample from the packet number, and its length (RFC 9001, 5.4.2).
const SAMPLE_POSITION: (usize, usize) = (4, 16);

/// An encrypted Initial packet.
pub(super) struct Initial<'a> {
    pub(super) version: Version,
    /// Destination connection ID.
    pub(super) destination_cid: &'a [u8],
    /// The header before the packet number.
    header: &'a [u8],
    /// Packet number and encrypted payload.
    rest: &'a [u8],
}

impl<'a> Initial<'a> {
    /// Reads the packet at the beginning of a datagram, and returns the bytes after it.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut fields = Cursor(datagram);
        let first = fields.byte()?;
        let version = fields.bytes(4)?;
        let kind = first >> 4 & 3;
        // Version 2 renumbers the packet types, to prevent ossification (RFC 9369, 3.2).
        let version = match (u32::from_be_bytes(*version.first_chunk()?), kind) {
            (1, 0) => Version::One,
            (0x6b33_43cf, 1) => Version::Two,
            _ => return None,
        };
        if first & 0x80 == 0 {
            return None;
        }
        let destination = fields.prefixed_bytes(MAX_CID_LENGTH)?;
        fields.prefixed_bytes(MAX_CID_LENGTH)?;
        let token = fields.varint()?;
        fields.bytes(token)?;
        let length = fields.varint()?;
        let header = &datagram[..datagram.len() - fields.0.len()];
        let rest = fields.bytes(length)?;
        Some((Self { version, destination_cid: destination, header, rest }, fields.0))
    }

    /// Decrypts the payload; `None` if the keys are wrong.
    pub(super) fn open(&self, keys: &Keys) -> Option<Vec<u8>> {
        let (at, length) = SAMPLE_POSITION;
        let [mask, masks @ ..] = keys.mask(self.rest.get(at..at + length)?)?;
        let mut header = self.header.to_vec();
        let first = header.first_mut()?;
        *first ^= mask & 0x0f;
        let (hidden, sealed) = self.rest.split_at(usize::from(*first & 3) + 1);
        // Before the first acknowledgment, the packet number is not abbreviated.
        let mut number = 0;
        for (byte, mask) in hidden.iter().zip(masks) {
            header.push(byte ^ mask);
            number = number << 8 | u32::from(byte ^ mask);
        }
        keys.open(number, &header, sealed)
    }
}
