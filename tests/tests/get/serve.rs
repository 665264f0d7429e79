//! `--serve`: a player on the device gets what it requests over both networks. curl is the player.

use std::fs;

use manyways_tests::{finish, manyways};
use serde_json::Value;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed};

/// `serve OPTIONS` starts the server, and puts its URL into `$url`; `end` stops it with SIGINT.
const SERVE: &str = r#"
serve() {
  $GET --serve 127.0.0.1:0 "$@" >out 2>said & server=$!
  eventually grep -q http: out
  url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p; s/^http/&/p' out | head -1)
}
end() { kill -INT $server; wait $server; echo $? >code; }
play() { curl -sS "$@"; }
"#;

/// The two lines of `--json`.
fn documents(testbed: &Testbed) -> (Value, Value) {
    let text = testbed.read("out");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let both = (lines.next().expect("a first line"), lines.next().expect("a last line"));
    assert_eq!(both.0.pointer("/schema").and_then(Value::as_str), Some("manyways.serve/1"));
    assert_eq!(both.1["schema"], "manyways.serve-summary/1");
    both
}

fn bytes_of(summary: &Value, network: &str) -> u64 {
    let paths = summary["paths"].as_array().expect("a list");
    let path = paths.iter().find(|path| path["name"] == network).expect("the network");
    path["bytes"].as_u64().expect("a number")
}

#[test]
fn a_player_gets_objects_and_parts_over_both_networks() {
    needs_far!("curl");
    let testbed = Testbed::new();
    let playlist = "#EXTM3U\n#EXTINF:2,\nhttp://origin.lab/object\n";
    fs::write(testbed.path("root/x.m3u8"), playlist).expect("room for a playlist");
    let script = format!(
        "{SERVE} serve --json --quiet --events log --origin https://origin.lab/x.m3u8 || exit 7; \
         both play -o object ${{url%x.m3u8}}object && whole || exit 8; \
         both play --http2-prior-knowledge -o object ${{url%x.m3u8}}object && whole || exit 9; \
         play -r 1000000-1000999 ${{url%x.m3u8}}object >part; \
         tail -c +1000001 $FILES/root/object | head -c 1000 >right; same part right || exit 10; \
         play $url >playlist; play -o object $(tail -1 playlist) && whole || exit 11; \
         play -o /dev/null -w '%{{http_code}} ' -H 'Host: evil.lab' $url >codes; \
         play -o /dev/null -w '%{{http_code}}' ${{url%/*}}0/object >>codes; end"
    );
    testbed.run(&TWO_LINKS, &script).expect_success();
    assert_eq!((testbed.read("code").as_str(), testbed.read("said").as_str()), ("0\n", ""));
    assert_eq!(testbed.read("codes"), "421 404");
    let (listening, summary) = documents(&testbed);
    let (url, token) = (&listening["url"], listening["token"].as_str().expect("a token"));
    assert_eq!(token.len(), 32);
    let address = listening["address"].as_str().expect("an address");
    assert_eq!(*url, format!("http://{address}/{token}/x.m3u8"));
    assert!(testbed.read("playlist").contains(&format!("/{token}/_o/http/origin.lab:80/object\n")));
    assert_eq!((&summary["requests"], &summary["refused_requests"]), (&7.into(), &2.into()));
    assert_eq!((&summary["transfers"], &summary["failed_transfers"]), (&5.into(), &0.into()));
    let bytes = 3 * OBJECT_LENGTH + 1000 + playlist.len() as u64;
    assert_eq!(summary["bytes"], bytes);
    let shares = ["wifi", "lte"].map(|network| bytes_of(&summary, network));
    assert_eq!(shares.iter().sum::<u64>(), bytes);
    assert!(shares.iter().all(|bytes| *bytes > 40_000), "{summary}");
    let log = testbed.read("log");
    for event in ["transfer-start", "transfer-end"] {
        assert_eq!(log.lines().filter(|line| line.contains(event)).count(), 5, "{event}");
    }
}

#[test]
fn a_network_that_vanishes_in_the_middle_is_replaced() {
    needs_far!("curl", "ip");
    let testbed = Testbed::new();
    let script = format!(
        "{SERVE} serve --origin https://origin.lab/ || exit 7; stop_at wifi 300000 lte 200000; \
         play -o object ${{url}}object & player=$!; come wifi 300000; come lte 200000; \
         ip link set wifi down; go_on lte; wait $player && whole || exit 8; end"
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    let said = testbed.read("said");
    assert_eq!(testbed.read("code"), "0\n", "{said}");
    assert!(said.contains("give this URL to a player"), "{said}");
    assert!(said.contains("for 1 request\n"), "{said}");
}

#[test]
fn options_that_make_no_sense_with_a_server() {
    let origin = ["--origin", "http://127.0.0.1:1/"];
    for (words, reason) in [
        (&["--serve", "0.0.0.0:80"][..], "this is not a loopback address"),
        (&["--serve", "8080"], "write an address and a port, like 127.0.0.1:8080"),
        (&["--serve", "127.0.0.1:0", "http://127.0.0.1:1/x"], "cannot be used with"),
        (&["--serve", "127.0.0.1:0", "-c"], "cannot be used with"),
        (
            &["--serve", "127.0.0.1:0", "--allow-origin", "player"],
            "is not an http:// or https:// URL",
        ),
        (&["--serve", "127.0.0.1:0", "--learn", "much"], "[possible values: all, size, none]"),
        (&[], "--serve"),
    ] {
        let done = finish(manyways().arg("get").args(origin).args(words));
        assert_eq!((done.code(), done.stdout.as_str()), (2, ""), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains(reason), "{words:?}: {}", done.stderr);
    }
    let done = finish(manyways().args(["get", "--serve", "127.0.0.1:0"]));
    assert!(done.code() == 2 && done.stderr.contains("--origin <URL>"), "{}", done.stderr);
    let file = ["get", "--serve", "127.0.0.1:0", "--origin", "file:///etc/passwd"];
    let done = finish(manyways().args(file));
    assert!(done.code() == 2 && done.stderr.contains("is not an http:// or https:// URL"));
}
