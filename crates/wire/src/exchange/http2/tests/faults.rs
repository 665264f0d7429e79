//! Bytes that are not HTTP/2, and malformed messages.

use super::*;

const POST: &[(&str, &str)] = &[(":method", "POST"), (":scheme", "https"), (":path", "/")];

#[test]
fn bytes_that_are_not_http2_are_a_fault_of_their_sender() {
    let mut other_preface = preface();
    other_preface[23] = b'x';
    for (from, bytes) in [
        (Client, &b"GET / HTTP/1.1\r\n\r\n"[..]),
        (Client, &other_preface),
        (Client, &[&preface()[..24], &headers(1, 0, GET)].concat()),
        (Server, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        (Server, &frame(4, ACK, 0, &[])),
        (Server, &frame(6, 0, 0, &[0; 8])),
    ] {
        for max in [1, 99] {
            let mut harness = Harness::default();
            let faults: Vec<_> =
                bytes.chunks(max).filter_map(|piece| harness.passes(from, piece).err()).collect();
            assert_eq!(faults, [Fault { from, what: "bytes that are not HTTP/2" }]);
        }
    }
}

#[test]
fn a_violation_of_the_framing_is_a_fault_and_aborts_all_exchanges() {
    let long = "a frame that is longer than permitted";
    let (length, stream) = ("a frame of a wrong length", "a frame on a wrong stream");
    let between = "a frame between the parts of a head";
    let padding = "a frame that is shorter than its padding";
    let open_block = frame(1, 0, 3, GET);
    for (from, bytes, what) in [
        (Client, frame(0xee, 0, 1, &[0; 16_385]), long),
        (Server, data(1, 0, &[0; 16_385]), long),
        (Client, frame(4, 0, 0, &[0; 5]), length),
        (Client, frame(4, ACK, 0, &[0; 6]), length),
        (Client, frame(3, 0, 1, &[0; 5]), length),
        (Server, frame(7, 0, 0, &[0; 7]), length),
        (Server, frame(5, END_HEADERS, 1, &[0; 3]), length),
        (Client, frame(1, END_HEADERS | 0x20, 3, &[0; 4]), length),
        (Client, frame(0, 8, 1, &[]), length),
        (Client, frame(0, 8, 1, &[4, 0, 0, 0]), padding),
        (Client, frame(1, 0x28, 3, &[1, 0, 0, 0, 0, 0]), padding),
        (Client, data(0, 0, b""), stream),
        (Client, headers(0, 0, GET), stream),
        (Client, reset(0, 0), stream),
        (Client, frame(4, 0, 1, &[]), stream),
        (Server, frame(7, 0, 1, &[0; 8]), stream),
        (Client, continuation(1, END_HEADERS, b""), between),
        (Client, [&open_block[..], &data(1, 0, b"")].concat(), between),
        (Client, [&open_block[..], &frame(0xee, 0, 0, b"")].concat(), between),
        (Client, [&open_block[..], &continuation(1, END_HEADERS, b"")].concat(), between),
        (Client, [&open_block[..], &headers(5, 0, GET)].concat(), between),
        (Client, settings(&[(5, 16_383)]), "an invalid maximum length of frames"),
        (Client, settings(&[(5, 1 << 24)]), "an invalid maximum length of frames"),
        (Client, data(3, 0, b"x"), "a body without a head"),
        (Server, data(2, 0, b"x"), "a body without a head"),
        (Client, reset(3, 0), "a reset of no stream"),
        (Server, reset(2, 0), "a reset of no stream"),
        (Server, headers(3, 0, &block(&[(":status", "200")])), "a response without a request"),
        (Server, headers(2, 0, &block(&[(":status", "200")])), "a response without a request"),
        (Client, headers(2, 0, GET), "a request on a stream of the server"),
        (Client, promise(1, 2, GET), "a promise, as only servers may"),
        (Server, promise(1, 3, GET), "a promise of a wrong stream"),
        (Server, promise(1, 0, GET), "a promise of a wrong stream"),
        (Server, [promise(1, 4, GET), promise(1, 2, GET)].concat(), "a promise of a wrong stream"),
        (Client, headers(3, 0, &[0x82, 0xff]), "a head that cannot be decompressed"),
        (Server, headers(1, 0, &[0x3f, 0xe2, 0x1f]), "heads that need more memory than permitted"),
    ] {
        for max in [1, usize::MAX] {
            let mut harness = Harness::new();
            harness.pass(Client, &[headers(1, 0, GET)]);
            let faults: Vec<_> =
                bytes.chunks(max).filter_map(|piece| harness.passes(from, piece).err()).collect();
            assert_eq!(faults, [Fault { from, what }], "the fault of {}", bytes[3]);
            assert!(harness.seen.contains(&Seen::Abort(1, from)), "{what}: {:?}", harness.seen);
            harness.take();
            harness.pass(Client, &[headers(5, 0, GET)]);
            harness.pass(Server, &[reset(1, 0)]);
            assert_eq!((harness.take(), harness.observer.is_busy()), (vec![], false), "{what}");
        }
    }
    let fault = Harness::default().passes(Server, b"220 mail.example\r\n").unwrap_err();
    assert_eq!(fault.to_string(), "the server sends bytes that are not HTTP/2");
}

#[test]
fn a_malformed_request_is_not_reported_and_affects_no_other_stream() {
    let (method, scheme, path) = (POST[0], POST[1], POST[2]);
    let authority = (":authority", "a.example");
    let (connect, protocol) = ((":method", "CONNECT"), (":protocol", "websocket"));
    for fields in [
        &[][..],
        &[method, scheme],
        &[method, path],
        &[scheme, path, authority],
        &[method, method, scheme, path],
        &[method, scheme, path, path],
        &[method, scheme, path, authority, authority],
        &[method, scheme, ("a", "b"), path],
        &[method, scheme, path, (":status", "200")],
        &[method, scheme, path, (":other", "x")],
        &[method, scheme, path, protocol],
        &[method, scheme, (":path", "")],
        &[method, (":scheme", ""), path],
        &[(":method", ""), scheme, path],
        &[method, scheme, (":path", "/ HTTP/1.1")],
        &[method, scheme, (":path", "/\u{7f}")],
        &[connect, scheme, path],
        &[connect, authority, path],
        &[connect, scheme, authority],
        &[connect, protocol, authority, path],
        &[connect, protocol, scheme, path],
        &[connect, protocol, scheme, authority],
        &[connect, (":authority", "")],
        &[method, scheme, path, ("Host", "a.example")],
        &[method, scheme, path, ("", "a")],
        &[method, scheme, path, ("a:b", "c")],
        &[method, scheme, path, ("a b", "c")],
        &[method, scheme, path, ("\u{e9}", "c")],
        &[method, scheme, path, ("a", "b\r\nc: d")],
        &[method, scheme, path, ("a", "b\n")],
        &[method, scheme, path, ("a", "\0")],
    ] {
        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, 0, &block(fields)), data(1, 0, b"x")]);
        harness.pass(Client, &[headers(3, END_STREAM, GET)]);
        harness.pass(Server, &[reset(1, 1)]);
        let expected = [request(3, "GET /", &[]), end(3, Client)];
        assert_eq!(harness.take(), expected, "{fields:?}");
        harness.pass(Server, &[promise(3, 2, &block(fields)), headers(2, END_STREAM, GET)]);
        assert_eq!(harness.take(), [], "{fields:?}");
    }
}

