//! Objects and parts of them.

use bytes::Bytes;
use tokio::net::TcpStream;

use super::super::super::Scheduler;
use super::super::super::tests::server::{AfterBody, correct_reply};
use super::*;

#[tokio::test]
async fn an_object_comes_over_all_paths_and_the_connection_goes_on() {
    let film = object(1_000_000);
    let gateway = Running::start(shared_object(&film)).await;
    let mut player = gateway.player().await;
    let target = format!("{}a.mp4?key=b/c", gateway.root);
    for _ in 0..2 {
        let answer = player.get(&target, &[("accept-encoding", "gzip"), ("cookie", "mine")]).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == film);
        for (name, value) in [
            ("content-length", "1000000"),
            ("content-type", "video/mp4"),
            ("etag", ETAG),
            ("accept-ranges", "bytes"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let first = &gateway.ended(1).await[0];
    assert_eq!(first.paths.iter().sum::<u64>(), 1_000_000);
    assert!(first.paths.iter().all(|bytes| *bytes > 0), "{first:?}");
    for request in gateway.server.requests() {
        assert_eq!(request.target, "/films/a.mp4?key=b/c");
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("cookie"), None);
    }
}

#[tokio::test]
async fn a_part_is_fetched_alone_and_over_all_paths() {
    let film = object(1_000_000);
    let gateway = Running::start(shared_object(&film)).await;
    let mut player = gateway.player().await;
    let target = format!("{}a.mp4", gateway.root);
    for (range, part, content_range) in [
        ("bytes=100000-899999", 100_000..900_000, "bytes 100000-899999/1000000"),
        ("bytes=0-0", 0..1, "bytes 0-0/1000000"),
        ("bytes=999000-", 999_000..1_000_000, "bytes 999000-999999/1000000"),
        ("bytes=999000-2000000", 999_000..1_000_000, "bytes 999000-999999/1000000"),
        ("bytes=-5", 999_995..1_000_000, "bytes 999995-999999/1000000"),
        ("bytes=-5000000", 0..1_000_000, "bytes 0-999999/1000000"),
    ] {
        let answer = player.get(&target, &[("range", range)]).await;
        assert_eq!((answer.status, answer.header("content-range")), (206, Some(content_range)));
        assert!(answer.body == film[part], "{range}");
    }
    let requests = gateway.server.requests();
    for request in &requests[..2] {
        let (start, end) = request.range.expect("a request for the whole object");
        let is_inside = start >= 100_000 && end.is_some_and(|end| end <= 900_000);
        assert!(is_inside, "{:?}", requests.iter().map(|one| one.range).collect::<Vec<_>>());
    }
    assert!(gateway.ended(1).await[0].paths.iter().all(|bytes| *bytes > 0));

    let answer = player.get(&target, &[("range", "bytes=1000000-")]).await;
    assert_eq!((answer.status, answer.header("content-range")), (416, Some("bytes */1000000")));
    for ignored in ["bytes=0-1,5-9", "bytes=9-5", "lines=1-2"] {
        let answer = player.get(&target, &[("range", ignored)]).await;
        assert_eq!((answer.status, answer.body.len()), (200, 1_000_000), "{ignored}");
    }
}

#[tokio::test]
async fn a_version_that_the_player_has_is_not_sent_and_another_one_is_sent_whole() {
    let film = object(300_000);
    let gateway = Running::start(move |request| {
        let mut reply = correct_reply(request, &film, ETAG);
        reply.set("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        reply.set("date", "Sun, 06 Nov 1994 09:49:37 GMT");
        reply
    })
    .await;
    let mut player = gateway.player().await;
    let target = format!("{}a.mp4", gateway.root);
    for (name, value) in [
        ("if-none-match", "\"two\", W/\"one\""),
        ("if-none-match", "*"),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        let answer = player.get(&target, &[(name, value)]).await;
        assert_eq!((answer.status, answer.header("etag")), (304, Some(ETAG)), "{name}: {value}");
    }
    for (name, value) in [
        ("if-none-match", "\"two\""),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT"),
        ("if-modified-since", "yesterday"),
    ] {
        assert_eq!(player.get(&target, &[(name, value)]).await.status, 200, "{name}: {value}");
    }
    for (value, status, length) in [
        (ETAG, 206, 10),
        ("\"two\"", 200, 300_000),
        ("W/\"one\"", 200, 300_000),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 206, 10),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200, 300_000),
    ] {
        let headers = [("range", "bytes=0-9"), ("if-range", value)];
        let answer = player.get(&target, &headers).await;
        assert_eq!((answer.status, answer.body.len()), (status, length), "{value}");
    }
}

