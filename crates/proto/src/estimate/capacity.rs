//! Estimates the capacity of a path from its traffic. A higher rate counts at once, a lower one
//! only while the path is full.

use manyways_unit::{Rate, Size, Span, Time};

/// Minimum interval between two looks; a shorter one is too noisy.
const MIN_INTERVAL: Span = Span::from_millis(200);
/// Bytes of a look below which a path is not full, regardless of its RTT.
const MIN_LOAD_BYTES: u64 = 1_000;
/// RTT above 1.5 times the minimum plus this value shows a queue.
const MIN_QUEUEING_DELAY: Span = Span::from_millis(15);
/// Weight of a new look that is below the estimate.
const DECREASE_WEIGHT: f64 = 0.3;
/// Number of packets over which losses are averaged.
const LOSS_WINDOW_PACKETS: f64 = 400.0;
/// Minimum number of packets for a loss rate.
const MIN_LOSS_PACKETS: f64 = 40.0;

/// Observation of a path. Bytes and packets count from the start of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CapacitySample {
    /// Sent and received bytes.
    pub bytes: Size,
    /// Smoothed RTT. `None` if unknown.
    pub rtt: Option<Span>,
    /// Minimum RTT of the recent past. `None` if unknown.
    pub min_rtt: Option<Span>,
    /// Whether data waits to be sent.
    pub has_backlog: bool,
}

/// Capacity estimate of one path, both directions together.
///
/// The current throughput is a lower bound. It is the capacity while the RTT shows a queue on the
/// path, or while data waits to be sent. Without these signs, an application-limited path looks
/// like a slow one.
#[derive(Clone, Debug, Default)]
pub struct CapacityEstimate {
    last: Option<(Time, Size)>,
    throughput: Option<f64>,
    capacity: Option<f64>,
}

impl CapacityEstimate {
    /// Processes an observation at `now`.
    pub fn observe(&mut self, now: Time, sample: CapacitySample) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, sample.bytes));
            return;
        };
        let span = now.since(then);
        if span < MIN_INTERVAL {
            return;
        }
        self.last = Some((now, sample.bytes));
        let bytes = sample.bytes.saturating_sub(before);
        let flows = Rate::of(bytes, span).as_bps() as f64;
        self.throughput = Some(flows);
        let queue = sample.rtt.zip(sample.min_rtt).is_some_and(|(rtt, min)| {
            rtt.as_nanos() > min.as_nanos() + min.as_nanos() / 2 + MIN_QUEUEING_DELAY.as_nanos()
        });
        let full = bytes.as_bytes() >= MIN_LOAD_BYTES && (queue || sample.has_backlog);
        self.capacity = match self.capacity {
            // The first bytes of a path that is not full do not count: a handshake shows no
            // capacity.
            None => full.then_some(flows),
            Some(known) if flows >= known => Some(flows),
            Some(known) if full => Some(known + (flows - known) * DECREASE_WEIGHT),
            known => known,
        };
    }

    /// Returns the capacity, or `None` before the first estimate.
    pub fn rate(&self) -> Option<Rate> {
        self.capacity.map(|bps| Rate::from_bps(bps as u64))
    }

    /// Returns the used fraction of the capacity, from 0 to 1.
    pub fn load(&self) -> Option<f64> {
        let (flows, offers) = (self.throughput?, self.capacity.filter(|offers| *offers > 0.0)?);
        Some((flows / offers).min(1.0))
    }

    /// Returns the current throughput, or `None` before the second look.
    pub fn throughput(&self) -> Option<Rate> {
        self.throughput.map(|bps| Rate::from_bps(bps as u64))
    }
}

/// Fraction of packets that one path loses, from its retransmissions.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossEstimate {
    last: Option<(u32, u32)>,
    packets: f64,
    lost: f64,
}

