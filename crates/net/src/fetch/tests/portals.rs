//! Networks with a captive portal, which answers in place of the server.

use sha2::Digest;

use super::server::{Reply, Server, correct_reply, trust_in};
use super::*;
use crate::fetch::{Checksum, Trust};

const PAGE: &[u8] = b"<html>Please accept our terms</html>\n";

fn page(status: u16) -> Reply {
    let mut reply = Reply::plain(status, &[("content-type", "Text/HTML; charset=utf-8")], PAGE);
    reply.headers.push(("cache-control".to_owned(), "private".to_owned()));
    reply.headers.push(("cache-control".to_owned(), "max-age=0, No-Store".to_owned()));
    reply
}

fn redirect(request: &ReceivedRequest, host: &str) -> Reply {
    let (_, port) = request.header("host").unwrap().split_once(':').unwrap();
    Reply::plain(302, &[("location", &format!("http://{host}:{port}/login"))], b"")
}

/// Two paths that resolve three names.
fn paths() -> [PathSpec; 2] {
    let names = ["files.test", "cdn.test", "portal.test"];
    let names = HashMap::from(names.map(|name| (name.to_owned(), vec![address(1)])));
    let names = Arc::new(names);
    [1, 2].map(|n| PathSpec { resolver: names.clone(), ..path(n) })
}

/// A busy machine may answer late.
fn patient() -> ClientBuilder {
    let config = Config { stall_timeout: Span::from_secs(60), ..Config::default() };
    Client::builder().config(config).paths(paths())
}

fn client() -> Client {
    patient().build().unwrap()
}

/// A server that is behind a portal for path 1.
async fn behind_portal(
    object: &[u8],
    portal: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
) -> (Server, String) {
    let object = object.to_vec();
    let server = Server::start(move |request| {
        if request.from == address(1) {
            portal(request)
        } else {
            correct_reply(request, &object, ETAG)
        }
    })
    .await;
    let url = format!("http://files.test:{}/x", server.address.port());
    (server, url)
}

#[tokio::test]
async fn a_login_page_is_not_the_file() {
    let content = object(300_000);
    for (portal, words) in [
        ((|_| page(200)) as fn(&ReceivedRequest) -> Reply, "its answer looks like a login page"),
        (|_| page(511), "the network requires a login"),
        (
            |request| match request.target.as_str() {
                "/x" => redirect(request, "portal.test"),
                _ => page(200),
            },
            "its answer, from portal.test, looks like a login page",
        ),
        (
            |request| match request.target.as_str() {
                "/x" => redirect(request, "portal.test"),
                _ => correct_reply(request, PAGE, "\"page\""),
            },
            "its answer, from portal.test, looks like a login page",
        ),
    ] {
        let (_server, url) = behind_portal(&content, portal).await;
        let (_folder, target) = target();
        let result = get(&mut client(), &Job::new(&url, &target).unwrap()).await;
        result.report();
        result.notes(&[words]);
        assert_complete(&target, &content);
    }
}

#[tokio::test]
async fn a_login_page_is_not_streamed() {
    let content = object(300_000);
    let served = content.clone();
    let server = Server::start(move |request| match request.target.as_str() {
        _ if request.from == address(1) => page(200),
        // The page arrives earlier than the answer over the second path.
        "/x" => Reply::plain(302, &[("location", "/there")], b""),
        _ => correct_reply(request, &served, ETAG),
    })
    .await;
    let url = format!("http://files.test:{}/x", server.address.port());
    let (mut client, job) = (client(), Job::new(&url, "").unwrap());
    let mut ignore = |_: Event<'_>| {};
    let (mut body, transfer) = client.stream(&job, &mut ignore, pending());
    let read = async {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece);
        }
        bytes
    };
    let (report, bytes) = tokio::join!(transfer, read);
    report.unwrap();
    assert!(bytes == content);
}

#[tokio::test]
async fn networks_that_disagree_are_named() {
    let content = object(300_000);
    let server = Server::start(move |request| match request.target.as_str() {
        _ if request.from == address(1) => page(200),
        "/x" => redirect(request, "cdn.test"),
        _ => correct_reply(request, &content, ETAG),
    })
    .await;
    let (_folder, target) = target();
    let url = format!("http://files.test:{}/x", server.address.port());
    let result = get(&mut client(), &Job::new(&url, &target).unwrap()).await;
    let words =
        "the networks disagree about the object (one: 37 bytes; two: 300000 bytes from cdn.test)";
    assert_eq!(result.error(), words);
    let hint = result.outcome.unwrap_err().hint().unwrap();
    assert!(hint.contains("--via") && hint.contains("--size"), "{hint}");
    assert_no_files(&target);
}

#[tokio::test]
async fn a_login_is_required_on_the_only_network() {
    let (_server, url) = behind_portal(b"", |_| page(511)).await;
    let (_folder, target) = target();
    let job = Job::new(&url.replace("files.test", "127.0.0.1"), &target).unwrap();
    let mut client = Client::builder().paths([path(1)]).build().unwrap();
    let result = get(&mut client, &job).await;
    assert!(result.error().starts_with("the network requires a login (511"), "{}", result.error());
    assert_eq!(result.outcome.unwrap_err().hint().unwrap(), "log in to the network with a browser");
    assert_no_files(&target);
}

/// Nothing but the checksum shows that an ordinary file is not the object.
#[tokio::test]
async fn a_file_with_the_wrong_checksum_is_fetched_over_the_other_network() {
    let content = object(300_000);
    let (_folder, target) = target();
    let (_server, url) = behind_portal(&content, |_| Reply::plain(200, &[], PAGE)).await;
    let job = Job::new(&url, &target).unwrap();
    let job = job.checksum(Checksum::Check(sha2::Sha256::digest(&content).into()));
    let result = get(&mut client(), &job).await;
    assert_eq!(result.report().paths[1].bytes, Size::from_bytes(300_000));
    result.notes(&["neither a strong ETag", "the file has the wrong checksum"]);
    assert_complete(&target, &content);
}

#[tokio::test]
async fn a_server_that_proves_its_identity_is_believed() {
    let (pem, tls) = server::certificate(&["files.test"], false);
    let server = Server::start_at("127.0.0.1:0", Some(tls), |_| page(200)).await;
    let (_folder, target) = target();
    let (_authority, trust) = trust_in(pem);
    let url = format!("https://files.test:{}/x", server.address.port());
    for (trust, requests) in [(trust, 1), (Trust::AnyCertificate, 2)] {
        let before = server.requests().len();
        let mut client = patient().trust(trust).build().unwrap();
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        result.report();
        assert!(std::fs::read(&target).unwrap() == PAGE);
        assert_eq!(server.requests().len() - before, requests);
    }
}
