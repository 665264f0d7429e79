//! A lab leaves no traces, independent of how it ends.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::{Need, fault, finish, manyways, needs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::running::{
    Lab, PATIENCE, TWO_LINKS, alone, eventually, eventually_gone, lab_shell, name, nginx,
    processes_of, script_in,
};

const ALLOWED_CC: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// State of the host that a lab could change, without state that other labs change concurrently.
fn host() -> String {
    let look = "ip netns; ip -o link; ip -o addr show lo; ip route show table all; ip -6 route show table all; ip rule; \
                ip -6 rule; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward; \
                cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_rmem \
                    /proc/sys/net/ipv4/conf/all/rp_filter /etc/resolv.conf /etc/hosts";
    let output = finish(Command::new("sh").args(["-c", look])).stdout;
    // The kernel counts down the lifetime of routes.
    output
        .lines()
        .map(|line| line.split(" expires ").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The network namespaces of all processes.
fn namespaces() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok()).collect()
}

/// The folder and the namespaces of a lab, which must be removed with it.
struct LabState {
    name: String,
    folder: PathBuf,
    namespaces: Vec<PathBuf>,
    host: String,
}

impl LabState {
    fn of(lab: &Lab, host: String) -> Self {
        let look = "readlink /proc/self/ns/net";
        let both = [lab.device(look), lab.host("origin", look)];
        Self {
            name: lab.name.clone(),
            folder: lab.folder(),
            namespaces: both.map(|done| done.expect_success().stdout.trim().into()).into(),
            host,
        }
    }

    /// Asserts that everything except the folder is removed, at once or within [`PATIENCE`].
    fn assert_removed(&self) {
        eventually_gone("processes of the lab", || processes_of(&self.name).is_empty());
        eventually_gone("namespaces of the lab", || {
            let there = namespaces();
            !self.namespaces.iter().any(|one| there.contains(one))
        });
        let now = host();
        fault!(now == self.host, "the host differs:\n{now}\nbefore:\n{}", self.host);
    }
}

/// A numeric field of the lab's record.
fn record_field(folder: &Path, what: &str) -> i32 {
    let text = fs::read(folder.join("lab.json")).expect("the lab's record");
    let record: serde_json::Value = serde_json::from_slice(&text).expect("it is JSON");
    record[what].as_i64().expect("a number") as i32
}

#[test]
fn after_success_and_failure() {
    needs!(Need::Root, Need::Command("nginx"), Need::Command("nft"));
    let before = host();
    let [far, nginx] = nginx();
    for (script, code) in
        [("true", 0), ("setsid sleep 1000 >/dev/null 2>&1 & exit 4", 4), ("kill -9 $$", 137)]
    {
        let name = name("end");
        let options = [&TWO_LINKS[..], &["--name", &name, &far, &nginx]].concat();
        let look = format!("echo $LAB_DIR; {script}");
        let done = script_in(&options, &look);
        assert_eq!(done.code(), code, "{}", done.stderr);
        // Immediately, because the next command must not meet processes of the previous one.
        let left = processes_of(&name);
        fault!(left.is_empty(), "processes of the lab remain: {left}");
        fault!(!Path::new(done.stdout.trim()).exists(), "the folder {} remains", done.stdout);
        fault!(host() == before, "the host differs:\n{}\nbefore:\n{before}", host());
    }
}

#[test]
fn after_signals_to_the_lab() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let before = host();
        let mut lab = Lab::start(&TWO_LINKS);
        let traces = LabState::of(&lab, before);
        lab.process.signal(signal);
        let status = lab.process.wait(PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
        fault!(!traces.folder.exists(), "the folder remains after {signal}");
        traces.assert_removed();
    }
}

