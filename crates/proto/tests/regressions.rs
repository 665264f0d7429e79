//! Regressions of decisions in `Fetch`.

use manyways_proto::fetch::{
    Config, ContentRange, Fetch, Head, Input, MeteredUse, Output, PathId, Range, RequestId,
    Validator,
};
use manyways_unit::{Size, Time};

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
