//! The unread rest of a piece.

use manyways_unit::Time;

use crate::stream::Piece;

/// Captured bytes, followed by bytes that were not captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) at: Time,
    pub(super) bytes: &'a [u8],
    pub(super) uncaptured: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(piece: &Piece<'a>) -> Self {
        let there = usize::try_from(piece.length).unwrap_or(usize::MAX).min(piece.bytes.len());
        let bytes = &piece.bytes[..there];
        Self { at: piece.at, bytes, uncaptured: piece.length - there as u64 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.uncaptured == 0
    }

    /// Skips at most `max` bytes and returns the number of skipped bytes.
    pub(super) fn skip(&mut self, max: u64) -> u64 {
        let known = usize::try_from(max).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes = &self.bytes[known..];
        let known = known as u64;
        let unknown = (max - known).min(self.uncaptured);
        self.uncaptured -= unknown;
        known + unknown
    }
}
