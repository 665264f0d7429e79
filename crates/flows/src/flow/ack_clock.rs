//! The remote part of a round trip: from an ACK that passes on its way to the sender to the first
//! segment that the ACK released.
//!
//! If both endpoints have timestamps, that segment is the first new one that echoes the ACK's
//! timestamp; of several ACKs with the same timestamp, the first counts. Otherwise the sender's
//! window is simulated like Jaiswal et al. do (INFOCOM 2004): each ACK lets it grow by the amount
//! of slow start or congestion avoidance, and the first segment beyond the previous limit was
//! released by it. The simulation is Reno as in Linux: a first segment that is short counts as a
//! full one, and a window that is not used, because the receive window is smaller or there is no
//! data, grows only in slow start, to twice of the used part. The simulated window is corrected
//! upwards whenever the sender exceeds it.
//!
//! An ACK counts once it may have reached the sender: after [`MIN_RTT_FRACTION`] of the minimum
//! known round-trip time to the sender, from the handshake or from ACKs of the sender. Near a
//! receiver, a burst passes with its ACKs in between, and captures record received packets late:
//! without this delay, each ACK would seem to release the segment directly after it. If no such
//! time is known, the window yields no samples. If a later sample shows that the known time was far
//! too long (the handshake included a promotion), the samples of the window are discarded.
//!
//! Neither method yields a sample if the sender had no data left: the segment waited for data.

use manyways_unit::{Span, Time};

use super::queue::Queue;
use super::stream::{AckOutcome, SegmentOutcome};
use manyways_unit::Samples;
use manyways_wire::tcp::{Seq, Timestamps};

/// Maximum number of ACKs that wait to release a segment.
const MAX_PENDING_ACKS: usize = 256;
/// The actual round-trip time to the sender may be this fraction of the measured minimum.
const MIN_RTT_FRACTION: (u64, u64) = (3, 4);
/// If half of the queue is used, ACKs within this fraction of the round-trip time are merged,
/// because a fast flow has more ACKs in flight than the queue holds.
const MERGE_DIVISOR: u64 = 128;

/// ACKs in flight to a sender, and the segments that they release.
#[derive(Clone, Debug, Default)]
pub struct AckClock {
    timestamped_acks: Queue<TimestampedAck>,
    /// The latest timestamp that was echoed.
    last_tsecr: u32,
    has_tsecr: bool,
    /// Without timestamps only.
    reno: Option<Box<Reno>>,
    sender_rtt: Samples,
    full_rtt: Samples,
    timestamp_samples: u32,
    /// Latest complete round-trip time.
    latest_rtt: Option<Span>,
    /// Limit of the receive window, as known to the sender at its last segment: the lower 32 bits
    /// of the offset.
    window_limit: u32,
    has_window_limit: bool,
}

/// Simulation of the sender's window.
#[derive(Clone, Debug, Default)]
struct Reno {
    releasing_acks: Queue<ReleasingAck>,
    /// ACKs that cannot have reached the sender yet.
    acks_in_flight: Queue<AckInFlight>,
    /// Minimum known round-trip time to the sender.
    min_sender_rtt: Span,
    window: Window,
}

/// An ACK in flight to the sender.
#[derive(Clone, Copy, Debug)]
struct AckInFlight {
    at: Time,
    acked: AckOutcome,
}

/// The first ACK with a timestamp.
#[derive(Clone, Copy, Debug)]
struct TimestampedAck {
    at: Time,
    receiver_rtt: Option<Span>,
    tsval: u32,
    /// Limit of the receive window in the last ACK with this timestamp: the lower 32 bits of the
    /// offset.
    window_limit: u32,
}

/// An ACK that permits the sender to send beyond an offset.
#[derive(Clone, Copy, Debug)]
struct ReleasingAck {
    send_limit: u64,
    at: Time,
    receiver_rtt: Option<Span>,
    window_limit: u64,
}

