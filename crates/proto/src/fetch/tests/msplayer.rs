//! MSPlayer: chunk sizes that follow the measured rates.

use manyways_unit::{Rate, Size, Span, Time};

use super::simulation::{Link, Server, Simulation};
use super::{MB, fluid_bound, ratio, wifi};
use crate::estimate::PathEstimate;
use crate::fetch::{Config, Input, MeteredUse, PathId, Scheduler};

const BASE: u64 = 256 << 10;

fn link(mbps: u64) -> Link {
    Link::new(Rate::from_mbps(mbps), Span::from_millis(40))
}

fn config() -> Config {
    Config { scheduler: Scheduler::MsPlayer, ..Config::default() }
}

fn simulation(length: u64, links: &[Link]) -> Simulation {
    Simulation::new(config(), Server::of(length), links)
}

/// Lengths of the chunks of a path.
fn chunks(simulation: &Simulation, path: usize) -> Vec<u64> {
    let own = simulation.requests().iter().filter(|(id, _)| *id == PathId(path));
    own.map(|(_, range)| range.expect("a range request").len()).collect()
}

/// Part of the file that a path delivered.
fn part(simulation: &Simulation, path: usize) -> f64 {
    let useful = simulation.fetch.stats(simulation.now, PathId(path)).useful;
    useful as f64 / simulation.fetch.done().total() as f64
}

#[test]
fn paths_are_used_in_proportion_to_their_rates() {
    for (a, b) in [(3, 7), (7, 3), (5, 5)] {
        let links = [link(a), link(b)];
        let mut simulation = simulation(20 * MB, &links);
        let took = simulation.run_to_the_end();
        let first = part(&simulation, 0);
        assert!((first - a as f64 / 10.0).abs() < 0.03, "{a} and {b} Mbit/s: {first}");
        // Each path waits a round trip for each of its chunks.
        let ratio = ratio(took, fluid_bound(20 * MB, &links));
        assert!((1.05..1.15).contains(&ratio), "{a} and {b} Mbit/s: {ratio}");
        assert_eq!(simulation.wasted(), 0);
    }
}

#[test]
fn both_paths_take_equally_long_for_a_chunk() {
    let mut simulation = simulation(10 * MB, &[link(3), link(7)]);
    simulation.run_until(Time::from_millis(6_000));
    let (slow, fast) = (chunks(&simulation, 0), chunks(&simulation, 1));
    assert!(slow.iter().all(|chunk| *chunk == BASE), "{slow:?}");
    let last = *fast.last().unwrap() as f64 / BASE as f64;
    // The ratio of the rates is 2.33; the round trip is a larger part of a short chunk.
    assert!((2.1..2.34).contains(&last), "{fast:?}");
}

#[test]
fn the_chunk_of_the_slow_path_doubles_when_it_becomes_faster() {
    let mut simulation = simulation(20 * MB, &[link(2), link(8)]);
    simulation.run_until(Time::from_millis(4_000));
    assert_eq!(chunks(&simulation, 0).last(), Some(&BASE));
    simulation.set_rate(PathId(0), Rate::from_mbps(5));
    simulation.run_until(Time::from_millis(7_000));
    let slow = chunks(&simulation, 0);
    let first = slow.iter().position(|chunk| *chunk > BASE).expect("a larger chunk");
    let doubled = slow[first..].iter().zip(1..).all(|(chunk, n)| *chunk == BASE << n);
    assert!(doubled && slow.len() > first + 1, "{slow:?}");
    let largest = *chunks(&simulation, 1).iter().max().unwrap();
    assert!(largest > slow[first] * 2, "the fast path follows: {largest}");
    simulation.run_to_the_end();
}

#[test]
fn the_chunk_of_the_slow_path_halves_when_it_becomes_slower() {
    let mut simulation = simulation(20 * MB, &[link(4), link(8)]);
    simulation.run_until(Time::from_millis(2_000));
    assert_eq!(chunks(&simulation, 0).last(), Some(&BASE));
    simulation.set_rate(PathId(0), Rate::from_kbps(500));
    simulation.run_to_the_end();
    let slow = chunks(&simulation, 0);
    let first = slow.iter().position(|chunk| *chunk < BASE).expect("a smaller chunk");
    let expected = [BASE / 2, BASE / 4, BASE / 8, BASE / 16, BASE / 16];
    assert_eq!(slow[first..first + expected.len()], expected, "{slow:?}");
}

#[test]
fn one_path_fetches_one_chunk_after_the_other() {
    let mut simulation = simulation(4 * MB, &[wifi()]);
    let took = simulation.run_to_the_end();
    let chunks = chunks(&simulation, 0);
    assert_eq!(chunks.iter().sum::<u64>(), 4 * MB);
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| *chunk == BASE), "{chunks:?}");
    let pauses = Span::from_nanos(wifi().rtt.as_nanos() * (chunks.len() as u64 + 1));
    assert!(took <= Time::ZERO + fluid_bound(4 * MB, &[wifi()]) + pauses, "{took}");

    // Slow start makes the second chunk faster than the first one.
    let slow_start = Link { has_slow_start: true, ..link(20) };
    let mut simulation = self::simulation(4 * MB, &[slow_start]);
    simulation.run_to_the_end();
    assert_eq!(self::chunks(&simulation, 0)[..3], [BASE, BASE, 2 * BASE]);
}

