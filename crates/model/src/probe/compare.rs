//! Which of several networks suits a purpose best, and how sure that is.
//!
//! A transfer is expected to take three round trips (TCP, TLS 1.3, request) and the time of its bytes
//! over a connection in slow start. The quality of a call is the transmission rating of ITU-T G.107,
//! in the short form of R. Cole and J. Rosenbluth (Voice over IP performance monitoring, 2001) for
//! G.711.
//!
//! The expected durations of two networks differ by a factor, whose logarithm is uncertain by the
//! spread of the measured rates and round trips, and by what networks change until then. The
//! certainty is the probability that the factor is on the found side of one.

use manyways_unit::{Rate, Size, Span};

use super::round_trips::RoundTripSummary;
use super::throughput::ThroughputEstimate;

/// Initial congestion window in bytes (RFC 6928).
const INITIAL_WINDOW: f64 = 14_480.0;
/// Round trips before the first byte: TCP, TLS 1.3, and the request.
const ROUND_TRIPS: f64 = 3.0;
/// Standard deviation of the logarithm of a network's rate from one second to another.
const CHANGE: f64 = 0.15;
/// Certainty below which no network is named.
const MIN_CERTAINTY: f64 = 0.6;
/// Scale of a difference of two transmission ratings that is uncertain by one standard deviation.
const RATING_DEVIATION: f64 = 3.0;

/// A purpose of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A download of this many bytes.
    Download(Size),
    /// A telephone call over UDP.
    Call,
}

/// A bulk transfer from its request to its last byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer {
    pub bytes: Size,
    pub duration: Span,
    /// Without slow start.
    pub estimate: Option<ThroughputEstimate>,
}

/// The measurements of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkMeasurement {
    pub round_trip: Span,
    /// Mean difference of consecutive round trips.
    pub jitter: Span,
    /// Share of lost echoes.
    pub loss: f64,
    pub down: Rate,
    /// Standard deviation of the rate of downloads, as a share of `down`; `None` if it is unknown.
    pub deviation: Option<f64>,
}

/// The reason why a network is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its shorter round trip decides.
    RoundTrip,
    /// Its higher rate decides.
    Rate,
    /// Its lower loss decides.
    Loss,
}

/// The best network for a purpose.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Index of the best network; `None` if the difference is too uncertain.
    pub winner: Option<usize>,
    /// Probability that the best network is better than the second one.
    pub certainty: f64,
    /// `None` for a single network.
    pub reason: Option<Reason>,
    /// For each network: seconds of a transfer, or the rating of a call, from 0 to 100.
    pub values: Vec<f64>,
}

impl Reason {
    /// Name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Rate => "rate",
            Self::Loss => "loss",
        }
    }
}

impl Transfer {
    /// The rate without slow start, and at least that of the whole transfer.
    pub fn rate(&self) -> Rate {
        let whole = Rate::of(self.bytes, self.duration.max(Span::from_millis(1)));
        self.estimate.map_or(whole, |estimate| estimate.rate.max(whole))
    }
}

impl NetworkMeasurement {
    /// From the echoes and a download; `None` if no echo was answered.
    pub fn of(echoes: &RoundTripSummary, down: &Transfer) -> Option<Self> {
        Some(Self {
            round_trip: echoes.median?,
            jitter: echoes.jitter.unwrap_or_default(),
            loss: echoes.loss.unwrap_or(0.0),
            down: down.rate(),
            deviation: down.estimate.and_then(|estimate| estimate.error),
        })
    }

    /// Expected seconds of a download on a new connection.
    pub fn download_time(&self, size: Size) -> f64 {
        let round_trip = self.round_trip.as_secs_f64();
        let rate = self.down.as_bps() as f64 / 8.0;
        let (mut left, mut seconds) = (size.as_bytes() as f64, ROUND_TRIPS * round_trip);
        let mut window = INITIAL_WINDOW;
        if rate <= 0.0 {
            return f64::INFINITY;
        }
        while window < rate * round_trip && left > window {
            left -= window;
            seconds += round_trip;
            window *= 2.0;
        }
        seconds + left / rate
    }

