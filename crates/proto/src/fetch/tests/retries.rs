//! Servers that refuse requests or connections for a while, and the limits of further attempts.

use manyways_unit::{Rate, Span, Time};

use super::simulation::{Link, Refusal, RunOutcome, Server, Simulation};
use super::{MB, fluid_bound, lte, ratio, wifi};
use crate::fetch::{
    Config, FetchFailure, Note, PathError, PathErrorKind, PathId, Range, Ranges, RefusedStart,
};

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);

fn seconds(seconds: u64) -> Time {
    Time::from_millis(seconds * 1_000)
}

fn simulation(config: Config, links: &[Link]) -> Simulation {
    Simulation::new(config, Server::of(4 * MB), links)
}

/// Waits, and number of attempts, in the notes.
fn waits(simulation: &Simulation) -> Vec<(f64, u32)> {
    let notes = simulation.notes().iter();
    notes
        .map(|note| match note {
            Note::Retrying { wait, attempt, max: 5, .. } => (wait.as_secs_f64().round(), *attempt),
            note => panic!("{note:?}"),
        })
        .collect()
}

#[test]
fn a_server_without_capacity_is_asked_again_when_it_wants() {
    for status in [429, 503] {
        let mut simulation = simulation(Config::default(), &[wifi()]);
        let retry_after = Some(Span::from_secs(90));
        let refusal = Refusal { retry_after, ..Refusal::new(seconds(80), status) };
        simulation.refusals.insert(FIRST, refusal);
        simulation.run_until(seconds(89));
        assert_eq!(simulation.requests().len(), 1, "{status}");
        let end = simulation.run_to_the_end();
        assert!(end > seconds(90) && end < seconds(95), "{end}");
        assert_eq!(waits(&simulation), [(90.0, 1)]);
        assert_eq!(simulation.fetch.retries(), 1);
    }
}

/// Another request would be refused, too.
#[test]
fn a_small_object_costs_one_request_after_the_refused_one() {
    let mut simulation = Simulation::new(Config::default(), Server::of(10_000), &[wifi()]);
    simulation.refusals.insert(FIRST, Refusal::new(Time::from_millis(900), 429));
    simulation.run_to_the_end();
    assert_eq!((simulation.requests().len(), simulation.checks), (2, 0));
}

/// A server may limit the requests of each address.
#[test]
fn other_paths_are_used_meanwhile() {
    for connection in [true, false] {
        let links = [wifi(), lte()].map(|link| Link { multiplexed: connection, ..link });
        let mut simulation = simulation(Config::default(), &links);
        let retry_after = Some(Span::from_secs(2));
        let refusal = Refusal { retry_after, ..Refusal::new(seconds(1), 429) };
        simulation.refusals.insert(FIRST, refusal);
        let end = simulation.run_to_the_end();
        assert!(end < seconds(6), "{end}");
        let useful = |path| simulation.fetch.stats(end, path).useful;
        assert!(useful(FIRST) > MB && useful(SECOND) > MB);
        assert_eq!(simulation.notes(), []);
    }
}

#[test]
fn without_a_time_the_backoff_grows_and_the_attempts_end() {
    for status in [408, 429, 500, 502, 503, 504] {
        let mut simulation = simulation(Config::default(), &[wifi()]);
        simulation.refusals.insert(FIRST, Refusal::new(Time::MAX, status));
        assert_eq!(simulation.run(), RunOutcome::Failed(FetchFailure::Status(status)));
        assert_eq!(simulation.requests().len(), 6);
        assert_eq!(waits(&simulation), [(1.0, 1), (2.0, 2), (4.0, 3), (8.0, 4), (8.0, 5)]);
    }
}

