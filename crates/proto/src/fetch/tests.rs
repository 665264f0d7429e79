//! The core with simulated servers and links, in virtual time.

mod credit;
mod doubt;
mod errors;
mod excerpts;
mod flapping;
mod idle_timeout;
mod msplayer;
mod overdue;
mod promise;
mod random;
mod read_ahead;
mod retries;
mod simulation;
mod states;
mod verification;
mod withheld;

use manyways_unit::{Rate, Size, Span, Time};

use super::{Config, FetchFailure, Input, MeteredUse, Note, PathId};
use simulation::{Link, RunOutcome, Server, Simulation};

const MB: u64 = 1_000_000;

fn wifi() -> Link {
    Link::new(Rate::from_mbps(10), Span::from_millis(28))
}

fn lte() -> Link {
    Link::new(Rate::from_mbps(5), Span::from_millis(65))
}

/// Time of a transfer with all links at full rate, plus the smallest request delay.
fn fluid_bound(bytes: u64, links: &[Link]) -> Span {
    let sum: Rate = links.iter().map(|link| link.rate).sum();
    let delay = links.iter().map(|link| link.rtt).min().unwrap_or_default();
    sum.time_for(Size::from_bytes(bytes)) + delay
}

fn ratio(took: Time, bound: Span) -> f64 {
    took.as_secs_f64() / bound.as_secs_f64()
}

#[test]
fn one_path_takes_one_request() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi()]);
    let took = simulation.run_to_the_end();
    assert_eq!(simulation.requests(), [(PathId(0), None)]);
    // One round trip for the connection, and one for the request.
    let bound = fluid_bound(8 * MB, &[wifi()]) + wifi().rtt;
    assert!(ratio(took, bound) < 1.01, "{took} against {bound}");
    assert_eq!(simulation.wasted(), 0);
}

#[test]
fn two_paths_end_near_the_fluid_bound() {
    for (bytes, max) in [(MB, 1.15), (2 * MB, 1.1), (8 * MB, 1.06), (20 * MB, 1.06)] {
        let links = [wifi(), lte()];
        let mut simulation = Simulation::new(Config::default(), Server::of(bytes), &links);
        let took = simulation.run_to_the_end();
        let bound = fluid_bound(bytes, &links) + wifi().rtt;
        let ratio = ratio(took, bound);
        assert!(ratio < max, "{bytes} bytes: {took} is {ratio:.3} of {bound}");
    }
}

#[test]
fn three_paths_are_faster_than_two() {
    let links = [wifi(), lte(), Link::new(Rate::from_mbps(20), Span::from_millis(40))];
    let two = Simulation::new(Config::default(), Server::of(8 * MB), &links[..2]).run_to_the_end();
    let three = Simulation::new(Config::default(), Server::of(8 * MB), &links).run_to_the_end();
    assert!(three.as_secs_f64() < 0.55 * two.as_secs_f64(), "{three} against {two}");
}

#[test]
fn a_far_slower_path_does_not_hold_the_end_up() {
    let fast = Link::new(Rate::from_mbps(50), Span::from_millis(28));
    let slow = Link::new(Rate::from_kbps(500), Span::from_millis(200));
    let alone = Simulation::new(Config::default(), Server::of(20 * MB), &[fast]).run_to_the_end();
    // A slow preferred path costs its own start, and a fast path waits once per chunk.
    let pauses = 20.0 * fast.rtt.as_secs_f64();
    for (links, start) in [([fast, slow], 0.0), ([slow, fast], 0.4 + pauses)] {
        let both = Simulation::new(Config::default(), Server::of(20 * MB), &links).run_to_the_end();
        assert!(
            both.as_secs_f64() < 1.02 * alone.as_secs_f64() + start,
            "{both} with the slow path, {alone} without"
        );
    }
}

#[test]
fn the_first_get_is_cancelled_once_where_it_meets_the_others() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.run_to_the_end();
    let plain = simulation.requests().iter().filter(|(_, range)| range.is_none()).count();
    assert_eq!(plain, 1);
    assert!(simulation.cancels() <= 6, "{} cancels", simulation.cancels());
    assert!(simulation.wasted() < 300_000, "{} bytes wasted", simulation.wasted());
}

