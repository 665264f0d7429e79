//! The table: one row per transfer, with the indicators of both networks before it.

use manyways_model::select::{Choice, Indicator};
use manyways_unit::{Span, Time};

use super::features::indicators;
use super::place::{NETWORKS, Place};
use crate::virtual_tcp::{Growth, Order, PATIENCE, Way, download_over_both, transfer};

/// The choices, with their names.
const CHOICES: [(&str, Choice); 4] = [
    ("wifi", Choice::Only(0)),
    ("lte", Choice::Only(1)),
    ("wifi+lte", Choice::Both(0, 1)),
    ("lte+wifi", Choice::Both(1, 0)),
];
/// Bytes of the transfers (the specification of `steer`; they count equally).
pub const SIZES: [usize; 5] = [3_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Round trips before the request.
const HANDSHAKES: usize = 1;

/// The header: place, group, second of the decision, choice, bytes, seconds until the last one, and
/// all indicators of Wi-Fi and LTE, empty if unknown.
pub fn header() -> String {
    let mut text = "place,group,second,choice,size,seconds".to_owned();
    for network in NETWORKS {
        for indicator in Indicator::ALL {
            text += &format!(",{network}.{}", indicator.name());
        }
    }
    text + "\n"
}

/// The rows of a place.
pub fn rows(place: &Place) -> String {
    let mut text = String::new();
    // Mbit/s of the burst at the decision before.
    let mut before = [None; 2];
    for second in place.decisions() {
        let mut cells = String::new();
        let networks = place.links.iter().zip(&place.signals).zip(&mut before);
        for ((link, signals), before) in networks {
            let mut known = indicators(link, signals, Span::from_secs(second));
            let rate = known.iter().find(|(indicator, _)| *indicator == Indicator::UdpRate);
            let rate = rate.map(|(_, rate)| *rate);
            known.extend(before.map(|rate| (Indicator::UdpRateBefore, rate)));
            *before = rate;
            for indicator in Indicator::ALL {
                let value = known.iter().find(|one| one.0 == indicator).map(|one| one.1);
                cells += &value.map_or(",".to_owned(), |value| format!(",{value:.6}"));
            }
        }
        for (name, choice) in CHOICES {
            for size in SIZES {
                let took = seconds(place, second, choice, size);
                let Place { name: place, group, .. } = place;
                text += &format!("{place},{group},{second},{name},{size},{took:.6}{cells}\n");
            }
        }
    }
    text
}

/// Seconds from the decision to the last byte: a round trip of the handshake, that of the request,
/// and the bytes. A transfer that is not complete after [`PATIENCE`] counts as that long.
pub fn seconds(place: &Place, second: u64, choice: Choice, bytes: usize) -> f64 {
    let position = Span::from_secs(second);
    let took = match choice {
        Choice::Only(network) => {
            let order =
                Order { way: Way::Down, bytes, exchanges: HANDSHAKES, growth: Growth::Cubic };
            let done = transfer(&place.links[network], position, Time::ZERO, order);
            let last = done.arrivals.last().filter(|_| done.is_complete);
            last.map(|(at, _)| at.since(Time::ZERO))
        }
        Choice::Both(first, second) => {
            download_over_both([&place.links[first], &place.links[second]], position, bytes)
        }
    };
    took.unwrap_or(PATIENCE).min(PATIENCE).as_secs_f64()
}
