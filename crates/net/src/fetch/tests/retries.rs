//! Redirect targets that expire.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{AfterBody, Reply, Server, correct_reply};
use super::*;

/// Fetches an object of 1 MB whose URL redirects to a signed one. A signature is valid for `uses`
/// requests, and each response ends after 100 KB. Returns the number of refused requests.
async fn refusals_with_signatures(uses: usize) -> usize {
    let content = object(1_000_000);
    let served = content.clone();
    let used = Mutex::new(HashMap::new());
    let server = Server::start(move |request| {
        let mut used = used.lock().unwrap();
        if request.target == "/x" {
            let fresh = format!("/signed?{}", used.len());
            used.insert(fresh.clone(), 0);
            return Reply::plain(302, &[("location", &fresh)], b"elsewhere");
        }
        let count = used.get_mut(&request.target).unwrap();
        *count += 1;
        if *count > uses {
            return Reply::plain(403, &[], b"expired");
        }
        let mut reply = correct_reply(request, &served, ETAG);
        if reply.body.len() > 100_000 {
            (reply.sent_length, reply.after_body) = (100_000, AfterBody::Close);
        }
        reply
    })
    .await;
    let (_folder, target) = target();
    let mut client = Client::builder().config(quick()).paths([path(1)]).build().unwrap();
    let result = get(&mut client, &Job::new(&server.url("/x"), &target).unwrap()).await;
    result.report();
    result.notes(&[]);
    assert_complete(&target, &content);
    let mut uses_of = HashMap::new();
    for request in server.requests() {
        *uses_of.entry(request.target).or_insert(0) += 1;
    }
    uses_of.remove("/x");
    uses_of.values().filter(|count| **count > uses).count()
}

#[tokio::test]
async fn a_signed_target_that_expires_is_replaced_by_a_fresh_one() {
    // Ten responses and a check of the version.
    assert!(refusals_with_signatures(3).await >= 3);
}

#[tokio::test]
async fn a_target_for_one_request_costs_two_refusals_at_most() {
    assert_eq!(refusals_with_signatures(1).await, 2);
}

/// The given URL leads to another mirror then.
#[tokio::test]
async fn a_mirror_that_is_gone_is_replaced() {
    let content = object(1_000_000);
    let served = content.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dying = format!("http://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let head = format!("HTTP/1.1 200 OK\r\netag: {ETAG}\r\ncontent-length: 1000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&object(1_000_000)[..200_000]).await.unwrap();
    });
    let live = Server::start(move |request| correct_reply(request, &served, ETAG)).await;
    let live_url = live.url("/x");
    let near = Server::start(move |request| {
        let to = if request.index == 0 { &dying } else { &live_url };
        Reply::plain(302, &[("location", to)], b"")
    })
    .await;
    let (_folder, target) = target();
    let mut client = Client::builder().config(quick()).paths([path(1)]).build().unwrap();
    let result = get(&mut client, &Job::new(&near.url("/x"), &target).unwrap()).await;
    result.report();
    assert_complete(&target, &content);
    assert_eq!(live.requests()[0].range.unwrap().0, 200_000);
    // After the failures the new target is remembered.
    assert_eq!(near.requests().len(), 2);
}
