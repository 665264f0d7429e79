//! Window of bulk data beside a call: streams keep the queue of a carrier short while a call uses
//! it.
//!
//! A congestion control fills the queue at the bottleneck, where the datagrams of a call wait with
//! all other bytes. While a call uses a carrier, streams therefore keep a second window, smaller
//! than the congestion window: in each round trip it moves halfway to the size at which the
//! queueing delay would be that of a target, [`CALL_TARGET`] beside a call (the update of FAST TCP,
//! Jin, Wei and Low, 2004, with the yielding to measured delay of LEDBAT, RFC 6817). A lender keeps
//! the queue of its pipe short in the same way (`relay::PipeQueue`). Deviations: the delay of a round trip is its
//! smallest sample, because links with jitter delay packets without a queue; the samples are the
//! smoothed ones of the transport, less its mean deviation, so that of jitter above twice the target
//! a part still counts as a queue; the window has no floor in packets of one sender, but gives up
//! if it does not help, because then the queue is of others; and it halves for a round trip now and
//! then, as LEDBAT++ does, so that the base delay is seen again. Where the carrier was full when the
//! call began, it does so at once, and again until the base delay falls no more.

use manyways_unit::{Span, Time};

use super::message::MAX_PAYLOAD;
use super::recent_min::RecentMin;

/// Queueing delay that bulk data may cause beside a call.
const CALL_TARGET: Span = Span::from_millis(5);
/// Time without a datagram after which a call has ended.
const CALL_TIMEOUT: Span = Span::from_secs(1);
/// Bytes by which the last piece may exceed the window.
const MAX_EXCESS: u64 = MAX_PAYLOAD as u64;
/// Minimum of the window in bytes beside a call.
const CALL_MINIMUM: u64 = 4 * 1_448;
/// The window at the start of an idle carrier, as the initial congestion window (RFC 6928).
const INITIAL_WINDOW: u64 = 10 * 1_448;
/// Time at the minimum, with a delay above the target, after which the window gives up.
const MAX_STARVATION: Span = Span::from_secs(1);
/// Time for which it gives up.
const SURRENDER_TIME: Span = Span::from_secs(10);
/// Interval of the round trips with half the window.
const SLOWDOWN_INTERVAL: Span = Span::from_secs(30);
/// Decrease of the base delay after which another slowdown may show a smaller one.
const MIN_BASE_DECREASE: Span = Span::from_millis(1);
/// Rounds between such slowdowns.
const ROUNDS_BETWEEN_SLOWDOWNS: u64 = 4;
/// Minimum length of a round: a transport is sampled only so often.
const MIN_ROUND: Span = Span::from_millis(2);

/// The round-trip time as a transport knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttSample {
    pub smoothed: Span,
    /// Mean deviation of the samples; 0 if unknown.
    pub deviation: Span,
    /// The smallest one, or the closest known value.
    pub min: Span,
}

/// The window of one carrier.
#[derive(Debug)]
pub(crate) struct BulkWindow {
    target: Span,
    /// In bytes.
    minimum: u64,
    /// Only while a call uses the carrier.
    active: Option<Active>,
    base_rtt: RecentMin<Span>,
    surrendered_until: Time,
}

#[derive(Debug)]
struct Active {
    call_until: Time,
    /// Of the call: higher priorities have no window.
    priority: u8,
    window: u64,
    /// Whether no queue was seen yet: the window doubles in each round, as in slow start.
    is_starting: bool,
    round_end: Time,
    /// The smallest round-trip time of this round.
    round_rtt: Option<Span>,
    /// Whether bulk data filled the window in this round.
    was_full: bool,
    /// Since when the window is at its minimum although the delay is above the target.
    starved_since: Option<Time>,
    slowdown_at: Time,
    /// The window to return to after a slowdown, and the base delay before it.
    resumed: Option<(u64, Span)>,
}

impl Default for BulkWindow {
    fn default() -> Self {
        Self::new(CALL_TARGET, CALL_MINIMUM)
    }
}

impl BulkWindow {
    /// Creates a window with this queueing delay and this minimum in bytes.
    pub(crate) fn new(target: Span, minimum: u64) -> Self {
        let (active, base_rtt) = (None, RecentMin::default());
        Self { target, minimum, active, base_rtt, surrendered_until: Time::ZERO }
    }

