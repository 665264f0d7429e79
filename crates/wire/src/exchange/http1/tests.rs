use proptest::prelude::*;

use super::*;
use crate::exchange::{RequestHead, ResponseHead};

/// An event without its bytes, and the bodies that it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Request(StreamId, String, usize),
    Interim(StreamId, u16),
    Response(StreamId, u16, usize),
    Body(StreamId, Endpoint, Vec<u8>),
    End(StreamId, Endpoint, usize),
    Abort(StreamId, Endpoint),
    Upgraded(StreamId),
}

#[derive(Default)]
struct Harness {
    observer: Observer,
    seen: Vec<Seen>,
}

use Endpoint::{Client, Server};

impl Harness {
    fn passes(&mut self, from: Endpoint, bytes: &[u8]) -> Result<(), Fault> {
        let Self { observer, seen } = self;
        observer.handle(from, bytes, &mut |event| add(seen, event))
    }

    fn ends(&mut self, from: Endpoint) {
        let Self { observer, seen } = self;
        observer.end(from, &mut |event| add(seen, event));
    }
}

fn add(seen: &mut Vec<Seen>, event: Event<'_>) {
    let new = match event {
        Event::Request(id, RequestHead { method, target, fields, .. }) => {
            Seen::Request(id, format!("{method} {target}"), fields.len())
        }
        Event::Interim(id, status, _) => Seen::Interim(id, status),
        Event::Response(id, ResponseHead { status, fields, .. }) => {
            Seen::Response(id, status, fields.len())
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
        Event::End(id, from, trailers) => Seen::End(id, from, trailers.len()),
        Event::Abort(id, by) => Seen::Abort(id, by),
        Event::Upgraded(id) => Seen::Upgraded(id),
    };
    seen.push(new);
}

/// Passes both directions, each in pieces of at most `max` bytes: first the client's.
fn observe(client: &[u8], server: &[u8], max: usize) -> (Vec<Seen>, Result<(), Fault>) {
    let mut harness = Harness::default();
    for (from, bytes) in [(Client, client), (Server, server)] {
        for piece in bytes.chunks(max) {
            if let Err(fault) = harness.passes(from, piece) {
                return (harness.seen, Err(fault));
            }
        }
    }
    (harness.seen, Ok(()))
}

fn body(id: StreamId, from: Endpoint, bytes: &[u8]) -> Seen {
    Seen::Body(id, from, bytes.to_vec())
}

#[test]
fn exchanges_follow_each_other_in_pieces_of_any_size() {
    let client =
        b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\n\r\n\r\nPOST /c HTTP/1.1\r\nHost: x\r\n\
        Content-Length: 3\r\n\r\nabcHEAD / HTTP/1.1\r\n\r\nGET /d HTTP/1.0\r\n\r\n";
    let server = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n\
        HTTP/1.1 201 Created\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4;q=1\r\nwiki\r\nB\r\n\
        pedia rocks\r\n0\r\nDigest: x\r\nB: c\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\n\r\n";
    let expected = vec![
        Seen::Request(0, "GET /a?b".into(), 2),
        Seen::End(0, Client, 0),
        Seen::Request(1, "POST /c".into(), 2),
        body(1, Client, b"abc"),
        Seen::End(1, Client, 0),
        Seen::Request(2, "HEAD /".into(), 0),
        Seen::End(2, Client, 0),
        Seen::Request(3, "GET /d".into(), 0),
        Seen::End(3, Client, 0),
        Seen::Response(0, 200, 1),
        body(0, Server, b"hello"),
        Seen::End(0, Server, 0),
        Seen::Interim(1, 103),
        Seen::Response(1, 201, 1),
        body(1, Server, b"wikipedia rocks"),
        Seen::End(1, Server, 2),
        Seen::Response(2, 200, 1),
        Seen::End(2, Server, 0),
        Seen::Response(3, 304, 0),
        Seen::End(3, Server, 0),
    ];
    for max in 1..=server.len() {
        assert_eq!(observe(client, server, max), (expected.clone(), Ok(())), "pieces of {max}");
    }
}

#[test]
fn a_head_is_reported_as_sent() {
    let mut heads = Vec::new();
    let mut observer = Observer::default();
    let request = b"GET http://a.example/ HTTP/1.1\r\nhOST: a.example:81 \r\nX: \xff\r\nX:\r\n\r\n";
    observer.handle(Client, request, &mut |event| heads.push(format!("{event:?}"))).unwrap();
    assert!(heads[0].contains(r#"name: "hOST""#) && heads[0].contains("value: [255]"), "{heads:?}");
    assert!(heads[0].contains(r#"authority: Some("a.example:81")"#), "{heads:?}");
    let response = b"HTTP/1.0 404 Not  Here\nA: b\n\n";
    observer.handle(Server, response, &mut |event| heads.push(format!("{event:?}"))).unwrap();
    assert!(heads[2].contains(r#"reason: "Not  Here", protocol: Http10"#), "{heads:?}");
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let mut harness = Harness::default();
    harness.passes(Client, b"GET / HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n").unwrap();
    harness.ends(Client);
    harness.passes(Server, b"HTTP/1.1 200\r\n\r\nHTTP/1.1 not a head").unwrap();
    harness.ends(Server);
    assert_eq!(
        harness.seen[4..],
        [
            Seen::Response(0, 200, 0),
            body(0, Server, b"HTTP/1.1 not a head"),
            Seen::End(0, Server, 0),
            Seen::Abort(1, Server),
        ]
    );
    assert!(!harness.observer.is_busy());
}

#[test]
fn who_ends_a_message_early_aborts_its_exchange() {
    let requests: [&[u8]; 3] = [
        b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA:",
    ];
    for request in requests {
        let mut harness = Harness::default();
        harness.passes(Client, request).unwrap();
        harness.ends(Client);
        harness.ends(Server);
        assert_eq!(harness.seen[1..], [body(0, Client, b"abc"), Seen::Abort(0, Client)]);
    }
    let responses: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"",
    ];
    for response in responses {
        let mut harness = Harness::default();
        harness.passes(Client, b"GET / HTTP/1.1\r\n\r\n").unwrap();
        harness.passes(Server, response).unwrap();
        harness.ends(Server);
        assert_eq!(harness.seen.last(), Some(&Seen::Abort(0, Server)));
    }
}

#[test]
fn a_server_may_answer_before_the_request_is_complete() {
    let mut harness = Harness::default();
    harness.passes(Client, b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab").unwrap();
    harness.passes(Server, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(harness.observer.is_busy());
    harness.passes(Client, b"cdGET / HTTP/1.1\r\n\r\n").unwrap();
    harness.passes(Server, b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let ends = harness.seen.iter().filter(|seen| matches!(seen, Seen::End(..))).count();
    assert_eq!((ends, harness.observer.is_busy()), (4, false));
}

#[test]
fn after_an_upgrade_all_bytes_belong_to_another_protocol() {
    let upgrade = b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let (seen, read) =
        observe(upgrade, b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05hello", 7);
    assert_eq!((&seen[2..], read), (&[Seen::Response(0, 101, 0), Seen::Upgraded(0)][..], Ok(())));
    let connect = b"CONNECT a.example:443 HTTP/1.1\r\n\r\n";
    let (seen, _) = observe(connect, b"HTTP/1.1 200 OK\r\n\r\n\x16\x03", 99);
    assert_eq!(seen.last(), Some(&Seen::Upgraded(0)));
    let (seen, _) = observe(connect, b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", 99);
    assert_eq!(seen.last(), Some(&Seen::End(0, Server, 0)));
}

#[test]
fn what_is_not_http_is_a_fault_of_its_sender() {
    let get = b"GET / HTTP/1.1\r\n\r\n";
    for (client, server, from) in [
        (&b"\x16\x03\x01\x02\x00\n\r\n"[..], &b""[..], Client),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"", Client),
        (b"GET / HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n", b"", Client),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", b"", Client),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", b"", Client),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\n", b"", Client),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab", b"", Client),
        (b"", b"HTTP/1.1 200 OK\r\n\r\n", Server),
        (get, b"220 mail.example\r\n\r\n", Server),
        (get, b"HTTP/1.1 204 A\r\n\r\nHTTP/1.1 204 B\r\n\r\n", Server),
    ] {
        let (seen, read) = observe(client, server, 5);
        assert_eq!(read.map_err(|fault| fault.from), Err(from), "{seen:?}");
    }
    let mut harness = Harness::default();
    harness.passes(Client, get).unwrap();
    let fault = harness.passes(Server, b"nonsense\r\n\r\n").unwrap_err();
    assert_eq!(fault.to_string(), "the server sends a response that is not HTTP/1");
    assert_eq!(harness.seen.last(), Some(&Seen::Abort(0, Server)));
    assert_eq!(harness.passes(Client, b"anything"), Ok(()), "the rest is not read");
}

#[test]
fn heads_and_queues_are_bounded() {
    let mut harness = Harness::default();
    let line = [b'x'; 1_000];
    let read = (0..1_000).try_for_each(|_| harness.passes(Client, &line));
    assert_eq!(read.map_err(|fault| fault.what), Err("a head that is too long"));
    let mut harness = Harness::default();
    let read = (0..2_000).try_for_each(|_| harness.passes(Client, b"GET / HTTP/1.1\r\n\r\n"));
    assert_eq!(read.map_err(|fault| fault.what), Err("more requests than are answered"));
    for (fields, expected) in [(2_048, Ok(())), (2_049, Err("too many fields"))] {
        let head = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(fields));
        let read = Harness::default().passes(Client, head.as_bytes());
        assert_eq!(read.map_err(|fault| fault.what), expected);
    }
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_the_same_events(
        pieces in prop::collection::vec(
            (
                any::<bool>(),
                prop_oneof![
                    Just(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
                    Just(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello".to_vec()),
                    Just(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()),
                    Just(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()),
                    Just(b"3\r\nabc\r\n0\r\n\r\n".to_vec()),
                    Just(b"\r\n".to_vec()),
                    prop::collection::vec(any::<u8>(), 0..9),
                ],
            ),
            0..20,
        ),
        max in 1_usize..9,
    ) {
        let run = |max: usize| {
            let (mut harness, mut faults) = (Harness::default(), Vec::new());
            for (is_client, bytes) in &pieces {
                let from = if *is_client { Client } else { Server };
                for piece in bytes.chunks(max) {
                    faults.extend(harness.passes(from, piece).err());
                }
            }
            harness.ends(Client);
            harness.ends(Server);
            (harness.seen, faults, harness.observer.is_busy())
        };
        let whole = run(usize::MAX);
        prop_assert!(!whole.2 && whole.1.len() <= 1);
        prop_assert_eq!(run(max), whole);
    }
}
