//! Segments with old bytes: their cause, and the outcome of the first copy.

use manyways_unit::{Span, Time};

use super::{CopyId, Hole, MAX_UNACKED_SEGMENTS, MAX_WINDOW, SegmentOutcome, SentSegment, Stream};

/// Duplicate ACKs that signal a loss (RFC 5681, 3.2).
const DUP_ACK_THRESHOLD: u32 = 3;
/// SACKed segments after a gap that signal a loss (RFC 6675).
const SACK_THRESHOLD: u32 = 3;
/// Without better evidence, bytes that arrive within this time after a gap were reordered.
const MAX_REORDERING_DELAY: Span = Span::from_millis(3);
/// Maximum time between two copies of a packet that the network duplicated.
const MAX_DUPLICATE_GAP: Span = Span::from_millis(1);
/// Minimum retransmission timeout (Linux; RFC 6298 specifies 1 s). A tail loss probe is sent two
/// round trips after the last segment (RFC 8985, 7.2).
const MIN_RTO: Span = Span::from_millis(200);
/// Maximum number of retransmissions with an open outcome.
const MAX_PENDING: usize = 64;

/// Retransmitted segments by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmissions {
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
    /// See [`Retransmissions::fast`].
    Fast,
    /// See [`Retransmissions::timeout`].
    Timeout,
    /// See [`Retransmissions::probe`].
    Probe,
}

/// A retransmission that DSACK may still report as duplicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRetransmission {
    begin: u64,
    end: u64,
    /// Number of segments that it counts as, which is an upper bound for the sum of its parts.
    segments: u32,
    /// `None` if the retransmission was already known to be spurious when it passed.
    cause: Option<Cause>,
    /// Whether the first copy did not pass the capture point.
    is_from_hole: bool,
}

impl Retransmissions {
    /// Sum of all causes.
    pub fn total(&self) -> u32 {
        self.fast + self.timeout + self.probe + self.spurious
    }

    fn count_mut(&mut self, cause: Cause) -> &mut u32 {
        match cause {
            Cause::Fast => &mut self.fast,
            Cause::Timeout => &mut self.timeout,
            Cause::Probe => &mut self.probe,
        }
    }
}

impl Stream {
    /// Handles a segment that ends before the last captured byte.
    pub(super) fn on_retransmission(
        &mut self,
        now: Time,
        begin: u64,
        end: u64,
        mark: CopyId,
    ) -> SegmentOutcome {
        let outcome =
            SegmentOutcome { is_retransmission: true, begin, end, ..SegmentOutcome::default() };
        if self.fill_holes(now, begin, end, mark) || self.fill_acked_hole(now, begin, end) {
            return outcome;
        }
        let segments = self.segments(begin, end);
        let top = self.captured_end;
        let is_in = |sent: &SentSegment| {
            let (first, last) = sent.offsets(top);
            begin < last && first < end
        };
        let found = self.sent.iter().enumerate().find(|(_, sent)| is_in(sent));
        let Some((first, before)) = found.map(|(first, sent)| (first, *sent)) else {
            // The receiver has acknowledged these bytes.
            match is_older(mark.tsval, self.tsval()) {
                true => self.loss_mut().duplicated += segments,
                false => self.count_spurious(begin, end),
            }
            self.on_duplicate(begin, end);
            return outcome;
        };
        if self.is_duplicate(now, &before, mark) {
            self.loss_mut().duplicated += segments;
            self.on_duplicate(begin, end);
            return outcome;
        }
        let is_blind = self.is_without_feedback(now, &before);
        for sent in self.sent.iter_mut().skip(first).take_while(|sent| sent.offsets(top).0 < end) {
            let (begin, end) = sent.offsets(top);
            let (at, copies) = (if is_blind { sent.at } else { now }, sent.copies);
            *sent = SentSegment::new(at, begin, end, mark, copies.saturating_add(1));
        }
        if is_blind {
            self.count_spurious(begin, end);
            self.on_duplicate(begin, end);
            return outcome;
        }
        let cause = self.cause(now, first, &before);
        let segments = self.take_segments(begin, end);
        let loss = self.loss_mut();
        *loss.retransmissions.count_mut(cause) += segments;
        loss.lost_after += segments;
        let resent =
            PendingRetransmission { begin, end, segments, cause: Some(cause), is_from_hole: false };
        self.push_pending(resent);
        self.start_recovery(cause);
        outcome
    }

    /// Fills gaps with a segment. Returns whether there were any.
    pub(super) fn fill_holes(&mut self, now: Time, begin: u64, end: u64, mark: CopyId) -> bool {
        let mut is_filling = false;
        let is_in = |hole: &Hole| begin < hole.end && hole.begin < end;
        while let Some(index) =
            self.loss.as_ref().and_then(|loss| loss.holes.iter().position(is_in))
        {
            self.fill_hole(now, index, begin, end, mark);
            is_filling = true;
        }
        is_filling
    }

