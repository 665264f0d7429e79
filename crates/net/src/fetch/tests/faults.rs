//! Failures of servers and networks lead to a clear message, and never to a wrong file.

use std::collections::HashMap;
use std::sync::Arc;

use super::server::{AfterBody, Reply, Server, certificate, correct_reply, self_signed, trust_in};
use super::*;

#[tokio::test]
async fn a_wrong_status() {
    for (status, words) in [
        (404, "404 Not Found"),
        (503, "503"),
        (202, "202 Accepted: the object does not exist yet"),
        (204, "204 No Content: there is no object at this URL"),
        (207, "207 Multi-Status, which does not deliver the object"),
        (206, "a part of the object although all was asked for"),
    ] {
        let server = Server::start(move |_| Reply::plain(status, &[], b"no")).await;
        let (_folder, target) = target();
        let job = Job::new(&server.url("/x"), &target).unwrap();
        let result = get(&mut builder().build().unwrap(), &job).await;
        assert!(result.error().contains(words), "{}", result.error());
        assert_no_files(&target);
    }
}

#[tokio::test]
async fn a_status_with_the_meaning_of_200() {
    for status in [203, 299] {
        let server = Server::start(move |_| Reply::plain(status, &[], b"abc")).await;
        let (_folder, target) = target();
        let job = Job::new(&server.url("/x"), &target).unwrap();
        get(&mut builder().build().unwrap(), &job).await.report();
        assert_complete(&target, b"abc");
    }
}

