//! Discovery inside unnamed network namespaces, built with `ip`; they end with the thread.

use std::fs;
use std::io;
use std::process::Command;

use super::*;
use crate::netns::NetNs;

/// Builds a namespace with `steps`, each the arguments of `ip`, or of `sysctl` if they start with
/// that word. Returns the discovered interfaces; `None` if this user may not create namespaces.
fn discover(steps: &[&str], destinations: &[&str]) -> Option<Vec<Interface>> {
    let namespace = match NetNs::create() {
        Ok(namespace) => namespace,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: making a network namespace needs root");
            return None;
        }
        Err(error) => panic!("no network namespace: {error}"),
    };
    let found = namespace.run(|| {
        for step in steps {
            if let Some((key, value)) =
                step.strip_prefix("sysctl ").and_then(|setting| setting.split_once('='))
            {
                fs::write(format!("/proc/sys/net/{}", key.replace('.', "/")), value)?;
                continue;
            }
            let status = Command::new("ip").args(step.split(' ')).status()?;
            assert!(status.success(), "ip {step}");
        }
        let destinations: Vec<IpAddr> = destinations.iter().map(|ip| ip.parse().unwrap()).collect();
        Ok(list_towards(&destinations))
    });
    Some(found.unwrap().unwrap())
}

fn named<'a>(interfaces: &'a [Interface], name: &str) -> &'a Interface {
    interfaces.iter().find(|interface| interface.name == name).unwrap()
}

fn ips(words: &[&str]) -> Vec<IpAddr> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

/// Two dual-stack networks that are up and have no routes. The other ends of the pairs are in the
/// same namespace; no packets are sent over them.
const TWO: &[&str] = &[
    "link set lo up",
    "link add wifi type veth peer name ap",
    "link add lte type veth peer name tower",
    "link set ap up",
    "link set tower up",
    "link set wifi up",
    "link set lte up",
    "addr add 10.0.1.2/24 dev wifi",
    "addr add 10.0.2.2/24 dev lte",
    "addr add fd00:1::2/64 dev wifi nodad",
    "addr add fd00:2::2/64 dev lte nodad",
    "sysctl ipv4.conf.all.rp_filter=0",
    "sysctl ipv4.conf.wifi.rp_filter=0",
    "sysctl ipv4.conf.lte.rp_filter=0",
];

fn two(more: &[&str]) -> Option<Vec<Interface>> {
    discover(&[TWO, more].concat(), &[])
}

#[test]
fn a_host_with_two_default_routes_prefers_the_better_metric() {
    let Some(found) = two(&[
        "route add default via 10.0.2.1 metric 200",
        "route add default via 10.0.1.1 metric 100",
        "-6 route add default via fd00:2::1 dev lte metric 200",
    ]) else {
        return;
    };
    let order: Vec<&str> = found.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(order[..2], ["wifi", "lte"]);

    let wifi = named(&found, "wifi");
    assert_eq!(wifi.usable, Ok(()));
    assert_eq!(wifi.metric, Some(100));
    assert_eq!(wifi.mtu, 1500);
    assert_eq!(wifi.gateways, ips(&["10.0.1.1"]));
    assert_eq!(wifi.addresses, ips(&["10.0.1.2"]), "IPv6 has no way out here");
    assert_eq!(wifi.unusable_addresses, [("fd00:1::2".parse().unwrap(), Unusable::NoRoute)]);

    let lte = named(&found, "lte");
    assert_eq!(lte.usable, Ok(()));
    assert_eq!(lte.addresses, ips(&["10.0.2.2", "fd00:2::2"]));
    assert_eq!(lte.gateways, ips(&["10.0.2.1", "fd00:2::1"]));
}

#[test]
fn the_second_default_route_of_ipv6_is_a_way_for_a_bound_socket() {
    let Some(found) = two(&[
        "-6 route add default via fd00:1::1 dev wifi metric 100",
        "-6 route add default via fd00:2::1 dev lte metric 200",
    ]) else {
        return;
    };
    assert_eq!(named(&found, "wifi").addresses, ips(&["fd00:1::2"]));
    assert_eq!(named(&found, "lte").usable, Ok(()));
    assert_eq!(named(&found, "lte").addresses, ips(&["fd00:2::2"]));
}

#[test]
fn a_network_without_a_route_is_unusable() {
    let Some(found) = two(&["route add default via 10.0.1.1"]) else { return };
    assert_eq!(named(&found, "wifi").usable, Ok(()));
    let lte = named(&found, "lte");
    assert_eq!(lte.usable, Err(Unusable::NoRoute));
    assert_eq!(lte.addresses, ips(&["10.0.2.2", "fd00:2::2"]), "all it has");
    assert_eq!(lte.metric, None);
}

