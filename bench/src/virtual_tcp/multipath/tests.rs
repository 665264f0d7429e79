use manyways_rig::links::{constant, link};
use manyways_trace::scenario::CapacitySpec;
use manyways_trace::{LinkTrace, Steps};

use super::*;
use crate::virtual_tcp::{Order, Way, transfer};

const MB: usize = 1_000_000;

/// Mbit/s, each for a second, with a round trip of 40 ms.
fn traced(mbps: &[u64]) -> LinkSpec {
    let at = |second: usize| Span::from_secs(second as u64);
    let steps = mbps.iter().enumerate().map(|(second, mbps)| (at(second), Rate::from_mbps(*mbps)));
    let steps = Steps::new(steps.collect(), at(mbps.len())).unwrap();
    let capacity = CapacitySpec::Trace { source: String::new(), trace: LinkTrace::Rates(steps) };
    link("traced", capacity, Rate::from_mbps(10), Span::from_millis(40))
}

/// Seconds of a download over one link, and over both.
fn single(spec: &LinkSpec, bytes: usize) -> f64 {
    let order = Order { way: Way::Down, bytes, exchanges: 1, growth: Growth::Cubic };
    let done = transfer(spec, Span::ZERO, Time::ZERO, order);
    assert!(done.is_complete);
    done.arrivals.last().unwrap().0.as_secs_f64()
}

fn both(first: &LinkSpec, second: &LinkSpec, bytes: usize) -> f64 {
    download_over_both([first, second], Span::ZERO, bytes).unwrap().as_secs_f64()
}

#[test]
fn both_networks_are_faster_for_large_downloads_and_the_first_one_carries_small_ones() {
    let equal = constant("equal", 20, Span::from_millis(40));
    let alone = [10_000, MB, 10 * MB].map(|bytes| single(&equal, bytes));
    let together = [10_000, MB, 10 * MB].map(|bytes| both(&equal, &equal, bytes));
    // The initial window carries 10 KB.
    assert!((together[0] / alone[0] - 1.0).abs() < 0.01, "{together:?} {alone:?}");
    assert!(together[1] < 1.05 * alone[1], "{together:?} {alone:?}");
    assert!(together[2] < 0.6 * alone[2], "{together:?} {alone:?}");
    assert_eq!(both(&equal, &equal, MB), together[1]);
}

#[test]
fn segments_of_a_path_that_stands_still_are_sent_on_the_other_one() {
    let mut rates = [20; 100];
    rates[1..60].fill(0);
    let (stalls, steady) = (traced(&rates), traced(&[10]));
    let alone = single(&steady, 4 * MB);
    for together in [both(&stalls, &steady, 4 * MB), both(&steady, &stalls, 4 * MB)] {
        assert!(together < alone, "{together} {alone}");
    }
    // Without reinjection it would end with the outage.
    assert!(single(&stalls, 4 * MB) > 59.0);
}

#[test]
fn a_dead_second_network_delays_nothing_and_a_dead_first_one_prevents_all() {
    let (dead, steady) = (traced(&[0]), traced(&[10]));
    let (alone, together) = (single(&steady, MB), both(&steady, &dead, MB));
    assert!((together / alone - 1.0).abs() < 0.01, "{together} {alone}");
    assert_eq!(download_over_both([&dead, &steady], Span::ZERO, MB), None);
}

#[test]
fn a_slow_second_network_costs_less_than_a_third() {
    let (fast, slow) = (traced(&[20]), constant("slow", 1, Span::from_millis(120)));
    let alone = single(&fast, 10 * MB);
    let together = both(&fast, &slow, 10 * MB);
    // The last segments on the slow one wait for a timeout, if one of them was lost.
    assert!(together < 1.33 * alone, "{together} {alone}");
}
