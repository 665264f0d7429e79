//! Which of several networks suits a purpose best, and how sure that is.
//!
//! A transfer is expected to take three round trips (TCP, TLS 1.3, request) and the time of its bytes
//! over a connection in slow start. The quality of a call is the transmission rating of ITU-T G.107,
//! in the short form of R. Cole and J. Rosenbluth (Voice over IP performance monitoring, 2001) for
//! G.711.
//!
//! # What a network will do
//! The rates of wireless networks change within seconds, their round trips hardly, and a comparison
//! takes about ten seconds. So
//! - a rate is that with which slow start would have taken as long as the download did. An estimate
//!   without the initial slots is too low for 1 MB, and slow start would count twice;
//! - the download beside those of the other networks counts, which is the last one, and that of all
//!   networks at the same time. If it got less than `SHARED` of its rate alone on every network,
//!   the networks share a link, and the downloads alone count;
//! - the logarithm of a rate reverts to a common level as a process of Ornstein and Uhlenbeck with
//!   the time constant `REVERSION` and the standard deviation `SPREAD`. The level is the mean of
//!   all measured rates of all networks: nothing more is known of a network whose rate has changed.
//!
//! # Certainty
//! The expected durations of two networks differ by a factor, whose logarithm is uncertain by the
//! change of the rates until then, by the difference of the two measured rates of each network (their
//! standard deviation, but at most `SPREAD`), and by the spread of the round trips. The certainty
//! is the probability that the factor is on the found side of one.

use manyways_unit::{Rate, Size, Span};

use super::round_trips::RoundTripSummary;
use super::throughput::ThroughputEstimate;
use crate::normal::normal;
use crate::slow_start::{self, INITIAL_WINDOW};

/// Round trips before the first byte: TCP, TLS 1.3, and the request.
const ROUND_TRIPS: f64 = 3.0;
/// Least share of a transfer's time that can determine its rate.
const MIN_REST: f64 = 0.125;
/// Share of the rate alone below which a network seems to share a link: between one (no link is
/// shared) and a half (two networks share one), by the factor.
const SHARED: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Time after which the difference of two log-rates has decreased to 1/e. In 15 recorded pairs of
/// Wi-Fi and LTE (github.com/aydini/Multipath-Wireless-Link-Traces), 0.92, 0.71, 0.53 and 0.33 of it
/// are left after 1, 4, 8 and 15 s, by regression; in the model, 0.92, 0.72, 0.51 and 0.29.
const REVERSION: Span = Span::from_secs(12);
/// Standard deviation of the logarithm of a rate at any time. In the same recordings, that of the
/// difference of two networks is 1.3 = 0.9 √2 after 30 s, and 0.47 after 1 s (0.50 in the model), if
/// rates below 3 Mbit/s count as 3 Mbit/s.
const SPREAD: f64 = 0.9;
/// From a measurement to the transfer, if it begins at once.
pub const AT_ONCE: Span = Span::from_secs(1);
/// Certainty below which no network is named. In simulations over the same recordings, networks with
/// a certainty from 0.55 to 0.6 were the better ones in more than 60 % of the cases.
const MIN_CERTAINTY: f64 = 0.55;
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
    /// From the request to the first bytes; `None` for a transfer up.
    pub first_byte: Option<Span>,
    /// Without slow start.
    pub estimate: Option<ThroughputEstimate>,
}

