//! Send half of a stream: written, pending (also for retransmission) and acknowledged bytes.

use std::collections::VecDeque;

use super::Payload;
use crate::ranges::{Range, Ranges};

/// Minimum bytes of a piece that leaves bytes before it to other carriers, so that it is worth its
/// message. Without it, the bytes that are left get fewer with each piece, by one at the end.
const MIN_AHEAD_PIECE: u64 = 1_400;

#[derive(Debug)]
pub(super) struct SendHalf<P> {
    /// Data from `base` that is not acknowledged, in chunks with their offsets.
    buffers: VecDeque<(u64, P)>,
    base: u64,
    end: u64,
    /// Bytes to send, for the first time or again.
    pending: Ranges,
    /// Acknowledged bytes past `base`.
    acked: Ranges,
    /// One past the highest byte that was ever sent.
    highest_offset: u64,
    /// Offset up to which the peer grants credit.
    max_offset: u64,
    fin: Fin,
}

/// State of the end of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fin {
    /// The application may write more.
    Open,
    /// The end must be sent, for the first time or again.
    Pending,
    /// The end was sent and is not acknowledged.
    Sent,
    /// The end is acknowledged.
    Acked,
}

/// A range of bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub range: Range,
    pub fin: bool,
    /// Bytes past the highest byte sent before; they use credit of the session.
    pub credit_used: u64,
}

impl<P: Payload> SendHalf<P> {
    pub(super) fn new(max: u64) -> Self {
        Self {
            buffers: VecDeque::new(),
            base: 0,
            end: 0,
            pending: Ranges::new(),
            acked: Ranges::new(),
            highest_offset: 0,
            max_offset: max,
            fin: Fin::Open,
        }
    }

    /// Appends data of the application; ignored after [`SendHalf::finish`].
    pub(super) fn write(&mut self, data: P) {
        let length = data.len() as u64;
        if length == 0 || self.fin != Fin::Open {
            return;
        }
        self.pending.insert(Range::new(self.end, self.end + length));
        self.buffers.push_back((self.end, data));
        self.end += length;
    }

