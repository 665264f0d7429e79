//! Real clients against real servers.

use manyways_tests::{Need, SHELL, finish, folder, manyways, needs, shared_host};

use crate::internet::{Internet, by_url, entry};

/// Text that compresses.
fn numbers() -> Vec<u8> {
    (1..5_000).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

const SERVERS: Need<'static> =
    Need::All(&[Need::Root, Need::Command("nginx"), Need::Command("caddy"), Need::Command("curl")]);

#[test]
fn curl_is_recorded_and_replayed_over_both_protocols() {
    needs!(SERVERS);
    let internet = Internet::new("10ms");
    internet.put("n.txt", &numbers());
    let big: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    internet.put("big", &big);
    let done = internet.run(
        "$RECORD -o a.zip --json summary.json -- sh -c '
            get() { curl -sS --fail -o \"$@\" || echo failed; }
            get 1 --http1.1 --compressed -H \"X-First: 1\" -H \"x-second: 2\" https://www.example.test/n.txt
            get 2 --http2 https://cdn.example.test/big
            get 3 http://www.example.test/big
            get 4 --http2 https://cdn.example.test/n.txt --next -sS --fail -o 5 --compressed https://cdn.example.test/n.txt
            get 6 -6 --http2 https://www.example.test/n.txt
            curl -sS -o 7 --http2 https://www.example.test/missing
         ' && for copy in 1 4 5 6; do cmp root/n.txt $copy; done; cmp root/big 2; cmp root/big 3",
    );
    let done = done.expect_success();
    assert_eq!(done.stdout, "", "{}", done.stderr);
    let shown = internet.show("a.zip");
    let protocols = by_url(&shown, "protocol");
    let expected = [
        ("http://www.example.test/big", "HTTP/1.1"),
        ("https://cdn.example.test/big", "HTTP/2"),
        ("https://cdn.example.test/n.txt", "HTTP/2"),
        ("https://www.example.test/missing", "HTTP/2"),
    ];
    for (url, protocol) in expected {
        assert_eq!(protocols[url], protocol, "{url}");
    }
    assert_eq!(shown["exchanges"], 7);
    assert_eq!(*by_url(&shown, "status")["https://www.example.test/missing"], 404);
    // Three addresses, one of them of IPv6; the distances are those of the lab.
    let servers = shown["servers"].as_array().unwrap();
    let find = |server: &str| servers.iter().find(|one| one["server"] == server).unwrap();
    assert_eq!(find("[2001:db8:10::1]:443")["exchanges"], 1);
    for (server, rtt) in [("203.0.113.10:443", 20.0), ("203.0.113.20:443", 30.0)] {
        let seen = find(server)["rtt_seconds"].as_f64().unwrap() * 1e3;
        assert!((rtt..rtt + 15.0).contains(&seen), "{server}: {seen} ms");
    }
    let har = internet.har("a.zip");
    let first = entry(&har, "https://cdn.example.test/big");
    assert_eq!(first["response"]["bodySize"], big.len());
    // Case and order of HTTP/1, the encoded length, and the decoded text.
    let entries = har["log"]["entries"].as_array().unwrap();
    let compressed = entries.iter().find(|one| {
        one["request"]["httpVersion"] == "HTTP/1.1"
            && one["response"]["content"]["size"] == numbers().len()
    });
    let compressed = compressed.expect("the text over HTTP/1.1");
    let names: Vec<&str> = compressed["request"]["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["name"].as_str().unwrap())
        .collect();
    let of_curl = ["Host", "User-Agent", "Accept", "Accept-Encoding", "X-First", "x-second"];
    assert_eq!(names, of_curl);
    assert_eq!(compressed["response"]["content"]["text"].as_str().unwrap().as_bytes(), numbers());
    assert!(compressed["response"]["bodySize"].as_u64().unwrap() < numbers().len() as u64 / 2);
    let summary = std::fs::read_to_string(internet.path("summary.json")).unwrap();
    assert!(summary.contains("\"schema\": \"manyways.record/1\""), "{summary}");
    internet
        .run("manyways record check a.zip && ls -l a.zip | grep -- ^-rw------- && ! ls *.journal")
        .expect_success();
}

/// A package for pip, made as a wheel is.
const WHEEL: &str = "mkdir -p root/simple/tiny; python3 - <<'E'
import zipfile
with zipfile.ZipFile('root/simple/tiny/tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'x = 1')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', '')
E
echo '<a href=tiny-1.0-py3-none-any.whl>tiny-1.0-py3-none-any.whl</a>' >root/simple/tiny/index.html
";

#[test]
fn pip_trusts_the_recorder_and_the_replay() {
    needs!(SERVERS, Need::File("/usr/lib/python3/dist-packages/pip"));
    let internet = Internet::new("2ms");
    let script = "$RECORD -o pip.zip -- /usr/bin/python3 -m pip download -q --no-cache-dir \
        --disable-pip-version-check --isolated --index-url https://www.example.test/simple/ tiny && \
        cmp tiny-1.0-py3-none-any.whl root/simple/tiny/tiny-1.0-py3-none-any.whl";
    internet.run(&[WHEEL, script].concat()).expect_success();
    let shown = internet.show("pip.zip");
    let status = by_url(&shown, "status");
    assert_eq!(status["https://www.example.test/simple/tiny/"], 200);
    assert_eq!(status["https://www.example.test/simple/tiny/tiny-1.0-py3-none-any.whl"], 200);
    let again = "mkdir again && cd again && /usr/bin/python3 -m pip download -q --no-cache-dir \
        --disable-pip-version-check --isolated --index-url https://www.example.test/simple/ tiny && \
        cmp tiny-1.0-py3-none-any.whl ../tiny-1.0-py3-none-any.whl";
    let (done, report) = internet.replay("pip.zip", &[], again);
    done.expect_success();
    assert_eq!((&report["missed"], &report["never_asked"]), (&0.into(), &0.into()), "{report}");
}

/// A page with a script, a picture and a style sheet of two servers. Chromium does not ask for an icon
/// of the site, which it would do at any time, or not before it ends.
const PAGE: &str = "<!doctype html><link rel=icon href=data:,><link rel=stylesheet href=https://cdn.example.test/style.css>
<script src=https://cdn.example.test/script.js></script>
<img src=/picture.svg><p id=text>before</p><script>run()</script>";
const SCRIPT: &str =
    "function run() { document.getElementById('text').textContent = 'aft' + 'er'; }";

#[test]
fn chromium_trusts_the_recorder_and_the_replay() {
    needs!(SERVERS, Need::Command("chromium"), Need::Command("certutil"));
    let internet = Internet::new("2ms");
    internet.put("index.html", PAGE.as_bytes());
    internet.put("style.css", b"p { color: red }");
    internet.put("script.js", SCRIPT.as_bytes());
    internet.put("picture.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>");
    let done = internet.run(
        "$RECORD -o page.zip -- sh -c 'exec chromium --headless --no-sandbox --disable-gpu \
            --no-first-run --user-data-dir=profile --dump-dom https://www.example.test/ 2>browser.log'",
    );
    let done = done.expect_success();
    assert!(done.stdout.contains("<p id=\"text\">after</p>"), "{}\n{}", done.stdout, done.stderr);
    let shown = internet.show("page.zip");
    let (protocols, status) = (by_url(&shown, "protocol"), by_url(&shown, "status"));
    for url in [
        "https://www.example.test/",
        "https://www.example.test/picture.svg",
        "https://cdn.example.test/style.css",
        "https://cdn.example.test/script.js",
    ] {
        assert_eq!(
            (protocols[url].as_str(), status[url].as_u64()),
            (Some("HTTP/2"), Some(200)),
            "{url}"
        );
    }
    let again = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run \
        --user-data-dir=other --dump-dom https://www.example.test/ 2>browser.log";
    let (replayed, report) = internet.replay("page.zip", &[], again);
    assert_eq!(replayed.expect_success().stdout, done.stdout);
    assert!(report["hits"].as_u64() >= Some(4) && report["missed"] == 0, "{report}");
}

/// Asks twice from the same port, right after the server has closed the first connection.
const SAME_PORT: &str = r#"
import socket
for _ in range(2):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.bind(("", 45678))
    connection.connect(("origin.lab", 80))
    connection.sendall(b"GET /again HTTP/1.0\r\nHost: origin.lab\r\n\r\n")
    while connection.recv(65536):
        pass
    connection.close()
"#;

#[test]
fn a_port_that_a_client_uses_again_is_recorded_again() {
    needs!(Need::Root, Need::Command("python3"));
    let folder = folder();
    let _guard = shared_host();
    let mut command = manyways();
    command.current_dir(folder.path()).args(["record", "-o", "a.zip"]);
    command.args(["--far", "exec python3 -m http.server 80", "--", "sh", "-c"]);
    let script = format!(
        "{SHELL}\neventually curl -s -o /dev/null http://origin.lab/\npython3 -c '{SAME_PORT}'"
    );
    let done = finish(command.arg(script)).expect_success();
    let mut command = manyways();
    command.current_dir(folder.path()).args(["record", "show", "--exchanges", "--json", "a.zip"]);
    let shown = finish(&mut command).expect_success().stdout;
    let asked = shown.matches("//origin.lab/again").count();
    assert_eq!(asked, 2, "{}{shown}", done.stderr);
}
