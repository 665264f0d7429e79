//! Segments with old bytes: their cause, and the outcome of the first copy.

use manyways_unit::{Span, Time};

use super::{Hole, LARGEST_WINDOW, Mark, OUTSTANDING, Seen, Sent, Stream};

/// Duplicate ACKs that signal a loss (RFC 5681, 3.2).
const REPEATS: u32 = 3;
/// SACKed segments after a gap that signal a loss (RFC 6675).
const SACKED: u32 = 3;
/// Without better evidence, bytes that arrive within this time after a gap were reordered.
const OVERTAKEN: Span = Span::from_millis(3);
/// Maximum time between two copies of a packet that the network duplicated.
const DUPLICATED: Span = Span::from_millis(1);
/// Minimum retransmission timeout (Linux; RFC 6298 specifies 1 s). A tail loss probe is sent two
/// round trips after the last segment (RFC 8985, 7.2).
const TIMEOUT: Span = Span::from_millis(200);
/// Maximum number of retransmissions with an open outcome.
const REMEMBERED: usize = 64;

/// Retransmitted segments by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// After duplicate ACKs or SACK.
    pub fast: u32,
    /// After a retransmission timeout.
    pub timeout: u32,
    /// Tail loss probes.
    pub probe: u32,
    /// Spurious ones, whatever the cause: the receiver had the data already.
    pub spurious: u32,
}

/// Cause of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// See [`Again::fast`].
    Fast,
    /// See [`Again::timeout`].
    Timeout,
    /// See [`Again::probe`].
    Probe,
}

/// A retransmission that DSACK may still report as duplicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resent {
    begin: u64,
    end: u64,
    /// Number of segments that it counts as, which is an upper bound for the sum of its parts.
    segments: u32,
    /// `None` if the retransmission was already known to be spurious when it passed.
    cause: Option<Cause>,
    /// Whether the first copy did not pass the capture point.
    is_from_hole: bool,
}

impl Again {
    /// Sum of all causes.
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
    /// Handles a segment that ends before the last captured byte.
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
            // The receiver has acknowledged these bytes.
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

    /// Fills gaps with a segment. Returns whether there were any.
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

    /// Fills a gap: the bytes were reordered, or lost before the capture point and retransmitted.
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

    /// Returns a gap that the new bytes fill and that had been sent before: an ACK was sent after
    /// the gap, and the bytes were sent after that ACK. An ACK that only overtook the bytes, in the
    /// network or in the capture, does not count.
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

    /// Handles the retransmission of bytes that were lost before the capture point.
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

    /// Minimum time until missing bytes are retransmitted: the receiver must report the gap, and
    /// the sender's retransmission must arrive. `None` if unknown.
    fn soonest(&self) -> Option<Span> {
        let near = self.near().least().unwrap_or_default();
        Some(near + self.far).filter(|soonest| !soonest.is_zero())
    }

    /// Whether the sender retransmitted before any feedback about the previous copy could arrive:
    /// that copy waited in a queue, and was not lost after the capture point.
    fn is_blind(&self, now: Time, before: &Sent) -> bool {
        !self.was_told() && self.soonest().is_some_and(|soonest| now.since(before.at) < soonest)
    }

    fn is_duplicate(&self, now: Time, before: &Sent, mark: Mark) -> bool {
        let is_close = now.since(before.at)
            < self
                .near()
                .least()
                .map_or(DUPLICATED, |least| DUPLICATED.min(Span::from_nanos(least.as_nanos() / 2)));
        // A sender that numbers its packets uses a new number for a copy (RFC 6864, 4.3).
        let is_other = mark.packet != before.packet && mark.packet != 0 && before.packet != 0;
        is_close && !is_other && mark.stamp == before.stamp() && !self.was_told()
    }

    fn cause(&self, now: Time, index: usize, before: &Sent) -> Cause {
        let is_last = before.end == self.top as u32;
        let silence = now.since(before.at);
        if self.was_told() {
            return Cause::Fast;
        }
        // A timeout retransmits the first outstanding segment, a tail loss probe the last.
        if is_last && before.copies == 1 && (index > 0 || silence < TIMEOUT) {
            return Cause::Probe;
        }
        self.goes_on()
    }

    /// Returns the cause of the current recovery, or else a timeout.
    fn goes_on(&self) -> Cause {
        let recovery = self.trouble.as_ref().and_then(|trouble| trouble.recovery);
        match recovery.filter(|_| self.is_recovering()) {
            // A tail loss probe makes the receiver report gaps (RFC 8985, 7.1).
            Some(Cause::Probe) if self.sacked > 0 => Cause::Fast,
            Some(cause) if cause != Cause::Probe => cause,
            _ => Cause::Timeout,
        }
    }

    /// Whether ACKs signalled a loss to the sender.
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

    /// Handles an obvious duplicate: the coming DSACK reports this copy, not an earlier one.
    fn comes_twice(&mut self, begin: u64, end: u64) {
        let is_in = |resent: &Resent| resent.begin < end && begin < resent.end;
        if self.trouble().resent.iter().any(is_in) {
            let segments = self.segments(begin, end);
            self.remember(Resent { begin, end, segments, cause: None, is_from_hole: false });
        }
    }

    /// Handles a DSACK: the last copy of these bytes was spurious. Several copies are reported one
    /// by one.
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
        // The remaining parts keep their age.
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
                // The first copy had passed, but is not in the capture.
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

    /// Number of original segments, whether or not they were merged later.
    fn segments(&self, begin: u64, end: u64) -> u32 {
        segments(begin, end, self.mss)
    }
}

fn segments(begin: u64, end: u64, mss: u32) -> u32 {
    u32::try_from((end - begin).div_ceil(u64::from(mss))).unwrap_or(u32::MAX)
}

/// Whether the first timestamp is older than the second.
fn is_older(stamp: Option<u32>, other: Option<u32>) -> bool {
    stamp.zip(other).is_some_and(|(stamp, other)| (stamp.wrapping_sub(other) as i32) < 0)
}