#[test]
fn a_separate_table_with_a_source_rule_is_usable() {
    let Some(found) = two(&[
        "route add default via 10.0.1.1",
        "-6 route add default via fd00:1::1 dev wifi",
        "route add default via 10.0.2.1 dev lte table 102",
        "-6 route add default via fd00:2::1 dev lte table 102",
        "rule add from 10.0.2.2 lookup 102",
        "-6 rule add from fd00:2::2 lookup 102",
    ]) else {
        return;
    };
    let lte = named(&found, "lte");
    assert_eq!(lte.usable, Ok(()));
    assert_eq!(lte.addresses, ips(&["10.0.2.2", "fd00:2::2"]));
    assert_eq!(lte.gateways, ips(&["10.0.2.1", "fd00:2::1"]));
}

#[test]
fn a_separate_table_with_an_interface_rule_is_usable() {
    let Some(found) = two(&[
        "route add default via 10.0.1.1",
        "-6 route add default via fd00:1::1 dev wifi",
        "route add default via 10.0.2.1 dev lte table 102",
        "-6 route add default via fd00:2::1 dev lte table 102",
        "rule add oif lte lookup 102",
        "-6 rule add oif lte lookup 102",
    ]) else {
        return;
    };
    assert_eq!(named(&found, "lte").addresses, ips(&["10.0.2.2", "fd00:2::2"]));
    assert_eq!(named(&found, "wifi").addresses, ips(&["10.0.1.2", "fd00:1::2"]));
}

#[test]
fn a_table_that_no_rule_leads_to_is_no_way_out() {
    let Some(found) = two(&["route add default via 10.0.2.1 dev lte table 102"]) else { return };
    let lte = named(&found, "lte");
    assert_eq!(lte.usable, Err(Unusable::NoRoute));
    assert_eq!(lte.gateways, ips(&["10.0.2.1"]), "still worth showing");
}

#[test]
fn the_strict_reverse_path_filter_kills_the_second_network() {
    let routes =
        ["route add default via 10.0.1.1 metric 100", "route add default via 10.0.2.1 metric 200"];
    let strict = |who: &'static str| [routes.as_slice(), &[who]].concat();
    let expected =
        Err(Unusable::StrictReversePath { interface: "lte".into(), expected: Some("wifi".into()) });
    let Some(found) = two(&strict("sysctl ipv4.conf.lte.rp_filter=1")) else { return };
    assert_eq!(named(&found, "wifi").usable, Ok(()));
    assert_eq!(named(&found, "lte").usable, expected);
    // "all" counts as well, and the larger value applies: 2 is loose.
    let found = two(&strict("sysctl ipv4.conf.all.rp_filter=1")).unwrap();
    assert_eq!(named(&found, "wifi").usable, Ok(()));
    assert_eq!(named(&found, "lte").usable, expected);
    let loose = [
        routes.as_slice(),
        &["sysctl ipv4.conf.all.rp_filter=1", "sysctl ipv4.conf.lte.rp_filter=2"],
    ]
    .concat();
    assert_eq!(named(&two(&loose).unwrap(), "lte").usable, Ok(()));
    // With a rule for its address the way back leads through it, and strict filtering drops
    // nothing.
    let ruled = [
        strict("sysctl ipv4.conf.all.rp_filter=1").as_slice(),
        &["route add default via 10.0.2.1 dev lte table 102", "rule add from 10.0.2.2 lookup 102"],
    ]
    .concat();
    assert_eq!(named(&two(&ruled).unwrap(), "lte").usable, Ok(()));
}

#[test]
fn down_no_carrier_and_no_address() {
    let Some(found) = discover(
        &[
            "link add off type veth peer name on",
            "link add pulled type veth peer name wall",
            "link set pulled up",
            "link add bare type veth peer name bare-end",
            "link set bare-end up",
            "link set bare up",
            "sysctl ipv6.conf.bare.disable_ipv6=1",
            "link add bundle type bridge",
            "link set bundle up",
            "link add part type veth peer name part-end",
            "link set part-end up",
            "link set part master bundle",
            "link set part up",
        ],
        &[],
    ) else {
        return;
    };
    assert_eq!(named(&found, "off").usable, Err(Unusable::Down));
    assert_eq!(named(&found, "lo").usable, Err(Unusable::Down));
    assert_eq!(named(&found, "pulled").usable, Err(Unusable::NoCarrier));
    assert_eq!(named(&found, "bare").usable, Err(Unusable::NoAddress));
    assert_eq!(named(&found, "part").usable, Err(Unusable::PartOf { controller: "bundle".into() }));
    assert_eq!(named(&found, "bundle").kind, Kind::Virtual);
}

