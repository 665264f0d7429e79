//! HTTP/2 errors that ask for something other than repetition.

use h2::Reason;

use super::server::{BeforeHead, certificate, trust_in};
use super::*;
use crate::fetch::{Protocol, Trust};

/// One failure would end a path.
fn strict() -> Config {
    Config { max_attempts: 1, ..Config::default() }
}

/// Starts a server with HTTP/2 and HTTP/1.1. Returns it, the trust in it, and the folder of that.
async fn server(
    script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
) -> (Server, Trust, TempDir) {
    let (pem, tls) = certificate(&["127.0.0.1"], true);
    let mut tls = rustls::ServerConfig::clone(&tls);
    tls.alpn_protocols.push(b"http/1.1".to_vec());
    let server = Server::start_at("127.0.0.1:0", Some(Arc::new(tls)), script).await;
    let (folder, trust) = trust_in(pem);
    (server, trust, folder)
}

/// HTTP/2 has `:authority` in its place.
fn is_http1(request: &ReceivedRequest) -> bool {
    request.header("host").is_some()
}

#[tokio::test]
async fn a_server_that_refuses_http2_is_asked_over_http1() {
    for before_head in [
        BeforeHead::Reset(Reason::HTTP_1_1_REQUIRED),
        BeforeHead::GoAway(Reason::HTTP_1_1_REQUIRED),
        BeforeHead::Reset(Reason::INADEQUATE_SECURITY),
    ] {
        let content = object(1_000_000);
        let served = content.clone();
        let gate = Arc::new(Semaphore::new(0));
        let (server, trust, _authority) = server(move |request| {
            let mut reply = correct_reply(request, &served, ETAG);
            if !is_http1(request) {
                reply.before_head = before_head;
            } else if request.range.is_some() {
                gate.add_permits(1);
            } else {
                // Until the other path has sent its request.
                reply.gate = Some((100_000, Arc::clone(&gate)));
            }
            reply
        })
        .await;
        let client = Client::builder().config(strict()).paths([path(1), path(2)]);
        let mut client = client.trust(trust).build().unwrap();
        let url = format!("https://{}/x", server.address);
        // The second transfer knows it already.
        for refused in [1, 0] {
            let before = server.requests().len();
            let (_folder, target) = target();
            let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
            result.notes(&[]);
            for path in &result.report().paths {
                assert_ne!(path.protocol, Some(Protocol::Http2), "{before_head:?}");
            }
            assert_complete(&target, &content);
            for from in [1, 2].map(address) {
                let requests = &server.requests()[before..];
                let own = requests.iter().filter(|request| request.from == from);
                let http2 = own.filter(|request| !is_http1(request)).count();
                assert!(http2 <= refused, "{before_head:?}: {http2} refused from {from}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_was_not_processed_is_repeated_at_once() {
    for (refusals, words) in [(3, None), (usize::MAX, Some("REFUSED_STREAM"))] {
        let content = object(100_000);
        let served = content.clone();
        let (server, trust, _authority) = server(move |request| {
            let mut reply = correct_reply(request, &served, ETAG);
            if request.index < refusals {
                reply.before_head = BeforeHead::Reset(Reason::REFUSED_STREAM);
            }
            reply
        })
        .await;
        let client = Client::builder().config(strict()).paths([path(1)]);
        let mut client = client.trust(trust).build().unwrap();
        let (_folder, target) = target();
        let url = format!("https://{}/x", server.address);
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        match words {
            None => assert_complete(&target, &content),
            Some(words) => assert!(result.error().contains(words), "{}", result.error()),
        }
        assert_eq!(server.requests().len(), 4);
    }
}
