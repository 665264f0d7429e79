//! Entries as other programs write them.

use manyways_unit::{Span, Time};

use super::*;
use crate::archive::{Arrival, Body, Field, Protocol, Request, Response};

fn one(changes: &[(&str, Value)]) -> (Import, Request, Option<Response>) {
    let import = import(vec![entry("http://a.example/", changes)]);
    let exchange = import.archive.exchanges[0].clone();
    (import, exchange.request, exchange.response)
}

fn field(name: &str, value: &str) -> Field {
    Field { name: name.into(), value: value.into() }
}

#[test]
fn numbers_may_be_texts_and_missing_values_may_be_anything() {
    let (import, request, response) = one(&[
        (
            "/timings",
            json!({"blocked": null, "dns": "1.5", "connect": -1, "wait": {}, "receive": 0.25}),
        ),
        ("/time", json!(null)),
        ("/response/status", json!("404")),
        ("/response/headers", json!(null)),
        ("/response/content", json!([])),
        ("/response/statusText", json!(5)),
        ("/request/headers", json!([{"name": "A", "value": 7}, {"name": "B"}, null, 5])),
        ("/pageref", json!(12)),
    ]);
    let timings = import.archive.exchanges[0].timings;
    assert_eq!((timings.blocked, timings.dns), (None, Some(Span::from_micros(1_500))));
    assert_eq!((timings.wait, timings.receive), (None, Some(Span::from_micros(250))));
    let response = response.unwrap();
    assert_eq!((response.status, response.reason.as_str()), (404, "5"));
    assert_eq!(request.fields, [field("A", "7"), field("B", "")]);
    assert_eq!(import.archive.exchanges[0].page.as_deref(), Some("12"));
    assert_eq!(import.archive.creator, "Test 1");
    // `null` and 5 count as fields without a name.
    assert_eq!(warnings(&import), ["entry 1: 2 fields with an invalid name left out"]);
}

#[test]
fn a_status_that_is_none_means_no_response() {
    for status in [json!(0), json!(-1), json!(-2), json!(null), json!(103), json!(600), json!(1e9)]
    {
        let (import, _, response) = one(&[("/response/status", status.clone())]);
        assert_eq!((response, warnings(&import)), (None, vec![]), "{status}");
    }
}

#[test]
fn entries_are_sorted_by_start() {
    let at = |start: &str, url: &str| entry(url, &[("/startedDateTime", json!(start))]);
    let import = import(vec![
        at("2026-11-29T15:00:02Z", "http://a.example/3"),
        at("damaged", "http://a.example/4"),
        at("2026-11-29T16:00:01+01:00", "http://a.example/2"),
        at("2026-11-29T15:00:00Z", "http://a.example/1"),
    ]);
    let urls: Vec<_> = import.archive.exchanges.iter().map(|e| &e.request.url[17..]).collect();
    assert_eq!(urls, ["1", "2", "3", "4"]);
    assert_eq!(
        warnings(&import),
        ["entry 2: it has no valid start; that of the entry before is used"]
    );
}

#[test]
fn an_unknown_version_is_found_from_other_evidence() {
    let pseudo = json!([{"name": ":method", "value": "PUT"}, {"name": "accept", "value": "*/*"}]);
    for (changes, expected) in [
        (
            vec![("/request/httpVersion", json!("us:")), ("/response/httpVersion", json!(""))],
            Protocol::Http11,
        ),
        (vec![("/_protocol", json!("h2"))], Protocol::Http2),
        (
            vec![("/request/httpVersion", json!("1.1")), ("/response/httpVersion", json!("2.0"))],
            Protocol::Http2,
        ),
        (
            vec![
                ("/request/httpVersion", json!("h3")),
                ("/response/httpVersion", json!("unknown")),
            ],
            Protocol::Http3,
        ),
        (
            vec![
                ("/request/httpVersion", json!("")),
                ("/response/httpVersion", json!("")),
                ("/_http2_stream_id", json!(3)),
            ],
            Protocol::Http2,
        ),
        (
            vec![
                ("/request/httpVersion", json!("")),
                ("/response/httpVersion", json!("")),
                ("/request/headers", pseudo.clone()),
            ],
            Protocol::Http2,
        ),
    ] {
        let (_, request, response) = one(&changes);
        assert_eq!(
            (request.protocol, response.unwrap().protocol),
            (expected, expected),
            "{changes:?}"
        );
    }
    let (_, request, response) = one(&[("/response/httpVersion", json!("HTTP/1.0"))]);
    assert_eq!(
        (request.protocol, response.unwrap().protocol),
        (Protocol::Http11, Protocol::Http10)
    );
    let (_, request, _) = one(&[("/request/method", json!(null)), ("/request/headers", pseudo)]);
    assert_eq!(
        (request.method.as_str(), &request.fields[..]),
        ("PUT", &[field("accept", "*/*")][..])
    );
}

