//! Paths whose last bytes are late.

use manyways_unit::{Rate, Size, Span, Time};

use super::MB;
use super::simulation::{Link, Reader, Server, Simulation};
use crate::fetch::{Config, PathError, PathErrorKind, PathId, Scheduler};

const PAUSE: Span = Span::from_millis(450);

fn links() -> [Link; 2] {
    let link = |mbps, rtt| Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    [link(11, 28), link(25, 64)]
}

/// A path loses a burst near the end, and takes 450 ms to recover it.
#[test]
fn an_idle_path_races_against_a_late_one() {
    let undisturbed =
        Simulation::new(Config::default(), Server::of(4 * MB), &links()).run_to_the_end();
    for path in [0, 1] {
        for before in (5..120).step_by(5) {
            let mut links = links();
            let from = undisturbed - Span::from_millis(before);
            links[path].pause = Some((from, from + PAUSE));
            let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &links);
            simulation.run_until(from);
            let remaining = 4 * MB - simulation.fetch.done().total();
            // A piece of another race, and one on the way back.
            let max_wasted = simulation.wasted() + remaining + 16_000;
            let end = simulation.run_to_the_end();
            // Half the time of the race, the race, and the shortest delay that counts.
            let other = links[1 - path];
            let race = other.rtt + other.rate.time_for(Size::from_bytes(remaining));
            let most =
                undisturbed + Span::from_nanos(race.as_nanos() * 3 / 2) + Span::from_millis(60);
            assert!(
                end <= most,
                "path {path} paused {before} ms before {undisturbed}: {end}, at most {most}"
            );
            let wasted = simulation.wasted();
            assert!(wasted <= max_wasted, "path {path} paused {before} ms before: {wasted} bytes");
        }
    }
}

/// Both paths deliver at the expected rates, so nothing is requested twice.
#[test]
fn paths_in_time_are_not_raced_against() {
    for bytes in [MB, 4 * MB, 20 * MB] {
        let mut simulation = Simulation::new(Config::default(), Server::of(bytes), &links());
        simulation.run_to_the_end();
        let wasted = simulation.wasted();
        assert!(wasted * 100 < bytes, "{wasted} bytes of {bytes}");
    }
}

/// The network that connects first receives nothing for a second.
#[test]
fn another_path_repeats_a_first_request_without_an_answer() {
    for length in [MB, 8 * MB] {
        let single = Config { scheduler: Scheduler::Single, ..Config::default() };
        let other = Simulation::new(single, Server::of(length), &links()[1..]).run_to_the_end();
        let mut links = links();
        links[0].pause = Some((Time::from_millis(30), Time::from_millis(1_000)));
        let mut simulation = Simulation::new(Config::default(), Server::of(length), &links);
        let end = simulation.run_to_the_end();
        // The answer is late after 128 ms, and the windows of several paths begin small.
        assert!(end <= other + Span::from_millis(200), "{end}, {other} over the other path alone");
        let first: Vec<_> = simulation.requests().iter().take(2).copied().collect();
        assert_eq!(first, [(PathId(0), None), (PathId(1), None)]);
        // The silent path gets no other request until its answer comes, which is cancelled.
        let on_silent = simulation.requests().iter().filter(|(path, _)| *path == PathId(0));
        assert!(length > MB || on_silent.count() == 1, "{:?}", simulation.requests());
        assert!(simulation.wasted() < 150_000, "{}", simulation.wasted());
    }
}

/// Slow servers are not silent paths: no request is repeated but the first one.
#[test]
fn a_server_that_thinks_is_not_raced_against() {
    for thinks in [100, 300, 600] {
        let thinks = Span::from_millis(thinks);
        let server = Server { thinks, ..Server::of(8 * MB) };
        let mut simulation = Simulation::new(Config::default(), server, &links());
        simulation.run_to_the_end();
        assert!(simulation.wasted() < 160_000, "{thinks}: {} bytes", simulation.wasted());
    }
}

/// An answer in time, although the server takes 80 ms to think: the request is not repeated.
#[test]
fn a_first_request_is_not_repeated_too_early() {
    let mut links = links();
    links[0].pause = Some((Time::from_millis(30), Time::from_millis(136)));
    let mut simulation = Simulation::new(Config::default(), Server::of(MB), &links);
    simulation.run_to_the_end();
    let plain = simulation.requests().iter().filter(|(_, range)| range.is_none());
    assert_eq!(plain.count(), 1);
}

