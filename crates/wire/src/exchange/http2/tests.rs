mod faults;
mod frames;
mod generated;
mod limits;

use self::frames::{
    ACK, END_HEADERS, END_STREAM, GET, block, continuation, data, frame, goaway, headers, padded,
    preface, promise, reset, settings,
};
use super::*;
use crate::archive::{Field, Protocol};
use crate::exchange::{RequestHead, ResponseHead, StreamId};

use Endpoint::{Client, Server};

/// An event, with the heads as text, and the pieces of a body joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// Method and target, and the fields.
    Request(StreamId, String, Vec<String>),
    Interim(StreamId, u16, Vec<String>),
    Response(StreamId, u16, Vec<String>),
    Body(StreamId, Endpoint, Vec<u8>),
    End(StreamId, Endpoint, Vec<String>),
    Abort(StreamId, Endpoint),
    Upgraded(StreamId),
}

/// Bytes in the order in which they pass.
type Conversation = Vec<(Endpoint, Vec<u8>)>;

#[derive(Default)]
struct Harness {
    observer: Observer,
    seen: Vec<Seen>,
}

impl Harness {
    /// Begins with the preface and the settings of both endpoints.
    fn new() -> Self {
        let mut harness = Self::default();
        harness.passes(Client, &preface()).unwrap();
        harness.passes(Server, &settings(&[])).unwrap();
        harness.passes(Server, &frame(4, ACK, 0, &[])).unwrap();
        harness.passes(Client, &frame(4, ACK, 0, &[])).unwrap();
        harness
    }

    fn passes(&mut self, from: Endpoint, bytes: &[u8]) -> Result<(), Fault> {
        let Self { observer, seen } = self;
        observer.handle(from, bytes, &mut |event| add(seen, event))
    }

    /// Passes frames that are correct.
    fn pass(&mut self, from: Endpoint, frames: &[Vec<u8>]) {
        self.passes(from, &frames.concat()).unwrap();
    }

    fn ends(&mut self, from: Endpoint) {
        let Self { observer, seen } = self;
        observer.end(from, &mut |event| add(seen, event));
    }

