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
//! An ACK counts once it may have reached the sender: after [`SHORTEST`] of the minimum known
//! round-trip time to the sender, from the handshake or from ACKs of the sender. Near a receiver, a
//! burst passes with its ACKs in between, and captures record received packets late: without this
//! delay, each ACK would seem to release the segment directly after it. If no such time is known,
//! the window yields no samples. If a later sample shows that the known time was far too long (the
//! handshake included a promotion), the samples of the window are discarded.
//!
//! Neither method yields a sample if the sender had no data left: the segment waited for data.

use manyways_unit::{Span, Time};

use super::queue::Queue;
use super::stream::{Acked, Seen};
use manyways_unit::Samples;
use manyways_wire::tcp::{Seq, Stamps};

/// Maximum number of ACKs that wait to release a segment.
const REMEMBERED: usize = 256;
/// The actual round-trip time to the sender may be this fraction of the measured minimum.
const SHORTEST: (u64, u64) = (3, 4);
/// If half of the queue is used, ACKs within this fraction of the round-trip time are merged,
/// because a fast flow has more ACKs in flight than the queue holds.
const TOGETHER: u64 = 128;

/// ACKs in flight to a sender, and the segments that they release.
#[derive(Clone, Debug, Default)]
pub struct Releases {
    stamped: Queue<Stamped>,
    /// The latest timestamp that was echoed.
    echoed: u32,
    has_echoed: bool,
    /// Without timestamps only.
    reno: Option<Box<Reno>>,
    far: Samples,
    whole: Samples,
    by_stamp: u32,
    /// Latest complete round-trip time.
    latest: Option<Span>,
    /// Limit of the receive window, as known to the sender at its last segment: the lower 32 bits
    /// of the offset.
    granted: u32,
    has_granted: bool,
}

/// Simulation of the sender's window.
#[derive(Clone, Debug, Default)]
struct Reno {
    allowed: Queue<Allowed>,
    /// ACKs that cannot have reached the sender yet.
    coming: Queue<Coming>,
    /// Minimum known round-trip time to the sender.
    far: Span,
    window: Window,
}

/// An ACK in flight to the sender.
#[derive(Clone, Copy, Debug)]
struct Coming {
    at: Time,
    acked: Acked,
}

/// The first ACK with a timestamp.
#[derive(Clone, Copy, Debug)]
struct Stamped {
    at: Time,
    near: Option<Span>,
    stamp: u32,
    /// Limit of the receive window in the last ACK with this timestamp: the lower 32 bits of the
    /// offset.
    granted: u32,
}

/// An ACK that permits the sender to send beyond an offset.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    beyond: u64,
    at: Time,
    near: Option<Span>,
    granted: u64,
}

/// Simulated Reno window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    size: u64,
    /// Slow start threshold; 0 before the first loss.
    threshold: u64,
    /// Limit of the congestion window, as an offset.
    reach: u64,
    /// Limit of the receive window, as an offset.
    limit: u64,
    /// Cumulative acknowledgment that the sender knew at its last segment.
    known: u64,
    /// Maximum in flight in the current round trip.
    used: u64,
    /// Offset whose acknowledgment ends this round trip.
    used_until: u64,
}

impl Releases {
    /// Times from the capture point to the sender and back.
    pub fn far(&self) -> &Samples {
        &self.far
    }

    /// Complete round-trip times: the part of the ACK's own side plus the remote part.
    pub fn whole(&self) -> &Samples {
        &self.whole
    }

    /// Latest complete round-trip time.
    pub fn latest(&self) -> Option<Span> {
        self.latest
    }

    /// Limit of the receive window, as known to the sender at its last segment, which ended at
    /// `end`.
    pub fn granted(&self, end: u64) -> Option<u64> {
        self.has_granted.then(|| Seq(self.granted).unwrap(end))
    }

    fn grant(&mut self, place: u64) {
        (self.granted, self.has_granted) = (place as u32, true);
    }

    fn echoed(&self) -> Option<u32> {
        self.has_echoed.then_some(self.echoed)
    }

    /// Number of samples from timestamps.
    pub fn by_stamp(&self) -> u64 {
        self.by_stamp.into()
    }

