//! Send half of a stream: written, pending (also for retransmission) and acknowledged bytes.

use std::collections::VecDeque;

use super::Payload;
use crate::ranges::{Range, Ranges};

#[derive(Debug)]
pub(super) struct SendHalf<P> {
    /// Data from `base` that is not acknowledged, in chunks with their offsets.
    chunks: VecDeque<(u64, P)>,
    base: u64,
    end: u64,
    /// Bytes to send, for the first time or again.
    pending: Ranges,
    /// Acknowledged bytes past `base`.
    arrived: Ranges,
    /// One past the highest byte that was ever sent.
    high: u64,
    /// Offset up to which the peer grants credit.
    most: u64,
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
    Arrived,
}

/// A range of bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub range: Range,
    pub fin: bool,
    /// Bytes past the highest byte sent before; they use credit of the session.
    pub fresh: u64,
}

impl<P: Payload> SendHalf<P> {
    pub(super) fn new(most: u64) -> Self {
        Self {
            chunks: VecDeque::new(),
            base: 0,
            end: 0,
            pending: Ranges::new(),
            arrived: Ranges::new(),
            high: 0,
            most,
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
        self.chunks.push_back((self.end, data));
        self.end += length;
    }

    pub(super) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Pending;
        }
    }

    pub(super) fn grant(&mut self, most: u64) {
        self.most = self.most.max(most);
    }

    /// Returns the pending bytes that the credit of the stream permits.
    pub(super) fn backlog(&self) -> u64 {
        let beyond = self.end.saturating_sub(self.most.max(self.base));
        // Bytes beyond the credit were never sent, so all of them are pending.
        self.pending.total().saturating_sub(beyond)
    }

    /// Returns the pending bytes, with or without credit.
    pub(super) fn waiting(&self) -> u64 {
        self.pending.total()
    }

    /// Returns the bytes that are kept for retransmission.
    pub(super) fn held(&self) -> u64 {
        self.end - self.base
    }

    pub(super) fn high(&self) -> u64 {
        self.high
    }

    /// Returns whether bytes or the end can be sent with the credit of the stream.
    pub(super) fn is_ready(&self) -> bool {
        self.pending.first().is_some_and(|first| first.start < self.most) || self.owes_fin()
    }

    /// Returns the same for bytes that need no credit of the session: retransmissions and the end.
    pub(super) fn is_ready_for_free(&self) -> bool {
        let least = self.most.min(self.high);
        self.pending.first().is_some_and(|first| first.start < least) || self.owes_fin()
    }

    /// Returns whether the end must be sent without data, because no byte is pending.
    fn owes_fin(&self) -> bool {
        self.fin == Fin::Pending && self.pending.is_empty()
    }

    /// Takes up to `most` bytes to send, `ahead` bytes into the pending bytes, or the last pending
    /// range if fewer are pending. At most `fresh` bytes may use new credit of the session.
    pub(super) fn take(&mut self, ahead: u64, most: usize, fresh: u64) -> Option<Piece> {
        if self.owes_fin() {
            self.fin = Fin::Sent;
            return Some(Piece { range: Range::new(self.end, self.end), fin: true, fresh: 0 });
        }
        let limit = self.most.min(self.high.saturating_add(fresh));
        let first = self.skip(ahead, limit)?;
        let end = first.end.min(limit).min(first.start + most as u64);
        let range = self.within_chunk(Range::new(first.start, end));
        if range.is_empty() {
            return None;
        }
        self.pending.remove(range);
        let fresh = range.end.saturating_sub(self.high);
        self.high = self.high.max(range.end);
        // Only the last pending piece contains the end, so the end does not precede other bytes.
        let fin = self.fin == Fin::Pending && range.end == self.end && self.pending.is_empty();
        if fin {
            self.fin = Fin::Sent;
        }
        Some(Piece { range, fin, fresh })
    }

    /// Takes pending bytes at offset 0, without the end of the stream.
    pub(super) fn take_first(&mut self, most: usize, fresh: u64) -> Piece {
        let none = Piece { range: Range::new(0, 0), fin: false, fresh: 0 };
        let limit = self.most.min(self.high.saturating_add(fresh));
        let Some(first) = self.pending.first().filter(|first| first.start == 0) else {
            return none;
        };
        let range = self.within_chunk(Range::new(0, first.end.min(limit).min(most as u64)));
        if range.is_empty() {
            return none;
        }
        self.pending.remove(range);
        let fresh = range.end.saturating_sub(self.high);
        self.high = self.high.max(range.end);
        Piece { range, fin: false, fresh }
    }

    /// Returns unacknowledged bytes of `owed`, which were sent over another carrier, for a copy.
    pub(super) fn again(&self, owed: &Ranges, most: usize) -> Option<Piece> {
        let first = owed.iter().find_map(|range| {
            let range = Range::new(range.start.max(self.base), range.end);
            self.arrived.gaps(range).next()
        })?;
        let end = first.end.min(first.start + most as u64);
        let range = self.within_chunk(Range::new(first.start, end));
        let said = matches!(self.fin, Fin::Sent);
        (!range.is_empty()).then_some(Piece { range, fin: said && range.end == self.end, fresh: 0 })
    }

    /// Returns the end of the stream for a copy, if it was sent and is not acknowledged.
    pub(super) fn end_again(&self) -> Option<Piece> {
        let range = Range::new(self.end, self.end);
        (self.fin == Fin::Sent).then_some(Piece { range, fin: true, fresh: 0 })
    }

    /// Returns the bytes of a piece, which lies within one chunk.
    pub(super) fn bytes(&self, range: Range) -> P {
        let Some((offset, chunk)) = self.chunk(range.start) else { return P::empty() };
        chunk.slice((range.start - offset) as usize, (range.end - offset) as usize)
    }

    /// Returns the range to send from, `ahead` bytes into the pending bytes below `limit`.
    fn skip(&self, mut ahead: u64, limit: u64) -> Option<Range> {
        let mut last = None;
        for range in self.pending.iter().take_while(|range| range.start < limit) {
            let range = Range::new(range.start, range.end.min(limit));
            if ahead < range.len() {
                return Some(Range::new(range.start + ahead, range.end));
            }
            ahead -= range.len();
            last = Some(range);
        }
        last
    }

    fn within_chunk(&self, range: Range) -> Range {
        match self.chunk(range.start) {
            Some((offset, chunk)) => {
                Range::new(range.start, range.end.min(offset + chunk.len() as u64))
            }
            None => Range::new(range.start, range.start),
        }
    }

    fn chunk(&self, at: u64) -> Option<(u64, &P)> {
        let after = self.chunks.partition_point(|(offset, _)| *offset <= at);
        let (offset, chunk) = self.chunks.get(after.checked_sub(1)?)?;
        Some((*offset, chunk))
    }

    /// Records an acknowledged piece.
    pub(super) fn arrived(&mut self, range: Range, fin: bool) {
        if fin {
            self.fin = Fin::Arrived;
        }
        self.pending.remove(range);
        if range.end <= self.base {
            return;
        }
        self.arrived.insert(Range::new(range.start.max(self.base), range.end));
        let Some(first) = self.arrived.first().filter(|first| first.start <= self.base) else {
            return;
        };
        self.base = first.end;
        self.arrived.remove(first);
        while let Some((offset, chunk)) = self.chunks.front()
            && offset + chunk.len() as u64 <= self.base
        {
            self.chunks.pop_front();
        }
    }

    /// Makes the unacknowledged bytes of a piece pending again. Returns their number.
    pub(super) fn lost(&mut self, range: Range, fin: bool) -> u64 {
        let range = Range::new(range.start.max(self.base), range.end);
        let missing: Vec<Range> = self.arrived.gaps(range).collect();
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
        self.chunks.clear();
        self.pending = Ranges::new();
        self.arrived = Ranges::new();
        self.base = self.end;
        self.fin = Fin::Arrived;
    }

    /// Returns whether the peer has acknowledged all data and the end.
    pub(super) fn is_done(&self) -> bool {
        self.fin == Fin::Arrived && self.base == self.end
    }

    /// Returns whether the application may write more.
    pub(super) fn is_open(&self) -> bool {
        self.fin == Fin::Open
    }
}