    /// Fills a gap: the bytes were reordered, or lost before the capture point and retransmitted.
    fn fill_hole(&mut self, now: Time, index: usize, begin: u64, end: u64, mark: CopyId) {
        let hole = self.loss_mut().holes.remove(index);
        let (from, to) = (begin.max(hole.begin), end.min(hole.end));
        let is_late = match (mark.tsval, hole.tsval) {
            (Some(_), Some(_)) => !is_older(hole.tsval, mark.tsval),
            _ => {
                now.since(hole.since)
                    < self.min_retransmission_delay().unwrap_or(MAX_REORDERING_DELAY)
            }
        };
        for (begin, end) in [(hole.begin, from), (to, hole.end)] {
            if begin < end {
                self.loss_mut().add_hole(Hole { begin, end, ..hole });
            }
        }
        let segments = self.segments(from, to);
        let copies = if is_late { 1 } else { 2 };
        let top = self.captured_end;
        if from + MAX_WINDOW >= top {
            let place = self.sent.partition_point(|sent| sent.offsets(top).0 < from);
            self.sent.insert(place, SentSegment::new(now, from, to, mark, copies));
        }
        if self.sent.len() > MAX_UNACKED_SEGMENTS {
            self.sent.pop_front();
        }
        match is_late {
            true => self.loss_mut().reordered += segments,
            false => self.on_hole_retransmission(from, to),
        }
    }

    /// Fills a gap that was acknowledged already, and returns whether there was one: the capture has
    /// recorded the bytes late, or they are a spurious retransmission.
    fn fill_acked_hole(&mut self, now: Time, begin: u64, end: u64) -> bool {
        let Some(loss) = &mut self.loss else { return false };
        let Some(hole) = loss.acked_hole.filter(|hole| begin < hole.end && hole.begin < end) else {
            return false;
        };
        let (from, to) = (begin.max(hole.begin), end.min(hole.end));
        let rest = [(hole.begin, from), (to, hole.end)];
        let most = rest.into_iter().max_by_key(|(begin, end)| end - begin);
        loss.acked_hole =
            most.filter(|(begin, end)| begin < end).map(|(begin, end)| Hole { begin, end, ..hole });
        // A FIN has a number, but is not a byte.
        let bytes = (to - from).min(loss.packet_bytes.into());
        loss.never_captured = loss.never_captured.saturating_sub(bytes);
        if now.since(hole.since) < MAX_REORDERING_DELAY {
            loss.uncaptured = loss.uncaptured.saturating_sub(bytes);
        } else {
            self.count_spurious(from, to);
        }
        true
    }

    fn count_spurious(&mut self, begin: u64, end: u64) {
        let segments = self.take_segments(begin, end);
        self.loss_mut().retransmissions.spurious += segments;
    }

    /// Takes the data segments of a range from those that the current packet still has.
    fn take_segments(&mut self, begin: u64, end: u64) -> u32 {
        let all = self.segments(begin, end);
        let left = &mut self.loss_mut().segments_left;
        let taken = all.min(*left);
        *left -= taken;
        taken
    }

    /// Returns a gap that the new bytes fill and that had been sent before: an ACK was sent after
    /// the gap, and the bytes were sent after that ACK. An ACK that only overtook the bytes, in the
    /// network or in the capture, does not count.
    pub(super) fn sent_before(
        &mut self,
        now: Time,
        begin: u64,
        end: u64,
        tsval: Option<u32>,
    ) -> Option<(u64, u64)> {
        let said = self.loss.as_ref()?.uncaptured_before_ack?;
        let is_later = match (said.tsval, tsval) {
            (Some(_), Some(_)) => is_older(said.tsval, tsval),
            _ => now.since(said.since) >= MIN_RTO,
        };
        (is_later && begin < said.end).then(|| (begin, end.min(said.end)))
    }

    /// Handles the retransmission of bytes that were lost before the capture point.
    pub(super) fn on_hole_retransmission(&mut self, from: u64, to: u64) {
        let segments = self.take_segments(from, to);
        let cause = if self.has_loss_signal() { Cause::Fast } else { self.recovery_cause() };
        let loss = self.loss_mut();
        *loss.retransmissions.count_mut(cause) += segments;
        loss.lost_before += segments;
        let resent = PendingRetransmission {
            begin: from,
            end: to,
            segments,
            cause: Some(cause),
            is_from_hole: true,
        };
        self.push_pending(resent);
        self.start_recovery(cause);
    }

    /// Minimum time until missing bytes are retransmitted: the receiver must report the gap, and
    /// the sender's retransmission must arrive. `None` if unknown.
    fn min_retransmission_delay(&self) -> Option<Span> {
        let receiver_rtt = self.receiver_rtt().min().unwrap_or_default();
        Some(receiver_rtt + self.min_sender_rtt).filter(|soonest| !soonest.is_zero())
    }

    /// Whether the sender retransmitted before any feedback about the previous copy could arrive:
    /// that copy waited in a queue, and was not lost after the capture point.
    fn is_without_feedback(&self, now: Time, before: &SentSegment) -> bool {
        !self.has_loss_signal()
            && self.min_retransmission_delay().is_some_and(|soonest| now.since(before.at) < soonest)
    }

