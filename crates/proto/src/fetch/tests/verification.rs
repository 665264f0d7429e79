//! Objects that the server overwrites in place during the download.

use manyways_unit::{Rate, Span, Time};

use super::simulation::{Link, RunOutcome, Server, Simulation};
use super::{MB, fluid_bound, lte, ratio, wifi};
use crate::fetch::{Config, FetchFailure, Note, PathId, VersionProof};

/// Changes the object on the server of all paths.
fn change(simulation: &mut Simulation) {
    for server in &mut simulation.servers {
        server.version = 2;
    }
}

#[test]
fn an_object_that_changes_in_place_is_fetched_again() {
    for links in [&[wifi(), lte()][..], &[wifi()]] {
        let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), links);
        simulation.run_until(Time::from_millis(1_500));
        change(&mut simulation);
        simulation.run_to_the_end();
        assert_eq!(simulation.fetch.version_proof(), Some(VersionProof::Verified));
        assert_eq!((simulation.restarts, simulation.notes()), (1, &[Note::Changed][..]));
        assert!(simulation.fetch.is_renewed());
    }
}

/// Whenever the object changes, also in the last round trip. The transfers take more than a second.
#[test]
fn no_change_leads_to_a_mixture() {
    const LENGTH: u64 = 400_000;
    let slow = |kbps, rtt| Link::new(Rate::from_kbps(kbps), Span::from_millis(rtt));
    let sequential = |link: Link| Link { multiplexed: false, ..link };
    for links in [
        vec![slow(1_000, 30), slow(500, 70)],
        vec![slow(1_000, 30)],
        vec![slow(2_000, 100), slow(2_000, 10), slow(300, 20)],
        vec![sequential(slow(1_000, 30)), sequential(slow(500, 70))],
        vec![slow(1_000, 30), sequential(slow(500, 70))],
    ] {
        let took = Simulation::new(Config::default(), Server::of(LENGTH), &links).run_to_the_end();
        let (mut renewed, mut at) = (0, Time::ZERO);
        while at < took {
            let mut simulation = Simulation::new(Config::default(), Server::of(LENGTH), &links);
            simulation.run_until(at);
            change(&mut simulation);
            assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
            assert!(simulation.is_one_version(), "{links:?}: changed at {at} of {took}");
            renewed += simulation.restarts;
            at += Span::from_millis(7);
        }
        assert!(renewed > 10, "{links:?}: {renewed}");
    }
}

#[test]
fn a_check_takes_no_time() {
    for bytes in [MB / 2, 2 * MB, 8 * MB] {
        let links = [wifi(), lte()];
        let mut simulation = Simulation::new(Config::default(), Server::of(bytes), &links);
        while simulation.fetch.done().total() < bytes {
            assert_eq!(simulation.step(Time::MAX), None);
        }
        let complete = simulation.now;
        let end = simulation.run_to_the_end();
        assert!((2..=8).contains(&simulation.checks), "{} checks", simulation.checks);
        assert!(end.since(complete) <= Span::from_millis(20), "{complete} and {end}");
        let bound = fluid_bound(bytes, &links) + wifi().rtt;
        assert!(ratio(end, bound) < 1.2, "{end} against {bound}");
        assert_eq!(simulation.notes(), []);
        assert!(!simulation.fetch.is_renewed());
    }
}

#[test]
fn a_short_transfer_does_not_wait_for_a_check() {
    let mut simulation = Simulation::new(Config::default(), Server::of(MB / 2), &[wifi()]);
    simulation.drops_checks = true;
    while simulation.fetch.done().total() < MB / 2 {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    let complete = simulation.now;
    assert_eq!(simulation.run_to_the_end(), complete);
    assert_eq!(simulation.checks, 0);
    assert_eq!(simulation.fetch.version_proof(), Some(VersionProof::Unchecked));
}

#[test]
fn checks_without_an_answer_delay_the_end_by_seconds_at_most() {
    let mut simulation = Simulation::new(Config::default(), Server::of(2 * MB), &[wifi(), lte()]);
    simulation.drops_checks = true;
    while simulation.fetch.done().total() < 2 * MB {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    let complete = simulation.now;
    assert_eq!(simulation.run(), RunOutcome::Done);
    assert_eq!(simulation.notes(), [Note::Unverified]);
    assert_eq!(simulation.fetch.version_proof(), Some(VersionProof::Unconfirmed));
    assert!(simulation.now.since(complete) <= Span::from_secs(3), "{}", simulation.now);
}

#[test]
fn a_path_that_does_not_answer_a_check_is_replaced() {
    let links = [wifi(), lte()];
    let mut simulation = Simulation::new(Config::default(), Server::of(2 * MB), &links);
    while simulation.fetch.done().total() < 2 * MB {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    let complete = simulation.now;
    simulation.set_dead(PathId(0), true);
    assert_eq!(simulation.run(), RunOutcome::Done);
    assert_eq!(simulation.notes(), []);
    assert!(simulation.now.since(complete) <= Span::from_millis(900), "{}", simulation.now);
}

#[test]
fn an_object_that_changes_twice_is_given_up() {
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
    simulation.run_until(Time::from_millis(1_000));
    change(&mut simulation);
    while simulation.restarts == 0 {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    simulation.run_until(simulation.now + Span::from_millis(1_000));
    simulation.servers.iter_mut().for_each(|server| server.version = 3);
    assert_eq!(simulation.run_unchecked(), RunOutcome::Failed(FetchFailure::Changed));
}