/// Simulated Reno window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    size: u64,
    /// Slow start threshold; 0 before the first loss.
    threshold: u64,
    /// Limit of the congestion window, as an offset.
    congestion_limit: u64,
    /// Limit of the receive window, as an offset.
    receive_limit: u64,
    /// Cumulative acknowledgment that the sender knew at its last segment.
    known_ack: u64,
    /// Maximum in flight in the current round trip.
    max_in_flight: u64,
    /// Offset whose acknowledgment ends this round trip.
    round_end: u64,
}

impl AckClock {
    /// Times from the capture point to the sender and back.
    pub fn sender_rtt(&self) -> &Samples {
        &self.sender_rtt
    }

    /// Complete round-trip times: the part of the ACK's own side plus the remote part.
    pub fn full_rtt(&self) -> &Samples {
        &self.full_rtt
    }

    /// Latest complete round-trip time.
    pub fn latest_rtt(&self) -> Option<Span> {
        self.latest_rtt
    }

    /// Limit of the receive window, as known to the sender at its last segment, which ended at
    /// `end`.
    pub fn window_limit(&self, end: u64) -> Option<u64> {
        self.has_window_limit.then(|| Seq(self.window_limit).to_offset(end))
    }

    fn set_window_limit(&mut self, offset: u64) {
        (self.window_limit, self.has_window_limit) = (offset as u32, true);
    }

    fn last_tsecr(&self) -> Option<u32> {
        self.has_tsecr.then_some(self.last_tsecr)
    }

    /// Number of samples from timestamps.
    pub fn timestamp_samples(&self) -> u64 {
        self.timestamp_samples.into()
    }

    /// Handles an ACK on its way to the sender.
    pub fn on_ack(
        &mut self,
        now: Time,
        acked: &AckOutcome,
        timestamps: Option<Timestamps>,
        mss: u32,
    ) {
        if let Some(Timestamps { tsval, .. }) = timestamps {
            let is_newer =
                self.timestamped_acks.back().is_none_or(|last| is_after(tsval, last.tsval));
            let AckOutcome { receiver_rtt: near, .. } = *acked;
            let granted = acked.window_limit as u32;
            let echoed = self.last_tsecr();
            match self.timestamped_acks.back_mut().filter(|last| last.tsval == tsval) {
                Some(last) => last.window_limit = granted,
                None if is_newer && echoed.is_none_or(|echoed| is_after(tsval, echoed)) => {
                    push_bounded(
                        &mut self.timestamped_acks,
                        TimestampedAck {
                            tsval,
                            at: now,
                            receiver_rtt: near,
                            window_limit: granted,
                        },
                    );
                }
                // The timestamp was echoed already; this ACK extends the window.
                None if echoed == Some(tsval) => self.set_window_limit(acked.window_limit),
                None => {}
            }
        } else if let Some(reno) = &mut self.reno {
            reno.on_ack(now, acked, mss);
        }
    }

    /// Handles a loss that the sender noticed, by its retransmission timer or otherwise.
    pub fn on_loss(&mut self, by_timer: bool, in_flight: u64, mss: u32) {
        let Some(reno) = &mut self.reno else { return };
        reno.window.shrink(by_timer, in_flight, mss);
        reno.releasing_acks = Queue::default();
    }

    /// Handles a segment of the sender. `sender_rtt` is the minimum remote round-trip time known
    /// from elsewhere; without it, the window yields no samples.
    pub fn on_segment(
        &mut self,
        now: Time,
        outcome: &SegmentOutcome,
        timestamps: Option<Timestamps>,
        sender_rtt: Option<Span>,
        mss: u32,
    ) {
        let released = match timestamps {
            Some(timestamps) => self.take_echoed(timestamps.tsecr, outcome.end),
            None if outcome.is_new => {
                let Some(sender_rtt) = sender_rtt else { return };
                self.update_min_rtt(sender_rtt);
                let reno = self.reno.get_or_insert_default();
                reno.min_sender_rtt = sender_rtt;
                reno.deliver_acks(now, mss);
                let by_window = reno.take_releasing(outcome.end);
                reno.window.on_segment(outcome, mss);
                // ACKs that passed while there was no data release no segment.
                if outcome.was_app_limited {
                    reno.releasing_acks = Queue::default();
                }
                by_window
            }
            None => None,
        };
        let Some(ReleasingAck { at, receiver_rtt: near, window_limit: granted, .. }) = released
        else {
            return;
        };
        self.set_window_limit(granted);
        if !outcome.is_new || outcome.was_app_limited {
            return;
        }
        // Clocks of captures may step back.
        let sender_rtt = now.since(at);
        if sender_rtt.is_zero() {
            return;
        }
        self.timestamp_samples = self.timestamp_samples.saturating_add(timestamps.is_some().into());
        self.sender_rtt.push(sender_rtt);
        if let Some(near) = near {
            self.full_rtt.push(near + sender_rtt);
            self.latest_rtt = Some(near + sender_rtt);
        }
    }