/// The measurements of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkMeasurement {
    /// Median of the echoes, or less if the first bytes of a download came in less: echoes may have
    /// waited for a link that has recovered since.
    pub round_trip: Span,
    /// Mean difference of consecutive round trips.
    pub jitter: Span,
    /// Share of lost echoes.
    pub loss: f64,
    /// Rate of a download after slow start.
    pub down: Rate,
    /// That of a later download, beside those of the other networks.
    pub together: Option<Rate>,
    /// Standard deviation of `down` within the download, as a share of it; `None` if it is unknown.
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
        self.estimate.map_or(self.whole_rate(), |estimate| estimate.rate.max(self.whole_rate()))
    }

    fn whole_rate(&self) -> Rate {
        Rate::of(self.bytes, self.duration.max(Span::from_millis(1)))
    }

    /// The rate of the bytes after slow start, if the whole transfer took as long as it did: the
    /// inverse of [`NetworkMeasurement::download_time`], with the request as the only round trip.
    ///
    /// Each number of windows that waited for a round trip leaves bytes and time for the rest; the
    /// greatest rate of all is the right one. A rest of less than [`MIN_REST`] is left out.
    fn rate_after_slow_start(&self, round_trip: Span) -> Rate {
        let (duration, round_trip) = (self.duration.as_secs_f64(), round_trip.as_secs_f64());
        let (mut left, mut window) = (self.bytes.as_bytes() as f64, INITIAL_WINDOW);
        let mut rest = duration - round_trip;
        let mut rate = self.whole_rate();
        while rest > duration * MIN_REST {
            rate = rate.max(Rate::from_bps((left * 8.0 / rest) as u64));
            if left <= window {
                break;
            }
            left -= window;
            window *= 2.0;
            rest -= round_trip.max(1e-6);
        }
        rate
    }
}

impl NetworkMeasurement {
    /// From the echoes, a download and one beside the other networks; `None` if no echo was
    /// answered.
    pub fn of(
        echoes: &RoundTripSummary,
        down: &Transfer,
        together: Option<&Transfer>,
    ) -> Option<Self> {
        let first_bytes = [Some(down), together].into_iter().flatten();
        let first_bytes = first_bytes.filter_map(|transfer| transfer.first_byte);
        let round_trip = first_bytes.fold(echoes.median?, Span::min);
        Some(Self {
            round_trip,
            jitter: echoes.jitter.unwrap_or_default(),
            loss: echoes.loss.unwrap_or(0.0),
            down: down.rate_after_slow_start(round_trip),
            together: together.map(|together| together.rate_after_slow_start(round_trip)),
            deviation: down.estimate.and_then(|estimate| estimate.error),
        })
    }

