//! The choice of networks in unnamed namespaces.

mod killed;
mod measure;
mod others;
mod testbed;

use std::fs;
use std::net::SocketAddr;

use manyways_unit::{Prefix, Span};
use testbed::{
    BLOCK, OTHER, Testbed, V4, V6, ask, ask_datagram, ask_with, assert_all, datagrams, names,
    networks, tcp, udp,
};

use super::*;
use crate::tproxy::tests::testbed::{connect, installed_state, ip};

/// Longer than any test.
const LIFETIME: Span = Span::from_secs(600);

fn sorted(state: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = state.lines().collect();
    lines.sort();
    lines
}

fn install() -> Egress {
    Egress::install(names(), &networks(), LIFETIME).unwrap()
}

#[test]
fn new_flows_use_the_selected_network_and_running_ones_stay() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut older = connect(V4).unwrap();
        let mut egress = install();
        assert_eq!(egress.refresh().unwrap(), [""; 0]);
        assert_all("wan");
        let (mut first, first_datagrams) = (connect(V6).unwrap(), datagrams(V4));
        assert_eq!(
            (ask(&mut first).unwrap(), ask_datagram(&first_datagrams)),
            ("wan".into(), "wan".into())
        );
        egress.select(Some("cell")).unwrap();
        assert_all("cell");
        let (mut second, second_datagrams) = (connect(V4).unwrap(), datagrams(V6));
        assert_eq!(ask(&mut second).unwrap(), "cell");
        assert_eq!(ask_datagram(&second_datagrams), "cell");
        for selected in [Some("wan"), None, Some("cell")] {
            egress.select(selected).unwrap();
            egress.refresh().unwrap();
            assert_all(selected.unwrap_or("wan"));
            for stream in [&mut older, &mut first] {
                assert_eq!(ask(stream).unwrap(), "wan");
            }
            assert_eq!(ask_datagram(&first_datagrams), "wan");
            assert_eq!(ask(&mut second).unwrap(), "cell");
            assert_eq!(ask_datagram(&second_datagrams), "cell");
        }
        let unknown = egress.select(Some("lan")).unwrap_err();
        assert!(matches!(unknown, Error::UnknownNetwork { .. }), "{unknown}");
    });
}

#[test]
fn a_flow_without_answers_stays_too() {
    let Some(testbed) = Testbed::new() else { return };
    for to in [V4, V6].map(|server| SocketAddr::new(server.ip(), 82)) {
        let server = testbed.server_socket(to);
        testbed.run(|| {
            let mut egress = install();
            let flow = datagrams(to);
            let source = || {
                flow.send(b"data").unwrap();
                server.recv_from(&mut [0; 4]).unwrap().1
            };
            let before = source();
            egress.select(Some("cell")).unwrap();
            assert_eq!(source(), before);
        });
    }
}

#[test]
fn a_destination_has_its_own_network_for_a_time() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let wide = [prefix("203.0.113.0/24"), prefix("2001:db8:113::/48")];
        egress.select_for(&wide, "cell", LIFETIME).unwrap();
        egress.select_for(&[OTHER.ip().into()], "wan", LIFETIME).unwrap();
        assert_all("cell");
        assert_eq!((tcp(OTHER), udp(OTHER)), ("wan".into(), "wan".into()));
        egress.select(Some("cell")).unwrap();
        assert_eq!(tcp(OTHER), "wan", "the destination comes before the default");
        egress.forget(&[OTHER.ip().into()]).unwrap();
        egress.select(Some("wan")).unwrap();
        assert_eq!(tcp(OTHER), "cell", "the wider prefix");
        egress.select_for(&wide, "cell", Span::from_millis(50)).unwrap();
        // The kernel removes it, without a call.
        while tcp(V4) != "wan" {}
        while udp(V6) != "wan" {}
    });
}

#[test]
fn a_point_to_point_link_needs_no_gateway_and_a_family_without_one_is_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let [wan, _] = networks();
        let ppp = EgressNetwork::point_to_point("ppp", true, false, 0xf00_0000);
        let mut egress = Egress::install(names(), &[wan, ppp], LIFETIME).unwrap();
        egress.select(Some("ppp")).unwrap();
        assert_eq!((tcp(V4), udp(V4)), ("ppp".into(), "ppp".into()));
        assert_eq!((tcp(V6), udp(V6)), ("wan".into(), "wan".into()));
    });
}

