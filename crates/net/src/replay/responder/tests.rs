use manyways_wire::archive::Exchange;

use super::super::sample::{RECORDED, RECORDED_DATE, Sample, aborted, field, interim, same};
use super::*;

const A: &str = "https://a.example/a";

fn ask(responder: &Responder, method: &str, url: &str, fields: &[(&str, &[u8])]) -> Reply {
    at(responder, method, url, fields, RECORDED)
}

fn at(
    responder: &Responder,
    method: &str,
    url: &str,
    fields: &[(&str, &[u8])],
    now: Time,
) -> Reply {
    let request = Request::from_url(method, url).unwrap();
    responder.respond(&Request { fields, ..request }, now)
}

fn text(reply: &Reply) -> String {
    let head = &reply.response.as_ref().unwrap().head;
    String::from_utf8(head.http1().to_vec()).unwrap()
}

fn range(reply: &Reply) -> Option<Range<u64>> {
    match &reply.response.as_ref().unwrap().content {
        Content::Recorded { range, .. } => Some(range.clone()),
        Content::None => None,
        Content::Text(text) => panic!("{text:?}"),
    }
}

/// One exchange with a validator of each kind.
fn one() -> Responder {
    let fields = [
        ("Date", RECORDED_DATE),
        ("ETag", "\"v\""),
        ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Content-Type", "text/plain"),
        ("Content-Length", "10"),
        ("Alt-Svc", "h3=\":443\""),
    ];
    Sample::default().get(A, &fields, b"0123456789", &same).responder(Options::default())
}

#[test]
fn the_head_is_the_recorded_one_without_alternatives() {
    let responder = one();
    // The second time without the index, the third in a later second.
    for later in [0, 0, 1] {
        let reply = at(&responder, "GET", A, &[], RECORDED + Span::from_secs(later));
        assert_eq!(reply.outcome, Outcome::Hit { exchange: 0 });
        let second = 20 + later;
        let expected = format!(
            "HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:{second} GMT\r\nETag: \"v\"\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\n\
             Content-Length: 10\r\n\r\n"
        );
        assert_eq!(text(&reply), expected);
        assert_eq!(range(&reply), Some(0..10));
    }
}

#[test]
fn dates_are_as_old_as_recorded() {
    let fields = [
        ("Date", RECORDED_DATE),
        ("Expires", "Tue, 14 Nov 2023 23:13:20 GMT"),
        ("Last-Modified", "Tue, 14 Nov 2023 21:13:20 GMT"),
        ("Set-Cookie", "a=b; Expires=Wed, 15-Nov-2023 22:13:20 GMT; Path=/"),
        ("X-Date", RECORDED_DATE),
    ];
    let later = |exchange: &mut Exchange, _: &mut manyways_wire::archive::Response| {
        exchange.started = RECORDED + Span::from_secs(60);
    };
    let contents =
        Sample::default().get(A, &fields, b"", &same).get(A, &fields, b"x", &later).contents();
    let responder =
        Responder::new(contents, Options::default(), RECORDED + Span::from_secs(86_400));
    let now = RECORDED + Span::from_secs(86_405);
    at(&responder, "GET", A, &[], now);
    let second = at(&responder, "GET", A, &[], now);
    assert_eq!(second.outcome, Outcome::Hit { exchange: 1 });
    let expected = "HTTP/1.1 200 OK\r\nDate: Wed, 15 Nov 2023 22:12:25 GMT\r\n\
        Expires: Wed, 15 Nov 2023 23:12:25 GMT\r\n\
        Last-Modified: Wed, 15 Nov 2023 21:13:20 GMT\r\n\
        Set-Cookie: a=b; Expires=Thu, 16-Nov-2023 22:12:25 GMT; Path=/\r\n\
        X-Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n";
    assert_eq!(text(&second), expected);
}

#[test]
fn head_is_answered_from_get() {
    let responder = one();
    for _ in 0..2 {
        let reply = ask(&responder, "HEAD", A, &[]);
        assert_eq!(reply.outcome, Outcome::Hit { exchange: 0 });
        assert!(text(&reply).contains("Content-Length: 10\r\n"));
        assert_eq!(range(&reply), None);
    }
}