    /// Handles an ACK on its way to the sender.
    pub fn acked(&mut self, now: Time, acked: &Acked, stamps: Option<Stamps>, mss: u32) {
        if let Some(Stamps { value: stamp, .. }) = stamps {
            let is_newer = self.stamped.back().is_none_or(|last| is_after(stamp, last.stamp));
            let Acked { near, .. } = *acked;
            let granted = acked.granted as u32;
            let echoed = self.echoed();
            match self.stamped.back_mut().filter(|last| last.stamp == stamp) {
                Some(last) => last.granted = granted,
                None if is_newer && echoed.is_none_or(|echoed| is_after(stamp, echoed)) => {
                    remember(&mut self.stamped, Stamped { stamp, at: now, near, granted });
                }
                // The timestamp was echoed already; this ACK extends the window.
                None if echoed == Some(stamp) => self.grant(acked.granted),
                None => {}
            }
        } else if let Some(reno) = &mut self.reno {
            reno.leaves(now, acked, mss);
        }
    }

    /// Handles a loss that the sender noticed, by its retransmission timer or otherwise.
    pub fn lost(&mut self, by_timer: bool, in_flight: u64, mss: u32) {
        let Some(reno) = &mut self.reno else { return };
        reno.window.shrink(by_timer, in_flight, mss);
        reno.allowed = Queue::default();
    }

    /// Handles a segment of the sender. `far` is the minimum remote round-trip time known from
    /// elsewhere; without it, the window yields no samples.
    pub fn sent(
        &mut self,
        now: Time,
        seen: &Seen,
        stamps: Option<Stamps>,
        far: Option<Span>,
        mss: u32,
    ) {
        let released = match stamps {
            Some(stamps) => self.echoed_by(stamps.echo, seen.end),
            None if seen.is_new => {
                let Some(far) = far else { return };
                self.knows(far);
                let reno = self.reno.get_or_insert_default();
                reno.far = far;
                reno.arrive(now, mss);
                let by_window = reno.allowed_by(seen.end);
                reno.window.sends(seen, mss);
                // ACKs that passed while there was no data release no segment.
                if seen.was_dry {
                    reno.allowed = Queue::default();
                }
                by_window
            }
            None => None,
        };
        let Some(Allowed { at, near, granted, .. }) = released else { return };
        self.grant(granted);
        if !seen.is_new || seen.was_dry {
            return;
        }
        // Clocks of captures may step back.
        let far = now.since(at);
        if far.is_zero() {
            return;
        }
        self.by_stamp = self.by_stamp.saturating_add(stamps.is_some().into());
        self.far.push(far);
        if let Some(near) = near {
            self.whole.push(near + far);
            self.latest = Some(near + far);
        }
    }

    /// Updates the minimum remote round-trip time; discards samples that are based on a time that
    /// was far too long.
    fn knows(&mut self, far: Span) {
        let was_wrong = self.reno.as_ref().is_some_and(|reno| half(reno.far) > far);
        if was_wrong && self.by_stamp == 0 {
            let Self { granted, has_granted, .. } = *self;
            *self = Self { granted, has_granted, ..Self::default() };
        }
    }

    /// Returns the ACK whose timestamp a segment that ends at `end` echoes first.
    fn echoed_by(&mut self, echo: u32, end: u64) -> Option<Allowed> {
        if self.echoed().is_some_and(|echoed| !is_after(echo, echoed)) {
            return None;
        }
        let mut found = None;
        while let Some(first) = self.stamped.front().filter(|first| !is_after(first.stamp, echo)) {
            let Stamped { stamp, at, near, granted } = *first;
            let granted = Seq(granted).unwrap(end);
            found = (stamp == echo).then_some(Allowed { beyond: 0, at, near, granted });
            self.stamped.pop_front();
        }
        if found.is_some() {
            (self.echoed, self.has_echoed) = (echo, true);
        }
        found
    }
}

impl Reno {
    /// Returns the latest ACK without which a segment that ends at `end` could not be sent.
    fn allowed_by(&mut self, end: u64) -> Option<Allowed> {
        let mut found = None;
        while let Some(first) = self.allowed.front().filter(|first| first.beyond < end) {
            found = Some(*first);
            self.allowed.pop_front();
        }
        found
    }