#[test]
fn a_lost_interface_leaves_new_flows_to_the_host_until_it_returns() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        assert_all("cell");
        ip("link set cell down");
        assert_all("wan");
        let (mut meanwhile, flow) = (connect(V4).unwrap(), datagrams(V6));
        assert_eq!(
            (ask(&mut meanwhile).unwrap(), ask_datagram(&flow)),
            ("wan".into(), "wan".into())
        );
        assert_eq!(egress.refresh().unwrap(), ["cell"]);
        ip("link set cell up");
        // A manual address of IPv6 is lost with the link.
        ip("-6 addr replace 2001:db8:52::1/64 dev cell nodad");
        while !egress.refresh().unwrap().is_empty() {}
        // The neighbours resolve again.
        while tcp(V6) != "cell" {}
        assert_all("cell");
        assert_eq!(ask(&mut meanwhile).unwrap(), "wan", "it stays");
        assert_eq!(ask_datagram(&flow), "wan");

        ip("link del cell");
        assert_all("wan");
        assert_eq!(egress.refresh().unwrap(), ["cell"]);
        egress.remove().unwrap();
    });
}

#[test]
fn the_hosts_new_default_network_is_followed_after_a_refresh() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        egress.select(Some("wan")).unwrap();
        let mut running = connect(V4).unwrap();
        assert_eq!(ask(&mut running).unwrap(), "wan");
        ip("route replace default via 198.51.101.2");
        ip("-6 route replace default via 2001:db8:52::2");
        egress.refresh().unwrap();
        assert_all("wan");
        assert_eq!(ask(&mut running).unwrap(), "wan");
        egress.select(None).unwrap();
        assert_all("cell");
        assert_eq!(ask(&mut running).unwrap(), "wan");
    });
}

#[test]
fn large_transfers_pass_a_network_with_small_packets() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        // Only at this end: the server offers large segments.
        ip("link set cell mtu 1280");
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        for to in [V4, V6] {
            let mut stream = connect(to).unwrap();
            assert_eq!(ask_with(&mut stream, &[1; BLOCK]).unwrap(), "cell");
        }
        assert_eq!(too_large(), 0, "segments fit at once");
        // Without this, segments are too large, and the kernel learns the size from itself.
        tproxy::command::nft("flush chain inet manyways-steer segments\n").unwrap();
        for to in [V4, V6] {
            let mut stream = connect(to).unwrap();
            assert_eq!(ask_with(&mut stream, &[1; BLOCK]).unwrap(), "cell");
            assert_eq!(tcp(to), "cell", "what it learned applies to its own route");
        }
        assert_ne!(too_large(), 0);
    });
}

/// Returns the number of packets that were too large for their interface.
fn too_large() -> u64 {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let v4 = read("snmp");
    let mut rows = v4.lines().filter(|line| line.starts_with("Ip:"));
    let mut columns = rows.next().unwrap().split(' ').zip(rows.next().unwrap().split(' '));
    let v4 = columns.find(|(name, _)| *name == "FragFails").unwrap().1.parse::<u64>().unwrap();
    let v6 = read("snmp6");
    let row = v6.lines().find(|line| line.starts_with("Ip6FragFails")).unwrap();
    v4 + row.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

#[test]
fn strict_reverse_path_filters_are_passed_or_refused() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let set = |name: &str| fs::write(format!("/proc/sys/net/ipv4/conf/cell/{name}"), "1");
        set("rp_filter").unwrap();
        let before = installed_state();
        let refused = Egress::install(names(), &networks(), LIFETIME).unwrap_err();
        assert!(matches!(refused, Error::StrictReversePath { .. }), "{refused}");
        assert_eq!(installed_state(), before);
        // A setting of VPNs.
        set("src_valid_mark").unwrap();
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        assert_all("cell");
    });
}

#[test]
fn removal_leaves_the_host_as_it_was() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        tproxy::command::nft("table inet other {\nset s {\ntype ipv4_addr\n}\n}\n").unwrap();
        let before = installed_state();
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        let selected = installed_state();
        assert_ne!(selected, before);
        egress.set_networks(&networks()[1..]).unwrap();
        egress.set_networks(&networks()).unwrap();
        egress.refresh().unwrap();
        // The kernel keeps the order in which rules of one preference were added.
        assert_eq!(sorted(&installed_state()), sorted(&selected));
        egress.remove().unwrap();
        assert_eq!(installed_state(), before);
        drop(install());
        assert_eq!(installed_state(), before);
        assert!(!has_leftover(&names()));
        assert!(!remove_leftover(&names()).unwrap());
    });
}

#[test]
fn what_others_remove_is_restored() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        let prefix: Prefix = OTHER.ip().into();
        egress.select_for(&[prefix], "wan", LIFETIME).unwrap();
        let complete = installed_state();
        ip("-4 rule del pref 32765");
        ip("-6 route flush table 4931");
        tproxy::command::nft("flush ruleset\n").unwrap();
        assert_eq!(tcp(V4), "wan");
        assert_eq!(egress.refresh().unwrap(), [""; 0]);
        assert_eq!(sorted(&installed_state()), sorted(&complete));
        assert_all("cell");
        assert_eq!(tcp(OTHER), "wan");
    });
}
