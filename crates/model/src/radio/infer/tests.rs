use manyways_unit::Random;
use proptest::prelude::*;

use super::*;

/// A network that releases between two times, at random, with paging every 1.28 s and a promotion
/// of 0.26 s.
fn network(seed: u64, onset: f64, completion: f64) -> Vec<Probe> {
    let mut random = Random::new(seed);
    let mut probes = Vec::new();
    for tenths in 0..200 {
        let idle = f64::from(tenths) / 10.0;
        for _ in 0..5 {
            let released = onset + (completion - onset) * random.uniform();
            let usual = 0.05 + 0.32 * random.uniform();
            let round_trip = match idle > released {
                true => 0.05 + 0.26 + 1.28 * random.uniform(),
                false => usual,
            };
            probes.push(Probe { gap: idle, round_trip });
        }
    }
    probes
}

#[test]
fn a_timer_is_found() {
    for (seed, timer) in [(1, 5.03), (2, 10.04), (3, 10.95), (4, 15.52)] {
        let found = estimate_timer(&network(seed, timer, timer)).unwrap();
        for estimate in [found.onset, found.completion] {
            assert!(estimate.lower <= timer && timer <= estimate.upper, "{timer}: {found:?}");
            assert!((estimate.value - timer).abs() < 0.3, "{timer}: {found:?}");
        }
        assert!((found.promotion_delay - 0.26).abs() < 0.1, "{found:?}");
        assert!(found.slow_shares[0] < 0.05 && found.slow_shares[2] > 0.8, "{found:?}");
    }
}

#[test]
fn a_network_that_does_not_let_go_at_once_has_two_ends() {
    let found = estimate_timer(&network(5, 10.0, 14.0)).unwrap();
    assert!((9.8..11.2).contains(&found.onset.value), "{found:?}");
    assert!((12.5..14.2).contains(&found.completion.value), "{found:?}");
}

/// For any width of the interval.
#[test]
fn the_value_before_is_the_next_shorter_gap() {
    let mut is_wide = false;
    for seed in 1..20 {
        // Few probes, so that the interval is wide.
        let tried: Vec<Probe> = network(seed, 10.0, 14.0).into_iter().step_by(7).collect();
        let Ok(found) = estimate_timer(&tried) else { continue };
        for one in [found.onset, found.completion] {
            let is_between = |probe: &&Probe| one.previous_gap < probe.gap && probe.gap < one.value;
            assert!(one.previous_gap < one.value && one.lower <= one.previous_gap, "{found:?}");
            assert_eq!(tried.iter().find(is_between), None, "{found:?}");
            is_wide |= one.lower < one.previous_gap;
        }
    }
    assert!(is_wide, "otherwise the test has no effect");
}

/// With the defaults of `manyways radio probe`.
#[test]
fn a_short_timer_is_found() {
    for timer in [1.2, 1.7, 2.3, 3.6, 4.2] {
        let probe = |number: u32| {
            let idle = f64::from(number % 40 + 1) * 0.5;
            let noise = f64::from(number * 7_919 % 100) * 1e-4;
            Probe { gap: idle, round_trip: noise + if idle < timer { 0.05 } else { 0.4 } }
        };
        let found = estimate_timer(&(0..200).map(probe).collect::<Vec<Probe>>()).unwrap();
        assert!(found.onset.lower <= timer && timer <= found.onset.value, "{timer} {found:?}");
    }
}

/// Without merging, the evaluation of this number of gaps would take days.
#[test]
fn many_different_gaps_are_merged() {
    let timer = 10.0123;
    let probe = |place: u32| {
        let idle = f64::from(place) * 1e-4;
        Probe { gap: idle, round_trip: if idle < timer { 0.05 } else { 0.4 } }
    };
    let probes: Vec<Probe> = (1..200_000).map(probe).collect();
    let found = estimate_timer(&probes).unwrap();
    assert_eq!(found.onset, found.completion);
    assert!((found.onset.value - timer).abs() < 1.5e-4, "{found:?}");
}

/// Round trips after gaps in real networks; the timers are those published with the traces.
#[test]
fn timers_of_real_networks() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/rrc");
    for (file, is_sudden, timer) in [
        ("SALMONBERRY_299_TMobile_4G", true, 5.0),
        ("S20US_162_Verizon_4G", true, 10.0),
        ("RASPBERRY_670_TMobile_NSA", false, 10.2),
        ("SALMONBERRY_299_Verizon_NSAmmwave", false, 11.2),
        ("S20US_TMobile_SA", false, 10.2),
        ("S20US_TMobile_SA", false, 15.0),
    ] {
        let path = format!("{folder}/{file}.csv");
        // The crate itself does not open files.
        #[expect(clippy::disallowed_methods)]
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("skipped: the shared traces are absent");
            return;
        };
        let probe = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, _, idle, round_trip, _, _, "YEP"] = fields[..] else { return None };
            let (idle, round_trip) = (idle.parse().ok()?, round_trip.parse::<f64>().ok()? / 1e3);
            Some(Probe { gap: idle, round_trip })
        };
        let probes: Vec<Probe> = text.lines().filter_map(probe).collect();
        let found = estimate_timer(&probes).unwrap();
        println!("{file}: {found:.2?}");
        let (onset, completion) = (found.onset.value, found.completion.value);
        match is_sudden {
            true => assert!((onset - timer).abs() <= 0.3, "{file}: {found:?}"),
            false => {
                assert!((onset - 0.3..=completion + 0.3).contains(&timer), "{file}: {found:?}")
            }
        }
    }
}

#[test]
fn constant_round_trips_have_no_timer() {
    assert_eq!(estimate_timer(&network(6, 30.0, 30.0)), Err(InferenceError::NoChange));
    assert_eq!(estimate_timer(&[]), Err(InferenceError::TooFew(0)));
    let few = vec![Probe { gap: 1.0, round_trip: 0.1 }; 100];
    assert_eq!(estimate_timer(&few), Err(InferenceError::TooFew(100)));
    let broken = vec![Probe { gap: f64::NAN, round_trip: 0.1 }; 100];
    assert_eq!(estimate_timer(&broken), Err(InferenceError::TooFew(0)));
}

proptest! {
    #[test]
    fn nothing_panics(
        probes in prop::collection::vec((any::<f64>(), any::<f64>()), 0..200),
    ) {
        let probes: Vec<Probe> =
            probes.iter().map(|(idle, round_trip)| Probe { gap: *idle, round_trip: *round_trip }).collect();
        let _ = estimate_timer(&probes);
    }
}
