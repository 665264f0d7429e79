//! Estimate of the second hop of a carrier that leads over another device.
//!
//! The device reports nothing but a round-trip time when it joins, because it could lie; measured
//! responses of the other end limit what it claims. It has passed on the bytes that the peer has
//! acknowledged: its backlog are the unacknowledged bytes that have left the first hop.

use manyways_unit::{Rate, Size, Span, Time};

use super::message::MAX_PAYLOAD;
use super::recent_min::RecentMin;
use crate::sched::{DeviceWait, SecondHop};

/// Time over which a rate is measured: several ACKs, which come with `ACK_JITTER`.
const WINDOW: Span = Span::from_millis(50);
/// Bytes beyond those on their way with which the device has something to pass on all the time: one
/// message may be half acknowledged.
const MIN_QUEUE: u64 = MAX_PAYLOAD as u64;
/// Time by which an ACK may be later than another one.
const ACK_JITTER: Span = Span::from_millis(10);

/// Limit of the round-trip time that a device claims: more than that of a satellite.
const MAX_CLAIM: Span = Span::from_secs(1);
/// Error of a delay that is measured from responses: they also have the delay of an ACK, and the time
/// in which the message itself passes. A better claim is not corrected.
const DELAY_ERROR: Span = Span::from_millis(30);

/// Limit of a rate that was raised without a measurement.
const MAX_GROWN_RATE: Rate = Rate::from_mbps(10_000);

/// How the time is estimated that a message waits at the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HopEstimate {
    /// From the backlog and the rate of the second hop.
    #[default]
    Backlog,
    /// As long as the last acknowledged message has waited.
    Delay,
}

/// State of the second hop.
#[derive(Debug)]
pub(super) struct HopState {
    estimate: HopEstimate,
    /// Delay of one way, without a wait at the device: the claimed one within the limits of the
    /// measured ones.
    delay: Span,
    claimed: Span,
    /// The smallest measured delay of all, and of the recent past: without a wait, and at most with
    /// a wait that lasts.
    least: Option<Span>,
    recent: RecentMin<Span>,
    /// Rate at which the device passes bytes on; zero if unknown.
    rate: Rate,
    measurement: Option<Measurement>,
    /// Time from a message to its ACK, if nothing waits, and the bytes of the message.
    base_response: RecentMin<(Span, u64)>,
    /// Time that the last acknowledged message waited at the device.
    waited: Span,
}

/// A measurement of the rate that is under way.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    start: Time,
    bytes: u64,
    /// The backlog at the start, and the smallest one since then.
    first_backlog: u64,
    backlog: u64,
}

/// Acknowledged messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub bytes: u64,
    /// Bytes of the last one.
    pub last_bytes: u64,
    /// Time since the last one was sent.
    pub response: Span,
    /// Delay of one way of the first hop.
    pub first_delay: Span,
    /// Delay of the ACK on the other carrier over which it came; `None` if it came over the device.
    pub back: Option<Span>,
    /// Bytes that have left the first hop and are not acknowledged.
    pub backlog: u64,
}

impl HopState {
    /// Creates the state of a hop with this round-trip time.
    pub(super) fn new(estimate: HopEstimate, rtt: Span) -> Self {
        let claimed = Span::from_nanos(rtt.min(MAX_CLAIM).as_nanos() / 2);
        Self {
            estimate,
            delay: claimed,
            claimed,
            least: None,
            recent: RecentMin::default(),
            rate: Rate::ZERO,
            measurement: None,
            base_response: RecentMin::default(),
            waited: Span::ZERO,
        }
    }