#[tokio::test]
async fn a_head_request_costs_one_byte() {
    for length in [300_000, 0] {
        let film = object(length);
        let gateway = Running::start(move |request| {
            let mut reply = correct_reply(request, &film, ETAG);
            if film.is_empty() && request.range.is_some() {
                reply = Reply::plain(416, &[("content-range", "bytes */0")], b"");
            }
            reply
        })
        .await;
        let mut player = gateway.player().await;
        let target = format!("{}a.mp4", gateway.root);
        let answer = player.head(&target).await;
        assert_eq!((answer.status, answer.header("etag")), (200, Some(ETAG)));
        assert_eq!(answer.header("content-length"), Some(length.to_string().as_str()));
        assert_eq!(gateway.server.requests()[0].range, Some((0, Some(1))));
        assert_eq!(player.get(&target, &[]).await.body.len(), length);
    }
}

#[tokio::test]
async fn a_server_that_ignores_ranges_sends_all() {
    let film = object(300_000);
    let script = {
        let film = film.clone();
        move |_: &ReceivedRequest| Reply::plain(200, &[("etag", ETAG)], &film)
    };
    let gateway = Running::start(script).await;
    let mut player = gateway.player().await;
    let target = format!("{}a.mp4", gateway.root);
    for range in ["bytes=5-9", "bytes=-9"] {
        let answer = player.get(&target, &[("range", range)]).await;
        assert_eq!((answer.status, answer.header("content-range")), (200, None));
        assert_eq!(answer.header("accept-ranges"), None);
        assert!(answer.body == film);
    }
    let answer = player.head(&target).await;
    assert_eq!(answer.header("content-length"), Some("300000"));
}

#[tokio::test]
async fn a_body_without_a_length_is_sent_in_chunks() {
    let film = object(300_000);
    let script = {
        let film = film.clone();
        move |request: &ReceivedRequest| {
            let mut reply = Reply::plain(200, &[], &film);
            reply.remove("content-length");
            reply.after_body = AfterBody::Close;
            if request.target.ends_with("broken") {
                (reply.sent_length, reply.after_body) = (200_000, AfterBody::Reset);
            }
            reply
        }
    };
    let gateway = Running::start(script).await;
    let answer = gateway.player().await.get(&format!("{}a.mp4", gateway.root), &[]).await;
    assert_eq!((answer.status, answer.header("content-length")), (200, None));
    assert!(answer.is_complete && answer.body == film);
    // Without the last chunk, the player knows that bytes are missing.
    let mut player = gateway.player().await;
    player.send("GET", &format!("{}broken", gateway.root), &[]).await;
    let answer = player.answer(true).await;
    assert!(answer.status != 200 || !answer.is_complete, "{}", answer.body.len());
}

/// With the length of an object, the second path need not wait for the first response.
#[tokio::test]
async fn a_known_length_lets_all_paths_begin_at_once() {
    for (learn, expected) in [(Learn::None, false), (Learn::Size, true), (Learn::All, true)] {
        let film = object(400_000);
        let setup = Setup { learn, ..Setup::default() };
        let script = move |request: &ReceivedRequest| correct_reply(request, &film, ETAG);
        let gateway = Running::with(setup, "/", script).await;
        let mut player = gateway.player().await;
        let target = format!("{}a.mp4", gateway.root);
        player.head(&target).await;
        let before = gateway.ended(1).await.len();
        let requests = gateway.server.requests().len();
        player.get(&target, &[]).await;
        gateway.ended(before + 1).await;
        let requests = gateway.server.requests().split_off(requests);
        // A request of a part that does not know the version yet.
        let is_early = |request: &ReceivedRequest| {
            request.range.is_some() && request.header("if-range").is_none()
        };
        assert_eq!(requests.iter().any(is_early), expected, "{learn:?} {requests:?}");
    }
}