    /// Takes the events since the last call.
    fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

fn lines(fields: &[Field]) -> Vec<String> {
    let line = |field: &Field| format!("{}: {}", field.name, field.value.escape_ascii());
    fields.iter().map(line).collect()
}

fn add(seen: &mut Vec<Seen>, event: Event<'_>) {
    let new = match event {
        Event::Request(id, RequestHead { method, target, fields, .. }) => {
            Seen::Request(id, format!("{method} {target}"), lines(&fields))
        }
        Event::Interim(id, status, fields) => Seen::Interim(id, status, lines(&fields)),
        Event::Response(id, ResponseHead { status, fields, .. }) => {
            Seen::Response(id, status, lines(&fields))
        }
        Event::Body(id, from, bytes) => {
            if let Some(Seen::Body(last, sender, body)) = seen.last_mut()
                && (*last, *sender) == (id, from)
            {
                body.extend(bytes);
                return;
            }
            Seen::Body(id, from, bytes.to_vec())
        }
        Event::End(id, from, trailers) => Seen::End(id, from, lines(&trailers)),
        Event::Abort(id, by) => Seen::Abort(id, by),
        Event::Upgraded(id) => Seen::Upgraded(id),
    };
    seen.push(new);
}

fn request(id: StreamId, line: &str, fields: &[&str]) -> Seen {
    Seen::Request(id, line.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect())
}

fn response(id: StreamId, status: u16, fields: &[&str]) -> Seen {
    Seen::Response(id, status, fields.iter().map(|field| (*field).to_owned()).collect())
}

fn body(id: StreamId, from: Endpoint, bytes: &[u8]) -> Seen {
    Seen::Body(id, from, bytes.to_vec())
}

fn end(id: StreamId, from: Endpoint) -> Seen {
    Seen::End(id, from, Vec::new())
}

/// Passes a conversation in pieces of at most `max` bytes.
fn observe(conversation: &Conversation, max: usize) -> Vec<Seen> {
    let mut harness = Harness::default();
    for (from, bytes) in conversation {
        bytes.chunks(max).for_each(|piece| harness.passes(*from, piece).unwrap());
    }
    assert!(!harness.observer.is_busy());
    harness.seen
}

#[test]
fn exchanges_pass_at_the_same_time_in_pieces_of_any_size() {
    let post = block(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/b?c"),
        ("x-y", "z"),
    ]);
    let priority = [&[0x80, 0, 0, 1, 9][..], &post].concat();
    let trailers = block(&[("digest", "x"), ("b", "c")]);
    let found = block(&[(":status", "200"), ("server", "d")]);
    let conversation = vec![
        (Client, preface()),
        (Client, headers(1, END_STREAM, GET)),
        // Padding, a priority, and a block in three frames.
        (Client, padded(1, 0x20, 3, 7, &priority[..9])),
        (Client, continuation(3, 0, &[])),
        (Client, continuation(3, END_HEADERS, &priority[9..])),
        (Server, settings(&[(3, 100)])),
        (Server, frame(4, ACK, 0, &[])),
        (Client, frame(8, 0, 0, &[0, 1, 0, 0])),
        (Client, data(3, 0, b"abc")),
        (Server, headers(3, 0, &block(&[(":status", "103"), ("link", "</x>")]))),
        (Server, headers(1, 0, &found)),
        (Server, data(1, 0, b"hel")),
        (Client, padded(0, 0, 3, 255, b"def")),
        (Server, headers(3, 0, &found)),
        (Server, data(3, 0, b"")),
        (Server, data(3, 0, b"first")),
        // An unknown frame, PRIORITY, PING.
        (Server, frame(0xfa, 0xff, 3, b"anything")),
        (Client, frame(2, 0, 99, &[0; 5])),
        (Server, frame(6, 0, 0, &[0; 8])),
        (Client, data(3, END_STREAM, b"")),
        (Server, padded(0, END_STREAM, 1, 3, b"lo")),
        (Server, headers(3, END_STREAM, &trailers)),
    ];
    let expected = vec![
        request(1, "GET /", &[]),
        end(1, Client),
        request(3, "POST /b?c", &["x-y: z"]),
        body(3, Client, b"abc"),
        Seen::Interim(3, 103, vec!["link: </x>".to_owned()]),
        response(1, 200, &["server: d"]),
        body(1, Server, b"hel"),
        body(3, Client, b"def"),
        response(3, 200, &["server: d"]),
        body(3, Server, b"first"),
        end(3, Client),
        body(1, Server, b"lo"),
        end(1, Server),
        Seen::End(3, Server, vec!["digest: x".to_owned(), "b: c".to_owned()]),
    ];
    for max in 1..300 {
        assert_eq!(observe(&conversation, max), expected, "pieces of {max}");
    }
}

#[test]
fn a_head_is_reported_with_all_its_values() {
    let head = |bytes: &[u8]| {
        let mut harness = Harness::new();
        let mut heads = Vec::new();
        let request = headers(1, 0, bytes);
        harness
            .observer
            .handle(Client, &request, &mut |event| heads.push(format!("{event:?}")))
            .unwrap();
        heads.remove(0)
    };
    let (scheme, path) = ((":scheme", "http"), (":path", "*"));
    let host = ("host", "b.example");
    let field = Field { name: "host".to_owned(), value: b"b.example".to_vec() };
    let mut expected = RequestHead {
        method: "OPTIONS".to_owned(),
        target: "*".to_owned(),
        scheme: Some("http".to_owned()),
        authority: Some("a.example:81".to_owned()),
        protocol: Protocol::Http2,
        fields: vec![field],
        length: None,
    };
    let authority = (":authority", "a.example:81");
    let all = block(&[(":method", "OPTIONS"), scheme, path, authority, host]);
    assert_eq!(head(&all), format!("{:?}", Event::Request(1, expected.clone())));
    expected.authority = Some("b.example".to_owned());
    for authority in [&[][..], &[(":authority", "")]] {
        let without = [&[(":method", "OPTIONS"), scheme, path][..], authority, &[host]].concat();
        assert_eq!(head(&block(&without)), format!("{:?}", Event::Request(1, expected.clone())));
    }
    let mut heads = Vec::new();
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, END_STREAM, GET)]);
    let found = headers(1, 0, &block(&[(":status", "404"), ("a", "b"), ("a", "\u{e9}")]));
    harness.observer.handle(Server, &found, &mut |event| heads.push(format!("{event:?}"))).unwrap();
    let field = |value: &[u8]| Field { name: "a".to_owned(), value: value.to_vec() };
    let response = ResponseHead {
        status: 404,
        reason: String::new(),
        protocol: Protocol::Http2,
        fields: vec![field(b"b"), field("\u{e9}".as_bytes())],
        length: None,
    };
    assert_eq!(heads, [format!("{:?}", Event::Response(1, response))]);
}