    pub(super) fn on_acknowledged(&mut self, now: Time, acked: Acknowledged) {
        let Acknowledged { bytes, last_bytes, response, first_delay, back, backlog } = acked;
        self.limit_delay(now, response, first_delay, back);
        self.base_response.observe(now, (response, last_bytes));
        let base = self.base_response.get().map_or(response, |(base, _)| base);
        self.waited = response.saturating_sub(base);
        let next = Measurement { start: now, bytes: 0, backlog, first_backlog: backlog };
        let Some(Measurement { start, bytes: before, backlog: least, first_backlog }) =
            self.measurement
        else {
            self.measurement = Some(next);
            return;
        };
        let backlog_since = least.min(backlog);
        let window =
            Measurement { start, bytes: before + bytes, backlog: backlog_since, first_backlog };
        let length = now.since(start);
        if length < WINDOW {
            self.measurement = Some(window);
            return;
        }
        let measured = Rate::of(Size::from_bytes(window.bytes), length);
        let on_their_way = measured.size_in(self.lag(first_delay) + self.delay + ACK_JITTER);
        let has_queue = window.backlog >= on_their_way.as_bytes() + MIN_QUEUE;
        let gets_queue = backlog >= window.first_backlog + MIN_QUEUE;
        let is_busy = has_queue || gets_queue;
        self.rate = match (is_busy, self.rate.is_zero()) {
            (true, true) => measured,
            (true, false) => Rate::from_bps(u64::midpoint(self.rate.as_bps(), measured.as_bps())),
            (false, true) => Rate::ZERO,
            // The device could have passed on more. If the estimate is too high now, it will get
            // busy, and show its rate.
            (false, false) => {
                let grown = Rate::from_bps(self.rate.as_bps() / 16 * 17);
                grown.min(MAX_GROWN_RATE).max(measured)
            }
        };
        self.measurement = Some(next);
    }

    /// Limits the claimed delay by that of a message and its ACK.
    fn limit_delay(&mut self, now: Time, response: Span, first_delay: Span, back: Option<Span>) {
        let rest = response.saturating_sub(first_delay);
        let measured = match back {
            Some(back) => rest.saturating_sub(back),
            None => Span::from_nanos(rest.saturating_sub(first_delay).as_nanos() / 2),
        };
        self.recent.observe(now, measured);
        let least = self.least.map_or(measured, |least| least.min(measured));
        let most = self.recent.get().unwrap_or(measured) + DELAY_ERROR;
        self.least = Some(least);
        self.delay = self.claimed.max(least.saturating_sub(DELAY_ERROR)).min(most);
    }

    /// Returns the time from the arrival of bytes until their ACK is here.
    pub(super) fn lag(&self, first_delay: Span) -> Span {
        let (base, bytes) = self.base_response.get().unwrap_or_default();
        // The time in which the device passes the message on is part of the wait of the backlog.
        let passing_on = match self.rate.is_zero() {
            true => Span::ZERO,
            false => self.rate.time_for(Size::from_bytes(bytes)),
        };
        // The ACK of a lone message waits for others; of many messages, half of them have less to
        // wait.
        let ack_delay = Span::from_nanos(ACK_JITTER.as_nanos() / 2);
        base.saturating_sub(first_delay + self.delay + passing_on + ack_delay)
    }