    /// Records a datagram of a call. `outstanding` are the bytes in flight and unsent, `rtt` is the
    /// smoothed round-trip time.
    pub(crate) fn on_call(&mut self, now: Time, priority: u8, outstanding: u64, rtt: Span) {
        if now < self.surrendered_until {
            return;
        }
        let until = now + CALL_TIMEOUT;
        // Nothing is left of an earlier call.
        self.active.take_if(|active| now >= active.call_until);
        if let Some(active) = &mut self.active {
            (active.call_until, active.priority) = (until, active.priority.max(priority));
            return;
        }
        let base = self.base_rtt.get().unwrap_or(rtt).min(rtt);
        let is_starting = outstanding < INITIAL_WINDOW;
        let window = fitting(outstanding, base + self.target, rtt).max(INITIAL_WINDOW);
        self.active = Some(Active {
            call_until: until,
            priority,
            window,
            is_starting,
            round_end: now + rtt.max(MIN_ROUND),
            round_rtt: None,
            was_full: false,
            starved_since: None,
            slowdown_at: if is_starting { now + SLOWDOWN_INTERVAL } else { now },
            resumed: None,
        });
    }

    /// Processes a sample: `outstanding` are the bytes in flight and unsent.
    pub(crate) fn observe(&mut self, now: Time, sample: RttSample, outstanding: u64) {
        let RttSample { smoothed, deviation, min } = sample;
        self.base_rtt.observe(now, smoothed.min(min));
        let rtt = smoothed.saturating_sub(deviation).max(smoothed.min(min));
        let base = self.base_rtt.get().unwrap_or(rtt);
        let Some(active) = &mut self.active else { return };
        if now >= active.call_until {
            self.active = None;
            return;
        }
        if outstanding > active.window + active.window / 4 + MAX_EXCESS {
            // The bytes beyond the window are on their way: this is not its delay yet.
            (active.round_end, active.round_rtt) = (now + rtt.max(MIN_ROUND), None);
            return;
        }
        active.round_rtt = Some(active.round_rtt.map_or(rtt, |smallest| smallest.min(rtt)));
        if now >= active.round_end && active.end_round(now, base, (self.target, self.minimum)) {
            self.active = None;
            self.surrendered_until = now + SURRENDER_TIME;
        }
    }

    /// Returns the round-trip time without a queue, as far as known.
    pub(super) fn base_rtt(&self) -> Option<Span> {
        self.base_rtt.get()
    }

    /// Returns the window for data of this priority, or `None` if there is no call.
    pub(crate) fn limit(&self, now: Time, priority: u8) -> Option<u64> {
        let active = self.active.as_ref()?;
        (now < active.call_until && priority <= active.priority).then_some(active.window)
    }

    /// Records that bulk data waits for the window.
    pub(crate) fn on_full(&mut self) {
        if let Some(active) = &mut self.active {
            active.was_full = true;
        }
    }
}

impl Active {
    /// Returns whether the window gives up.
    fn end_round(&mut self, now: Time, base: Span, (target, minimum): (Span, u64)) -> bool {
        let Some(rtt) = self.round_rtt.take() else { return false };
        let was_full = std::mem::take(&mut self.was_full);
        self.round_end = now + rtt.max(MIN_ROUND);
        if let Some((window, base_before)) = self.resumed.take() {
            self.window = window;
            if base + MIN_BASE_DECREASE < base_before {
                self.slowdown_at = now + rtt * ROUNDS_BETWEEN_SLOWDOWNS;
            }
            // The delay of this round is that of half the window.
            return false;
        }
        let is_above = rtt > base + target;
        self.is_starting &= !is_above;
        let wanted = match self.is_starting {
            true => self.window * 2,
            false => (self.window + fitting(self.window, base + target, rtt)) / 2,
        };
        // That a window was not used does not justify a larger one.
        if was_full || wanted < self.window {
            self.window = wanted.max(minimum);
        }
        let is_starved = is_above && self.window == minimum;
        let since = *self.starved_since.get_or_insert(now);
        if !is_starved {
            self.starved_since = None;
        }
        if now >= self.slowdown_at {
            self.slowdown_at = now + SLOWDOWN_INTERVAL;
            self.resumed = Some((self.window, base));
            self.window = (self.window / 2).max(minimum);
        }
        is_starved && now.since(since) >= MAX_STARVATION
    }
}

