//! Reassembly of the beginning of a stream.

use std::ops::Range;

use crate::LIMIT;

/// Maximum number of pieces with gaps between them. Browsers split their ClientHello into a dozen
/// pieces, to keep middleboxes from relying on its shape.
const PIECE_LIMIT: usize = 64;

/// The first [`LIMIT`] bytes of a stream, some of which may be missing.
#[derive(Default)]
pub(super) struct Assembly {
    /// All bytes up to the last received one; zeros for missing bytes.
    bytes: Vec<u8>,
    /// Received ranges in ascending order, with gaps between them.
    there: Vec<Range<usize>>,
}

impl Assembly {
    /// Inserts a piece. `None` if a limit would be exceeded.
    pub(super) fn insert(&mut self, at: usize, piece: &[u8]) -> Option<()> {
        let end = at.checked_add(piece.len()).filter(|end| *end <= LIMIT)?;
        if piece.is_empty() {
            return Some(());
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(piece);
        // Adjacent and overlapping ranges are merged.
        let first = self.there.partition_point(|range| range.end < at);
        let after = self.there.partition_point(|range| range.start <= end);
        let mut whole = at..end;
        for range in self.there.drain(first..after) {
            whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
        self.there.insert(first, whole);
        (self.there.len() <= PIECE_LIMIT).then_some(())
    }

    /// The bytes from the beginning up to the first gap.
    pub(super) fn beginning(&self) -> &[u8] {
        match self.there.first() {
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
        let mut assembly = Assembly::default();
        for (at, piece, expected) in
            [(6, "gh", ""), (0, "abc", "abc"), (9, "j", "abc"), (2, "cdefg", "abcdefgh")]
        {
            assembly.insert(at, piece.as_bytes()).unwrap();
            assert_eq!(assembly.beginning(), expected.as_bytes());
        }
        assembly.insert(8, b"i").unwrap();
        assert_eq!(assembly.beginning(), b"abcdefghij");
    }

    #[test]
    fn pieces_beyond_the_limits_are_rejected() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.insert(LIMIT, b"x"), None);
        assert_eq!(assembly.insert(usize::MAX, b"x"), None);
        assert_eq!(assembly.insert(LIMIT - 1, b"x"), Some(()));
        for n in 1..PIECE_LIMIT {
            assert_eq!(assembly.insert(n * 2, b"x"), Some(()));
        }
        assert_eq!(assembly.insert(PIECE_LIMIT * 2, b"x"), None);
    }

    proptest! {
        #[test]
        fn the_beginning_has_the_inserted_bytes(
            pieces in prop::collection::vec((0_usize..100, 0_usize..30), 1..20),
        ) {
            let stream: Vec<u8> = (0..130).collect();
            let mut assembly = Assembly::default();
            let mut there = [false; 131];
            for (at, length) in pieces {
                assembly.insert(at, &stream[at..at + length]).unwrap();
                there[at..at + length].fill(true);
                let end = there.iter().take_while(|there| **there).count();
                prop_assert_eq!(assembly.beginning(), &stream[..end]);
            }
        }
    }
}