    /// Returns the rate at which the device passes bytes on; zero if unknown.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    pub(super) fn rtt(&self) -> Span {
        self.delay * 2
    }

    /// Returns the time that the last acknowledged message waited at the device.
    pub(super) fn waited(&self) -> Span {
        self.waited
    }

    /// Returns the view of a scheduler.
    pub(super) fn view(&self, first_delay: Span, backlog: u64) -> SecondHop {
        let wait = match self.estimate {
            HopEstimate::Backlog => {
                DeviceWait::Backlog { bytes: Size::from_bytes(backlog), lag: self.lag(first_delay) }
            }
            HopEstimate::Delay => DeviceWait::Measured(self.waited),
        };
        SecondHop { rate: self.rate, delay: self.delay, wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_DELAY: Span = Span::from_millis(30);
    /// From the receiver back to this endpoint.
    const BACK: Span = Span::from_millis(32);

    /// A device that gets bytes at one rate and passes them on at another one.
    struct Device {
        hop: HopState,
        now: Time,
        /// Bytes that have left this endpoint, and when the last of them have arrived in the end.
        free_at: Time,
        sent: Vec<(Time, Time, u64)>,
    }

    impl Device {
        fn new() -> Self {
            let hop = HopState::new(HopEstimate::Backlog, Span::from_millis(6));
            Self { hop, now: Time::from_millis(1), free_at: Time::ZERO, sent: Vec::new() }
        }

        /// Messages of 4,000 bytes come at `rate` and are passed on at `second`.
        fn run(&mut self, millis: u64, rate: u64, second: u64) {
            let end = self.now + Span::from_millis(millis);
            let (rate, second) = (Rate::from_kbps(rate), Rate::from_kbps(second));
            let message = Size::from_bytes(4_000);
            let mut next = self.now;
            while self.now < end {
                if next <= self.now {
                    next += rate.time_for(message);
                    let at_device = self.now + FIRST_DELAY;
                    self.free_at = self.free_at.max(at_device) + second.time_for(message);
                    let acked_at = self.free_at + Span::from_millis(3) + BACK;
                    self.sent.push((self.now, acked_at, message.as_bytes()));
                }
                while let Some(&(sent_at, _, bytes)) = self.sent.first().filter(|m| m.1 <= self.now)
                {
                    self.sent.remove(0);
                    let left = self.sent.iter().filter(|(at, ..)| *at + FIRST_DELAY <= self.now);
                    let backlog = left.map(|(_, _, bytes)| bytes).sum();
                    let response = self.now.since(sent_at);
                    self.hop.on_acknowledged(
                        self.now,
                        Acknowledged {
                            bytes,
                            last_bytes: bytes,
                            response,
                            first_delay: FIRST_DELAY,
                            back: Some(BACK),
                            backlog,
                        },
                    );
                }
                self.now += Span::from_micros(200);
            }
        }

        fn kbps(&self) -> u64 {
            self.hop.rate().as_bps() / 1_000
        }
    }

    #[test]
    fn the_rate_is_known_once_the_device_has_a_queue() {
        let mut device = Device::new();
        device.run(2_000, 3_000, 5_000);
        assert_eq!(device.kbps(), 0, "it could pass on more");
        device.run(1_000, 8_000, 5_000);
        assert!((4_700..5_400).contains(&device.kbps()), "{}", device.kbps());
    }

    #[test]
    fn a_change_is_known_soon() {
        let mut device = Device::new();
        // The backlog is passed on at the earlier rate within 100 ms.
        device.run(1_500, 5_300, 5_000);
        device.run(500, 1_500, 1_000);
        assert!(device.kbps() < 1_300, "{}", device.kbps());
        device.run(600, 12_000, 10_000);
        assert!(device.kbps() > 7_000, "{}", device.kbps());
    }

    #[test]
    fn a_device_that_is_used_little_does_not_stay_slow() {
        let mut device = Device::new();
        device.run(3_000, 3_000, 1_000);
        assert!((900..1_200).contains(&device.kbps()), "{}", device.kbps());
        device.run(12_000, 500, 10_000);
        assert!(device.kbps() > 4_000, "{}", device.kbps());
    }

    #[test]
    fn a_rate_that_is_not_measured_does_not_grow_without_end() {
        let mut device = Device::new();
        device.run(1_000, 8_000, 5_000);
        device.run(60_000, 500, 10_000);
        assert_eq!(device.hop.rate(), MAX_GROWN_RATE);
    }

    #[test]
    fn a_claim_is_limited_and_then_replaced() {
        for (claimed, least, most) in [(0, 0, 35), (6, 3, 3), (60, 30, 30), (4_000_000, 30, 80)] {
            let mut device = Device::new();
            device.hop = HopState::new(HopEstimate::Backlog, Span::from_millis(claimed));
            assert!(device.hop.rtt() <= MAX_CLAIM);
            device.run(1_000, 4_000, 5_000);
            let [least, most] = [least, most].map(Span::from_millis);
            assert!((least..=most).contains(&device.hop.delay), "{}", device.hop.delay);
        }
        // Each message takes 800 ms, whatever was claimed.
        let mut hop = HopState::new(HopEstimate::Backlog, Span::ZERO);
        hop.limit_delay(Time::ZERO, Span::from_millis(862), FIRST_DELAY, Some(BACK));
        assert_eq!(hop.delay, Span::from_millis(770));
    }

    #[test]
    fn bytes_on_their_way_are_no_wait() {
        let mut device = Device::new();
        device.run(2_000, 4_000, 5_000);
        device.run(500, 8_000, 5_000);
        let backlog = Rate::from_kbps(4_000).size_in(BACK).as_bytes();
        let DeviceWait::Backlog { lag, .. } = device.hop.view(FIRST_DELAY, backlog).wait else {
            panic!("not of the backlog")
        };
        // ACKs come without a delay here.
        let (expected, error) = (BACK - Span::from_millis(5), Span::from_millis(1));
        assert!((expected - error..expected + error).contains(&lag), "{lag}");
    }

    #[test]
    fn a_measured_wait_is_that_of_the_last_message() {
        let mut device = Device::new();
        device.hop.estimate = HopEstimate::Delay;
        device.run(100, 2_000, 5_000);
        device.run(1_000, 10_000, 5_000);
        // A backlog of 625,000 bytes after 1 s, that the last message does not know of yet.
        let DeviceWait::Measured(wait) = device.hop.view(FIRST_DELAY, 0).wait else {
            panic!("not measured")
        };
        assert!((Span::from_millis(300)..Span::from_millis(500)).contains(&wait), "{wait}");
    }
}
