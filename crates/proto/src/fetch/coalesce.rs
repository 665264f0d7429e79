//! Merges the bytes of one response into few pieces, for an event log.

use manyways_unit::{Span, Time};

/// Pieces of a response that arrive within this time are logged as one.
const COALESCE_GAP: Span = Span::from_millis(5);

/// Consecutive bytes of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset of the first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    pub at: Time,
}

/// Merges the pieces of one response. The first piece is never merged, because the event log must
/// show when the response began.
#[derive(Clone, Copy, Debug)]
pub struct Coalescer {
    next_offset: u64,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Unstarted,
    Empty,
    Merging { from: u64, since: Time, last: Time },
}

impl Coalescer {
    /// Creates the coalescer of a response whose first byte is at `offset`.
    pub fn new(offset: u64) -> Self {
        Self { next_offset: offset, state: State::Unstarted }
    }

    /// Offset of the next byte.
    pub fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Adds the next bytes. Returns the previous piece if it is complete.
    pub fn add(&mut self, now: Time, length: u64) -> Option<Piece> {
        let complete = match self.state {
            State::Merging { since, .. } if now.since(since) >= COALESCE_GAP => self.flush(),
            _ => None,
        };
        let from = self.next_offset;
        self.next_offset += length;
        match &mut self.state {
            State::Unstarted => {
                self.state = State::Empty;
                return Some(Piece { start: from, end: self.next_offset, at: now });
            }
            State::Empty => self.state = State::Merging { from, since: now, last: now },
            State::Merging { last, .. } => *last = now,
        }
        complete
    }

    /// Returns the bytes that no piece has covered yet.
    pub fn flush(&mut self) -> Option<Piece> {
        let State::Merging { from, last, .. } = self.state else { return None };
        self.state = State::Empty;
        Some(Piece { start: from, end: self.next_offset, at: last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_piece_stands_alone_and_later_ones_are_merged_for_five_milliseconds() {
        let ms = Time::from_millis;
        let mut coalescer = Coalescer::new(100);
        let first = Piece { start: 100, end: 110, at: ms(1) };
        assert_eq!(coalescer.add(ms(1), 10), Some(first));
        assert_eq!(coalescer.add(ms(2), 10), None);
        assert_eq!(coalescer.add(ms(6), 10), None);
        let merged = Piece { start: 110, end: 130, at: ms(6) };
        assert_eq!(coalescer.add(ms(7), 10), Some(merged));
        assert_eq!(coalescer.flush(), Some(Piece { start: 130, end: 140, at: ms(7) }));
        assert_eq!((coalescer.flush(), coalescer.next_offset()), (None, 140));
    }
}
