//! Invalid input is rejected with one error and a hint, before the lab is created.

use std::fs;

use manyways_tests::{Finished, Need, finish, folder, needs};

use crate::running::{TWO_LINKS, lab_shell, shared_host};

/// Asserts one error and at most one hint, without any other output.
#[track_caller]
fn refused(done: &Finished, code: i32, message: &str, hint: &str) {
    assert_eq!(done.code(), code, "{}", done.stderr);
    assert_eq!(done.stdout, "");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(lines.len() <= 2, "{}", done.stderr);
    let said = lines[0].strip_prefix("manyways: ").expect("it says who speaks");
    assert!(said.contains(message), "no `{message}` in: {said}");
    let hinted = lines.get(1).copied().unwrap_or_default();
    assert!(hinted.is_empty() || hinted.starts_with("hint: "), "{hinted}");
    assert!(hinted.contains(hint), "no `{hint}` in: {hinted}");
}

fn shell(options: &[&str]) -> Finished {
    let _guard = shared_host();
    finish(lab_shell(options).args(["--", "true"]))
}

#[test]
fn links_that_make_no_sense() {
    for (link, message, hint) in [
        ("", "cannot name a link", "write a link like"),
        ("Wifi", "`Wifi` cannot name a link", "write a link like"),
        ("lo", "`lo` cannot name a link", "choose a name like lo1"),
        ("all", "`all` cannot name a link", "choose a name like all1"),
        ("default:delay=1ms", "`default` cannot name a link", "choose a name like default1"),
        ("wifi:delay=20h", "at most 1h", ""),
        ("averylongname", "`averylongname` cannot name a link", "write a link like"),
        ("wifi:down", "`down` is not a setting of a link", "write a link like"),
        ("wifi:donw=1mbit", "a link has no key `donw`", "did you mean `down`?"),
        ("wifi:colour=red", "a link has no key `colour`", "the keys are down, up, "),
        ("wifi:down=1mbit,down=2mbit", "`down` is given twice", ""),
        ("wifi:down=fast", "down: ", ""),
        ("wifi:down=-1mbit", "down: ", ""),
        ("wifi:delay=1", "delay: ", ""),
        ("wifi:loss=101%", "loss: ", ""),
        ("wifi:loss=ge:1%", "loss: ", ""),
        ("wifi:queue=12", "queue: ", ""),
        ("wifi:aqm=red", "aqm: ", ""),
        ("wifi:mtu=1000", "mtu: ", ""),
        ("wifi:state=down", "state: ", ""),
        ("wifi:middlebox=proxy", "middlebox: ", ""),
        ("wifi:shares=My air", "shares: `My air` is not an air", ""),
        ("lte:shares=home", "link `lte` cannot share an air", "use a name like wifi2 or bt0"),
    ] {
        refused(&shell(&["--link", link]), 2, message, hint);
    }
}

#[test]
fn labs_that_make_no_sense() {
    let wifi = ["--link", "wifi"];
    let with = |more: &[&'static str]| shell(&[&wifi[..], more].concat());
    refused(&shell(&[]), 2, "a lab needs at least one link", "--link wifi:");
    refused(&with(&["--host", "a b"]), 2, "`a b` cannot name a host", "write a host like");
    refused(
        &with(&["--host", "far:lte=1ms"]),
        2,
        "the link `lte`, which does not exist",
        "host like",
    );
    refused(&with(&["--host", "far:wifi=20h"]), 2, "at most 1h", "write a host like");
    refused(&with(&["--host", "far:wifi"]), 2, "`wifi` is not LINK=DELAY", "write a host like");
    refused(&with(&["--name", "../x"]), 2, "`../x` cannot name a lab", "at most 40 letters");
    refused(&with(&["--name", "lock"]), 2, "`lock` cannot name a lab", "at most 40 letters");
}

#[test]
fn labs_that_cannot_be_built() {
    needs!(Need::Root, Need::Command("ip"));
    refused(&shell(&["--link", "wifi", "--link", "wifi"]), 2, "two links are called `wifi`", "");
    let hosts = ["--link", "wifi", "--host", "a", "--host", "a"];
    refused(&shell(&hosts), 2, "two hosts are called `a`", "");
    let done = shell(&[&TWO_LINKS[..], &["--cc", "no-such-cc"]].concat());
    refused(&done, 1, "TCP congestion control `no-such-cc` cannot be used", "choose another one");
    let done = finish(lab_shell(&TWO_LINKS).args(["--", "/no/such/command"]));
    assert_eq!(done.code(), 127, "as a shell says it");
    let message = "manyways: cannot run `/no/such/command` in the lab: No such file";
    assert!(done.stderr.contains(message), "{}", done.stderr);
    let done = shell(&[&TWO_LINKS[..], &["--far", "exit 3"]].concat());
    refused(&done, 1, "the far command `exit 3` ended immediately (exit status: 3)", "/bin/sh -c");
    let done = shell(&[&TWO_LINKS[..], &["--far", "@nobody sleep 1000"]].concat());
    refused(&done, 2, "there is no far host `nobody`", "--host");
    let done = shell(&[&TWO_LINKS[..], &["--timeline", "/nowhere/log"]].concat());
    refused(&done, 1, "cannot write /nowhere/log", "");
    let done = shell(&[&TWO_LINKS[..], &["--pcap", "/dev/null/captures"]].concat());
    refused(&done, 1, "cannot make the folder /dev/null/captures", "");
}

#[test]
fn traces_that_are_none() {
    let files = folder();
    for (name, text, message) in [
        ("empty", "", ""),
        ("blank", "\n\n", ""),
        ("words", "this is no trace\n", ""),
        ("backwards.down", "5\n3\n", ""),
        ("zero.down", "0\n0\n", ""),
        ("half.json", "[{\"duration_ms\": 840, \"bandwidth_kbps\": ", ""),
        ("other.json", "{\"name\": \"x\"}", ""),
        ("minus.json", "[{\"duration_ms\": -1, \"bandwidth_kbps\": 5}]", ""),
        ("missing-column.mbps", "1 2\n3\n", ""),
    ] {
        let file = files.path().join(name);
        fs::write(&file, text).unwrap();
        let done = shell(&["--link", &format!("wifi:down=trace:{}", file.display())]);
        refused(&done, 2, &format!("down: `{}`: {message}", file.display()), "");
    }
    refused(&shell(&["--link", "wifi:up=trace:/nowhere"]), 2, "up: cannot read `/nowhere`", "");
    let folder = format!("wifi:delay=trace:{}", files.path().display());
    refused(&shell(&["--link", &folder]), 2, "delay: cannot read", "");
}
