//! Options of a transfer, and the errors for invalid values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use manyways_tests::{finish, folder, manyways, object};

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed, Transfer};

#[test]
fn values_that_make_no_sense() {
    let url = "http://127.0.0.1:1/object";
    for (words, reason) in [
        (&["--scheduler", "mptcp"][..], "use mp-h2, fixed-chunk"),
        (&["--scheduler", "fixed-chunk=1KB"], "a chunk is at least 16KiB"),
        (&["--scheduler", "single=1MB"], "only fixed-chunk does"),
        (&["--cut-method", "rest"], "similar value exists: 'reset'"),
        (&["--transport", "udp"], "[possible values: tcp, mptcp]"),
        (&["--size", "10k"], "write it in bytes, or like 500KB"),
        (&["--metered", "1e6"], "`1e6` is not a limit; write yes, no, or a size like 500MB"),
        (&["--transport", "mptcp", "--via", "wifi"], "the kernel chooses the networks"),
        (&["--via", "auto,wifi"], "hint: use --via auto alone"),
        (&["--goal", "fast"], "hint: add --via auto"),
        (&["--via", "auto", "--goal", "best"], "[possible values: fast, balanced, thrifty]"),
        (&["--via", "auto", "--single-server"], "cannot be combined with --via auto"),
        (&["--dns", "wifi"], "like wifi=192.0.2.53"),
        (&["--dns", "wifi=origin.lab"], "\"origin.lab\" is not an IP address"),
        (&["--size", "1MB", url], "--size applies to one file"),
        (&["origin.lab/x"], "hint: write http://origin.lab/x or https://origin.lab/x\n"),
        (&["http://origin%2F.lab/x"], "the host in the URL http://origin%2F.lab/x is not valid"),
    ] {
        let done = finish(manyways().arg("get").args(words).arg(url));
        assert_eq!((done.code(), done.stdout.as_str()), (2, ""), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains(reason), "{words:?}: {}", done.stderr);
    }
}

/// With `-c` an existing file is complete, so that nothing is fetched.
#[test]
fn bytes_of_a_url_remain_and_a_proxy_of_the_environment_is_named() {
    let folder = folder();
    std::fs::write(folder.path().join("caf%E9"), "whole").expect("room for a file");
    let get = |options: &[&str], proxy| {
        let mut command = manyways();
        command.current_dir(folder.path()).arg("get").arg("-c").args(options);
        command
            .arg(OsStr::from_bytes(b"http://127.0.0.1:1/caf\xe9"))
            .env(proxy, "http://me:secret@a");
        finish(&mut command).expect_success().stderr
    };
    let words = get(&[], "HTTP_PROXY");
    assert!(words.contains("caf%E9 already exists"), "{words}");
    assert!(words.starts_with("manyways: the proxy in HTTP_PROXY is not used"), "{words}");
    assert!(!words.contains("secret"), "{words}");
    assert!(!get(&[], "https_proxy").contains("proxy"));
    assert_eq!(get(&["-q"], "http_proxy"), "");
}

/// Every scheduler yields the correct file.
#[test]
fn every_scheduler_brings_the_file() {
    needs_far!();
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "for how in 'mp-h2 --size 2000001' fixed-chunk fixed-chunk=128KiB msplayer equal-split single \
                    'mp-h2 --no-pipelining --cut-method reset' 'mp-h2 --size 5'; do \
           get --json --scheduler $how https://origin.lab/object && whole || exit 1; rm object; \
         done",
    );
    let transfers = Transfer::all(&finished.expect_success().stdout);
    assert_eq!(transfers.len(), 8);
    for transfer in transfers {
        assert_eq!(transfer.number("bytes"), crate::testbed::OBJECT_LENGTH);
    }
}

/// The kernel counts the connections that the device opens.
#[test]
fn a_warm_up_leaves_its_connections_to_what_follows() {
    needs_far!("awk");
    let testbed = Testbed::new();
    object(&testbed.path("root"), "small", 65_536, 5);
    let opened = "opened() { awk '/^Tcp:/ { n = $6 } END { print n }' /proc/net/snmp; }; ";
    let finished = testbed.run(
        &TWO_LINKS,
        &format!(
            "{opened} before=$(opened); \
             both get --json --warm-up https://origin.lab/small https://origin.lab/object && whole; \
             echo $(($(opened) - before)) >opened"
        ),
    );
    Transfer::only(&finished.expect_success().stdout).assert_paths(&["wifi", "lte"]);
    assert_eq!(testbed.read("opened"), "2\n");
    let log = std::fs::read_to_string(testbed.path("nginx/access.log")).expect("nginx has a log");
    assert_eq!(log.lines().filter(|line| line.contains("/small ")).count(), 2, "{log}");
}

/// Only LTE's name server has the host; the option makes Wi-Fi query that server.
#[test]
fn name_servers_can_be_named_for_each_network() {
    needs_far!();
    let testbed = Testbed::new();
    let scenario = format!(
        "name = \"dns\"\n[link.wifi]\ndown = \"24mbit\"\ndelay = \"4ms\"\n\
         [link.lte]\ndown = \"12mbit\"\ndelay = \"9ms\"\n\
         [host.origin]\nnames = [\"www.lab@lte\"]\nserve = ['{}']\n",
        testbed.nginx()
    );
    let path = testbed.path("scenario.toml");
    std::fs::write(&path, scenario).expect("room for a scenario");
    let finished = testbed.run_with(
        &["--scenario", &path.display().to_string()],
        "url=https://www.lab/object; get --via wifi $url 2>without; \
         get --json --via wifi --dns wifi=10.64.2.1 $url && whole && \
         both get --json --dns wifi=10.64.1.2,10.64.2.1 $url && whole && \
         manyways paths --json >paths && get --dns moon=10.64.2.1 $url 2>moon; echo $? >code",
    );
    let transfers = Transfer::all(&finished.expect_success().stdout);
    assert_eq!(transfers.len(), 2);
    transfers[0].assert_paths(&["wifi"]);
    transfers[1].assert_paths(&["wifi", "lte"]);
    assert!(testbed.read("without").contains("the name www.lab"), "{}", testbed.read("without"));
    assert!(testbed.read("paths").contains("\"dns_source\":\"lab\""), "{}", testbed.read("paths"));
    let moon = testbed.read("moon");
    assert!(moon.contains("no network called \"moon\"") && moon.contains("lte"), "{moon}");
    assert_eq!(testbed.read("code"), "2\n");
}

#[test]
fn the_help_has_headings_and_says_nothing_of_measurements() {
    let help = finish(manyways().args(["get", "--help"])).expect_success().stdout;
    for heading in ["Files:", "Networks:", "The server:", "Scheduling:", "Examples:"] {
        assert!(help.lines().any(|line| line == heading), "no {heading} in {help}");
    }
    assert!(help.contains("--scheduler") && !help.contains("--chunk"), "{help}");
    let completion = finish(manyways().args(["completions", "zsh"])).expect_success().stdout;
    assert!(completion.contains("--http2-prior-knowledge") && completion.contains("mptcp"));
    for hidden in ["--warm-up", "--stop-after"] {
        assert!(!help.contains(hidden), "{help}");
    }
}
