use std::collections::BTreeSet;

use manyways_model::select::Indicator;
use manyways_trace::scenario::CapacitySpec;
use manyways_unit::{Random, Rate};

use super::place::{Signals, capacity};
use super::process::Process;
use super::signal_log::Second;
use super::*;

fn mbps(rates: &[u64]) -> CapacitySpec {
    capacity("made up", rates.iter().map(|rate| Rate::from_mbps(*rate)).collect()).unwrap()
}

/// As many recordings of each walk as there are.
fn recordings() -> Vec<Recording> {
    let walks = [(7, 5), (8, 4), (11, 3), (12, 3)];
    let all = walks.iter().flat_map(|(walk, count)| (1..=*count).map(move |run| (*walk, run)));
    let recording = |(walk, run)| {
        let (wifi, lte) = (mbps(&[20, 10]), mbps(&[10, 5, 20]));
        Recording { name: format!("{walk}_{run}"), walk, seconds: 30, wifi, lte }
    };
    all.map(recording).collect()
}

fn logs() -> Vec<SignalLog> {
    let second = |second: u64| {
        let signals = vec![(Indicator::Rsrp, -80.0 - second as f64)];
        Second { down: Rate::from_mbps(second), signals }
    };
    let log = |index| SignalLog {
        name: format!("log{index:02}"),
        seconds: (0..400).map(second).collect(),
    };
    (0..21).map(log).collect()
}

#[test]
fn no_recording_of_either_side_is_in_two_groups() {
    let (recordings, logs) = (recordings(), logs());
    let crossings = crossed::crossings(&recordings, &logs);
    assert_eq!(crossings.len(), 40);
    let groups_of = |is_meant: &dyn Fn(&crossed::Crossing<'_>) -> bool| {
        let meant = crossings.iter().filter(|crossing| is_meant(crossing));
        meant.map(|crossing| crossing.recording.walk).collect::<BTreeSet<u32>>()
    };
    for recording in &recordings {
        assert!(groups_of(&|crossing| crossing.recording.name == recording.name).len() <= 1);
    }
    for log in &logs {
        assert!(groups_of(&|crossing| crossing.log.name == log.name).len() <= 1);
    }
    let combinations: BTreeSet<_> =
        crossings.iter().map(|crossing| (&crossing.recording.name, &crossing.log.name)).collect();
    assert_eq!(combinations.len(), 40);
    for walk in [7, 8, 11, 12] {
        let count = crossings.iter().filter(|crossing| crossing.recording.walk == walk).count();
        assert_eq!(count, 10);
    }
}

#[test]
fn a_crossed_place_has_the_rates_and_signals_of_the_same_seconds() {
    let (recordings, logs) = (recordings(), logs());
    for place in crossed::places(&recordings, &logs).unwrap() {
        let CapacitySpec::Trace { trace, .. } = &place.links[1].down.capacity else { panic!() };
        let manyways_trace::LinkTrace::Rates(steps) = trace else { panic!() };
        assert_eq!((steps.steps().len(), place.seconds), (150, 30));
        for second in 1..150 {
            let rate = steps.steps()[second - 1].1.as_mbps_f64();
            let signals = place.signals[1].before(second as u64);
            assert_eq!(signals, [(Indicator::Rsrp, -80.0 - rate)]);
        }
        assert!(place.signals[0].before(10).is_empty());
    }
}

#[test]
fn signals_are_those_of_the_last_whole_second() {
    let signals = Signals((0..3).map(|value| vec![(Indicator::Rssi, f64::from(value))]).collect());
    let found = [0, 1, 2, 3, 4, 13].map(|second| signals.before(second)[0].1);
    assert_eq!(found, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
}

#[test]
fn a_log_has_one_row_per_second_and_unknown_signals() {
    let text = "Timestamp,RSRP,RSRQ,SNR,CQI,DL_bitrate\n\
                2019.12.16_23.59.58,-100,-10,5.0,7,1000\n\
                2019.12.16_23.59.59,-101,-,-,-,2000\n\
                2019.12.16_23.59.59,-102,-,-,-,3000\n\
                2019.12.17_00.00.02,-103,-12,-1.5,1,0\n";
    let log = SignalLog::parse("log", text).unwrap();
    let rates: Vec<u64> = log.seconds.iter().map(|second| second.down.as_bps()).collect();
    assert_eq!(rates, [1_000_000, 3_000_000, 3_000_000, 3_000_000, 0]);
    assert_eq!(log.seconds[1].signals, [(Indicator::Rsrp, -102.0)]);
    assert_eq!(log.seconds[4].signals.len(), 4);
    assert!(SignalLog::parse("log", "Timestamp,DL_bitrate\n").is_err());
    assert!(SignalLog::parse("log", &text.replace(",2000", ",-")).is_err());
}

#[test]
fn a_process_has_its_mean_deviation_and_correlation() {
    let mut random = Random::new(1);
    let mut process = Process::new(5.0, 2.0, 0.8, &mut random);
    let values: Vec<f64> = (0..100_000).map(|_| process.step(&mut random)).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    let products = values.windows(2).map(|two| (two[0] - mean) * (two[1] - mean));
    let correlation = products.sum::<f64>() / count / variance;
    assert!((mean - 5.0).abs() < 0.1, "{mean}");
    assert!((variance.sqrt() - 2.0).abs() < 0.05, "{variance}");
    assert!((correlation - 0.8).abs() < 0.01, "{correlation}");
}

#[test]
fn generated_places_are_the_same_in_each_run_and_their_rates_follow_their_signals() {
    let places = generated::places().unwrap();
    assert_eq!(places.len(), 80);
    let again = generated::places().unwrap();
    assert_eq!(format!("{:?}", places[17]), format!("{:?}", again[17]));
    assert_ne!(format!("{:?}", places[17].links), format!("{:?}", places[18].links));
    let groups: BTreeSet<&str> = places.iter().map(|place| place.group.as_str()).collect();
    assert_eq!(groups.len(), 8);
    assert_eq!(
        places[0].decisions().collect::<Vec<_>>(),
        (1..12).map(|n| 10 * n).collect::<Vec<_>>()
    );
    for place in &places {
        for (link, signals) in place.links.iter().zip(&place.signals) {
            let best = if link.name == "wifi" { 130.0 * 0.65 } else { 75.0 };
            assert!(mean_rate(link).as_mbps_f64() < best);
            assert_eq!(signals.0.len(), 120);
        }
    }
}