impl LossEstimate {
    /// Processes counters of a connection: `sent` packets, of which `again` were retransmissions.
    /// Counters below the previous ones belong to a new connection.
    pub fn observe(&mut self, sent: u32, again: u32) {
        let last = self.last.replace((sent, again));
        let (before, before_again) =
            last.filter(|(s, a)| *s <= sent && *a <= again).unwrap_or((0, 0));
        let (packets, lost) = (f64::from(sent - before), f64::from(again - before_again));
        let keep = (1.0 - packets / LOSS_WINDOW_PACKETS).max(0.0);
        self.packets = self.packets * keep + packets;
        self.lost = self.lost * keep + lost;
    }

    /// Returns the fraction, from 0 to 1, or `None` below 40 sent packets.
    pub fn fraction(&self) -> Option<f64> {
        (self.packets >= MIN_LOSS_PACKETS).then(|| (self.lost / self.packets).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a look every 500 ms.
    struct Path {
        estimate: CapacityEstimate,
        now: Time,
        bytes: u64,
    }

    impl Path {
        fn new() -> Self {
            let mut estimate = CapacityEstimate::default();
            estimate.observe(Time::ZERO, CapacitySample::default());
            Self { estimate, now: Time::ZERO, bytes: 0 }
        }

        /// Adds looks with this rate in kbit/s; `queue` is whether the RTT shows a queue.
        fn flow(&mut self, kbps: u64, looks: u32, queue: bool) -> Option<u64> {
            for _ in 0..looks {
                self.now += Span::from_millis(500);
                self.bytes += kbps * 1000 / 8 / 2;
                let rtt = Span::from_millis(if queue { 150 } else { 42 });
                self.estimate.observe(
                    self.now,
                    CapacitySample {
                        bytes: Size::from_bytes(self.bytes),
                        rtt: Some(rtt),
                        min_rtt: Some(Span::from_millis(40)),
                        has_backlog: false,
                    },
                );
            }
            self.estimate.rate().map(|rate| rate.as_bps() / 1000)
        }
    }

    #[test]
    fn an_application_that_wants_little_does_not_make_a_path_slow() {
        let mut path = Path::new();
        assert_eq!(path.flow(100, 4, false), None, "a quiet path has shown nothing yet");
        assert_eq!(path.flow(8000, 4, true), Some(8000));
        assert_eq!(path.flow(64, 100, false), Some(8000));
        assert!(path.estimate.load().unwrap() < 0.01);
        assert_eq!(path.flow(0, 100, false), Some(8000));
        assert_eq!(path.estimate.throughput(), Some(Rate::from_bps(0)));
    }

    #[test]
    fn a_path_that_became_slow_is_found_out_when_it_is_full() {
        let mut path = Path::new();
        path.flow(8000, 4, true);
        let after = path.flow(500, 12, true).unwrap();
        assert!((500..700).contains(&after), "{after}");
        assert!(path.estimate.load().unwrap() > 0.7);
        assert_eq!(path.flow(8000, 1, true), Some(8000), "more is believed at once");
    }

    #[test]
    fn looks_that_are_too_close_are_one() {
        let mut estimate = CapacityEstimate::default();
        estimate.observe(Time::ZERO, CapacitySample::default());
        let sample = CapacitySample {
            bytes: Size::from_bytes(10_000),
            has_backlog: true,
            ..CapacitySample::default()
        };
        estimate.observe(Time::from_millis(10), sample);
        assert_eq!(estimate.rate(), None);
        estimate.observe(Time::from_millis(1000), sample);
        assert_eq!(estimate.rate(), Some(Rate::from_bps(80_000)));
    }

    #[test]
    fn losses_are_a_share_of_late() {
        let mut losses = LossEstimate::default();
        losses.observe(10, 1);
        assert_eq!(losses.fraction(), None);
        losses.observe(100, 10);
        assert!((losses.fraction().unwrap() - 0.1).abs() < 0.02);
        for step in 1..=20 {
            losses.observe(100 + step * 100, 10);
        }
        assert!(losses.fraction().unwrap() < 0.005, "{:?}", losses.fraction());
        // A new connection starts its counters at 0.
        losses.observe(50, 50);
        assert!(losses.fraction().unwrap() > 0.1);
    }
}
