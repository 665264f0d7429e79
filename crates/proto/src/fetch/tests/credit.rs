//! A fetch must never withhold the last credit or leave a byte without a request.

use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span, Time};

use super::MB;
use super::simulation::{Link, RunOutcome, Server, Simulation};
use crate::fetch::{
    Config, Fetch, FetchFailure, Input, MeteredUse, Object, Output, PathError, PathErrorKind,
    PathId, Range, RequestId, Scheduler,
};

/// A stream: the unsent bytes, and the offset up to which it has credit.
struct Stream {
    path: PathId,
    remaining: Range,
    credit: u64,
}

/// Two paths whose servers send all permitted bytes as one frame of a full window, as servers with
/// the largest permitted frame do.
#[test]
fn a_server_that_uses_up_its_credit_gets_more() {
    let server = Server::of(2_000_001);
    let mut fetch = Fetch::new(Config::default());
    let mut windows: BTreeMap<PathId, u64> = BTreeMap::new();
    let mut streams: BTreeMap<RequestId, Stream> = BTreeMap::new();
    for path in [PathId(0), PathId(1)] {
        fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
    }
    let mut now = Time::ZERO;
    loop {
        while let Some(output) = fetch.poll(now) {
            match output {
                Output::Connect { path, window, .. } => {
                    windows.insert(path, window);
                    fetch.handle(now, Input::Connected { path, multiplexed: true, rtt: None });
                }
                Output::Window { path, bytes } => {
                    let before = windows.insert(path, bytes).unwrap_or_default();
                    for stream in streams.values_mut().filter(|stream| stream.path == path) {
                        stream.credit = (stream.credit + bytes).saturating_sub(before);
                    }
                }
                Output::Ping { path } => fetch.handle(now, Input::Pong { path }),
                Output::Credit { request, bytes } => {
                    if let Some(stream) = streams.get_mut(&request) {
                        stream.credit += bytes;
                    }
                }
                Output::Request { request, path, range, if_range } => {
                    let (head, left) = server.answer(range, if_range.as_ref());
                    let credit = left.start + windows[&path];
                    streams.insert(request, Stream { path, remaining: left, credit });
                    fetch.handle(now, Input::Head { request, head });
                }
                Output::Check { request, range, if_range, .. } => {
                    let (head, _) = server.answer(Some(range), Some(&if_range));
                    fetch.handle(now, Input::Head { request, head });
                }
                Output::Cancel { request } => {
                    streams.remove(&request);
                }
                Output::Done => return,
                Output::Failed(reason) => panic!("{reason:?}"),
                _ => {}
            }
        }
        // 3 and 2 Mbit/s; the next frame is the one that completes first.
        let next = streams
            .iter()
            .filter(|(_, stream)| stream.remaining.start < stream.credit.min(stream.remaining.end))
            .map(|(id, stream)| {
                let piece = stream.credit.min(stream.remaining.end) - stream.remaining.start;
                (piece * if stream.path == PathId(0) { 2 } else { 3 }, *id, piece)
            })
            .min();
        let Some((time, request, length)) = next else {
            panic!("nobody may send anything, and {} bytes are there", fetch.done().total());
        };
        now += Span::from_micros(time);
        let stream = streams.get_mut(&request).expect("it was just seen");
        stream.remaining.start += length;
        let ends = stream.remaining.is_empty();
        fetch.handle(now, Input::Bytes { request, length });
        if ends && streams.remove(&request).is_some() && fetch.is_under_way(request) {
            fetch.handle(now, Input::Finished { request });
        }
    }
}

/// Two ready paths must not leave the last byte to each other.
#[test]
fn the_last_byte_is_asked_for() {
    for missing in 1..4 {
        let server = Server::of(100_000);
        let (head, _) = server.answer(None, None);
        let object = Object { length: head.length, validator: head.validator };
        let done = [Range::new(0, 50_000), Range::new(50_000 + missing, 100_000)];
        let resume = Some((object, done.into_iter().collect()));
        let mut fetch = Fetch::new(Config { resume, ..Config::default() });
        for path in [PathId(0), PathId(1)] {
            fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
        }
        while fetch.poll(Time::ZERO).is_some() {}
        for path in [PathId(0), PathId(1)] {
            fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false, rtt: None });
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| fetch.poll(Time::ZERO)).collect();
        let asks = |output: &Output| matches!(output, Output::Request { .. });
        assert!(outputs.iter().any(asks), "{missing}: {outputs:?}");
    }
}