    pub(super) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Pending;
        }
    }

    pub(super) fn grant(&mut self, max: u64) {
        self.max_offset = self.max_offset.max(max);
    }

    /// Returns the pending bytes that the credit of the stream permits.
    pub(super) fn backlog(&self) -> u64 {
        let beyond = self.end.saturating_sub(self.max_offset.max(self.base));
        // Bytes beyond the credit were never sent, so all of them are pending.
        self.pending.total().saturating_sub(beyond)
    }

    /// Returns the pending bytes, with or without credit.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.total()
    }

    /// Returns the bytes that are kept for retransmission.
    pub(super) fn unacked_bytes(&self) -> u64 {
        self.end - self.base
    }

    pub(super) fn highest_offset(&self) -> u64 {
        self.highest_offset
    }

    /// Returns whether bytes or the end can be sent with the credit of the stream.
    pub(super) fn is_ready(&self) -> bool {
        self.pending.first().is_some_and(|first| first.start < self.max_offset)
            || self.needs_bare_fin()
    }

    /// Returns the same for bytes that need no credit of the session: retransmissions and the end.
    pub(super) fn is_ready_without_credit(&self) -> bool {
        let min = self.max_offset.min(self.highest_offset);
        self.pending.first().is_some_and(|first| first.start < min) || self.needs_bare_fin()
    }

    /// Returns whether the end must be sent without data, because no byte is pending.
    fn needs_bare_fin(&self) -> bool {
        self.fin == Fin::Pending && self.pending.is_empty()
    }

    /// Takes up to `max` bytes to send, about `ahead` bytes into the pending bytes, or the last
    /// pending range if fewer are pending. At most `fresh` bytes may use new credit of the session.
    pub(super) fn take(&mut self, ahead: u64, max: usize, fresh: u64) -> Option<Piece> {
        if self.needs_bare_fin() {
            self.fin = Fin::Sent;
            return Some(Piece {
                range: Range::new(self.end, self.end),
                fin: true,
                credit_used: 0,
            });
        }
        let limit = self.max_offset.min(self.highest_offset.saturating_add(fresh));
        let first = self.range_ahead(ahead, limit)?;
        let end = first.end.min(limit).min(first.start + max as u64);
        let range = self.within_buffer(Range::new(first.start, end));
        if range.is_empty() {
            return None;
        }
        self.pending.remove(range);
        let fresh = range.end.saturating_sub(self.highest_offset);
        self.highest_offset = self.highest_offset.max(range.end);
        // Only the last pending piece contains the end, so the end does not precede other bytes.
        let fin = self.fin == Fin::Pending && range.end == self.end && self.pending.is_empty();
        if fin {
            self.fin = Fin::Sent;
        }
        Some(Piece { range, fin, credit_used: fresh })
    }

    /// Takes pending bytes at offset 0, without the end of the stream.
    pub(super) fn take_first(&mut self, max: usize, fresh: u64) -> Piece {
        let none = Piece { range: Range::new(0, 0), fin: false, credit_used: 0 };
        let limit = self.max_offset.min(self.highest_offset.saturating_add(fresh));
        let Some(first) = self.pending.first().filter(|first| first.start == 0) else {
            return none;
        };
        let range = self.within_buffer(Range::new(0, first.end.min(limit).min(max as u64)));
        if range.is_empty() {
            return none;
        }
        self.pending.remove(range);
        let fresh = range.end.saturating_sub(self.highest_offset);
        self.highest_offset = self.highest_offset.max(range.end);
        Piece { range, fin: false, credit_used: fresh }
    }

    /// Returns unacknowledged bytes of `owed`, which were sent over another carrier, for a copy.
    pub(super) fn next_copy(&self, owed: &Ranges, max: usize) -> Option<Piece> {
        let first = owed.iter().find_map(|range| {
            let range = Range::new(range.start.max(self.base), range.end);
            self.acked.gaps(range).next()
        })?;
        let end = first.end.min(first.start + max as u64);
        let range = self.within_buffer(Range::new(first.start, end));
        let said = matches!(self.fin, Fin::Sent);
        (!range.is_empty()).then_some(Piece {
            range,
            fin: said && range.end == self.end,
            credit_used: 0,
        })
    }

    /// Returns the end of the stream for a copy, if it was sent and is not acknowledged.
    pub(super) fn fin_copy(&self) -> Option<Piece> {
        let range = Range::new(self.end, self.end);
        (self.fin == Fin::Sent).then_some(Piece { range, fin: true, credit_used: 0 })
    }

    /// Returns the bytes of a piece, which lies within one chunk.
    pub(super) fn bytes(&self, range: Range) -> P {
        let Some((offset, chunk)) = self.buffer_at(range.start) else { return P::empty() };
        chunk.slice((range.start - offset) as usize, (range.end - offset) as usize)
    }

    /// Returns the range to send from, `ahead` bytes into the pending bytes below `limit`, or fewer if
    /// only a small piece were left there.
    fn range_ahead(&self, mut ahead: u64, limit: u64) -> Option<Range> {
        let mut last = None;
        for range in self.pending.iter().take_while(|range| range.start < limit) {
            let range = Range::new(range.start, range.end.min(limit));
            if ahead < range.len() {
                let skipped = ahead.min(range.len().saturating_sub(MIN_AHEAD_PIECE));
                return Some(Range::new(range.start + skipped, range.end));
            }
            ahead -= range.len();
            last = Some(range);
        }
        last
    }

    fn within_buffer(&self, range: Range) -> Range {
        match self.buffer_at(range.start) {
            Some((offset, chunk)) => {
                Range::new(range.start, range.end.min(offset + chunk.len() as u64))
            }
            None => Range::new(range.start, range.start),
        }
    }

    fn buffer_at(&self, at: u64) -> Option<(u64, &P)> {
        let after = self.buffers.partition_point(|(offset, _)| *offset <= at);
        let (offset, chunk) = self.buffers.get(after.checked_sub(1)?)?;
        Some((*offset, chunk))
    }

    /// Records an acknowledged piece.
    pub(super) fn on_ack(&mut self, range: Range, fin: bool) {
        if fin {
            self.fin = Fin::Acked;
        }
        self.pending.remove(range);
        if range.end <= self.base {
            return;
        }
        self.acked.insert(Range::new(range.start.max(self.base), range.end));
        let Some(first) = self.acked.first().filter(|first| first.start <= self.base) else {
            return;
        };
        self.base = first.end;
        self.acked.remove(first);
        while let Some((offset, chunk)) = self.buffers.front()
            && offset + chunk.len() as u64 <= self.base
        {
            self.buffers.pop_front();
        }
    }

    /// Makes the unacknowledged bytes of a piece pending again. Returns their number.
    pub(super) fn on_lost(&mut self, range: Range, fin: bool) -> u64 {
        let range = Range::new(range.start.max(self.base), range.end);
        let missing: Vec<Range> = self.acked.gaps(range).collect();
        let mut again = 0;
        for gap in missing {
            let before = self.pending.total();
            self.pending.insert(gap);
            again += self.pending.total() - before;
        }
        if fin && self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
        again
    }

    /// Stops sending and discards all data.
    pub(super) fn abandon(&mut self) {
        self.buffers.clear();
        self.pending = Ranges::new();
        self.acked = Ranges::new();
        self.base = self.end;
        self.fin = Fin::Acked;
    }

    /// Returns whether the peer has acknowledged all data and the end.
    pub(super) fn is_done(&self) -> bool {
        self.fin == Fin::Acked && self.base == self.end
    }

    /// Returns whether the application may write more.
    pub(super) fn is_open(&self) -> bool {
        self.fin == Fin::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Payload for Vec<u8> {
        fn len(&self) -> usize {
            self.len()
        }

        fn slice(&self, from: usize, to: usize) -> Self {
            self[from..to].to_vec()
        }

        fn empty() -> Self {
            Self::new()
        }

        fn join(first: &Self, second: &Self) -> Self {
            [&first[..], &second[..]].concat()
        }
    }

    /// Takes all of a stream, each time with this many bytes left to other carriers.
    fn pieces(bytes: usize, ahead: u64) -> Vec<(u64, u64)> {
        let mut half = SendHalf::new(1 << 20);
        half.write(vec![0; bytes]);
        let taken = std::iter::from_fn(|| {
            half.take(ahead.min(half.backlog().saturating_sub(1)), 16_384, 1 << 20)
        });
        taken
            .map(|piece| (piece.range.start, piece.range.end))
            .take_while(|(start, end)| end > start)
            .collect()
    }

    #[test]
    fn bytes_left_to_other_carriers_do_not_make_pieces_of_one_byte() {
        assert_eq!(pieces(1_180, 1_179), [(0, 1_180)]);
        assert_eq!(pieces(3_000, 2_500), [(1_600, 3_000), (200, 1_600), (0, 200)]);
        assert_eq!(
            pieces(40_000, 10_000),
            [
                (10_000, 26_384),
                (26_384, 40_000),
                (8_600, 10_000),
                (7_200, 8_600),
                (5_800, 7_200),
                (4_400, 5_800),
                (3_000, 4_400),
                (1_600, 3_000),
                (200, 1_600),
                (0, 200)
            ]
        );
    }
}
