//! Observers of HTTP exchanges.

use std::collections::BTreeMap;

use manyways_wire::archive::Field;
use manyways_wire::exchange::{Event, http1, http2};
use manyways_wire::stream::Endpoint;

pub(super) const HTTP1_WORDS: &[&str] = &[
    "GET / HTTP/1.1\r\n\r\n",
    "\n<HTTP/1.1 200 OK\r\n\r\n",
    "\n>HEAD / HTTP/1.1\r\n\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "5\r\nabcde\r\n0\r\n\r\n",
    "Upgrade: a\r\n",
    "HTTP/1.1 101 A\r\n\r\n",
    "\r\n",
];

/// Both directions, which `\n>` and `\n<` separate: pieces of any size give the same events, and at
/// the end each exchange is complete, upgraded or aborted.
pub(super) fn http1(bytes: &[u8]) {
    let whole = observe(bytes, usize::MAX);
    assert_eq!(whole, observe(bytes, 3));
    let count = |is_it: fn(&Entry) -> bool| whole.iter().filter(|entry| is_it(entry)).count();
    let requests = count(|entry| entry.what == "request");
    let complete = count(|entry| entry.what == "end" && entry.from == Some(Endpoint::Server));
    assert!(complete <= requests);
    assert!(count(|entry| matches!(entry.what, "abort" | "upgraded")) <= requests);
}

/// Fields without indexing, settings, and beginnings of frames in the notation of [`http2`].
pub(super) const HTTP2_WORDS: &[&str] = &[
    "\0\u{7}:method\u{3}GET\0\u{7}:scheme\u{5}https\0\u{5}:path\u{1}/",
    "\0\u{7}:method\u{7}CONNECT\0\u{a}:authority\u{1}a",
    "\0\u{7}:status\u{3}200",
    "\0\u{7}:status\u{3}103",
    "@\u{1}a\u{1}b",
    "\0\u{1}a\u{1}b",
    "\u{0}\u{1}\u{1}\u{3}abc",
    "\u{1}\u{5}\u{3}\u{0}",
    "\u{9}\u{4}\u{1}\u{0}",
    "\u{3}\u{0}\u{1}\u{4}\0\0\0\0",
    "\u{4}\u{0}\u{0}\u{6}\0\u{1}\0\0\u{20}\0",
    "\u{4}\u{1}\u{0}\u{0}",
    "?\u{45}",
    " ",
];

/// Bit in the first byte of an item: the server sends it.
const FROM_SERVER: u8 = 0x80;
/// Bit in the first byte of an item: it is not a frame, but a length and bytes.
const RAW: u8 = 0x40;

/// Frames of both directions, after the beginning of a connection. Each is a byte with its type and
/// sender, its flags, stream, length and payload. The checks are those of [`http1`], of the order of
/// events, and of the limits of heads.
pub(super) fn http2(bytes: &[u8]) {
    let whole = observe_http2(bytes, usize::MAX);
    assert!(whole.1 <= 1);
    assert_eq!(whole, observe_http2(bytes, 3));
    let mut streams = BTreeMap::<_, Vec<_>>::new();
    for entry in &whole.0 {
        streams.entry(entry.id).or_default().push((entry.what, entry.from));
    }
    streams.values().for_each(|events| check_order(events));
}

/// Checks the order of the events of one stream.
fn check_order(events: &[(&str, Option<Endpoint>)]) {
    let (mut has_response, mut ended) = (false, Vec::new());
    for (index, (what, from)) in events.iter().enumerate() {
        assert_eq!(index == 0, *what == "request", "{events:?}");
        match *what {
            "interim" => assert!(!has_response, "{events:?}"),
            "response" => assert!(!std::mem::replace(&mut has_response, true), "{events:?}"),
            "body" | "end" => {
                assert!(has_response || *from == Some(Endpoint::Client), "{events:?}");
                assert!(!ended.contains(from), "{events:?}");
                ended.extend((*what == "end").then_some(*from));
            }
            _ => {}
        }
        let is_last = ended.len() == 2 || matches!(*what, "abort" | "upgraded");
        assert_eq!(is_last, index + 1 == events.len(), "{events:?}");
    }
}

