//! A client's Initial packet (RFC 9000, 17.2.2).

use super::frame::Fields;
use super::keys::{Keys, Version};

/// The longest connection id.
const ID_LIMIT: usize = 20;
/// Where the sample for the header's mask begins, from the packet's number on, and its length.
const SAMPLE: (usize, usize) = (4, 16);

/// An Initial packet, still sealed.
pub(super) struct Initial<'a> {
    pub(super) version: Version,
    /// The connection id that it is addressed to.
    pub(super) destination: &'a [u8],
    /// From its first byte on; the number follows.
    header: &'a [u8],
    /// The number and what is sealed.
    rest: &'a [u8],
}

impl<'a> Initial<'a> {
    /// The packet that a datagram begins with, and what comes after it.
    pub(super) fn parse(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut fields = Fields(datagram);
        let first = fields.byte()?;
        let version = fields.bytes(4)?;
        let kind = first >> 4 & 3;
        // The second version renames the types, so that nobody takes the first for granted.
        let version = match (u32::from_be_bytes(*version.first_chunk()?), kind) {
            (1, 0) => Version::One,
            (0x6b33_43cf, 1) => Version::Two,
            _ => return None,
        };
        if first & 0x80 == 0 {
            return None;
        }
        let destination = fields.short_bytes(ID_LIMIT)?;
        fields.short_bytes(ID_LIMIT)?;
        let token = fields.number()?;
        fields.bytes(token)?;
        let length = fields.number()?;
        let header = &datagram[..datagram.len() - fields.0.len()];
        let rest = fields.bytes(length)?;
        Some((Self { version, destination, header, rest }, fields.0))
    }

    /// What it carries, when these are its keys.
    pub(super) fn open(&self, keys: &Keys) -> Option<Vec<u8>> {
        let (at, length) = SAMPLE;
        let [mask, masks @ ..] = keys.mask(self.rest.get(at..at + length)?)?;
        let mut header = self.header.to_vec();
        let first = header.first_mut()?;
        *first ^= mask & 0x0f;
        let (hidden, sealed) = self.rest.split_at(usize::from(*first & 3) + 1);
        // Nothing was acknowledged yet, so that the whole number is there, not just its end.
        let mut number = 0;
        for (byte, mask) in hidden.iter().zip(masks) {
            header.push(byte ^ mask);
            number = number << 8 | u32::from(byte ^ mask);
        }
        keys.open(number, &header, sealed)
    }
}
