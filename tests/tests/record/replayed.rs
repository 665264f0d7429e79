//! Recordings of real servers, replayed over other networks.

use std::fs;

use manyways_tests::{Need, finish, folder, manyways, needs, shared_host};
use serde_json::Value;

use crate::internet::{Internet, NGINX};

const NEEDS: Need<'static> =
    Need::All(&[Need::Root, Need::Command("nginx"), Need::Command("caddy"), Need::Command("curl")]);

/// A recording of one exchange of each protocol with a body of a megabyte, and one of a form.
fn recording() -> Internet {
    let internet = Internet::new("5ms");
    let big: Vec<u8> =
        (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    internet.put("big", &big);
    let script = "$RECORD -o a.zip -- sh -c '
        curl -sS -o /dev/null --http1.1 https://www.example.test/big
        curl -sS -o /dev/null --http2 https://cdn.example.test/big
        curl -sS -o /dev/null \"https://cdn.example.test/big?session=11112222333344445555&page=2\"'";
    internet.run(script).expect_success();
    internet
}

#[test]
fn other_networks_carry_the_same_bytes() {
    needs!(NEEDS, Need::Command("mptcpize"));
    let internet = recording();
    let links = ["--link", "wifi:down=30mbit,delay=2ms", "--link", "lte:down=30mbit,delay=5ms"];
    let both = "for server in www cdn; do
            curl -sS https://$server.example.test/big | cmp - root/big || exit 1
        done
        cd /sys/class/net; cat wifi/statistics/rx_bytes lte/statistics/rx_bytes";
    for (option, least) in [("--one-server", 0), ("--mptcp", 100_000), ("--bond", 100_000)] {
        let (done, report) = internet.replay("a.zip", &[&links[..], &[option]].concat(), both);
        let done = done.expect_success();
        assert_eq!((&report["hits"], &report["missed"]), (&2.into(), &0.into()), "{option}");
        let bytes: Vec<u64> = done.stdout.lines().flat_map(str::parse).collect();
        assert!(bytes[0] >= 100_000 && bytes[1] >= least, "{option}: {bytes:?}");
        if option == "--one-server" {
            let list = report["list"].as_array().unwrap();
            let server = format!("{NGINX}:443");
            assert!(list.iter().all(|one| one["server"] == *server), "{list:?}");
        }
    }
}

#[test]
fn misses_are_named_and_explained() {
    needs!(NEEDS);
    let internet = recording();
    let script = "
        curl -sS -o /dev/null -w '%{http_code}\\n' https://www.example.test/other
        curl -sS -o /dev/null -w '%{http_code}\\n' \
            'https://cdn.example.test/big?session=99998888777766665555&page=2'
        curl -sS -o /dev/null -w '%{http_code}\\n' 'https://cdn.example.test/big?page=3'
        true";
    let (done, report) = internet.replay("a.zip", &[], script);
    let done = done.expect_success();
    assert_eq!(done.stdout, "404\n200\n404\n", "{}", done.stderr);
    let counts = ["hits", "approximate", "missed", "never_asked"].map(|name| report[name].as_u64());
    assert_eq!(counts, [Some(0), Some(1), Some(2), Some(2)], "{report}");
    assert!(done.stderr.contains("missed: GET https://www.example.test/other"), "{}", done.stderr);
    let page = fs::read_to_string(internet.path("report.html")).unwrap();
    assert!(page.contains("https://www.example.test/other") && page.contains("<svg"));

    let (done, _) = internet.replay("a.zip", &["--miss", "close"], script);
    assert_eq!(done.expect_success().stdout, "000\n200\n000\n");

    let why = |url: &str| {
        let mut command = manyways();
        command.args(["replay", "why"]).arg(internet.path("a.zip")).arg(url);
        finish(&mut command).expect_success().stdout
    };
    let said = why("https://cdn.example.test/big?page=3&session=11112222333344445555");
    assert!(said.starts_with("miss") && said.contains("query key page"), "{said}");
    assert!(why("https://www.example.test/big").starts_with("hit"));
}

#[test]
fn think_times_are_recorded_or_others() {
    needs!(NEEDS);
    let internet = recording();
    let recorded: Vec<f64> = internet.show("a.zip")["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["think_seconds"].as_f64().unwrap())
        .collect();
    let thinks = |options: &[&str]| -> f64 {
        let script = "curl -sS -o /dev/null --http1.1 https://www.example.test/big";
        let (done, report) = internet.replay("a.zip", options, script);
        done.expect_success();
        report["list"][0]["think_seconds"].as_f64().unwrap()
    };
    let is = |seen: f64, expected: f64| (seen - expected).abs() < 1e-6;
    assert!(is(thinks(&[]), recorded[0]), "{recorded:?}");
    assert_eq!(thinks(&["--think", "zero"]), 0.0);
    assert!(is(thinks(&["--think", "x20"]), 20.0 * recorded[0]), "{recorded:?}");
}

#[test]
fn the_recorded_requests_are_issued_over_each_way_to_use_the_links() {
    needs!(NEEDS);
    let internet = recording();
    let _guard = shared_host();
    let mut command = manyways();
    command.current_dir(internet.path("")).args(["replay", "a.zip", "--drive", "--rounds", "1"]);
    command.args(["--link", "wifi:down=20mbit,delay=2ms", "--link", "lte:down=20mbit,delay=5ms"]);
    let done = finish(command.args(["--json", "drive.json"])).expect_success();
    let drive: Value =
        serde_json::from_slice(&fs::read(internet.path("drive.json")).unwrap()).unwrap();
    assert_eq!((&drive["exchanges"], &drive["connections"]), (&3.into(), &3.into()));
    let ways = drive["ways"].as_array().unwrap();
    let names: Vec<&str> = ways.iter().map(|way| way["name"].as_str().unwrap()).collect();
    let expected = [
        "TCP over wifi",
        "TCP over lte",
        "MPTCP, coupled, first over wifi",
        "MPTCP, coupled, first over lte",
        "MPTCP, decoupled, first over wifi",
        "MPTCP, decoupled, first over lte",
        "get",
        "bond",
    ];
    assert_eq!(names, expected);
    for way in ways {
        let ran = way["app_response_seconds"].is_number();
        assert_ne!(ran, way["not_run"].is_string(), "{way}");
        assert!(!ran || way["runs"][0]["failed"] == 0, "{way}");
        assert!(ran || way["name"].as_str().unwrap().contains("coupled"), "{way}");
    }
    // 3 MB over 20 Mbit/s cannot be faster than the link.
    assert!(ways[0]["app_response_seconds"].as_f64() > Some(1.2), "{}", ways[0]);
    assert!(done.stdout.contains("app response time"), "{}", done.stdout);
}

/// A page load of a browser, without bodies.
const HAR: &str = r#"{"log":{"version":"1.2","creator":{"name":"someone","version":"1"},"entries":[
{"startedDateTime":"2026-01-01T00:00:00Z","time":10,"request":{"method":"GET","url":"https://a.example/page","httpVersion":"h2",
"headers":[],"cookies":[],"queryString":[],"headersSize":-1,"bodySize":0},
"response":{"status":200,"statusText":"","httpVersion":"h2","headers":[{"name":"content-type","value":"text/html"},
{"name":"content-encoding","value":"gzip"}],"cookies":[],
"content":{"size":70000,"mimeType":"text/html"},"redirectURL":"","headersSize":-1,"bodySize":12345},
"cache":{},"timings":{"connect":40,"ssl":20,"send":0,"wait":30,"receive":4},"serverIPAddress":"192.0.2.1"}]}}"#;