#[test]
fn the_length_of_a_body_is_announced_once() {
    let length = |method: &str, status: &str, values: &[&str]| {
        let mut harness = Harness::new();
        let mut length = None;
        let request = [(":method", method), (":scheme", "https"), (":path", "/")];
        harness.pass(Client, &[headers(1, END_STREAM, &block(&request))]);
        let fields = values.iter().map(|value| ("content-length", *value));
        let fields: Vec<_> = [(":status", status)].into_iter().chain(fields).collect();
        let mut each = |event: Event<'_>| {
            if let Event::Response(_, head) = event {
                length = head.length;
            }
        };
        harness.observer.handle(Server, &headers(1, 0, &block(&fields)), &mut each).unwrap();
        length
    };
    assert_eq!(length("GET", "200", &["17"]), Some(17));
    assert_eq!(length("GET", "200", &["17", "17, 17"]), Some(17));
    for wrong in [&[][..], &["17", "18"], &["17,18"], &["+17"], &[""], &["99999999999999999999"]] {
        assert_eq!(length("GET", "200", wrong), None, "{wrong:?}");
    }
    for (method, status) in [("HEAD", "200"), ("GET", "204"), ("GET", "304")] {
        assert_eq!(length(method, status, &["17"]), None);
    }
}

#[test]
fn a_promise_is_a_request_that_is_complete() {
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, END_STREAM, GET)]);
    harness.take();
    let long = block(&[(":method", "GET"), (":scheme", "https"), (":path", "/style"), ("a", "b")]);
    let begin = [&[0, 0, 0, 2][..], &long[..5]].concat();
    let parts = [padded(5, 0, 1, 4, &begin), continuation(1, END_HEADERS, &long[5..])];
    harness.pass(Server, &parts);
    harness.pass(Server, &[promise(1, 4, GET), promise(1, 8, GET)]);
    let expected = [
        request(2, "GET /style", &["a: b"]),
        end(2, Client),
        request(4, "GET /", &[]),
        end(4, Client),
        request(8, "GET /", &[]),
        end(8, Client),
    ];
    assert_eq!(harness.take(), expected);
    harness
        .pass(Server, &[headers(2, 0, &block(&[(":status", "200")])), data(2, END_STREAM, b"x")]);
    harness.pass(Client, &[reset(4, 8)]);
    harness.pass(Server, &[headers(4, END_STREAM, &block(&[(":status", "200")]))]);
    harness.pass(Client, &[goaway(6, 0)]);
    harness.pass(Server, &[promise(1, 10, GET)]);
    let expected = [
        response(2, 200, &[]),
        body(2, Server, b"x"),
        end(2, Server),
        Seen::Abort(4, Client),
        Seen::Abort(8, Client),
        request(10, "GET /", &[]),
        end(10, Client),
        Seen::Abort(10, Client),
    ];
    assert_eq!(harness.take(), expected);
    assert!(harness.observer.is_busy(), "stream 1 is not complete");
}

#[test]
fn after_connect_the_bytes_of_a_stream_belong_to_another_protocol() {
    let plain = block(&[(":method", "CONNECT"), (":authority", "a.example:443")]);
    let extended = block(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/chat"),
        (":authority", "a.example"),
        ("sec-websocket-version", "13"),
    ]);
    for (head, expected) in [
        (&plain, request(1, "CONNECT a.example:443", &[])),
        (&extended, request(1, "CONNECT /chat", &["sec-websocket-version: 13"])),
    ] {
        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, 0, head), data(1, 0, b"early")]);
        harness.pass(Server, &[headers(1, 0, &block(&[(":status", "200")]))]);
        let accepted = [expected.clone(), response(1, 200, &[]), Seen::Upgraded(1)];
        assert_eq!(harness.take(), accepted);
        assert!(!harness.observer.is_busy());
        harness.pass(Client, &[data(1, 0, b"a"), headers(3, END_STREAM, GET), reset(1, 0)]);
        harness.pass(Server, &[data(1, END_STREAM, b"b")]);
        assert_eq!(harness.take(), [request(3, "GET /", &[]), end(3, Client)]);

        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, 0, head)]);
        let refused = [headers(1, 0, &block(&[(":status", "403")])), data(1, END_STREAM, b"no")];
        harness.pass(Server, &refused);
        harness.pass(Client, &[data(1, END_STREAM, b"")]);
        let rest = [response(1, 403, &[]), body(1, Server, b"no"), end(1, Server), end(1, Client)];
        assert_eq!(harness.take(), [&[expected][..], &rest].concat());
    }
}

