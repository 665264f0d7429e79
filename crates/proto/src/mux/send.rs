//! The half of a stream that this end writes: what was written, what of it is still to be sent (for
//! the first time or again), and what has arrived.

use std::collections::VecDeque;

use super::Payload;
use crate::ranges::{Range, Ranges};

#[derive(Debug)]
pub(super) struct SendHalf<P> {
    /// What has not arrived, from `base` on; each piece with its offset.
    chunks: VecDeque<(u64, P)>,
    base: u64,
    end: u64,
    /// Bytes that are to be sent, for the first time or again.
    pending: Ranges,
    /// Bytes past `base` that have arrived.
    arrived: Ranges,
    /// One past the last byte that was ever sent.
    high: u64,
    /// The peer takes in bytes up to here.
    most: u64,
    fin: Fin,
}

/// How far the end of the stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fin {
    /// There may be more.
    Open,
    /// It is to be said (again) that there is no more.
    Pending,
    /// It was said.
    Sent,
    /// The peer knows.
    Arrived,
}

/// A piece to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub range: Range,
    pub fin: bool,
    /// How many bytes of it are sent for the first time past all others: what counts as credit.
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

    /// More bytes of the application. After [`SendHalf::finish`] there are none.
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

    /// Bytes that wait to be sent and may be, as far as the stream's own credit goes.
    pub(super) fn backlog(&self) -> u64 {
        let beyond = self.end.saturating_sub(self.most.max(self.base));
        // What is past the credit was never sent, so all of it is pending.
        self.pending.total().saturating_sub(beyond)
    }

    /// Bytes that were written and have not been sent, credit or not.
    pub(super) fn waiting(&self) -> u64 {
        self.pending.total()
    }

    /// Bytes that are kept because they may have to be sent again.
    pub(super) fn held(&self) -> u64 {
        self.end - self.base
    }

    /// One past the last byte that was ever sent.
    pub(super) fn high(&self) -> u64 {
        self.high
    }

    /// Whether there is anything to send that the stream's credit allows.
    pub(super) fn is_ready(&self) -> bool {
        self.pending.first().is_some_and(|first| first.start < self.most) || self.owes_fin()
    }

    /// The same, of what needs no credit of the session: what was sent before, and the end.
    pub(super) fn is_ready_for_free(&self) -> bool {
        let least = self.most.min(self.high);
        self.pending.first().is_some_and(|first| first.start < least) || self.owes_fin()
    }

    /// The end can be told by itself: all bytes before it were sent.
    fn owes_fin(&self) -> bool {
        self.fin == Fin::Pending && self.pending.is_empty()
    }

    /// Takes up to `most` bytes to send them: the first that are `ahead` bytes into what waits, or
    /// those before them where less waits. At most `fresh` of them may be new to the session.
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
        // Only the piece that is sent last can say so, or the peer's memory of the end comes first.
        let fin = self.fin == Fin::Pending && range.end == self.end && self.pending.is_empty();
        if fin {
            self.fin = Fin::Sent;
        }
        Some(Piece { range, fin, fresh })
    }

    /// Takes the first bytes of all, if they wait, without the end.
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

    /// A copy of bytes that another carrier was given, if they have not arrived.
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

    /// The end by itself once more, if it was said and has not arrived.
    pub(super) fn end_again(&self) -> Option<Piece> {
        let range = Range::new(self.end, self.end);
        (self.fin == Fin::Sent).then_some(Piece { range, fin: true, fresh: 0 })
    }

    /// The bytes of a piece, which lies within one chunk.
    pub(super) fn bytes(&self, range: Range) -> P {
        let Some((offset, chunk)) = self.chunk(range.start) else { return P::empty() };
        chunk.slice((range.start - offset) as usize, (range.end - offset) as usize)
    }

    /// Where to begin, `ahead` bytes into what waits below `limit`.
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

    /// A piece has arrived.
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

    /// A piece may not arrive: what of it has not shall be sent again.
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

    /// Nothing more is sent, and what was written is forgotten.
    pub(super) fn abandon(&mut self) {
        self.chunks.clear();
        self.pending = Ranges::new();
        self.arrived = Ranges::new();
        self.base = self.end;
        self.fin = Fin::Arrived;
    }

    /// The peer has everything, and knows that there is no more.
    pub(super) fn is_done(&self) -> bool {
        self.fin == Fin::Arrived && self.base == self.end
    }

    /// The application may write more.
    pub(super) fn is_open(&self) -> bool {
        self.fin == Fin::Open
    }
}
