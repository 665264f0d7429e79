//! Paths that fail, servers with different versions, and invalid responses.

use manyways_unit::{Size, Span, Time};

use super::simulation::{RunOutcome, Server, Simulation};
use super::{MB, lte, wifi};
use crate::fetch::{
    Config, ContentRange, Fetch, FetchFailure, Head, Input, MeteredUse, Note, Output, PathError,
    PathErrorKind, PathId, Range, Validator,
};

#[test]
fn a_broken_answer_is_fetched_again() {
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
    simulation.failures.extend([
        ((PathId(0), 0), 300_000),
        ((PathId(1), 1), 1),
        ((PathId(1), 2), 0),
    ]);
    simulation.run_to_the_end();
    assert_eq!(simulation.notes(), []);
    assert!(simulation.wasted() < 100_000, "{}", simulation.wasted());
}

#[test]
fn a_path_that_always_breaks_is_dropped() {
    let mut simulation = Simulation::new(Config::default(), Server::of(12 * MB), &[wifi(), lte()]);
    simulation.failures.extend((0..100).map(|n| ((PathId(1), n), 0)));
    simulation.run_to_the_end();
    assert!(
        matches!(simulation.notes(), [Note::Dropped { path: PathId(1), .. }]),
        "{:?}",
        simulation.notes()
    );
}

#[test]
fn when_every_path_is_gone_the_faults_are_named() {
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
    simulation.failures.extend((1..100).map(|n| ((PathId(0), n), 0)));
    simulation.failures.extend((1..100).map(|n| ((PathId(1), n), 0)));
    simulation.failures.insert((PathId(0), 0), MB);
    let RunOutcome::Failed(FetchFailure::NoPathLeft(faults)) = simulation.run() else {
        panic!("it was done")
    };
    assert_eq!(faults.len(), 2);
    assert!(simulation.fetch.is_resumable());
    assert!(simulation.fetch.done().total() >= MB);
}

#[test]
fn a_server_with_another_version_is_left_out() {
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
    simulation.servers[1].version = 2;
    simulation.run_to_the_end();
    assert_eq!(simulation.fetch.stats(simulation.now, PathId(1)).useful, 0);
    assert!(matches!(simulation.notes(), [Note::Dropped { path: PathId(1), .. }]));
}

#[test]
fn an_object_that_changes_mid_way_is_fetched_anew_once_and_never_mixed() {
    for changes in [1, 2] {
        let mut simulation =
            Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
        for change in 1..=changes {
            simulation.run_until(simulation.now + Span::from_millis(1_000));
            for server in &mut simulation.servers {
                server.version += 1;
            }
            // Requests under way receive the old version; later responses do not.
            for path in [0, 1].map(PathId) {
                simulation.fail_request(path, PathError::transient(PathErrorKind::Reset, "broke"));
            }
            if change == 1 {
                let at = simulation.now;
                while simulation.restarts == 0 && simulation.step(at + Span::from_secs(9)).is_none()
                {
                }
            }
        }
        let end = simulation.run_unchecked();
        if changes == 1 {
            assert_eq!(end, RunOutcome::Done);
            assert!(simulation.is_one_version());
            assert_eq!(simulation.notes().last(), Some(&Note::Changed));
        } else {
            assert_eq!(end, RunOutcome::Failed(FetchFailure::Changed));
        }
    }
}

#[test]
fn without_a_validator_a_broken_transfer_begins_anew_and_not_for_ever() {
    let server = Server { validator: None, ..Server::of(2 * MB) };
    let mut simulation = Simulation::new(Config::default(), server.clone(), &[wifi(), lte()]);
    simulation.failures.insert((PathId(0), 0), MB);
    simulation.run_to_the_end();
    assert_eq!(simulation.restarts, 1);

    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
    simulation.failures.extend((0..9).flat_map(|n| [((PathId(0), n), MB), ((PathId(1), n), MB)]));
    assert!(matches!(simulation.run(), RunOutcome::Failed(FetchFailure::CannotContinue(_))));
}

#[test]
fn answers_that_are_shorter_than_asked_are_fine() {
    let server = Server { max_part: 200_000, ..Server::of(4 * MB) };
    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
    let took = simulation.run_to_the_end();
    assert_eq!(simulation.notes(), []);
    assert!(took < Time::from_millis(3_000), "{took}");
    let useful = simulation.fetch.stats(simulation.now, PathId(1)).useful;
    assert!(useful > MB, "the second path brought {useful}");
}

