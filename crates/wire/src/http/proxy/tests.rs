use proptest::prelude::*;

use super::*;
use crate::http::Host;

/// Reads a header; every shorter beginning needs more bytes or has the same result.
fn read(text: &[u8]) -> Result<ProxyHead, ProxyHeadError> {
    let whole = proxy_head(text);
    let shown = format!("{whole:?}");
    for end in 0..text.len() {
        match proxy_head(&text[..end]) {
            Ok(None) => {}
            early => assert_eq!(format!("{early:?}"), shown, "after {end} bytes"),
        }
    }
    whole.map(|head| head.expect("a whole header"))
}

/// Returns the target, the header for the server and the body.
fn forward(text: &str) -> (String, String, RequestBody) {
    let read = read(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let ProxyRequest::Forward { target, head, body } = read.request else { panic!("{text:?}") };
    let port = target.port.map_or(String::new(), |port| format!(":{port}"));
    (format!("{}{port}", target.host), String::from_utf8(head).unwrap(), body)
}

fn refused(text: &str) -> ProxyHeadError {
    read(text.as_bytes()).expect_err(text)
}

#[test]
fn a_request_is_forwarded_in_origin_form() {
    for (line, target, expected) in [
        ("GET http://a.example/ HTTP/1.1", "a.example", "GET / HTTP/1.1\r\nHost: a.example\r\n"),
        (
            "GET HTTP://A.example:81 HTTP/1.1",
            "a.example:81",
            "GET / HTTP/1.1\r\nHost: A.example:81\r\n",
        ),
        (
            "POST http://a.example?x=/ HTTP/1.0",
            "a.example",
            "POST /?x=/ HTTP/1.0\r\nHost: a.example\r\n",
        ),
        (
            "OPTIONS http://[2001:db8::1]:8080 HTTP/1.1",
            "2001:db8::1:8080",
            "OPTIONS * HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n",
        ),
        ("GET http://192.0.2.1/a?b http HTTP/1.1", "", ""),
        (
            "GET http://192.0.2.1/http://b/ HTTP/1.1",
            "192.0.2.1",
            "GET /http://b/ HTTP/1.1\r\nHost: 192.0.2.1\r\n",
        ),
    ] {
        let text = format!("{line}\r\nHost: other.example\r\n\r\n");
        if expected.is_empty() {
            assert_eq!(refused(&text), ProxyHeadError::NotHttp);
            continue;
        }
        let (host, head, body) = forward(&text);
        assert_eq!((host.as_str(), head), (target, format!("{expected}Connection: close\r\n\r\n")));
        assert!(body.is_complete());
    }
}

#[test]
fn fields_for_the_proxy_are_not_forwarded() {
    let (_, head, body) = forward(
        "PUT http://a.example/b HTTP/1.1\r\nhost: a.example\r\nUser-Agent:  x\t\r\n\
         Proxy-Connection: keep-alive\r\nproxy-authorization: Basic bWU6c2VjcmV0\r\n\
         Connection: close, X-Own ,content-length\r\nx-own: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
         Trailer: X\r\nUpgrade: h2c\r\nCookie: a\r\ncookie: b\r\nContent-Length: 5\r\n\
         Content-Length: 5\r\nCONNECTION: HTTP2-Settings\r\nhttp2-settings: AA\r\n\
         X-Bytes: \u{fc}\r\n\r\n",
    );
    assert_eq!(
        head,
        "PUT /b HTTP/1.1\r\nHost: a.example\r\nUser-Agent: x\r\nCookie: a\r\ncookie: b\r\n\
         Content-Length: 5\r\nX-Bytes: \u{fc}\r\nConnection: close\r\n\r\n"
    );
    assert!(!body.is_complete());
}

#[test]
fn connect_gives_the_target_and_the_credentials() {
    let text = b"CONNECT A.example:443 HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\n\r\n";
    let head = read(text).unwrap();
    assert_eq!(
        (head.length, head.authorization.as_deref()),
        (text.len(), Some(&b"Basic eA=="[..]))
    );
    let ProxyRequest::Connect { target } = head.request else { panic!("it is a CONNECT") };
    assert!(matches!(target.host, Host::Name(name) if name.as_str() == "a.example"));
    assert_eq!(target.port, Some(443));
    let twice = "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: a\r\nproxy-authorization: a\r\n\r\n";
    assert_eq!(read(twice.as_bytes()).unwrap().authorization, None);
    for target in ["a.example", "a.example:", ":1", "http://a.example:1", "a:0", "me@a:1"] {
        let text = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        assert_eq!(refused(&text), ProxyHeadError::ConnectTarget, "{target}");
    }
}

#[test]
fn another_form_of_target_is_refused() {
    use ProxyHeadError::*;
    for (target, expected) in [
        ("/", OriginForm),
        ("/http://a.example/", OriginForm),
        ("*", OriginForm),
        ("https://a.example/", Scheme),
        ("ftp://a.example/", Scheme),
        ("a.example:80", Scheme),
        ("http:/a.example/", Scheme),
        ("http://", Uri),
        ("http:///path", Uri),
        ("http://me:secret@a.example/", Uri),
        ("http://a.example/#b", Uri),
        ("http://a.example:0/", Uri),
        ("http://a.example\\b/", Uri),
        ("http://127.1/", Uri),
        ("http://a.example/\u{fc}", Uri),
    ] {
        assert_eq!(refused(&format!("GET {target} HTTP/1.1\r\n\r\n")), expected, "{target}");
    }
    for line in [
        "PRI * HTTP/2.0",
        "GET http://a.example/",
        "GET  http://a.example/ HTTP/1.1",
        "",
        "GET http://a.example/ HTTP/1.1 ",
        "G(T http://a.example/ HTTP/1.1",
        "GET http://a.example/\tHTTP/1.1",
    ] {
        assert_eq!(refused(&format!("{line}\r\n\r\n")), NotHttp, "{line}");
    }
}

#[test]
fn a_request_that_could_be_read_differently_is_refused() {
    use ProxyHeadError::*;
    for (fields, expected) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", BodyLength),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", BodyLength),
        ("Content-Length: 5, 5\r\n", BodyLength),
        ("Content-Length: +5\r\n", BodyLength),
        ("Content-Length:\r\n", BodyLength),
        ("Content-Length: 18446744073709551616\r\n", BodyLength),
        ("Transfer-Encoding: gzip\r\n", BodyLength),
        ("Transfer-Encoding: chunked, gzip\r\n", BodyLength),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", BodyLength),
        ("Transfer-Encoding: chunked, chunked\r\n", BodyLength),
        ("Transfer-Encoding: xchunked\r\n", BodyLength),
        ("Transfer-Encoding: chunked;a=b\r\n", BodyLength),
        ("Transfer-Encoding:\r\n", BodyLength),
        ("Transfer-Encoding: ,chunked\r\n", BodyLength),
        ("A: b\r\n c\r\n", Field),
        ("A: b\r\n\tc: d\r\n", Field),
        ("Content-Length : 5\r\n", Field),
        ("\tContent-Length: 5\r\n", Field),
        (": 5\r\n", Field),
        ("A\r\n", Field),
        ("A: b\nContent-Length: 5\r\n", ControlCharacter),
        ("A: b\rContent-Length: 5\r\n", ControlCharacter),
        ("A: b\r\r\n", ControlCharacter),
        ("A: b\0\r\n", ControlCharacter),
        ("Transfer-Encoding: \u{b}chunked\r\n", ControlCharacter),
        ("A: \u{7f}\r\n", ControlCharacter),
    ] {
        let text = format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(refused(&text), expected, "{fields:?}");
    }
    let old = "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old), BodyLength);
    assert_eq!(refused("\u{16}\u{3}\u{1}"), ControlCharacter, "TLS, before a line end");
    assert_eq!(refused("GET http://a.example/ HTTP/1.1\n"), ControlCharacter);
}

