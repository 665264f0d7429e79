//! The unread rest of a piece.

use manyways_unit::Time;

use crate::stream::Piece;

/// Captured bytes, followed by bytes that were not captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest<'a> {
    pub(super) at: Time,
    pub(super) bytes: &'a [u8],
    pub(super) unknown: u64,
}

impl<'a> Rest<'a> {
    pub(super) fn new(piece: &Piece<'a>) -> Self {
        let there = usize::try_from(piece.length).unwrap_or(usize::MAX).min(piece.bytes.len());
        let bytes = &piece.bytes[..there];
        Self { at: piece.at, bytes, unknown: piece.length - there as u64 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.unknown == 0
    }

    /// Skips at most `most` bytes and returns the number of skipped bytes.
    pub(super) fn skip(&mut self, most: u64) -> u64 {
        let known = usize::try_from(most).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes = &self.bytes[known..];
        let known = known as u64;
        let unknown = (most - known).min(self.unknown);
        self.unknown -= unknown;
        known + unknown
    }
}
