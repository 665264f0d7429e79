use proptest::prelude::*;

use super::*;

fn named(host: &str, port: Option<u16>) -> Authority {
    Authority { host: Host::Name(HostName::parse(host.as_bytes()).unwrap()), port }
}

fn request(host: &str, port: Option<u16>) -> Peek<Head> {
    Peek::Complete(Head::Request(Some(named(host, port))))
}

/// Checks that each beginning of `bytes` yields `More`, or the result for all bytes.
fn check_every_beginning(bytes: &[u8], expected: &Peek<Head>) {
    assert_eq!(&head(bytes), expected);
    for end in 0..bytes.len() {
        match head(&bytes[..end]) {
            Peek::More(whole) => assert!(whole > end && whole <= bytes.len(), "{whole} at {end}"),
            said => assert_eq!(&said, expected, "after {end} bytes"),
        }
    }
}

#[test]
fn the_host_field_gives_the_authority() {
    let get = b"GET /a://b HTTP/1.1\r\nAccept: */*\r\nhOST: \t WWW.Example.com:8080 \r\n\r\nbody";
    check_every_beginning(get, &request("www.example.com", Some(8080)));
    let old = b"\r\nPOST / HTTP/1.0\nHost:a.example.:\n\n";
    check_every_beginning(old, &request("a.example", None));
}

#[test]
fn an_absolute_url_overrides_the_host_field() {
    for (target, expected) in [
        ("http://b.example/x?y", request("b.example", None)),
        ("HTTPS://me:secret@B.example:444", request("b.example", Some(444))),
        ("http://me@here:x@b.example/", request("b.example", None)),
        ("http://b.example?x@c.example", request("b.example", None)),
        ("http:///", Peek::Complete(Head::Request(None))),
        ("ftp://b.example/", request("a.example", None)),
        ("*", request("a.example", None)),
    ] {
        let bytes = format!("OPTIONS {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        check_every_beginning(bytes.as_bytes(), &expected);
    }
}

#[test]
fn connect_gives_the_target_and_the_length_of_the_header() {
    let bytes = b"CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n\x16\x03\x01";
    let target = named("a.example", Some(443));
    let expected = Head::Connect { target, length: bytes.len() - 3 };
    assert_eq!(expected.name().map(HostName::as_str), Some("a.example"));
    check_every_beginning(bytes, &Peek::Complete(expected));
    let bytes = b"CONNECT [2001:db8::1]:22 HTTP/1.1\r\n\r\n";
    let target = Authority { host: Host::Address("2001:db8::1".parse().unwrap()), port: Some(22) };
    let expected = Head::Connect { target, length: bytes.len() };
    assert_eq!(expected.name(), None);
    check_every_beginning(bytes, &Peek::Complete(expected));
    for target in ["a.example", "a.example:", "a.example:0", "/", "http://a.example:443/"] {
        let bytes = format!("CONNECT {target} HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
        assert_eq!(head(bytes.as_bytes()), Peek::No, "{target}");
    }
}

#[test]
fn http_2_yields_no_name() {
    check_every_beginning(HTTP2_PREFACE, &Peek::Complete(Head::Http2));
    assert_eq!(head(&[HTTP2_PREFACE, b"\0\0\x12\x04\0"].concat()).complete(), Some(Head::Http2));
    assert_eq!(Head::Http2.name(), None);
    assert_eq!(head(b"PRI * HTTP/2.0\r\nHost: a.example\r\n\r\n"), Peek::No);
    check_every_beginning(
        b"PRI * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        &request("a.example", None),
    );
}

#[test]
fn a_contradictory_request_has_no_authority() {
    for fields in [
        "",
        "Host:\r\n",
        "Host: a.example\r\nHost: b.example\r\n",
        "Host: a.example, b.example\r\n",
        "Host: a.example:99999\r\n",
        "Host: a.example:+80\r\n",
        "Host: me@a.example\r\n",
        "Host: [::1\r\n",
        "Host: [::1]x\r\n",
    ] {
        let bytes = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        check_every_beginning(bytes.as_bytes(), &Peek::Complete(Head::Request(None)));
    }
    let twice = b"GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n";
    check_every_beginning(twice, &request("a.example", None));
}

#[test]
fn an_address_is_not_a_name() {
    for (host, address) in [("192.0.2.1:80", "192.0.2.1"), ("[::1]:80", "::1")] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let said = head(bytes.as_bytes()).complete().unwrap();
        assert_eq!(said.name(), None);
        let host = Host::Address(address.parse().unwrap());
        assert_eq!(said, Head::Request(Some(Authority { host, port: Some(80) })));
    }
}

#[test]
fn other_protocols_are_rejected_early() {
    let words = "x".repeat(40);
    for bytes in [
        &b"\x16\x03\x01"[..],
        b"SSH-2.0-OpenSSH_10.0\r\n",
        b"EHLO a.example\r\n",
        b"GET / HTTP/1.1\r\nHost a.example\r\n",
        b"GET / HTTP/1.1\r\n Host: a.example\r\n",
        b"\0",
        words.as_bytes(),
    ] {
        assert_eq!(head(bytes), Peek::No, "{}", bytes.escape_ascii());
    }
    assert_eq!(head(b""), Peek::More(1));
}

#[test]
fn heads_have_limits() {
    let many = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert_eq!(head(many(MAX_FIELDS).as_bytes()), Peek::Complete(Head::Request(None)));
    assert_eq!(head(many(MAX_FIELDS + 1).as_bytes()), Peek::No);
    let long = |cookie| format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "c".repeat(cookie));
    assert!(head(long(MAX_PEEK_LENGTH - 28).as_bytes()).complete().is_some());
    assert_eq!(head(long(MAX_PEEK_LENGTH - 27).as_bytes()), Peek::No);
    assert_eq!(head(&long(MAX_PEEK_LENGTH).as_bytes()[..MAX_PEEK_LENGTH]), Peek::No);
    assert_eq!(head("\r\n".repeat(MAX_PEEK_LENGTH).as_bytes()), Peek::No);
}

proptest! {
    #[test]
    fn any_bytes_after_any_beginning(
        beginning in prop::sample::select(vec!["", "GET / HTTP/1.1\r\n", "CONNECT ", "PRI *"]),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b':')], 0..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = [beginning.as_bytes(), &bytes].concat();
        let some = head(&bytes[..cut.index(bytes.len() + 1)]);
        prop_assert!(matches!(some, Peek::More(_)) || some == head(&bytes));
    }

    #[test]
    fn any_authority(
        name in "[a-z]{1,9}(\\.[a-z]{1,9}){0,3}",
        port in prop::option::of(1_u16..),
    ) {
        let text = match port {
            Some(port) => format!("{name}:{port}"),
            None => name.clone(),
        };
        let bytes = format!("GET / HTTP/1.1\r\nX: y\r\nHost: {text}\r\nY: z\r\n\r\n");
        check_every_beginning(bytes.as_bytes(), &request(&name, port));
    }
}