#[tokio::test]
async fn a_later_path_that_may_not() {
    let (result, _folder, target, object) =
        second_path(|_, reply| *reply = Reply::plain(403, &[], b"no")).await;
    result.report();
    result.notes(&["two is no longer used: the server answered with status 403"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn a_wrong_content_range() {
    let (result, _folder, target, object) = second_path(|_, reply| {
        let length = reply.body.len();
        reply.set("content-range", &format!("bytes 0-{}/1000000", length - 1));
    })
    .await;
    result.report();
    result.notes(&["another part of the object than was asked for"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn a_missing_or_unreadable_content_range() {
    let (result, _folder, target, object) =
        second_path(|_, reply| reply.remove("content-range")).await;
    result.report();
    result.notes(&["without Content-Range"]);
    assert_complete(&target, &object);
    let (result, _folder, target, object) =
        second_path(|_, reply| reply.set("content-range", "bytes 5-4/x")).await;
    result.report();
    result.notes(&["another part of the object than was asked for"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn the_whole_object_instead_of_a_range() {
    let (result, _folder, target, object) = second_path(|request, reply| {
        let whole = object(1_000_000);
        *reply = correct_reply(&ReceivedRequest { range: None, ..request.clone() }, &whole, ETAG);
    })
    .await;
    result.report();
    result.notes(&["does not answer range requests"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn another_version_on_one_path() {
    let (result, _folder, target, object) = second_path(|request, reply| {
        *reply = correct_reply(request, &[7; 1_000_000], "\"two\"");
    })
    .await;
    result.report();
    result.notes(&["two is no longer used: the server has another version"]);
    assert_complete(&target, &object);
    // A server that ignores If-Range.
    let (result, _folder, target, object) =
        second_path(|_, reply| reply.set("etag", "\"two\"")).await;
    result.report();
    result.notes(&["two is no longer used: the server has another version"]);
    assert_complete(&target, &object);
}

#[tokio::test]
async fn an_object_that_changes_under_way() {
    let old = object(1_000_000);
    let server = Server::start(move |request| {
        if request.range.is_none() {
            let mut reply = correct_reply(request, &old, ETAG);
            (reply.sent_length, reply.after_body) = (300_000, AfterBody::Close);
            return reply;
        }
        correct_reply(request, &[7; 1_000_000], "\"two\"")
    })
    .await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    assert!(result.error().contains("has changed on the server"), "{}", result.error());
    assert!(!target.exists());
}

#[tokio::test]
async fn bodies_that_break_off() {
    for then in [AfterBody::Close, AfterBody::Reset] {
        let content = object(1_000_000);
        let script = gated_server(&content, 2);
        let server = Server::start(move |request| {
            let mut reply = script(request);
            if request.index == 0 {
                (reply.sent_length, reply.after_body) = (reply.body.len() / 2, then);
            }
            reply
        })
        .await;
        let (_folder, target) = target();
        let job = Job::new(&server.url("/x"), &target).unwrap();
        let result = get(&mut builder().build().unwrap(), &job).await;
        result.report();
        result.notes(&[]);
        assert_complete(&target, &content);
    }
}

#[tokio::test]
async fn no_ranges_no_validator_no_length() {
    for (change, words) in [
        ((|r| r.set("accept-ranges", "none")) as fn(&mut Reply), "range requests"),
        (|r| r.remove("etag"), "neither a strong ETag"),
        (|r| r.set("etag", "W/\"weak\""), "neither a strong ETag"),
        (|r| r.set("content-encoding", "br"), "Content-Encoding"),
        (
            |r| {
                r.remove("content-length");
                r.after_body = AfterBody::Close;
            },
            "does not tell the length",
        ),
    ] {
        let content = object(300_000);
        let served = content.clone();
        let server = Server::start(move |request| {
            let mut reply = correct_reply(request, &served, ETAG);
            change(&mut reply);
            reply
        })
        .await;
        let (_folder, target) = target();
        let job = Job::new(&server.url("/x"), &target).unwrap();
        let result = get(&mut builder().build().unwrap(), &job).await;
        result.report();
        result.notes(&[words]);
        assert_complete(&target, &content);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_path_that_stalls() {
    let (result, _folder, target, object) = second_path(|_, reply| {
        (reply.sent_length, reply.after_body) = (1_000, AfterBody::Stall);
    })
    .await;
    result.report();
    assert_complete(&target, &object);
}

#[tokio::test]
async fn the_first_path_stalls() {
    let content = object(1_000_000);
    let served = content.clone();
    let server = Server::start(move |request| {
        let mut reply = correct_reply(request, &served, ETAG);
        if request.from == address(1) {
            (reply.sent_length, reply.after_body) = (1_000.min(reply.body.len()), AfterBody::Stall);
        }
        reply
    })
    .await;
    let (_folder, target) = target();
    let job = Job::new(&server.url("/x"), &target).unwrap();
    let result = get(&mut builder().build().unwrap(), &job).await;
    result.report();
    assert_complete(&target, &content);
}

#[tokio::test]
async fn a_name_or_a_port_that_one_path_does_not_reach() {
    let content = object(1_000_000);
    let served = content.clone();
    let server = Server::start(move |request| correct_reply(request, &served, ETAG)).await;
    let names = |to: &[IpAddr]| HashMap::from([("a.test".to_owned(), to.to_vec())]);
    let nobody: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for (broken, words) in
        [(nobody, "does not exist"), (names(&[address(9)]), "connection refused")]
    {
        let paths = [
            PathSpec { resolver: Arc::new(broken), ..path(1) },
            PathSpec { resolver: Arc::new(names(&[address(9), address(1)])), ..path(2) },
        ];
        let (_folder, target) = target();
        let url = format!("http://a.test:{}/x", server.address.port());
        let config = Config { max_attempts: 1, ..quick() };
        let mut client = Client::builder().config(config).paths(paths.clone()).build().unwrap();
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        result.report();
        result.notes(&[words]);
        assert_complete(&target, &content);
        // With one path it is an error that names the network and the fault.
        let mut client =
            Client::builder().config(quick()).paths([paths[0].clone()]).build().unwrap();
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        assert!(
            result.error().contains("one: ") && result.error().contains(words),
            "{}",
            result.error()
        );
    }
}

#[tokio::test]
async fn a_certificate_that_is_wrong_on_one_path() {
    let content = object(1_000_000);
    let script = gated_server(&content, 1);
    let (pem, right) = certificate(&["a.test"], true);
    let good_server = Server::start_at("127.0.0.1:0", Some(right), {
        let served = content.clone();
        move |request| correct_reply(request, &served, ETAG)
    })
    .await;
    let port = good_server.address.port();
    let (_, wrong) = certificate(&["a.test"], true);
    Server::start_at(&format!("127.0.0.2:{port}"), Some(wrong), script).await;
    let (_authority, trust) = trust_in(pem);
    let (_folder, target) = target();
    let reach =
        |server: u8| Arc::new(HashMap::from([("a.test".to_owned(), vec![address(server)])]));
    // The preferred path fails.
    let paths =
        [PathSpec { resolver: reach(2), ..path(2) }, PathSpec { resolver: reach(1), ..path(1) }];
    let client = Client::builder().config(quick()).trust(trust);
    let mut client = client.paths(paths).build().unwrap();
    let url = format!("https://a.test:{port}/x");
    let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
    result.report();
    result.notes(&["two is no longer used: the certificate of 127.0.0.2"]);
    assert_complete(&target, &content);
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority() {
    let address = "127.0.0.1";
    for (names, from, to, trusted, words) in [
        (address, 2000, 4000, true, None),
        (address, 2000, 4000, false, Some("self-signed, and this host does not")),
        ("a.test", 2000, 4000, true, Some("it is for another name")),
        (address, 2000, 2001, true, Some("it has expired")),
        (address, 3999, 4000, true, Some("it is not valid yet")),
    ] {
        let (own, tls) = self_signed(&[names], from, to);
        let (other, _) = self_signed(&[names], from, to);
        let server = Server::start_at("127.0.0.1:0", Some(tls), |request| {
            correct_reply(request, b"abc", ETAG)
        })
        .await;
        let (_authority, trust) = trust_in(if trusted { own } else { other });
        let (_folder, target) = target();
        let client = Client::builder().config(quick()).paths([path(1)]);
        let mut client = client.trust(trust).build().unwrap();
        let url = format!("https://{}/x", server.address);
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        match words {
            None => assert_complete(&target, b"abc"),
            Some(words) => assert!(result.error().contains(words), "{}", result.error()),
        }
    }
}

#[tokio::test]
async fn http2_streams_and_connections_that_end_early() {
    for then in [AfterBody::Reset, AfterBody::GoAway] {
        let content = object(1_000_000);
        let served = content.clone();
        let (pem, tls) = certificate(&["127.0.0.1"], true);
        let server = Server::start_at("127.0.0.1:0", Some(tls), move |request| {
            let mut reply = correct_reply(request, &served, ETAG);
            if request.index == 0 {
                (reply.sent_length, reply.after_body) = (reply.body.len() / 2, then);
            }
            reply
        })
        .await;
        let (_authority, trust) = trust_in(pem);
        let (_folder, target) = target();
        let mut client = builder().trust(trust).build().unwrap();
        let url = format!("https://{}/x", server.address);
        let result = get(&mut client, &Job::new(&url, &target).unwrap()).await;
        result.report();
        result.notes(&[]);
        assert_complete(&target, &content);
    }
}

#[tokio::test]
async fn redirects_that_lead_nowhere() {
    for (to, words) in [("/x", "more than 10 times"), ("ftp://a.test/", "unusable address")] {
        let server = Server::start(move |_| Reply::plain(302, &[("location", to)], b"")).await;
        let (_folder, target) = target();
        let job = Job::new(&server.url("/x"), &target).unwrap();
        let result = get(&mut builder().build().unwrap(), &job).await;
        assert!(result.error().contains(words), "{}", result.error());
        assert_no_files(&target);
    }
}

#[tokio::test]
async fn what_is_not_http() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"220 mail.test ESMTP\r\n").await;
        }
    });
    let (_folder, target) = target();
    let result = get(&mut builder().build().unwrap(), &Job::new(&url, &target).unwrap()).await;
    assert!(result.error().starts_with("every network failed"), "{}", result.error());
    assert_no_files(&target);
}
