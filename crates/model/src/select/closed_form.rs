//! The completion time of a transfer in closed form: handshakes, slow start, and the rate.
//!
//! It needs no training, is monotone in the size, and is one of the features of the trained models
//! (the thesis has none: its trees learn all of it). Different from a fluid model: while the window
//! is smaller than the link, a round trip passes for each window.

use manyways_unit::{Rate, Size, Span};

use super::indicator::{Indicator, Indicators};
use crate::slow_start;

/// Payload of a packet.
const SEGMENT: f64 = 1_448.0;
/// The ratio of a loss-limited window to √(1/loss) (Mathis et al., 1997).
const MATHIS: f64 = 1.22;
/// Round trips before a request.
const HANDSHAKES: u32 = 1;
/// A network of which nothing is known: a round trip and a rate that are usual.
const UNKNOWN_ROUND_TRIP: f64 = 0.060;
const UNKNOWN_RATE: f64 = 10e6;
/// Mbit/s of a network on which a burst did not arrive: about a datagram a second.
const LEAST_RATE: f64 = 0.01;

/// Round trip and rate of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkEstimate {
    pub round_trip: Span,
    pub rate: Rate,
    /// Whether one of them is not measured, but a usual value.
    pub is_assumed: bool,
}

impl LinkEstimate {
    /// From indicators: those of own traffic if there are any, else those of probes. A burst of which
    /// nothing arrived leaves the rate unknown: a whole transfer outlasts such a moment, and models have
    /// learned it so (as a rate of almost 0, it recovered half as much of Max(S/E) at the places of (b)).
    pub fn of(indicators: &Indicators) -> Self {
        let first = |wanted: [Indicator; 3]| {
            wanted.into_iter().find_map(|one| indicators.value(one).filter(|value| *value > 0.0))
        };
        let round_trip = first([Indicator::OwnRoundTrip, Indicator::PingMean, Indicator::PingMin]);
        let rate = first([Indicator::OwnRate, Indicator::UdpRate, Indicator::LinkRate]);
        let rate = rate.map(|mbps| mbps * 1e6);
        let is_assumed = round_trip.is_none() || rate.is_none();
        let round_trip = round_trip.unwrap_or(UNKNOWN_ROUND_TRIP);
        let rate = rate.unwrap_or(UNKNOWN_RATE);
        // Losses bound the rate of a loss-based congestion control, but not below one segment a round trip.
        let loss = indicators.value(Indicator::UdpLoss).unwrap_or(0.0).clamp(0.0, 1.0);
        let bound = SEGMENT * 8.0 / round_trip * (MATHIS / loss.sqrt()).max(1.0);
        Self {
            round_trip: Span::from_secs_f64(round_trip),
            rate: Rate::from_bps(rate.min(bound) as u64),
            is_assumed,
        }
    }

    /// The same for the next seconds, in which a network on which a burst did not arrive has no rate.
    pub fn of_now(indicators: &Indicators) -> Self {
        let is_dead = indicators.value(Indicator::OwnRate).is_none()
            && indicators.value(Indicator::UdpRate).is_some_and(|mbps| mbps <= 0.0);
        let found = Self::of(indicators);
        match is_dead {
            true => Self { rate: Rate::from_bps((LEAST_RATE * 1e6) as u64), ..found },
            false => found,
        }
    }

    fn parts(&self) -> (f64, f64) {
        (self.rate.as_bps() as f64 / 8.0, self.round_trip.as_secs_f64())
    }

    /// Seconds of a download over this network alone, with this many round trips before the request.
    pub fn seconds(&self, size: Size, handshakes: u32) -> f64 {
        let (rate, round_trip) = self.parts();
        let before = f64::from(handshakes + 1) * round_trip;
        before + slow_start::seconds(size.as_bytes() as f64, rate, round_trip)
    }