#[test]
fn a_path_that_comes_back_is_used_again() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.run_until(Time::from_millis(500));
    simulation.set_up(PathId(0), false);
    simulation.run_until(Time::from_millis(2_500));
    let before = simulation.fetch.stats(simulation.now, PathId(0)).useful;
    simulation.set_up(PathId(0), true);
    simulation.run_to_the_end();
    assert!(simulation.fetch.stats(simulation.now, PathId(0)).useful > before + MB);
}

/// A fetch with its first request sent, over a path without a network.
fn asked() -> (Fetch, crate::fetch::RequestId) {
    let mut fetch = Fetch::new(Config::default());
    let path = PathId(0);
    fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
    assert_eq!(
        fetch.poll(Time::ZERO),
        Some(Output::Connect { path, window: 8 << 20, connection_window: 12 << 20 })
    );
    fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false, rtt: None });
    let Some(Output::Request { request, .. }) = fetch.poll(Time::ZERO) else { panic!() };
    (fetch, request)
}

fn head(status: u16, length: Option<u64>) -> Head {
    Head {
        status,
        length,
        content_range: None,
        validator: Some(Validator::Etag("\"v\"".into())),
        ..Head::default()
    }
}

fn last(fetch: &mut Fetch) -> Option<Output> {
    std::iter::from_fn(|| fetch.poll(Time::ZERO)).last()
}

#[test]
fn the_first_status_decides() {
    for status in [201, 202, 204, 205, 207, 208, 226, 301, 304, 403, 404, 501] {
        let (mut fetch, request) = asked();
        fetch.handle(Time::ZERO, Input::Head { request, head: head(status, None) });
        assert_eq!(last(&mut fetch), Some(Output::Failed(FetchFailure::Status(status))));
    }
    for status in [200, 203, 209, 299] {
        let (mut fetch, request) = asked();
        fetch.handle(Time::ZERO, Input::Head { request, head: head(status, Some(10)) });
        fetch.handle(Time::ZERO, Input::Bytes { request, length: 10 });
        fetch.handle(Time::ZERO, Input::Finished { request });
        assert_eq!(last(&mut fetch), Some(Output::Done), "{status}");
    }
}

/// A proxy may keep the validator of the object that it has changed.
#[test]
fn an_object_from_a_transforming_proxy_is_not_combined() {
    let mut fetch = Fetch::new(Config::default());
    let paths = [0, 1].map(PathId);
    for path in paths {
        fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
    }
    while fetch.poll(Time::ZERO).is_some() {}
    for path in paths {
        fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: true, rtt: None });
    }
    let Some(Output::Request { request, .. }) = fetch.poll(Time::ZERO) else { panic!() };
    fetch.handle(Time::ZERO, Input::Head { request, head: head(203, Some(1_000_000)) });
    let outputs: Vec<Output> = std::iter::from_fn(|| fetch.poll(Time::ZERO)).collect();
    assert!(outputs.contains(&Output::Note(Note::Transformed)), "{outputs:?}");
    assert!(!outputs.iter().any(|output| matches!(output, Output::Request { .. })));
}

#[test]
fn a_server_that_requires_http1_costs_no_failure_and_no_backoff() {
    // Over HTTP/1.1, or of the server of a redirect each time, the second one is a failure.
    for second in [false, true] {
        let mut fetch = Fetch::new(Config { max_attempts: 1, ..Config::default() });
        let path = PathId(0);
        fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
        fetch.poll(Time::ZERO);
        let mut fail = |multiplexed| {
            fetch.handle(Time::ZERO, Input::Connected { path, multiplexed, rtt: None });
            let Some(Output::Request { request, .. }) = fetch.poll(Time::ZERO) else { panic!() };
            let error = PathError::transient(PathErrorKind::Http1Required, "HTTP/1.1, please");
            fetch.handle(Time::ZERO, Input::Failed { request, error });
            last(&mut fetch)
        };
        assert!(matches!(fail(true), Some(Output::Connect { .. })));
        let end = fail(second);
        assert!(matches!(end, Some(Output::Failed(FetchFailure::NoPathLeft(_)))), "{end:?}");
    }
}

#[test]
fn a_refused_request_does_not_end_the_other_one_of_its_connection() {
    use PathErrorKind::{GoAway, Http1Required, RefusedStream};
    for kind in [GoAway, Http1Required, RefusedStream] {
        let links = [wifi(), lte()];
        let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &links);
        let busy = |simulation: &Simulation| {
            [0, 1].map(PathId).into_iter().find(|path| simulation.open_requests(*path) == 2)
        };
        let path = loop {
            assert_eq!(simulation.step(Time::MAX), None);
            if let Some(path) = busy(&simulation) {
                break path;
            }
        };
        simulation.refuse_request(path, PathError::transient(kind, "refused"));
        while simulation.fetch.poll(simulation.now).is_some() {}
        assert_eq!(simulation.fetch.requests_of(path).count(), 1, "{kind:?}");
    }
}