#[test]
fn a_har_without_bodies_is_replayed_with_bytes_of_the_same_number() {
    needs!(Need::Root, Need::Command("curl"));
    let folder = folder();
    fs::write(folder.path().join("a.har"), HAR).unwrap();
    let _guard = shared_host();
    let mut command = manyways();
    command
        .current_dir(folder.path())
        .args(["replay", "a.har", "--json", "r.json", "--", "sh", "-c"]);
    command.arg(
        "curl -sS -o body -w '%{http_version} %{size_download} %{http_code}\\n' https://a.example/page
         curl -sS --compressed https://a.example/page >decoded && gzip -dc body | cmp - decoded && echo same",
    );
    let done = finish(&mut command).expect_success();
    assert_eq!(done.stdout, "2 12345 200\nsame\n", "{}", done.stderr);
    let report: Value =
        serde_json::from_slice(&fs::read(folder.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(
        (&report["hits"], &report["list"][0]["server"]),
        (&2.into(), &"192.0.2.1:443".into())
    );
}

#[test]
fn a_bond_does_not_bring_far_servers_near() {
    needs!(Need::Root, Need::Command("curl"));
    let near = HAR[HAR.find("{\"startedDateTime").unwrap()..].trim_end_matches("]}}");
    let far = near.replace("a.example", "far.example").replace("192.0.2.1", "192.0.2.2");
    // 300 ms farther: the time to connect without that of TLS.
    let far = far.replace("\"connect\":40", "\"connect\":340");
    let folder = folder();
    fs::write(folder.path().join("a.har"), HAR.replace(near, &format!("{near},{far}"))).unwrap();
    let _guard = shared_host();
    let mut command = manyways();
    command.current_dir(folder.path()).args(["replay", "a.har", "--bond"]);
    command.args(["--link", "wifi:delay=2ms", "--link", "lte:delay=2ms", "--"]);
    command.args(["curl", "-sS", "-o", "body", "-w", "%{time_namelookup} %{time_appconnect}"]);
    let done = finish(command.arg("https://far.example/page")).expect_success();
    let times: Vec<f64> = done.stdout.split(' ').flat_map(str::parse).collect();
    // Once for the gateway's connection, and once for the handshake.
    assert!(times[1] - times[0] >= 0.599, "{times:?}");
}

#[test]
fn what_cannot_be_replayed_is_refused_in_a_sentence() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("a.har"), HAR).unwrap();
    fs::write(path("empty.har"), HAR.replace("https://a.example/page", "data:,x")).unwrap();
    fs::write(path("cut.har"), &HAR[..500]).unwrap();
    for (words, said) in [
        (&["missing"][..], "No such file"),
        (&["cut.har"], "cut off"),
        (&["empty.har"], "has no exchange to replay"),
        (&["a.har", "--think", "long"], "write recorded, zero, or a multiple"),
        (&["a.har", "--mptcp"], "several networks need several links"),
        (&["a.har", "--link", "wifi:down=fast"], "down"),
        (&["a.har", "--json", "a.har"], "is used twice"),
        (&["a.har", "--drive", "--rounds", "0"], "1 to 1000 rounds"),
    ] {
        let mut command = manyways();
        command.current_dir(folder.path()).arg("replay").args(words);
        if !words.contains(&"--drive") {
            command.args(["--", "true"]);
        }
        let done = finish(&mut command);
        assert_ne!(done.code(), 0, "{words:?}");
        assert!(done.stderr.contains(said), "{words:?}: {}", done.stderr);
    }
}