    /// Updates the minimum remote round-trip time; discards samples that are based on a time that
    /// was far too long.
    fn update_min_rtt(&mut self, sender_rtt: Span) {
        let was_wrong =
            self.reno.as_ref().is_some_and(|reno| half(reno.min_sender_rtt) > sender_rtt);
        if was_wrong && self.timestamp_samples == 0 {
            let Self { window_limit: granted, has_window_limit: has_granted, .. } = *self;
            *self =
                Self { window_limit: granted, has_window_limit: has_granted, ..Self::default() };
        }
    }

    /// Returns the ACK whose timestamp a segment that ends at `end` echoes first.
    fn take_echoed(&mut self, echo: u32, end: u64) -> Option<ReleasingAck> {
        if self.last_tsecr().is_some_and(|echoed| !is_after(echo, echoed)) {
            return None;
        }
        let mut found = None;
        while let Some(first) =
            self.timestamped_acks.front().filter(|first| !is_after(first.tsval, echo))
        {
            let TimestampedAck { tsval: stamp, at, receiver_rtt: near, window_limit: granted } =
                *first;
            let granted = Seq(granted).to_offset(end);
            found = (stamp == echo).then_some(ReleasingAck {
                send_limit: 0,
                at,
                receiver_rtt: near,
                window_limit: granted,
            });
            self.timestamped_acks.pop_front();
        }
        if found.is_some() {
            (self.last_tsecr, self.has_tsecr) = (echo, true);
        }
        found
    }
}

impl Reno {
    /// Returns the latest ACK without which a segment that ends at `end` could not be sent.
    fn take_releasing(&mut self, end: u64) -> Option<ReleasingAck> {
        let mut found = None;
        while let Some(first) = self.releasing_acks.front().filter(|first| first.send_limit < end) {
            found = Some(*first);
            self.releasing_acks.pop_front();
        }
        found
    }

    /// Handles an ACK on its way to the sender.
    fn on_ack(&mut self, now: Time, acked: &AckOutcome, mss: u32) {
        let together = match self.acks_in_flight.len() < MAX_PENDING_ACKS / 2 {
            true => Span::ZERO,
            false => Span::from_nanos(self.min_sender_rtt.as_nanos() / MERGE_DIVISOR),
        };
        match self.acks_in_flight.back_mut().filter(|last| now.since(last.at) < together) {
            Some(last) => {
                let bytes = last.acked.bytes + acked.bytes;
                last.acked = AckOutcome {
                    bytes,
                    receiver_rtt: last.acked.receiver_rtt.or(acked.receiver_rtt),
                    ..*acked
                };
            }
            None => {
                if self.acks_in_flight.len() == MAX_PENDING_ACKS {
                    self.deliver_ack(mss);
                }
                self.acks_in_flight.push_back(AckInFlight { at: now, acked: *acked });
            }
        }
    }

    /// Delivers ACKs that may have reached the sender.
    fn deliver_acks(&mut self, now: Time, mss: u32) {
        let (times, of) = MIN_RTT_FRACTION;
        let way = Span::from_nanos(self.min_sender_rtt.as_nanos() / of * times);
        while self.acks_in_flight.front().is_some_and(|coming| coming.at + way <= now) {
            self.deliver_ack(mss);
        }
    }