    /// Transmission rating of a call, from 0 to 100; calls are acceptable from 70 on.
    pub fn call_rating(&self) -> f64 {
        // Packets of 20 ms, and a buffer for twice the jitter.
        let delay =
            self.round_trip.as_millis_f64() / 2.0 + 2.0 * self.jitter.as_millis_f64() + 20.0;
        let delayed = 0.024 * delay + 0.11 * (delay - 177.3).max(0.0);
        let lost = 30.0 * (1.0 + 15.0 * self.loss.clamp(0.0, 1.0)).ln();
        (94.2 - delayed - lost).clamp(0.0, 100.0)
    }
}

/// Compares networks for a purpose.
pub fn compare(networks: &[NetworkMeasurement], purpose: Purpose) -> Comparison {
    let values: Vec<f64> = networks
        .iter()
        .map(|network| match purpose {
            Purpose::Download(size) => network.download_time(size),
            Purpose::Call => network.call_rating(),
        })
        .collect();
    // Least first.
    let cost = |index: usize| match purpose {
        Purpose::Download(_) => values[index],
        Purpose::Call => -values[index],
    };
    let mut order: Vec<usize> = (0..networks.len()).collect();
    order.sort_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    let (best, second) = match order[..] {
        [] => return Comparison { winner: None, certainty: 0.0, reason: None, values },
        [only] => {
            return Comparison { winner: Some(only), certainty: 1.0, reason: None, values };
        }
        [best, second, ..] => (best, second),
    };
    let deviations = match purpose {
        Purpose::Download(size) => {
            let spread =
                log_deviation(&networks[best], size).hypot(log_deviation(&networks[second], size));
            (values[second] / values[best]).ln() / spread
        }
        Purpose::Call => (values[best] - values[second]) / RATING_DEVIATION,
    };
    // Without any bytes, no network is better.
    let certainty = if deviations.is_nan() { 0.5 } else { normal(deviations) };
    Comparison {
        winner: (certainty >= MIN_CERTAINTY).then_some(best),
        certainty,
        reason: Some(reason(&networks[best], &networks[second], purpose)),
        values,
    }
}

/// Standard deviation of the logarithm of the duration of a download: its part that depends on the
/// rate changes with the rate, the rest with the round trip.
fn log_deviation(network: &NetworkMeasurement, size: Size) -> f64 {
    let seconds = network.download_time(size);
    let of_rate = size.as_bytes() as f64 * 8.0 / network.down.as_bps().max(1) as f64;
    let share = (of_rate / seconds).clamp(0.0, 1.0);
    let rate = network.deviation.unwrap_or_default().hypot(CHANGE);
    let round_trip = network.jitter.as_secs_f64() / network.round_trip.as_secs_f64().max(1e-6);
    (share * rate).hypot((1.0 - share) * round_trip.min(1.0)).max(0.01)
}

/// The difference that makes the best network better: without it, the network would lose most.
fn reason(best: &NetworkMeasurement, second: &NetworkMeasurement, purpose: Purpose) -> Reason {
    match purpose {
        Purpose::Download(size) => {
            let with_rate = NetworkMeasurement { down: second.down, ..*best };
            let with_round_trip = NetworkMeasurement { round_trip: second.round_trip, ..*best };
            let by_rate = with_rate.download_time(size);
            if by_rate > with_round_trip.download_time(size) {
                Reason::Rate
            } else {
                Reason::RoundTrip
            }
        }
        Purpose::Call => {
            let with_loss = NetworkMeasurement { loss: second.loss, ..*best };
            let NetworkMeasurement { round_trip, jitter, .. } = *second;
            let with_delay = NetworkMeasurement { round_trip, jitter, ..*best };
            if with_loss.call_rating() < with_delay.call_rating() {
                Reason::Loss
            } else {
                Reason::RoundTrip
            }
        }
    }
}

