use std::sync::Arc;

use manyways_unit::Span;
use manyways_wire::archive::{Abort, Exchange};
use tokio::io::{DuplexStream, duplex};

use super::super::sample::{
    RECORDED_DATE, Sample, aborted, field, hollow, interim, peer, run, same, service,
};
use super::super::{Miss, Options, Outcome};
use super::*;

const A: &str = "http://a.example/a";
type Recorded = manyways_wire::archive::Response;

fn begin(service: &Arc<Service>) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, server) = duplex(1 << 16);
    let service = service.clone();
    let task = tokio::spawn(async move {
        serve(&service, &peer("http"), server, BytesMut::new()).await;
    });
    (client, task)
}

/// Sends bytes and the end of the client's direction, and returns all that comes, and the log.
fn talk_with(sample: Sample, options: Options, request: &[u8]) -> (String, Vec<Served>) {
    let mut answer = Vec::new();
    let mut log = Vec::new();
    run(async {
        let service = service(sample.responder(options));
        let (client, task) = begin(&service);
        let (mut reading, mut writing) = tokio::io::split(client);
        let write = async {
            // The server may close before it has read all.
            let _ = writing.write_all(request).await;
            let _ = writing.shutdown().await;
        };
        let (_, read) = tokio::join!(write, reading.read_to_end(&mut answer));
        read.unwrap();
        task.await.unwrap();
        log = service.log.take().0;
    });
    (String::from_utf8_lossy(&answer).into_owned(), log)
}

fn talk(sample: Sample, request: &str) -> String {
    talk_with(sample, Options::default(), request.as_bytes()).0
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn chunked(_: &mut Exchange, response: &mut Recorded) {
    response.trailers.push(field("Server-Timing", "x"));
}

#[test]
fn requests_that_come_together_are_answered_byte_by_byte_as_recorded() {
    let first = [("Server", "x"), ("Content-Length", "5"), ("ETAG", "\"1\""), ("server", "y")];
    let odd = |_: &mut Exchange, response: &mut Recorded| {
        (response.status, response.reason) = (203, "Sort of fine".to_owned());
    };
    let sample = Sample::default().get(A, &first, b"hello", &odd).get(
        "http://a.example/b",
        &[("Transfer-Encoding", "chunked")],
        b"0123456789abc",
        &chunked,
    );
    let (answer, log) =
        talk_with(sample, Options::default(), (get("/a") + &get("/b") + &get("/a")).as_bytes());
    let hello = "HTTP/1.1 203 Sort of fine\r\nServer: x\r\nContent-Length: 5\r\nETAG: \"1\"\r\n\
        server: y\r\n\r\nhello";
    let second = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n0123456789abc\r\n0\r\n\
        Server-Timing: x\r\n\r\n";
    assert_eq!(answer, format!("{hello}{second}{hello}"));
    assert_eq!(log.iter().map(|served| served.bytes).collect::<Vec<_>>(), [5, 13, 5]);
    let one = &log[1];
    assert_eq!((one.url.as_str(), one.method.as_str()), ("http://a.example/b", "GET"));
    assert_eq!(one.outcome, Outcome::Hit { exchange: 1 });
    assert!(one.first_byte >= Some(one.at) && one.last_byte >= one.first_byte);
}

#[test]
fn a_connection_ends_as_recorded_or_as_the_client_asks() {
    let length = [("Content-Length", "1")];
    let close = [("Content-Length", "1"), ("Connection", "close")];
    let twice = get("/a") + &get("/a");
    let count = |fields: &[(&str, &str)], request: &str| {
        talk(Sample::default().get(A, fields, b"x", &same), request).matches("200 OK").count()
    };
    assert_eq!(count(&length, &twice), 2);
    assert_eq!(count(&close, &twice), 1);
    // The end of the connection is that of the body.
    assert_eq!(count(&[], &twice), 1);
    assert_eq!(count(&length, &twice.replace("Host", "Connection: Close\r\nHost")), 1);
    assert_eq!(count(&length, &twice.replace("1.1", "1.0")), 1);
}

#[test]
fn a_response_without_a_body_has_none() {
    let head = "HEAD /a HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let sample = || Sample::default().get(A, &[("Content-Length", "5")], b"hello", &same);
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(
        talk(sample(), &(head.to_owned() + &get("/a"))),
        format!("{expected}{expected}hello")
    );
    let (answer, log) = talk_with(
        sample(),
        Options::default(),
        get("/a").replace("Host", "Range: bytes=1-3\r\nHost").as_bytes(),
    );
    assert!(answer.ends_with("Content-Range: bytes 1-3/5\r\nContent-Length: 3\r\n\r\nell"));
    assert_eq!(log[0].bytes, 3);
}

#[test]
fn the_server_breaks_off_after_the_bytes_that_had_arrived() {
    let sample =
        Sample::default().get(A, &[("Content-Length", "100")], b"hello", &aborted(Abort::Server));
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    assert_eq!(talk(sample, &(get("/a") + &get("/a"))), expected);
    let chunked = [("Transfer-Encoding", "chunked")];
    let sample = Sample::default().get(A, &chunked, b"hello", &aborted(Abort::Server));
    assert!(talk(sample, &get("/a")).ends_with("5\r\nhello\r\n"));
    let nothing = |exchange: &mut Exchange, _: &mut Recorded| exchange.abort = Some(Abort::Server);
    let mut sample = Sample::default().get(A, &[], b"", &nothing);
    sample.0.archive.exchanges[0].response = None;
    assert_eq!(talk(sample, &get("/a")), "");
}

#[test]
fn a_response_that_had_not_ended_does_not_end() {
    run(async {
        let chunked = [("Transfer-Encoding", "chunked")];
        let sample = Sample::default().get(A, &chunked, b"event", &aborted(Abort::Recorder));
        let service = service(sample.responder(Options::default()));
        let (mut client, task) = begin(&service);
        client.write_all(get("/a").as_bytes()).await.unwrap();
        let expected = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n";
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, expected.as_bytes());
        // The server only waits for the client now, and ignores what it sends.
        client.write_all(get("/a").as_bytes()).await.unwrap();
        while service.log.take().0.is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!task.is_finished());
        drop(client);
        task.await.unwrap();
    });
}