fn observe_http2(bytes: &[u8], max: usize) -> (Vec<Entry>, usize) {
    let (mut observer, mut entries, mut faults) = (http2::Observer::default(), Vec::new(), 0);
    let mut pass = |from, bytes: &[u8]| {
        for piece in bytes.chunks(max) {
            let read = observer.handle(from, piece, &mut |event| {
                check_limits(&event);
                add(&mut entries, event);
            });
            faults += usize::from(read.is_err());
        }
    };
    pass(Endpoint::Client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    pass(Endpoint::Server, b"\0\0\0\x04\0\0\0\0\0");
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        let from = if first & FROM_SERVER == 0 { Endpoint::Client } else { Endpoint::Server };
        let (flags, stream, length, behind) = match *behind {
            [length, ref behind @ ..] if first & RAW != 0 => (0, 0, length, behind),
            [flags, stream, length, ref behind @ ..] => (flags, stream, length, behind),
            _ => break,
        };
        let (payload, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        if first & RAW == 0 {
            let kind = first & !FROM_SERVER;
            pass(from, &[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream]);
        }
        pass(from, payload);
    }
    observer.end(Endpoint::Client, &mut |event| add(&mut entries, event));
    assert!(!observer.is_busy());
    (entries, faults)
}

fn check_limits(event: &Event<'_>) {
    let check = |fields: &[Field]| {
        let size = |field: &Field| field.name.len() + field.value.len();
        assert!(fields.len() <= http2::MAX_FIELDS);
        assert!(fields.iter().map(size).sum::<usize>() <= http2::MAX_HEAD_SIZE);
    };
    match event {
        Event::Request(_, head) => check(&head.fields),
        Event::Response(_, head) => check(&head.fields),
        Event::Interim(_, _, fields) | Event::End(_, _, fields) => check(fields),
        Event::Body(..) | Event::Abort(..) | Event::Upgraded(_) => {}
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    what: &'static str,
    id: u64,
    from: Option<Endpoint>,
    body: Vec<u8>,
}

fn observe(bytes: &[u8], max: usize) -> Vec<Entry> {
    let (mut observer, mut entries, mut from) =
        (http1::Observer::default(), Vec::new(), Endpoint::Client);
    let mut rest = bytes;
    while !rest.is_empty() {
        let is_mark = |pair: &[u8]| pair[0] == b'\n' && b"<>".contains(&pair[1]);
        let end = rest.windows(2).position(is_mark);
        for part in rest[..end.unwrap_or(rest.len())].chunks(max) {
            let _ = observer.handle(from, part, &mut |event| add(&mut entries, event));
        }
        rest = end.map_or(&[], |end| &rest[end + 1..]);
        if let Some((mark, behind)) = rest.split_first() {
            rest = behind;
            from = if *mark == b'>' { Endpoint::Client } else { Endpoint::Server };
        }
    }
    observer.end(Endpoint::Client, &mut |event| add(&mut entries, event));
    observer.end(Endpoint::Server, &mut |event| add(&mut entries, event));
    assert!(!observer.is_busy());
    entries
}

fn add(entries: &mut Vec<Entry>, event: Event<'_>) {
    let (what, id, from, body) = match event {
        Event::Request(id, _) => ("request", id, None, &[][..]),
        Event::Interim(id, ..) => ("interim", id, None, &[][..]),
        Event::Response(id, _) => ("response", id, None, &[][..]),
        Event::Body(id, from, bytes) => ("body", id, Some(from), bytes),
        Event::End(id, from, _) => ("end", id, Some(from), &[][..]),
        Event::Abort(id, by) => ("abort", id, Some(by), &[][..]),
        Event::Upgraded(id) => ("upgraded", id, None, &[][..]),
    };
    if let Some(last) = entries.last_mut()
        && (last.what, last.id, last.from) == ("body", id, from)
        && what == "body"
    {
        last.body.extend(body);
        return;
    }
    entries.push(Entry { what, id, from, body: body.to_vec() });
}
