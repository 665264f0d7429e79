//! Generates the table as text for `nft -f`.

use std::fmt::Write as _;
use std::net::IpAddr;

use manyways_unit::{Prefix, Span};

use super::{EgressNetwork, Error, Names};
use crate::interface::{DefaultInterface, Device};
use crate::tproxy::holder;
use crate::tproxy::script::{LATER_SEGMENTS, chain, fill_set, in_cgroup, quoted};

/// After the mangle hooks of other programs: their marks are in place, and decide.
const MARK_PRIORITY: &str = "priority mangle + 5; policy accept;";

/// After other programs' translations of addresses, which then decide.
const NAT_PRIORITY: &str = "priority srcnat + 5; policy accept;";

/// Generates the chains and empty sets: no flow is assigned to a network.
pub(super) fn table(
    names: &Names,
    networks: &[EgressNetwork],
    lifetime: Span,
    create: bool,
) -> Result<String, Error> {
    let name = &names.nft;
    let mut text = if create {
        // An error if it exists, which prevents two processes from installing at once.
        format!("create table inet {name}\n")
    } else {
        format!("table inet {name}\ndelete table inet {name}\n")
    };
    let millis = lifetime.as_nanos().div_ceil(1_000_000).max(1);
    let _ = writeln!(
        text,
        "table inet {name} {{
set alive {{
typeof meta nfproto
flags timeout
timeout {millis}ms
}}
map choice {{
typeof meta nfproto : meta mark
}}
map to4 {{
typeof ip daddr : meta mark
flags interval,timeout
}}
map to6 {{
typeof ip6 daddr : meta mark
flags interval,timeout
}}
set via4 {{
typeof meta oifname . rt ip nexthop
}}
set via6 {{
typeof meta oifname . rt ip6 nexthop
}}
set via_link {{
typeof meta nfproto . meta oifname
}}
map segment4 {{
typeof meta iifname : tcp option maxseg size
}}
map segment6 {{
typeof meta iifname : tcp option maxseg size
}}
set direct4 {{
type ipv4_addr
flags interval
}}
set direct6 {{
type ipv6_addr
flags interval
}}"
    );
    chain(&mut text, &holder::chain_name(holder::own_process()), &[]);
    chain(&mut text, "choose", &choose(names)?);
    chain(&mut text, "output", &output(names));
    chain(&mut text, "segments", &segments());
    chain(&mut text, "answers", &answers(names));
    chain(&mut text, "leaving", &leaving(names, networks)?);
    chain(&mut text, "source", &source(names, networks)?);
    text.push_str("}\n");
    Ok(text)
}

/// Packets of this host: the first one of a flow is decided, later ones follow.
fn output(names: &Names) -> Vec<String> {
    vec![
        format!("type route hook output {MARK_PRIORITY}"),
        "meta mark != 0 accept".to_owned(),
        follow(names),
        "meta l4proto != { tcp, udp } accept".to_owned(),
        "ct state != new accept".to_owned(),
        // A flow without answer, which was left alone before. Its source address is decided, too.
        "ct status confirmed accept".to_owned(),
        "ct mark != 0 accept".to_owned(),
        // Connections from before the kernel tracked any.
        format!("{LATER_SEGMENTS} accept"),
        "meta nfproto != @alive accept".to_owned(),
        // Other interfaces and next hops were chosen by the application, or by a route to the
        // destination. (A routing rule for `main` with `suppress_prefixlength 0` would not do: for
        // IPv6, the kernel takes a path MTU that it learned for a specific route.)
        "meta oifname . rt ip nexthop @via4 goto choose".to_owned(),
        "meta oifname . rt ip6 nexthop @via6 goto choose".to_owned(),
        "meta nfproto . meta oifname @via_link goto choose".to_owned(),
    ]
}

/// The first packet of a flow that would leave by the host's default route.
fn choose(names: &Names) -> Result<Vec<String>, Error> {
    let mut rules = vec![
        // An address of another interface was chosen by the application.
        "fib saddr . oif type != local accept".to_owned(),
        "fib daddr type { local, broadcast, anycast, multicast, blackhole, prohibit } accept"
            .to_owned(),
        "ip daddr @direct4 accept".to_owned(),
        "ip6 daddr @direct6 accept".to_owned(),
        // DHCP belongs to the interface.
        "udp dport { 67, 68, 546, 547 } accept".to_owned(),
    ];
    for path in &names.spared_cgroups {
        rules.push(format!("{} accept", in_cgroup(path)?));
    }
    rules.push("ct mark set ip daddr map @to4".to_owned());
    rules.push("ct mark set ip6 daddr map @to6".to_owned());
    rules.push("ct mark 0 ct mark set meta nfproto map @choice".to_owned());
    rules.push(follow(names));
    Ok(rules)
}

fn follow(names: &Names) -> String {
    let mask = names.mask;
    format!("ct mark & {mask:#x} != 0 meta mark set ct mark & {mask:#x} accept")
}

/// Answers have the mark of their flow when a reverse path filter looks up their route, that of the
/// kernel with `src_valid_mark`, or one of a firewall.
fn answers(names: &Names) -> Vec<String> {
    let mask = names.mask;
    vec![
        format!("type filter hook prerouting {MARK_PRIORITY}"),
        format!(
            "meta mark 0 ct direction reply ct mark & {mask:#x} != 0 meta mark set ct mark & \
             {mask:#x}"
        ),
        format!("ct mark & {mask:#x} != 0 tcp flags & (syn | rst) == syn goto segments"),
    ]
}