/// Returns the window with the round-trip time `wanted`, if `window` causes that of `found`.
fn fitting(window: u64, wanted: Span, found: Span) -> u64 {
    let (wanted, found) = (wanted.as_nanos(), found.as_nanos().max(1));
    let scaled = u128::from(window) * u128::from(wanted) / u128::from(found);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a queue, and a transport that fills the window at once.
    struct Link {
        now: Time,
        window: BulkWindow,
        bytes_per_ms: u64,
        base: Span,
        /// Bytes of others in the queue, all the time.
        foreign: u64,
        /// Bytes in flight without a call: the congestion window.
        congestion_window: u64,
        calls: bool,
        /// Changes with each sample, up to this.
        jitter: Span,
        samples: u64,
        delivered: u64,
        /// The smoothed round-trip time, if the transport reports no other, and its deviation.
        smoothed: Option<Span>,
        deviation: Span,
    }

    fn steady(rtt: Span) -> RttSample {
        RttSample { smoothed: rtt, deviation: Span::ZERO, min: rtt }
    }

    impl Link {
        fn new(mbps: u64, base: u64, congestion_window: u64) -> Self {
            Self {
                now: Time::from_millis(1),
                window: BulkWindow::default(),
                bytes_per_ms: mbps * 125,
                base: Span::from_millis(base),
                foreign: 0,
                congestion_window,
                calls: true,
                jitter: Span::ZERO,
                samples: 0,
                delivered: 0,
                smoothed: None,
                deviation: Span::ZERO,
            }
        }

        fn outstanding(&self) -> u64 {
            let limit = self.window.limit(self.now, 0).unwrap_or(u64::MAX);
            limit.min(self.congestion_window)
        }

        /// The queueing delay if this window is full.
        fn delay(&self) -> Span {
            let held = self.base.as_nanos() / 1_000_000 * self.bytes_per_ms;
            let queued = (self.outstanding() + self.foreign).saturating_sub(held);
            Span::from_nanos(queued * 1_000_000 / self.bytes_per_ms)
        }

        fn run(&mut self, millis: u64) {
            for _ in 0..millis {
                self.samples += 1;
                let jitter = self.jitter.as_nanos() * (self.samples * 7 % 11) / 10;
                let sample = self.base + self.delay() + Span::from_nanos(jitter);
                let smooth = |rtt: &mut Span| {
                    *rtt = Span::from_nanos((rtt.as_nanos() * 7 + sample.as_nanos()) / 8);
                    *rtt
                };
                let rtt = self.smoothed.as_mut().map_or(sample, smooth);
                if self.calls && self.samples.is_multiple_of(20) {
                    self.window.on_call(self.now, 0, self.outstanding(), rtt);
                }
                self.window.on_full();
                let outstanding = self.outstanding();
                let deviation = self.deviation;
                let min = match deviation {
                    Span::ZERO => rtt,
                    _ => self.base,
                };
                let sample = RttSample { smoothed: rtt, deviation, min };
                self.window.observe(self.now, sample, outstanding);
                let in_rtt = self.outstanding() * 1_000_000 / rtt.as_nanos();
                self.delivered += in_rtt.min(self.bytes_per_ms);
                self.now += Span::from_millis(1);
            }
        }

        fn see_base(&mut self) {
            self.window.observe(self.now, steady(self.base), 0);
        }
    }

    #[test]
    fn a_call_drains_the_queue_and_the_link_stays_busy() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.see_base();
        assert!(link.delay() > Span::from_millis(140));
        link.run(100);
        assert!(link.delay() < Span::from_millis(10), "{}", link.delay());
        link.delivered = 0;
        link.run(5_000);
        let delay = link.delay();
        assert!(delay > Span::from_millis(3) && delay < Span::from_millis(7), "{delay}");
        assert!(link.delivered > 5_000 * 6_250 * 98 / 100, "{}", link.delivered);
    }

    #[test]
    fn bulk_has_its_whole_window_again_after_a_call() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.see_base();
        link.run(1_000);
        assert!(link.window.limit(link.now, 0).is_some());
        link.calls = false;
        link.run(1_100);
        assert_eq!(link.window.limit(link.now, 0), None);
    }

    #[test]
    fn a_higher_priority_than_that_of_the_call_has_no_window() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.run(100);
        assert!(link.window.limit(link.now, 0).is_some());
        assert_eq!(link.window.limit(link.now, 1), None);
    }

    #[test]
    fn an_idle_carrier_starts_as_a_transport_does() {
        let mut link = Link::new(140, 56, 4_000_000);
        link.see_base();
        link.window.on_call(link.now, 0, 0, link.base);
        link.run(1_000);
        link.delivered = 0;
        link.run(1_000);
        assert!(link.delivered > 1_000 * 140 * 125 * 95 / 100, "{}", link.delivered);
        assert!(link.delay() < Span::from_millis(8), "{}", link.delay());
    }

    #[test]
    fn a_link_that_changes_its_rate_is_followed() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.see_base();
        link.run(1_000);
        for mbps in [10, 100] {
            link.bytes_per_ms = mbps * 125;
            link.run(1_000);
            let delay = link.delay();
            assert!(delay > Span::from_millis(3) && delay < Span::from_millis(8), "{delay}");
        }
    }

    #[test]
    fn jitter_is_not_a_queue() {
        let mut link = Link::new(150, 44, 4_000_000);
        link.see_base();
        link.jitter = Span::from_millis(12);
        link.run(1_000);
        link.delivered = 0;
        link.run(5_000);
        // With the target delay, the window holds less than the mean round trip of this jitter.
        assert!(link.delivered > 5_000 * 150 * 125 * 85 / 100, "{}", link.delivered);
        assert!(link.delay() < Span::from_millis(8), "{}", link.delay());
    }

    #[test]
    fn smoothed_jitter_is_not_a_queue_up_to_twice_the_target() {
        for millis in [2, 6, 12, 20] {
            let mut link = Link::new(150, 44, 4_000_000);
            link.see_base();
            (link.smoothed, link.jitter) = (Some(link.base), Span::from_millis(millis));
            // That of an even distribution.
            link.deviation = Span::from_micros(millis * 250);
            link.run(1_000);
            link.delivered = 0;
            link.run(20_000);
            let share = link.delivered / (20 * 150 * 125);
            assert!(share > 800, "{millis} ms: {share} of 1000");
            assert!(link.delay() < Span::from_millis(8), "{}", link.delay());
        }
    }

    #[test]
    fn the_queue_of_others_is_no_reason_to_starve() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.see_base();
        link.foreign = 500_000;
        link.run(20_000);
        let limited = (0..20_000).filter(|_| {
            link.run(1);
            link.window.limit(link.now, 0).is_some()
        });
        // It tries again now and then.
        assert!((1_000..8_000).contains(&limited.count()));
    }

    #[test]
    fn the_base_delay_does_not_creep_up() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.see_base();
        link.run(600_000);
        assert!(link.delay() < Span::from_millis(8), "{}", link.delay());
    }

    /// The base delay of a download that has filled the queue for minutes is forgotten where the
    /// transport reports only a smoothed round-trip time (QUIC).
    #[test]
    fn a_call_beside_an_old_download_finds_the_base_delay_again() {
        let mut link = Link::new(50, 16, 1_000_000);
        link.smoothed = Some(link.base);
        link.calls = false;
        link.run(200_000);
        assert!(link.window.base_rtt() > Some(Span::from_millis(100)));
        link.calls = true;
        link.run(5_000);
        assert!(link.delay() < Span::from_millis(10), "{}", link.delay());
    }

    #[test]
    fn a_window_that_nothing_uses_does_not_grow() {
        let mut window = BulkWindow::default();
        for at in 0..1_000 {
            let now = Time::from_millis(1 + at);
            window.on_call(now, 0, 0, Span::from_millis(20));
            window.observe(now, steady(Span::from_millis(20)), 0);
        }
        assert_eq!(window.limit(Time::from_millis(1_000), 0), Some(INITIAL_WINDOW));
    }
}
