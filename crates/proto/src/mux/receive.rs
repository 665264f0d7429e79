//! Receive half of a stream: reassembly and credit.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::Payload;

#[derive(Debug)]
pub(super) struct ReceiveHalf<P> {
    /// Pieces from `next`, by offset; they do not overlap.
    pieces: BTreeMap<u64, P>,
    next_offset: u64,
    /// One past the highest received byte.
    highest_offset: u64,
    /// The final size. `None` if unknown.
    final_size: Option<u64>,
    /// Whether the end was reported to the application.
    end_reported: bool,
    consumed: u64,
    /// Granted offset.
    max_offset: u64,
    window: u64,
    /// Minimum window of every stream, independent of other streams.
    base_window: u64,
    granted_at: Time,
    /// Whether received data is discarded.
    is_discarding: bool,
}

/// A protocol violation of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProtocolViolation {
    /// More bytes than granted.
    FlowControl,
    /// Two different final sizes, or bytes past the final size.
    FinalSize,
}

/// Effect of a received piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ReceivedBytes {
    /// Bytes past the previous highest byte; they count for the credit of the session.
    pub credit_used: u64,
    /// Part of `fresh` that was discarded and counts as consumed.
    pub discarded: u64,
    /// Bytes that were received before.
    pub duplicate: u64,
}

impl<P: Payload> ReceiveHalf<P> {
    pub(super) fn new(window: u64) -> Self {
        Self {
            pieces: BTreeMap::new(),
            next_offset: 0,
            highest_offset: 0,
            final_size: None,
            end_reported: false,
            consumed: 0,
            max_offset: window,
            window,
            base_window: window,
            granted_at: Time::ZERO,
            is_discarding: false,
        }
    }

    /// Returns how many bytes up to `past` are beyond the highest received byte: the session credit
    /// that they would use.
    pub(super) fn credit_needed(&self, past: u64) -> u64 {
        past.saturating_sub(self.highest_offset)
    }

    pub(super) fn receive(
        &mut self,
        offset: u64,
        data: P,
        fin: bool,
    ) -> Result<ReceivedBytes, ProtocolViolation> {
        let length = data.len() as u64;
        let past = offset.checked_add(length).filter(|past| *past <= self.max_offset);
        let past = past.ok_or(ProtocolViolation::FlowControl)?;
        if self.final_size.is_some_and(|end| past > end || (fin && past != end))
            || (fin && past < self.highest_offset)
        {
            return Err(ProtocolViolation::FinalSize);
        }
        if fin {
            self.final_size = Some(past);
        }
        let fresh = past.saturating_sub(self.highest_offset);
        self.highest_offset = self.highest_offset.max(past);
        if self.is_discarding {
            self.consumed += fresh;
            return Ok(ReceivedBytes {
                credit_used: fresh,
                discarded: fresh,
                duplicate: length.saturating_sub(fresh),
            });
        }
        let kept = self.store(offset, data);
        Ok(ReceivedBytes { credit_used: fresh, discarded: 0, duplicate: length - kept })
    }

