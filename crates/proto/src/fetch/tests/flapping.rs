//! A path that comes and goes once a second costs nothing against the steady path alone.

use manyways_unit::{Rate, Span, Time};

use super::MB;
use super::simulation::{Link, Server, Simulation};
use crate::fetch::{Config, PathError, PathErrorKind, PathId, Scheduler};

const HALF: Span = Span::from_millis(500);

fn link(mbps: u64, rtt: u64) -> Link {
    let link = Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    Link { has_slow_start: true, ..link }
}

/// How the path goes.
#[derive(Clone, Copy, Debug)]
enum Absence {
    /// The host sees that its interface is down.
    Interface,
    /// Nothing arrives, and bytes that were sent meanwhile are late.
    Silence,
}

/// A finished download while a path of 10 Mbit/s flaps, beside one of 5 Mbit/s.
fn download(absence: Absence, first: Span) -> Simulation {
    let links = [link(10, 28), link(5, 65)];
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
    let mut at = Time::ZERO + first;
    loop {
        while simulation.now < at {
            if simulation.step(at).is_some() {
                return simulation;
            }
        }
        match absence {
            Absence::Interface => simulation.set_up(PathId(0), false),
            Absence::Silence => simulation.pause(PathId(0), HALF),
        }
        let back = at + HALF;
        while simulation.now < back {
            if simulation.step(back).is_some() {
                return simulation;
            }
        }
        if matches!(absence, Absence::Interface) {
            simulation.set_up(PathId(0), true);
        }
        at = back + HALF;
    }
}

#[test]
fn a_flapping_path_costs_nothing() {
    let single = Config { scheduler: Scheduler::Single, ..Config::default() };
    let alone = Simulation::new(single, Server::of(8 * MB), &[link(5, 65)]).run_to_the_end();
    for absence in [Absence::Interface, Absence::Silence] {
        for first in [100, 200, 300, 400, 500] {
            let simulation = download(absence, Span::from_millis(first));
            simulation.check_file();
            let end = simulation.now;
            assert!(end <= alone, "{absence:?} from {first} ms on: {end}, {alone} alone");
            // The steady path gets its share and, once, the bytes that the other one left.
            let on_steady = simulation.requests().iter().filter(|(path, _)| *path == PathId(1));
            let is_interface = matches!(absence, Absence::Interface);
            assert!(!is_interface || on_steady.count() <= 2, "{:?}", simulation.requests());
            assert!(
                simulation.wasted() < 400_000,
                "{absence:?} from {first} ms on: {} bytes",
                simulation.wasted()
            );
        }
    }
}

/// Two unsteady paths at a time do not fetch the same bytes.
#[test]
fn two_flapping_paths_fetch_different_bytes() {
    let links = [link(10, 28), link(5, 65), link(8, 40)];
    for steady_at in [2_100, 2_200, 2_400] {
        let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
        for at in (300..steady_at).step_by(600) {
            simulation.run_until(Time::from_millis(at));
            simulation.set_up(PathId(0), false);
            simulation.set_up(PathId(2), false);
            simulation.run_until(Time::from_millis(at + 200));
            simulation.set_up(PathId(0), true);
            simulation.set_up(PathId(2), true);
        }
        let before = simulation.wasted();
        simulation.run_to_the_end();
        let wasted = simulation.wasted() - before;
        assert!(wasted < 150_000, "{wasted} bytes, {:?}", simulation.requests());
    }
}

/// While one path is away, the other one gets no credit that could not be withdrawn later.
#[test]
fn credit_remains_limited_while_a_path_is_away() {
    let links = [link(10, 28), link(5, 65)];
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
    simulation.run_until(Time::from_millis(1_000));
    simulation.set_up(PathId(0), false);
    simulation.run_until(Time::from_millis(3_000));
    let window = simulation.window(PathId(1));
    assert!(window < 400_000, "{window} bytes");
}

/// A server without capacity does not make its network unsteady.
#[test]
fn refusals_are_no_losses() {
    for (kind, is_unsteady) in [(PathErrorKind::Reset, true), (PathErrorKind::Unavailable, false)] {
        let links = [link(10, 28), link(5, 65)];
        let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
        for at in [500, 1_500] {
            simulation.run_until(Time::from_millis(at));
            simulation.fail_request(PathId(0), PathError::transient(kind, "it failed"));
        }
        simulation.run_until(Time::from_millis(2_500));
        let piece = simulation.fetch.max_unsteady_piece(simulation.now, PathId(0));
        assert_eq!(piece.is_some(), is_unsteady, "{kind:?}");
    }
}
