//! The bytes of one direction of a connection, in the order of the stream.

use manyways_unit::Time;

/// The next bytes of a stream: they begin where the piece before them ends.
///
/// Of some only the beginning is there, as captures cut packets, and of some nothing, as captures
/// miss packets. So `length` counts, and `bytes` is what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// When they passed first. Bytes that came out of order have an earlier time than some before
    /// them.
    pub at: Time,
    /// As much of their beginning as was captured: at most `length` bytes.
    pub bytes: &'a [u8],
    /// How many they are.
    pub length: u64,
}

impl<'a> Piece<'a> {
    /// All of `bytes`, which passed at this time.
    pub fn whole(at: Time, bytes: &'a [u8]) -> Self {
        Self { at, bytes, length: bytes.len() as u64 }
    }

    /// So many bytes of which none was captured.
    pub fn unknown(at: Time, length: u64) -> Self {
        Self { at, bytes: &[], length }
    }
}