    /// Stores the new bytes of a piece and returns their number.
    fn store(&mut self, mut offset: u64, mut data: P) -> u64 {
        if offset < self.next_offset {
            let known = (self.next_offset - offset).min(data.len() as u64);
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
        if *offset != self.next_offset {
            return None;
        }
        let (_, data) = self.pieces.pop_first()?;
        self.next_offset += data.len() as u64;
        Some(data)
    }

    /// Returns whether the end is reached; `true` only once.
    pub(super) fn take_end(&mut self) -> bool {
        let reached = self.final_size == Some(self.next_offset) && !self.is_discarding;
        reached && !std::mem::replace(&mut self.end_reported, true)
    }

    /// Records consumed bytes and returns how many were not recorded before.
    pub(super) fn consume(&mut self, bytes: u64) -> u64 {
        let before = self.consumed;
        self.consumed = self.consumed.saturating_add(bytes).min(self.next_offset).max(before);
        self.consumed - before
    }

    /// Returns new credit if a quarter of the window is consumed. If this took less than one round
    /// trip, or if a quarter of the window waits for earlier bytes of a slower path, the reader is not
    /// the limit and the window grows fourfold, because slow start of the peer doubles its window
    /// each round trip. `largest` limits the window, also if it was larger before.
    pub(super) fn grant(&mut self, now: Time, round_trip: Span, largest: u64) -> Option<u64> {
        if self.final_size.is_some() || self.is_discarding {
            return None;
        }
        if self.max_offset - self.consumed > self.window / 4 * 3 {
            return None;
        }
        let beyond_gap = self.highest_offset - self.next_offset;
        if now.since(self.granted_at) < round_trip || beyond_gap > self.window / 4 {
            self.window *= 4;
        }
        self.window = self.window.min(largest.max(self.base_window));
        self.granted_at = now;
        let before = self.max_offset;
        self.max_offset = before.max(self.consumed + self.window);
        (self.max_offset > before).then_some(self.max_offset)
    }

    /// Returns the bytes that this half may buffer above its base window: the granted ones, which the
    /// peer will probably send if it has sent some recently or some are unconsumed, up to the final
    /// size if that is known, or else none.
    pub(super) fn lease(&self, recent: bool) -> u64 {
        let max = match self.final_size {
            _ if self.is_discarding => self.consumed,
            None if recent || self.unconsumed_bytes() > 0 => self.max_offset,
            _ => self.highest_offset,
        };
        max.saturating_sub(self.consumed.saturating_add(self.base_window))
    }

    /// Returns the granted offset, or `None` if no more credit is needed.
    pub(super) fn granted(&self) -> Option<u64> {
        (self.final_size.is_none() && !self.is_discarding).then_some(self.max_offset)
    }

    /// Discards the stored and all later data. Returns the received bytes that now count as
    /// consumed.
    pub(super) fn discard(&mut self) -> u64 {
        if std::mem::replace(&mut self.is_discarding, true) {
            return 0;
        }
        self.pieces.clear();
        let remaining = self.highest_offset - self.consumed;
        self.consumed = self.highest_offset;
        remaining
    }

    /// Processes a reset of the peer with the final size `end`. Returns the bytes that were not
    /// counted for the session credit before.
    pub(super) fn on_reset(&mut self, end: u64) -> Result<u64, ProtocolViolation> {
        if end < self.highest_offset || self.final_size.is_some_and(|known| known != end) {
            return Err(ProtocolViolation::FinalSize);
        }
        if end > self.max_offset {
            return Err(ProtocolViolation::FlowControl);
        }
        let fresh = end - self.highest_offset;
        self.final_size = Some(end);
        self.highest_offset = end;
        self.consumed += fresh;
        Ok(fresh)
    }

    /// Returns the number of stored pieces.
    pub(super) fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the received bytes that are not consumed: pieces past a gap, and delivered data.
    pub(super) fn unconsumed_bytes(&self) -> u64 {
        self.highest_offset - self.consumed
    }

    /// Returns whether the final size is known, and all data is consumed or discarded. Delivered
    /// and unconsumed data still counts for the credit of the session.
    pub(super) fn is_done(&self) -> bool {
        self.final_size
            .is_some_and(|end| self.is_discarding || (self.consumed == end && self.end_reported))
    }

    /// Returns whether the final size is known.
    pub(super) fn has_final_size(&self) -> bool {
        self.final_size.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1_000;
    const LARGEST: u64 = 100_000;

    /// A reader that takes 300 bytes in 10 s, while as many more are there from this offset.
    fn grant_beside(offset: u64) -> Option<u64> {
        let mut half = ReceiveHalf::<Vec<u8>>::new(WINDOW);
        for (at, bytes) in [(0, 300), (offset, 300)] {
            half.receive(at, vec![0; bytes], false).expect("within the window");
        }
        while half.deliver().is_some() {}
        half.consume(300);
        half.grant(Time::from_millis(10_000), Span::from_millis(100), LARGEST)
    }

    #[test]
    fn a_slow_path_does_not_limit_the_window_and_a_slow_reader_does() {
        assert_eq!(grant_beside(300), Some(300 + WINDOW), "the reader is slow");
        assert_eq!(grant_beside(400), Some(300 + 4 * WINDOW), "bytes 300 to 400 are late");
    }
}