    /// Handles an ACK on its way to the sender.
    fn leaves(&mut self, now: Time, acked: &Acked, mss: u32) {
        let together = match self.coming.len() < REMEMBERED / 2 {
            true => Span::ZERO,
            false => Span::from_nanos(self.far.as_nanos() / TOGETHER),
        };
        match self.coming.back_mut().filter(|last| now.since(last.at) < together) {
            Some(last) => {
                let bytes = last.acked.bytes + acked.bytes;
                last.acked = Acked { bytes, near: last.acked.near.or(acked.near), ..*acked };
            }
            None => {
                if self.coming.len() == REMEMBERED {
                    self.arrives(mss);
                }
                self.coming.push_back(Coming { at: now, acked: *acked });
            }
        }
    }

    /// Delivers ACKs that may have reached the sender.
    fn arrive(&mut self, now: Time, mss: u32) {
        let (times, of) = SHORTEST;
        let way = Span::from_nanos(self.far.as_nanos() / of * times);
        while self.coming.front().is_some_and(|coming| coming.at + way <= now) {
            self.arrives(mss);
        }
    }

    fn arrives(&mut self, mss: u32) {
        let Some(Coming { at, acked }) = self.coming.pop_front() else { return };
        let beyond = self.window.limit;
        self.window.grow(&acked, mss);
        if self.window.limit > beyond {
            let Acked { near, granted, .. } = acked;
            remember(&mut self.allowed, Allowed { beyond, at, near, granted });
        }
        self.window.known = self.window.known.max(acked.to);
    }
}

impl Window {
    fn grow(&mut self, acked: &Acked, mss: u32) {
        let in_slow_start = self.threshold == 0 || self.size < self.threshold;
        let bytes = acked.bytes.max(mss.into());
        // A sender with more data uses all that both windows permit.
        let room = acked.granted.saturating_sub(acked.to);
        let used = if acked.is_dry { self.used } else { self.size.min(room) };
        let (more, most) = match in_slow_start {
            true => (bytes, 2 * used),
            false => (u64::from(mss) * bytes / self.size.max(1), used + 1),
        };
        if acked.bytes > 0 && self.size < most {
            self.size += more;
        }
        self.size = self.size.max(mss.into());
        self.reach = self.reach.max(acked.to + self.size);
        self.limit = self.limit.max(self.reach.min(acked.granted));
    }

    fn shrink(&mut self, by_timer: bool, in_flight: u64, mss: u32) {
        self.threshold = (in_flight / 2).max(2 * u64::from(mss));
        self.size = if by_timer { mss.into() } else { self.threshold };
    }

    /// Raises the window to the end of a sent segment.
    fn sends(&mut self, seen: &Seen, mss: u32) {
        let full = |bytes: u64| bytes.next_multiple_of(mss.max(1).into());
        if self.reach == 0 {
            (self.size, self.reach) = (full(seen.in_flight), seen.begin);
            self.known = seen.begin - seen.in_flight.min(seen.begin);
        }
        if seen.end > self.reach {
            let length = seen.end - seen.begin;
            self.size += seen.end - self.reach + full(length) - length;
            self.reach = seen.end;
        }
        self.limit = self.limit.max(seen.end);
        let used = full(seen.end - self.known.min(seen.end));
        if used > self.used || self.known >= self.used_until {
            (self.used, self.used_until) = (used, seen.end);
        }
    }
}

fn remember<T>(all: &mut Queue<T>, one: T) {
    if all.len() == REMEMBERED {
        all.pop_front();
    }
    all.push_back(one);
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}

