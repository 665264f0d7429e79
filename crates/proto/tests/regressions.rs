//! Regressions of decisions in `Fetch`.

use manyways_proto::fetch::{
    Config, ContentRange, Fetch, Head, Input, MeteredUse, Output, PathId, Range, RequestId,
    Validator,
};
use manyways_unit::{Size, Span, Time};

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn up(config: Config, metered: &[bool]) -> Fetch {
    let mut fetch = Fetch::new(config);
    for (path, &metered) in metered.iter().enumerate() {
        fetch.handle(ms(0), Input::PathUp { path: PathId(path), metered, known: None });
    }
    fetch
}

fn drain(fetch: &mut Fetch, now: Time) -> Vec<Output> {
    std::iter::from_fn(|| fetch.poll(now)).collect()
}

fn request_on(outputs: &[Output], on: usize) -> Option<(RequestId, Option<Range>)> {
    outputs.iter().find_map(|output| match output {
        Output::Request { request, path, range, .. } if path.0 == on => Some((*request, *range)),
        _ => None,
    })
}

fn ranges_on(outputs: &[Output], on: usize) -> impl Iterator<Item = Range> {
    outputs.iter().filter_map(move |output| match output {
        Output::Request { path, range, .. } if path.0 == on => *range,
        _ => None,
    })
}

/// Polls the fetch at its wakeups until `until`. Returns its outputs with their times.
fn sleep_until(fetch: &mut Fetch, until: Time) -> Vec<(Time, Output)> {
    let mut said = Vec::new();
    while let Some(now) = fetch.next_wakeup().filter(|at| *at <= until) {
        said.extend(drain(fetch, now).into_iter().map(|output| (now, output)));
    }
    said
}

fn head(length: u64, accept: bool) -> Head {
    Head {
        status: 200,
        length: Some(length),
        content_range: None,
        validator: Some(Validator::Etag("\"v\"".into())),
        refuses_ranges: !accept,
        ..Head::default()
    }
}

fn part(range: Range, length: u64) -> Head {
    Head {
        status: 206,
        length: Some(range.len()),
        content_range: Some(Some(ContentRange { range: Some(range), length: Some(length) })),
        ..head(length, true)
    }
}

/// The first GET over a metered path waits 250 ms for an unmetered one, not the 15 s of its
/// connection attempt.
#[test]
fn a_third_path_that_connects_first_does_not_lose_the_wake_up() {
    let mut fetch = up(Config::default(), &[false, true, true]);
    drain(&mut fetch, ms(0));
    // Path 0 never connects.
    fetch.handle(ms(10), Input::Connected { path: PathId(2), multiplexed: true, rtt: None });
    assert!(request_on(&drain(&mut fetch, ms(10)), 2).is_none());
    fetch.handle(ms(100), Input::Connected { path: PathId(1), multiplexed: true, rtt: None });
    drain(&mut fetch, ms(100));
    let said = sleep_until(&mut fetch, ms(14_000));
    let first = said.iter().find(|(_, output)| matches!(output, Output::Request { .. }));
    let at = first.map(|(at, _)| *at);
    assert!(at.is_some_and(|at| at <= ms(400)), "the first GET at {at:?}");
}

/// The path that connects first sends the first GET, whatever its number.
#[test]
fn the_first_get_waits_for_no_path_of_the_same_kind() {
    for (first, metered) in [(0, false), (1, false), (2, false), (2, true)] {
        let mut fetch = up(Config::default(), &[metered; 3]);
        drain(&mut fetch, ms(0));
        let path = PathId(first);
        fetch.handle(ms(10), Input::Connected { path, multiplexed: true, rtt: None });
        assert!(request_on(&drain(&mut fetch, ms(10)), first).is_some());
    }
}

