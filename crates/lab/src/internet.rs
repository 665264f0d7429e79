//! Access from the lab to the internet, through the host's own network.
//!
//! A veth pair connects the first remote host with the host. Both ends translate addresses, so that
//! the host sees one more neighbour and needs no routes to the links of the lab. IPv6 is forwarded
//! if the host has IPv6 access.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use manyways_sys::netns::NetNs;

use super::network::{ip, run, sysctl};
use super::registry::Entry;

/// Name of the interface in the namespace of the remote host.
const INNER_INTERFACE: &str = "internet0";

/// Address of a root name server, as an example of an internet address. No packet is sent to it.
const INTERNET_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0x500, 0x2, 0, 0, 0, 0, 0xc);

/// Connects the first remote host with the host's network. Returns whether IPv6 works, too. Records
/// in `entry` what to undo.
pub fn connect(entry: &mut Entry, far: &NetNs) -> io::Result<bool> {
    let pid = std::process::id();
    // At most 15 bytes, and unique because process ids are unique.
    let outside = format!("mw{pid}");
    let table = format!("manyways_{pid}");
    // A /30 from the shared address space that no lab uses elsewhere (the NATs have .1-.200).
    let [high, low] = ((pid % 8192) as u16 * 4 + 0x8000_u16).to_be_bytes();
    let address = |last: u8| Ipv4Addr::new(100, 127, high, low + last);
    let (ours, theirs) = (address(1), address(2));
    let address =
        |last: u16| Ipv6Addr::new(0xfd00, 0x127, (pid >> 16) as u16, pid as u16, 0, 0, 0, last);
    let (ours_v6, theirs_v6) = (address(1), address(2));
    let v6 = has_ipv6_route();
    let made_in = NetNs::current()?.inode()?;
    entry.update(|record| {
        record.undo.network_namespace = Some(made_in);
        record.undo.nft_table = Some(table.clone());
        record.undo.interface = Some(outside.clone());
    })?;
    far.run(|| {
        // Created inside and moved out, so that it vanishes with the namespace.
        ip(&format!("link add {INNER_INTERFACE} type veth peer name {outside} netns {pid}\n"))?;
        // The peer is in the host's namespace, whose router advertisements do not belong to the
        // lab.
        let _ = sysctl(&format!("net/ipv6/conf/{INNER_INTERFACE}/accept_ra"), "0");
        ip(&format!(
            "addr add {theirs}/30 dev {INNER_INTERFACE}\nlink set dev {INNER_INTERFACE} up\nroute add default via {ours}\n"
        ))?;
        sysctl("net/ipv4/ip_forward", "1")?;
        // Also without IPv6 access: connection attempts then fail at once, and programs continue
        // with IPv4.
        sysctl("net/ipv6/conf/all/forwarding", "1")?;
        let default_v6 = match v6 {
            true => format!(
                "addr add {theirs_v6}/126 dev {INNER_INTERFACE} nodad\nroute add default via {ours_v6} dev {INNER_INTERFACE}\n"
            ),
            false => "route add unreachable default\n".to_owned(),
        };
        run("ip", &["-6", "-batch", "-"], &default_v6)?;
        let out = format!("oifname \"{INNER_INTERFACE}\"");
        run("nft", &["-f", "-"], &masquerade("manyways", &[out]))
    })?;
    ip(&format!("addr add {ours}/30 dev {outside}\nlink set dev {outside} up\n"))?;
    let mut theirs = vec![format!("ip saddr {theirs}")];
    if v6 {
        ip(&format!("addr add {ours_v6}/126 dev {outside} nodad\n"))?;
        theirs.push(format!("ip6 saddr {theirs_v6}"));
    }
    run("nft", &["-f", "-"], &masquerade(&table, &theirs))?;
    entry.allow_forwarding(v6)?;
    Ok(v6)
}

/// Whether the host's routes lead IPv6 out. Connecting a UDP socket sends no packet.
fn has_ipv6_route() -> bool {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((INTERNET_ADDRESS, 53)))
        .is_ok()
}

/// Builds a table that gives outgoing packets the source address of their interface.
fn masquerade(table: &str, which: &[String]) -> String {
    let rules: String = which.iter().map(|which| format!("{which} masquerade\n")).collect();
    format!(
        "table inet {table} {{\nchain out {{\ntype nat hook postrouting priority srcnat;\n\
         {rules}}}\n}}\n"
    )
}
