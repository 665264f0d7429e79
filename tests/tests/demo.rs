//! The demonstration, once from end to end: every contender brings the file, and the result is in
//! all the forms that it promises.

use std::fs;
use std::process::Command;

use manyways_tests::{Need, finish, folder, manyways, manyways_path, missing, needs};
use serde_json::Value;

const SIZE: u64 = 8_000_000;

fn contender<'d>(document: &'d Value, name: &str) -> &'d Value {
    document["contenders"]
        .as_array()
        .and_then(|contenders| contenders.iter().find(|contender| contender["name"] == name))
        .unwrap_or_else(|| panic!("there is no contender {name}"))
}

fn bytes_by_link(contender: &Value) -> Vec<(String, u64)> {
    let links = contender["links"].as_array().expect("a contender that ran has links");
    let text = |link: &Value| link["name"].as_str().expect("a link has a name").to_owned();
    let bytes = |link: &Value| link["down_bytes"].as_u64().expect("a link has carried bytes");
    links.iter().map(|link| (text(link), bytes(link))).collect()
}

/// From where to where the bytes of a contender's requests came, over one link or all, joined.
fn received_ranges(contender: &Value, link: Option<&str>) -> Vec<(u64, u64)> {
    let requests = contender["requests"].as_array().expect("a contender that asked has requests");
    let wanted = |request: &&Value| link.is_none_or(|link| request["link"] == link);
    let pieces = |request: &Value| request["pieces"].as_array().expect("pieces").clone();
    let place = |piece: &Value, bound: &str| piece[bound].as_u64().expect("a place in the file");
    let mut places: Vec<(u64, u64)> = requests
        .iter()
        .filter(wanted)
        .flat_map(pieces)
        .map(|piece| (place(&piece, "from"), place(&piece, "to")))
        .collect();
    places.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in places {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    joined
}

// Slow: five downloads of 8 MB, one after the other, over links of 10 and 5 Mbit/s.
#[test]
fn every_contender_brings_the_file_and_the_report_says_so() {
    needs!(Need::Root, Need::Command("nginx"));
    let folder = folder();
    let (report, picture) = (folder.path().join("report.html"), folder.path().join("picture.svg"));
    let mut command = manyways();
    command.args(["demo", "--json", "-", "--report"]).arg(&report).arg("--picture").arg(&picture);
    let done = finish(&mut command).expect_success();
    let document: Value = serde_json::from_str(&done.stdout).expect("JSON and nothing else");
    assert_eq!(document["schema"], "manyways.demo/2");
    assert_eq!(document["object"]["bytes"], SIZE);
    let original = document["object"]["sha256"].as_str().expect("the file has a hash");
    assert_eq!(original.len(), 64);

    let tools =
        [Need::Command("mptcpize"), Need::Command("curl"), Need::File("/proc/sys/net/mptcp")];
    let mptcp = missing(&tools).is_none();
    for name in ["wifi", "lte", "kernel-mptcp", "fixed-chunk", "manyways"] {
        let contender = contender(&document, name);
        if name == "kernel-mptcp" && !mptcp {
            assert_eq!(contender["status"], "skipped", "{contender}");
            assert!(contender["reason"].is_string(), "{contender}");
            continue;
        }
        assert_eq!(contender["status"], "delivered", "{contender}");
        assert_eq!(contender["bytes"], SIZE, "{name}");
        assert_eq!(contender["sha256"], original, "{name}");
        assert_eq!(contender["protocol"], "h2", "{name}");
        // The links carried the file and its headers, and no contender beat the bound.
        let carried: u64 = bytes_by_link(contender).iter().map(|(_, bytes)| bytes).sum();
        assert!(carried > SIZE, "{name}: {carried}");
        assert!(contender["bound_ratio"].as_f64() > Some(1.0), "{name}");
        let timeline = contender["timeline"].as_array().expect("a timeline");
        let last = timeline.last().expect("a timeline has an end");
        let last: u64 = last["down_bytes"].as_array().unwrap().iter().flat_map(Value::as_u64).sum();
        assert_eq!(last, carried, "{name}");
    }
    // A megabyte is far more than the handshakes of a link that is not used.
    let used = |name: &str| -> Vec<String> {
        let links = bytes_by_link(contender(&document, name)).into_iter();
        links.filter(|(_, bytes)| *bytes > 1_000_000).map(|(link, _)| link).collect()
    };
    assert_eq!(used("wifi"), ["wifi"]);
    assert_eq!(used("lte"), ["lte"]);
    for name in ["fixed-chunk", "manyways"] {
        assert_eq!(used(name), ["wifi", "lte"], "{name}");
        let contender = contender(&document, name);
        assert_eq!(received_ranges(contender, None), [(0, SIZE)], "{name}");
        for link in ["wifi", "lte"] {
            let brought: u64 =
                received_ranges(contender, Some(link)).iter().map(|(from, to)| to - from).sum();
            assert!(brought > 1_000_000, "{name} over {link}: {brought}");
        }
    }
    let chunks = contender(&document, "fixed-chunk")["requests"].as_array().unwrap().len();
    assert!(chunks >= SIZE.div_ceil(1 << 20) as usize, "{chunks} requests of 1 MiB");
    if mptcp {
        assert_eq!(used("kernel-mptcp"), ["wifi", "lte"]);
        let kernel = contender(&document, "kernel-mptcp");
        assert!(kernel["requests"].is_null(), "{kernel}");
        let kernel = &kernel["mptcp"];
        assert_eq!((&kernel["connections"], &kernel["fallbacks"]), (&1.into(), &0.into()));
    }

    let html = fs::read_to_string(&report).expect("the report was written");
    for contender in document["contenders"].as_array().expect("contenders") {
        let label = contender["label"].as_str().expect("a contender has a label");
        assert!(html.contains(&format!("<th scope=\"row\">{label}</th>")), "{label}: {html}");
        if let Some(seconds) = contender["seconds"].as_f64() {
            assert!(html.contains(&format!("<td class=\"figure\">{seconds:.2}</td>")), "{label}");
        }
    }
    assert_eq!(html.matches("<svg").count(), 3);
    // Of bytes by link over time: a panel for each of the two that chose them.
    assert_eq!(html.matches(">place in the file, MB</text>").count(), 2);
    for outside in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!html.contains(outside), "the report needs something from outside: {outside}");
    }
    let picture = fs::read_to_string(&picture).expect("the picture was written");
    assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{picture}");
    assert_eq!(picture.matches(">place in the file, MB</text>").count(), 2);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_work() {
    needs!(Need::Command("nginx"));
    let done = finish(manyways().args(["demo", "--report", "no-such-folder/report.html"]));
    assert_eq!(done.code(), 2, "{}", done.stderr);
    assert!(done.stderr.contains("the folder no-such-folder does not exist"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: "), "{}", done.stderr);
}

#[test]
fn without_nginx_it_says_what_to_install() {
    needs!(Need::Root, Need::Command("nginx"), Need::Command("unshare"));
    // Files named nginx are not programs, for this command alone.
    let hide = "for folder in /usr/sbin /usr/bin /usr/local/sbin /usr/local/bin; do
                    [ ! -e $folder/nginx ] || mount --bind /dev/null $folder/nginx || exit 99
                done
                exec \"$0\" demo";
    let mut command = Command::new("unshare");
    let done = finish(command.args(["--mount", "sh", "-c", hide]).arg(manyways_path()));
    assert_eq!(done.code(), 1, "{}", done.stderr);
    assert!(
        done.stderr.contains("nginx, which serves the file, is not installed"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("hint: "), "{}", done.stderr);
}