/// A server may reset the stream instead of ending it.
#[test]
fn a_complete_response_does_not_fail() {
    for (length, fails) in [(10, false), (9, true)] {
        let (mut fetch, request) = asked();
        fetch.handle(Time::ZERO, Input::Head { request, head: head(200, Some(10)) });
        fetch.handle(Time::ZERO, Input::Bytes { request, length });
        let error = PathError::transient(PathErrorKind::Reset, "reset with NO_ERROR");
        fetch.handle(Time::ZERO, Input::Failed { request, error });
        let ended = std::iter::from_fn(|| fetch.poll(Time::ZERO))
            .any(|output| output == Output::Ended { request });
        assert_eq!(ended, !fails);
    }
}

/// Another network may reach another server, or a server that decides by country.
#[test]
fn a_refusal_on_one_path_is_asked_again_over_the_other() {
    for (statuses, expected) in [
        ([403, 200], None),
        ([403, 403], Some(FetchFailure::Status(403))),
        ([404, 403], Some(FetchFailure::NoPathLeft(Vec::new()))),
    ] {
        let mut fetch = Fetch::new(Config::default());
        for path in [0, 1].map(PathId) {
            fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
        }
        while fetch.poll(Time::ZERO).is_some() {}
        for path in [0, 1].map(PathId) {
            fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false, rtt: None });
        }
        let mut notes = Vec::new();
        let mut ends = Vec::new();
        while let Some(output) = fetch.poll(Time::ZERO) {
            match output {
                Output::Request { request, path, range, .. } => {
                    assert_eq!(range, None);
                    let status = statuses[path.0];
                    let head = head(status, Some(10));
                    fetch.handle(Time::ZERO, Input::Head { request, head });
                    if status == 200 {
                        fetch.handle(Time::ZERO, Input::Bytes { request, length: 10 });
                    }
                }
                Output::Note(Note::Dropped { path, error: fault }) => {
                    notes.push((path, fault.message))
                }
                Output::Done => ends.push(None),
                Output::Failed(FetchFailure::NoPathLeft(faults)) => {
                    assert_eq!(faults.len(), 2);
                    ends.push(Some(FetchFailure::NoPathLeft(Vec::new())));
                }
                Output::Failed(reason) => ends.push(Some(reason)),
                _ => {}
            }
        }
        let said = (PathId(0), "the server answered with status 403".to_owned());
        assert_eq!(notes, if expected.is_none() { vec![said] } else { Vec::new() });
        assert_eq!(ends, [expected]);
    }
}

/// The other path can take bytes that the server does not send immediately, not only at the end of
/// the response.
#[test]
fn the_rest_of_a_short_answer_is_up_for_grabs() {
    let mut fetch = Fetch::new(Config::default());
    let paths = [0, 1].map(PathId);
    for path in paths {
        fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
    }
    while fetch.poll(Time::ZERO).is_some() {}
    fetch.handle(Time::ZERO, Input::Connected { path: paths[0], multiplexed: false, rtt: None });
    let Some(Output::Request { request: first, .. }) = fetch.poll(Time::ZERO) else { panic!() };
    fetch.handle(Time::ZERO, Input::Head { request: first, head: head(200, Some(200_000)) });
    fetch.handle(Time::ZERO, Input::Connected { path: paths[1], multiplexed: false, rtt: None });
    let asked = |fetch: &mut Fetch, path: PathId| {
        std::iter::from_fn(|| fetch.poll(Time::ZERO)).find_map(|output| match output {
            Output::Request { request, path: at, range, .. } if at == path => {
                range.zip(Some(request))
            }
            _ => None,
        })
    };
    let (range, second) = asked(&mut fetch, paths[1]).unwrap();
    assert_eq!(range, Range::new(100_000, 200_000));
    let content_range = Some(ContentRange::parse(b"bytes 100000-119999/200000"));
    let short = Head { content_range, ..head(206, Some(20_000)) };
    fetch.handle(Time::ZERO, Input::Head { request: second, head: short });
    fetch.handle(Time::ZERO, Input::Bytes { request: first, length: 100_000 });
    let (range, _) = asked(&mut fetch, paths[0]).expect("the rest is asked for");
    assert_eq!(range.start, 120_000);
}

