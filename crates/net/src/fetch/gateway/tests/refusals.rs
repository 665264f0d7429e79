//! Requests that are refused, and pages.

use super::super::super::tests::server::{AfterBody, BeforeHead};
use super::super::GatewayError;
use super::*;

fn film(_: &ReceivedRequest) -> Reply {
    Reply::plain(200, &[("etag", ETAG)], b"film")
}

#[tokio::test]
async fn only_a_loopback_address_is_listened_at() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let origin = Location::parse("http://127.0.0.1:1/").unwrap();
        let options = Options::new(address.parse().unwrap(), origin);
        let error = Gateway::bind(options, |builder| builder, |_| {}).await.unwrap_err();
        assert!(matches!(error, GatewayError::NotLoopback(_)), "{error}");
    }
}

#[tokio::test]
async fn without_the_token_there_is_nothing() {
    let gateway = Running::start(film).await;
    let mut player = gateway.player().await;
    let wrong = gateway.root.replacen(|c: char| c.is_ascii_hexdigit(), "x", 1);
    let out = format!("{}../a.mp4", gateway.root);
    for target in ["/", "/a.mp4", "/films/a.mp4", &wrong, "/_o/http/127.0.0.1:1/", &out] {
        for method in ["GET", "OPTIONS", "POST"] {
            player.send(method, target, &[("origin", "http://evil.example")]).await;
            let answer = player.answer(true).await;
            assert_eq!(answer.status, 404, "{method} {target}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    assert!(gateway.server.requests().is_empty());
}

#[tokio::test]
async fn another_name_of_this_host_is_not_answered() {
    let gateway = Running::start(film).await;
    let target = format!("{}a.mp4", gateway.root);
    let port = gateway.address.port();
    for (host, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("LocalHost:{port}"), 200),
        (format!("evil.example:{port}"), 421),
        ("evil.example".to_owned(), 421),
        (format!("127.0.0.1:{}", port ^ 1), 421),
        ("127.0.0.1".to_owned(), 421),
        (format!("127.0.0.2:{port}"), 421),
        (format!("127.0.0.1.evil.example:{port}"), 421),
        (String::new(), 421),
    ] {
        let answer = gateway.player().await.get(&target, &[("host", &host)]).await;
        assert_eq!(answer.status, status, "{host}");
    }
    let own = format!("127.0.0.1:{port}");
    let two = [("host", own.as_str()), ("host", "evil.example")];
    assert_eq!(gateway.player().await.get(&target, &two).await.status, 400);
    // The absolute form.
    let absolute = format!("http://evil.example:{port}{target}");
    assert_ne!(gateway.player().await.get(&absolute, &[]).await.status, 200);
    let absolute = format!("http://{own}{target}");
    assert_eq!(gateway.player().await.get(&absolute, &[]).await.status, 200);
}

#[tokio::test]
async fn only_get_and_head_are_answered() {
    let gateway = Running::start(film).await;
    for method in ["POST", "PUT", "DELETE", "TRACE"] {
        let mut player = gateway.player().await;
        player.send(method, &format!("{}a.mp4", gateway.root), &[]).await;
        let answer = player.answer(true).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    assert!(gateway.server.requests().is_empty());
}

#[tokio::test]
async fn pages_read_only_if_their_origin_is_permitted() {
    let page = || AllowedOrigin::parse("https://Player.example/").unwrap();
    for (allowed, origin, expected) in [
        (vec![], "https://player.example", None),
        (vec![page()], "https://player.example", Some("https://player.example")),
        (vec![page()], "http://player.example", None),
        (vec![page()], "https://player.example.evil.example", None),
        (vec![page()], "null", None),
        (vec![page(), AllowedOrigin::Any], "https://other.example", Some("*")),
    ] {
        let setup = Setup { allowed, ..Setup::default() };
        let gateway = Running::with(setup, "/", film).await;
        let mut player = gateway.player().await;
        let target = format!("{}a.mp4", gateway.root);
        let answer = player.get(&target, &[("origin", origin)]).await;
        assert_eq!(answer.header("access-control-allow-origin"), expected, "{origin}");
        let exposed = answer.header("access-control-expose-headers");
        assert_eq!(
            exposed.is_some_and(|names| names.contains("Content-Range")),
            expected.is_some()
        );
        let asks = [
            ("origin", origin),
            ("access-control-request-method", "GET"),
            ("access-control-request-headers", "range"),
        ];
        player.send("OPTIONS", &target, &asks).await;
        let answer = player.answer(true).await;
        assert_eq!(answer.header("access-control-allow-origin"), expected);
        assert_eq!(answer.header("access-control-allow-methods").is_some(), expected.is_some());
        // An error of the server can be read too.
        let answer = player.get(&target.replace("a.mp4", "../_o/x"), &[("origin", origin)]).await;
        assert!(answer.header("vary").is_none_or(|names| names.contains("Origin")));
    }
}

#[tokio::test]
async fn a_refusal_of_the_server_reaches_the_player() {
    let gateway = Running::start(|request| match request.target.as_str() {
        "/films/gone" => Reply::plain(404, &[], b"a long page"),
        "/films/secret" => Reply::plain(403, &[], b""),
        _ => Reply::plain(304, &[], b""),
    })
    .await;
    let mut player = gateway.player().await;
    for (name, status, words) in [
        ("gone", 404, "the server answered 404 Not Found\n"),
        ("secret", 403, "the server answered 403 Forbidden\n"),
        ("strange", 502, "the server answered 304 Not Modified\n"),
    ] {
        let answer = player.get(&format!("{}{name}", gateway.root), &[]).await;
        assert_eq!((answer.status, answer.text()), (status, words));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let answer = player.head(&format!("{}{name}", gateway.root)).await;
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn without_a_server_there_is_a_sentence() {
    let gateway = Running::start(|_| {
        let mut reply = Reply::plain(200, &[], b"film");
        (reply.sent_length, reply.after_body) = (0, AfterBody::Close);
        reply.before_head = BeforeHead::Nothing;
        reply
    })
    .await;
    let answer = gateway.player().await.get(&format!("{}a.mp4", gateway.root), &[]).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().ends_with('\n') && answer.text().len() > 20, "{}", answer.text());
}

#[tokio::test]
async fn a_redirect_into_a_private_network_is_refused() {
    let private = Server::start(film).await;
    let to = private.url("/secret");
    let gateway = Running::start(move |request| match request.target.as_str() {
        "/films/near" => Reply::plain(302, &[("location", "/films/a.mp4")], b""),
        "/films/file" => Reply::plain(302, &[("location", "file:///etc/passwd")], b""),
        "/films/a.mp4" => film(request),
        _ => Reply::plain(302, &[("location", to.as_str())], b""),
    })
    .await;
    let mut player = gateway.player().await;
    let answer = player.get(&format!("{}near", gateway.root), &[]).await;
    assert_eq!((answer.status, answer.text()), (200, "film"));
    let answer = player.get(&format!("{}far", gateway.root), &[]).await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("not permitted"), "{}", answer.text());
    let answer = player.get(&format!("{}file", gateway.root), &[]).await;
    assert_eq!(answer.status, 502);
    assert!(private.requests().is_empty());
}

#[tokio::test]
async fn credentials_go_to_the_origin_only_and_other_servers_must_be_known() {
    let setup = Setup { headers: vec!["Authorization: secret"], ..Setup::default() };
    let gateway = Running::with(setup, "/", film).await;
    let mut player = gateway.player().await;
    let port = gateway.server.address.port();
    let full = format!("{}_o/http/127.0.0.1:{port}/a.mp4", gateway.root);
    assert_eq!(player.get(&full, &[]).await.status, 200);
    assert_eq!(gateway.server.requests()[0].header("authorization"), Some("secret"));
    for other in ["http/127.0.0.1:1/x", "http/example.org:80/x", "https/127.0.0.1:443/x"] {
        let answer = player.get(&format!("{}_o/{other}", gateway.root), &[]).await;
        assert_eq!(answer.status, 403, "{other}");
    }
}