/// The lab cannot clean up; the next lab or `lab gc` does.
// Alone: it reads kernel settings that all labs share.
#[test]
fn after_sigkill_of_the_lab() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"));
    let _guard = alone();
    // Remains of another killed lab would be removed below, too.
    finish(manyways().args(["lab", "gc"])).expect_success();
    let before = host();
    let allowed = fs::read_to_string(ALLOWED_CC).expect("a list");
    let far = ["--far-host", "93.184.216.34,name=a.example,extra-rtt=40ms"];
    let far = [&far[..], &["--far-host", "2606:2800:220::1,extra-rtt=40ms"]].concat();
    let mut lab = Lab::start_alone(&[&TWO_LINKS[..], &far].concat());
    let traces = LabState::of(&lab, before);
    assert!(fs::read_to_string(ALLOWED_CC).unwrap().contains("cubic"));
    lab.process.signal(Signal::SIGKILL);
    lab.process.wait(PATIENCE).expect("it ends");
    traces.assert_removed();
    assert!(traces.folder.exists(), "a killed lab cannot remove its folder");
    let output = finish(manyways().args(["lab", "gc"])).expect_success().stdout;
    assert!(output.contains(&format!("removed {}", traces.name)), "{output}");
    fault!(!traces.folder.exists(), "the folder remains");
    // Another running lab may still need it.
    eventually("the allowed congestion controls are as before", || {
        (fs::read_to_string(ALLOWED_CC).unwrap() == allowed).then_some(())
    });

    // The name is free, and a starting lab needs no `gc` before it.
    let mut second = Lab::start_alone(&TWO_LINKS);
    second.process.signal(Signal::SIGKILL);
    second.process.wait(PATIENCE).expect("it ends");
    let left = second.name.clone();
    let words = ["--name", &left, "--", "true"];
    finish(lab_shell(&TWO_LINKS).args(words)).expect_success();
}

#[test]
fn after_sigkill_of_its_first_process() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"));
    let before = host();
    let mut lab = Lab::start(&TWO_LINKS);
    let traces = LabState::of(&lab, before);
    let init = record_field(&traces.folder, "init");
    kill(Pid::from_raw(init), Signal::SIGKILL).expect("it is there");
    let status = lab.process.wait(PATIENCE).expect("its command is gone, so it ends");
    assert_eq!(status.code(), Some(137));
    fault!(!traces.folder.exists(), "the folder remains");
    traces.assert_removed();
}

/// A second command in a lab ends with the lab.
#[test]
fn after_sigkill_while_somebody_is_in() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nft"));
    let before = host();
    let mut lab = Lab::start(&TWO_LINKS);
    let traces = LabState::of(&lab, before);
    let mut command = manyways();
    let words = ["lab", "enter", &lab.name, "--host", "origin", "--", "sleep", "1001"];
    let mut guest = manyways_tests::Running::start(command.args(words));
    eventually("the guest is in", || processes_of(&lab.name).contains("sleep 1001").then_some(()));
    lab.process.signal(Signal::SIGKILL);
    let status = guest.wait(PATIENCE).expect("its command is gone, so it ends");
    assert_eq!(status.code(), Some(137));
    lab.process.wait(PATIENCE).expect("it ends");
    traces.assert_removed();
    finish(manyways().args(["lab", "gc"])).expect_success();
    fault!(!traces.folder.exists(), "the folder remains");
}

/// The end of a lab does not affect another lab.
#[test]
fn two_labs_at_once() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let (first, second) = (Lab::start(&TWO_LINKS), Lab::start(&TWO_LINKS));
    drop(first);
    second.device("ping -q -c 1 -W 30 -I lte origin.lab").expect_success();
    assert!(fs::read_to_string(ALLOWED_CC).unwrap().contains("cubic"));
    finish(manyways().args(["lab", "gc"])).expect_success();
    second.device("ls $LAB_DIR/hosts").expect_success();
}

#[test]
fn orphans_leave_no_zombies() {
    needs!(Need::Root, Need::Command("ip"));
    // Time: five different ones, of any length. Each inner shell ends before its child, whose parent is then the
    // first process of the lab.
    let script = "for i in 1 2 3 4 5; do sh -c 'sh -c \"sleep 0.0$1\" & exit' - $i; done; \
                  orphans() { grep -l '^PPid:.1$' $(grep -l '^Name:.\\(sleep\\|sh\\)' /proc/[0-9]*/status) 2>/dev/null | grep -v /$$/; }; \
                  while [ -n \"$(orphans)\" ]; do :; done; \
                  cat /proc/[0-9]*/status | grep -c '^State:.Z'";
    let done = script_in(&TWO_LINKS, script);
    assert_eq!(done.stdout, "0\n", "{}", done.stderr);
}
