//! What passes although it is not new: why it does, and what that says of the first copy.

use manyways_unit::{Span, Time};

use super::{Hole, LARGEST_WINDOW, Mark, OUTSTANDING, Seen, Sent, Stream};

/// So many repeated acknowledgements tell a sender of a loss (RFC 5681, 3.2).
const REPEATS: u32 = 3;
/// So many bytes behind a gap tell it the same, in segments (RFC 6675).
const SACKED: u32 = 3;
/// Without anything better, what comes within this after it was skipped was overtaken.
const OVERTAKEN: Span = Span::from_millis(3);
/// Two copies of a packet that nobody sent twice are this close.
const DUPLICATED: Span = Span::from_millis(1);
/// A sender waits at least so long before it takes silence for a loss (Linux; RFC 6298 has a
/// second), while a probe for the tail's loss comes two round trips after the last segment
/// (RFC 8985, 7.2).
const TIMEOUT: Span = Span::from_millis(200);
/// So many segments that were sent again are remembered until it shows what became of them.
const REMEMBERED: usize = 64;

/// Segments that were sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// As acknowledgements repeated themselves, or SACK told of a gap.
    pub fast: u32,
    /// As none came for long.
    pub timeout: u32,
    /// The last one of those on their way, to find out whether it came.
    pub probe: u32,
    /// Whatever made the sender do so: the receiver had it already.
    pub spurious: u32,
}

/// Why a segment was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// See [`Again::fast`].
    Fast,
    /// See [`Again::timeout`].
    Timeout,
    /// See [`Again::probe`].
    Probe,
}

/// What was sent again, as long as the receiver may say that it came twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resent {
    begin: u64,
    end: u64,
    /// As so many it counts: parts of it together as no more.
    segments: u32,
    /// None where it was seen to come twice when it passed.
    cause: Option<Cause>,
    /// The first copy did not pass here.
    is_from_hole: bool,
}

impl Again {
    /// All of them.
    pub fn all(&self) -> u32 {
        self.fast + self.timeout + self.probe + self.spurious
    }

    fn of(&mut self, cause: Cause) -> &mut u32 {
        match cause {
            Cause::Fast => &mut self.fast,
            Cause::Timeout => &mut self.timeout,
            Cause::Probe => &mut self.probe,
        }
    }
}

impl Stream {
    /// All of it is before the last byte that was seen.
    pub(super) fn sends_again(&mut self, now: Time, begin: u64, end: u64, mark: Mark) -> Seen {
        let seen = Seen { is_again: true, begin, end, ..Seen::default() };
        if self.fills_holes(now, begin, end, mark) {
            return seen;
        }
        let segments = self.segments(begin, end);
        let top = self.top;
        let is_in = |sent: &Sent| {
            let (first, last) = sent.places(top);
            begin < last && first < end
        };
        let found = self.sent.iter().enumerate().find(|(_, sent)| is_in(sent));
        let Some((first, before)) = found.map(|(first, sent)| (first, *sent)) else {
            // The receiver has said that it has this.
            match is_older(mark.stamp, self.stamp()) {
                true => self.trouble().duplicated += segments,
                false => self.trouble().again.spurious += segments,
            }
            self.comes_twice(begin, end);
            return seen;
        };
        if self.is_duplicate(now, &before, mark) {
            self.trouble().duplicated += segments;
            self.comes_twice(begin, end);
            return seen;
        }
        let is_blind = self.is_blind(now, &before);
        for sent in self.sent.iter_mut().skip(first).take_while(|sent| sent.places(top).0 < end) {
            let (begin, end) = sent.places(top);
            let (at, copies) = (if is_blind { sent.at } else { now }, sent.copies);
            *sent = Sent::new(at, begin, end, mark, copies.saturating_add(1));
        }
        if is_blind {
            self.trouble().again.spurious += segments;
            self.comes_twice(begin, end);
            return seen;
        }
        let cause = self.cause(now, first, &before);
        let trouble = self.trouble();
        *trouble.again.of(cause) += segments;
        trouble.lost_behind += segments;
        let resent = Resent { begin, end, segments, cause: Some(cause), is_from_hole: false };
        self.remember(resent);
        self.recovers(cause);
        seen
    }

