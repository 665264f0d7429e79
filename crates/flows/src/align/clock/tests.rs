use proptest::prelude::*;

use super::*;

/// Pseudorandom numbers from 0 to 1.
struct Rng(u64);

impl Rng {
    fn next_f64(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Two clocks with known properties.
struct Simulation {
    /// The second clock minus the first one at the start.
    offset: f64,
    ppm: f64,
    /// Minimum delays in both directions.
    min_delays: [f64; 2],
    /// Mean queueing delay.
    mean_queueing: f64,
    /// A direction, and the delay of each of its packets between 20 s and 40 s.
    congested: (usize, f64),
    /// Growth per second, from 3 s on, of a queue towards the second point.
    queue_growth: f64,
    /// Step of the second clock in the middle.
    step: f64,
    secs: f64,
}

const SIMULATION: Simulation = Simulation {
    offset: 3.2,
    ppm: 40.0,
    min_delays: [0.030, 0.010],
    mean_queueing: 0.005,
    congested: (0, 0.0),
    queue_growth: 0.0,
    step: 0.0,
    secs: 60.0,
};

const EPOCH: f64 = 1_700_000_000.0;

impl Simulation {
    fn second_clock(&self, now: f64) -> f64 {
        let step = if now > self.secs / 2.0 { self.step } else { 0.0 };
        now + self.offset + self.ppm * 1e-6 * now + step
    }

    /// Returns the times of packets of one direction at both points.
    fn times(&self, direction: usize, seed: u64) -> Vec<Times> {
        let mut rng = Rng(seed);
        let mut now = 0.0;
        let mut times = Vec::new();
        let time = |secs: f64| {
            Time::from_nanos(EPOCH as u64 * 1_000_000_000) + Span::from_secs_f64(secs + 100.0)
        };
        while now < self.secs {
            now += 0.040 * rng.next_f64();
            let is_busy = self.congested.0 == direction && (20.0..40.0).contains(&now);
            let wait = if is_busy { self.congested.1 } else { 0.0 };
            let wait =
                if direction == 0 { wait + self.queue_growth * (now - 3.0).max(0.0) } else { wait };
            let delay = self.min_delays[direction] + wait
                - self.mean_queueing * (1.0 - rng.next_f64()).ln();
            times.push(match direction {
                0 => (time(now), time(self.second_clock(now + delay))),
                _ => (time(now + delay), time(self.second_clock(now))),
            });
        }
        times
    }

    fn estimate(&self, seed: u64) -> ClockAlignment {
        let [forth, back] =
            [0, 1].map(|direction| self.times(direction, seed * 2 + direction as u64));
        ClockAlignment::estimate([0, 1], &forth, &back).unwrap()
    }

    /// Returns the true offset at the time of the estimate.
    fn true_offset(&self, clock: &ClockAlignment) -> f64 {
        let at =
            clock.at.since(Time::from_nanos(EPOCH as u64 * 1_000_000_000)).as_secs_f64() - 100.0;
        self.second_clock(at) - at
    }
}

#[test]
fn offset_and_drift_are_found_within_the_bound() {
    for seed in 0..8 {
        for busy in [(0, 0.0), (0, 0.4), (1, 0.2)] {
            let simulation = Simulation { congested: busy, ..SIMULATION };
            let clock = simulation.estimate(seed);
            let error =
                (clock.offset.unwrap().as_secs_f64() - simulation.true_offset(&clock)).abs();
            let bound = clock.max_error.unwrap().as_secs_f64();
            assert!(error <= bound, "{error} {bound}");
            // Half of 40 ms plus noise; the error is half of the difference between the directions.
            // A drift error of 0.5 ppm adds 15 µs in half of the time.
            assert!((0.01998..0.0205).contains(&bound), "{bound}");
            assert!((error - 0.010).abs() < 0.0005, "{error}");
            let drift = clock.drift.unwrap().0;
            assert!((drift - 40.0).abs() < 1.0, "{drift} {busy:?}");
            assert!(clock.is_steady && clock.residual.unwrap() < RESIDUAL_TOLERANCE, "{clock:?}");
            assert_eq!(clock.at.since(Time::ZERO).as_secs_f64().round(), EPOCH + 130.0);
        }
    }
}

#[test]
fn the_bound_holds_whatever_the_delays() {
    let mut rng = Rng(5);
    for seed in 0..100 {
        let simulation = Simulation {
            offset: 5.0 * rng.next_f64() - 2.0,
            ppm: 200.0 * rng.next_f64() - 100.0,
            min_delays: [0.2 * rng.next_f64(), 0.2 * rng.next_f64()],
            mean_queueing: 0.1 * rng.next_f64(),
            congested: (seed as usize % 2, rng.next_f64()),
            secs: 1.0 + 80.0 * rng.next_f64(),
            ..SIMULATION
        };
        let clock = simulation.estimate(seed);
        let error = (clock.offset.unwrap().as_secs_f64() - simulation.true_offset(&clock)).abs();
        let bound = clock.max_error.unwrap().as_secs_f64();
        assert!(error <= bound + 1e-8, "{error} {bound} {seed}");
    }
}

#[test]
fn a_queue_that_grows_all_the_time_is_no_drift() {
    for grows in [0.001, 0.01, 0.1] {
        let simulation = Simulation { queue_growth: grows, ..SIMULATION };
        let clock = simulation.estimate(4);
        let drift = clock.drift.unwrap().0;
        assert!((drift - 40.0).abs() < 1.0, "{drift}");
        let error = (clock.offset.unwrap().as_secs_f64() - simulation.true_offset(&clock)).abs();
        assert!(error <= clock.max_error.unwrap().as_secs_f64() && clock.is_steady);
    }
}

#[test]
fn the_lead_goes_on_at_the_drift() {
    let clock = SIMULATION.estimate(1);
    let [before, behind] = [clock.at - Span::from_secs(20), clock.at + Span::from_secs(20)]
        .map(|at| clock.offset_at(at).unwrap().as_secs_f64());
    assert!((behind - before - 40.0 * 40e-6).abs() < 40e-6, "{before} {behind}");
}

#[test]
fn one_way_tells_no_offset() {
    for direction in 0..2 {
        let times = SIMULATION.times(direction, 3);
        let none: &[Times] = &[];
        let ways = if direction == 0 { [&times[..], none] } else { [none, &times[..]] };
        let clock = ClockAlignment::estimate([4, 7], ways[0], ways[1]).unwrap();
        assert_eq!((clock.offset, clock.max_error, clock.residual), (None, None, None));
        let drift = clock.drift.unwrap().0;
        assert!((drift - 40.0).abs() < 1.0, "{drift}");
        assert_eq!(clock.samples[direction], times.len() as u64);
        assert_eq!((clock.first, clock.second, clock.offset_at(clock.at)), (4, 7, None));
    }
    assert_eq!(ClockAlignment::estimate([0, 1], &[], &[]), None);
}

#[test]
fn a_clock_that_was_set_is_not_steady() {
    // Half of the round trip is 20 ms; smaller steps are visible only in the parts.
    for step in [-2.0, -0.015, 0.015, 0.030, 2.0] {
        let clock = Simulation { step, ..SIMULATION }.estimate(9);
        assert!(!clock.is_steady && clock.max_error.is_none(), "{step} {clock:?}");
        assert!(clock.residual.is_none_or(|residual| residual > RESIDUAL_TOLERANCE), "{step}");
    }
}

#[test]
fn a_short_time_tells_no_drift() {
    let clock = Simulation { secs: 5.0, ..SIMULATION }.estimate(2);
    assert_eq!((clock.drift, clock.is_steady), (None, true));
    let times = SIMULATION.times(0, 1);
    let some = ClockAlignment::estimate([0, 1], &times, &times[..1]).unwrap();
    assert_eq!(some.drift, None);
}

proptest! {
    #[test]
    fn no_times_panic(
        forth in prop::collection::vec(any::<(u64, u64)>(), 0..40),
        back in prop::collection::vec(any::<(u64, u64)>(), 0..40),
        near in prop::collection::vec((0u64..1 << 36, 0u64..1 << 36), 0..40),
    ) {
        let times = |of: &[(u64, u64)]| -> Vec<Times> {
            of.iter().map(|(a, b)| (Time::from_nanos(*a), Time::from_nanos(*b))).collect()
        };
        for ways in [[&forth, &back], [&near, &back], [&near, &near]] {
            let [forth, back] = ways.map(|way| times(way));
            let clock = ClockAlignment::estimate([0, 1], &forth, &back);
            prop_assert_eq!(clock.is_none(), forth.is_empty() && back.is_empty());
            let Some(clock) = clock else { continue };
            clock.offset_at(Time::ZERO);
            clock.offset_at(Time::MAX);
        }
    }
}