#[test]
fn a_missing_method_is_assumed() {
    for (header, method) in [
        ("accept", "GET"),
        ("content-length", "POST"),
        ("access-control-request-method", "OPTIONS"),
    ] {
        let headers = json!([{"name": header, "value": "1"}]);
        let (import, request, _) =
            one(&[("/request/method", json!(null)), ("/request/headers", headers)]);
        assert_eq!(request.method, method);
        assert_eq!(warnings(&import), [format!("entry 1: it has no method; {method} is assumed")]);
    }
}

#[test]
fn joined_and_invalid_fields_become_valid_ones() {
    let headers = json!([
        {"name": "set-cookie", "value": "a=1; Path=/\nb=2\r\n"}, {"name": "GET / HTTP", "value": "1.1"}, {"name": "", "value": "x"},
    ]);
    let (import, _, response) = one(&[("/response/headers", headers)]);
    let expected =
        [field("set-cookie", "a=1; Path=/"), field("set-cookie", "b=2"), field("set-cookie", "")];
    assert_eq!(response.unwrap().fields, expected);
    assert_eq!(warnings(&import), ["entry 1: 2 fields with an invalid name left out"]);
}

#[test]
fn a_body_in_the_file_is_stored_without_its_content_coding() {
    let headers = json!([
        {"name": "content-encoding", "value": "br"}, {"name": "Content-Length", "value": "4"},
        {"name": "Content-Type", "value": "text/plain; charset=iso-8859-1"},
    ]);
    let (import, _, response) = one(&[
        ("/response/headers", headers),
        ("/response/content", json!({"size": 6, "text": "h\u{e9}llo"})),
    ]);
    let response = response.unwrap();
    let bytes = "h\u{e9}llo".as_bytes();
    let digest = Digest::of(bytes);
    let expected = Body {
        length: 6,
        decoded_length: Some(6),
        digest: Some(digest),
        is_length_announced: true,
    };
    assert_eq!(response.body, Some(expected));
    assert_eq!(
        response.fields,
        [field("Content-Length", "6"), field("Content-Type", "text/plain; charset=iso-8859-1")]
    );
    assert_eq!(import.bodies, [(digest, bytes.to_vec())]);
    assert_eq!(
        warnings(&import),
        [
            "entry 1: its body is stored as UTF-8, its type names iso-8859-1",
            "1 body without the content coding, as HAR stores them decoded",
        ]
    );
}

#[test]
fn texts_are_plain_or_base64_or_in_a_file() {
    let text = |content: Value| one(&[("/response/content", content)]);
    let stored =
        |import: &Import| import.bodies.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>();
    let (import, _, _) = text(json!({"size": 2, "text": "/wA=", "encoding": "base64"}));
    assert_eq!(stored(&import), [vec![0xff, 0]]);
    for (content, warning) in [
        (json!({"size": 9, "text": "*", "encoding": "base64"}), "entry 1: its body is not base64"),
        (
            json!({"size": 9, "text": "a", "encoding": "rot13"}),
            "entry 1: its body has the encoding `rot13`, which is unknown",
        ),
        (
            json!({"size": 9, "_file": "../secret"}),
            "entry 1: the file `../secret` with its body is missing",
        ),
    ] {
        let (import, _, response) = text(content);
        assert_eq!(warnings(&import), [warning]);
        assert_eq!(
            response.unwrap().body.unwrap(),
            Body { length: 9, decoded_length: Some(9), digest: None, is_length_announced: false }
        );
    }
    // Half of a surrogate pair, from a text that was cut.
    let raw = String::from_utf8(file(vec![entry(
        "http://a.example/",
        &[("/response/content/text", json!("CUT"))],
    )]))
    .unwrap();
    let import = read(raw.replace("CUT", "a\\ud83d").as_bytes()).unwrap();
    assert_eq!(import.bodies.len(), 1);
    let content = json!({"size": 9, "_file": "1.txt"});
    let file = file(vec![entry("http://a.example/", &[("/response/content", content)])]);
    let import =
        read_with_files(&file, |name| (name == "1.txt").then(|| b"from file".to_vec())).unwrap();
    assert_eq!(stored(&import), [b"from file".to_vec()]);
}

