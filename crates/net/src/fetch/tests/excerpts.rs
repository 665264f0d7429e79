//! Parts of objects, their response heads, and addresses that are not permitted.

use std::sync::{Arc, Mutex};

use manyways_proto::fetch::{Excerpt, FetchFailure, PathErrorKind};

use super::*;
use crate::fetch::{Cause, ResponseHead};

/// The outcome of a stream, its bytes, and the last head that described the object.
async fn read(
    client: &mut Client,
    job: &Job,
) -> (Result<Report, FetchError>, Vec<u8>, Option<ResponseHead>) {
    let mut described = None;
    let mut listen = |event: Event<'_>| {
        if let Event::Response(head) = event
            && head.is_description
        {
            described = Some(head.clone());
        }
    };
    let (mut body, transfer) = client.stream(job, &mut listen, pending());
    let read = async {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece);
        }
        bytes
    };
    let (outcome, bytes) = tokio::join!(transfer, read);
    (outcome, bytes, described)
}

#[tokio::test]
async fn both_paths_share_a_part_and_its_head_is_reported() {
    let object = object(3_000_000);
    let server = Server::start(gated_server(&object, 1)).await;
    let mut client = builder().build().unwrap();
    let excerpt = Excerpt { start: 500_000, end: Some(2_500_000) };
    let job = Job::new(&server.url("/film"), "").unwrap().excerpt(Some(excerpt));
    let (outcome, bytes, head) = read(&mut client, &job).await;
    let report = outcome.unwrap();
    assert!(bytes == object[500_000..2_500_000], "{} bytes", bytes.len());
    assert!(report.paths.iter().all(|path| !path.bytes.is_zero()), "{report:?}");
    let head = head.unwrap();
    assert_eq!((head.status, head.total), (206, Some(3_000_000)));
    assert_eq!(head.headers["etag"], ETAG);
    assert_eq!(head.location.to_string(), server.url("/film"));
    assert!(server.requests().iter().all(|request| request.range.is_some()));
}

#[tokio::test]
async fn a_server_without_ranges_delivers_no_byte_of_a_part() {
    let object = object(300_000);
    let server = Server::start(move |_| Reply::plain(200, &[("etag", ETAG)], &object)).await;
    let mut client = builder().build().unwrap();
    let job = Job::new(&server.url("/film"), "").unwrap();
    let job = job.excerpt(Some(Excerpt { start: 10, end: None }));
    let (outcome, bytes, _) = read(&mut client, &job).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.cause, Cause::Refused(FetchFailure::RangesIgnored, _)), "{error}");
    assert!(bytes.is_empty());
}

/// The digest is that of the whole object.
#[tokio::test]
async fn an_announced_digest_is_not_that_of_a_part() {
    let object = object(300_000);
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &object, ETAG);
        reply.set("repr-digest", "sha-256=:4REjxQ4yrqUVicfSKYNO/cF9zNj5ANbzgDZt3/h3Qxo=:");
        reply
    })
    .await;
    let mut client = builder().build().unwrap();
    let job = Job::new(&server.url("/film"), "").unwrap();
    let job = job.excerpt(Some(Excerpt { start: 0, end: Some(300_000) }));
    let (outcome, bytes, _) = read(&mut client, &job).await;
    assert_eq!((outcome.unwrap().bytes, bytes.len()), (Size::from_bytes(300_000), 300_000));
}

#[tokio::test]
async fn an_address_that_is_not_permitted_gets_no_connection_also_after_a_redirect() {
    let target = Server::start(|_| Reply::plain(200, &[], b"secret")).await;
    let location = target.url("/secret");
    let server =
        Server::start(move |_| Reply::plain(302, &[("location", location.as_str())], b"")).await;
    let (asked, port) = (Arc::new(Mutex::new(Vec::new())), server.address.port());
    let mut client = builder()
        .address_filter({
            let asked = Arc::clone(&asked);
            move |origin, address| {
                asked.lock().unwrap().push((origin.port, address));
                origin.port == port
            }
        })
        .build()
        .unwrap();
    let job = Job::new(&server.url("/film"), "").unwrap();
    let (outcome, bytes, _) = read(&mut client, &job).await;
    let Cause::Refused(FetchFailure::NoPathLeft(faults), _) = outcome.unwrap_err().cause else {
        panic!("another cause")
    };
    assert!(faults.iter().all(|(_, fault)| fault.kind == PathErrorKind::Forbidden), "{faults:?}");
    assert!(faults[0].1.message.contains("not permitted"), "{faults:?}");
    assert!(bytes.is_empty() && target.requests().is_empty());
    assert!(asked.lock().unwrap().contains(&(target.address.port(), target.address.ip())));
}

#[tokio::test]
async fn a_foreign_job_gets_no_credentials() {
    let server = Server::start(|request| correct_reply(request, b"film", ETAG)).await;
    let mut client = builder().header("Cookie: secret").build().unwrap();
    for is_foreign in [false, true] {
        let job = Job::new(&server.url("/film"), "").unwrap().foreign(is_foreign);
        read(&mut client, &job).await.0.unwrap();
    }
    let cookies: Vec<_> =
        server.requests().iter().map(|request| request.header("cookie").is_some()).collect();
    assert_eq!(cookies, [true, false]);
}

#[tokio::test]
async fn estimates_of_the_caller_replace_those_of_the_paths() {
    use manyways_proto::estimate::PathEstimate;
    let mut client = builder().build().unwrap();
    let known = PathEstimate { rate: manyways_unit::Rate::from_mbps(3), rtt: Span::from_millis(9) };
    client.set_estimates(|name| (name == "two").then_some(known));
    let estimates: Vec<_> = client.paths.iter().map(|path| path.estimate).collect();
    assert_eq!(estimates, [None, Some(known)]);
}