/// A path that becomes silent is raced against after one second, even with few remaining bytes.
#[test]
fn a_small_gap_behind_a_silent_lead_does_not_hide_it() {
    for rest in [8 * 1024, 64 * 1024] {
        let chunk = 1 << 20;
        let mut fetch = up(Config::default(), &[false, false]);
        drain(&mut fetch, ms(0));
        fetch.handle(ms(10), Input::Connected { path: PathId(0), multiplexed: true, rtt: None });
        let (lead, _) = request_on(&drain(&mut fetch, ms(10)), 0).expect("the first GET");
        fetch.handle(ms(40), Input::Head { request: lead, head: head(chunk + rest, true) });
        for i in 1..=20 {
            fetch.handle(ms(40 + 10 * i), Input::Bytes { request: lead, length: 10_000 });
            drain(&mut fetch, ms(40 + 10 * i));
        }
        // Path 0 has 848 kB left and delivers nothing. The other path receives all responses until
        // it requests the remaining range of path 0.
        fetch.handle(ms(300), Input::Connected { path: PathId(1), multiplexed: true, rtt: None });
        let mut now = ms(300);
        let raced = loop {
            let said = drain(&mut fetch, now);
            if ranges_on(&said, 1).any(|range| range.start == 200_000) {
                break Some(now);
            }
            match request_on(&said, 1) {
                Some((request, Some(range))) => {
                    let whole = fetch.object().and_then(|object| object.length).unwrap_or(0);
                    fetch.handle(now, Input::Head { request, head: part(range, whole) });
                    fetch.handle(now, Input::Bytes { request, length: range.len() });
                    fetch.handle(now, Input::Finished { request });
                }
                _ => match fetch.next_wakeup().filter(|at| *at <= ms(4_000)) {
                    Some(at) => now = at,
                    None => break None,
                },
            }
        };
        assert!(raced.is_some_and(|at| at <= ms(1_500)), "{rest} bytes behind: raced {raced:?}");
    }
}

/// The metered path connected first and has used up its limit, and the server ignores ranges. The
/// unmetered path can still fetch the whole object.
#[test]
fn an_allowance_spent_without_ranges_leaves_the_free_path() {
    let config =
        Config { metered: MeteredUse::Limit(Size::from_bytes(700_000)), ..Config::default() };
    let mut fetch = up(config, &[false, true]);
    drain(&mut fetch, ms(0));
    fetch.handle(ms(10), Input::Connected { path: PathId(1), multiplexed: true, rtt: None });
    drain(&mut fetch, ms(10));
    let said = sleep_until(&mut fetch, ms(300));
    let said: Vec<Output> = said.into_iter().map(|(_, output)| output).collect();
    let (request, _) = request_on(&said, 1).expect("the metered path does not wait for ever");
    fetch.handle(ms(330), Input::Head { request, head: head(2_000_000, false) });
    drain(&mut fetch, ms(330));
    // Wi-Fi connects after all.
    fetch.handle(ms(400), Input::Connected { path: PathId(0), multiplexed: true, rtt: None });
    let mut said = drain(&mut fetch, ms(400));
    for i in 0..70 {
        fetch.handle(ms(410 + i), Input::Bytes { request, length: 10_000 });
        said.extend(drain(&mut fetch, ms(410 + i)));
    }
    said.extend(sleep_until(&mut fetch, ms(2_000)).into_iter().map(|(_, output)| output));
    let failed = said.iter().find(|output| matches!(output, Output::Failed(_)));
    assert!(failed.is_none(), "{failed:?}");
    assert!(request_on(&said, 0).is_some(), "the free path is not asked");
}

/// The answer of path 0 to the first request is late, path 1 repeats it, and path 2 learns that the
/// server ignores ranges. The response that has begun continues, or, if it is lost, the other one.
#[test]
fn without_ranges_a_plain_response_continues() {
    let length = 2_000_000;
    for is_lost in [false, true] {
        let mut fetch = up(Config::default(), &[false; 3]);
        drain(&mut fetch, ms(0));
        let rtt = Some(Span::from_millis(30));
        for path in [PathId(0), PathId(1)] {
            fetch.handle(ms(10), Input::Connected { path, multiplexed: true, rtt });
        }
        let (silent, _) = request_on(&drain(&mut fetch, ms(10)), 0).expect("the first GET");
        let outputs: Vec<Output> =
            sleep_until(&mut fetch, ms(200)).into_iter().map(|(_, output)| output).collect();
        let (repeated, _) = request_on(&outputs, 1).expect("the other path repeats it");
        fetch.handle(ms(230), Input::Head { request: repeated, head: head(length, true) });
        fetch.handle(ms(230), Input::Connected { path: PathId(2), multiplexed: true, rtt });
        let (ranged, _) = request_on(&drain(&mut fetch, ms(230)), 2).expect("its share");
        if is_lost {
            fetch.handle(ms(240), Input::PathDown { path: PathId(1) });
            drain(&mut fetch, ms(240));
        }
        fetch.handle(ms(260), Input::Head { request: ranged, head: head(length, true) });
        let mut outputs = drain(&mut fetch, ms(260));
        let remaining = if is_lost { silent } else { repeated };
        assert!(outputs.contains(&Output::Cut { request: remaining, end: length }), "{outputs:?}");
        if is_lost {
            fetch.handle(ms(270), Input::Head { request: silent, head: head(length, true) });
            outputs.extend(drain(&mut fetch, ms(270)));
        }
        let cancelled = |request| outputs.contains(&Output::Cancel { request });
        assert!(cancelled(ranged) && !cancelled(remaining), "{is_lost}: {outputs:?}");
        assert!(is_lost || cancelled(silent), "{outputs:?}");
    }
}

