//! Paths that join and leave, and fetches without any active path.

use manyways_unit::{Rate, Size, Span, Time};

use super::simulation::{RunOutcome, Server, Simulation};
use super::{MB, fluid_bound, lte, wifi};
use crate::fetch::{Config, FetchFailure, Note, PathError, PathErrorKind, PathId};

const BOTH: [PathId; 2] = [PathId(0), PathId(1)];

fn seconds(seconds: u64) -> Time {
    Time::from_millis(seconds * 1_000)
}

/// Two paths that have received bytes, and then receive none.
fn idle_paths() -> Simulation {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.run_until(Time::from_millis(1_000));
    BOTH.into_iter().for_each(|path| simulation.set_dead(path, true));
    simulation
}

#[test]
fn all_silent_is_said_and_has_an_end() {
    let mut simulation = idle_paths();
    assert_eq!(
        simulation.run(),
        RunOutcome::Failed(FetchFailure::IdleTimeout(Span::from_secs(60)))
    );
    assert!(simulation.now <= seconds(61), "{}", simulation.now);
    assert!(simulation.fetch.is_resumable());
    let [Note::Idle { elapsed: lasted, remaining: left, paths }] = simulation.notes() else {
        panic!("{:?}", simulation.notes())
    };
    assert_eq!(paths, &BOTH);
    assert_eq!((*lasted, *left), (Span::from_secs(10), Span::from_secs(50)));
}

#[test]
fn a_silence_that_ends_in_time_costs_no_path() {
    let mut simulation = idle_paths();
    simulation.run_until(seconds(50));
    BOTH.into_iter().for_each(|path| simulation.set_dead(path, false));
    let took = simulation.run_to_the_end();
    // The end may wait for a connection attempt that is under way.
    assert!(took < seconds(75), "{took}");
    assert!(matches!(simulation.notes(), [Note::Idle { .. }]), "{:?}", simulation.notes());
}

/// Name servers that do not answer count as part of the idle time, for any number of queries.
#[test]
fn quick_faults_while_all_are_silent_are_not_the_reason() {
    let mut simulation = idle_paths();
    let end = loop {
        let until = simulation.now + Span::from_millis(100);
        if let Some(end) = simulation.step(until) {
            break end;
        }
        if simulation.now >= seconds(7) {
            let words = "no name server answers";
            BOTH.into_iter().for_each(|path| {
                simulation.fail_request(path, PathError::transient(PathErrorKind::Dns, words))
            });
        }
    };
    assert_eq!(end, RunOutcome::Failed(FetchFailure::IdleTimeout(Span::from_secs(60))));
}

#[test]
fn where_nothing_ever_came_the_faults_are_named() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    BOTH.into_iter().for_each(|path| simulation.set_dead(path, true));
    let RunOutcome::Failed(FetchFailure::NoPathLeft(faults)) = simulation.run() else {
        panic!("it was done")
    };
    assert_eq!(faults.len(), 2);
    assert_eq!(simulation.now, seconds(60));
}

#[test]
fn a_server_that_says_no_is_not_silent() {
    let mut simulation = idle_paths();
    let refused = PathError::transient(PathErrorKind::Connect, "connection refused");
    let end = loop {
        let until = simulation.now + Span::from_millis(100);
        if let Some(end) = simulation.step(until) {
            break end;
        }
        if simulation.now >= seconds(7) {
            BOTH.into_iter().for_each(|path| simulation.fail_request(path, refused.clone()));
        }
    };
    assert_eq!(
        end,
        RunOutcome::Failed(FetchFailure::NoPathLeft(BOTH.map(|id| (id, refused.clone())).into()))
    );
}

#[test]
fn a_path_that_is_gone_gives_its_bytes_back_at_once() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.run_until(Time::from_millis(1_000));
    simulation.set_up(PathId(0), false);
    let rest = 8 * MB - simulation.fetch.done().total();
    let took = simulation.run_to_the_end();
    let alone = Time::from_millis(1_000) + lte().rate.time_for(Size::from_bytes(rest));
    assert!(took < alone + Span::from_millis(200), "{took} against {alone}");
    assert_eq!(simulation.notes(), []);
}

#[test]
fn all_gone_may_return() {
    for back in [Some(30), None] {
        let mut simulation =
            Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
        simulation.run_until(Time::from_millis(1_000));
        BOTH.into_iter().for_each(|path| simulation.set_up(path, false));
        match back {
            Some(back) => {
                simulation.run_until(seconds(back));
                simulation.set_up(PathId(1), true);
                simulation.run_to_the_end();
            }
            None => {
                assert_eq!(
                    simulation.run(),
                    RunOutcome::Failed(FetchFailure::IdleTimeout(Span::from_secs(60)))
                );
            }
        }
    }
}

/// A new path has the time to connect even shortly before the idle timeout of the others.
#[test]
fn a_path_may_join_at_the_last_moment() {
    let mut simulation = idle_paths();
    simulation.run_until(Time::from_millis(60_900));
    simulation.join(lte());
    simulation.run_to_the_end();
    assert!(simulation.fetch.stats(simulation.now, PathId(2)).useful > 6 * MB);
}

#[test]
fn a_path_that_joins_under_way_takes_its_share() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[lte()]);
    simulation.run_until(Time::from_millis(2_000));
    let rest = 8 * MB - simulation.fetch.done().total();
    simulation.join(wifi());
    let took = simulation.run_to_the_end();
    let both: Rate = [wifi().rate, lte().rate].into_iter().sum();
    let bound = Time::from_millis(2_000) + both.time_for(Size::from_bytes(rest));
    assert!(took < bound + Span::from_millis(500), "{took} against {bound}");
}

/// The server refuses all connections, as while it restarts, and resets the first ones afterwards.
#[test]
fn a_server_that_is_down_for_seconds_does_not_end_the_download() {
    for links in [&[wifi()][..], &[wifi(), lte()]] {
        let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), links);
        simulation.run_until(Time::from_millis(1_000));
        let back = Time::from_millis(9_000);
        while simulation.now < back {
            for path in 0..links.len() {
                let error = if simulation.now < Time::from_millis(4_500) {
                    PathError::transient(PathErrorKind::Refused, "connection refused")
                } else {
                    PathError::transient(PathErrorKind::Reset, "the connection broke")
                };
                simulation.fail_request(PathId(path), error);
            }
            simulation.run_until(simulation.now + Span::from_millis(20));
        }
        let end = simulation.run_to_the_end();
        // The pause between two attempts is 4 s at most.
        let rest = fluid_bound(8 * MB, links) * 3;
        assert!(end <= back + Span::from_secs(4) + rest, "{end}");
    }
}

/// The server violates the protocol in every response from now on: no retry can help.
#[test]
fn a_server_that_breaks_every_response_ends_the_download_before_the_idle_timeout() {
    let links = [wifi(), lte()];
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
    simulation.run_until(Time::from_millis(1_000));
    // The attempts end well before the 60 s of the idle timeout.
    let deadline = Time::from_millis(30_000);
    loop {
        for path in 0..links.len() {
            let violation = PathError::transient(PathErrorKind::Protocol, "more than announced");
            simulation.fail_request(PathId(path), violation);
        }
        let next = simulation.now + Span::from_millis(20);
        assert!(next < deadline, "{next}");
        while simulation.now < next {
            if let Some(outcome) = simulation.step(next) {
                assert!(matches!(outcome, RunOutcome::Failed(_)), "{outcome:?}");
                return;
            }
        }
    }
}