#[test]
fn some_responses_have_no_body() {
    for changes in [
        [("/response/status", json!(204))],
        [("/response/status", json!(304))],
        [("/request/method", json!("HEAD"))],
        [("/response/content/size", json!(0))],
    ] {
        let (_, _, response) = one(&changes);
        assert_eq!(response.unwrap().body, None, "{changes:?}");
    }
    let (import, _, response) = one(&[("/response/content/size", json!(1e18))]);
    assert_eq!(response.unwrap().body, None);
    assert_eq!(
        warnings(&import),
        ["entry 1: its body of 1000000000000000000 bytes is too long and left out"]
    );
}

#[test]
fn requests_have_bodies_if_the_file_gives_a_text_parameters_or_a_size() {
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    let parameters = json!([{"name": "a b", "value": "\u{e9}&"}, {"name": "c", "value": ""}]);
    for (data, expected) in [
        (json!({"mimeType": "text/plain", "text": "hello"}), Some((5, true))),
        (json!({"mimeType": form, "params": parameters}), Some((16, true))),
        (json!({"mimeType": "multipart/form-data", "params": parameters}), None),
        (json!({"mimeType": "", "_size": 0}), None),
        (json!({"mimeType": "", "_size": 8}), Some((8, false))),
    ] {
        let (import, request, _) = one(&[("/request/postData", data.clone())]);
        let found = request.body.map(|body| (body.length, body.digest.is_some()));
        assert_eq!(found, expected, "{data}");
        assert_eq!(import.bodies.len(), usize::from(expected.is_some_and(|(_, stored)| stored)));
    }
    let length = json!([{"name": "Content-Length", "value": "0"}]);
    let (_, request, _) = one(&[("/request/headers", length)]);
    assert_eq!(request.body.map(|body| (body.length, body.is_length_announced)), Some((0, true)));
}

#[test]
fn parts_of_a_body_arrive_if_they_add_up_to_it() {
    let chunks =
        |last: u64| ("/_chunks", json!([{"ts": 357, "bytes": 2}, {"ts": 359.5, "bytes": last}]));
    let (_, _, response) = one(&[("/_ttfb_end", json!(355)), chunks(3)]);
    let arrival = |micros, bytes| Arrival { after: Span::from_micros(micros), bytes };
    assert_eq!(response.unwrap().arrivals, [arrival(2_000, 2), arrival(4_500, 5)]);
    let (_, _, response) = one(&[("/_ttfb_end", json!(355)), chunks(4)]);
    assert_eq!(response.unwrap().arrivals, []);
}

#[test]
fn pages_have_times_that_may_be_unknown() {
    let mut file: Value =
        serde_json::from_slice(&file(vec![entry("http://a.example/", &[])])).unwrap();
    file["log"]["pages"] = json!([
        {"id": "1", "title": "A", "startedDateTime": "2026-11-29T15:00:00Z", "pageTimings": {"onContentLoad": 1.5, "onLoad": -1}},
        {"id": "2", "startedDateTime": "1969-12-31T23:59:59.000Z"},
    ]);
    let archive = read(file.to_string().as_bytes()).unwrap().archive;
    let [first, second] = &archive.pages[..] else { panic!("two pages") };
    assert_eq!((first.id.as_str(), first.title.as_str(), first.loaded), ("1", "A", None));
    assert_eq!(first.content_loaded, Some(Span::from_micros(1_500)));
    assert_eq!(first.started, Time::from_millis(1_795_964_400_000));
    assert_eq!(second.started, archive.exchanges[0].started);
}
