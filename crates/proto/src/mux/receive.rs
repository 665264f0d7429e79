//! Receive half of a stream: reassembly and credit.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::Payload;

#[derive(Debug)]
pub(super) struct ReceiveHalf<P> {
    /// Pieces from `next`, by offset; they do not overlap.
    pieces: BTreeMap<u64, P>,
    next: u64,
    /// One past the highest received byte.
    high: u64,
    /// The final size. `None` if unknown.
    end: Option<u64>,
    /// Whether the end was reported to the application.
    told: bool,
    consumed: u64,
    /// Granted offset.
    most: u64,
    window: u64,
    /// Minimum window of every stream, independent of other streams.
    base: u64,
    granted_at: Time,
    /// Whether received data is discarded.
    discarding: bool,
}

/// A protocol violation of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Breach {
    /// More bytes than granted.
    Credit,
    /// Two different final sizes, or bytes past the final size.
    End,
}

/// Effect of a received piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Brought {
    /// Bytes past the previous highest byte; they count for the credit of the session.
    pub fresh: u64,
    /// Part of `fresh` that was discarded and counts as consumed.
    pub discarded: u64,
    /// Bytes that were received before.
    pub repeated: u64,
}

impl<P: Payload> ReceiveHalf<P> {
    pub(super) fn new(window: u64) -> Self {
        Self {
            pieces: BTreeMap::new(),
            next: 0,
            high: 0,
            end: None,
            told: false,
            consumed: 0,
            most: window,
            window,
            base: window,
            granted_at: Time::ZERO,
            discarding: false,
        }
    }

    /// Returns how many bytes up to `past` are beyond the highest received byte: the session credit
    /// that they would use.
    pub(super) fn beyond(&self, past: u64) -> u64 {
        past.saturating_sub(self.high)
    }

    pub(super) fn receive(&mut self, offset: u64, data: P, fin: bool) -> Result<Brought, Breach> {
        let length = data.len() as u64;
        let past = offset.checked_add(length).filter(|past| *past <= self.most);
        let past = past.ok_or(Breach::Credit)?;
        if self.end.is_some_and(|end| past > end || (fin && past != end))
            || (fin && past < self.high)
        {
            return Err(Breach::End);
        }
        if fin {
            self.end = Some(past);
        }
        let fresh = past.saturating_sub(self.high);
        self.high = self.high.max(past);
        if self.discarding {
            self.consumed += fresh;
            return Ok(Brought { fresh, discarded: fresh, repeated: length.saturating_sub(fresh) });
        }
        let kept = self.keep(offset, data);
        Ok(Brought { fresh, discarded: 0, repeated: length - kept })
    }

    /// Stores the new bytes of a piece and returns their number.
    fn keep(&mut self, mut offset: u64, mut data: P) -> u64 {
        if offset < self.next {
            let known = (self.next - offset).min(data.len() as u64);
            data = data.slice(known as usize, data.len());
            offset += known;
        }
        if let Some((before, piece)) = self.pieces.range(..=offset).next_back() {
            let known = (before + piece.len() as u64).saturating_sub(offset).min(data.len() as u64);
            data = data.slice(known as usize, data.len());
            offset += known;
        }
        let mut kept = 0;
        while data.len() > 0 {
            // Up to the next stored piece.
            let after = self.pieces.range(offset..).next().map(|(at, piece)| (*at, piece.len()));
            let free = after.map_or(data.len(), |(at, _)| data.len().min((at - offset) as usize));
            if free > 0 {
                self.pieces.insert(offset, data.slice(0, free));
                kept += free as u64;
            }
            let skip = match after {
                Some((_, length)) if free < data.len() => data.len().min(free + length),
                _ => free,
            };
            data = data.slice(skip, data.len());
            offset += skip as u64;
        }
        kept
    }

    /// Returns the next bytes in order.
    pub(super) fn deliver(&mut self) -> Option<P> {
        let (offset, _) = self.pieces.first_key_value()?;
        if *offset != self.next {
            return None;
        }
        let (_, data) = self.pieces.pop_first()?;
        self.next += data.len() as u64;
        Some(data)
    }

    /// Returns whether the end is reached; `true` only once.
    pub(super) fn reached_end(&mut self) -> bool {
        let reached = self.end == Some(self.next) && !self.discarding;
        reached && !std::mem::replace(&mut self.told, true)
    }

    /// Records consumed bytes and returns how many were not recorded before.
    pub(super) fn consume(&mut self, bytes: u64) -> u64 {
        let before = self.consumed;
        self.consumed = self.consumed.saturating_add(bytes).min(self.next).max(before);
        self.consumed - before
    }

    /// Returns new credit if a quarter of the window is consumed. If this took less than one round
    /// trip, the reader is not the limit and the window grows fourfold, because slow start of the
    /// peer doubles its window each round trip. `largest` limits the window, also if it was larger
    /// before.
    pub(super) fn grant(&mut self, now: Time, round_trip: Span, largest: u64) -> Option<u64> {
        if self.end.is_some() || self.discarding {
            return None;
        }
        if self.most - self.consumed > self.window / 4 * 3 {
            return None;
        }
        if now.since(self.granted_at) < round_trip {
            self.window *= 4;
        }
        self.window = self.window.min(largest.max(self.base));
        self.granted_at = now;
        let before = self.most;
        self.most = before.max(self.consumed + self.window);
        (self.most > before).then_some(self.most)
    }

    /// Returns the bytes that this half may buffer above its base window: the unused part of a
    /// recent grant, which the peer will probably use, or else the received and unconsumed bytes.
    pub(super) fn lease(&self, recent: bool) -> u64 {
        let most = match self.end {
            _ if self.discarding => self.consumed,
            None if recent => self.most,
            _ => self.high,
        };
        most.saturating_sub(self.consumed.saturating_add(self.base))
    }

    /// Returns the granted offset, or `None` if no more credit is needed.
    pub(super) fn granted(&self) -> Option<u64> {
        (self.end.is_none() && !self.discarding).then_some(self.most)
    }

    /// Discards the stored and all later data. Returns the received bytes that now count as
    /// consumed.
    pub(super) fn discard(&mut self) -> u64 {
        if std::mem::replace(&mut self.discarding, true) {
            return 0;
        }
        self.pieces.clear();
        let left = self.high - self.consumed;
        self.consumed = self.high;
        left
    }

    /// Processes a reset of the peer with the final size `end`. Returns the bytes that were not
    /// counted for the session credit before.
    pub(super) fn cut(&mut self, end: u64) -> Result<u64, Breach> {
        if end < self.high || self.end.is_some_and(|known| known != end) {
            return Err(Breach::End);
        }
        if end > self.most {
            return Err(Breach::Credit);
        }
        let fresh = end - self.high;
        self.end = Some(end);
        self.high = end;
        self.consumed += fresh;
        Ok(fresh)
    }

    /// Returns the number of stored pieces.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the received bytes that are not consumed: pieces past a gap, and delivered data.
    pub(super) fn held(&self) -> u64 {
        self.high - self.consumed
    }

    /// Returns whether the final size is known, and all data is consumed or discarded. Delivered
    /// and unconsumed data still counts for the credit of the session.
    pub(super) fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.discarding || (self.consumed == end && self.told))
    }

    /// Returns whether the final size is known.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }
}
