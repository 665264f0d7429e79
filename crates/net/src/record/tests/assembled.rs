use std::path::Path;
use std::sync::Arc;

use manyways_unit::{Span, Time};
use manyways_wire::archive::{Abort, Field, Protocol};
use manyways_wire::exchange::http1::Observer;
use manyways_wire::exchange::{Event, RequestHead};
use manyways_wire::stream::Endpoint::{self, Client, Server};

use crate::record::assembly::{Assembly, Finished, Handshakes, Outcome};
use crate::record::spool::{BodySource, Spool};

const RTT: Span = Span::from_millis(30);

fn ms(milliseconds: u64) -> Time {
    Time::from_nanos(milliseconds * 1_000_000)
}

fn spool() -> Arc<Spool> {
    Spool::new(Path::new("."))
}

fn assembly() -> Assembly {
    let handshakes =
        Handshakes { connect: Some(Span::from_millis(60)), tls: Some(Span::from_millis(31)) };
    let mut assembly = Assembly::new(true, "192.0.2.1:443".to_owned(), false, handshakes, &spool());
    assembly.set_rtt(Some(RTT));
    assembly
}

/// Lets an observer of HTTP/1 read bytes at times in milliseconds; those of the client are passed on
/// one millisecond later.
fn run(assembly: &mut Assembly, steps: &[(u64, Endpoint, &str)]) -> Vec<Outcome> {
    let (mut observer, mut outcomes) = (Observer::default(), Vec::new());
    for (at, from, bytes) in steps {
        let mut each = |event: Event<'_>| outcomes.extend(assembly.handle(ms(*at), event));
        observer.handle(*from, bytes.as_bytes(), &mut each).unwrap();
        if *from == Client {
            assembly.on_passed_on(ms(*at + 1));
        }
    }
    outcomes
}

fn finished(outcomes: Vec<Outcome>) -> Vec<Finished> {
    let finished = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Finished(finished) => *finished,
        Outcome::Upgraded => panic!("upgraded"),
    });
    finished.collect()
}

