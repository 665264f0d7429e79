//! Coupled congestion control of MPTCP, which `scripts/lia` registers in the kernel.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::{Finished, Need, Running, finish, folder, manyways, needs};

use crate::running::{Lab, eventually, eventually_gone, nginx_script};

/// A path of this repository.
fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

/// A congestion control under a name of this process, unregistered when the value is dropped.
struct Coupled(String);

impl Coupled {
    fn script(&self, action: &str) -> Finished {
        finish(Command::new(path("scripts/lia")).args([action, "--name", &self.0]))
    }

    fn status(&self) -> String {
        self.script("status").stdout
    }

    fn is_available(&self) -> bool {
        let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        list.expect("the kernel has TCP").split_whitespace().any(|name| name == self.0)
    }
}

impl Drop for Coupled {
    fn drop(&mut self) {
        self.script("stop");
    }
}

#[test]
fn the_subflows_of_a_download_are_coupled() {
    needs!(
        Need::Root,
        Need::Command("clang"),
        Need::Command("bpftool"),
        Need::Command("mptcpize"),
        Need::Command("nginx"),
        Need::Command("curl"),
        Need::File("/usr/include/bpf/bpf_helpers.h"),
        Need::File("/sys/kernel/btf/vmlinux"),
        Need::File("/proc/sys/net/mptcp/enabled"),
    );
    let coupled = Coupled(format!("lia_{}", std::process::id()));
    assert_eq!(coupled.script("status").code(), 1);
    for _ in 0..2 {
        let printed = coupled.script("start").expect_success().stdout;
        assert_eq!(printed.trim_end(), coupled.0);
        assert!(coupled.is_available());
    }

    let far = format!("mptcpize run sh {} origin", nginx_script());
    let links = ["--link", "wifi:down=16mbit,delay=10ms", "--link", "lte:down=8mbit,delay=30ms"];
    let lab = Lab::start(&[&links[..], &["--cc", &coupled.0, "--far", &far]].concat());
    // In the middle of the download, both links wait for this test.
    for (link, bytes) in [("wifi", "1MB"), ("lte", "300KB")] {
        let when = format!("{link}.down_bytes >= {bytes}");
        lab.set(&["--when", &when, link, "state=paused"]).expect_success();
    }
    let fetch = "mptcpize run curl -sS -o /dev/null http://198.18.0.1/8M";
    let words = ["lab", "enter", &lab.name, "--", "sh", "-c", fetch];
    let fetching = Running::start(manyways().args(words));
    // Two of the server, and that with the request of the client.
    let middle = "3 subflows of 2 MPTCP sockets are coupled";
    eventually("coupled subflows", || coupled.status().contains(middle).then_some(()));
    for link in ["wifi", "lte"] {
        lab.set(&["--cancel", link]);
        lab.set(&[link, "state=up"]).expect_success();
    }
    eventually_gone("entries of ended subflows", || {
        coupled.status().contains("; 0 subflows of 0 ")
    });
    drop((fetching, lab));

    for _ in 0..2 {
        coupled.script("stop").expect_success();
        assert!(!coupled.is_available());
    }
    let found = || finish(Command::new("bpftool").args(["map", "show"])).expect_success().stdout;
    eventually_gone("maps", || !found().contains(&coupled.0));
    // Another checkout may compile at the moment.
    eventually_gone("files", || !Path::new("/run/manyways-lia").exists());
}

#[test]
fn a_name_that_exists_is_refused() {
    needs!(Need::Root, Need::Command("clang"), Need::Command("bpftool"));
    for action in ["start", "stop"] {
        let done = Coupled("reno".into()).script(action);
        assert_eq!(done.code(), 1);
        assert!(done.stderr.contains("\nhint: "), "{}", done.stderr);
    }
    assert!(Coupled("reno".into()).is_available());
}

/// Prints the growth for each line of windows and round-trip times: `2 10 20000 30 40000`.
const DRIVER: &str = r#"
#include <stdint.h>
#include <stdio.h>
typedef uint32_t u32;
typedef uint64_t u64;
#include "growth.h"
int main(void) {
    u32 count, window, rtt;
    while (scanf("%u", &count) == 1) {
        struct lia_subflow all[LIA_MAX_SUBFLOWS] = {};
        for (u32 i = 0; i < count && scanf("%u %u", &window, &rtt) == 2; i++)
            all[i * 5 % LIA_MAX_SUBFLOWS] = lia_subflow(window, rtt);
        printf("%u\n", lia_packets_for_growth(all));
    }
}
"#;

/// RFC 6356, 3, in floating point: cwnd_total / alpha, with values within the limits.
fn exact(subflows: &[(u32, u32)]) -> f64 {
    let rates = subflows.iter().map(|(window, rtt)| f64::from(*window) / f64::from(*rtt));
    let best = subflows.iter().map(|(window, rtt)| f64::from(*window) / f64::from(*rtt).powi(2));
    rates.sum::<f64>().powi(2) / best.fold(0.0, f64::max)
}

#[test]
fn the_growth_is_that_of_the_rfc() {
    needs!(Need::Command("cc"));
    let build = folder();
    let [source, binary] = ["driver.c", "driver"].map(|name| build.path().join(name));
    fs::write(&source, DRIVER).expect("room for a file");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-I"]).arg(path("bench/lia"));
    finish(compiler.arg("-o").arg(&binary).arg(&source)).expect_success();

    // One subflow grows as Reno, and two equal ones together half as fast as one with both windows.
    let most = (u32::MAX, u32::MAX);
    let known = [
        (vec![(10, 20_000)], 10.0),
        (vec![(10, 20_000); 2], 40.0),
        // Values above the limits: 2^18 packets.
        (vec![most; 16], 256.0 * 262_144.0),
        (vec![most, (1, u32::MAX)], 262_147.0),
    ];
    let mut cases = Vec::new();
    // Each value below the limits is drawn evenly by its number of bits, so that all sizes meet.
    let mut state = 1_u64;
    let mut draw = |bits: u32| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = (state >> 33) as u32;
        (high & ((1 << ((high >> 24) % bits)) - 1)) + 1
    };
    for count in (1..=16).cycle().take(2_000) {
        cases.push((0..count).map(|_| (draw(18), draw(22))).collect());
    }
    let mut lines = String::new();
    for case in known.iter().map(|(case, _)| case).chain(&cases) {
        let _ = write!(lines, "{}", case.len());
        for (window, rtt) in case {
            let _ = write!(lines, " {window} {rtt}");
        }
        lines.push('\n');
    }
    let input = build.path().join("input");
    fs::write(&input, lines).expect("room for a file");
    let mut driver = Command::new("sh");
    driver.args(["-c", "\"$0\" <\"$1\""]).args([&binary, &input]);
    let printed = finish(&mut driver).expect_success().stdout;
    let found: Vec<f64> = printed.lines().map(|line| line.parse().expect("a number")).collect();
    let expected: Vec<f64> = known.iter().map(|(_, growth)| *growth).collect();
    assert_eq!(found[..known.len()], expected);
    assert_eq!(found.len(), known.len() + cases.len());
    for (found, case) in found.into_iter().skip(known.len()).zip(cases) {
        let exact = exact(&case);
        // Rounded up; a term loses less than 1/512 of a packet.
        assert!((exact * 0.98..exact + 1.01).contains(&found), "{found}, not {exact}: {case:?}");
    }
}