/// The paths wait at almost the same times: each wait is reported once.
#[test]
fn waits_of_several_paths_are_reported_once() {
    let mut simulation = simulation(Config::default(), &[wifi(), lte()]);
    for path in [FIRST, SECOND] {
        simulation.refusals.insert(path, Refusal::new(Time::MAX, 503));
    }
    assert_eq!(simulation.run(), RunOutcome::Failed(FetchFailure::Status(503)));
    assert_eq!(waits(&simulation).len(), 5, "{:?}", simulation.notes());
}

#[test]
fn a_wait_that_is_too_long_is_an_error_at_once() {
    let config = Config { max_retry_time: Span::from_secs(60), ..Config::default() };
    let mut simulation = simulation(config, &[wifi(), lte()]);
    for path in [FIRST, SECOND] {
        let retry_after = Some(Span::from_secs(3_600));
        let refusal = Refusal { retry_after, ..Refusal::new(Time::MAX, 429) };
        simulation.refusals.insert(path, refusal);
    }
    let wait = Span::from_secs(3_600);
    let failure = FetchFailure::RetryTooLate { status: 429, wait, total: wait };
    assert_eq!(simulation.run(), RunOutcome::Failed(failure));
    assert!(simulation.now < seconds(1), "{}", simulation.now);
    assert_eq!((simulation.requests().len(), simulation.notes()), (2, &[][..]));
}

/// The time counts from the first failure.
#[test]
fn several_waits_together_are_limited() {
    let config = Config { max_retry_time: Span::from_secs(60), ..Config::default() };
    let mut simulation = simulation(config, &[wifi()]);
    let retry_after = Some(Span::from_secs(25));
    let refusal = Refusal { retry_after, ..Refusal::new(Time::MAX, 503) };
    simulation.refusals.insert(FIRST, refusal);
    let RunOutcome::Failed(FetchFailure::RetryTooLate { status: 503, wait, total }) =
        simulation.run()
    else {
        panic!("it did not fail for its waits")
    };
    assert_eq!(wait, Span::from_secs(25));
    assert!(total > wait * 3 && total < wait * 3 + Span::from_secs(1), "{total}");
    assert_eq!(simulation.requests().len(), 3);
}

#[test]
fn later_requests_wait_too() {
    let mut simulation = simulation(Config::default(), &[wifi()]);
    simulation.run_until(seconds(1));
    let retry_after = Some(Span::from_secs(70));
    let refusal = Refusal { retry_after, ..Refusal::new(seconds(60), 503) };
    simulation.refusals.insert(FIRST, refusal);
    simulation.fail_request(FIRST, PathError::transient(PathErrorKind::Reset, "broke"));
    // Longer than the idle timeout, because the server is not silent.
    let end = simulation.run_to_the_end();
    assert!(end > seconds(71) && end < seconds(76), "{end}");
    assert_eq!(waits(&simulation), [(70.0, 2)]);
}

/// For example the `limit_conn` of nginx.
#[test]
fn a_server_that_permits_one_request_at_a_time_keeps_the_request_under_way() {
    let links = [wifi(), lte()];
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
    simulation.max_responses = 1;
    let end = simulation.run_to_the_end();
    let bound = fluid_bound(8 * MB, &links) + wifi().rtt;
    assert!(ratio(end, bound) < 1.2, "{end} against {bound}");
    assert_eq!((simulation.notes(), simulation.fetch.retries()), (&[][..], 0));
}

/// The checks at the end must not take the place of a request.
#[test]
fn a_hole_that_is_refused_is_requested_after_the_one_before() {
    let mut first = simulation(Config::default(), &[wifi()]);
    first.run_until(Time::from_millis(500));
    let object = first.fetch.object().cloned().unwrap();
    for hole in [20_000, 100_000] {
        for delay in [5, 20, 80] {
            let mut done = Ranges::new();
            done.insert(Range::new(hole * 4, 4 * MB - hole));
            let config = Config { resume: Some((object.clone(), done)), ..Config::default() };
            let link = Link { rtt: Span::from_millis(delay), ..wifi() };
            let mut simulation = simulation(config, &[link]);
            simulation.max_responses = 1;
            assert_eq!(simulation.run_unchecked(), RunOutcome::Done, "{hole} {delay}");
        }
    }
}

