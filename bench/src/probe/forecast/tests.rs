use manyways_rig::links::{LTE_RTT, WIFI_RTT, constant};
use manyways_trace::scenario::CapacitySpec;
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::Time;

use super::*;
use crate::virtual_tcp::Transferred;

const DOWNLOAD: Order =
    Order { way: Way::Down, bytes: BYTES, exchanges: EXCHANGES, growth: Growth::None };

/// Wi-Fi and LTE with these rates in Mbit/s, each for 10 s.
fn networks(wifi: &[u64], lte: &[u64]) -> Vec<LinkSpec> {
    let traced = |name: &str, mbps: &[u64], round_trip| {
        let step = |(index, mbps): (usize, &u64)| {
            (Span::from_secs(10 * index as u64), Rate::from_mbps(*mbps))
        };
        let steps = mbps.iter().enumerate().map(step).collect();
        let steps = Steps::new(steps, Span::from_secs(10 * mbps.len() as u64)).unwrap();
        let trace = LinkTrace::Rates(steps);
        let capacity = CapacitySpec::Trace { source: String::new(), trace };
        link(name, capacity, UP, round_trip)
    };
    vec![traced("wifi", wifi, WIFI_RTT), traced("lte", lte, LTE_RTT)]
}

fn seconds(done: &Transferred) -> f64 {
    done.arrivals.last().unwrap().0.as_secs_f64()
}

#[test]
fn a_download_takes_what_a_model_of_slow_start_says() {
    for (mbps, round_trip) in [(10, 28), (10, 65), (40, 28), (40, 65), (100, 65)] {
        let spec = constant("a", mbps, Span::from_millis(round_trip));
        let done = transfer(&spec, Span::ZERO, Time::ZERO, DOWNLOAD);
        assert!(done.is_complete);
        // Packets of 1500 bytes carry 1460; windows double from ten packets on.
        let rate = mbps as f64 * 1e6 / 8.0 * 1460.0 / 1500.0;
        let round_trip = round_trip as f64 / 1e3;
        let (mut expected, mut window, mut left) = (3.0 * round_trip, 14_600.0, BYTES as f64);
        while window < rate * round_trip && left > window {
            (expected, left, window) = (expected + round_trip, left - window, window * 2.0);
        }
        expected += left / rate;
        let found = seconds(&done);
        assert!((found / expected - 1.0).abs() < 0.05, "{mbps} {found} {expected}");
    }
}

#[test]
fn an_outage_delays_a_download_until_its_end() {
    let links = networks(&[20, 0], &[20]);
    let begun = Time::ZERO + Span::from_secs(12);
    let done = transfer(&links[0], Span::ZERO, begun, DOWNLOAD);
    assert!(seconds(&done) > 20.4 && seconds(&done) < 30.0, "{}", seconds(&done));
    let offset = Span::from_secs(12);
    let shifted = transfer(&links[0], offset, Time::ZERO, DOWNLOAD);
    assert!((seconds(&shifted) + 12.0 - seconds(&done)).abs() < 1e-6);
    let never = transfer(&constant("a", 0, WIFI_RTT), Span::ZERO, Time::ZERO, DOWNLOAD);
    assert!(!never.is_complete && never.requested.is_none());
}

#[test]
fn a_measurement_takes_its_parts_and_finds_the_settings_of_the_links() {
    let (found, end) = measure(&networks(&[20], &[40]), Span::ZERO);
    for (one, (mbps, millis)) in found.iter().zip([(20, 28), (40, 65)]) {
        let round_trip = one.echoes.median.unwrap();
        assert!(round_trip >= Span::from_millis(millis));
        assert!(round_trip < Span::from_millis(millis + 1));
        let down = one.down.unwrap();
        assert_eq!(down.bytes, Size::from_bytes(BYTES as u64));
        let alone = constant("alone", mbps, Span::from_millis(millis));
        let order = Order { exchanges: 0, ..DOWNLOAD };
        let expected = seconds(&transfer(&alone, Span::ZERO, Time::ZERO, order));
        assert!((down.duration.as_secs_f64() / expected - 1.0).abs() < 0.01, "{down:?}");
        assert_eq!(one.together.map(|together| together.bytes), Some(down.bytes));
        assert!(one.up.unwrap().duration > Span::from_millis(800));
    }
    // Two times 1.8 s of echoes and 1 MB up at 10 Mbit/s, and the downloads.
    assert!((6.0..10.0).contains(&end.as_secs_f64()), "{end:?}");
}

#[test]
fn a_dead_network_is_not_measured_and_loses() {
    let links = networks(&[0], &[20]);
    let case = Case::new("dead", &links, Span::ZERO);
    assert!(case.measured[0].network().is_none() && case.measured[1].together.is_none());
    assert_eq!((case.faster(0), case.forecast(LAGS[0])), (Some(1), (1, true, 1.0)));
    assert_eq!(case.durations[0][0], f64::INFINITY);
}

#[test]
fn cases_and_figures_are_the_same_in_each_run() {
    let links = networks(&[5, 40], &[30, 12, 20]);
    let case = || Case::new("same", &links, Span::from_millis(7_300));
    assert_eq!(figures(&[case()]), figures(&[case()]));
    let found = case();
    assert_eq!(found.durations, case().durations);
    let figures = figures(&[found]);
    assert_eq!(figures[0].cases, 1);
    assert_eq!(figures[0].always_wifi + figures[0].always_lte, 1.0);
}
