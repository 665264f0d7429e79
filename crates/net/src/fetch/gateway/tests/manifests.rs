//! Manifests.

use super::super::super::tests::server::correct_reply;
use super::*;

const HLS: &str = "application/vnd.apple.mpegurl";

fn manifest(content_type: &str, text: &str) -> Reply {
    let headers = [("content-type", content_type), ("etag", ETAG), ("cache-control", "max-age=2")];
    Reply::plain(200, &headers, text.as_bytes())
}

#[tokio::test]
async fn urls_of_manifests_lead_to_the_gateway() {
    let gateway = Running::start(|request| match request.target.as_str() {
        "/films/x.m3u8" => manifest(
            HLS,
            "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"https://keys.example/k?a=b\"\n\
             #EXTINF:2,\n1.ts\n#EXTINF:2,\n/other/2.ts\n",
        ),
        "/films/x.mpd" => manifest(
            "application/octet-stream",
            "<MPD><BaseURL>http://b.example:81/v/</BaseURL><SegmentTemplate \
             media=\"$Number$.m4s\"/></MPD>",
        ),
        _ => Reply::plain(200, &[("etag", ETAG)], b"segment"),
    })
    .await;
    let mut player = gateway.player().await;
    let base = format!("http://{}{}", gateway.address, gateway.root);
    let port = gateway.server.address.port();
    let answer = player.get(&format!("{}x.m3u8", gateway.root), &[("range", "bytes=0-")]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.text(),
        format!(
            "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"{base}_o/https/keys.example:443/k?a=b\"\n\
             #EXTINF:2,\n1.ts\n#EXTINF:2,\n{base}_o/http/127.0.0.1:{port}/other/2.ts\n"
        )
    );
    // They are no longer those of the server.
    assert_eq!((answer.header("etag"), answer.header("accept-ranges")), (None, None));
    assert_eq!(answer.header("cache-control"), Some("max-age=2"));
    assert_eq!(answer.header("content-type"), Some(HLS));
    let answer = player.head(&format!("{}x.m3u8", gateway.root)).await;
    assert_eq!((answer.header("etag"), answer.header("content-length")), (None, None));

    let answer = player.get(&format!("{}x.mpd", gateway.root), &[]).await;
    let text = format!("<BaseURL>{base}_o/http/b.example:81/v/</BaseURL>");
    assert!(answer.text().contains(&text), "{}", answer.text());

    let own = format!("{}_o/http/127.0.0.1:{port}/other/2.ts", gateway.root);
    assert_eq!(player.get(&own, &[]).await.text(), "segment");
}

#[tokio::test]
async fn a_live_manifest_is_fetched_each_time() {
    let count = Count::default();
    let script = {
        let count = Arc::clone(&count);
        move |_: &ReceivedRequest| {
            let mut count = count.lock().unwrap();
            *count += 1;
            manifest(HLS, &format!("#EXTM3U\n#EXTINF:2,\n{count}.ts\n"))
        }
    };
    let gateway = Running::start(script).await;
    let mut player = gateway.player().await;
    let target = format!("{}x.m3u8", gateway.root);
    let first = player.get(&target, &[]).await;
    let second = player.get(&target, &[("if-none-match", ETAG)]).await;
    assert_eq!((first.status, second.status), (200, 200));
    assert_ne!(first.text(), second.text());
}

/// Where relative references would lead out of the gateway or to the wrong folder, the player gets
/// another URL of the manifest.
#[tokio::test]
async fn relative_references_are_resolved_as_the_server_meant_them() {
    let gateway = Running::start(|request| match request.target.as_str() {
        "/films/x.m3u8" => manifest(HLS, "#EXTM3U\n#EXTINF:2,\n../other/1.ts\n"),
        "/films/moved.m3u8" => Reply::plain(302, &[("location", "/live/y.m3u8")], b""),
        "/live/y.m3u8" => manifest(HLS, "#EXTM3U\n#EXTINF:2,\n1.ts\n"),
        _ => Reply::plain(404, &[], b""),
    })
    .await;
    let mut player = gateway.player().await;
    let host = format!("127.0.0.1:{}", gateway.server.address.port());
    for (name, full) in [("x.m3u8", "films/x.m3u8"), ("moved.m3u8", "live/y.m3u8")] {
        let answer = player.get(&format!("{}{name}", gateway.root), &[]).await;
        let to = format!("{}_o/http/{host}/{full}", gateway.root);
        let url = format!("http://{}{to}", gateway.address);
        assert_eq!((answer.status, answer.header("location")), (307, Some(url.as_str())));
        let answer = player.get(&to, &[]).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("1.ts"));
    }
}

