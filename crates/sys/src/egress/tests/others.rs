//! Settings and choices of users and of other programs.

use std::process::Command;

use super::testbed::{
    ON_LINK, OTHER, Testbed, V4, V6, assert_all, names, networks, tcp, tcp_from, udp,
};
use super::{LIFETIME, install};
use crate::egress::{Egress, EgressNetwork, Error, Names};
use crate::tproxy;
use crate::tproxy::tests::testbed::{Group, ask_tcp_marked, installed_state, ip};

#[test]
fn flows_with_a_choice_of_their_own_are_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        let bound = |name: &'static str| {
            move |socket: &socket2::Socket| socket.bind_device(Some(name.as_bytes()))
        };
        for to in [V4, V6] {
            assert_eq!(tcp_from(to, bound("wan")), "wan");
        }
        egress.select(Some("wan")).unwrap();
        ip("route add default via 198.51.101.2 dev cell metric 9000");
        assert_eq!(tcp_from(V4, bound("cell")), "cell");
        let at = |ip: &'static str| {
            let at = std::net::SocketAddr::new(ip.parse().unwrap(), 0);
            move |socket: &socket2::Socket| socket.bind(&at.into())
        };
        ip("rule add from 198.51.101.1 lookup 102");
        ip("route add default via 198.51.101.2 table 102");
        assert_eq!(tcp_from(V4, at("198.51.101.1")), "cell", "a source address with a rule");
        egress.select(Some("cell")).unwrap();
        ip("addr add 198.51.100.77/32 dev lo");
        assert_eq!(tcp_from(V4, at("198.51.100.77")), "own", "of another interface");
        assert_eq!(tcp_from(V4, |socket| socket.set_mark(5)), "wan");
        assert_eq!(tcp(ON_LINK), "wan");
        assert_eq!(
            ask_tcp_marked("127.0.0.1:9".parse().unwrap(), 0).unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn rules_and_routes_of_users_come_first() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        // A destination, a table for each source, a specific route, and numbers that are in use.
        ip("rule add to 203.0.113.8 lookup 100 pref 32764");
        ip("route add default via 198.51.100.2 table 100");
        ip("rule add from 198.51.100.1 lookup 101 pref 32765");
        ip("route add default via 198.51.100.2 table 101");
        ip("-6 rule add from 2001:db8:51::1 lookup 101 pref 1000");
        ip("-6 route add default via 2001:db8:51::2 table 101");
        ip("route add 192.0.2.99 dev lo table 4930");
        ip("rule add fwmark 0x5 lookup 4931 pref 900");
        tproxy::command::nft(
            "table ip other {\nchain out {\ntype route hook output priority mangle; policy \
             accept;\nudp dport 81 meta mark set 0x5\n}\n}\n",
        )
        .unwrap();
        let before = installed_state();
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        assert_eq!(tcp(V4), "cell");
        assert_eq!(tcp(V6), "cell");
        assert_eq!(udp(V6), "cell");
        assert_eq!(udp(V4), "wan", "the mark of a user's rule");
        let state = installed_state();
        assert!(state.contains("32763:") && state.contains("999:"), "{state}");
        assert!(state.contains(" lookup 4932 "), "{state}");
        egress.remove().unwrap();
        assert_eq!(installed_state(), before);

        // With a free number behind it, the rule for a destination decides.
        ip("rule del pref 32765");
        let mut egress = install();
        egress.select(Some("cell")).unwrap();
        assert_eq!(tcp(V4), "cell");
        assert_eq!(tcp(OTHER), "wan", "a rule");
        ip("rule del pref 32764");
        assert_eq!(tcp(OTHER), "cell");
        ip("route add 203.0.113.8 via 198.51.102.2 dev ppp");
        assert_eq!(tcp(OTHER), "ppp", "a specific route");
    });
}

#[test]
fn a_vpn_of_the_host_is_not_bypassed() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        let [_, cell] = networks();
        let mut egress = Egress::install(names(), &[cell], LIFETIME).unwrap();
        egress.select(Some("cell")).unwrap();
        assert_all("wan");
    });
}

#[test]
fn numbers_that_others_use_are_refused_with_one_sentence() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.run(|| {
        ip("rule add from 192.0.2.1 lookup 5 pref 1");
        let before = installed_state();
        let error = Egress::install(names(), &networks(), LIFETIME).unwrap_err();
        let text = "the routing rules below 1 are all in use by other programs: remove one of them";
        assert_eq!(error.to_string(), text);
        assert_eq!(installed_state(), before);
        ip("rule del pref 1");
        for table in 4930..4994 {
            ip(&format!("-6 route add blackhole default table {table}"));
        }
        let before = installed_state();
        let error = Egress::install(names(), &networks(), LIFETIME).unwrap_err();
        assert!(matches!(error, Error::NoFreeNumber { .. }), "{error}");
        assert_eq!(installed_state(), before);
    });
}

#[test]
fn a_spared_cgroup_is_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    if let Err(why) = tproxy::can_match_cgroup() {
        eprintln!("skipped: {why}");
        return;
    }
    let Some(group) = Group::make() else { return };
    testbed.run(|| {
        let names = Names { spared_cgroups: vec![group.path.clone()], ..names() };
        let mut egress = Egress::install(names, &networks(), LIFETIME).unwrap();
        egress.select(Some("cell")).unwrap();
        assert_eq!(tcp(V4), "cell");
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec 3<>/dev/tcp/{}/{} && echo >&3 && head -c 4 <&3",
            group.folder.display(),
            V4.ip(),
            V4.port(),
        );
        let output = Command::new("timeout").args(["20", "bash", "-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "wan.", "{output:?}");
    });
}

#[test]
fn nonsense_is_refused_before_anything_is_changed() {
    let [wan, cell] = networks();
    let refused = |networks: &[EgressNetwork]| {
        let error = Egress::install(names(), networks, LIFETIME).unwrap_err();
        assert!(matches!(error, Error::Rules(tproxy::Error::InvalidValue(_))), "{error}");
    };
    refused(&[EgressNetwork { interface: "a\" b".to_owned(), ..wan.clone() }]);
    refused(&[EgressNetwork { interface: "a b".to_owned(), ..wan.clone() }]);
    refused(&[EgressNetwork { mark: 0, ..wan.clone() }]);
    refused(&[EgressNetwork { mark: 0x1000_0000, ..wan.clone() }]);
    refused(&[EgressNetwork { mark: cell.mark, ..wan.clone() }, cell.clone()]);
    refused(&[EgressNetwork { v4: wan.v6, ..cell }]);
}