#[test]
fn a_range_is_cut_out() {
    let reply = ask(&one(), "GET", A, &[("Range", b"bytes=2-4")]);
    assert!(text(&reply).starts_with("HTTP/1.1 206 Partial Content\r\nDate"));
    assert!(text(&reply).ends_with(
        "Content-Type: text/plain\r\nContent-Range: bytes 2-4/10\r\nContent-Length: 3\r\n\r\n"
    ));
    assert_eq!(range(&reply), Some(2..5));
    assert_eq!(reply.response.unwrap().length, 3);
    let reply = ask(&one(), "GET", A, &[("Range", b"bytes=10-")]);
    assert!(text(&reply).starts_with("HTTP/1.1 416 Range Not Satisfiable\r\n"));
    assert!(text(&reply).ends_with("Content-Range: bytes */10\r\nContent-Length: 0\r\n\r\n"));
    assert!(!text(&reply).contains("Content-Type"));
    assert_eq!(reply.response.unwrap().length, 0);
}

#[test]
fn a_condition_is_evaluated_before_a_range() {
    for fields in [
        &[("If-None-Match", &b"\"v\""[..])][..],
        &[("If-None-Match", b"W/\"v\""), ("Range", b"bytes=2-4")],
        &[("If-Modified-Since", b"Sun, 06 Nov 1994 08:49:37 GMT")],
    ] {
        let reply = ask(&one(), "GET", A, fields);
        let expected = format!(
            "HTTP/1.1 304 Not Modified\r\nDate: {RECORDED_DATE}\r\nETag: \"v\"\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
        );
        assert_eq!(text(&reply), expected);
        assert_eq!(range(&reply), None);
    }
    let reply = ask(&one(), "GET", A, &[("If-None-Match", b"\"w\""), ("Range", b"bytes=2-4")]);
    assert!(text(&reply).starts_with("HTTP/1.1 206 "));
}

#[test]
fn a_response_that_is_not_whole_is_neither_cut_nor_compared() {
    let sample = Sample::default().get(
        A,
        &[("ETag", "\"v\"")],
        b"0123",
        &aborted(manyways_wire::archive::Abort::Server),
    );
    let responder = sample.responder(Options::default());
    let reply = ask(&responder, "GET", A, &[("Range", b"bytes=1-2")]);
    assert!(text(&reply).starts_with("HTTP/1.1 200 OK"));
    assert_eq!((range(&reply), reply.end), (Some(0..4), End::Abort));
}

#[test]
fn a_recorded_range_answers_only_itself() {
    let recorded = |exchange: &mut Exchange, response: &mut manyways_wire::archive::Response| {
        exchange.request.fields.push(field("Range", "bytes=0-1"));
        response.status = 206;
    };
    let responder = Sample::default().get(A, &[], b"01", &recorded).responder(Options::default());
    let reply = ask(&responder, "GET", A, &[("Range", b"bytes=0-1")]);
    assert_eq!((range(&reply), reply.response.unwrap().head.status), (Some(0..2), 206));
    assert!(matches!(ask(&responder, "GET", A, &[]).outcome, Outcome::Miss { .. }));
}

#[test]
fn a_miss_is_a_response_or_none() {
    let url = "https://b.example/never";
    let reply = ask(&one(), "GET", url, &[]);
    assert_eq!(reply.outcome, Outcome::Miss { nearest: None });
    let response = reply.response.unwrap();
    let head = response.head.http1();
    assert!(head.starts_with(b"HTTP/1.1 404 Not Found\r\n"));
    assert!(head.ends_with(b"Manyways-Replay: miss\r\n\r\n"));
    let Content::Text(text) = response.content else { panic!() };
    assert_eq!(response.head.value("content-length").unwrap(), &text.len().to_string());
    let reply = ask(&one(), "HEAD", url, &[]);
    assert!(matches!(reply.response.unwrap().content, Content::None));
    let options = Options { miss: Miss::Close, ..Options::default() };
    let responder = Sample::default().get(A, &[], b"", &same).responder(options);
    let reply = ask(&responder, "GET", url, &[]);
    assert!(reply.response.is_none());
    assert_eq!(reply.end, End::Abort);
}

