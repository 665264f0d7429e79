//! Addresses of a lab, for both sides and the documentation.
//!
//! Links and hosts are numbered from 0. The network of a link is private. The network of the hosts
//! is the one reserved for benchmarks (RFC 2544), so that neither looks like a real network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of links of a lab, and of hosts.
pub const MAX_LINKS: usize = 200;

/// The prefix lengths of a link's network.
pub const LINK_PREFIX_LENGTHS: (u8, u8) = (24, 64);

/// Returns the device's addresses on a link.
pub fn device(link: usize) -> [IpAddr; 2] {
    [v4(10, 64, link, 2), v6(0x64, link, 2)]
}

/// Returns the gateway's addresses on a link.
pub fn gateway(link: usize) -> [IpAddr; 2] {
    [v4(10, 64, link, 1), v6(0x64, link, 1)]
}

/// Returns the network of a link as `address/length`, for both families.
pub fn network(link: usize) -> [String; 2] {
    [format!("{}/24", v4(10, 64, link, 0)), format!("{}/64", v6(0x64, link, 0))]
}

/// Returns the external address of a link's NAT.
pub fn nat(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, link as u8 + 1, 1)
}

/// Returns a remote host's addresses, the same over every link.
pub fn host(host: usize) -> [IpAddr; 2] {
    [v4(198, 18, 0, host + 1), v6(0x18, 0, host + 1)]
}

/// Whether a lab may use the address for a link, a NAT or the way to the internet.
pub fn is_of_links(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            matches!(v4.octets(), [10, 64, ..] | [100, 64 | 127, ..])
        }
        IpAddr::V6(v6) => matches!(v6.segments(), [0xfd00, 0x64 | 0x127, ..]),
    }
}

fn v4(a: u8, b: u8, c: usize, d: usize) -> IpAddr {
    // In addresses, links are numbered from 1.
    let c = if b == 64 { c + 1 } else { c };
    Ipv4Addr::new(a, b, c as u8, d as u8).into()
}

fn v6(net: u16, c: usize, d: usize) -> IpAddr {
    let c = if net == 0x64 { c + 1 } else { c };
    Ipv6Addr::new(0xfd00, net, c as u16, 0, 0, 0, 0, d as u16).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_links_are_known() {
        for link in [0, MAX_LINKS - 1] {
            assert!(device(link).into_iter().chain(gateway(link)).all(is_of_links));
            assert!(is_of_links(nat(link).into()));
        }
        for other in ["93.184.216.34", "10.63.0.1", "198.18.0.1", "2606:2800:220::1", "fd00::1"] {
            assert!(!is_of_links(other.parse().unwrap()), "{other}");
        }
    }
}