/// Two paths owe their last bytes at the same time, and a third one fetches both.
#[test]
fn one_path_races_against_two() {
    let link = |mbps, rtt| Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    let all = [link(20, 50), link(4, 30), link(3, 40)];
    let undisturbed = Simulation::new(Config::default(), Server::of(2 * MB), &all).run_to_the_end();
    for before in (10..100).step_by(10) {
        let from = undisturbed - Span::from_millis(before);
        let mut links = all;
        links[1].pause = Some((from, from + PAUSE));
        links[2].pause = Some((from, from + PAUSE));
        let mut simulation = Simulation::new(Config::default(), Server::of(2 * MB), &links);
        let end = simulation.run_to_the_end();
        assert!(end <= undisturbed + Span::from_millis(150), "{before} ms: {end}, {undisturbed}");
    }
}

/// After a race was lost, the path still answers no PING, and gets no other bytes.
#[test]
fn a_silent_path_is_not_used() {
    let mut links = links().to_vec();
    links.push(Link::new(Rate::from_mbps(8), Span::from_millis(40)));
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &links);
    simulation.run_until(Time::from_millis(400));
    simulation.set_dead(PathId(1), true);
    simulation.run_until(Time::from_millis(700));
    let before = simulation.requests().len();
    simulation.fail_request(PathId(2), PathError::transient(PathErrorKind::Reset, "broke"));
    simulation.run_to_the_end();
    let later: Vec<_> = simulation.requests()[before..].to_vec();
    assert!(later.iter().all(|(path, _)| *path != PathId(1)), "{later:?}");
}

/// A path takes over bytes for which the server of a slower path has credit, and dies. The slower
/// path receives them without another request.
#[test]
fn bytes_with_credit_arrive_although_another_path_took_them_over() {
    let link = |mbps, rtt| Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    let mut simulation =
        Simulation::new(Config::default(), Server::of(400_000), &[link(1, 20), link(20, 40)]);
    let taken_over = |simulation: &Simulation| simulation.requests().len() > 2;
    while !taken_over(&simulation) {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    simulation.set_dead(PathId(1), true);
    simulation.run_to_the_end();
    // Most of the credit of a new request.
    let credit = 64 << 10;
    let on_slower = simulation.requests().iter().filter(|(path, _)| *path == PathId(0));
    let mut later = on_slower.filter_map(|(_, range)| *range);
    assert!(later.all(|range| range.start >= credit), "{:?}", simulation.requests());
}

/// Servers may stop to answer PINGs, for example because there were too many. The path is used again
/// after each pause of the reader.
#[test]
fn a_path_without_answers_to_pings_is_used() {
    let run = |ignores_pings: bool| {
        let config = Config { read_ahead: Some(500_000), ..Config::default() };
        let mut simulation = Simulation::new(config, Server::of(8 * MB), &links());
        let (pause, max_read) = (Span::from_millis(600), MB / 2);
        simulation.reader = Some(Reader { pause, max_read, consumed: 0, next: Time::ZERO });
        simulation.run_until(Time::from_millis(1_000));
        if ignores_pings {
            simulation.ignores_pings.insert(PathId(1));
        }
        simulation.run_to_the_end();
        simulation.fetch.stats(simulation.now, PathId(1)).useful
    };
    let (without, with) = (run(true), run(false));
    assert!(without * 10 > with * 9, "{without} bytes, {with} with answers");
}

/// A path loses its bytes and its last PING, and another one fetches what it owes. When the others
/// disappear, the path is used again after a while, although nothing else happens.
#[test]
fn a_silent_path_is_used_again() {
    let link = |mbps, rtt| Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    let links = [link(4, 40), link(1, 100), link(20, 30)];
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &links);
    simulation.run_until(Time::from_millis(900));
    simulation.set_dead(PathId(1), true);
    while simulation.open_requests(PathId(1)) > 0 {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    simulation.set_dead(PathId(1), false);
    simulation.ignores_pings.insert(PathId(1));
    simulation.set_up(PathId(0), false);
    simulation.set_up(PathId(2), false);
    let (lost, before) = (simulation.now, simulation.requests().len());
    while simulation.requests().len() == before {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    let after = simulation.now.since(lost);
    let bounds = Span::from_millis(500)..Span::from_millis(2_000);
    assert!(bounds.contains(&after), "{after}");
    simulation.run_to_the_end();
}