#[test]
fn late_bytes_count_whenever_they_come() {
    let limit = Size::from_bytes(1_000);
    let config = Config { metered: MeteredUse::Limit(limit), ..Config::default() };
    let mut fetch = Fetch::new(config);
    let path = PathId(0);
    fetch.handle(Time::ZERO, Input::PathUp { path, metered: true, known: None });
    fetch.handle(Time::ZERO, Input::Late { path, length: 400 });
    fetch.poll(Time::ZERO);
    fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false, rtt: None });
    let Some(Output::Request { request, range, .. }) = fetch.poll(Time::ZERO) else { panic!() };
    assert_eq!(range, Some(Range::new(0, 600)));
    assert!(fetch.is_under_way(request));
    fetch.handle(Time::ZERO, Input::Head { request, head: head(200, Some(600)) });
    fetch.handle(Time::ZERO, Input::Bytes { request, length: 600 });
    assert_eq!(last(&mut fetch), Some(Output::Done));
    assert!(!fetch.is_under_way(request));
    fetch.handle(Time::ZERO, Input::Late { path, length: 50 });
    assert_eq!(fetch.metered_bytes(), Size::from_bytes(1_050));
}

#[test]
fn a_part_that_was_not_asked_for_is_nonsense() {
    let (mut fetch, request) = asked();
    fetch.handle(Time::ZERO, Input::Head { request, head: head(206, Some(10)) });
    assert!(matches!(last(&mut fetch), Some(Output::Failed(FetchFailure::InvalidResponse(_)))));
}

#[test]
fn a_part_of_an_unknown_whole_is_not_taken_for_the_whole() {
    let config =
        Config { metered: MeteredUse::Limit(Size::from_bytes(1_000)), ..Config::default() };
    let mut fetch = Fetch::new(config);
    let path = PathId(0);
    fetch.handle(Time::ZERO, Input::PathUp { path, metered: true, known: None });
    fetch.poll(Time::ZERO);
    fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false, rtt: None });
    let Some(Output::Request { request, range, .. }) = fetch.poll(Time::ZERO) else { panic!() };
    assert_eq!(range, Some(Range::new(0, 1_000)));
    let content_range = Some(ContentRange::parse(b"bytes 0-999/*"));
    let head = Head { content_range, ..head(206, Some(1_000)) };
    fetch.handle(Time::ZERO, Input::Head { request, head });
    assert!(matches!(last(&mut fetch), Some(Output::Failed(FetchFailure::InvalidResponse(_)))));
}

#[test]
fn more_bytes_than_announced_are_not_written() {
    let (mut fetch, request) = asked();
    fetch.handle(Time::ZERO, Input::Head { request, head: head(200, Some(10)) });
    fetch.handle(Time::ZERO, Input::Bytes { request, length: 11 });
    while let Some(output) = fetch.poll(Time::ZERO) {
        assert!(!matches!(output, Output::Write { .. } | Output::Done), "{output:?}");
    }
    assert!(fetch.done().is_empty());
}

#[test]
fn a_body_that_ends_early_is_not_done() {
    let (mut fetch, request) = asked();
    fetch.handle(Time::ZERO, Input::Head { request, head: head(200, Some(10)) });
    fetch.handle(Time::ZERO, Input::Bytes { request, length: 9 });
    fetch.handle(Time::ZERO, Input::Finished { request });
    assert!(!matches!(last(&mut fetch), Some(Output::Done)));
    // The path is retried after its backoff, for the missing byte.
    let path = PathId(0);
    let later = fetch.next_wakeup().unwrap();
    assert!(later > Time::ZERO && later < Time::ZERO + Span::from_secs(1));
    assert_eq!(
        fetch.poll(later),
        Some(Output::Connect { path, window: 8 << 20, connection_window: 12 << 20 })
    );
    fetch.handle(later, Input::Connected { path, multiplexed: false, rtt: None });
    let Some(Output::Request { range: Some(range), if_range: Some(_), .. }) = fetch.poll(later)
    else {
        panic!()
    };
    assert_eq!((range.start, range.end), (9, 10));
}

#[test]
fn inputs_about_what_is_over_do_nothing() {
    let (mut fetch, request) = asked();
    fetch.handle(Time::ZERO, Input::Head { request, head: head(200, Some(0)) });
    assert_eq!(last(&mut fetch), Some(Output::Done));
    let fault = PathError::transient(PathErrorKind::Reset, "late");
    fetch.handle(Time::ZERO, Input::Failed { request, error: fault });
    fetch.handle(Time::ZERO, Input::Bytes { request, length: 1 });
    assert_eq!(fetch.poll(Time::ZERO), None);
}