#[test]
fn a_malformed_response_is_aborted_by_the_server() {
    let status = |status| headers(1, 0, &block(&[(":status", status)]));
    let with = |field| headers(1, 0, &block(&[(":status", "200"), field]));
    let trailers = |flags, field| {
        let trailers = headers(1, flags, &block(&[field]));
        [&status("200")[..], &data(1, 0, b"x"), &trailers].concat()
    };
    for response in [
        headers(1, 0, &block(&[("a", "b")])),
        status(""),
        status("20"),
        status("0200"),
        status("+20"),
        status("099"),
        status("101"),
        headers(1, END_STREAM, &block(&[(":status", "103")])),
        with((":status", "200")),
        with((":path", "/")),
        with((":protocol", "a")),
        with(("Server", "x")),
        data(1, 0, b"x"),
        data(1, END_STREAM, b""),
        trailers(0, ("a", "b")),
        trailers(END_STREAM, (":status", "200")),
        trailers(END_STREAM, ("A", "b")),
    ] {
        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, END_STREAM, GET), headers(3, END_STREAM, GET)]);
        harness.pass(Server, &[response]);
        assert_eq!(harness.take().last(), Some(&Seen::Abort(1, Server)));
        harness.pass(Server, &[data(1, END_STREAM, b"y")]);
        harness.pass(Server, &[headers(3, END_STREAM, &block(&[(":status", "204")]))]);
        assert_eq!(harness.take(), [super::response(3, 204, &[]), end(3, Server)]);
        assert!(!harness.observer.is_busy());
    }
}

#[test]
fn malformed_trailers_of_a_request_are_aborted_by_the_client() {
    for (flags, field) in [(0, ("a", "b")), (END_STREAM, (":path", "/")), (END_STREAM, ("A", "b"))]
    {
        let mut harness = Harness::new();
        harness.pass(Client, &[headers(1, 0, GET), headers(1, flags, &block(&[field]))]);
        assert_eq!(harness.take(), [request(1, "GET /", &[]), Seen::Abort(1, Client)]);
    }
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, 0, GET), headers(1, END_STREAM, &block(&[("a", "b")]))]);
    let trailers = Seen::End(1, Client, vec!["a: b".to_owned()]);
    assert_eq!(harness.take(), [request(1, "GET /", &[]), trailers]);
}

#[test]
fn a_message_has_no_parts_after_its_end() {
    let ok = headers(1, END_STREAM, &block(&[(":status", "200")]));
    let rest = [headers(1, 0, GET), headers(1, END_STREAM, GET), data(1, END_STREAM, b"x")];
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, END_STREAM, GET)]);
    harness.take();
    harness.pass(Client, &rest);
    assert_eq!((harness.take(), harness.observer.is_busy()), (vec![], true));
    let mut harness = Harness::new();
    harness.pass(Client, &[headers(1, 0, GET)]);
    harness.pass(Server, std::slice::from_ref(&ok));
    harness.take();
    harness.pass(Server, &[&[ok][..], &rest].concat());
    assert_eq!((harness.take(), harness.observer.is_busy()), (vec![], true));
}