/// The length is known beforehand, and the answer to the range of path 1 comes first. The plain GET
/// of path 0 is for other bytes.
#[test]
fn the_plain_get_of_another_share_continues() {
    let length = 2_000_000;
    let mut fetch = up(Config { length: Some(length), ..Config::default() }, &[false, false]);
    drain(&mut fetch, ms(0));
    let rtt = Some(Span::from_millis(30));
    for path in [PathId(0), PathId(1)] {
        fetch.handle(ms(10), Input::Connected { path, multiplexed: true, rtt });
    }
    let outputs = drain(&mut fetch, ms(10));
    let (plain, range) = request_on(&outputs, 0).expect("a request");
    assert_eq!(range, None);
    let (ranged, range) = request_on(&outputs, 1).expect("a request");
    let range = range.expect("the end of the object");
    fetch.handle(ms(40), Input::Head { request: ranged, head: part(range, length) });
    let outputs = drain(&mut fetch, ms(41));
    assert!(!outputs.contains(&Output::Cancel { request: plain }), "{outputs:?}");
    fetch.handle(ms(42), Input::Head { request: plain, head: head(length, true) });
    let outputs = drain(&mut fetch, ms(42));
    assert!(!outputs.contains(&Output::Cancel { request: plain }), "{outputs:?}");
}

/// A connection of HTTP/1.1 with a request has no PING. The RTT is measured when it has one again.
#[test]
fn a_ping_that_failed_is_repeated() {
    let mut fetch = up(Config::default(), &[false]);
    drain(&mut fetch, ms(0));
    fetch.handle(ms(10), Input::Connected { path: PathId(0), multiplexed: false, rtt: None });
    let pings = |outputs: &[Output]| outputs.contains(&Output::Ping { path: PathId(0) });
    let outputs = drain(&mut fetch, ms(10));
    assert!(pings(&outputs));
    let (request, _) = request_on(&outputs, 0).expect("the first GET");
    fetch.handle(ms(11), Input::PingFailed { path: PathId(0) });
    fetch.handle(ms(40), Input::Head { request, head: head(1 << 20, true) });
    assert!(!pings(&drain(&mut fetch, ms(100))));
    assert!(pings(&drain(&mut fetch, ms(600))));
}

/// The other answer to the first request does not tell the length. It has the same validator, so it
/// is no other version.
#[test]
fn a_repeated_answer_without_a_length_is_no_other_version() {
    let mut fetch = up(Config::default(), &[false; 2]);
    drain(&mut fetch, ms(0));
    for path in [PathId(0), PathId(1)] {
        let rtt = Some(Span::from_millis(30));
        fetch.handle(ms(10), Input::Connected { path, multiplexed: true, rtt });
    }
    let (late, _) = request_on(&drain(&mut fetch, ms(10)), 0).expect("the first GET");
    let outputs: Vec<Output> =
        sleep_until(&mut fetch, ms(200)).into_iter().map(|(_, output)| output).collect();
    let (repeated, _) = request_on(&outputs, 1).expect("the other path repeats it");
    fetch.handle(ms(230), Input::Head { request: repeated, head: head(2_000_000, true) });
    drain(&mut fetch, ms(230));
    let head = Head { length: None, ..head(0, true) };
    fetch.handle(ms(240), Input::Head { request: late, head });
    let outputs = drain(&mut fetch, ms(240));
    assert!(outputs.contains(&Output::Cancel { request: late }), "{outputs:?}");
    assert!(request_on(&outputs, 0).is_some(), "{outputs:?}");
}