#[test]
fn with_three_paths_two_follow_the_slowest() {
    let links = [link(6), link(2), link(12)];
    let mut simulation = simulation(20 * MB, &links);
    let took = simulation.run_to_the_end();
    for (path, link) in links.iter().enumerate() {
        let expected = link.rate.as_bps() as f64 / 20e6;
        let part = part(&simulation, path);
        assert!((part - expected).abs() < 0.05, "path {path}: {part}");
    }
    assert!(ratio(took, fluid_bound(20 * MB, &links)) < 1.25, "{took}");
}

/// Also with pipelining in the configuration, and with a server that answers several requests.
#[test]
fn a_path_has_one_request_at_a_time() {
    let mut simulation = simulation(4 * MB, &[link(3), link(7)]);
    while simulation.step(Time::MAX).is_none() {
        for path in 0..2 {
            assert!(simulation.fetch.load_of(PathId(path)) <= 1);
        }
    }
    assert_eq!(simulation.cancels(), 0, "no request is cut");
    assert!(simulation.window(PathId(0)) > 2 * MB, "so flow control has no purpose");
}

#[test]
fn a_sequential_connection_is_never_closed_early() {
    let plain = |link| Link { multiplexed: false, ..link };
    let mut simulation = simulation(4 * MB, &[plain(link(3)), plain(link(7))]);
    simulation.run_to_the_end();
    assert_eq!((simulation.cancels(), simulation.wasted()), (0, 0));
}

#[test]
fn the_first_chunks_follow_known_rates() {
    let length = Some(4 * MB);
    let config = Config { length, ..config() };
    let mut simulation = Simulation::new(config, Server::of(4 * MB), &[link(7), link(2)]);
    for (path, mbps) in [7, 2].into_iter().enumerate() {
        let known = PathEstimate { rate: Rate::from_mbps(mbps), rtt: Span::from_millis(40) };
        let known = Some(known);
        let path_up = Input::PathUp { path: PathId(path), metered: false, known };
        simulation.fetch.handle(Time::ZERO, path_up);
    }
    simulation.run_to_the_end();
    assert_eq!(chunks(&simulation, 0)[0], BASE * 7 / 2);
    assert_eq!(chunks(&simulation, 1)[0], BASE);
}

#[test]
fn a_path_that_dies_silently_leaves_its_chunk_to_the_others() {
    for (dying, at) in [(0, 700), (0, 3_000), (1, 700), (1, 3_000)] {
        let dies = Time::from_millis(at);
        let mut links = [link(4), link(8)];
        links[dying].dead_from = Some(dies);
        let mut simulation = simulation(8 * MB, &links);
        let took = simulation.run_to_the_end();
        let remaining = 8 * MB - simulation.done_by(dies);
        let rest = links[1 - dying].rate.time_for(Size::from_bytes(remaining)).as_secs_f64();
        // The surviving path pauses after each chunk, and later becomes the slowest one.
        let after = took.since(dies).as_secs_f64();
        assert!(after <= rest * 1.25 + 1.0, "path {dying} at {dies}: {after:.3} s, {rest:.3} s");
    }
}

#[test]
fn a_path_that_has_left_is_not_followed() {
    let mut simulation = simulation(20 * MB, &[link(3), link(7)]);
    simulation.run_until(Time::from_millis(3_000));
    simulation.set_up(PathId(0), false);
    let last = *chunks(&simulation, 1).last().unwrap();
    simulation.set_rate(PathId(1), Rate::from_mbps(14));
    simulation.run_to_the_end();
    let largest = *chunks(&simulation, 1).iter().max().unwrap();
    assert!(largest >= 4 * last, "{largest} after {last}");
}

#[test]
fn a_path_that_leaves_and_returns_keeps_its_estimate() {
    let mut simulation = simulation(12 * MB, &[link(3), link(7)]);
    simulation.run_until(Time::from_millis(3_000));
    simulation.set_up(PathId(0), false);
    simulation.run_until(Time::from_millis(5_000));
    let before = chunks(&simulation, 1).len();
    simulation.set_up(PathId(0), true);
    simulation.run_to_the_end();
    let fast = &chunks(&simulation, 1)[before..];
    let follows = fast.iter().filter(|chunk| (2 * BASE..3 * BASE).contains(*chunk)).count();
    assert!(follows >= 2, "{fast:?}");
}

#[test]
fn a_metered_path_keeps_to_its_allowance() {
    let limit = Size::from_bytes(700_000);
    let config = Config { metered: MeteredUse::Limit(limit), ..config() };
    let metered = Link { metered: true, ..link(7) };
    let mut simulation = Simulation::new(config, Server::of(8 * MB), &[link(3), metered]);
    simulation.run_to_the_end();
    assert_eq!(simulation.fetch.metered_bytes(), limit);
}
