use proptest::prelude::*;

use super::*;

/// Pseudorandom numbers from 0 to 1.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Two clocks with known properties.
struct World {
    /// The second clock minus the first one at the start.
    offset: f64,
    ppm: f64,
    /// Minimum delays in both directions.
    least: [f64; 2],
    /// Mean queueing delay.
    queue: f64,
    /// A direction, and the delay of each of its packets between 20 s and 40 s.
    busy: (usize, f64),
    /// Growth per second, from 3 s on, of a queue towards the second point.
    grows: f64,
    /// Step of the second clock in the middle.
    step: f64,
    secs: f64,
}

const WORLD: World = World {
    offset: 3.2,
    ppm: 40.0,
    least: [0.030, 0.010],
    queue: 0.005,
    busy: (0, 0.0),
    grows: 0.0,
    step: 0.0,
    secs: 60.0,
};

const EPOCH: f64 = 1_700_000_000.0;

impl World {
    fn second(&self, now: f64) -> f64 {
        let step = if now > self.secs / 2.0 { self.step } else { 0.0 };
        now + self.offset + self.ppm * 1e-6 * now + step
    }

    /// Returns the times of packets of one direction at both points.
    fn times(&self, way: usize, seed: u64) -> Vec<Times> {
        let mut dice = Dice(seed);
        let mut now = 0.0;
        let mut times = Vec::new();
        let time = |secs: f64| {
            Time::from_nanos(EPOCH as u64 * 1_000_000_000) + Span::from_secs_f64(secs + 100.0)
        };
        while now < self.secs {
            now += 0.040 * dice.roll();
            let is_busy = self.busy.0 == way && (20.0..40.0).contains(&now);
            let wait = if is_busy { self.busy.1 } else { 0.0 };
            let wait = if way == 0 { wait + self.grows * (now - 3.0).max(0.0) } else { wait };
            let delay = self.least[way] + wait - self.queue * (1.0 - dice.roll()).ln();
            times.push(match way {
                0 => (time(now), time(self.second(now + delay))),
                _ => (time(now + delay), time(self.second(now))),
            });
        }
        times
    }

    fn estimate(&self, seed: u64) -> Clock {
        let [forth, back] = [0, 1].map(|way| self.times(way, seed * 2 + way as u64));
        Clock::estimate([0, 1], &forth, &back).unwrap()
    }

    /// Returns the true offset at the time of the estimate.
    fn truth(&self, clock: &Clock) -> f64 {
        let at =
            clock.at.since(Time::from_nanos(EPOCH as u64 * 1_000_000_000)).as_secs_f64() - 100.0;
        self.second(at) - at
    }
}

#[test]
fn offset_and_drift_are_found_within_the_bound() {
    for seed in 0..8 {
        for busy in [(0, 0.0), (0, 0.4), (1, 0.2)] {
            let world = World { busy, ..WORLD };
            let clock = world.estimate(seed);
            let error = (clock.offset.unwrap().as_secs_f64() - world.truth(&clock)).abs();
            let bound = clock.bound.unwrap().as_secs_f64();
            assert!(error <= bound, "{error} {bound}");
            // Half of 40 ms plus noise; the error is half of the difference between the directions.
            // A drift error of 0.5 ppm adds 15 µs in half of the time.
            assert!((0.01998..0.0205).contains(&bound), "{bound}");
            assert!((error - 0.010).abs() < 0.0005, "{error}");
            let drift = clock.drift.unwrap().0;
            assert!((drift - 40.0).abs() < 1.0, "{drift} {busy:?}");
            assert!(clock.is_steady && clock.residual.unwrap() < NOISE, "{clock:?}");
            assert_eq!(clock.at.since(Time::ZERO).as_secs_f64().round(), EPOCH + 130.0);
        }
    }
}

#[test]
fn the_bound_holds_whatever_the_delays() {
    let mut dice = Dice(5);
    for seed in 0..100 {
        let world = World {
            offset: 5.0 * dice.roll() - 2.0,
            ppm: 200.0 * dice.roll() - 100.0,
            least: [0.2 * dice.roll(), 0.2 * dice.roll()],
            queue: 0.1 * dice.roll(),
            busy: (seed as usize % 2, dice.roll()),
            secs: 1.0 + 80.0 * dice.roll(),
            ..WORLD
        };
        let clock = world.estimate(seed);
        let error = (clock.offset.unwrap().as_secs_f64() - world.truth(&clock)).abs();
        let bound = clock.bound.unwrap().as_secs_f64();
        assert!(error <= bound + 1e-8, "{error} {bound} {seed}");
    }
}

#[test]
fn a_queue_that_grows_all_the_time_is_no_drift() {
    for grows in [0.001, 0.01, 0.1] {
        let world = World { grows, ..WORLD };
        let clock = world.estimate(4);
        let drift = clock.drift.unwrap().0;
        assert!((drift - 40.0).abs() < 1.0, "{drift}");
        let error = (clock.offset.unwrap().as_secs_f64() - world.truth(&clock)).abs();
        assert!(error <= clock.bound.unwrap().as_secs_f64() && clock.is_steady);
    }
}

#[test]
fn the_lead_goes_on_at_the_drift() {
    let clock = WORLD.estimate(1);
    let [before, behind] = [clock.at - Span::from_secs(20), clock.at + Span::from_secs(20)]
        .map(|at| clock.lead(at).unwrap().as_secs_f64());
    assert!((behind - before - 40.0 * 40e-6).abs() < 40e-6, "{before} {behind}");
}

#[test]
fn one_way_tells_no_offset() {
    for way in 0..2 {
        let times = WORLD.times(way, 3);
        let none: &[Times] = &[];
        let ways = if way == 0 { [&times[..], none] } else { [none, &times[..]] };
        let clock = Clock::estimate([4, 7], ways[0], ways[1]).unwrap();
        assert_eq!((clock.offset, clock.bound, clock.residual), (None, None, None));
        let drift = clock.drift.unwrap().0;
        assert!((drift - 40.0).abs() < 1.0, "{drift}");
        assert_eq!(clock.samples[way], times.len() as u64);
        assert_eq!((clock.first, clock.second, clock.lead(clock.at)), (4, 7, None));
    }
    assert_eq!(Clock::estimate([0, 1], &[], &[]), None);
}

#[test]
fn a_clock_that_was_set_is_not_steady() {
    // Half of the round trip is 20 ms; smaller steps are visible only in the parts.
    for step in [-2.0, -0.015, 0.015, 0.030, 2.0] {
        let clock = World { step, ..WORLD }.estimate(9);
        assert!(!clock.is_steady && clock.bound.is_none(), "{step} {clock:?}");
        assert!(clock.residual.is_none_or(|residual| residual > NOISE), "{step}");
    }
}

#[test]
fn a_short_time_tells_no_drift() {
    let clock = World { secs: 5.0, ..WORLD }.estimate(2);
    assert_eq!((clock.drift, clock.is_steady), (None, true));
    let times = WORLD.times(0, 1);
    let some = Clock::estimate([0, 1], &times, &times[..1]).unwrap();
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
            let clock = Clock::estimate([0, 1], &forth, &back);
            prop_assert_eq!(clock.is_none(), forth.is_empty() && back.is_empty());
            let Some(clock) = clock else { continue };
            clock.lead(Time::ZERO);
            clock.lead(Time::MAX);
        }
    }
}
