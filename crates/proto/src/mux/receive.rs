//! The half of a stream that the peer writes: puts pieces in order, and grants credit as the
//! application takes them.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::Payload;

#[derive(Debug)]
pub(super) struct ReceiveHalf<P> {
    /// Pieces past `next`, by offset; they do not overlap.
    pieces: BTreeMap<u64, P>,
    next: u64,
    /// One past the last byte that came, in whatever order.
    high: u64,
    /// The length, where the end has come.
    end: Option<u64>,
    /// It was told that the end has come.
    told: bool,
    consumed: u64,
    /// Granted up to here.
    most: u64,
    window: u64,
    /// What every stream is granted, whatever the others hold.
    base: u64,
    granted_at: Time,
    /// What comes is not wanted any more.
    discarding: bool,
}

/// The peer broke a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Breach {
    /// More bytes than it has credit for.
    Credit,
    /// The end is in two places, or bytes are past it.
    End,
}

/// What a piece brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Brought {
    /// So many bytes past the last one so far: what counts as the session's credit.
    pub fresh: u64,
    /// So many of these are not wanted: they are as good as consumed.
    pub discarded: u64,
    /// So many bytes had come before.
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

    /// How many bytes up to `past` lie beyond all that came: so much of the session's credit they
    /// would use.
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

    /// Keeps what of a piece has not come before; so many bytes.
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
            // Up to the next piece that is there.
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

    /// The next bytes in order.
    pub(super) fn deliver(&mut self) -> Option<P> {
        let (offset, _) = self.pieces.first_key_value()?;
        if *offset != self.next {
            return None;
        }
        let (_, data) = self.pieces.pop_first()?;
        self.next += data.len() as u64;
        Some(data)
    }

    /// Whether the end has just been reached; once.
    pub(super) fn reached_end(&mut self) -> bool {
        let reached = self.end == Some(self.next) && !self.discarding;
        reached && !std::mem::replace(&mut self.told, true)
    }

    /// The application has taken bytes: so many that had not counted as consumed before.
    pub(super) fn consume(&mut self, bytes: u64) -> u64 {
        let before = self.consumed;
        self.consumed = self.consumed.saturating_add(bytes).min(self.next).max(before);
        self.consumed - before
    }

    /// New credit, where it is time for it: a quarter of the window was consumed. Where that took
    /// less than a round trip, the reader is not what holds it up, and the window grows fourfold: the
    /// peer's slow start needs twice as much each round trip. It is no larger than `largest`, also
    /// where it was.
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

    /// How much more this half makes this end hold than every stream may: what was granted, where
    /// that is so recent that it is likely to be used, or else what came and was not taken.
    pub(super) fn lease(&self, recent: bool) -> u64 {
        let most = match self.end {
            _ if self.discarding => self.consumed,
            None if recent => self.most,
            _ => self.high,
        };
        most.saturating_sub(self.consumed.saturating_add(self.base))
    }

    /// What was granted last, where it still matters.
    pub(super) fn granted(&self) -> Option<u64> {
        (self.end.is_none() && !self.discarding).then_some(self.most)
    }

    /// Nothing of it is wanted any more. So many bytes that had come are as good as consumed.
    pub(super) fn discard(&mut self) -> u64 {
        if std::mem::replace(&mut self.discarding, true) {
            return 0;
        }
        self.pieces.clear();
        let left = self.high - self.consumed;
        self.consumed = self.high;
        left
    }

    /// The peer ended it after `end` bytes, which may not all have come. So many were not counted
    /// as fresh yet.
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

    /// How many pieces wait for those before them.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes past a gap, and those that were not taken: what this half makes this end hold.
    pub(super) fn held(&self) -> u64 {
        self.high - self.consumed
    }

    /// The end is known, and everything was taken or is not wanted. What was delivered and not
    /// taken still counts as credit of the session.
    pub(super) fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.discarding || (self.consumed == end && self.told))
    }

    /// All that the peer sends has come.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }
}
