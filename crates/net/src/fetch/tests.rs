//! Complete transfers from a scripted server on loopback. Each source address is one path.
//!
//! These tests do not depend on timing: a gate in a response opens when another path has sent a
//! request.

mod advice;
mod excerpts;
mod faults;
mod files;
mod heads;
mod http2;
mod portals;
mod retries;
pub(super) mod server;

use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyways_proto::fetch::Config;
use manyways_unit::{Size, Span};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::{Client, ClientBuilder, Event, FetchError, Job, PathSpec, Report};
use server::{ReceivedRequest, Reply, Server, correct_reply};

const ETAG: &str = "\"one\"";

/// Bytes that differ by offset.
fn object(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

/// Path `n` has the source address 127.0.0.n.
fn path(n: u8) -> PathSpec {
    PathSpec::from_address(["", "one", "two", "three"][usize::from(n)], address(n))
}

/// Short timeouts, for faults on loopback.
fn quick() -> Config {
    Config {
        stall_timeout: Span::from_millis(200),
        last_path_stall_timeout: Span::from_millis(400),
        first_backoff: Span::from_millis(1),
        max_attempts: 3,
        ..Config::default()
    }
}

fn builder() -> ClientBuilder {
    Client::builder().config(quick()).paths([path(1), path(2)])
}

struct FetchResult {
    outcome: Result<Report, FetchError>,
    notes: Vec<String>,
}

impl FetchResult {
    fn report(&self) -> &Report {
        self.outcome.as_ref().unwrap_or_else(|error| panic!("{error} {:?}", self.notes))
    }

    fn error(&self) -> String {
        self.outcome.as_ref().expect_err("it worked").to_string()
    }

    #[track_caller]
    fn notes(&self, expected: &[&str]) {
        assert_eq!(self.notes.len(), expected.len(), "{:?}", self.notes);
        for (note, expected) in self.notes.iter().zip(expected) {
            assert!(note.contains(expected), "{note}");
        }
    }
}

async fn get(client: &mut Client, job: &Job) -> FetchResult {
    let mut notes = Vec::new();
    let mut listen = |event: Event<'_>| {
        if let Event::Note(note) = event {
            notes.push(note.to_owned());
        }
    };
    let outcome = client.fetch(job, &mut listen, pending()).await;
    FetchResult { outcome, notes }
}

/// Creates a temporary folder, and the output file's name in it.
fn target() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("file");
    (folder, target)
}

#[track_caller]
fn assert_complete(target: &Path, expected: &[u8]) {
    assert!(std::fs::read(target).unwrap() == expected, "the file is not the object");
    assert_eq!(names(target), ["file"]);
}

#[track_caller]
fn assert_no_files(target: &Path) {
    assert_eq!(names(target), [""; 0]);
}