#[test]
fn a_header_has_limits() {
    let line = "GET http://a.example/ HTTP/1.1\r\n";
    let fields = |count: usize| format!("{line}{}\r\n", "A: b\r\n".repeat(count));
    assert!(read(fields(MAX_FIELDS).as_bytes()).is_ok());
    assert_eq!(refused(&fields(MAX_FIELDS + 1)), ProxyHeadError::TooLong);
    let filled = |length: usize| {
        let more = length - line.len() - "A: \r\n\r\n".len();
        format!("{line}A: {}\r\n\r\n", "b".repeat(more))
    };
    assert!(proxy_head(filled(MAX_HEAD_LENGTH).as_bytes()).unwrap().is_some());
    let long = filled(MAX_HEAD_LENGTH + 1);
    assert_eq!(proxy_head(long.as_bytes()).unwrap_err(), ProxyHeadError::TooLong);
    assert!(proxy_head(&long.as_bytes()[..MAX_HEAD_LENGTH - 1]).unwrap().is_none());
}

#[test]
fn a_body_ends_where_its_length_says() {
    let (_, _, body) = forward("PUT http://a/ HTTP/1.1\r\nContent-Length: 10\r\n\r\n");
    let (_, _, chunked) = forward(
        "PUT http://a/ HTTP/1.1\r\nTransfer-Encoding: gzip\r\ntransfer-encoding: Chunked\r\n\r\n",
    );
    for (body, bytes, expected) in [
        (body, &b"0123456789GET / HTTP/1.1\r\n"[..], 10),
        (chunked, b"3\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n", 19),
        (chunked, b"3\r\nabcd", 6),
    ] {
        for max in 1..=bytes.len() {
            let (mut body, mut taken) = (body, 0);
            for part in bytes.chunks(max) {
                taken += body.take(part);
            }
            assert_eq!((taken, body.is_complete()), (expected, true), "by {max}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_in_pieces_are_read_like_the_whole(
        start in prop::sample::select(vec![
            "", "GET http://a.example/ HTTP/1.1\r\n", "CONNECT a:1 HTTP/1.1\r\nA: b\r\n",
            "POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length",
        ]),
        rest in prop::collection::vec(prop_oneof![
            4 => prop::sample::select(&b"\r\n: ,;aA0\tproxy-"[..]), 1 => any::<u8>(),
        ], 0..200),
    ) {
        let text = [start.as_bytes(), &rest].concat();
        let whole = format!("{:?}", proxy_head(&text));
        for end in 0..text.len() {
            match proxy_head(&text[..end]) {
                Ok(None) => {}
                early => prop_assert_eq!(format!("{early:?}"), whole.clone()),
            }
        }
    }

    /// A strict reader of the result finds the same target and body, and no field for the proxy.
    #[test]
    fn the_header_for_the_server_has_one_reading(
        fields in prop::collection::vec((
            prop::sample::select(vec![
                "Host", "Connection", "PROXY-X", "Te", "Content-Length", "Transfer-Encoding", "a", "b",
            ]),
            prop::sample::select(vec!["", "a", "a, b", "close", "chunked", "5", "7", "host", "\u{fc}"]),
        ), 0..8),
    ) {
        let fields: String =
            fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        let text = format!("POST http://s.example/x HTTP/1.1\r\n{fields}\r\n");
        let Ok(Some(read)) = proxy_head(text.as_bytes()) else { return Ok(()) };
        let ProxyRequest::Forward { head, body, .. } = read.request else { panic!("no CONNECT") };
        let head = String::from_utf8(head).unwrap();
        let again = head.replacen("POST /x", "POST http://s.example/x", 1);
        let read = proxy_head(again.as_bytes()).unwrap().unwrap();
        let ProxyRequest::Forward { head: second, body: same, .. } = read.request else {
            panic!("no CONNECT")
        };
        prop_assert_eq!(&head, &String::from_utf8(second).unwrap(), "nothing is left to remove");
        prop_assert_eq!(format!("{body:?}"), format!("{same:?}"));
        let lower = head.to_ascii_lowercase();
        prop_assert_eq!(lower.matches("\r\nhost:").count(), 1);
        prop_assert_eq!(lower.matches("\r\nconnection:").count(), 1);
        prop_assert!(lower.matches("\r\ncontent-length:").count() <= 1);
        prop_assert!(!lower.contains("\r\nproxy-") && !lower.contains("\r\nte:"));
    }
}