/// The server answers, so that it is not a refused port.
#[test]
fn a_server_that_restarts_after_an_answer_is_waited_for() {
    let mut simulation = simulation(Config::default(), &[wifi()]);
    simulation.refusals.insert(FIRST, Refusal::new(Time::from_millis(100), 503));
    simulation.run_until(Time::from_millis(100));
    simulation.shut_down(seconds(2));
    let end = simulation.run_to_the_end();
    assert!(end < seconds(8), "{end}");
}

/// A wait that ends early does not postpone the idle timeout.
#[test]
fn a_wait_of_a_path_that_went_down_does_not_count() {
    let mut simulation = simulation(Config::default(), &[wifi(), lte()]);
    let retry_after = Some(Span::from_secs(250));
    let refusal = Refusal { retry_after, ..Refusal::new(Time::MAX, 503) };
    simulation.refusals.insert(SECOND, refusal);
    simulation.run_until(Time::from_millis(500));
    simulation.set_up(SECOND, false);
    simulation.set_dead(FIRST, true);
    let outcome = simulation.run_unchecked();
    assert_eq!(outcome, RunOutcome::Failed(FetchFailure::IdleTimeout(Span::from_secs(60))));
    assert!(simulation.now < seconds(70), "{}", simulation.now);
}

/// The silence of the other path is not its merit.
#[test]
fn refusals_count_although_the_other_path_pauses() {
    let config = Config { max_attempts: 5, ..Config::default() };
    let mut simulation =
        simulation(config, &[Link { rate: Rate::from_kbps(500), ..wifi() }, lte()]);
    simulation.refusals.insert(SECOND, Refusal::new(Time::MAX, 503));
    simulation.run_until(Time::from_millis(500));
    simulation.pause(FIRST, Span::from_secs(6));
    simulation.run_until(seconds(20));
    let dropped = |note: &Note| matches!(note, Note::Dropped { path: SECOND, .. });
    assert!(simulation.notes().iter().any(dropped), "{:?}", simulation.notes());
    assert_eq!(simulation.fetch.stats(simulation.now, SECOND).requests, 5);
}

/// The wait belongs to the earlier answer.
#[test]
fn a_refusal_after_a_wait_that_was_too_long() {
    let mut simulation = simulation(Config::default(), &[wifi(), lte()]);
    let retry_after = Some(Span::from_secs(3_600));
    for path in [FIRST, SECOND] {
        let refusal = match path {
            FIRST => Refusal { retry_after, ..Refusal::new(Time::MAX, 429) },
            _ => Refusal { retry_after: Some(Span::from_secs(20)), ..Refusal::new(Time::MAX, 503) },
        };
        simulation.refusals.insert(path, refusal);
    }
    simulation.run_until(seconds(10));
    for path in [FIRST, SECOND] {
        simulation.refusals.insert(path, Refusal::new(Time::MAX, 404));
    }
    simulation.set_up(FIRST, true);
    assert_eq!(simulation.run(), RunOutcome::Failed(FetchFailure::Status(404)));
}

/// The signature of a redirect target has expired, or a mirror lacks the object.
#[test]
fn a_redirect_is_followed_again_when_its_target_is_refused() {
    for (is_redirected, status) in [(true, 403), (true, 404), (true, 503), (false, 403)] {
        let mut simulation = simulation(Config::default(), &[wifi()]);
        simulation.run_until(seconds(1));
        let refusal = Refusal { is_redirected, ..Refusal::new(seconds(3), status) };
        simulation.refusals.insert(FIRST, refusal);
        simulation.fail_request(FIRST, PathError::transient(PathErrorKind::Reset, "broke"));
        assert_eq!(simulation.run() == RunOutcome::Done, is_redirected, "{status}");
    }
}

