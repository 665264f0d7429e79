//! Bytes of one direction of a connection, in stream order.

use manyways_unit::Time;

/// The next bytes of a stream: the first byte follows the last byte of the previous piece.
///
/// Captures truncate packets and miss packets, so `bytes` may be shorter than `length`, or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Time of the first copy. Earlier than that of preceding bytes if the packets were reordered.
    pub at: Time,
    /// The captured bytes from the beginning of the piece: at most `length` bytes.
    pub bytes: &'a [u8],
    /// Number of bytes, captured or not.
    pub length: u64,
}

impl<'a> Piece<'a> {
    /// A piece captured completely at `at`.
    pub fn captured(at: Time, bytes: &'a [u8]) -> Self {
        Self { at, bytes, length: bytes.len() as u64 }
    }

    /// A piece of `length` bytes of which none was captured.
    pub fn uncaptured(at: Time, length: u64) -> Self {
        Self { at, bytes: &[], length }
    }
}
