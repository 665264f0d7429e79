//! Connections that a file only implies.

use std::collections::HashMap;

use manyways_unit::{Span, Time};

use super::*;
use crate::archive::Protocol;

/// An entry that starts after `start` ms, with changes to it.
fn at(start: u64, url: &str, changes: &[(&str, Value)]) -> Value {
    let date = json!(format!("2026-11-29T15:59:55.{start:03}Z"));
    entry(url, &[&[("/startedDateTime", date)], changes].concat())
}

/// Index of the connection of each URL.
fn connections(import: &Import) -> HashMap<&str, Option<usize>> {
    import.archive.exchanges.iter().map(|e| (e.request.url.as_str(), e.connection)).collect()
}

fn version(text: &str) -> (&'static str, Value) {
    ("/response/httpVersion", json!(text))
}

#[test]
fn an_identifier_and_an_address_make_a_connection() {
    let on = |id: &str, ip: &str| {
        [("/connection", json!(id)), ("/serverIPAddress", json!(ip)), version("h2")]
    };
    let import = import(vec![
        at(1, "https://a.example/1", &on("7", "192.0.2.1")),
        at(2, "https://b.example/2", &on("7", "192.0.2.1")),
        at(3, "https://a.example/3", &on("8", "192.0.2.1")),
        at(4, "https://a.example/4", &on("7", "192.0.2.2")),
        at(5, "https://a.example/5", &on("7", "")),
        at(6, "https://a.example/6", &[version("h2"), ("/response/bodySize", json!(0))]),
        at(6, "https://b.example/6", &[version("h2")]),
        at(7, "http://c.example/7", &[("/connection", json!("7"))]),
        at(8, "http://d.example/8", &[("/connection", json!("7"))]),
        at(9, "http://d.example/9", &[("/connection", json!("7"))]),
    ]);
    let of = connections(&import);
    let index = |url| of[url];
    assert_eq!(index("https://b.example/2"), index("https://a.example/1"), "HTTP/2 coalesces");
    assert_ne!(index("https://a.example/3"), index("https://a.example/1"));
    assert_ne!(index("https://a.example/4"), index("https://a.example/1"));
    assert_eq!(index("https://a.example/5"), index("https://a.example/4"), "the latest");
    assert_eq!(index("https://a.example/6"), None, "the browser's cache answered");
    assert_eq!(index("https://b.example/6"), index("https://b.example/2"), "by its host");
    assert_ne!(index("http://c.example/7"), index("http://d.example/8"));
    assert_eq!(index("http://d.example/8"), index("http://d.example/9"));
    let first = &import.archive.connections[0];
    assert_eq!(first.server, Some("192.0.2.1:443".parse().unwrap()));
    assert_eq!(first.protocol, Protocol::Http2);
    let tls = first.tls.as_ref().unwrap();
    assert_eq!((tls.server_name.as_deref(), tls.alpn.as_deref()), (Some("a.example"), Some("h2")));
    assert_eq!(import.archive.connections.len(), 5);
}

#[test]
fn an_address_that_becomes_known_belongs_to_the_same_connection() {
    let import = import(vec![
        at(1, "https://a.example/1", &[("/_socket", json!(3))]),
        at(
            2,
            "https://a.example/2",
            &[("/_socket", json!("3")), ("/_ip_addr", json!("[2001:db8::1]"))],
        ),
        at(3, "https://a.example/3", &[("/_socket", json!(3)), ("/_client_port", json!("51382"))]),
    ]);
    assert_eq!(import.archive.connections.len(), 1);
    let connection = &import.archive.connections[0];
    assert_eq!(connection.server, Some("[2001:db8::1]:443".parse().unwrap()));
    assert_eq!(connection.client_port, Some(51_382));
}

#[test]
fn without_identifiers_http1_has_as_many_connections_as_requests_overlap() {
    let opens = [("/timings/connect", json!(4))];
    let import = import(vec![
        at(100, "http://a.example/1", &[]),
        at(110, "http://a.example/2", &[]), // overlaps
        at(121, "http://a.example/3", &[]), // the first one is free
        at(131, "http://a.example/4", &[]), // the second one
        at(300, "http://a.example/5", &[]), // the one that was used last
        at(400, "http://a.example/6", &opens),
        at(500, "http://b.example/7", &[]),
        at(510, "http://a.example:81/8", &[]),
    ]);
    let of = connections(&import);
    let index = |url| of[url].unwrap();
    assert_eq!(index("http://a.example/1"), index("http://a.example/3"));
    assert_eq!(index("http://a.example/2"), index("http://a.example/4"));
    assert_ne!(index("http://a.example/1"), index("http://a.example/2"));
    assert_eq!(index("http://a.example/5"), index("http://a.example/4"));
    assert_eq!(import.archive.connections.len(), 5);
}

#[test]
fn without_identifiers_http2_has_one_connection_for_a_host() {
    let port = ("/connection", json!("443"));
    let import = import(vec![
        at(1, "https://a.example/1", &[version("h2"), port.clone()]),
        at(2, "https://a.example/2", &[version("HTTP/2"), port.clone()]),
        at(2, "https://b.example/3", &[version("spdy"), port.clone()]),
        at(3, "https://a.example/4", &[version("h3"), port.clone()]),
    ]);
    let of = connections(&import);
    assert_eq!(of["https://a.example/1"], of["https://a.example/2"]);
    assert_eq!(import.archive.connections.len(), 3);
}

#[test]
fn think_time_is_the_wait_without_the_round_trip_time() {
    let import = import(vec![
        at(
            1,
            "https://a.example/1",
            &[
                ("/timings/connect", json!(14.5)),
                ("/timings/ssl", json!(8)),
                ("/timings/dns", json!(2)),
                ("/_socket", json!(1)),
            ],
        ),
        at(40, "https://a.example/2", &[("/_socket", json!(1))]),
        at(41, "https://a.example/3", &[("/_socket", json!(2)), ("/_server_rtt", json!("20"))]),
        at(42, "https://a.example/4", &[("/_socket", json!(3))]),
    ]);
    let think: Vec<_> = import.archive.exchanges.iter().map(|exchange| exchange.think).collect();
    let expected = Span::from_micros(8_500);
    assert_eq!(think, [Some(expected), Some(expected), Some(Span::ZERO), None]);
    let first = &import.archive.connections[0];
    assert_eq!(first.rtt, Some(Span::from_micros(6_500)));
    let started = import.archive.exchanges[0].started;
    assert_eq!(first.opened, Some(Time::from_nanos(started.as_nanos() + 2_000_000)));
}