    /// Whether some of these bytes were skipped.
    pub(super) fn fills_holes(&mut self, now: Time, begin: u64, end: u64, mark: Mark) -> bool {
        let mut is_filling = false;
        let is_in = |hole: &Hole| begin < hole.end && hole.begin < end;
        while let Some(index) =
            self.trouble.as_ref().and_then(|trouble| trouble.holes.iter().position(is_in))
        {
            self.fills(now, index, begin, end, mark);
            is_filling = true;
        }
        is_filling
    }

    /// Bytes come that were skipped: late, or sent again because they were lost before they passed.
    fn fills(&mut self, now: Time, index: usize, begin: u64, end: u64, mark: Mark) {
        let hole = self.trouble().holes.remove(index);
        let (from, to) = (begin.max(hole.begin), end.min(hole.end));
        let is_late = match (mark.stamp, hole.stamp) {
            (Some(_), Some(_)) => !is_older(hole.stamp, mark.stamp),
            _ => now.since(hole.since) < self.soonest().unwrap_or(OVERTAKEN),
        };
        for (begin, end) in [(hole.begin, from), (to, hole.end)] {
            if begin < end {
                self.trouble().skips(Hole { begin, end, ..hole });
            }
        }
        let segments = self.segments(from, to);
        let copies = if is_late { 1 } else { 2 };
        let top = self.top;
        if from + LARGEST_WINDOW >= top {
            let place = self.sent.partition_point(|sent| sent.places(top).0 < from);
            self.sent.insert(place, Sent::new(now, from, to, mark, copies));
        }
        if self.sent.len() > OUTSTANDING {
            self.sent.pop_front();
        }
        match is_late {
            true => self.trouble().reordered += segments,
            false => self.repairs_hole(from, to),
        }
    }

    /// Which of these bytes, that nobody saw, had been sent before: an acknowledgement was behind them,
    /// and they were sent after it. What it only overtook, in the network or in what captures, is none.
    pub(super) fn was_sent(
        &mut self,
        now: Time,
        begin: u64,
        end: u64,
        stamp: Option<u32>,
    ) -> Option<(u64, u64)> {
        let said = self.trouble.as_ref()?.said?;
        let is_later = match (said.stamp, stamp) {
            (Some(_), Some(_)) => is_older(said.stamp, stamp),
            _ => now.since(said.since) >= TIMEOUT,
        };
        (is_later && begin < said.end).then(|| (begin, end.min(said.end)))
    }

    /// They were lost before they passed, and sent again.
    pub(super) fn repairs_hole(&mut self, from: u64, to: u64) {
        let segments = self.segments(from, to);
        let cause = if self.was_told() { Cause::Fast } else { self.goes_on() };
        let trouble = self.trouble();
        *trouble.again.of(cause) += segments;
        trouble.lost_before += segments;
        let resent =
            Resent { begin: from, end: to, segments, cause: Some(cause), is_from_hole: true };
        self.remember(resent);
        self.recovers(cause);
    }

    /// So long it takes at least until something that is missing here is sent again: the receiver has
    /// to say so, the sender to hear that, and what it sends to come here.
    fn soonest(&self) -> Option<Span> {
        let near = self.near().least().unwrap_or_default();
        Some(near + self.far).filter(|soonest| !soonest.is_zero())
    }

    /// The sender sent it again before it could hear what became of the copy before: that one had stood
    /// in a queue, and was not lost behind the capture point.
    fn is_blind(&self, now: Time, before: &Sent) -> bool {
        !self.was_told() && self.soonest().is_some_and(|soonest| now.since(before.at) < soonest)
    }

    fn is_duplicate(&self, now: Time, before: &Sent, mark: Mark) -> bool {
        let is_close = now.since(before.at)
            < self
                .near()
                .least()
                .map_or(DUPLICATED, |least| DUPLICATED.min(Span::from_nanos(least.as_nanos() / 2)));
        // Whoever numbers its packets gives a second copy another number (RFC 6864, 4.3).
        let is_other = mark.packet != before.packet && mark.packet != 0 && before.packet != 0;
        is_close && !is_other && mark.stamp == before.stamp() && !self.was_told()
    }

