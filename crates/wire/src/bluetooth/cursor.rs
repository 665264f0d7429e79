//! The unread rest of a packet. Bluetooth is little-endian.

use super::control::Address;

/// The rest of a packet, whose end may not have been captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor<'a> {
    /// The captured bytes.
    pub(super) bytes: &'a [u8],
    /// Length in bytes, captured or not; at least the length of `bytes`.
    pub(super) length: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], length: usize) -> Self {
        Self { bytes, length: length.max(bytes.len()) }
    }

    /// Skips `count` bytes, captured or not.
    pub(super) fn skip(self, count: usize) -> Option<Self> {
        let length = self.length.checked_sub(count)?;
        Some(Self { bytes: self.bytes.get(count..).unwrap_or_default(), length })
    }

    /// The first `count` bytes, captured or not.
    pub(super) fn first(self, count: usize) -> Self {
        let there = self.bytes.len().min(count);
        Self { bytes: self.bytes.get(..there).unwrap_or_default(), length: count }
    }

    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
    }

    /// Reads a number of at most eight bytes.
    pub(super) fn number(self, at: usize, width: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn address(self, at: usize) -> Option<Address> {
        let mut address: [u8; 6] = *self.bytes.get(at..)?.first_chunk()?;
        address.reverse();
        Some(Address(address))
    }
}
