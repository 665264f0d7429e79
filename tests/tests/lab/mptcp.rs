//! The kernel's Multipath TCP over the links.

use manyways_tests::{Finished, Need, finish, folder, manyways, needs};

use crate::running::{Lab, eventually, nginx_script, script_in};

/// Prints the subflows of a namespace, one line each, as `ss` describes them.
const SUBFLOWS: &str = "ss -tniH state established | paste -d ' ' - - | grep tcp-ulp-mptcp || true";

fn far() -> String {
    format!("mptcpize run sh {} origin", nginx_script())
}

/// The programs and rights that each of these tests needs.
const NEEDS: Need = Need::All(&[
    Need::Root,
    Need::File("/proc/sys/net/mptcp/enabled"),
    Need::Command("mptcpize"),
    Need::Command("nginx"),
    Need::Command("curl"),
    Need::Command("ss"),
    Need::Command("nstat"),
    Need::Command("paste"),
]);

#[test]
fn every_subflow_has_the_congestion_control_at_both_ends() {
    needs!(NEEDS);
    let lab = Lab::start(&[
        "--link",
        "wifi:down=8mbit,up=4mbit,delay=10ms",
        "--link",
        "lte:down=4mbit,up=2mbit,delay=30ms",
        "--far",
        &far(),
    ]);
    let fetch = "mptcpize run curl -sS -o /dev/null http://198.18.0.1/8M";
    let words = ["lab", "enter", &lab.name, "--", "sh", "-c", fetch];
    let _fetching = manyways_tests::Running::start(manyways().args(words));

    let both = |seen: &str| seen.contains("10.64.1.2") && seen.contains("10.64.2.2");
    let look = |done: Finished| Some(done.expect_success().stdout).filter(|seen| both(seen));
    let near = eventually("a subflow on each link", || look(lab.device(SUBFLOWS)));
    let far = eventually("the same on the far side", || look(lab.host("origin", SUBFLOWS)));
    for seen in [near, far] {
        for subflow in seen.lines() {
            assert!(subflow.contains(" cubic "), "{subflow}");
        }
    }
    // Both subflows carry data in addition to their handshakes.
    eventually("a megabyte over each link", || {
        let counters =
            "cat /sys/class/net/wifi/statistics/rx_bytes /sys/class/net/lte/statistics/rx_bytes";
        let seen = lab.device(counters).expect_success().stdout;
        seen.lines().all(|bytes| bytes.parse::<u64>().is_ok_and(|b| b > 1_000_000)).then_some(())
    });
}

#[test]
fn a_stripped_option_falls_back_to_tcp() {
    needs!(NEEDS);
    for (middlebox, fallbacks) in [("strip-mptcp", 1), ("none", 0)] {
        let seen = script_in(
            &["--link", &format!("wifi:delay=1ms,middlebox={middlebox}"), "--far", &far()],
            "mptcpize run curl -sS -o /dev/null -w '%{size_download}\n' http://198.18.0.1/1M; \
             nstat -asz MPTcpExtMPCapableFallbackSYNACK MPTcpExtMPCapableSYNTX | awk '{print $1, $2}'",
        )
        .expect_success()
        .stdout;
        assert!(seen.starts_with("1000000\n"), "{middlebox}: {seen}");
        assert!(seen.contains("MPTcpExtMPCapableSYNTX 1"), "{middlebox}: {seen}");
        let counter = format!("MPTcpExtMPCapableFallbackSYNACK {fallbacks}");
        assert!(seen.contains(&counter), "{middlebox}: {seen}");
    }
}

/// If it were set late, later subflows would have the host's congestion control.
#[test]
fn the_choice_holds_for_servers_too() {
    needs!(Need::Root, Need::Command("nginx"));
    let said = folder();
    let file = said.path().join("cc").display().to_string();
    let far = format!(
        "cat /proc/sys/net/ipv4/tcp_congestion_control > {file}; exec sh {} origin",
        nginx_script()
    );
    let _guard = crate::running::shared_host();
    let words =
        ["lab", "shell", "--cc", "reno", "--link", "wifi", "--far", &far, "--", "cat", &file];
    assert_eq!(finish(manyways().args(words)).expect_success().stdout, "reno\n");
}