#[test]
fn a_dead_preferred_path_does_not_block_the_start() {
    let dead = Link { dead_from: Some(Time::ZERO), ..wifi() };
    let mut simulation = Simulation::new(Config::default(), Server::of(MB), &[dead, lte()]);
    let took = simulation.run_to_the_end();
    let alone = fluid_bound(MB, &[lte()]) + lte().rtt + Span::from_millis(250);
    assert!(took <= Time::ZERO + alone + Span::from_millis(50), "{took} against {alone}");
}

#[test]
fn a_path_that_dies_silently_costs_little() {
    for at in [100, 700, 1_500, 3_000] {
        let dies = Time::from_millis(at);
        let links = [wifi(), Link { dead_from: Some(dies), ..lte() }];
        let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
        let took = simulation.run_to_the_end();
        let remaining = 8 * MB - simulation.done_by(dies);
        let bound = wifi().rate.time_for(Size::from_bytes(remaining)).as_secs_f64() * 1.05 + 0.5;
        let after = took.since(dies).as_secs_f64();
        assert!(after <= bound, "dead at {dies}: {after:.3} s, bound {bound:.3} s");
    }
}

#[test]
fn the_first_path_may_die_silently_too() {
    for at in [10, 60, 500, 3_000] {
        let dies = Time::from_millis(at);
        let links = [Link { dead_from: Some(dies), ..wifi() }, lte()];
        let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &links);
        let took = simulation.run_to_the_end();
        let remaining = 4 * MB - simulation.done_by(dies);
        let bound = lte().rate.time_for(Size::from_bytes(remaining)).as_secs_f64() * 1.05 + 0.5;
        // Before the first response the object is unknown: only the idle timeout helps.
        let bound = if at < 60 { bound + 5.5 } else { bound };
        let after = took.since(dies).as_secs_f64();
        assert!(after <= bound, "dead at {dies}: {after:.3} s, bound {bound:.3} s");
    }
}

#[test]
fn metered_paths_keep_to_their_allowance() {
    let metered = Link { metered: true, ..lte() };
    let limit = Size::from_bytes(700_000);
    let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
    let mut simulation = Simulation::new(config, Server::of(8 * MB), &[metered, wifi()]);
    simulation.run_to_the_end();
    assert_eq!(simulation.fetch.metered_bytes(), limit);
    // The first request uses the unmetered path.
    assert_eq!(simulation.requests()[0], (PathId(1), None));

    let config = Config { metered: MeteredUse::Forbidden, ..Config::default() };
    let mut simulation = Simulation::new(config, Server::of(MB), &[wifi(), metered]);
    simulation.run_to_the_end();
    assert!(simulation.requests().iter().all(|(path, _)| *path == PathId(0)));
}

#[test]
fn no_share_exceeds_the_allowance() {
    let metered = Link { metered: true, ..lte() };
    for limit in (5_000..400_000).step_by(5_000).map(Size::from_bytes) {
        for bytes in [MB / 2, 2 * MB] {
            let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
            let mut simulation = Simulation::new(config, Server::of(bytes), &[metered, wifi()]);
            simulation.run_to_the_end();
            let used = simulation.fetch.metered_bytes();
            assert!(used <= limit, "{bytes} bytes: {used} of {limit}");
        }
    }
}

#[test]
fn metered_paths_share_their_allowance() {
    let metered = Link { metered: true, ..lte() };
    let limit = Size::from_bytes(1_500_000);
    let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
    let mut simulation = Simulation::new(config, Server::of(8 * MB), &[wifi(), metered, metered]);
    simulation.run_to_the_end();
    assert_eq!(simulation.fetch.metered_bytes(), limit);
}

