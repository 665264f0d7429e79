//! Redirect targets that expire, and servers that ask for a wait.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

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
    // No other test listens on this address, so none gets the port.
    let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
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

#[tokio::test]
async fn a_server_that_asks_for_a_wait_is_asked_again() {
    for status in [429, 503] {
        let server = Server::start(move |request| match request.index {
            0 => Reply::plain(status, &[("retry-after", "0")], b"busy"),
            _ => correct_reply(request, b"abc", ETAG),
        })
        .await;
        let (_folder, target) = target();
        let mut client = Client::builder().config(quick()).paths([path(1)]).build().unwrap();
        let result = get(&mut client, &Job::new(&server.url("/x"), &target).unwrap()).await;
        assert_eq!(result.report().retries, 1);
        assert_complete(&target, b"abc");
    }
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_named_with_a_hint() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    for retry_after in [
        "3600",
        "Sun, 06 Nov 1994 09:49:37 GMT",
        "Sunday, 06-Nov-94 09:49:37 GMT",
        "Sun Nov  6 09:49:37 1994",
    ] {
        let headers = [date, ("retry-after", retry_after)];
        let server = Server::start(move |_| Reply::plain(429, &headers, b"busy")).await;
        let (_folder, target) = target();
        let mut client = builder().build().unwrap();
        let result = get(&mut client, &Job::new(&server.url("/x"), &target).unwrap()).await;
        let error = result.outcome.unwrap_err();
        let words = "the server answered 429 Too Many Requests and asks to wait for 3600 s, \
                     longer than retries may take";
        assert_eq!(error.to_string(), words, "{retry_after}");
        let hint = "try again later, or wait with --retry-max-time 3600";
        assert_eq!(error.hint().as_deref(), Some(hint));
        assert_eq!(server.requests().len(), 2, "each network asks once");
    }
}

#[tokio::test]
async fn a_port_that_is_refused_is_tried_once() {
    // It does not listen, and no other test gets its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (_folder, target) = target();
    let url = format!("http://{}/x", socket.local_addr().unwrap());
    let job = Job::new(&url, &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    let error = result.outcome.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert!(error.hint().unwrap().contains("--retry"), "{:?}", error.hint());
    assert_eq!(error.report.retries, 0);
}

/// Only a connection that has answered may have been idle for too long.
#[tokio::test]
async fn a_new_connection_that_closes_is_no_idle_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if stream.read_u8().await.is_ok() {
                *counted.lock().unwrap() += 1;
            }
        }
    });
    let (_folder, target) = target();
    let config = Config { max_attempts: 2, ..quick() };
    let mut client = Client::builder().config(config).paths([path(1)]).build().unwrap();
    assert!(get(&mut client, &Job::new(&url, &target).unwrap()).await.outcome.is_err());
    assert_eq!(*requests.lock().unwrap(), 2);
}
