//! Which addresses a lab uses. Both sides and the documentation take them from here.
//!
//! Links and hosts count from 0. A link's own network is private; the hosts' is the one that is
//! reserved for benchmarks, so that neither looks like somebody's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most links of a lab, and most hosts.
pub const MAX: usize = 200;

/// The prefix lengths of a link's network.
pub const LINK_PREFIX: (u8, u8) = (24, 64);

/// The device's addresses on a link.
pub fn device(link: usize) -> [IpAddr; 2] {
    [v4(10, 64, link, 2), v6(0x64, link, 2)]
}

/// The gateway's addresses on a link.
pub fn gateway(link: usize) -> [IpAddr; 2] {
    [v4(10, 64, link, 1), v6(0x64, link, 1)]
}

/// The network of a link, as `address/length`, for both families.
pub fn network(link: usize) -> [String; 2] {
    [format!("{}/24", v4(10, 64, link, 0)), format!("{}/64", v6(0x64, link, 0))]
}

/// The address that a link's NAT shows to the far side.
pub fn nat(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, link as u8 + 1, 1)
}

/// A far host's addresses, the same over every link.
pub fn host(host: usize) -> [IpAddr; 2] {
    [v4(198, 18, 0, host + 1), v6(0x18, 0, host + 1)]
}

fn v4(a: u8, b: u8, c: usize, d: usize) -> IpAddr {
    // Links are shown counting from 1, as people do.
    let c = if b == 64 { c + 1 } else { c };
    Ipv4Addr::new(a, b, c as u8, d as u8).into()
}

fn v6(net: u16, c: usize, d: usize) -> IpAddr {
    let c = if net == 0x64 { c + 1 } else { c };
    Ipv6Addr::new(0xfd00, net, c as u16, 0, 0, 0, 0, d as u16).into()
}
