//! What a fetch must never do: withhold the last credit, or leave a byte to nobody.

use std::collections::BTreeMap;

use manyways_trace::{Span, Time};

use super::world::Server;
use crate::fetch::{Config, Fetch, Input, Object, Output, PathId, Range, RequestId};

/// A stream: what is still to be sent, and up to where there is credit.
struct Stream {
    path: PathId,
    left: Range,
    credit: u64,
}

/// Two paths whose servers send all that they may as one frame, which is as large as a window: so
/// do servers that take the largest frame that is allowed to them.
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
                Output::Connect { path, window } => {
                    windows.insert(path, window);
                    fetch.handle(now, Input::Connected { path, multiplexed: true });
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
                    streams.insert(request, Stream { path, left, credit });
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
        // 3 and 2 Mbit/s: whoever would be done with its frame first.
        let next = streams
            .iter()
            .filter(|(_, stream)| stream.left.start < stream.credit.min(stream.left.end))
            .map(|(id, stream)| {
                let piece = stream.credit.min(stream.left.end) - stream.left.start;
                (piece * if stream.path == PathId(0) { 2 } else { 3 }, *id, piece)
            })
            .min();
        let Some((time, request, length)) = next else {
            panic!("nobody may send anything, and {} bytes are there", fetch.done().total());
        };
        now += Span::from_micros(time);
        let stream = streams.get_mut(&request).expect("it was just seen");
        stream.left.start += length;
        let ends = stream.left.is_empty();
        fetch.handle(now, Input::Bytes { request, length });
        if ends && streams.remove(&request).is_some() && fetch.is_under_way(request) {
            fetch.handle(now, Input::Finished { request });
        }
    }
}

/// Two paths are ready, and each leaves the last byte to the other.
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
            fetch.handle(Time::ZERO, Input::Connected { path, multiplexed: false });
        }
        let outputs: Vec<Output> = std::iter::from_fn(|| fetch.poll(Time::ZERO)).collect();
        let asks = |output: &Output| matches!(output, Output::Request { .. });
        assert!(outputs.iter().any(asks), "{missing}: {outputs:?}");
    }
}
