//! The correct file, over all selected networks.

use std::fs;
use std::process::Command;

use manyways_tests::{finish, object};

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed, Transfer};

const ALL: &str =
    "for url in $URLS; do both get --json -O \"$url\" && whole && rm object || exit 1; done";

#[track_caller]
fn over_both(testbed: &Testbed, server: &str, urls: &[(&str, &str)]) {
    let list: Vec<&str> = urls.iter().map(|(url, _)| *url).collect();
    // The interface counters confirm it.
    let script = format!(
        "URLS='{}'; {ALL}; come wifi {each}; come lte {each}",
        list.join(" "),
        each = urls.len() * 100_000
    );
    let finished =
        testbed.run_with(&[&TWO_LINKS[..], &["--far", server]].concat(), &script).expect_success();
    let transfers = Transfer::all(&finished.stdout);
    assert_eq!(transfers.len(), urls.len());
    for (transfer, (url, protocol)) in transfers.iter().zip(urls) {
        assert_eq!(transfer.0["url"], *url);
        transfer.assert_paths(&["wifi", "lte"]);
        assert_eq!(transfer.number("metered_bytes"), 0);
        let server = if url.contains("[fd00") { "fd00:18::1" } else { "198.18.0.1" };
        for name in ["wifi", "lte"] {
            assert_eq!(transfer.path(name)["protocol"], *protocol, "{url}");
            if !url.contains("origin.lab") {
                assert_eq!(transfer.path(name)["server"], server, "{url}");
            }
        }
    }
}

#[test]
fn over_two_links_from_nginx() {
    needs_far!();
    let testbed = Testbed::new();
    over_both(
        &testbed,
        &testbed.nginx(),
        &[
            ("http://origin.lab/object", "http/1.1"),
            ("https://origin.lab/object", "h2"),
            ("https://origin.lab:444/object", "http/1.1"),
            ("http://198.18.0.1/object", "http/1.1"),
            ("https://[fd00:18::1]/object", "h2"),
        ],
    );
}

#[test]
fn over_two_links_from_apache() {
    needs_far!("apache2");
    let testbed = Testbed::new();
    over_both(
        &testbed,
        &testbed.apache(),
        &[("http://origin.lab:8080/object", "http/1.1"), ("https://origin.lab:8443/object", "h2")],
    );
}

#[test]
fn over_three_links_or_those_that_are_named() {
    needs_far!();
    let testbed = Testbed::new();
    let links = [&TWO_LINKS[..], &["--link", "usb:down=12mbit,up=4mbit,delay=6ms"]].concat();
    let finished = testbed.run(
        &links,
        "for via in wifi,lte,usb usb,wifi lte; do \
           get --json --via $via -o object https://origin.lab/object || exit 1; \
           whole || exit 1; \
         done; get --json https://origin.lab/object && whole && \
         ! get --via wifi,moon https://origin.lab/object",
    );
    let finished = finished.expect_success();
    let transfers = Transfer::all(&finished.stdout);
    let [three, two, one, all] = transfers.as_slice() else { panic!("{}", finished.stdout) };
    three.assert_paths(&["wifi", "lte", "usb"]);
    two.assert_paths(&["usb", "wifi"]);
    one.assert_paths(&["lte"]);
    all.assert_paths(&["wifi", "lte", "usb"]);
    assert!(finished.stderr.contains("there is no network called \"moon\""), "{}", finished.stderr);
}

#[test]
fn without_any_privilege() {
    needs_far!("setpriv");
    let testbed = Testbed::new();
    // Another user may not read the build folder.
    fs::copy(manyways_tests::manyways_path(), testbed.path("manyways"))
        .expect("room for the binary");
    let finished = testbed.run(
        &TWO_LINKS,
        "both setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all \
           \"$FILES/manyways\" get --cacert $FILES/authority.pem --json https://origin.lab/object && \
         stat -c %u object >owner && whole",
    );
    Transfer::only(&finished.expect_success().stdout).assert_paths(&["wifi", "lte"]);
    assert_eq!(testbed.read("owner"), "65534\n");
}

#[test]
fn a_checksum_decides_over_the_name() {
    needs_far!("sha256sum");
    let testbed = Testbed::new();
    let small = object(&testbed.path("root"), "object-small", 50_000, 3);
    let sum = finish(Command::new("sha256sum").arg(small)).expect_success().stdout;
    let sum = sum.split(' ').next().expect("a sum comes first");
    let wrong = "0".repeat(64);
    let finished = testbed.run(
        &TWO_LINKS,
        &format!(
            "url=http://origin.lab/object-small; echo older >object-small; \
             get --json --checksum sha256:{wrong} $url; echo $? >code; cat object-small >kept; \
             get --json --checksum sha256:{sum} $url && same object-small $FILES/root/object-small"
        ),
    );
    let finished = finished.expect_success();
    let transfers = Transfer::all(&finished.stdout);
    assert_eq!((testbed.read("code"), testbed.read("kept")), ("1\n".into(), "older\n".into()));
    let said = transfers[0].0["error"]["message"].as_str().expect("an error");
    assert!(said.contains("checksum is wrong") && said.contains(sum), "{said}");
    assert_eq!(transfers[0].0["error"]["resumable"], false);
    assert_eq!(transfers[1].0["sha256"], sum);
    assert_eq!(testbed.fetched(), ["object-small"]);
}