fn names(target: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(target.parent().unwrap()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Delays path 1's first response after 100 KB until path 2 has sent `asks` requests.
fn gated_server(
    object: &[u8],
    asks: usize,
) -> impl Fn(&ReceivedRequest) -> Reply + Send + Sync + use<> {
    let object = object.to_vec();
    let gate = Arc::new(Semaphore::new(0));
    move |request| {
        let mut reply = correct_reply(request, &object, ETAG);
        if request.from == address(1) && request.index == 0 {
            reply.gate = Some((100_000, Arc::clone(&gate)));
        } else if request.from == address(2) && request.index + 1 == asks {
            gate.add_permits(1);
        }
        reply
    }
}

/// Runs a transfer over two paths; `change` modifies the responses for path 2.
async fn second_path(
    change: fn(&ReceivedRequest, &mut Reply),
) -> (FetchResult, TempDir, PathBuf, Vec<u8>) {
    let object = object(1_000_000);
    let script = gated_server(&object, 1);
    let server = Server::start(move |request| {
        let mut reply = script(request);
        if request.from == address(2) {
            change(request, &mut reply);
        }
        reply
    })
    .await;
    let (folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    (result, folder, target, object)
}

#[tokio::test]
async fn two_paths_share_one_object() {
    let object = object(1_000_000);
    let server = Server::start(gated_server(&object, 3)).await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x?y"), &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    assert_complete(&target, &object);
    let report = result.report();
    result.notes(&[]);
    assert_eq!(report.bytes, Size::from_bytes(1_000_000));
    let [one, two] = report.paths.as_slice() else { panic!() };
    assert_eq!(one.bytes + two.bytes, report.bytes);
    assert!(two.bytes >= Size::from_kib(2 * 64), "{report:?}");
    let asks = server.requests();
    assert_eq!((asks[0].target.as_str(), asks[0].range), ("/x?y", None));
    for request in &asks[1..] {
        assert_eq!(request.header("if-range"), Some(ETAG), "{request:?}");
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert!(request.range.is_some());
    }
}

#[tokio::test]
async fn several_objects_share_a_connection() {
    let (pem, tls) = server::certificate(&["a.test"], true);
    let content = object(5_000);
    let served = content.clone();
    let server = Server::start_at("127.0.0.1:0", Some(tls), move |request| {
        correct_reply(request, &served, ETAG)
    })
    .await;
    let (folder, _) = target();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, pem).unwrap();
    let names = HashMap::from([("a.test".to_owned(), vec![address(1)])]);
    let mut client = Client::builder()
        .paths([PathSpec { resolver: Arc::new(names), ..path(1) }])
        .trust(super::Trust::File(authority))
        .build()
        .unwrap();
    for name in ["a", "b"] {
        let target = folder.path().join(name);
        let url = format!("https://a.test:{}/{name}", server.address.port());
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        assert_eq!(result.report().paths[0].protocol, Some(super::Protocol::Http2));
        assert!(std::fs::read(&target).unwrap() == content);
    }
}

/// A server that does not encode its `Location`, and writes it in Latin-1.
#[tokio::test]
async fn bytes_of_a_redirect_are_encoded_as_they_are() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a/b", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let reply: &[u8] = match head.starts_with(b"GET /a/caf%E9%20%7B1%7D?%e9 ") {
                true => b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nwhole",
                false => {
                    b"HTTP/1.1 302 \r\nlocation: caf\xe9 {1}?%e9\r\n\
                      content-length: 0\r\nconnection: close\r\n\r\n"
                }
            };
            stream.write_all(reply).await.unwrap();
        }
    });
    let (_folder, target) = target();
    let mut client = Client::builder().config(quick()).paths([path(1)]).build().unwrap();
    get(&mut client, &Job::new(&url, &target).unwrap()).await.report();
    assert_complete(&target, b"whole");
}

#[tokio::test]
async fn redirects_are_followed_without_the_credentials() {
    let content = object(300_000);
    let served = content.clone();
    let far =
        Server::start_at("127.0.0.1:0", None, move |request| correct_reply(request, &served, ETAG))
            .await;
    let to = far.url("/there");
    let near = Server::start(move |request| {
        let to = if request.target == "/a" { "b" } else { to.as_str() };
        Reply::plain(302, &[("location", to)], b"elsewhere")
    })
    .await;
    let (_folder, target) = target();
    let mut client =
        builder().header("Authorization: secret").header("X-Other: yes").build().unwrap();
    let result = get(&mut client, &Job::new(&near.url("/a"), &target).unwrap()).await;
    result.report();
    assert_complete(&target, &content);
    assert!(
        near.requests().iter().all(|request| request.header("authorization") == Some("secret"))
    );
    // Each path follows the redirect itself.
    assert_eq!(near.requests().len(), 4);
    assert!(!far.requests().is_empty());
    for request in far.requests() {
        assert_eq!(
            (request.header("authorization"), request.header("x-other")),
            (None, Some("yes"))
        );
    }
}
