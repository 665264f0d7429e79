//! A part of an object is fetched over all paths, and no byte outside it is requested.

use manyways_unit::Time;
use proptest::prelude::*;

use super::simulation::{Link, RunOutcome, Server, Simulation};
use super::{MB, lte, wifi};
use crate::fetch::{Config, Excerpt, FetchFailure, Note, PathId, Range, Scheduler};

fn config(start: u64, end: Option<u64>) -> Config {
    Config { excerpt: Some(Excerpt { start, end }), ..Config::default() }
}

fn assert_inside(simulation: &Simulation, start: u64, end: u64) {
    for (_, range) in simulation.requests() {
        let range = range.expect("a request for the whole object");
        assert!(range.start >= start && range.end <= end, "{range:?}");
    }
}

#[test]
fn both_paths_share_a_part() {
    for (end, length) in [(Some(6 * MB), None), (Some(6 * MB), Some(5 * MB)), (None, None)] {
        let config = Config { length, ..config(MB, end) };
        let mut simulation = Simulation::new(config, Server::of(8 * MB), &[wifi(), lte()]);
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        let end = end.unwrap_or(8 * MB);
        simulation.check_part(Range::new(MB, end));
        if length.is_some() {
            assert_inside(&simulation, MB, end);
        }
        for path in [PathId(0), PathId(1)] {
            assert!(simulation.fetch.stats(simulation.now, path).useful > MB);
        }
        let known = simulation.fetch.object().and_then(|object| object.length);
        assert_eq!(known, Some(end - MB));
        assert_eq!(simulation.notes(), []);
    }
}

#[test]
fn an_end_past_the_object_is_the_end_of_the_object() {
    for length in [None, Some(3 * MB)] {
        let config = Config { length, ..config(MB, Some(4 * MB)) };
        let mut simulation = Simulation::new(config, Server::of(2 * MB), &[wifi(), lte()]);
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        simulation.check_part(Range::new(MB, 2 * MB));
    }
}

#[test]
fn a_start_past_the_object_is_refused() {
    for server in [Server::of(MB), Server::of(0)] {
        let mut simulation = Simulation::new(config(MB, Some(2 * MB)), server, &[wifi(), lte()]);
        let refused = RunOutcome::Failed(FetchFailure::Status(416));
        assert_eq!(simulation.run_unchecked(), refused);
    }
}

#[test]
fn a_server_that_ignores_ranges_ends_the_fetch_before_a_byte() {
    let server = Server { ranges: false, ..Server::of(2 * MB) };
    for scheduler in [Scheduler::MpH2, Scheduler::Single] {
        let config = Config { scheduler, ..config(MB, None) };
        let mut simulation = Simulation::new(config, server.clone(), &[wifi(), lte()]);
        assert_eq!(simulation.run_unchecked(), RunOutcome::Failed(FetchFailure::RangesIgnored));
        assert!(simulation.fetch.done().is_empty());
    }
}

#[test]
fn a_path_whose_server_ignores_ranges_is_dropped() {
    let mut simulation =
        Simulation::new(config(MB, Some(7 * MB)), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.servers[1].ranges = false;
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    simulation.check_part(Range::new(MB, 7 * MB));
    assert_eq!(simulation.fetch.stats(Time::ZERO, PathId(1)).useful, 0);
}

#[test]
fn without_a_validator_one_path_delivers_the_part() {
    let server = Server { validator: None, ..Server::of(2 * MB) };
    for length in [None, Some(MB)] {
        let config = Config { length, ..config(MB / 2, Some(3 * MB / 2)) };
        let mut simulation = Simulation::new(config, server.clone(), &[wifi(), lte()]);
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        simulation.check_part(Range::new(MB / 2, 3 * MB / 2));
        assert_eq!(simulation.notes(), [Note::NoValidator]);
    }
}

fn link() -> impl Strategy<Value = Link> {
    (20u64..5_000, 1u64..400, any::<bool>()).prop_map(|(kbps, rtt, multiplexed)| Link {
        multiplexed,
        ..Link::new(manyways_unit::Rate::from_kbps(kbps), manyways_unit::Span::from_millis(rtt))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_byte_of_the_part_once(
        links in prop::collection::vec(link(), 1..4),
        length in 1u64..120_000,
        start in 0u64..120_000,
        part in prop_oneof![Just(None), (1u64..120_000).prop_map(Some)],
        is_known in any::<bool>(),
        chunk in prop_oneof![2 => Just(None), 1 => (1_000u64..60_000).prop_map(Some)],
        breaks in prop::collection::vec((0usize..3, 0u64..4, 0u64..50_000), 0..4),
    ) {
        let end = part.map(|part| start + part);
        let scheduler = chunk.map_or(Scheduler::MpH2, |chunk| {
            Scheduler::FixedChunk(manyways_unit::Size::from_bytes(chunk))
        });
        let config = Config { scheduler, length: part.filter(|_| is_known), ..config(start, end) };
        let mut simulation = Simulation::new(config, Server::of(length), &links);
        for (path, count, after) in breaks {
            simulation.failures.insert((PathId(path), count), after);
        }
        let outcome = simulation.run_unchecked();
        if start < length {
            prop_assert_eq!(outcome, RunOutcome::Done);
            simulation.check_part(Range::new(start, end.unwrap_or(length).min(length)));
        } else {
            prop_assert_eq!(outcome, RunOutcome::Failed(FetchFailure::Status(416)));
        }
    }
}