fn is_after(stamp: u32, other: u32) -> bool {
    (stamp.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_as_there_is_something_to_send_releases_nothing() {
        let mut releases = Releases::default();
        let acked = |bytes, to| Acked { bytes, to, granted: to + 900, ..Acked::default() };
        let seen =
            |was_dry, begin, end| Seen { is_new: true, was_dry, begin, end, ..Seen::default() };
        let stamps = |value, echo| Some(Stamps { value, echo });
        let time = Time::from_millis;
        releases.acked(time(0), &acked(100, 100), stamps(7, 0), 100);
        releases.sent(time(30), &seen(true, 100, 200), stamps(0, 7), None, 100);
        assert_eq!(releases.far().count(), 0, "it had nothing to send before");
        // Two ACKs with the same timestamp, and the second segment that echoes it.
        releases.acked(time(40), &acked(50, 150), stamps(8, 0), 100);
        releases.acked(time(41), &acked(50, 200), stamps(8, 0), 100);
        releases.sent(time(60), &seen(false, 200, 300), stamps(0, 8), None, 100);
        releases.sent(time(69), &seen(false, 300, 400), stamps(0, 8), None, 100);
        assert_eq!(
            (releases.far().count(), releases.far().median()),
            (1, Some(Span::from_millis(20)))
        );
        assert_eq!(releases.granted(300), Some(1_100), "that of the second, whichever it knew");
        // Retransmissions, and echoes of timestamps that did not pass, yield no samples.
        releases.acked(time(80), &acked(100, 400), stamps(10, 0), 100);
        releases.sent(time(90), &seen(false, 400, 500), stamps(0, 9), None, 100);
        let again = Seen { is_new: false, ..seen(false, 300, 400) };
        releases.sent(time(99), &again, stamps(0, 10), None, 100);
        releases.sent(time(99), &seen(false, 500, 600), stamps(0, 10), None, 100);
        assert_eq!(releases.far().count(), 1);
    }

    /// Ten segments fill the receive window: slow start permits more, which stays unused.
    #[test]
    fn without_stamps_the_receivers_window_limits_as_well() {
        let (mut releases, far) = (Releases::default(), Some(Span::from_millis(42)));
        let seen = |number: u64| Seen {
            is_new: true,
            begin: number * 100,
            end: (number + 1) * 100,
            ..Seen::default()
        };
        (0..10).for_each(|number| releases.sent(Time::ZERO, &seen(number), None, far, 100));
        for number in 10..200 {
            // Each ACK opens the window for one segment, which passes 42 ms later.
            let at = Time::from_millis(number * 6);
            let to = (number - 9) * 100;
            let near = Some(Span::from_millis(20));
            releases.acked(
                at,
                &Acked { bytes: 100, to, granted: to + 1_000, near, ..Acked::default() },
                None,
                100,
            );
            if let Some(released) = number.checked_sub(7).filter(|number| *number >= 10) {
                releases.sent(at, &seen(released), None, far, 100);
            }
        }
        let median = releases.far().median().unwrap();
        assert!(median >= Span::from_millis(41) && median <= Span::from_millis(43), "{median:?}");
    }
    /// A sender like Linux in slow start, 30 ms away. Its first segment is short, and the receive
    /// window grows later.
    #[test]
    fn a_sender_counts_segments_and_keeps_what_it_could_not_use() {
        let (mut releases, far) = (Releases::default(), Some(Span::from_millis(30)));
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
                    releases.acked(
                        at,
                        &Acked { bytes, to: acked, granted, ..Acked::default() },
                        None,
                        100,
                    );
                }
                while sent + 100 <= acked + room && (sent - acked).div_ceil(100) < window {
                    let in_flight = sent - acked;
                    let end = sent + if sent == 0 { 13 } else { 100 };
                    let seen =
                        Seen { is_new: true, in_flight, begin: sent, end, ..Seen::default() };
                    released.push((at + Span::from_millis(30), seen));
                    ends.push(end);
                    sent = end;
                }
            }
            for (at, seen) in released.into_iter().filter(|(_, seen)| seen.in_flight > 0) {
                releases.sent(at, &seen, None, far, 100);
            }
        }
        let far = releases.far();
        assert_eq!(far.least(), Some(Span::from_millis(30)));
        assert!(far.median() < Some(Span::from_micros(30_300)), "{far:?}");
        assert!(far.count() > 100, "{}", far.count());
    }
    /// Small requests every second, with responses that the same endpoint acknowledges, and then a
    /// large transfer: the window is unchanged.
    #[test]
    fn what_was_allowed_while_there_was_nothing_to_send_releases_nothing() {
        let mut releases = Releases::default();
        let far = Some(Span::from_millis(30));
        let acked = |bytes, to, is_dry| Acked {
            bytes,
            to,
            granted: to + 60_000,
            is_dry,
            near: Some(Span::from_millis(10)),
        };
        let mut place = 0;
        let mut send = |releases: &mut Releases, at, was_dry, in_flight, length| {
            let (begin, end) = (place, place + length);
            place = end;
            let seen = Seen { is_new: true, was_dry, in_flight, begin, end, ..Seen::default() };
            releases.sent(at, &seen, None, far, 1_000);
            end
        };
        for second in 0..40 {
            let at = Time::from_millis(1_000 * second);
            send(&mut releases, at, true, 0, 100);
            let end = send(&mut releases, at, true, 100, 100);
            releases.acked(at + Span::from_millis(10), &acked(200, end, true), None, 1_000);
        }
        let mut acks = Vec::new();
        let mut now = Time::from_millis(60_000);
        let mut outstanding = 0;
        for number in 0..10 {
            let end = send(&mut releases, now, number == 0, outstanding, 1_000);
            acks.push(end);
            outstanding += 1_000;
        }
        assert_eq!(releases.far().count(), 0, "{:?}", releases.far());
        let size = releases.reno.as_ref().unwrap().window.size;
        assert!(size <= 12_000, "{size}");
        for _ in 0..3 {
            let round = std::mem::take(&mut acks);
            for to in &round {
                let at = now + Span::from_millis(10);
                releases.acked(at, &acked(1_000, *to, false), None, 1_000);
            }
            now += Span::from_millis(40);
            let mut outstanding = 0;
            for _ in 0..2 * round.len() {
                acks.push(send(&mut releases, now, false, outstanding, 1_000));
                outstanding += 1_000;
            }
        }
        let far = releases.far();
        assert_eq!((far.least(), far.count()), (Some(Span::from_millis(30)), 70));
        assert!(far.median() < Some(Span::from_micros(30_300)), "{far:?}");
    }

    /// Bytes in flight are those that the sender knows of, not those known near the receiver.
    #[test]
    fn near_the_receiver_acknowledgements_pass_before_their_sender_has_them() {
        let mut releases = Releases::default();
        for number in 0..8 {
            let (at, begin) = (Time::from_millis(number), number * 1_000);
            let end = begin + 1_000;
            let seen = Seen { is_new: true, was_dry: true, begin, end, ..Seen::default() };
            releases.sent(at, &seen, None, Some(Span::from_millis(50)), 1_000);
            let acked = Acked { bytes: 1_000, to: end, granted: end + 60_000, ..Acked::default() };
            releases.acked(at, &acked, None, 1_000);
        }
        assert_eq!(releases.reno.unwrap().window.used, 8_000);
    }

    /// A reader opens the window from time to time, with ACKs that acknowledge nothing new:
    /// segments released by them do not depend on the congestion window.
    #[test]
    fn room_that_is_made_releases_what_waits_for_it() {
        let (mut releases, far) = (Releases::default(), Some(Span::from_millis(30)));
        let acked = |bytes, to, room| {
            let near = (bytes > 0).then_some(Span::from_millis(10));
            Acked { bytes, to, granted: to + room, near, ..Acked::default() }
        };
        let seen = |in_flight, number: u64| Seen {
            is_new: true,
            in_flight,
            begin: number * 1_000,
            end: (number + 1) * 1_000,
            ..Seen::default()
        };
        let mut now = Time::ZERO;
        (0..10)
            .for_each(|number| releases.sent(now, &seen(number * 1_000, number), None, far, 1_000));
        for round in 1..50 {
            releases.acked(now, &acked(10_000, round * 10_000, 0), None, 1_000);
            now += Span::from_millis(500);
            releases.acked(now, &acked(0, round * 10_000, 10_000), None, 1_000);
            now += Span::from_millis(30);
            for number in 0..10 {
                let seen = seen(number * 1_000, round * 10 + number);
                releases.sent(now, &seen, None, far, 1_000);
            }
            now += Span::from_millis(10);
        }
        assert_eq!(releases.far().least(), Some(Span::from_millis(30)));
        assert!(releases.far().median() < Some(Span::from_micros(30_300)), "{:?}", releases.far());
        let window = releases.reno.unwrap().window;
        assert!(window.size <= 40_000 && window.limit == 500_000, "{window:?}");
    }

    fn us(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    /// Capture on a phone: bursts of merged segments every few milliseconds, acknowledged within
    /// 100 us, in a capture that records received packets with a delay. Times are in microseconds,
    /// and the server is 38.2 ms away.
    struct Phone {
        releases: Releases,
        far: Option<Span>,
        acked: u64,
        room: u64,
    }

    impl Phone {
        fn new(far: Option<u64>) -> Self {
            let far = far.map(Span::from_micros);
            Self { releases: Releases::default(), far, acked: 0, room: 500_000 }
        }

        fn comes(&mut self, at: u64, bytes: u64) {
            let (begin, end) = (self.acked, self.acked + bytes);
            let seen = Seen { is_new: true, begin, end, ..Seen::default() };
            self.releases.sent(us(at), &seen, None, self.far, 1_388);
        }

        fn acks(&mut self, at: u64, bytes: u64) {
            self.acked += bytes;
            let to = self.acked;
            let near = Some(Span::from_micros(150));
            let acked = Acked { bytes, to, granted: to + self.room, near, ..Acked::default() };
            self.releases.acked(us(at), &acked, None, 1_388);
        }

        fn burst(&mut self, at: u64, segments: u64) {
            self.comes(at, segments * 1_388);
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
            let far = phone.releases.far();
            assert_eq!(far.least(), Some(Span::from_micros(38_200)), "{known}: {far:?}");
            assert!(far.median() < Some(Span::from_micros(45_000)), "{known}: {far:?}");
            assert!(far.count() >= 4, "{known}: {far:?}");
        }
    }

    #[test]
    fn a_segment_that_is_recorded_behind_what_it_did_not_wait_for_took_no_time() {
        let mut phone = Phone::new(Some(38_200));
        phone.burst(900_000, 10);
        // Received before the ACK was sent, and recorded after it.
        phone.comes(900_020, 1_388);
        phone.acks(900_200, 1_388);
        assert_eq!(phone.releases.far().count(), 0);
        // Also with timestamps.
        let mut releases = Releases::default();
        let stamps = |value, echo| Some(Stamps { value, echo });
        let acked = Acked { bytes: 1_000, to: 1_000, granted: 60_000, ..Acked::default() };
        let seen = Seen { is_new: true, begin: 1_000, end: 2_000, ..Seen::default() };
        releases.acked(us(100), &acked, stamps(7, 1), 1_000);
        releases.sent(us(100), &seen, stamps(2, 7), None, 1_000);
        assert_eq!((releases.far().count(), releases.by_stamp()), (0, 0));
    }

    #[test]
    fn without_a_way_that_is_known_a_window_tells_nothing() {
        let mut phone = Phone::new(None);
        phone.downloads();
        assert_eq!(phone.releases.far().count(), 0);
    }

    /// The handshake included a promotion and took 600 ms; a later sample shows the actual
    /// distance.
    #[test]
    fn what_followed_from_a_way_that_was_far_too_long_is_forgotten() {
        let mut phone = Phone::new(Some(600_000));
        phone.downloads();
        phone.burst(1_900_000, 30);
        assert!(phone.releases.far().least() > Some(Span::from_millis(400)));
        phone.far = Some(Span::from_micros(39_000));
        phone.comes(2_000_000, 1_388);
        assert_eq!((phone.releases.far().count(), phone.releases.whole().count()), (0, 0));
        phone.acks(2_000_090, 1_388);
        phone.comes(2_000_090 + 38_200, 2 * 1_388);
        assert_eq!(phone.releases.far().least(), Some(Span::from_micros(38_200)));
    }

    /// More ACKs in flight than the queue holds: a flow of 1.1 Gbit/s that the receive window
    /// limits, 40 ms away.
    #[test]
    fn a_fast_flow_is_followed_as_well() {
        const WINDOW: u64 = 4_000;
        let mut phone = Phone::new(Some(40_000));
        phone.room = WINDOW * 1_388;
        for step in 0..10 * WINDOW {
            // The ACK of the first segment releases the segment after the last.
            let at = 900_000 + 10 * step;
            phone.comes(at, 1_388);
            phone.acks(at, 1_388);
            let reno = phone.releases.reno.as_ref().unwrap();
            assert!(reno.coming.len() <= REMEMBERED && reno.allowed.len() <= REMEMBERED);
        }
        let far = phone.releases.far();
        let median = far.median().unwrap();
        assert!(median.as_millis_f64() > 39.0 && median.as_millis_f64() < 41.0, "{far:?}");
        assert!(far.count() > 500, "{far:?}");
    }
}