fn memory(body: &Option<BodySource>) -> &[u8] {
    match body {
        Some(BodySource::Memory(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_thinks_between_the_last_byte_sent_and_the_first_received() {
    let mut assembly = assembly();
    let outcomes = run(
        &mut assembly,
        &[
            (100, Client, "POST /a?b HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nab"),
            (140, Client, "cd"),
            (201, Server, "HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\n"),
            (271, Server, "HTTP/1.1 200 Fine\r\nContent-Length: 6\r\n\r\nx"),
            (281, Server, "yz"),
            (291, Server, "123"),
        ],
    );
    let [Finished { exchange, request_body, response_body }] = &finished(outcomes)[..] else {
        panic!("not one exchange")
    };
    assert_eq!(exchange.request.url, "https://a.example/a?b");
    assert_eq!((exchange.started, exchange.abort), (ms(100), None));
    let timings = exchange.timings;
    let span = |milliseconds| Some(Span::from_millis(milliseconds));
    assert_eq!((timings.connect, timings.tls), (span(60), span(31)));
    assert_eq!((timings.send, timings.wait, timings.receive), (span(41), span(130), span(20)));
    assert_eq!(exchange.think, span(100));
    let response = exchange.response.as_ref().unwrap();
    assert_eq!((response.status, response.reason.as_str()), (200, "Fine"));
    assert_eq!((response.interim[0].status, response.interim[0].after), (103, span(30)));
    let arrivals: Vec<(u64, u64)> =
        response.arrivals.iter().map(|one| (one.after.as_nanos() / 1_000_000, one.bytes)).collect();
    assert_eq!(arrivals, [(0, 1), (10, 3), (20, 6)]);
    assert_eq!((memory(request_body), memory(response_body)), (&b"abcd"[..], &b"xyz123"[..]));
    let body = response.body.unwrap();
    assert_eq!((body.length, body.digest, body.is_length_announced), (6, None, true));
}

#[test]
fn only_the_first_exchange_has_the_handshakes() {
    let mut assembly = assembly();
    let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let empty = "HTTP/1.1 204 None\r\n\r\n";
    let steps = [(0, Client, get), (1, Server, empty), (2, Client, get), (3, Server, empty)];
    let all = finished(run(&mut assembly, &steps));
    let connects: Vec<_> = all.iter().map(|one| one.exchange.timings.connect.is_some()).collect();
    assert_eq!(connects, [true, false]);
    // A server that answers within the round-trip time did not think.
    assert_eq!(all[1].exchange.think, Some(Span::ZERO));
    assert!(all[1].exchange.response.as_ref().unwrap().body.is_none());
    assert!(all[1].exchange.request.body.is_none() && !assembly.is_busy());
}

#[test]
fn what_is_open_at_the_end_is_incomplete() {
    let mut assembly = assembly();
    let outcomes = run(
        &mut assembly,
        &[
            (0, Client, "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n"),
            (50, Server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        ],
    );
    assert!(outcomes.is_empty() && assembly.is_busy());
    let open = assembly.end(ms(60));
    let urls: Vec<_> = open.iter().map(|one| one.exchange.request.url.as_str()).collect();
    // The requests name no host.
    assert_eq!(urls, ["https://192.0.2.1:443/1", "https://192.0.2.1:443/2"]);
    assert!(open.iter().all(|one| one.exchange.abort == Some(Abort::Recorder)));
    assert_eq!(memory(&open[0].response_body), b"abc");
    assert!(open[1].exchange.response.is_none() && open[1].exchange.think.is_none());
}

fn head(target: &str) -> RequestHead {
    RequestHead {
        method: "PUT".to_owned(),
        target: target.to_owned(),
        scheme: Some("https".to_owned()),
        authority: Some("a.example".to_owned()),
        protocol: Protocol::Http2,
        fields: vec![Field { name: "x".to_owned(), value: b"y".to_vec() }],
        length: None,
    }
}

#[test]
fn an_abort_has_the_side_that_made_it() {
    let response = manyways_wire::exchange::ResponseHead {
        status: 200,
        reason: String::new(),
        protocol: Protocol::Http2,
        fields: Vec::new(),
        length: None,
    };
    let end = |from| Event::End(7, from, Vec::new());
    let cases = [
        (vec![Event::Abort(7, Client)], Some(Abort::Client)),
        (vec![end(Client), Event::Abort(7, Server)], Some(Abort::Server)),
        // The server does not need the rest of the request.
        (vec![Event::Response(7, response.clone()), end(Server), Event::Abort(7, Server)], None),
        (
            vec![Event::Response(7, response.clone()), end(Server), Event::Abort(7, Client)],
            Some(Abort::Client),
        ),
        (vec![Event::Response(7, response), end(Server), end(Client)], None),
    ];
    for (events, expected) in cases {
        let mut assembly =
            Assembly::new(true, String::new(), true, Handshakes::default(), &spool());
        assert!(assembly.handle(ms(0), Event::Request(7, head("/"))).is_none());
        let outcomes = events.into_iter().filter_map(|event| assembly.handle(ms(1), event));
        let all = finished(outcomes.collect());
        let seen: Vec<_> =
            all.iter().map(|one| (one.exchange.stream, one.exchange.abort)).collect();
        assert_eq!(seen, [(Some(7), expected)]);
    }
}

#[test]
fn a_stream_that_leaves_http_is_no_exchange() {
    let mut assembly = assembly();
    let outcomes = run(
        &mut assembly,
        &[
            (
                0,
                Client,
                "GET /socket HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            ),
            (1, Server, "HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        ],
    );
    assert!(matches!(outcomes[..], [Outcome::Upgraded]));
    assert!(assembly.end(ms(2)).is_empty());
}

#[test]
fn a_request_without_a_url_is_left_out() {
    let mut assembly = assembly();
    let mut request = head("/");
    request.authority = Some("a b".to_owned());
    assembly.handle(ms(0), Event::Request(1, request));
    // The host of the connection is one.
    let Some(Outcome::Finished(done)) = assembly.handle(ms(1), Event::Abort(1, Client)) else {
        panic!("not finished")
    };
    assert_eq!(done.exchange.request.url, "https://192.0.2.1:443/");
    assembly.handle(ms(0), Event::Request(2, head("ftp://a.example/")));
    assert!(assembly.handle(ms(1), Event::Abort(2, Client)).is_none() && !assembly.is_busy());
}

#[test]
fn a_long_body_has_some_of_its_arrivals() {
    let mut assembly = assembly();
    assembly.handle(ms(0), Event::Request(0, head("/")));
    let response = manyways_wire::exchange::ResponseHead {
        status: 200,
        reason: String::new(),
        protocol: Protocol::Http2,
        fields: Vec::new(),
        length: None,
    };
    assembly.handle(ms(0), Event::Response(0, response));
    for time in 1..=10_000 {
        assembly.handle(ms(time), Event::Body(0, Server, b"x"));
    }
    let [one] = &assembly.end(ms(20_000))[..] else { panic!("not one exchange") };
    let arrivals = &one.exchange.response.as_ref().unwrap().arrivals;
    assert!((500..=1024).contains(&arrivals.len()), "{}", arrivals.len());
    assert!(arrivals.is_sorted_by_key(|one| (one.after, one.bytes)));
    assert_eq!((arrivals[0].bytes, arrivals.last().unwrap().bytes), (1, 10_000));
}