    fn deliver_ack(&mut self, mss: u32) {
        let Some(AckInFlight { at, acked }) = self.acks_in_flight.pop_front() else { return };
        let beyond = self.window.receive_limit;
        self.window.grow(&acked, mss);
        if self.window.receive_limit > beyond {
            let AckOutcome { receiver_rtt: near, window_limit: granted, .. } = acked;
            push_bounded(
                &mut self.releasing_acks,
                ReleasingAck { send_limit: beyond, at, receiver_rtt: near, window_limit: granted },
            );
        }
        self.window.known_ack = self.window.known_ack.max(acked.acked_to);
    }
}

impl Window {
    fn grow(&mut self, acked: &AckOutcome, mss: u32) {
        let in_slow_start = self.threshold == 0 || self.size < self.threshold;
        let bytes = acked.bytes.max(mss.into());
        // A sender with more data uses all that both windows permit.
        let room = acked.window_limit.saturating_sub(acked.acked_to);
        let used = if acked.is_app_limited { self.max_in_flight } else { self.size.min(room) };
        let (more, max) = match in_slow_start {
            true => (bytes, 2 * used),
            false => (u64::from(mss) * bytes / self.size.max(1), used + 1),
        };
        if acked.bytes > 0 && self.size < max {
            self.size += more;
        }
        self.size = self.size.max(mss.into());
        self.congestion_limit = self.congestion_limit.max(acked.acked_to + self.size);
        self.receive_limit = self.receive_limit.max(self.congestion_limit.min(acked.window_limit));
    }

    fn shrink(&mut self, by_timer: bool, in_flight: u64, mss: u32) {
        self.threshold = (in_flight / 2).max(2 * u64::from(mss));
        self.size = if by_timer { mss.into() } else { self.threshold };
    }

    /// Raises the window to the end of a sent segment.
    fn on_segment(&mut self, outcome: &SegmentOutcome, mss: u32) {
        let full = |bytes: u64| bytes.next_multiple_of(mss.max(1).into());
        if self.congestion_limit == 0 {
            (self.size, self.congestion_limit) = (full(outcome.in_flight), outcome.begin);
            self.known_ack = outcome.begin - outcome.in_flight.min(outcome.begin);
        }
        if outcome.end > self.congestion_limit {
            let length = outcome.end - outcome.begin;
            self.size += outcome.end - self.congestion_limit + full(length) - length;
            self.congestion_limit = outcome.end;
        }
        self.receive_limit = self.receive_limit.max(outcome.end);
        let used = full(outcome.end - self.known_ack.min(outcome.end));
        if used > self.max_in_flight || self.known_ack >= self.round_end {
            (self.max_in_flight, self.round_end) = (used, outcome.end);
        }
    }
}

fn push_bounded<T>(all: &mut Queue<T>, one: T) {
    if all.len() == MAX_PENDING_ACKS {
        all.pop_front();
    }
    all.push_back(one);
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}

