//! Routes through routers in namespaces.

use manyways_tests::testbed::{Namespace, ip};
use manyways_tests::{Need, finish, manyways, needs};
use serde_json::Value;

use crate::results;
use crate::server::Keys;

/// A client, routers and a server in a row. Between neighbours N and N + 1 is the network
/// `10.0.N.0/24`, in which the near side has the address 1 and the far side 2.
struct Route {
    hosts: Vec<Namespace>,
}

impl Route {
    fn new(routers: usize) -> Self {
        let hosts: Vec<Namespace> = (0..routers + 2).map(|_| Namespace::new()).collect();
        for (index, pair) in hosts.windows(2).enumerate() {
            let (near, far) = (format!("10.0.{index}.1/24"), format!("10.0.{index}.2/24"));
            pair[0].connect(("right", &near), &pair[1], ("left", &far));
        }
        for (index, host) in hosts.iter().enumerate() {
            host.forward();
            host.run(|| {
                ip("link set lo up");
                // Routers do not limit their answers here.
                let limit = "/proc/sys/net/ipv4/icmp_ratelimit";
                std::fs::write(limit, "0").expect("root may change it");
                if index + 1 < hosts.len() {
                    ip(&format!("route add default via 10.0.{index}.2"));
                }
                // The client is reached to the left.
                for network in 0..index.saturating_sub(1) {
                    ip(&format!("route add 10.0.{network}.0/24 via 10.0.{}.1", index - 1));
                }
            });
        }
        Self { hosts }
    }

    fn target(&self) -> String {
        format!("10.0.{}.2", self.hosts.len() - 2)
    }

    /// Runs `manyways probe trace` on the client, with these more words.
    fn trace(&self, more: &[&str]) -> Value {
        let target = self.target();
        let words = ["probe", "trace", &target, "--via", "right", "--json"];
        let done = self.hosts[0].run(|| finish(manyways().args(words).args(more)));
        let trace = results(&done.expect_success()).remove(0);
        assert_eq!(trace["ending"], "complete", "{trace:#}");
        trace
    }
}

#[test]
fn every_method_shows_the_same_routers() {
    needs!(Need::Root, Need::Command("ip"));
    let route = Route::new(6);
    for more in [&[][..], &["--udp"], &["--tcp", "81"]] {
        let trace = route.trace(&[&["--rounds", "3", "--timeout", "5s"][..], more].concat());
        let trace = &trace["trace"];
        assert_eq!(trace["reached"], true, "{trace:#}");
        let hops = trace["hops"].as_array().expect("a list of hops");
        let addresses: Vec<String> = hops.iter().map(|hop| hop["addresses"].to_string()).collect();
        let expected: Vec<String> = (0..7).map(|hop| format!("[\"10.0.{hop}.2\"]")).collect();
        assert_eq!(addresses, expected, "{more:?}: {trace:#}");
    }
}

#[test]
fn a_target_behind_a_silent_router_is_not_made_up() {
    needs!(Need::Root, Need::Command("ip"));
    let route = Route::new(3);
    // The third router forwards nothing.
    route.hosts[3].run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").expect("root may change it");
    });
    let trace = route.trace(&["--rounds", "1", "--max-hops", "6", "--timeout", "500ms"]);
    let trace = &trace["trace"];
    assert_eq!(trace["reached"], false, "{trace:#}");
    let hops = trace["hops"].as_array().expect("a list of hops");
    let answered: Vec<bool> = hops.iter().map(|hop| hop["received"].as_u64() > Some(0)).collect();
    assert_eq!(answered[..2], [true, true], "{trace:#}");
    assert!(answered[2..].iter().all(|answered| !answered), "{trace:#}");
}

#[test]
fn a_user_without_the_right_is_told_which_one() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("setpriv"));
    let route = Route::new(1);
    let target = route.target();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(manyways_tests::manyways_path()).arg("probe").args(words).arg(&target);
        route.hosts[0].run(|| finish(command.args(["--via", "right", "--timeout", "2s"])))
    };
    let traced = run(&["trace"]);
    assert_eq!(traced.code(), 1, "{}", traced.stderr);
    assert!(traced.stdout.contains("CAP_NET_RAW"), "{}", traced.stdout);
    // Handshakes need no right.
    let tcp = run(&["ping", "--tcp", "81", "--count", "2"]);
    assert!(tcp.expect_success().stdout.contains("10.0.1.2"));
}

#[test]
fn a_way_with_a_smaller_mtu_carries_transfers_and_names_datagrams_that_are_too_large() {
    needs!(Need::Root, Need::Command("ip"));
    let route = Route::new(2);
    // Between the routers, so that neither end knows it at first.
    route.hosts[1].run(|| ip("link set right mtu 1280"));
    route.hosts[2].run(|| ip("link set left mtu 1280"));
    let keys = Keys::new();
    let server = format!("{}:7464", route.target());
    let _server = keys.start(&route.hosts[3], &server, &[]);
    let probe = |words: &str| {
        let mut command = keys.probe(words, &server, "client");
        let done = route.hosts[0].run(|| finish(command.args(["--via", "right"])));
        results(&done).remove(0)
    };
    // Before the transfers, from which the kernel learns the MTU.
    let large = probe("udp --up -n 200 --size 1400");
    assert_eq!(large["ending"], "failed", "{large:#}");
    let expected = "datagrams of 1400 bytes are larger than the MTU of the path";
    assert_eq!(large["message"], expected, "{large:#}");
    let small = probe("udp --up -n 200 --size 1200");
    assert_eq!(small["udp"]["received"], 200, "{small:#}");
    for more in ["", "--up"] {
        let transfer = probe(&format!("tcp --max 2MB {more}"));
        assert_eq!(transfer["ending"], "complete", "{transfer:#}");
        assert!(transfer["tcp"]["bytes"].as_u64() > Some(1_000_000), "{transfer:#}");
    }
}
