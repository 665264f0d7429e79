//! Reassembly of the beginning of a stream.

use std::ops::Range;

use crate::MAX_PEEK_LENGTH;

/// Maximum number of pieces with gaps between them. Browsers split their ClientHello into a dozen
/// pieces, to keep middleboxes from relying on its shape.
const MAX_PIECES: usize = 64;

/// The first [`MAX_PEEK_LENGTH`] bytes of a stream, some of which may be missing.
#[derive(Default)]
pub(super) struct Reassembly {
    /// All bytes up to the last received one; zeros for missing bytes.
    bytes: Vec<u8>,
    /// Received ranges in ascending order, with gaps between them.
    received: Vec<Range<usize>>,
}

impl Reassembly {
    /// Inserts a piece. `None` if a limit would be exceeded.
    pub(super) fn insert(&mut self, at: usize, piece: &[u8]) -> Option<()> {
        let end = at.checked_add(piece.len()).filter(|end| *end <= MAX_PEEK_LENGTH)?;
        if piece.is_empty() {
            return Some(());
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(piece);
        // Adjacent and overlapping ranges are merged.
        let first = self.received.partition_point(|range| range.end < at);
        let after = self.received.partition_point(|range| range.start <= end);
        let mut whole = at..end;
        for range in self.received.drain(first..after) {
            whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
        self.received.insert(first, whole);
        (self.received.len() <= MAX_PIECES).then_some(())
    }

    /// The bytes from the beginning up to the first gap.
    pub(super) fn contiguous(&self) -> &[u8] {
        match self.received.first() {
            Some(range) if range.start == 0 => &self.bytes[..range.end],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_may_come_in_any_order_and_overlap() {
        let mut assembly = Reassembly::default();
        for (at, piece, expected) in
            [(6, "gh", ""), (0, "abc", "abc"), (9, "j", "abc"), (2, "cdefg", "abcdefgh")]
        {
            assembly.insert(at, piece.as_bytes()).unwrap();
            assert_eq!(assembly.contiguous(), expected.as_bytes());
        }
        assembly.insert(8, b"i").unwrap();
        assert_eq!(assembly.contiguous(), b"abcdefghij");
    }

    #[test]
    fn pieces_beyond_the_limits_are_rejected() {
        let mut assembly = Reassembly::default();
        assert_eq!(assembly.insert(MAX_PEEK_LENGTH, b"x"), None);
        assert_eq!(assembly.insert(usize::MAX, b"x"), None);
        assert_eq!(assembly.insert(MAX_PEEK_LENGTH - 1, b"x"), Some(()));
        for n in 1..MAX_PIECES {
            assert_eq!(assembly.insert(n * 2, b"x"), Some(()));
        }
        assert_eq!(assembly.insert(MAX_PIECES * 2, b"x"), None);
    }

    proptest! {
        #[test]
        fn the_beginning_has_the_inserted_bytes(
            pieces in prop::collection::vec((0_usize..100, 0_usize..30), 1..20),
        ) {
            let stream: Vec<u8> = (0..130).collect();
            let mut assembly = Reassembly::default();
            let mut there = [false; 131];
            for (at, length) in pieces {
                assembly.insert(at, &stream[at..at + length]).unwrap();
                there[at..at + length].fill(true);
                let end = there.iter().take_while(|there| **there).count();
                prop_assert_eq!(assembly.contiguous(), &stream[..end]);
            }
        }
    }
}