    /// Seconds of a download over this network and another one, which connects when this one has.
    pub fn seconds_with(&self, other: &Self, size: Size, handshakes: u32) -> f64 {
        let alone = self.seconds(size, handshakes);
        let size = size.as_bytes() as f64;
        let (rate, round_trip) = self.parts();
        let (other_rate, other_round_trip) = other.parts();
        let begin = f64::from(handshakes + 1) * round_trip;
        // One handshake after that of the first one; the sender needs no request for it.
        let joined = f64::from(handshakes) * round_trip + 1.5 * other_round_trip;
        let by = |at: f64| {
            slow_start::bytes(at - begin, rate, round_trip)
                + slow_start::bytes(at - joined, other_rate, other_round_trip)
        };
        // No network: no end.
        if !alone.is_finite() && other_rate <= 0.0 {
            return alone;
        }
        let other_alone = joined + slow_start::seconds(size, other_rate, other_round_trip);
        let (mut low, mut high) = (0.0, alone.min(other_alone));
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if by(middle) < size {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

/// Seconds of a download that begins on one network, and is joined by another one if there is one.
pub fn seconds(first: LinkEstimate, joined: Option<LinkEstimate>, size: Size) -> f64 {
    match joined {
        None => first.seconds(size, HANDSHAKES),
        Some(joined) => first.seconds_with(&joined, size, HANDSHAKES),
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;
    use proptest::prelude::*;

    use super::*;

    fn link(millis: u64, mbps: u64) -> LinkEstimate {
        LinkEstimate {
            round_trip: Span::from_millis(millis),
            rate: Rate::from_mbps(mbps),
            is_assumed: false,
        }
    }

    #[test]
    fn own_traffic_comes_before_probes_and_both_before_a_guess() {
        let mut indicators = Indicators::default();
        assert!(LinkEstimate::of(&indicators).is_assumed);
        let mut set = |one, value| {
            indicators.set(Time::ZERO, one, value);
            let found = LinkEstimate::of(&indicators);
            (found.round_trip.as_nanos() / 1_000_000, found.rate.as_bps() / 1_000_000)
        };
        assert_eq!(set(Indicator::LinkRate, 54.0), (60, 54));
        assert_eq!(set(Indicator::LinkRate, f64::NAN), (60, 10));
        assert_eq!(set(Indicator::PingMin, 0.03), (30, 10));
        assert_eq!(set(Indicator::PingMean, 0.04), (40, 10));
        assert_eq!(set(Indicator::UdpRate, 0.0), (40, 10));
        assert_eq!(set(Indicator::UdpRate, 20.0), (40, 20));
        assert_eq!(set(Indicator::LinkRate, 54.0), (40, 20), "a burst shows more than the radio");
        assert_eq!(set(Indicator::OwnRate, 12.0), (40, 12));
        assert_eq!(set(Indicator::OwnRoundTrip, 0.05), (50, 12));
        // 1.22 segments in 50 ms, times ten.
        assert_eq!(set(Indicator::UdpLoss, 0.01), (50, 2));
    }

    #[test]
    fn a_burst_that_did_not_arrive_is_no_guess_for_the_next_seconds() {
        let mut indicators = Indicators::default();
        let mut set = |one, value| {
            indicators.set(Time::ZERO, one, value);
            LinkEstimate::of_now(&indicators).rate.as_bps() / 1_000
        };
        assert_eq!(set(Indicator::UdpRate, 0.0), 10);
        assert_eq!(set(Indicator::OwnRate, 2.0), 2_000);
        assert_eq!(set(Indicator::UdpRate, 5.0), 2_000);
    }

    #[test]
    fn a_network_is_assumed_unless_both_values_are_measured_and_silence_is_slow() {
        let mut indicators = Indicators::default();
        indicators.set(Time::ZERO, Indicator::PingMean, 0.04);
        assert!(LinkEstimate::of(&indicators).is_assumed);
        indicators.set(Time::ZERO, Indicator::UdpRate, 20.0);
        assert!(!LinkEstimate::of(&indicators).is_assumed);
        // As after silence: one segment and a fifth for each round trip.
        indicators.set(Time::ZERO, Indicator::UdpRate, 0.0);
        indicators.set(Time::ZERO, Indicator::UdpLoss, 1.0);
        let silent = LinkEstimate::of(&indicators);
        assert_eq!((silent.rate.as_bps(), silent.is_assumed), (353_312, true));
    }

    #[test]
    fn a_transfer_takes_its_round_trips_and_its_rate() {
        let small = link(100, 8).seconds(Size::from_bytes(10_000), 1);
        assert!((small - 0.21).abs() < 1e-9, "{small}");
        let large = link(100, 8).seconds(Size::from_bytes(10_000_000), 1);
        assert!((10.0..10.5).contains(&large), "{large}");
    }

    #[test]
    fn a_transfer_by_indicators_has_one_handshake_and_may_be_joined() {
        let of = |round_trip, mbps| {
            let mut indicators = Indicators::default();
            indicators.set(Time::ZERO, Indicator::PingMean, round_trip);
            indicators.set(Time::ZERO, Indicator::UdpRate, mbps);
            LinkEstimate::of(&indicators)
        };
        let (near, far, size) = (of(0.1, 8.0), of(0.3, 80.0), Size::from_bytes(10_000));
        assert!((seconds(near, None, size) - 0.21).abs() < 1e-9);
        assert!((seconds(near, Some(far), size) - 0.21).abs() < 1e-6, "it ends before");
        assert!(seconds(far, Some(near), size) < seconds(far, None, size));
    }

    #[test]
    fn two_networks_are_as_fast_as_their_sum_for_large_files_only() {
        let (wifi, lte) = (link(20, 10), link(60, 10));
        let both = |bytes| wifi.seconds_with(&lte, Size::from_bytes(bytes), 1);
        let alone = |bytes| wifi.seconds(Size::from_bytes(bytes), 1);
        assert!((both(3_000) - alone(3_000)).abs() < 1e-6);
        let share = both(10_000_000) / alone(10_000_000);
        assert!((0.5..0.53).contains(&share), "{share}");
        let dead = link(60, 0);
        assert!((wifi.seconds_with(&dead, Size::from_mib(1), 1) - alone(1 << 20)).abs() < 1e-6);
        assert!(dead.seconds_with(&wifi, Size::from_mib(1), 1) < 2.0);
        assert!(dead.seconds_with(&dead, Size::from_mib(1), 1).is_infinite());
    }

    proptest! {
        #[test]
        fn a_larger_transfer_takes_longer(
            sizes in (1_u64..100_000_000, 1_u64..100_000_000),
            one in (1_u64..300, 0_u64..200), two in (1_u64..300, 1_u64..200),
        ) {
            let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
            let (one, two) = (link(one.0, one.1), link(two.0, two.1));
            let of = |bytes| one.seconds_with(&two, Size::from_bytes(bytes), 1);
            prop_assert!(of(small) <= of(large) + 1e-9);
            prop_assert!(of(large) <= one.seconds(Size::from_bytes(large), 1) + 1e-9);
        }
    }
}
