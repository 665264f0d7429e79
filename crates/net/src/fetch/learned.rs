//! Rates and round trips of networks, which one transfer leaves to the next one of the same run.

use std::collections::HashMap;
use std::sync::Arc;

use manyways_proto::estimate::PathEstimate;
use manyways_unit::{Rate, Size, Span};

use super::path_estimates::MIN_BYTES;
use super::report::{PathReport, Report};
use super::{Client, PathSpec};

/// A path that received less shows no rate.
const MIN_MEASURED: Size = Size::from_bytes(50_000);

/// The latest estimate of each path, by its name.
#[derive(Default)]
pub(crate) struct Learned(HashMap<String, PathEstimate>);

impl Learned {
    /// The estimates that a client has from earlier runs.
    pub fn of(client: &Client) -> Self {
        let known = client.paths.iter();
        Self(known.filter_map(|path| Some((path.name.clone(), path.estimate?))).collect())
    }

    /// Prepares a client for its next transfer to a player, which takes the bytes in order.
    pub fn prepare(&self, client: &mut Client) {
        client.set_estimates(|path| self.0.get(path).copied());
        client.config.first_read_ahead = Some(first_read_ahead(&client.paths).as_bytes());
    }

    /// Learns from a transfer. `rates` are the latest estimated rates of its paths.
    pub fn observe(&mut self, report: &Report, rates: &[(String, Rate)]) {
        for path in &report.paths {
            let rate = rates.iter().find(|(name, _)| *name == path.name).map(|(_, rate)| *rate);
            let previous = self.0.get(&path.name).copied();
            if let Some(estimate) = next_estimate(previous, path, rate) {
                self.0.insert(path.name.clone(), estimate);
            }
        }
    }
}

/// So far ahead of the player the networks may be at the beginning of an object: as far as they come in
/// this time, if their rates are known. Players (those with the rule of dash.js) look after half a second
/// whether a segment comes too slowly.
fn first_read_ahead(paths: &[Arc<PathSpec>]) -> Size {
    const TIME: Span = Span::from_millis(300);
    const LEAST: Size = Size::from_kib(256);
    let rate: Rate = paths.iter().filter_map(|path| Some(path.estimate?.rate)).sum();
    rate.size_in(TIME).max(LEAST)
}

/// The estimate with which a path begins its next transfer. Short transfers show less than the
/// estimates of `get` need, but here the next transfer follows within seconds.
fn next_estimate(
    previous: Option<PathEstimate>,
    path: &PathReport,
    rate: Option<Rate>,
) -> Option<PathEstimate> {
    let rtt = path.rtt.or(previous.map(|previous| previous.rtt))?;
    let rate = rate.filter(|_| path.bytes >= MIN_MEASURED);
    // The average includes the start, and the estimate falls while a network is silent.
    let average = (path.bytes >= MIN_BYTES).then_some(path.rate);
    let measured = rate.max(average).filter(|rate| !rate.is_zero());
    let rate = measured.or(previous.map(|previous| previous.rate))?;
    Some(PathEstimate { rate, rtt })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A path that received so much at 4 Mbit/s.
    pub(crate) fn path(bytes: u64, rtt: Option<Span>) -> PathReport {
        PathReport {
            name: "wifi".into(),
            metered: false,
            limit_reached: false,
            server: None,
            protocol: None,
            bytes: Size::from_bytes(bytes),
            requests: 1,
            rate: Rate::from_mbps(4),
            rtt,
            overshoot: Size::ZERO,
            duplicate: Size::ZERO,
        }
    }

    #[test]
    fn a_player_is_a_third_of_a_second_behind_the_networks() {
        let path = |mbps: Option<u64>| {
            let mut spec = PathSpec::from_address("wifi", [127, 0, 0, 1].into());
            let rtt = Span::from_millis(30);
            spec.estimate = mbps.map(|mbps| PathEstimate { rate: Rate::from_mbps(mbps), rtt });
            Arc::new(spec)
        };
        let of = |all: [Option<u64>; 2]| first_read_ahead(&all.map(path)).as_bytes();
        assert_eq!(of([Some(50), Some(30)]), 3_000_000);
        assert_eq!((of([None, None]), of([Some(1), None])), (262_144, 262_144));
    }

    #[test]
    fn a_path_without_new_bytes_keeps_its_estimate() {
        let (old, rtt) = (Span::from_millis(50), Span::from_millis(30));
        let previous = PathEstimate { rate: Rate::from_mbps(9), rtt: old };
        let next = |bytes, rtt, rate| {
            let next = next_estimate(Some(previous), &path(bytes, rtt), rate).unwrap();
            (next.rate, next.rtt)
        };
        let [four, six, nine] = [4, 6, 9].map(Rate::from_mbps);
        assert_eq!(next(0, None, None), (nine, old));
        assert_eq!(next(0, Some(rtt), Some(six)), (nine, rtt));
        assert_eq!(next(100_000, Some(rtt), Some(six)), (six, rtt));
        assert_eq!(next(100_000, Some(rtt), None), (nine, rtt));
        assert_eq!(next(300_000, Some(rtt), None), (four, rtt));
        assert_eq!(next_estimate(None, &path(0, Some(rtt)), None), None);
        assert_eq!(next_estimate(None, &path(300_000, None), Some(six)), None);
    }
}