    /// Expected seconds of a download on a new connection.
    pub fn download_time(&self, size: Size) -> f64 {
        let round_trip = self.round_trip.as_secs_f64();
        let rate = self.down.as_bps() as f64 / 8.0;
        ROUND_TRIPS * round_trip + slow_start::seconds(size.as_bytes() as f64, rate, round_trip)
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

/// Compares networks for a purpose that begins this long after the measurement.
pub fn compare(networks: &[NetworkMeasurement], purpose: Purpose, after: Span) -> Comparison {
    let networks = expected(networks, after);
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

/// The networks with their expected rate as `down`, and the standard deviation of its logarithm as
/// `deviation`.
fn expected(networks: &[NetworkMeasurement], after: Span) -> Vec<NetworkMeasurement> {
    let bps = |rate: Rate| rate.as_bps() as f64;
    let is_slowed = |one: &NetworkMeasurement| {
        one.together.is_some_and(|together| bps(together) < SHARED * bps(one.down))
    };
    let is_shared = networks.iter().all(is_slowed);
    let together = |one: &NetworkMeasurement| one.together.filter(|_| !is_shared);
    let rates: Vec<f64> = networks
        .iter()
        .flat_map(|one| [Some(one.down), together(one)])
        .flatten()
        .map(bps)
        .collect();
    let level = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let kept = (-after.as_secs_f64() / REVERSION.as_secs_f64()).exp();
    let change = SPREAD * (1.0 - kept * kept).sqrt();
    let expect = |one: &NetworkMeasurement| {
        let last = bps(together(one).unwrap_or(one.down));
        let measured = match together(one) {
            // Of two values.
            Some(_) => (last / bps(one.down)).ln().abs() * std::f64::consts::FRAC_1_SQRT_2,
            None => one.deviation.unwrap_or_default(),
        };
        NetworkMeasurement {
            down: Rate::from_bps((level.powf(1.0 - kept) * last.powf(kept)) as u64),
            together: None,
            deviation: Some(change.hypot(kept * measured.min(SPREAD))),
            ..*one
        }
    };
    networks.iter().map(expect).collect()
}

/// Standard deviation of the logarithm of the duration of a download: its part that depends on the
/// rate changes with the rate, the rest with the round trip.
fn log_deviation(network: &NetworkMeasurement, size: Size) -> f64 {
    let seconds = network.download_time(size);
    let of_rate = size.as_bytes() as f64 * 8.0 / network.down.as_bps().max(1) as f64;
    let share = (of_rate / seconds).clamp(0.0, 1.0);
    let rate = network.deviation.unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use manyways_unit::Time;

    use super::super::round_trips::RoundTrips;
    use super::*;

    fn network(round_trip: u64, mbps: u64) -> NetworkMeasurement {
        NetworkMeasurement {
            round_trip: Span::from_millis(round_trip),
            jitter: Span::from_millis(2),
            loss: 0.0,
            down: Rate::from_mbps(mbps),
            together: None,
            deviation: Some(0.1),
        }
    }

    const MEGABYTE: Purpose = Purpose::Download(Size::from_bytes(1_000_000));

    fn download(millis: u64, first_byte: u64) -> Transfer {
        Transfer {
            bytes: Size::from_bytes(1_000_000),
            duration: Span::from_millis(millis),
            first_byte: Some(Span::from_millis(first_byte)),
            estimate: None,
        }
    }

    fn echoes(median: u64) -> RoundTripSummary {
        let mut trips = RoundTrips::default();
        trips.send(Time::ZERO);
        trips.receive(Time::from_millis(median), 0);
        trips.summary()
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
            let found = compare(&networks, Purpose::Download(Size::from_bytes(bytes)), AT_ONCE);
            (found.winner, found.reason)
        };
        assert_eq!(best(10_000), (Some(0), Some(Reason::RoundTrip)));
        assert_eq!(best(10_000_000), (Some(1), Some(Reason::Rate)));
        let call = compare(&networks, Purpose::Call, AT_ONCE);
        assert_eq!(call.reason, Some(Reason::RoundTrip));
        let lossy = [NetworkMeasurement { loss: 0.05, ..networks[0] }, networks[1]];
        let call = compare(&lossy, Purpose::Call, AT_ONCE);
        assert_eq!((call.winner, call.reason), (Some(1), Some(Reason::Loss)));
    }

    #[test]
    fn equal_networks_and_none_are_unsure() {
        let equal = compare(&[network(30, 20); 2], MEGABYTE, AT_ONCE);
        assert_eq!(equal.winner, None);
        assert!((equal.certainty - 0.5).abs() < 1e-6, "{equal:?}");
        assert_eq!(compare(&[network(30, 20); 2], Purpose::Call, AT_ONCE).winner, None);
        let one = compare(&[network(30, 20)], Purpose::Call, AT_ONCE);
        assert_eq!((one.winner, one.reason), (Some(0), None));
        assert_eq!(compare(&[], Purpose::Call, AT_ONCE).winner, None);
        let dead = compare(&[network(30, 0); 2], MEGABYTE, AT_ONCE);
        assert_eq!(dead.winner, None);
        let dead = compare(&[network(30, 0), network(900, 1)], MEGABYTE, AT_ONCE);
        assert_eq!((dead.winner, dead.certainty), (Some(1), 1.0));
    }

    #[test]
    fn a_rate_is_that_of_the_bytes_after_slow_start() {
        // Of 1 MB, 101,360 bytes come in three windows before 8 Mbit/s × 100 ms is full.
        let found = NetworkMeasurement::of(&echoes(100), &download(1_299, 100), None).unwrap();
        assert!((found.down.as_mbps_f64() - 8.0).abs() < 0.01, "{found:?}");
        // Slow start of all bytes takes seven round trips: any high rate explains it.
        let found = NetworkMeasurement::of(&echoes(100), &download(701, 100), None).unwrap();
        assert!((20.0..80.0).contains(&found.down.as_mbps_f64()), "{found:?}");
        let late = NetworkMeasurement { round_trip: Span::from_millis(100), ..found };
        assert!((late.download_time(Size::from_bytes(1_000_000)) - 0.9).abs() < 0.05);
    }

    #[test]
    fn a_round_trip_is_not_that_of_a_link_that_has_recovered() {
        let of = |first, last| {
            let (down, together) = (download(900, first), download(500, last));
            NetworkMeasurement::of(&echoes(400), &down, Some(&together)).unwrap().round_trip
        };
        assert_eq!(of(350, 30), Span::from_millis(30));
        assert_eq!(of(450, 500), Span::from_millis(400));
        let lost = RoundTrips::default().summary();
        assert_eq!(NetworkMeasurement::of(&lost, &download(900, 30), None), None);
    }

    #[test]
    fn the_last_download_counts_unless_the_networks_share_a_link() {
        let with = |mbps, together| NetworkMeasurement {
            together: Some(Rate::from_mbps(together)),
            ..network(30, mbps)
        };
        let best = |networks: [NetworkMeasurement; 2]| compare(&networks, MEGABYTE, AT_ONCE);
        assert_eq!(best([with(20, 5), with(15, 15)]).winner, Some(1));
        let alone = best([network(30, 20), network(30, 15)]);
        let shared = best([with(20, 6), with(15, 9)]);
        assert_eq!((alone.winner, shared.winner), (Some(0), Some(0)));
        assert_eq!(shared.values, best([with(20, 9), with(15, 6)]).values);
        // A rate that has changed is less certain.
        let [steady, changed] = [best([with(20, 20), with(8, 8)]), best([with(5, 20), with(8, 8)])];
        assert!(steady.certainty > changed.certainty, "{steady:?} {changed:?}");
        // A network without any bytes in its last download loses.
        assert_eq!(best([with(20, 0), with(8, 8)]).winner, Some(1));
    }

    #[test]
    fn later_the_round_trip_decides() {
        let networks = [network(28, 10), network(65, 30)];
        let [now, later] = [1, 60].map(|s| compare(&networks, MEGABYTE, Span::from_secs(s)));
        assert_eq!((now.winner, now.reason), (Some(1), Some(Reason::Rate)));
        assert_eq!((later.winner, later.reason), (Some(0), Some(Reason::RoundTrip)));
        assert!(later.certainty < now.certainty, "{now:?} {later:?}");
        // 20 Mbit/s each, the mean of both.
        let level = network(28, 20).download_time(Size::from_bytes(1_000_000));
        assert!((later.values[0] - level).abs() < 0.02, "{later:?}");
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
        fn the_rate_of_a_download_explains_its_duration(
            round_trip in 1_u64..1_000, mbps in 1_u64..1_000,
        ) {
            let truth = network(round_trip, mbps);
            let size = Size::from_bytes(1_000_000);
            let seconds = truth.download_time(size) - 2.0 * truth.round_trip.as_secs_f64();
            let transfer = Transfer {
                duration: Span::from_secs_f64(seconds),
                ..download(0, round_trip)
            };
            let down = transfer.rate_after_slow_start(truth.round_trip);
            let found = NetworkMeasurement { down, ..truth }.download_time(size);
            prop_assert!((found / truth.download_time(size) - 1.0).abs() < 0.05);
        }

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
            let found = compare(&[slow, fast], Purpose::Download(size), AT_ONCE);
            prop_assert!((0.0..=1.0).contains(&found.certainty));
        }
    }
}
