//! Kills, full disks, and the archives that they leave.

use std::fs;

use manyways_tests::testbed::{eventually, eventually_gone};
use manyways_tests::{Need, Running, manyways, needs, shared_host};

use crate::internet::Internet;

const NEEDS: Need<'static> =
    Need::All(&[Need::Root, Need::Command("nginx"), Need::Command("caddy"), Need::Command("curl")]);

#[test]
fn a_killed_recorder_leaves_what_can_be_repaired() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    internet.put("x", b"content");
    let done = internet.run(
        "$RECORD -o a.zip -- sh -c 'curl -sS https://www.example.test/x >first; touch recorded; exec sleep 1000' & pid=$!
         eventually test -e recorded; eventually test -s a.zip.journal
         kill -KILL $pid; wait $pid
         manyways record check a.zip 2>&1
         $RECORD -o a.zip -- true 2>&1
         manyways record check --repair a.zip 2>&1; ls *.journal 2>/dev/null; true",
    );
    let done = done.expect_success();
    assert!(
        done.stdout.contains("complete it with `manyways record check --repair a.zip`"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("a.zip already exists"), "{}", done.stdout);
    assert!(
        done.stdout.ends_with("a.zip: 1 exchange, 1 connection, no problems\n"),
        "{}",
        done.stdout
    );
    assert_eq!(internet.show("a.zip")["list"][0]["url"], "https://www.example.test/x");
}

#[test]
fn traffic_goes_on_when_the_disk_is_full() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    let big: Vec<u8> =
        (0..4_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    internet.put("big", &big);
    internet.put("small", b"content");
    let done = internet.run(
        "mkdir disk; mount -t tmpfs -o size=2m none disk || exit 3
         $RECORD -o disk/a.zip -- sh -c '
            curl -sS https://www.example.test/small -o 1
            curl -sS https://www.example.test/big -o 2
            curl -sS https://cdn.example.test/small -o 3'
         cmp root/small 1; cmp root/big 2; cmp root/small 3
         manyways record check disk/a.zip && cp disk/a.zip .; umount disk",
    );
    let done = done.expect_success();
    assert!(
        done.stdout.ends_with("a.zip: 3 exchanges, 3 connections, no problems\n"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert!(done.stderr.contains("of 1 body only the length was recorded"), "{}", done.stderr);
    let har = internet.har("a.zip");
    let sizes: Vec<_> = har["log"]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["response"]["bodySize"].as_u64().unwrap(),
                one["response"]["content"]["text"].is_string(),
            )
        })
        .collect();
    assert_eq!(sizes, [(7, true), (4_000_000, false), (7, true)]);
}

#[test]
fn a_signal_ends_the_command_and_keeps_the_recording() {
    needs!(NEEDS, Need::Command("python3"));
    let folder = manyways_tests::folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("page"), "content").unwrap();
    let _guard = shared_host();
    let mut command = manyways();
    command.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path());
    command.args(["record", "-o", "a.zip", "--far", "exec python3 -m http.server 80", "--"]);
    command.args(["sh", "-c", "curl -s http://origin.lab/page >got; touch ready; exec sleep 1000"]);
    let mut running = Running::start(&mut command);
    eventually("the page is recorded", || path("ready").exists().then_some(()));
    running.signal(nix::sys::signal::Signal::SIGTERM);
    let status = running.wait(manyways_tests::testbed::PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(143));
    assert_eq!(fs::read(path("got")).unwrap(), b"content");
    let har = fs::read(path("a.zip")).unwrap();
    assert!(har.starts_with(b"PK") && !path("a.zip.journal").exists());
    eventually_gone("the spool and the drafts", || {
        let all = fs::read_dir(folder.path()).unwrap();
        let hidden =
            all.filter(|one| one.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
        hidden.count() == 0
    });
}
