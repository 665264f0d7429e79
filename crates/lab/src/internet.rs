//! A way out of the lab: the far side gets the host's own network, IPv4 only.
//!
//! A veth pair joins the first far host and the host; both ends translate addresses, so that the
//! host sees one more neighbour and needs to know nothing about the links behind it.

use std::io;
use std::net::Ipv4Addr;

use manyways_sys::netns::NetNs;

use super::network::{ip, run, sysctl};
use super::registry::Entry;

/// The far side's name for the way out.
const INSIDE: &str = "internet0";

/// Connects the first far host with the host's network. `entry` learns what to undo.
pub fn connect(entry: &mut Entry, far: &NetNs) -> io::Result<()> {
    let pid = std::process::id();
    // At most 15 bytes, and no other lab's: process ids are unique.
    let outside = format!("mw{pid}");
    let table = format!("manyways_{pid}");
    // A /30 out of the shared address space, which no lab uses elsewhere (their NATs have .1-.200).
    let [high, low] = ((pid % 8192) as u16 * 4 + 0x8000_u16).to_be_bytes();
    let address = |last: u8| Ipv4Addr::new(100, 127, high, low + last);
    let (ours, theirs) = (address(1), address(2));
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?.trim() == "0";
    entry.update(|record| {
        record.undo.nft_table = Some(table.clone());
        record.undo.interface = Some(outside.clone());
        record.undo.forwarding |= forwarding;
    })?;
    far.run(|| {
        // Made inside and moved out, so that it vanishes with the namespace.
        ip(&format!("link add {INSIDE} type veth peer name {outside} netns {pid}\n"))?;
        ip(&format!(
            "addr add {theirs}/30 dev {INSIDE}\nlink set dev {INSIDE} up\nroute add default via {ours}\n"
        ))?;
        sysctl("net/ipv4/ip_forward", "1")?;
        let out = format!("oifname \"{INSIDE}\"");
        run("nft", &["-f", "-"], &masquerade("manyways", &out))
    })?;
    ip(&format!("addr add {ours}/30 dev {outside}\nlink set dev {outside} up\n"))?;
    run("nft", &["-f", "-"], &masquerade(&table, &format!("ip saddr {theirs}")))?;
    if forwarding {
        sysctl("net/ipv4/ip_forward", "1")?;
    }
    Ok(())
}

/// A table that gives what leaves the address of the way it leaves by.
fn masquerade(table: &str, which: &str) -> String {
    format!(
        "table inet {table} {{\nchain out {{\ntype nat hook postrouting priority srcnat;\n\
         {which} masquerade\n}}\n}}\n"
    )
}
