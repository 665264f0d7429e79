//! Observers of HTTP exchanges.

use manyways_wire::exchange::{Event, http1};
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