/// An application's socket computes the size of its segments from the host's own route. The first
/// answer limits it to the size that fits the chosen interface.
fn segments() -> [String; 2] {
    [("ipv4", "segment4"), ("ipv6", "segment6")].map(|(family, map)| {
        format!("meta nfproto {family} tcp option maxseg size set meta iifname map @{map}")
    })
}

/// Packets after routing. A new flow that does not leave by its network was bound elsewhere, or the
/// network has no route: without the mark it stays where it is.
fn leaving(names: &Names, networks: &[EgressNetwork]) -> Result<Vec<String>, Error> {
    let mask = names.mask;
    let mut rules = vec![
        format!("type filter hook postrouting {MARK_PRIORITY}"),
        format!("ct mark & {mask:#x} == 0 accept"),
    ];
    for EgressNetwork { mark, interface, .. } in networks {
        let interface = quoted(interface, "an interface's name")?;
        rules.push(format!(
            "ct state new ct mark & {mask:#x} == {mark:#x} oifname != {interface} ct mark set ct \
             mark & {:#x} accept",
            !mask
        ));
    }
    rules.push("tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu".to_owned());
    Ok(rules)
}

/// Only the first packet of a flow passes this chain. Without a translation, a flow survives a short
/// loss of its interface.
fn source(names: &Names, networks: &[EgressNetwork]) -> Result<Vec<String>, Error> {
    let mask = names.mask;
    let mut rules = vec![format!("type nat hook postrouting {NAT_PRIORITY}")];
    for EgressNetwork { mark, interface, .. } in networks {
        let interface = quoted(interface, "an interface's name")?;
        rules.push(format!(
            "ct mark & {mask:#x} == {mark:#x} oifname {interface} fib saddr . oif type != local \
             masquerade"
        ));
    }
    Ok(rules)
}

/// Fills the set that indicates a living program, with a new expiry.
pub(super) fn mark_alive(names: &Names) -> String {
    // Emptied first: adding an existing element does not renew its expiry on all kernels.
    fill_set(&names.nft, "alive", &["ipv4", "ipv6"])
}

/// Sets the network of new flows without a choice for their destination.
pub(super) fn choice(names: &Names, mark: Option<u32>) -> String {
    let elements = mark.map(|mark| format!("ipv4 : {mark:#x}, ipv6 : {mark:#x}"));
    fill_map(&names.nft, "choice", &elements.unwrap_or_default())
}

/// Sets the networks of destinations.
pub(super) fn destinations(names: &Names, [v4, v6]: &[String; 2]) -> String {
    fill_map(&names.nft, "to4", v4) + &fill_map(&names.nft, "to6", v6)
}

/// Fills the sets that depend on the state of the host: only flows that leave by these interfaces
/// have a choice, and only to destinations outside of these networks.
pub(super) fn surroundings(
    names: &Names,
    defaults: &[DefaultInterface],
    devices: &[Device],
    networks: &[EgressNetwork],
    connected: Vec<Prefix>,
) -> String {
    let mut via = [Vec::new(), Vec::new(), Vec::new()];
    for DefaultInterface { is_ipv4, name, gateway } in defaults {
        // A VPN that the host uses for all traffic is left only if it is one of the networks.
        if !networks.iter().any(|network| network.interface == *name) {
            continue;
        }
        let family = if *is_ipv4 { "ipv4" } else { "ipv6" };
        match gateway {
            Some(ip @ IpAddr::V4(_)) if *is_ipv4 => via[0].push(format!("\"{name}\" . {ip}")),
            Some(ip @ IpAddr::V6(_)) if !is_ipv4 => via[1].push(format!("\"{name}\" . {ip}")),
            _ => via[2].push(format!("{family} . \"{name}\"")),
        }
    }
    let never = crate::tproxy::never_redirected().map(|(prefix, _)| prefix);
    // Sets of intervals must not contain overlaps.
    let all = Prefix::merge(connected.into_iter().chain(never).collect());
    let (v4, v6): (Vec<Prefix>, Vec<Prefix>) =
        all.into_iter().partition(|prefix| prefix.address().is_ipv4());
    let name = &names.nft;
    let segments = |headers: u32| {
        let of_network =
            |device: &&Device| networks.iter().any(|network| network.interface == device.name);
        let size = |device: &Device| {
            format!("\"{}\" : {}", device.name, device.mtu.saturating_sub(headers).clamp(1, 65_535))
        };
        let elements: Vec<String> = devices.iter().filter(of_network).map(size).collect();
        elements.join(", ")
    };
    let [via4, via6, via_link] = via;
    fill_set(name, "via4", &via4)
        + &fill_set(name, "via6", &via6)
        + &fill_set(name, "via_link", &via_link)
        + &fill_set(name, "direct4", &v4)
        + &fill_set(name, "direct6", &v6)
        + &fill_map(name, "segment4", &segments(40))
        + &fill_map(name, "segment6", &segments(60))
}

fn fill_map(table: &str, map: &str, elements: &str) -> String {
    let mut text = format!("flush map inet {table} {map}\n");
    if !elements.is_empty() {
        let _ = writeln!(text, "add element inet {table} {map} {{ {elements} }}");
    }
    text
}