#[tokio::test]
async fn a_manifest_opens_no_private_network_and_no_file() {
    let private = Server::start(|_| Reply::plain(200, &[], b"secret")).await;
    let port = private.address.port();
    let text = format!(
        "#EXTM3U\n#EXTINF:2,\nhttp://127.0.0.1:{port}/1.ts\n#EXTINF:2,\nfile:///etc/passwd\n\
         #EXTINF:2,\nhttp://[::1]:{port}/2.ts\n#EXTINF:2,\nhttp://localhost:{port}/3.ts\n"
    );
    let gateway = Running::start(move |_| manifest(HLS, &text)).await;
    let mut player = gateway.player().await;
    let answer = player.get(&format!("{}x.m3u8", gateway.root), &[]).await;
    let base = format!("http://{}", gateway.address);
    let lines: Vec<&str> = answer.text().lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[1], "file:///etc/passwd");
    for line in [lines[0], lines[2], lines[3]] {
        let answer = player.get(line.strip_prefix(&base).unwrap(), &[]).await;
        assert_eq!(answer.status, 403, "{line}: {}", answer.text());
    }
    assert!(private.requests().is_empty());
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_not_passed_on() {
    let gateway = Running::start(|request| match request.target.as_str() {
        "/films/broken.mpd" => manifest("application/dash+xml", "<MPD><BaseURL>"),
        "/films/packed.mpd" => {
            let mut reply = manifest("application/dash+xml", "<MPD/>");
            reply.set("content-encoding", "gzip");
            reply
        }
        _ => {
            let text = format!("#EXTM3U\n{}", "#x\n".repeat(3 << 20));
            correct_reply(request, text.as_bytes(), ETAG)
        }
    })
    .await;
    for (name, words) in [
        ("broken.mpd", "the manifest is broken"),
        ("packed.mpd", "Content-Encoding"),
        ("long.m3u8", "the manifest is longer than"),
    ] {
        let answer = gateway.player().await.get(&format!("{}{name}", gateway.root), &[]).await;
        assert_eq!(answer.status, 502, "{name}");
        assert!(answer.text().contains(words), "{name}: {}", answer.text());
    }
}

/// The player's request for a segment goes out over both paths at once.
#[tokio::test]
async fn lengths_in_an_mpd_are_known_before_the_request() {
    let film = object(400_000);
    let gateway = Running::start(move |request| match request.target.as_str() {
        "/films/x.mpd" => manifest(
            "application/dash+xml",
            "<MPD type='static' mediaPresentationDuration='PT4S' \
             xmlns:manyways='urn:manyways:film:1'><Period><AdaptationSet contentType='video'>\
             <Representation id='1' bandwidth='9' mimeType='video/mp4'><BaseURL>/v/</BaseURL>\
             <SegmentList duration='2'><SegmentURL media='1.m4s' manyways:size='400000'/>\
             <SegmentURL media='2.m4s' manyways:size='many'/></SegmentList>\
             </Representation></AdaptationSet></Period></MPD>",
        ),
        _ => correct_reply(request, &film, ETAG),
    })
    .await;
    let mut player = gateway.player().await;
    let answer = player.get(&format!("{}x.mpd", gateway.root), &[]).await;
    assert!(answer.text().contains("manyways:size='400000'"), "{}", answer.text());
    let port = gateway.server.address.port();
    for (name, expected) in [("1.m4s", true), ("2.m4s", false)] {
        let before = gateway.server.requests().len();
        let target = format!("{}_o/http/127.0.0.1:{port}/v/{name}", gateway.root);
        assert_eq!(player.get(&target, &[]).await.body.len(), 400_000);
        let requests = gateway.server.requests().split_off(before);
        let mut early = requests.iter();
        let is_early =
            early.any(|request| request.range.is_some() && request.header("if-range").is_none());
        assert_eq!(is_early, expected, "{name}: {requests:?}");
    }
}