#[test]
fn similar_requests_are_reported_as_such() {
    let url = "https://a.example/a?lang=en&theme=dark&size=large&_=1700000000000";
    let responder = Sample::default().get(url, &[], b"x", &same).responder(Options::default());
    let reply = ask(&responder, "GET", &url.replace("=17", "=18"), &[]);
    let Outcome::Approximate { exchange: 0, score, differences } = reply.outcome else { panic!() };
    assert!(score > 0.9 && differences.len() == 1);
}

#[test]
fn think_times_and_interim_responses_are_scaled() {
    let slow = |exchange: &mut Exchange, response: &mut manyways_wire::archive::Response| {
        exchange.think = Some(Span::from_millis(40));
        let links = [("Link", "</a.css>; rel=preload"), ("Alt-Svc", "clear")];
        response.interim.push(interim(103, &links, Span::from_millis(10)));
    };
    for (think, expected) in [
        (Think::Recorded, (40, 10)),
        (Think::Zero, (0, 0)),
        (Think::Scaled(0.5), (20, 5)),
        (Think::Scaled(-1.0), (0, 0)),
    ] {
        let options = Options { think, ..Options::default() };
        let responder = Sample::default().get(A, &[], b"x", &slow).responder(options);
        let reply = ask(&responder, "GET", A, &[]);
        let [(after, head)] = &reply.interim[..] else { panic!() };
        assert_eq!(
            (reply.think, *after),
            (Span::from_millis(expected.0), Span::from_millis(expected.1))
        );
        let text = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
        assert_eq!(head.http1(), text);
    }
}

#[test]
fn an_exchange_without_a_response_has_none() {
    let mut sample = Sample::default().get(A, &[], b"", &same);
    sample.0.archive.exchanges[0].response = None;
    sample.0.archive.exchanges[0].abort = Some(manyways_wire::archive::Abort::Client);
    let reply = ask(&sample.responder(Options::default()), "GET", A, &[]);
    assert!(reply.response.is_none());
    assert_eq!((reply.outcome, reply.end), (Outcome::Hit { exchange: 0 }, End::Open));
}

#[test]
fn repeated_requests_have_their_responses_in_recorded_order() {
    let sample = Sample::default().get(A, &[], b"1", &same).get(A, &[], b"2", &same).get(
        "https://a.example/b",
        &[],
        b"3",
        &same,
    );
    let responder = sample.responder(Options::default());
    let asked = |url: &str| ask(&responder, "GET", url, &[]).outcome.exchange();
    assert_eq!([A; 3].map(asked), [Some(0), Some(1), Some(1)]);
    assert_eq!(["https://a.example/b"; 3].map(asked), [Some(2); 3]);
    assert_eq!(responder.lock().shortcut.find(&Request::from_url("GET", A).unwrap()), None);
}

#[test]
fn a_coded_body_of_a_request_is_compared_without_its_coding() {
    use std::io::Write;
    let body = br#"{"item":"book","note":"a long text in words"}"#;
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(body).unwrap();
    let coded = coder.finish().unwrap();
    let mut sample = Sample::default();
    let stored = sample.body(&coded);
    let post = |exchange: &mut Exchange, _: &mut manyways_wire::archive::Response| {
        exchange.request.method = "POST".to_owned();
        exchange.request.body = stored;
        exchange.request.fields =
            vec![field("Content-Type", "application/json"), field("Content-Encoding", "gzip")];
    };
    let responder = sample.get(A, &[], b"x", &post).responder(Options::default());
    let fields = [("content-type", &b"application/json"[..]), ("content-encoding", b"gzip")];
    for (fields, body) in [(&fields[..1], &body[..]), (&fields[..], &coded[..])] {
        let request = Request { fields, body, ..Request::from_url("POST", A).unwrap() };
        assert_eq!(responder.respond(&request, RECORDED).outcome, Outcome::Hit { exchange: 0 });
    }
}