    fn is_duplicate(&self, now: Time, before: &SentSegment, mark: CopyId) -> bool {
        let is_close = now.since(before.at)
            < self.receiver_rtt().min().map_or(MAX_DUPLICATE_GAP, |min| {
                MAX_DUPLICATE_GAP.min(Span::from_nanos(min.as_nanos() / 2))
            });
        // A sender that numbers its packets uses a new number for a copy (RFC 6864, 4.3).
        let is_other = mark.ip_id != before.ip_id && mark.ip_id != 0 && before.ip_id != 0;
        is_close && !is_other && mark.tsval == before.tsval() && !self.has_loss_signal()
    }

    fn cause(&self, now: Time, index: usize, before: &SentSegment) -> Cause {
        let is_last = before.end == self.captured_end as u32;
        let silence = now.since(before.at);
        if self.has_loss_signal() {
            return Cause::Fast;
        }
        // A timeout retransmits the first outstanding segment, a tail loss probe the last.
        if is_last && before.copies == 1 && (index > 0 || silence < MIN_RTO) {
            return Cause::Probe;
        }
        self.recovery_cause()
    }

    /// Returns the cause of the current recovery, or else a timeout.
    fn recovery_cause(&self) -> Cause {
        let recovery = self.loss.as_ref().and_then(|loss| loss.recovery);
        match recovery.filter(|_| self.is_recovering()) {
            // A tail loss probe makes the receiver report gaps (RFC 8985, 7.1).
            Some(Cause::Probe) if self.sacked_bytes > 0 => Cause::Fast,
            Some(cause) if cause != Cause::Probe => cause,
            _ => Cause::Timeout,
        }
    }

    /// Whether ACKs signalled a loss to the sender.
    fn has_loss_signal(&self) -> bool {
        self.dup_acks >= DUP_ACK_THRESHOLD
            || self.sacked_bytes >= SACK_THRESHOLD.saturating_mul(self.mss.into())
    }

    fn start_recovery(&mut self, cause: Cause) {
        let (is_new, top) = (!self.is_recovering(), self.captured_end);
        let loss = self.loss_mut();
        if is_new || cause == Cause::Timeout {
            loss.recovery = Some(cause);
        }
        loss.recovery_end = top;
    }

    fn push_pending(&mut self, resent: PendingRetransmission) {
        let all = &mut self.loss_mut().pending;
        while all.len() >= MAX_PENDING {
            all.remove(0);
        }
        all.push(resent);
    }

    /// Handles an obvious duplicate: the coming DSACK reports this copy, not an earlier one.
    fn on_duplicate(&mut self, begin: u64, end: u64) {
        let is_in = |resent: &PendingRetransmission| resent.begin < end && begin < resent.end;
        if self.loss_mut().pending.iter().any(is_in) {
            let segments = self.segments(begin, end);
            self.push_pending(PendingRetransmission {
                begin,
                end,
                segments,
                cause: None,
                is_from_hole: false,
            });
        }
    }

    /// Handles a DSACK: the last copy of these bytes was spurious. Several copies are reported one
    /// by one.
    pub(super) fn on_dsack(&mut self, begin: u64, end: u64) {
        let mss = self.mss.into();
        let Some(counts) = &mut self.loss else { return };
        let is_in = |resent: &PendingRetransmission| {
            begin < end && resent.begin < end && begin < resent.end
        };
        let Some(index) = counts.pending.iter().rposition(is_in) else { return };
        let resent = counts.pending.remove(index);
        let (from, to) = (begin.max(resent.begin), end.min(resent.end));
        let mut remaining = resent.segments;
        let mut take = |begin, end| {
            let some = segments(begin, end, mss).min(remaining);
            remaining -= some;
            some
        };
        let taken = take(from, to);
        // The remaining parts keep their age.
        for (begin, end) in [(to, resent.end), (resent.begin, from)] {
            let segments = take(begin, end);
            if segments > 0 && counts.pending.len() < MAX_PENDING {
                counts
                    .pending
                    .insert(index, PendingRetransmission { begin, end, segments, ..resent });
            }
        }
        if let Some(cause) = resent.cause {
            let cause = counts.retransmissions.count_mut(cause);
            *cause = cause.saturating_sub(taken);
            counts.retransmissions.spurious += taken;
            match resent.is_from_hole {
                // The first copy had passed, but is not in the capture.
                true => {
                    counts.lost_before = counts.lost_before.saturating_sub(taken);
                    counts.uncaptured += to - from;
                }
                false => counts.lost_after = counts.lost_after.saturating_sub(taken),
            }
        }
        self.on_dsack(begin, from);
        self.on_dsack(to, end);
    }

    /// Number of original segments, whether or not they were merged later.
    fn segments(&self, begin: u64, end: u64) -> u32 {
        segments(begin, end, self.mss.into())
    }
}

fn segments(begin: u64, end: u64, mss: u32) -> u32 {
    u32::try_from((end - begin).div_ceil(u64::from(mss))).unwrap_or(u32::MAX)
}

/// Whether the first timestamp is older than the second.
fn is_older(tsval: Option<u32>, other: Option<u32>) -> bool {
    tsval.zip(other).is_some_and(|(tsval, other)| (tsval.wrapping_sub(other) as i32) < 0)
}
