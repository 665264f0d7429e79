//! Estimates the capacity of a path from its traffic. A higher rate counts at once, a lower one
//! only while the path is full.

use manyways_unit::{Rate, Size, Span, Time};

/// Minimum interval between two looks; a shorter one is too noisy.
const SHORTEST: Span = Span::from_millis(200);
/// Bytes of a look below which a path is not full, regardless of its RTT.
const LEAST: u64 = 1_000;
/// RTT above 1.5 times the minimum plus this value shows a queue.
const QUEUE: Span = Span::from_millis(15);
/// Weight of a new look that is below the estimate.
const WEIGHT: f64 = 0.3;
/// Number of packets over which losses are averaged.
const PACKETS: f64 = 400.0;
/// Minimum number of packets for a loss rate.
const FEW: f64 = 40.0;

/// Observation of a path. Bytes and packets count from the start of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// Sent and received bytes.
    pub bytes: Size,
    /// Smoothed RTT. `None` if unknown.
    pub rtt: Option<Span>,
    /// Minimum RTT of the recent past. `None` if unknown.
    pub least_rtt: Option<Span>,
    /// Whether data waits to be sent.
    pub backlog: bool,
}

/// Capacity estimate of one path, both directions together.
///
/// The current throughput is a lower bound. It is the capacity while the RTT shows a queue on the
/// path, or while data waits to be sent. Without these signs, an application-limited path looks
/// like a slow one.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    last: Option<(Time, Size)>,
    flows: Option<f64>,
    offers: Option<f64>,
}

impl Offer {
    /// Processes an observation at `now`.
    pub fn look(&mut self, now: Time, look: Look) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, look.bytes));
            return;
        };
        let span = now.since(then);
        if span < SHORTEST {
            return;
        }
        self.last = Some((now, look.bytes));
        let bytes = look.bytes.saturating_sub(before);
        let flows = Rate::of(bytes, span).as_bps() as f64;
        self.flows = Some(flows);
        let queue = look.rtt.zip(look.least_rtt).is_some_and(|(rtt, least)| {
            rtt.as_nanos() > least.as_nanos() + least.as_nanos() / 2 + QUEUE.as_nanos()
        });
        let full = bytes.as_bytes() >= LEAST && (queue || look.backlog);
        self.offers = match self.offers {
            // The first bytes of a path that is not full do not count: a handshake shows no
            // capacity.
            None => full.then_some(flows),
            Some(known) if flows >= known => Some(flows),
            Some(known) if full => Some(known + (flows - known) * WEIGHT),
            known => known,
        };
    }

    /// Returns the capacity, or `None` before the first estimate.
    pub fn rate(&self) -> Option<Rate> {
        self.offers.map(|bps| Rate::from_bps(bps as u64))
    }

    /// Returns the used fraction of the capacity, from 0 to 1.
    pub fn load(&self) -> Option<f64> {
        let (flows, offers) = (self.flows?, self.offers.filter(|offers| *offers > 0.0)?);
        Some((flows / offers).min(1.0))
    }

    /// Returns the current throughput, or `None` before the second look.
    pub fn flows(&self) -> Option<Rate> {
        self.flows.map(|bps| Rate::from_bps(bps as u64))
    }
}

/// Fraction of packets that one path loses, from its retransmissions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    last: Option<(u32, u32)>,
    packets: f64,
    lost: f64,
}

impl Losses {
    /// Processes counters of a connection: `sent` packets, of which `again` were retransmissions.
    /// Counters below the previous ones belong to a new connection.
    pub fn look(&mut self, sent: u32, again: u32) {
        let last = self.last.replace((sent, again));
        let (before, before_again) =
            last.filter(|(s, a)| *s <= sent && *a <= again).unwrap_or((0, 0));
        let (packets, lost) = (f64::from(sent - before), f64::from(again - before_again));
        let keep = (1.0 - packets / PACKETS).max(0.0);
        self.packets = self.packets * keep + packets;
        self.lost = self.lost * keep + lost;
    }

    /// Returns the fraction, from 0 to 1, or `None` below 40 sent packets.
    pub fn share(&self) -> Option<f64> {
        (self.packets >= FEW).then(|| (self.lost / self.packets).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a look every 500 ms.
    struct Path {
        offer: Offer,
        now: Time,
        bytes: u64,
    }

    impl Path {
        fn new() -> Self {
            let mut offer = Offer::default();
            offer.look(Time::ZERO, Look::default());
            Self { offer, now: Time::ZERO, bytes: 0 }
        }

        /// Adds looks with this rate in kbit/s; `queue` is whether the RTT shows a queue.
        fn flow(&mut self, kbps: u64, looks: u32, queue: bool) -> Option<u64> {
            for _ in 0..looks {
                self.now += Span::from_millis(500);
                self.bytes += kbps * 1000 / 8 / 2;
                let rtt = Span::from_millis(if queue { 150 } else { 42 });
                self.offer.look(
                    self.now,
                    Look {
                        bytes: Size::from_bytes(self.bytes),
                        rtt: Some(rtt),
                        least_rtt: Some(Span::from_millis(40)),
                        backlog: false,
                    },
                );
            }
            self.offer.rate().map(|rate| rate.as_bps() / 1000)
        }
    }

    #[test]
    fn an_application_that_wants_little_does_not_make_a_path_slow() {
        let mut path = Path::new();
        assert_eq!(path.flow(100, 4, false), None, "a quiet path has shown nothing yet");
        assert_eq!(path.flow(8000, 4, true), Some(8000));
        assert_eq!(path.flow(64, 100, false), Some(8000));
        assert!(path.offer.load().unwrap() < 0.01);
        assert_eq!(path.flow(0, 100, false), Some(8000));
        assert_eq!(path.offer.flows(), Some(Rate::from_bps(0)));
    }

    #[test]
    fn a_path_that_became_slow_is_found_out_when_it_is_full() {
        let mut path = Path::new();
        path.flow(8000, 4, true);
        let after = path.flow(500, 12, true).unwrap();
        assert!((500..700).contains(&after), "{after}");
        assert!(path.offer.load().unwrap() > 0.7);
        assert_eq!(path.flow(8000, 1, true), Some(8000), "more is believed at once");
    }

    #[test]
    fn looks_that_are_too_close_are_one() {
        let mut offer = Offer::default();
        offer.look(Time::ZERO, Look::default());
        let look = Look { bytes: Size::from_bytes(10_000), backlog: true, ..Look::default() };
        offer.look(Time::from_millis(10), look);
        assert_eq!(offer.rate(), None);
        offer.look(Time::from_millis(1000), look);
        assert_eq!(offer.rate(), Some(Rate::from_bps(80_000)));
    }

    #[test]
    fn losses_are_a_share_of_late() {
        let mut losses = Losses::default();
        losses.look(10, 1);
        assert_eq!(losses.share(), None);
        losses.look(100, 10);
        assert!((losses.share().unwrap() - 0.1).abs() < 0.02);
        for step in 1..=20 {
            losses.look(100 + step * 100, 10);
        }
        assert!(losses.share().unwrap() < 0.005, "{:?}", losses.share());
        // A new connection starts its counters at 0.
        losses.look(50, 50);
        assert!(losses.share().unwrap() > 0.1);
    }
}