    fn cause(&self, now: Time, index: usize, before: &Sent) -> Cause {
        let is_last = before.end == self.top as u32;
        let silence = now.since(before.at);
        if self.was_told() {
            return Cause::Fast;
        }
        // A timer sends the first one again that is on its way, a probe the last.
        if is_last && before.copies == 1 && (index > 0 || silence < TIMEOUT) {
            return Cause::Probe;
        }
        self.goes_on()
    }

    /// What made it send again what it sends again since; if nothing did yet, time does.
    fn goes_on(&self) -> Cause {
        let recovery = self.trouble.as_ref().and_then(|trouble| trouble.recovery);
        match recovery.filter(|_| self.is_recovering()) {
            // A probe makes the receiver tell what it lacks (RFC 8985, 7.1).
            Some(Cause::Probe) if self.sacked > 0 => Cause::Fast,
            Some(cause) if cause != Cause::Probe => cause,
            _ => Cause::Timeout,
        }
    }

    /// Acknowledgements told the sender of a loss.
    fn was_told(&self) -> bool {
        self.repeats >= REPEATS || self.sacked >= SACKED.saturating_mul(self.mss)
    }

    fn recovers(&mut self, cause: Cause) {
        let (is_new, top) = (!self.is_recovering(), self.top);
        let trouble = self.trouble();
        if is_new || cause == Cause::Timeout {
            trouble.recovery = Some(cause);
        }
        trouble.recovers_to = top;
    }

    fn remember(&mut self, resent: Resent) {
        let all = &mut self.trouble().resent;
        while all.len() >= REMEMBERED {
            all.remove(0);
        }
        all.push(resent);
    }

    /// This comes twice, as is plain: the receiver will say so, and not mean an earlier copy.
    fn comes_twice(&mut self, begin: u64, end: u64) {
        let is_in = |resent: &Resent| resent.begin < end && begin < resent.end;
        if self.trouble().resent.iter().any(is_in) {
            let segments = self.segments(begin, end);
            self.remember(Resent { begin, end, segments, cause: None, is_from_hole: false });
        }
    }

    /// The receiver got these bytes a second time: their last copy was sent for nothing. Of the ones
    /// before it says so by itself.
    pub(super) fn came_twice(&mut self, begin: u64, end: u64) {
        let mss = self.mss;
        let Some(counts) = &mut self.trouble else { return };
        let is_in = |resent: &Resent| begin < end && resent.begin < end && begin < resent.end;
        let Some(index) = counts.resent.iter().rposition(is_in) else { return };
        let resent = counts.resent.remove(index);
        let (from, to) = (begin.max(resent.begin), end.min(resent.end));
        let mut left = resent.segments;
        let mut take = |begin, end| {
            let some = segments(begin, end, mss).min(left);
            left -= some;
            some
        };
        let taken = take(from, to);
        // What is left of it is as old as it was.
        for (begin, end) in [(to, resent.end), (resent.begin, from)] {
            let segments = take(begin, end);
            if segments > 0 && counts.resent.len() < REMEMBERED {
                counts.resent.insert(index, Resent { begin, end, segments, ..resent });
            }
        }
        if let Some(cause) = resent.cause {
            let cause = counts.again.of(cause);
            *cause = cause.saturating_sub(taken);
            counts.again.spurious += taken;
            match resent.is_from_hole {
                // It had passed, and the capture missed it.
                true => {
                    counts.lost_before = counts.lost_before.saturating_sub(taken);
                    counts.unseen += to - from;
                }
                false => counts.lost_behind = counts.lost_behind.saturating_sub(taken),
            }
        }
        self.came_twice(begin, from);
        self.came_twice(to, end);
    }

    /// As the segments that they were, whatever merged them since.
    fn segments(&self, begin: u64, end: u64) -> u32 {
        segments(begin, end, self.mss)
    }
}

fn segments(begin: u64, end: u64, mss: u32) -> u32 {
    u32::try_from((end - begin).div_ceil(u64::from(mss))).unwrap_or(u32::MAX)
}

/// The first stamp is of an earlier moment than the second.
fn is_older(stamp: Option<u32>, other: Option<u32>) -> bool {
    stamp.zip(other).is_some_and(|(stamp, other)| (stamp.wrapping_sub(other) as i32) < 0)
}