#[test]
fn deprecated_and_link_local_addresses_are_no_sources() {
    let Some(found) = two(&[
        "addr add fd00:1::3/64 dev wifi nodad preferred_lft 0",
        "addr add 169.254.7.7/16 dev wifi scope link",
        "addr add 2001:db8::7/64 dev wifi nodad",
        "-6 route add default via fd00:1::1 dev wifi",
        "route add default via 10.0.1.1",
    ]) else {
        return;
    };
    assert_eq!(
        named(&found, "wifi").addresses,
        ips(&["10.0.1.2", "2001:db8::7", "fd00:1::2"]),
        "global before unique local"
    );
}

#[test]
fn a_vpn_that_takes_both_halves_of_the_address_space_is_usable() {
    let Some(found) = discover(
        &[
            "link set lo up",
            "tuntap add vpn mode tun",
            "link add pipe type veth peer name pipe-end",
            "link set pipe-end up",
            "link set pipe up",
            "addr add 10.8.0.2/24 dev pipe",
            "sysctl ipv4.conf.all.rp_filter=0",
            "sysctl ipv4.conf.pipe.rp_filter=0",
            "route add 0.0.0.0/1 via 10.8.0.1",
            "route add 128.0.0.0/1 via 10.8.0.1",
        ],
        &[],
    ) else {
        return;
    };
    let pipe = named(&found, "pipe");
    assert_eq!(pipe.usable, Ok(()));
    assert_eq!(pipe.gateways, ips(&["10.8.0.1"]), "as the kernel named it on the way");
    assert_eq!(named(&found, "vpn").kind, Kind::Tunnel);
}

#[test]
fn a_server_in_the_local_network_needs_no_default_route() {
    let Some(found) = discover(TWO, &["10.0.2.80"]) else { return };
    assert_eq!(named(&found, "lte").usable, Ok(()));
    assert_eq!(named(&found, "lte").addresses, ips(&["10.0.2.2"]));
    assert_eq!(named(&found, "wifi").usable, Err(Unusable::NoRoute));
    assert_eq!(named(&found, "lo").usable, Err(Unusable::Loopback));
    let found =
        discover(&[TWO, &["route add default via 10.0.1.1"]].concat(), &["127.0.0.1"]).unwrap();
    assert_eq!(named(&found, "lo").usable, Ok(()));
    assert_eq!(named(&found, "lo").addresses, ips(&["127.0.0.1"]));
    assert_eq!(named(&found, "wifi").usable, Err(Unusable::NoRoute));
}

#[test]
fn a_forbidden_way_is_not_a_way() {
    let Some(found) = two(&[
        "route add default via 10.0.1.1",
        "-6 route add default via fd00:1::1 dev wifi",
        "rule add from 10.0.1.2 prohibit",
        "-6 rule add from fd00:1::2 prohibit",
    ]) else {
        return;
    };
    assert_eq!(named(&found, "wifi").usable, Err(Unusable::Forbidden));
}

#[test]
fn an_emulated_link_reports_its_properties() {
    let mark = InterfaceAlias {
        kind: Some(Kind::Cellular),
        metered: Some(true),
        dns: ips(&["10.0.2.1", "fd00:2::1"]),
    };
    let alias = format!("link set lte alias {mark}");
    let Some(found) = two(&[alias.as_str()]) else { return };
    let lte = named(&found, "lte");
    assert_eq!(lte.kind, Kind::Cellular);
    assert_eq!(lte.metered, Metered::Yes);
    assert_eq!(lte.dns, mark.dns);
    assert!(lte.dns_announced);
    assert_eq!(lte.dns_source, Some(DnsSource::Lab));
    assert_eq!(named(&found, "wifi").kind, Kind::Virtual, "a virtual pair without a mark");
}

#[test]
fn guesses_about_metered_networks_say_why() {
    let record = InterfaceConfig::default();
    assert!(metered(Kind::Cellular, None, &record).is_metered());
    assert!(!metered(Kind::Wifi, None, &record).is_metered());
    assert!(matches!(metered(Kind::Wifi, None, &record), Metered::Guessed { metered: false, .. }));
    let hotspot = InterfaceConfig { announced_metered: true, ..InterfaceConfig::default() };
    assert_eq!(metered(Kind::Wifi, None, &hotspot), Metered::Yes);
    let told = InterfaceConfig { managed_metered: Some(Metered::No), ..InterfaceConfig::default() };
    assert_eq!(metered(Kind::Cellular, None, &told), Metered::No);
    let mark = InterfaceAlias { metered: Some(false), ..InterfaceAlias::default() };
    assert_eq!(metered(Kind::Cellular, Some(&mark), &hotspot), Metered::No);
}

#[test]
fn reasons_have_hints() {
    let mut reason = Unusable::StrictReversePath { interface: "lte".into(), expected: None };
    assert!(reason.hint().contains("net/ipv4/conf/lte/rp_filter=2"));
    assert!(reason.to_string().ends_with("arrive on it"));
    if let Unusable::StrictReversePath { expected, .. } = &mut reason {
        *expected = Some("wifi".into());
    }
    assert!(reason.to_string().ends_with("because the route back uses wifi"));
}
