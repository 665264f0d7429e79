use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

use super::*;
use crate::http::{Authority, ContentRange, MAX_HEAD_LENGTH, RequestedRange};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";

/// The data of a packet: its sender, its time in milliseconds, the captured bytes, and the number
/// of bytes after them that were not captured.
type Packet<'a> = (Endpoint, u64, &'a [u8], u64);

fn c(at: u64, bytes: &[u8]) -> Packet<'_> {
    (Endpoint::Client, at, bytes, 0)
}

fn s(at: u64, bytes: &[u8]) -> Packet<'_> {
    (Endpoint::Server, at, bytes, 0)
}

/// The packet with at most `there` captured bytes.
fn snap((from, at, bytes, unknown): Packet<'_>, there: usize) -> Packet<'_> {
    let kept = &bytes[..bytes.len().min(there)];
    (from, at, kept, unknown + (bytes.len() - kept.len()) as u64)
}

fn ms(at: u64) -> Time {
    Time::from_millis(at)
}

fn tell(transactions: &mut Transactions, (from, at, bytes, unknown): Packet<'_>) {
    let length = bytes.len() as u64 + unknown;
    transactions.handle(from, &Piece { at: ms(at), bytes, length });
}

fn follow(packets: &[Packet<'_>]) -> Transactions {
    let mut transactions = Transactions::default();
    packets.iter().for_each(|packet| tell(&mut transactions, *packet));
    transactions
}

fn ended(transactions: &mut Transactions) -> Vec<Transaction> {
    std::iter::from_fn(|| transactions.poll()).collect()
}

/// The exchanges of a capture that ends after these packets.
fn all(packets: &[Packet<'_>]) -> Vec<Transaction> {
    let mut transactions = follow(packets);
    transactions.finish();
    ended(&mut transactions)
}

fn request(transaction: &Transaction) -> &Request {
    transaction.request.as_ref().unwrap()
}

fn response(transaction: &Transaction) -> &Response {
    transaction.response.as_ref().unwrap()
}

/// Status, captured part of the body, and ending of each exchange.
fn answers(packets: &[Packet<'_>]) -> Vec<(Option<u16>, CapturedBody, Outcome)> {
    let short = |t: &Transaction| (response(t).status, response(t).body, t.outcome);
    all(packets).iter().map(short).collect()
}

fn content(status: u16, length: u64) -> (Option<u16>, CapturedBody, Outcome) {
    (Some(status), CapturedBody::Content(length), Outcome::Complete)
}

#[test]
fn an_exchange_has_the_values_of_its_headers() {
    let asked = b"GET /videoplayback?id=7 HTTP/1.1\r\nhost: V.Example:8080\r\nUser-Agent: Player/1 (x\xe9)\r\n\
        Cookie: secret\r\nRange: bytes=100-299\r\n\r\n";
    let head = b"HTTP/1.1 206 Partial\r\nContent-Type: Video/MP4; a=b\r\nContent-Length: 200\r\n\
        Content-Range: bytes 100-299/1000\r\nContent-Encoding: GZIP, br\r\n\r\n";
    let body = [b'x'; 200];
    let all = all(&[
        c(10, &asked[..20]),
        c(12, &asked[20..]),
        s(30, head),
        s(31, &body[..150]),
        s(45, &body[150..]),
    ]);
    let [one] = &all[..] else { panic!("{all:?}") };
    assert_eq!((one.index, one.is_pipelined, one.has_interim), (0, Some(false), false));
    assert_eq!(one.outcome, Outcome::Complete);
    assert_eq!(one.response_time(), Some(Span::from_millis(20)));
    assert_eq!(one.download_time(), Some(Span::from_millis(35)));
    let host = Authority::parse(b"v.example:8080");
    let expected = Request {
        method: "GET".into(),
        resource: request(one).resource,
        host,
        user_agent: Some("Player/1 (x?)".into()),
        range: Some(Box::new(RequestedRange::Range { first: 100, last: Some(299) })),
        first: ms(10),
        last: ms(12),
        length: asked.len() as u64,
        is_truncated: false,
        is_complete: true,
    };
    assert_eq!(request(one), &expected);
    let expected = Response {
        status: Some(206),
        content_type: Some("video/mp4".into()),
        coding: Some("gzip, br".into()),
        content_length: Some(200),
        framing: Some(Framing::Length),
        body: CapturedBody::Content(200),
        content_range: Some(Box::new(ContentRange {
            range: Some((100, 299)),
            complete_length: Some(1000),
        })),
        first: ms(30),
        last: ms(45),
        length: head.len() as u64 + 200,
        is_truncated: false,
    };
    assert_eq!(response(one), &expected);
}

#[test]
fn a_resource_is_a_host_and_a_target_in_any_form_and_not_the_port() {
    let resource = |target: &str, host: &str| {
        let asked = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        request(&all(&[c(0, asked.as_bytes())])[0]).resource
    };
    // The first 8 bytes of the SHA-256 of v.example/videoplayback?id=7.
    let one = resource("/videoplayback?id=7", "v.example");
    assert_eq!(one, Some(RESOURCE));
    assert_eq!(resource("/videoplayback?id=7", "V.example:8080"), one);
    assert_eq!(resource("http://v.example/videoplayback?id=7", "w.example"), one);
    assert_ne!(resource("/videoplayback?id=8", "v.example"), one);
    assert_ne!(resource("/videoplayback?id=7", "w.example"), one);
    assert_eq!(resource("http://v.example", ""), resource("/", "v.example"));
    assert_eq!(resource("http://v.example?x", ""), resource("/?x", "v.example"));
    assert_eq!(resource("/", "not a host"), None);
}

const RESOURCE: u64 = 0x5d93_62fa_7651_7cab;

#[test]
fn the_summary_of_a_persistent_connection_has_the_times_of_the_paper() {
    let packets = [c(10, GET), s(30, OK), c(130, GET), s(140, &OK[..40]), s(160, &OK[40..])];
    let mut transactions = follow(&packets);
    assert_eq!(transactions.is_http(), Some(true));
    let expected = Summary {
        requests: 2,
        answered: 2,
        download_time: Span::from_millis(50),
        downloaded: Size::from_bytes(2 * OK.len() as u64),
        idle_time: Span::from_millis(100),
        first_request: Some(ms(10)),
        last_data: Some(ms(160)),
    };
    assert_eq!(transactions.summary(), &expected);
    let rate = Rate::of(expected.downloaded, Span::from_millis(50));
    assert_eq!(expected.servicing_rate(), Some(rate));
    assert_eq!(Summary::default().servicing_rate(), None);
    let all = ended(&mut transactions);
    assert_eq!(all.iter().map(|t| t.index).collect::<Vec<_>>(), [0, 1]);
    assert!(all.iter().all(|t| t.is_pipelined == Some(false)));
    transactions.finish();
    assert_eq!((transactions.poll(), transactions.is_finished()), (None, true));
    assert_eq!(transactions.summary(), &expected);
}

#[test]
fn the_body_of_a_request_counts_for_the_request() {
    let post = b"POST / HTTP/1.1\r\nContent-Length: 30\r\n\r\n";
    let body = b"GET /b HTTP/1.1\r\n\r\nGET /c HTTP";
    let all = all(&[c(0, post), c(1, body), c(2, GET), s(3, OK), s(3, OK)]);
    assert_eq!(all.len(), 2);
    assert_eq!((request(&all[0]).last, request(&all[0]).length), (ms(1), post.len() as u64 + 30));
    assert!(request(&all[0]).is_complete);
}

#[test]
fn responses_without_a_body_precede_the_next_response() {
    let head = b"HEAD / HTTP/1.1\r\n\r\n";
    let long = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let unchanged = b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n";
    let packets = [
        c(0, head),
        s(1, long),
        c(2, GET),
        s(3, unchanged),
        c(4, GET),
        s(5, b"HTTP/1.1 204 No Content\r\n\r\n"),
        c(6, GET),
        s(7, OK),
    ];
    let expected = [content(200, 0), content(304, 0), content(204, 0), content(200, 3)];
    assert_eq!(answers(&packets), expected);
    let all = all(&packets);
    assert_eq!(response(&all[0]).content_length, Some(1000));
    assert_eq!(response(&all[0]).framing, Some(Framing::NoBody));
}

#[test]
fn a_body_in_chunks_ends_with_them() {
    let body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 1\r\n\r\n\
        5\r\nabcde\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n";
    for cut in 1..body.len() {
        let (one, two) = body.split_at(cut);
        let packets = [c(0, GET), s(1, one), s(1, two), c(2, GET), s(3, OK)];
        assert_eq!(answers(&packets), [content(200, 21), content(200, 3)], "cut at {cut}");
    }
    let packets =
        [c(0, GET), s(1, &body[..80]), (Endpoint::Server, 2, b"", 500), c(3, GET), s(4, OK)];
    let framed = (Some(200), CapturedBody::Framed(80 - 72 + 500), Outcome::Inferred);
    assert_eq!(answers(&packets), [framed, content(200, 3)]);
    let post = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let both = [post, GET].concat();
    let all = all(&[c(0, &both), s(1, OK), s(2, OK)]);
    assert_eq!(request(&all[0]).length, post.len() as u64);
    assert!(all.iter().all(|t| request(t).is_complete && t.outcome == Outcome::Complete));
}

#[test]
fn interim_responses_precede_the_final_one() {
    let post = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let all = all(&[
        c(0, post),
        s(10, b"HTTP/1.1 100 Continue\r\n\r\n"),
        c(20, b"body"),
        s(30, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        s(40, OK),
    ]);
    let [one] = &all[..] else { panic!("{all:?}") };
    assert!(one.has_interim && request(one).is_complete);
    assert_eq!((request(one).last, response(one).first), (ms(20), ms(40)));
    assert_eq!(response(one).body, CapturedBody::Content(3));
    assert_eq!(response(one).length, 25 + 40 + OK.len() as u64);
}

#[test]
fn a_truncated_interim_response_does_not_hide_the_final_one() {
    let hints = [b"HTTP/1.1 103 Early Hints\r\nLink: <".to_vec(), vec![b'a'; 2000]].concat();
    let packets = [c(0, GET), s(1, &hints), s(2, &hints[..50]), s(3, OK)];
    let all = all(&[packets[0], snap(packets[1], 30), snap(packets[2], 30), packets[3]]);
    assert_eq!(all.len(), 1);
    assert!(all[0].has_interim);
    assert_eq!((response(&all[0]).status, response(&all[0]).first), (Some(200), ms(3)));
    let packets = [c(0, GET), (Endpoint::Server, 1, &hints[..30], 40_000), s(2, b"more")];
    assert_eq!(answers(&packets), [(None, CapturedBody::WithHeader(40_034), Outcome::Inferred)]);
}

#[test]
fn pipelined_responses_are_assigned_in_order() {
    let head = b"HEAD / HTTP/1.1\r\n\r\n";
    let asked = [GET, b"\r\n", head, GET].concat();
    let answered = [OK, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", OK].concat();
    let packets = [c(0, &asked), s(10, &answered[..50]), s(20, &answered[50..])];
    let all = all(&packets);
    let expected = [content(200, 3), content(200, 0), content(200, 3)];
    assert_eq!(answers(&packets), expected);
    assert_eq!(
        all.iter().map(|t| t.is_pipelined).collect::<Vec<_>>(),
        [Some(false), Some(true), Some(true)]
    );
    let mut transactions = follow(&packets);
    transactions.finish();
    // Time with several open requests counts once.
    assert_eq!(transactions.summary().download_time, Span::from_millis(20));
    assert_eq!(transactions.summary().idle_time, Span::ZERO);
}

#[test]
fn responses_to_requests_beyond_the_limit_have_no_request() {
    let asked = GET.repeat(MAX_PENDING_REQUESTS + 3);
    let mut transactions =
        follow(&[c(0, GET), s(0, OK), c(0, &asked), s(1, &OK.repeat(MAX_PENDING_REQUESTS))]);
    tell(&mut transactions, c(2, b"HEAD / HTTP/1.1\r\n\r\n"));
    tell(&mut transactions, s(3, &OK.repeat(3)));
    tell(&mut transactions, s(3, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    tell(&mut transactions, c(4, GET));
    tell(&mut transactions, s(5, OK));
    let all = ended(&mut transactions);
    assert_eq!(transactions.summary().requests, MAX_PENDING_REQUESTS as u64 + 6);
    assert_eq!(all.len(), MAX_PENDING_REQUESTS + 6);
    let without = all.iter().filter(|t| t.request.is_none()).count();
    assert_eq!((without, all.last().unwrap().request.is_some()), (4, true));
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let head = b"HTTP/1.0 200 OK\r\n\r\nabc";
    let close = |how: fn(&mut Transactions)| {
        let mut transactions = follow(&[c(0, GET), s(1, head), (Endpoint::Server, 2, b"", 10)]);
        assert_eq!(transactions.poll(), None);
        how(&mut transactions);
        transactions.finish();
        let all = ended(&mut transactions);
        assert_eq!(all.len(), 1);
        assert_eq!(response(&all[0]).framing, Some(Framing::Close));
        assert_eq!(
            (response(&all[0]).body, response(&all[0]).last),
            (CapturedBody::Content(13), ms(2))
        );
        all[0].outcome
    };
    assert_eq!(close(|transactions| transactions.on_fin(Endpoint::Server)), Outcome::Complete);
    assert_eq!(close(|transactions| transactions.on_fin(Endpoint::Client)), Outcome::Open);
    assert_eq!(close(Transactions::on_reset), Outcome::Reset);
    assert_eq!(close(|_| {}), Outcome::Open);
}

#[test]
fn the_ending_shows_the_missing_part() {
    let ending = |packets: &[Packet<'_>], how: fn(&mut Transactions)| {
        let mut transactions = follow(packets);
        how(&mut transactions);
        transactions.finish();
        let all = ended(&mut transactions);
        all.iter().map(|t| (t.response.is_some(), t.outcome)).collect::<Vec<_>>()
    };
    let half = [c(0, GET), s(1, &OK[..OK.len() - 1]), c(2, GET)];
    let closed: fn(&mut Transactions) = |t| t.on_fin(Endpoint::Server);
    assert_eq!(
        ending(&half, closed),
        [(true, Outcome::ClosedEarly), (false, Outcome::ClosedEarly)]
    );
    assert_eq!(
        ending(&half, Transactions::on_reset),
        [(true, Outcome::Reset), (false, Outcome::Reset)]
    );
    assert_eq!(ending(&half, |_| {}), [(true, Outcome::Open), (false, Outcome::Open)]);
    // A truncated header is read as far as possible.
    let some = [c(0, GET), s(1, &OK[..20])];
    assert_eq!(ending(&some, closed), [(true, Outcome::Inferred)]);
    assert_eq!(answers(&some), [(Some(200), CapturedBody::WithHeader(20), Outcome::Inferred)]);
    assert_eq!(
        ending(&[c(0, &GET[..20])], |t| t.on_fin(Endpoint::Client)),
        [(false, Outcome::ServerNotCaptured)]
    );
}

#[test]
fn an_upgrade_ends_http() {
    let upgrade = b"GET /chat HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\r\n";
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    let packets = [c(0, upgrade), s(1, switch), c(2, GET), s(3, OK)];
    assert_eq!(answers(&packets), [(Some(101), CapturedBody::Content(0), Outcome::Switched)]);
    assert!(follow(&packets[..2]).is_finished() && !follow(&packets[..1]).is_finished());
    assert_eq!(follow(&packets).is_http(), Some(true));
    assert_eq!(follow(&packets).summary().downloaded, Size::from_bytes(switch.len() as u64));
    // A server may ignore an upgrade.
    assert_eq!(answers(&[c(0, upgrade), s(1, OK), c(2, GET), s(3, OK)]).len(), 2);
}

#[test]
fn a_tunnel_ends_http_unless_it_is_refused() {
    let connect = b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n";
    let opened = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let packets = [c(0, connect), s(1, opened), c(2, b"\x16\x03\x01"), s(3, OK)];
    assert_eq!(answers(&packets), [(Some(200), CapturedBody::Content(0), Outcome::Switched)]);
    let all = all(&packets);
    assert_eq!(request(&all[0]).host, Authority::parse(b"b.example:443"));
    assert!(request(&all[0]).is_complete);
    let refused = b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n";
    let packets =
        [c(0, connect), c(0, b"\x16\x03\x01 "), s(1, refused), c(2, connect), s(3, opened)];
    let ends = answers(&packets);
    assert_eq!(ends, [content(407, 0), (Some(200), CapturedBody::Content(0), Outcome::Switched)]);
    let cut = [snap(c(0, connect), 12), snap(s(1, opened), 16)];
    assert_eq!(answers(&cut), [(Some(200), CapturedBody::Content(0), Outcome::Switched)]);
    assert!(follow(&cut).is_finished());
}

#[test]
fn truncated_packets_are_read_as_far_as_possible() {
    let asked = [GET, &[b'x'; 3000]].concat();
    let asked = [&asked[..GET.len() - 2], b"Cookie: ", &asked[GET.len()..], b"\r\n\r\n"].concat();
    let answered =
        [&b"HTTP/1.1 200 OK\r\nServer: a\r\nContent-Length: 5000\r\n\r\n"[..], &[b'y'; 5000]]
            .concat();
    let mut packets = Vec::new();
    for round in 0..3 {
        let at = round * 100;
        packets.extend(asked.chunks(1400).map(|part| snap(c(at, part), 30)));
        packets.extend(answered.chunks(1400).zip(at + 20..).map(|(p, at)| snap(s(at, p), 36)));
    }
    let all = all(&packets);
    assert_eq!(all.len(), 3);
    for (one, round) in all.iter().zip(0..) {
        let (asked_, said) = (request(one), response(one));
        assert!(asked_.is_truncated && said.is_truncated && !asked_.is_complete);
        // The request line and a part of the `Host` field were captured.
        assert_eq!((&*asked_.method, &asked_.host), ("GET", &None));
        assert_eq!(asked_.length, asked.len() as u64);
        assert_eq!((said.status, said.content_length, said.framing), (Some(200), None, None));
        assert_eq!(said.body, CapturedBody::WithHeader(answered.len() as u64));
        assert_eq!((said.first, said.last), (ms(round * 100 + 20), ms(round * 100 + 23)));
        assert_eq!((one.outcome, one.is_pipelined), (Outcome::Inferred, Some(false)));
    }
    let summary = *follow(&packets).summary();
    assert_eq!((summary.requests, summary.answered), (3, 2));
    assert_eq!(summary.idle_time, Span::from_millis(77));
}

#[test]
fn complete_lines_of_a_truncated_header_are_read() {
    let cut = [snap(c(0, GET), 34), snap(s(1, OK), 36)];
    assert_eq!(request(&all(&cut)[0]).host, Authority::parse(b"a.example"));
    assert_eq!(response(&all(&cut)[0]).content_length, Some(3));
    assert_eq!(answers(&cut), [(Some(200), CapturedBody::WithHeader(41), Outcome::Inferred)]);
    let head = snap(c(0, b"HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n"), 20);
    let bodiless = (Some(200), CapturedBody::Content(0), Outcome::Inferred);
    assert_eq!(answers(&[head, cut[1], cut[0], s(2, OK)])[0], bodiless);
    for there in 1..GET.len() {
        let all = all(&[snap(c(0, GET), there), s(1, OK)]);
        let method = all[0].request.as_ref().map(|request| request.method.clone());
        // One character of the target shows that a method precedes it.
        assert_eq!(method.as_deref(), (there > 4).then_some("GET"), "{there}");
        assert_eq!(response(&all[0]).status, Some(200));
    }
}

#[test]
fn status_lines_separate_truncated_pipelined_responses() {
    let asked = [GET, GET, GET].concat();
    let packets = [
        c(0, &asked),
        (Endpoint::Server, 1, &OK[..30], 1000),
        (Endpoint::Server, 2, b"other", 1000),
        (Endpoint::Server, 3, b"HTTP/1.1 404 Not", 1000),
        (Endpoint::Server, 4, &OK[..17], 500),
    ];
    let with = |status, length| (Some(status), CapturedBody::WithHeader(length), Outcome::Inferred);
    assert_eq!(answers(&packets), [with(200, 2035), with(404, 1016), with(200, 517)]);
    // If only one response is due, a status line may be part of its body.
    let packets = [c(0, GET), packets[1], packets[3]];
    assert_eq!(answers(&packets), [with(200, 2046)]);
}

#[test]
fn a_missing_request_does_not_hide_its_response() {
    let cut = (Endpoint::Server, 1, &OK[..30], 1000);
    let packets = [c(0, GET), cut, (Endpoint::Client, 2, &b""[..], 300), cut, c(4, GET), s(5, OK)];
    let all = all(&packets);
    assert_eq!(all.len(), 3);
    assert_eq!(all.iter().map(|t| t.request.is_some()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(all[1].is_pipelined, None);
}

#[test]
fn missing_headers_and_body_bytes_are_tolerated() {
    let packets =
        [c(0, GET), (Endpoint::Server, 1, &b""[..], 1460), s(2, b"body"), c(3, GET), s(4, OK)];
    let lost = (None, CapturedBody::WithHeader(1464), Outcome::Inferred);
    assert_eq!(answers(&packets), [lost, content(200, 3)]);
    let long = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n";
    let packets = [c(0, GET), s(1, long), (Endpoint::Server, 2, b"x", 4999), c(3, GET), s(4, OK)];
    assert_eq!(answers(&packets), [content(200, 5000), content(200, 3)]);
    // The end of one body and the next header are in the same gap.
    let packets = [c(0, GET), c(0, GET), s(1, long), (Endpoint::Server, 2, b"", 6000), s(3, b"x")];
    let lost = (None, CapturedBody::WithHeader(1001), Outcome::Inferred);
    assert_eq!(answers(&packets), [content(200, 5000), lost]);
}

#[test]
fn a_capture_may_begin_in_the_middle() {
    let packets = [s(0, b"end of something"), c(1, GET), s(2, OK)];
    assert_eq!(answers(&packets), [content(200, 3)]);
    let upload = [c(0, b"\x00\x01end"), s(1, OK), c(2, GET), s(3, OK)];
    let asked: Vec<_> = all(&upload).iter().map(|t| t.request.is_some()).collect();
    assert_eq!(asked, [false, true]);
    // The rest of an earlier response follows the first request.
    let late = [c(0, GET), s(1, b"late"), s(2, b"later"), c(3, GET), s(4, OK)];
    let lost = (None, CapturedBody::WithHeader(9), Outcome::Inferred);
    assert_eq!(answers(&late), [lost, content(200, 3)]);
    let late = [c(0, GET), (Endpoint::Server, 1, b"late", 10), s(2, OK)];
    assert_eq!(answers(&late), [content(200, 3)]);
    let interim = s(2, b"HTTP/1.1 100 Continue\r\n\r\n");
    let one = &all(&[late[0], late[1], interim])[0];
    assert_eq!((one.has_interim, &one.response), (true, &None));
}

#[test]
fn one_direction_is_enough_for_its_half() {
    let clients: Vec<_> = (0..100).map(|at| c(at, GET)).collect();
    let mut transactions = follow(&clients);
    assert!(transactions.open.len() <= MAX_PENDING_REQUESTS);
    transactions.finish();
    let all = ended(&mut transactions);
    assert_eq!(all.len(), 100);
    for (one, at) in all.iter().zip(0..) {
        assert_eq!((one.index, request(one).first), (at, ms(at)));
        let said = (one.outcome, one.is_pipelined, one.response.is_some());
        assert_eq!(said, (Outcome::ServerNotCaptured, None, false));
    }
    let servers = [s(0, OK), s(1, OK), s(2, b"HTTP/1.1 204 No\r\n\r\n")];
    assert_eq!(answers(&servers), [content(200, 3), content(200, 3), content(204, 0)]);
    assert_eq!(follow(&servers).is_http(), Some(true));
    assert_eq!(follow(&servers).summary().answered, 0);
    assert_eq!(follow(&servers).summary().last_data, Some(ms(2)));
}

#[test]
fn contradictions_about_a_length_leave_the_end_open() {
    for fields in [
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 4\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 99999999999999999999\r\n",
    ] {
        let said = format!("HTTP/1.1 200 OK\r\n{fields}\r\nabcd");
        let packets = [c(0, GET), s(1, said.as_bytes()), c(2, GET), s(3, OK)];
        let open = (Some(200), CapturedBody::Content(4), Outcome::Inferred);
        assert_eq!(answers(&packets), [open, content(200, 3)], "{fields}");
        assert_eq!(response(&all(&packets)[0]).content_length, None);
    }
    let same = b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(answers(&[c(0, GET), s(1, same)]), [content(200, 3)]);
}

#[test]
fn other_protocols_are_recognized_soon() {
    let http = |packets: &[Packet<'_>]| follow(packets).is_http();
    assert_eq!(http(&[]), None);
    assert_eq!(http(&[c(0, b"\x16\x03\x01")]), Some(false));
    assert_eq!(http(&[c(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]), Some(false));
    let mail = [s(0, b"220 a"), c(1, b"EHLO b\r\n"), s(2, b"250 a\r\n")];
    assert_eq!((http(&mail[..2]), http(&mail)), (None, Some(false)));
    assert!(follow(&mail).is_finished());
    let phone = [c(0, b"OPTIONS sip:a SIP/2.0\r\n\r\n"), s(1, b"SIP/2.0 200 OK\r\n\r\n")];
    assert_eq!(http(&[phone[0], phone[1], phone[0]]), Some(false));
    assert_eq!(http(&[(Endpoint::Client, 0, b"", 100), (Endpoint::Server, 0, b"", 100)]), None);
    assert_eq!(http(&[c(0, &GET[..20])]), None);
    assert_eq!(http(&[c(0, GET)]), Some(true));
    assert_eq!(http(&[s(0, OK)]), Some(true));
    assert_eq!(all(&mail), []);
}

#[test]
fn headers_beyond_the_limit_are_truncated() {
    let long = |length| [&GET[..GET.len() - 2], b"C: ", &vec![b'c'; length], b"\r\n\r\n"].concat();
    let max = MAX_HEAD_LENGTH - GET.len() - 5;
    let fits = all(&[c(0, &long(max)), s(1, OK)]);
    assert!(request(&fits[0]).is_complete && !request(&fits[0]).is_truncated);
    let above = long(max + 1);
    for size in [above.len(), 1000] {
        let mut packets: Vec<_> = above.chunks(size).map(|part| c(0, part)).collect();
        packets.extend([s(1, OK), c(2, GET), s(3, OK)]);
        let all = all(&packets);
        assert_eq!(all.len(), 2);
        assert!(request(&all[0]).is_truncated && request(&all[0]).host.is_some());
        assert_eq!(request(&all[0]).length, above.len() as u64);
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 3\r\n\r\n", "A: b\r\n".repeat(128));
    let said = all(&[c(0, GET), s(1, many.as_bytes())]);
    assert_eq!((response(&said[0]).status, response(&said[0]).is_truncated), (Some(200), true));
    let agent = format!("GET / HTTP/1.1\r\nUser-Agent: {}\r\n\r\n", "a".repeat(1000));
    let agent = request(&all(&[c(0, agent.as_bytes())])[0]).user_agent.clone().unwrap();
    assert_eq!(agent.len(), crate::http::MAX_USER_AGENT_LENGTH);
}

#[test]
fn nothing_is_held_between_transactions() {
    let transactions = follow(&[c(0, &GET[..9]), c(0, &GET[9..]), s(0, &OK[..9]), s(1, &OK[9..])]);
    assert!(transactions.open.is_empty());
    for state in [&transactions.client, &transactions.server] {
        assert!(matches!(state, ParseState::Head(assembly) if assembly.buffered().is_empty()));
    }
    assert!(size_of::<Transactions>() < 400, "{}", size_of::<Transactions>());
}

/// Data of packets: complete messages, parts of them, and random text.
const PARTS: [&[u8]; 20] = [
    GET,
    OK,
    b"HEAD /x HTTP/1.1\r\nHost: b\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n",
    b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\n",
    b"\r\n",
    b"no message",
    b"GET / HTTP/2.0\r\n",
    b"HTTP/1.1 2",
    b"GE",
];

fn a_packet() -> impl Strategy<Value = (Endpoint, u64, Vec<u8>, u64)> {
    let bytes = prop_oneof![
        8 => prop::sample::select(PARTS.to_vec()).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => Just(Vec::new()),
    ];
    let from = prop_oneof![Just(Endpoint::Client), Just(Endpoint::Server)];
    let unknown = prop_oneof![4 => Just(0), 1 => 0_u64..200, 1 => Just(u64::MAX / 2)];
    (from, 0_u64..50, bytes, unknown, any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |(from, step, bytes, unknown, is_cut, there)| {
            let kept = if is_cut { there.index(bytes.len() + 1) } else { bytes.len() };
            let unknown = unknown + (bytes.len() - kept) as u64;
            (from, step, bytes[..kept].to_vec(), unknown)
        },
    )
}

fn run(packets: &[Packet<'_>]) -> (Vec<Transaction>, Summary, Option<bool>) {
    let mut transactions = follow(packets);
    transactions.finish();
    (ended(&mut transactions), *transactions.summary(), transactions.is_http())
}

proptest! {
    #[test]
    fn results_do_not_depend_on_packet_boundaries(
        packets in prop::collection::vec(a_packet(), 0..14),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        most in 1_usize..20,
    ) {
        let (mut at, mut whole, mut parts) = (0, Vec::new(), Vec::new());
        let mut cuts = cuts.iter().cycle();
        for (from, step, bytes, unknown) in &packets {
            at += step;
            whole.push((*from, at, &bytes[..], *unknown));
            let mut rest = &bytes[..];
            while rest.len() > 1 {
                let cut = 1 + cuts.next().map_or(0, |cut| cut.index(most)).min(rest.len() - 2);
                parts.push((*from, at, &rest[..cut], 0));
                rest = &rest[cut..];
            }
            let some = unknown / 3;
            parts.push((*from, at, rest, some));
            parts.push((*from, at, &[], unknown - some));
        }
        let (all, summary, is_http) = run(&whole);
        prop_assert_eq!(&run(&parts), &(all.clone(), summary, is_http));
        for (one, index) in all.iter().zip(0..) {
            prop_assert_eq!(one.index, index);
            prop_assert!(one.request.is_some() || one.response.is_some() || one.has_interim);
            if let Some(request) = &one.request {
                prop_assert!(request.first <= request.last && request.length > 0);
                prop_assert!(!(request.is_truncated && request.is_complete));
            }
            if let Some(response) = &one.response {
                prop_assert!(response.first <= response.last && response.length > 0);
                prop_assert!(response.body.byte_count() <= response.length);
            }
        }
        prop_assert!(all.is_empty() || is_http == Some(true));
        if let (Some(first), Some(last)) = (summary.first_request, summary.last_data) {
            prop_assert!(summary.download_time.as_nanos() <= last.since(first).as_nanos());
        }
    }

    #[test]
    fn any_bytes(
        packets in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n')], 0..200)),
            0..20,
        ),
    ) {
        let packets: Vec<_> = packets.iter()
            .map(|(is_client, bytes)| if *is_client { c(0, bytes) } else { s(0, bytes) })
            .collect();
        let (all, _, is_http) = run(&packets);
        prop_assert!(all.is_empty() || is_http == Some(true));
    }
}