/// Returns the windows of a path that receives `rounds` KB in rounds of 100 ms, after two PINGs.
fn windows(rounds: &[u64]) -> Vec<u64> {
    let server = Server::of(1 << 30);
    let mut fetch = Fetch::new(Config::default());
    // The second path never connects, but windows are limited only if there is more than one path.
    for path in [PathId(0), PathId(1)] {
        fetch.handle(Time::ZERO, Input::PathUp { path, metered: false, known: None });
    }
    let (mut now, mut windows) = (Time::ZERO, Vec::new());
    let (mut asked, mut pinged) = (None, false);
    let before = [None, None].into_iter();
    for bytes in before.chain(rounds.iter().map(Some)).chain([None]) {
        while let Some(output) = fetch.poll(now) {
            match output {
                Output::Connect { path: PathId(0), window, .. } => {
                    windows.push(window);
                    let connected =
                        Input::Connected { path: PathId(0), multiplexed: true, rtt: None };
                    fetch.handle(now, connected);
                }
                Output::Window { bytes, .. } => windows.push(bytes),
                Output::Ping { .. } => pinged = true,
                Output::Request { request, range, if_range, .. } => {
                    asked = Some(request);
                    let (head, _) = server.answer(range, if_range.as_ref());
                    fetch.handle(now, Input::Head { request, head });
                }
                _ => {}
            }
        }
        now += Span::from_millis(100);
        if pinged {
            pinged = false;
            fetch.handle(now, Input::Pong { path: PathId(0) });
        }
        if let (Some(kilobytes), Some(request)) = (bytes, asked) {
            fetch.handle(now, Input::Bytes { request, length: kilobytes * 1_000 });
        }
    }
    windows
}

/// The bytes of the next round are under way when a window is announced; it applies to those after
/// the next.
#[test]
fn the_window_follows_the_growth_of_two_rounds() {
    // Rounds in KB, and the window as a multiple of the last one. A small piece ends that round.
    let first: (&[u64], f64) = (&[55, 1], 2.0);
    let limited: (&[u64], f64) = (&[20, 40, 80, 1], 5.0);
    let grown: (&[u64], f64) = (&[400, 400, 400, 400, 300, 300, 420, 1], 2.26);
    let steady: (&[u64], f64) = (&[40, 40, 40, 40, 1], 2.0);
    for (rounds, factor) in [first, limited, grown, steady] {
        let last = rounds[rounds.len() - 2] * 1_000 + (16 << 10);
        let windows = windows(rounds);
        let window = *windows.last().expect("it connects") as f64 / last as f64;
        assert!((window / factor - 1.0).abs() < 0.02, "{rounds:?}: {windows:?}");
    }
}

#[test]
fn what_waited_for_a_lost_packet_is_no_rate() {
    let steady = windows(&[90, 60, 120, 240, 240, 240, 240, 240, 240]);
    assert!(steady.last() > Some(&400_000), "{steady:?}");
    assert_eq!(windows(&[90, 60, 120, 240, 240, 240, 20, 460, 240, 240]), steady);
}

fn link_in_slow_start(mbps: u64, rtt: u64) -> Link {
    let link = Link::new(Rate::from_mbps(mbps), Span::from_millis(rtt));
    Link { has_slow_start: true, ..link }
}

/// The window grows as fast as slow start on a path with a long round trip, whose server sends a
/// flight of packets in each of them.
#[test]
fn slow_start_is_not_held_back() {
    let links = [link_in_slow_start(2, 42), link_in_slow_start(37, 166)];
    for length in [MB, 4 * MB, 9 * MB] {
        let single = Config { scheduler: Scheduler::Single, ..Config::default() };
        let alone = Simulation::new(single, Server::of(length), &links[1..]).run_to_the_end();
        let end = Simulation::new(Config::default(), Server::of(length), &links).run_to_the_end();
        let max = alone + links[1].rtt;
        assert!(end <= max, "{length}: {end}, {alone} over the longer path alone");
    }
}

/// A request that was cut while its server had credit for more must not exceed the limit for
/// metered paths: the bytes arrive, and count.
#[test]
fn no_credit_exceeds_the_limit_for_metered_paths() {
    let link = |kbps, rtt, multiplexed| {
        let link = Link::new(Rate::from_kbps(kbps), Span::from_millis(rtt));
        Link { metered: true, multiplexed, ..link }
    };
    let links = [link(20, 1, false), link(466, 272, true), link(20, 68, false)];
    let limit = Size::from_bytes(20_321);
    for pipelining in [false, true] {
        let metered = MeteredUse::Limit(limit);
        let config = Config { pipelining, metered, ..Config::default() };
        let mut simulation = Simulation::new(config, Server::of(101_361), &links);
        simulation.run_until(Time::from_millis(273));
        let error = PathError::transient(PathErrorKind::Reset, "the connection broke");
        simulation.fail_request(PathId(0), error);
        let end = simulation.run_unchecked();
        assert_eq!(end, RunOutcome::Failed(FetchFailure::MeteredLimitReached));
        let bytes = simulation.fetch.metered_bytes();
        assert!(bytes <= limit + Size::from_bytes(1_440), "{bytes}");
    }
}
