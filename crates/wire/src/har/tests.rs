mod connections;
mod damage;
mod foreign;
mod generated;

use serde_json::{Value, json};

use super::*;

/// A file of another program with entries.
fn file(entries: Vec<Value>) -> Vec<u8> {
    let creator = json!({"name": "Test", "version": "1"});
    json!({"log": {"version": "1.2", "creator": creator, "entries": entries}}).to_string().into()
}

/// An entry with a response 200; `changes` replace or add fields, by JSON pointer.
fn entry(url: &str, changes: &[(&str, Value)]) -> Value {
    let mut entry = json!({
        "startedDateTime": "2026-11-29T15:59:55.000Z",
        "time": 20,
        "request": {"method": "GET", "url": url, "httpVersion": "HTTP/1.1", "headers": [], "bodySize": 0},
        "response": {
            "status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "headers": [],
            "content": {"size": 5, "mimeType": "text/plain"}, "bodySize": 5,
        },
        "timings": {"blocked": -1, "dns": -1, "connect": -1, "ssl": -1, "send": 0, "wait": 15, "receive": 5},
    });
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = entry.pointer_mut(parent).unwrap();
        parent[name] = value.clone();
    }
    entry
}

fn import(entries: Vec<Value>) -> Import {
    read(&file(entries)).unwrap()
}

fn warnings(import: &Import) -> Vec<String> {
    import.warnings.iter().map(ToString::to_string).collect()
}

/// Writes without bodies.
fn written(archive: &Archive) -> Vec<u8> {
    let mut out = Vec::new();
    write(archive, |_, _| Content::Omitted, &mut out).unwrap();
    out
}

/// The version of the schema increases if this changes in a way that older readers do not skip.
#[test]
fn the_fields_beyond_har_have_these_names() {
    let import = import(vec![entry(
        "https://a.example/",
        &[
            ("/_ip_addr", json!("192.0.2.1")),
            ("/_server_rtt", json!(10)),
            ("/response/headers", json!([{"name": "Content-Length", "value": "5"}])),
            ("/response/content/text", json!("hello")),
        ],
    )]);
    let mut out = Vec::new();
    let content = |_: &crate::archive::Body, _: &[_]| Content::File("bodies/1".to_owned());
    write(&import.archive, content, &mut out).unwrap();
    let file: Value = serde_json::from_slice(&out).unwrap();
    let log = &file["log"];
    assert_eq!(
        log["_manyways"],
        json!({
            "schema": "manyways.archive/1",
            "creator": "Test 1",
            "connections": [{
                "server": "192.0.2.1:443",
                "protocol": "HTTP/1.1",
                "tls": {"server_name": "a.example"},
                "rtt": 10_000_000,
            }],
            "tunnelled": [],
        })
    );
    let digest = Digest::of(b"hello").to_string();
    assert_eq!(
        log["entries"],
        json!([{
            "startedDateTime": "2026-11-29T15:59:55.000Z",
            "time": 20.0,
            "request": {
                "method": "GET", "url": "https://a.example/", "httpVersion": "HTTP/1.1",
                "cookies": [], "headers": [], "queryString": [], "headersSize": -1, "bodySize": 0,
            },
            "response": {
                "status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [],
                "headers": [{"name": "Content-Length", "value": "5"}],
                "content": {
                    "size": 5, "compression": 0, "mimeType": "x-unknown", "_file": "bodies/1",
                },
                "redirectURL": "", "headersSize": -1, "bodySize": 5, "_transferSize": 5,
            },
            "cache": {},
            "timings": {
                "blocked": -1.0, "dns": -1.0, "connect": -1.0, "ssl": -1.0, "send": 0.0,
                "wait": 15.0, "receive": 5.0,
            },
            "serverIPAddress": "192.0.2.1",
            "connection": "1",
            "_manyways": {
                "connection": 0,
                "started": 1_795_967_995_000_000_000_u64,
                "timings": {"send": 0, "wait": 15_000_000, "receive": 5_000_000},
                "think": 5_000_000,
                "request": {"protocol": "HTTP/1.1"},
                "response": {
                    "protocol": "HTTP/1.1",
                    "body": {
                        "length": 5, "decoded_length": 5, "digest": digest, "announced": true,
                    },
                },
            },
        }])
    );
}