#[test]
fn an_allowance_that_is_spent_ends_a_metered_download() {
    let metered = Link { metered: true, ..lte() };
    for limit in [0, 1, 700_000] {
        let limit = Size::from_bytes(limit);
        let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
        let mut simulation = Simulation::new(config, Server::of(8 * MB), &[metered]);
        assert_eq!(simulation.run(), RunOutcome::Failed(FetchFailure::MeteredLimitReached));
        assert_eq!(simulation.fetch.metered_bytes(), limit);
        assert_eq!(simulation.fetch.is_resumable(), !limit.is_zero());
        assert!(simulation.fetch.is_limit_reached(PathId(0)));
        let missing = Size::from_bytes(8 * MB);
        let note = Note::OverLimit { missing, remaining: limit };
        assert_eq!(simulation.notes(), if limit.is_zero() { vec![] } else { vec![note] });
    }
}

#[test]
fn an_allowance_that_does_not_suffice_is_reported_when_only_metered_paths_are_left() {
    let metered = Link { metered: true, ..lte() };
    let limit = Size::from_bytes(700_000);
    let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
    let mut simulation = Simulation::new(config.clone(), Server::of(8 * MB), &[wifi(), metered]);
    simulation.run_until(Time::from_millis(2_000));
    assert_eq!(simulation.notes(), []);
    assert!(simulation.fetch.is_limit_reached(PathId(1)));
    assert!(!simulation.fetch.is_limit_reached(PathId(0)));

    let mut simulation = Simulation::new(config.clone(), Server::of(8 * MB), &[wifi(), metered]);
    simulation.run_until(Time::from_millis(500));
    simulation.fetch.handle(simulation.now, Input::PathDown { path: PathId(0) });
    simulation.run_until(Time::from_millis(1_000));
    let [Note::OverLimit { missing, remaining }] = simulation.notes() else {
        panic!("{:?}", simulation.notes())
    };
    assert!(*remaining < limit && missing > remaining, "{missing} {remaining}");

    let mut simulation = Simulation::new(config, Server::of(MB / 2), &[metered]);
    simulation.run_to_the_end();
    assert_eq!(simulation.notes(), []);
}

#[test]
fn without_ranges_one_path_is_used_and_it_is_said() {
    for server in [
        Server { accept_ranges: false, ..Server::of(2 * MB) },
        Server { ranges: false, ..Server::of(2 * MB) },
    ] {
        let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
        simulation.run_to_the_end();
        assert_eq!(simulation.notes(), [Note::NoRanges]);
        assert_eq!(simulation.fetch.stats(Time::ZERO, PathId(1)).useful, 0);
        assert!(!simulation.fetch.is_resumable());
    }
}

#[test]
fn without_a_validator_or_a_length_one_path_is_used() {
    let server = Server { validator: None, ..Server::of(2 * MB) };
    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
    simulation.run_to_the_end();
    assert_eq!(simulation.notes(), [Note::NoValidator]);
    let server = Server { sends_length: false, ..Server::of(2 * MB) };
    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
    simulation.run_to_the_end();
    assert_eq!(simulation.notes(), [Note::NoLength]);
    assert_eq!(simulation.requests().len(), 1);
}

#[test]
fn an_empty_object_is_done_at_once() {
    for config in [
        Config::default(),
        Config { metered: MeteredUse::Limit(Size::from_mib(1)), ..Config::default() },
    ] {
        let metered = Link { metered: true, ..wifi() };
        let mut simulation = Simulation::new(config, Server::of(0), &[metered, metered]);
        simulation.run_to_the_end();
        assert_eq!(simulation.requests().len(), 1);
    }
}

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let mut first = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    first.run_until(Time::from_millis(2_000));
    let done = first.fetch.done().clone();
    assert!(done.total() > MB);
    let object = first.fetch.object().cloned().unwrap();
    let config = Config { resume: Some((object, done.clone())), ..Config::default() };
    let mut second = Simulation::new(config.clone(), Server::of(8 * MB), &[wifi(), lte()]);
    second.write_existing(&done);
    second.run_to_the_end();
    let useful = |path| second.fetch.stats(Time::ZERO, PathId(path)).useful;
    assert_eq!(useful(0) + useful(1) + done.total(), 8 * MB);

    let changed = Server { version: 2, ..Server::of(8 * MB) };
    let mut third = Simulation::new(config, changed, &[wifi(), lte()]);
    assert_eq!(third.run(), RunOutcome::Failed(FetchFailure::Changed));
    assert_eq!(third.fetch.done(), &done);
}