#[test]
fn a_server_that_is_down_for_8_seconds_does_not_end_the_download() {
    for links in [&[wifi()][..], &[wifi(), lte()]] {
        let mut simulation = simulation(Config::default(), links);
        simulation.run_until(seconds(1));
        simulation.shut_down(seconds(9));
        let end = simulation.run_to_the_end();
        assert!(end < seconds(9 + 8 + 4), "{end}");
        let waits = waits(&simulation);
        assert_eq!(waits, [(2.0, 2), (4.0, 3), (8.0, 4)], "{:?}", simulation.notes());
    }
}

#[test]
fn the_attempts_at_a_server_that_stays_down_are_counted() {
    for attempts in [1, 3, 20] {
        let config = Config { max_attempts: attempts, ..Config::default() };
        let mut simulation = simulation(config, &[wifi()]);
        simulation.run_until(seconds(1));
        simulation.shut_down(Time::MAX);
        let RunOutcome::Failed(FetchFailure::NoPathLeft(errors)) = simulation.run() else {
            panic!("it was done")
        };
        let kind = if attempts == 1 { PathErrorKind::Reset } else { PathErrorKind::Refused };
        assert_eq!(errors[0].1.kind, kind);
        assert_eq!(simulation.fetch.retries(), u64::from(attempts - 1));
        // Many attempts take longer than the idle timeout.
        assert_eq!(simulation.now > seconds(61), attempts == 20, "{}", simulation.now);
        assert!(simulation.fetch.is_resumable());
    }
}

#[test]
fn a_port_that_is_refused_at_first_is_not_tried_again() {
    for links in [&[wifi()][..], &[wifi(), lte()]] {
        let mut failing = simulation(Config::default(), links);
        failing.down_until = seconds(4);
        let RunOutcome::Failed(FetchFailure::NoPathLeft(errors)) = failing.run() else {
            panic!("it was done")
        };
        assert_eq!(errors.len(), links.len());
        assert!(failing.now < Time::from_millis(100), "{}", failing.now);
        assert_eq!((failing.fetch.retries(), failing.notes()), (0, &[][..]));

        let config = Config { refused_start: RefusedStart::Retry, ..Config::default() };
        let mut patient = simulation(config, links);
        patient.down_until = seconds(4);
        patient.run_to_the_end();
        assert_eq!(waits(&patient), [(1.0, 1), (2.0, 2), (4.0, 3)]);
    }
}

/// The other path still connects when the first one is refused.
#[test]
fn one_path_that_is_refused_at_first_is_tried_again() {
    let mut simulation = simulation(Config::default(), &[wifi(), lte()]);
    simulation.down_until = Time::from_millis(1);
    // LTE begins after Wi-Fi was refused.
    simulation.set_up(SECOND, false);
    simulation.run_until(Time::from_millis(10));
    simulation.set_up(SECOND, true);
    simulation.run_to_the_end();
    let useful = |path| simulation.fetch.stats(simulation.now, path).useful;
    assert!(useful(FIRST) > MB && useful(SECOND) > MB);
}

/// A name that exists on no network fails at once, as a refused port does, and only then.
#[test]
fn a_name_that_vanishes_under_way_is_looked_up_again() {
    let no_name = || PathError::permanent(PathErrorKind::NoSuchName, "the name does not exist");
    let mut start = simulation(Config::default(), &[wifi()]);
    start.run_until(Time::from_millis(1));
    start.fail_request(FIRST, no_name());
    assert!(matches!(start.run(), RunOutcome::Failed(FetchFailure::NoPathLeft(_))));
    assert!(start.now < Time::from_millis(100), "{}", start.now);

    let mut under_way = simulation(Config::default(), &[wifi()]);
    under_way.run_until(seconds(1));
    under_way.fail_request(FIRST, no_name());
    under_way.run_to_the_end();
    assert_eq!(waits(&under_way), [(1.0, 1)]);
}