#[tokio::test]
async fn http2_is_answered_on_the_same_port() {
    let film = object(700_000);
    let gateway = Running::start(shared_object(&film)).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let target = format!("http://{}{}a.mp4", gateway.address, gateway.root);
    let read = |range: Option<&'static str>, client: h2::client::SendRequest<Bytes>| {
        let mut request = http::Request::get(&target);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let request = request.body(()).unwrap();
        async move {
            let mut client = client.ready().await.unwrap();
            let (answer, _) = client.send_request(request, true).unwrap();
            let answer = answer.await.unwrap();
            let (status, mut body) = (answer.status().as_u16(), answer.into_body());
            let mut bytes = Vec::new();
            while let Some(piece) = body.data().await {
                let piece = piece.unwrap();
                body.flow_control().release_capacity(piece.len()).unwrap();
                bytes.extend_from_slice(&piece);
            }
            (status, bytes)
        }
    };
    let (whole, part) =
        tokio::join!(read(None, client.clone()), read(Some("bytes=5-9"), client.clone()));
    assert!(whole == (200, film.clone()));
    assert_eq!(part, (206, film[5..10].to_vec()));
}

/// The bytes that wait for a player are bounded: the servers send no more.
#[tokio::test]
async fn a_player_that_stops_stops_the_transfer_and_nothing_else() {
    const LENGTH: usize = 48_000_000;
    let film = vec![7; LENGTH];
    let mut setup = Setup::default();
    // Each chunk is a request, so the requests show the progress.
    setup.config.scheduler = Scheduler::FixedChunk(manyways_unit::Size::from_kib(256));
    let script = move |request: &ReceivedRequest| {
        let length = if request.target.ends_with("long") { LENGTH } else { 100_000 };
        correct_reply(request, &film[..length], ETAG)
    };
    let gateway = Running::with(setup, "/", script).await;
    let mut stopped = gateway.player().await;
    stopped.send("GET", &format!("{}long", gateway.root), &[]).await;
    assert_eq!(stopped.answer_head().await.status, 200);
    let mut other = gateway.player().await;
    for _ in 0..20 {
        let answer = other.get(&format!("{}short", gateway.root), &[]).await;
        assert_eq!(answer.body.len(), 100_000);
    }
    let requests = gateway.server.requests();
    let furthest = requests.iter().filter(|request| request.target == "/long");
    let furthest = furthest.filter_map(|request| Some(request.range?.0)).max().unwrap();
    // Buffers of two sockets, and the bytes that are requested ahead.
    assert!(furthest < 30_000_000, "{furthest}");
    let rest = stopped.read(LENGTH).await;
    assert!(rest.iter().all(|byte| *byte == 7));
    assert!(gateway.ended(21).await.iter().all(|ended| ended.error.is_none()));
}

#[tokio::test]
async fn a_player_that_leaves_ends_its_transfer() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let film = object(2_000_000);
    let script = move |request: &ReceivedRequest| {
        let mut reply = correct_reply(request, &film, ETAG);
        if request.target.ends_with("endless") {
            reply.gate = Some((100_000, Arc::clone(&gate)));
        }
        reply
    };
    let gateway = Running::with(Setup::default(), "/", script).await;
    let mut player = gateway.player().await;
    player.send("GET", &format!("{}endless", gateway.root), &[]).await;
    assert_eq!(player.answer_head().await.status, 200);
    drop(player);
    let ended = gateway.ended(1).await;
    assert!(ended[0].error.is_none() && ended[0].bytes < 2_000_000, "{ended:?}");
    let answer = gateway.player().await.get(&format!("{}short", gateway.root), &[]).await;
    assert_eq!(answer.body.len(), 2_000_000);
}

#[tokio::test]
async fn a_path_that_breaks_off_is_replaced_and_without_any_the_player_sees_it() {
    for dies in [1, 2] {
        let film = object(1_000_000);
        let script = {
            let (film, gate) = (film.clone(), Arc::new(tokio::sync::Semaphore::new(0)));
            move |request: &ReceivedRequest| {
                let mut reply = correct_reply(request, &film, ETAG);
                let is_second = request.from == IpAddr::from([127, 0, 0, 2]);
                if !is_second && request.index == 0 {
                    reply.gate = Some((100_000, Arc::clone(&gate)));
                } else if is_second {
                    gate.add_permits(1);
                }
                if is_second || dies == 2 {
                    reply.sent_length = reply.body.len().min(150_000).min(reply.body.len() / 2);
                    reply.after_body = AfterBody::Close;
                }
                reply
            }
        };
        let mut setup = Setup::default();
        setup.config.max_restarts = 0;
        let gateway = Running::with(setup, "/", script).await;
        let answer = gateway.player().await.get(&format!("{}a.mp4", gateway.root), &[]).await;
        assert_eq!(answer.status, 200);
        if dies == 1 {
            assert!(answer.is_complete && answer.body == film);
        } else {
            let length = answer.body.len();
            assert!(length < 1_000_000 && answer.body == film[..length], "{length}");
            assert!(!answer.is_complete);
        }
    }
}