fn is_after(tsval: u32, other: u32) -> bool {
    (tsval.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_as_there_is_something_to_send_releases_nothing() {
        let mut ack_clock = AckClock::default();
        let acked = |bytes, to| AckOutcome {
            bytes,
            acked_to: to,
            window_limit: to + 900,
            ..AckOutcome::default()
        };
        let seen = |was_dry, begin, end| SegmentOutcome {
            is_new: true,
            was_app_limited: was_dry,
            begin,
            end,
            ..SegmentOutcome::default()
        };
        let stamps = |value, echo| Some(Timestamps { tsval: value, tsecr: echo });
        let time = Time::from_millis;
        ack_clock.on_ack(time(0), &acked(100, 100), stamps(7, 0), 100);
        ack_clock.on_segment(time(30), &seen(true, 100, 200), stamps(0, 7), None, 100);
        assert_eq!(ack_clock.sender_rtt().count(), 0, "it had nothing to send before");
        // Two ACKs with the same timestamp, and the second segment that echoes it.
        ack_clock.on_ack(time(40), &acked(50, 150), stamps(8, 0), 100);
        ack_clock.on_ack(time(41), &acked(50, 200), stamps(8, 0), 100);
        ack_clock.on_segment(time(60), &seen(false, 200, 300), stamps(0, 8), None, 100);
        ack_clock.on_segment(time(69), &seen(false, 300, 400), stamps(0, 8), None, 100);
        assert_eq!(
            (ack_clock.sender_rtt().count(), ack_clock.sender_rtt().median()),
            (1, Some(Span::from_millis(20)))
        );
        assert_eq!(
            ack_clock.window_limit(300),
            Some(1_100),
            "that of the second, whichever it knew"
        );
        // Retransmissions, and echoes of timestamps that did not pass, yield no samples.
        ack_clock.on_ack(time(80), &acked(100, 400), stamps(10, 0), 100);
        ack_clock.on_segment(time(90), &seen(false, 400, 500), stamps(0, 9), None, 100);
        let again = SegmentOutcome { is_new: false, ..seen(false, 300, 400) };
        ack_clock.on_segment(time(99), &again, stamps(0, 10), None, 100);
        ack_clock.on_segment(time(99), &seen(false, 500, 600), stamps(0, 10), None, 100);
        assert_eq!(ack_clock.sender_rtt().count(), 1);
    }

    /// Ten segments fill the receive window: slow start permits more, which stays unused.
    #[test]
    fn without_stamps_the_receivers_window_limits_as_well() {
        let (mut ack_clock, sender_rtt) = (AckClock::default(), Some(Span::from_millis(42)));
        let seen = |number: u64| SegmentOutcome {
            is_new: true,
            begin: number * 100,
            end: (number + 1) * 100,
            ..SegmentOutcome::default()
        };
        (0..10).for_each(|number| {
            ack_clock.on_segment(Time::ZERO, &seen(number), None, sender_rtt, 100)
        });
        for number in 10..200 {
            // Each ACK opens the window for one segment, which passes 42 ms later.
            let at = Time::from_millis(number * 6);
            let to = (number - 9) * 100;
            let receiver_rtt = Some(Span::from_millis(20));
            ack_clock.on_ack(
                at,
                &AckOutcome {
                    bytes: 100,
                    acked_to: to,
                    window_limit: to + 1_000,
                    receiver_rtt,
                    ..AckOutcome::default()
                },
                None,
                100,
            );
            if let Some(released) = number.checked_sub(7).filter(|number| *number >= 10) {
                ack_clock.on_segment(at, &seen(released), None, sender_rtt, 100);
            }
        }
        let median = ack_clock.sender_rtt().median().unwrap();
        assert!(median >= Span::from_millis(41) && median <= Span::from_millis(43), "{median:?}");
    }
    /// A sender like Linux in slow start, 30 ms away. Its first segment is short, and the receive
    /// window grows later.
    #[test]
    fn a_sender_counts_segments_and_keeps_what_it_could_not_use() {
        let (mut ack_clock, sender_rtt) = (AckClock::default(), Some(Span::from_millis(30)));
        let (mut acked, mut sent, mut window, mut room) = (0, 0, 10, 1_200);
        let mut ends = vec![0];
        for round in 0..12 {
            let mut released = Vec::new();
            for (number, end) in (0..).zip(std::mem::take(&mut ends)) {
                let at = Time::from_millis(100 * round) + Span::from_micros(200 * number);
                if end > 0 {
                    let bytes = end - acked;
                    acked = end;
                    room += if round > 3 { 200 } else { 0 };
                    window += u64::from(window * 100 < 2 * room);
                    let granted = acked + room;
                    ack_clock.on_ack(
                        at,
                        &AckOutcome {
                            bytes,
                            acked_to: acked,
                            window_limit: granted,
                            ..AckOutcome::default()
                        },
                        None,
                        100,
                    );
                }
                while sent + 100 <= acked + room && (sent - acked).div_ceil(100) < window {
                    let in_flight = sent - acked;
                    let end = sent + if sent == 0 { 13 } else { 100 };
                    let outcome = SegmentOutcome {
                        is_new: true,
                        in_flight,
                        begin: sent,
                        end,
                        ..SegmentOutcome::default()
                    };
                    released.push((at + Span::from_millis(30), outcome));
                    ends.push(end);
                    sent = end;
                }
            }
            for (at, outcome) in released.into_iter().filter(|(_, outcome)| outcome.in_flight > 0) {
                ack_clock.on_segment(at, &outcome, None, sender_rtt, 100);
            }
        }
        let far = ack_clock.sender_rtt();
        assert_eq!(far.min(), Some(Span::from_millis(30)));
        assert!(far.median() < Some(Span::from_micros(30_300)), "{far:?}");
        assert!(far.count() > 100, "{}", far.count());
    }
    /// Small requests every second, with responses that the same endpoint acknowledges, and then a
    /// large transfer: the window is unchanged.
    #[test]
    fn what_was_allowed_while_there_was_nothing_to_send_releases_nothing() {
        let mut ack_clock = AckClock::default();
        let sender_rtt = Some(Span::from_millis(30));
        let acked = |bytes, to, is_dry| AckOutcome {
            bytes,
            acked_to: to,
            window_limit: to + 60_000,
            is_app_limited: is_dry,
            receiver_rtt: Some(Span::from_millis(10)),
        };
        let mut offset = 0;
        let mut send = |releases: &mut AckClock, at, was_dry, in_flight, length| {
            let (begin, end) = (offset, offset + length);
            offset = end;
            let outcome = SegmentOutcome {
                is_new: true,
                was_app_limited: was_dry,
                in_flight,
                begin,
                end,
                ..SegmentOutcome::default()
            };
            releases.on_segment(at, &outcome, None, sender_rtt, 1_000);
            end
        };
        for second in 0..40 {
            let at = Time::from_millis(1_000 * second);
            send(&mut ack_clock, at, true, 0, 100);
            let end = send(&mut ack_clock, at, true, 100, 100);
            ack_clock.on_ack(at + Span::from_millis(10), &acked(200, end, true), None, 1_000);
        }
        let mut acks = Vec::new();
        let mut now = Time::from_millis(60_000);
        let mut outstanding = 0;
        for number in 0..10 {
            let end = send(&mut ack_clock, now, number == 0, outstanding, 1_000);
            acks.push(end);
            outstanding += 1_000;
        }
        assert_eq!(ack_clock.sender_rtt().count(), 0, "{:?}", ack_clock.sender_rtt());
        let size = ack_clock.reno.as_ref().unwrap().window.size;
        assert!(size <= 12_000, "{size}");
        for _ in 0..3 {
            let round = std::mem::take(&mut acks);
            for to in &round {
                let at = now + Span::from_millis(10);
                ack_clock.on_ack(at, &acked(1_000, *to, false), None, 1_000);
            }
            now += Span::from_millis(40);
            let mut outstanding = 0;
            for _ in 0..2 * round.len() {
                acks.push(send(&mut ack_clock, now, false, outstanding, 1_000));
                outstanding += 1_000;
            }
        }
        let far = ack_clock.sender_rtt();
        assert_eq!((far.min(), far.count()), (Some(Span::from_millis(30)), 70));
        assert!(far.median() < Some(Span::from_micros(30_300)), "{far:?}");
    }

    /// Bytes in flight are those that the sender knows of, not those known near the receiver.
    #[test]
    fn near_the_receiver_acknowledgements_pass_before_their_sender_has_them() {
        let mut ack_clock = AckClock::default();
        for number in 0..8 {
            let (at, begin) = (Time::from_millis(number), number * 1_000);
            let end = begin + 1_000;
            let outcome = SegmentOutcome {
                is_new: true,
                was_app_limited: true,
                begin,
                end,
                ..SegmentOutcome::default()
            };
            ack_clock.on_segment(at, &outcome, None, Some(Span::from_millis(50)), 1_000);
            let acked = AckOutcome {
                bytes: 1_000,
                acked_to: end,
                window_limit: end + 60_000,
                ..AckOutcome::default()
            };
            ack_clock.on_ack(at, &acked, None, 1_000);
        }
        assert_eq!(ack_clock.reno.unwrap().window.max_in_flight, 8_000);
    }

    /// A reader opens the window from time to time, with ACKs that acknowledge nothing new:
    /// segments released by them do not depend on the congestion window.
    #[test]
    fn room_that_is_made_releases_what_waits_for_it() {
        let (mut ack_clock, sender_rtt) = (AckClock::default(), Some(Span::from_millis(30)));
        let acked = |bytes, to, room| {
            let receiver_rtt = (bytes > 0).then_some(Span::from_millis(10));
            AckOutcome {
                bytes,
                acked_to: to,
                window_limit: to + room,
                receiver_rtt,
                ..AckOutcome::default()
            }
        };
        let seen = |in_flight, number: u64| SegmentOutcome {
            is_new: true,
            in_flight,
            begin: number * 1_000,
            end: (number + 1) * 1_000,
            ..SegmentOutcome::default()
        };
        let mut now = Time::ZERO;
        (0..10).for_each(|number| {
            ack_clock.on_segment(now, &seen(number * 1_000, number), None, sender_rtt, 1_000)
        });
        for round in 1..50 {
            ack_clock.on_ack(now, &acked(10_000, round * 10_000, 0), None, 1_000);
            now += Span::from_millis(500);
            ack_clock.on_ack(now, &acked(0, round * 10_000, 10_000), None, 1_000);
            now += Span::from_millis(30);
            for number in 0..10 {
                let outcome = seen(number * 1_000, round * 10 + number);
                ack_clock.on_segment(now, &outcome, None, sender_rtt, 1_000);
            }
            now += Span::from_millis(10);
        }
        assert_eq!(ack_clock.sender_rtt().min(), Some(Span::from_millis(30)));
        assert!(
            ack_clock.sender_rtt().median() < Some(Span::from_micros(30_300)),
            "{:?}",
            ack_clock.sender_rtt()
        );
        let window = ack_clock.reno.unwrap().window;
        assert!(window.size <= 40_000 && window.receive_limit == 500_000, "{window:?}");
    }

    fn us(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    /// Capture on a phone: bursts of merged segments every few milliseconds, acknowledged within
    /// 100 us, in a capture that records received packets with a delay. Times are in microseconds,
    /// and the server is 38.2 ms away.
    struct Phone {
        ack_clock: AckClock,
        min_sender_rtt: Option<Span>,
        acked: u64,
        window: u64,
    }

    impl Phone {
        fn new(far: Option<u64>) -> Self {
            let sender_rtt = far.map(Span::from_micros);
            Self {
                ack_clock: AckClock::default(),
                min_sender_rtt: sender_rtt,
                acked: 0,
                window: 500_000,
            }
        }

        fn receive(&mut self, at: u64, bytes: u64) {
            let (begin, end) = (self.acked, self.acked + bytes);
            let outcome = SegmentOutcome { is_new: true, begin, end, ..SegmentOutcome::default() };
            self.ack_clock.on_segment(us(at), &outcome, None, self.min_sender_rtt, 1_388);
        }

        fn acks(&mut self, at: u64, bytes: u64) {
            self.acked += bytes;
            let to = self.acked;
            let receiver_rtt = Some(Span::from_micros(150));
            let acked = AckOutcome {
                bytes,
                acked_to: to,
                window_limit: to + self.window,
                receiver_rtt,
                ..AckOutcome::default()
            };
            self.ack_clock.on_ack(us(at), &acked, None, 1_388);
        }

        fn burst(&mut self, at: u64, segments: u64) {
            self.receive(at, segments * 1_388);
            self.acks(at + 90, segments * 1_388);
        }

        /// The initial window in three bursts, and three round trips of slow start.
        fn downloads(&mut self) {
            let mut bursts = vec![(900_000, 4), (900_110, 7), (906_000, 3)];
            for _ in 0..3 {
                for (at, segments) in &bursts {
                    self.burst(*at, *segments);
                }
                // Each ACK releases twice the bytes that it acknowledges.
                bursts = bursts.iter().map(|(at, n)| (at + 90 + 38_200, 2 * n)).collect();
            }
        }
    }

    #[test]
    fn what_passes_with_the_acknowledgements_of_one_burst_was_not_released_by_them() {
        for known in [30_000, 38_200, 50_000] {
            let mut phone = Phone::new(Some(known));
            phone.downloads();
            let far = phone.ack_clock.sender_rtt();
            assert_eq!(far.min(), Some(Span::from_micros(38_200)), "{known}: {far:?}");
            assert!(far.median() < Some(Span::from_micros(45_000)), "{known}: {far:?}");
            assert!(far.count() >= 4, "{known}: {far:?}");
        }
    }

    #[test]
    fn a_segment_that_is_recorded_behind_what_it_did_not_wait_for_took_no_time() {
        let mut phone = Phone::new(Some(38_200));
        phone.burst(900_000, 10);
        // Received before the ACK was sent, and recorded after it.
        phone.receive(900_020, 1_388);
        phone.acks(900_200, 1_388);
        assert_eq!(phone.ack_clock.sender_rtt().count(), 0);
        // Also with timestamps.
        let mut ack_clock = AckClock::default();
        let stamps = |value, echo| Some(Timestamps { tsval: value, tsecr: echo });
        let acked = AckOutcome {
            bytes: 1_000,
            acked_to: 1_000,
            window_limit: 60_000,
            ..AckOutcome::default()
        };
        let outcome =
            SegmentOutcome { is_new: true, begin: 1_000, end: 2_000, ..SegmentOutcome::default() };
        ack_clock.on_ack(us(100), &acked, stamps(7, 1), 1_000);
        ack_clock.on_segment(us(100), &outcome, stamps(2, 7), None, 1_000);
        assert_eq!((ack_clock.sender_rtt().count(), ack_clock.timestamp_samples()), (0, 0));
    }

    #[test]
    fn without_a_way_that_is_known_a_window_tells_nothing() {
        let mut phone = Phone::new(None);
        phone.downloads();
        assert_eq!(phone.ack_clock.sender_rtt().count(), 0);
    }

    /// The handshake included a promotion and took 600 ms; a later sample shows the actual
    /// distance.
    #[test]
    fn what_followed_from_a_way_that_was_far_too_long_is_forgotten() {
        let mut phone = Phone::new(Some(600_000));
        phone.downloads();
        phone.burst(1_900_000, 30);
        assert!(phone.ack_clock.sender_rtt().min() > Some(Span::from_millis(400)));
        phone.min_sender_rtt = Some(Span::from_micros(39_000));
        phone.receive(2_000_000, 1_388);
        assert_eq!(
            (phone.ack_clock.sender_rtt().count(), phone.ack_clock.full_rtt().count()),
            (0, 0)
        );
        phone.acks(2_000_090, 1_388);
        phone.receive(2_000_090 + 38_200, 2 * 1_388);
        assert_eq!(phone.ack_clock.sender_rtt().min(), Some(Span::from_micros(38_200)));
    }

    /// More ACKs in flight than the queue holds: a flow of 1.1 Gbit/s that the receive window
    /// limits, 40 ms away.
    #[test]
    fn a_fast_flow_is_followed_as_well() {
        const WINDOW: u64 = 4_000;
        let mut phone = Phone::new(Some(40_000));
        phone.window = WINDOW * 1_388;
        for step in 0..10 * WINDOW {
            // The ACK of the first segment releases the segment after the last.
            let at = 900_000 + 10 * step;
            phone.receive(at, 1_388);
            phone.acks(at, 1_388);
            let reno = phone.ack_clock.reno.as_ref().unwrap();
            assert!(
                reno.acks_in_flight.len() <= MAX_PENDING_ACKS
                    && reno.releasing_acks.len() <= MAX_PENDING_ACKS
            );
        }
        let far = phone.ack_clock.sender_rtt();
        let median = far.median().unwrap();
        assert!(median.as_millis_f64() > 39.0 && median.as_millis_f64() < 41.0, "{far:?}");
        assert!(far.count() > 500, "{far:?}");
    }
}