/// The standard normal distribution at `x`, within 1e-7 (Abramowitz and Stegun, 26.2.17).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let tail = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(round_trip: u64, mbps: u64) -> NetworkMeasurement {
        NetworkMeasurement {
            round_trip: Span::from_millis(round_trip),
            jitter: Span::from_millis(2),
            loss: 0.0,
            down: Rate::from_mbps(mbps),
            deviation: Some(0.1),
        }
    }

    #[test]
    fn a_download_takes_its_round_trips_and_its_bytes() {
        // Windows of 14.48, 28.96 and 57.92 KB come before 8 Mbit/s × 100 ms is full.
        let slow = network(100, 8);
        let seconds = |bytes| slow.download_time(Size::from_bytes(bytes));
        assert!((seconds(0) - 0.3).abs() < 1e-9);
        assert!((seconds(10_000) - 0.31).abs() < 1e-9);
        let rest = 1_000_000.0 - 101_360.0;
        assert!((seconds(1_000_000) - (0.6 + rest / 1e6)).abs() < 1e-9);
        assert!(network(100, 0).download_time(Size::from_bytes(1)).is_infinite());
    }

    #[test]
    fn short_downloads_want_round_trips_and_long_ones_rate() {
        let networks = [network(20, 10), network(60, 50)];
        let best = |bytes| {
            let found = compare(&networks, Purpose::Download(Size::from_bytes(bytes)));
            (found.winner, found.reason)
        };
        assert_eq!(best(10_000), (Some(0), Some(Reason::RoundTrip)));
        assert_eq!(best(10_000_000), (Some(1), Some(Reason::Rate)));
        let call = compare(&networks, Purpose::Call);
        assert_eq!(call.reason, Some(Reason::RoundTrip));
        let lossy = [NetworkMeasurement { loss: 0.05, ..networks[0] }, networks[1]];
        let call = compare(&lossy, Purpose::Call);
        assert_eq!((call.winner, call.reason), (Some(1), Some(Reason::Loss)));
    }

    #[test]
    fn equal_networks_and_none_are_unsure() {
        let equal = compare(&[network(30, 20); 2], Purpose::Download(Size::from_bytes(1_000_000)));
        assert_eq!(equal.winner, None);
        assert!((equal.certainty - 0.5).abs() < 1e-6, "{equal:?}");
        assert_eq!(compare(&[network(30, 20); 2], Purpose::Call).winner, None);
        let one = compare(&[network(30, 20)], Purpose::Call);
        assert_eq!((one.winner, one.reason), (Some(0), None));
        assert_eq!(compare(&[], Purpose::Call).winner, None);
        let dead = compare(&[network(30, 0); 2], Purpose::Download(Size::from_bytes(1)));
        assert_eq!(dead.winner, None);
        let dead =
            compare(&[network(30, 0), network(900, 1)], Purpose::Download(Size::from_bytes(1)));
        assert_eq!((dead.winner, dead.certainty), (Some(1), 1.0));
    }

    #[test]
    fn a_call_over_a_good_network_is_good() {
        assert!(network(40, 10).call_rating() > 90.0);
        assert!(network(700, 10).call_rating() < 70.0);
        let lossy = NetworkMeasurement { loss: 0.1, ..network(40, 10) };
        assert!((60.0..70.0).contains(&lossy.call_rating()), "{}", lossy.call_rating());
        assert!((normal(1.96) - 0.975).abs() < 1e-4 && (normal(-1.96) - 0.025).abs() < 1e-4);
    }

    proptest! {
        #[test]
        fn a_faster_network_never_takes_longer(
            round_trip in 0_u64..2_000, mbps in 0_u64..1_000, more in 0_u64..100,
            bytes in 0_u64..1 << 34,
        ) {
            let size = Size::from_bytes(bytes);
            let (slow, fast) = (network(round_trip, mbps), network(round_trip, mbps + more));
            prop_assert!(fast.download_time(size) <= slow.download_time(size) * 1.000_001);
            let near = network(round_trip / 2, mbps);
            prop_assert!(near.download_time(size) <= slow.download_time(size) * 1.000_001);
            let found = compare(&[slow, fast], Purpose::Download(size));
            prop_assert!((0.0..=1.0).contains(&found.certainty));
        }
    }
}