#[test]
fn a_reset_aborts_an_exchange_that_is_not_complete() {
    let ok = block(&[(":status", "200")]);
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, END_STREAM, GET), headers(3, 0, GET), headers(5, 0, GET)]);
    harness.pass(Server, &[headers(1, 0, &ok), headers(3, END_STREAM, &ok)]);
    harness.take();
    harness.pass(Client, &[reset(1, 8)]);
    // The server gave up the rest of a request after a complete response.
    harness.pass(Server, &[reset(3, 0), reset(5, 7)]);
    let aborted = [Seen::Abort(1, Client), Seen::Abort(3, Server), Seen::Abort(5, Server)];
    assert_eq!(harness.take(), aborted);
    assert!(!harness.observer.is_busy());
    // Frames that were under way are ignored, but belong to the state of the compression.
    let added = [&ok[..], &[0x40, 1, b'a', 1, b'b']].concat();
    harness.pass(Client, &[headers(7, END_STREAM, GET)]);
    harness.pass(Server, &[data(1, 0, b"x"), headers(5, END_STREAM, &added), reset(1, 0)]);
    harness.pass(Client, &[data(3, 0, b"y"), reset(3, 0)]);
    harness.pass(Server, &[headers(7, END_STREAM, &[&ok[..], &[0xbe]].concat())]);
    let expected =
        [request(7, "GET /", &[]), end(7, Client), response(7, 200, &["a: b"]), end(7, Server)];
    assert_eq!(harness.take(), expected);
    harness.pass(Server, &[reset(7, 0)]);
    assert_eq!(harness.take(), [], "the exchange was complete");
}

#[test]
fn a_server_that_goes_away_aborts_the_streams_that_it_does_not_process() {
    let mut harness = Harness::new();
    let requests = [1, 3, 5, 7].map(|id| headers(id, END_STREAM, GET));
    harness.pass(Client, &requests);
    harness.pass(Server, &[promise(1, 2, GET), goaway(0x7fff_ffff, 0)]);
    harness.pass(Client, &[headers(9, END_STREAM, GET)]);
    harness.take();
    harness.pass(Server, &[goaway(3, 0)]);
    let aborted = [5, 7, 9].map(|id| Seen::Abort(id, Server));
    assert_eq!(harness.take(), aborted, "not the stream of the promise");
    // A higher number is not possible.
    harness.pass(Server, &[goaway(99, 0)]);
    harness.pass(Client, &[headers(11, END_STREAM, GET)]);
    let late = [request(11, "GET /", &[]), end(11, Client), Seen::Abort(11, Server)];
    assert_eq!(harness.take(), late);
    harness.pass(Server, &[headers(3, END_STREAM, &block(&[(":status", "200")]))]);
    assert_eq!(harness.take(), [response(3, 200, &[]), end(3, Server)]);
    harness.pass(Server, &[goaway(1, 2)]);
    harness.ends(Server);
    assert_eq!(harness.take(), [Seen::Abort(1, Server), Seen::Abort(2, Server)]);
}

#[test]
fn the_reserved_bit_before_a_stream_is_ignored() {
    const RESERVED: u32 = 0x8000_0000;
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(RESERVED | 1, END_STREAM, GET), headers(3, END_STREAM, GET)]);
    harness.pass(Server, &[promise(1, RESERVED | 2, GET), reset(2, 0), goaway(RESERVED | 1, 0)]);
    let expected = [
        request(1, "GET /", &[]),
        end(1, Client),
        request(3, "GET /", &[]),
        end(3, Client),
        request(2, "GET /", &[]),
        end(2, Client),
        Seen::Abort(2, Server),
        Seen::Abort(3, Server),
    ];
    assert_eq!(harness.take(), expected);
}

#[test]
fn the_end_of_the_connection_aborts_all_exchanges() {
    for by in [Client, Server] {
        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, 0, GET), headers(3, END_STREAM, GET)]);
        harness.take();
        harness.ends(by);
        assert_eq!(harness.take(), [Seen::Abort(1, by), Seen::Abort(3, by)]);
        harness.ends(by.other());
        harness.pass(Server, &[headers(1, END_STREAM, &block(&[(":status", "200")]))]);
        harness.pass(Client, &[headers(5, END_STREAM, GET)]);
        assert_eq!((harness.take(), harness.observer.is_busy()), (vec![], false));
    }
}