#[test]
fn interim_responses_precede_the_response() {
    let early = |_: &mut Exchange, response: &mut Recorded| {
        response.interim.push(interim(100, &[], Span::ZERO));
        response.interim.push(interim(103, &[("Link", "</x>")], Span::from_micros(100)));
    };
    let sample = || Sample::default().get(A, &[("Content-Length", "1")], b"x", &early);
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let expected = format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{last}");
    assert_eq!(talk(sample(), &get("/a")), expected);
    assert_eq!(talk(sample(), &get("/a").replace("1.1", "1.0")), last);
}

#[test]
fn a_client_that_expects_it_is_asked_to_continue() {
    let post = |exchange: &mut Exchange, _: &mut Recorded| {
        exchange.request.method = "POST".to_owned();
    };
    run(async {
        let mut sample = Sample::default();
        let body = sample.body(b"a=b");
        let with_body = |exchange: &mut Exchange, response: &mut Recorded| {
            post(exchange, response);
            exchange.request.body = body;
        };
        let sample = sample.get(A, &[("Content-Length", "1")], b"x", &with_body);
        let service = service(sample.responder(Options::default()));
        let (mut client, _) = begin(&service);
        let head = "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
            Expect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, expected);
        client.write_all(b"a=b").await.unwrap();
        let expected = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, expected);
        assert_eq!(service.log.take().0[0].outcome, Outcome::Hit { exchange: 0 });
    });
}

#[test]
fn the_body_of_a_request_is_matched_without_its_framing() {
    let mut sample = Sample::default();
    let bodies = [sample.body(b"id=1"), sample.body(b"id=2")];
    for (body, answer) in bodies.into_iter().zip([b"one", b"two"]) {
        let post = |exchange: &mut Exchange, _: &mut Recorded| {
            exchange.request.method = "POST".to_owned();
            exchange.request.body = body;
            let kind = field("Content-Type", "application/x-www-form-urlencoded");
            exchange.request.fields = vec![kind];
        };
        sample = sample.get(A, &[("Content-Length", "3")], answer, &post);
    }
    let head = "POST /a HTTP/1.1\r\nHost: a.example\r\n\
        Content-Type: application/x-www-form-urlencoded\r\n";
    let request = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n3\r\nid=\r\n1\r\n2\r\n0\r\n\r\n\
         {head}Content-Length: 4\r\n\r\nid=1"
    );
    let answer = talk(sample, &request);
    assert!(answer.find("two").unwrap() < answer.find("one").unwrap(), "{answer}");
}

#[test]
fn a_miss_is_404_or_the_end() {
    let sample = || Sample::default().get(A, &[("Content-Length", "1")], b"x", &same);
    let request = get("/other") + &get("/a");
    let (answer, log) = talk_with(sample(), Options::default(), request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"));
    assert!(answer.ends_with("\r\n\r\nx"));
    assert_eq!(log[0].outcome, Outcome::Miss { nearest: Some(0) });
    let close = Options { miss: Miss::Close, ..Options::default() };
    let (answer, log) = talk_with(sample(), close, request.as_bytes());
    assert_eq!((answer.as_str(), log.len(), log[0].first_byte), ("", 1, None));
}

#[test]
fn malformed_requests_are_refused() {
    let long = "a".repeat(MAX_HEAD);
    let many = "A: b\r\n".repeat(MAX_FIELDS + 1);
    for (request, status) in [
        ("\u{1}\u{2}\r\n\r\n", "400 Bad Request"),
        ("GET /a HTTP/2.0\r\n\r\n", "400 Bad Request"),
        ("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "400 Bad Request"),
        ("POST /a HTTP/1.1\r\nTransfer-Encoding: br\r\n\r\n", "501 Not Implemented"),
        (&format!("GET /{long}"), "431 Request Header Fields Too Large"),
        (&format!("GET /a HTTP/1.1\r\n{many}\r\n"), "431 Request Header Fields Too Large"),
    ] {
        let answer = talk(Sample::default(), request);
        let expected =
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(answer, expected);
    }
}

#[test]
fn a_response_waits_for_its_think_time() {
    let slow = |exchange: &mut Exchange, _: &mut Recorded| {
        exchange.think = Some(Span::from_millis(3));
    };
    let sample = Sample::default().get(A, &[("Content-Length", "1")], b"x", &slow);
    let (_, log) = talk_with(sample, Options::default(), get("/a").as_bytes());
    let waited = log[0].first_byte.unwrap().since(log[0].at);
    assert!(waited >= log[0].think && log[0].think == Span::from_millis(3), "{waited:?}");
}

#[test]
fn a_long_hollow_body_is_sent_in_pieces() {
    let long = |_: &mut Exchange, response: &mut Recorded| response.body = hollow(300_000);
    let date = [("Date", RECORDED_DATE), ("Content-Type", "text/css"), ("Content-Length", "9")];
    let (answer, log) = talk_with(
        Sample::default().get(A, &date, b"", &long),
        Options::default(),
        get("/a").as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with("Content-Length: 300000"));
    assert_eq!((body.len(), log[0].bytes), (300_000, 300_000));
}
