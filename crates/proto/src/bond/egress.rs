//! The gateway's egress filter. By default only the public internet is permitted, because the
//! gateway must not give access to its own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manyways_unit::Prefix;

/// Permits public addresses except the gateway's own ones, and exceptions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EgressFilter {
    /// Permitted destinations that are not public.
    pub exceptions: Vec<Prefix>,
}

impl EgressFilter {
    pub fn new(exceptions: Vec<Prefix>) -> Self {
        Self { exceptions }
    }

    /// Returns whether the filter permits `address`. `own` are the addresses of the gateway.
    pub fn permits(&self, own: &[IpAddr], address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.exceptions.iter().any(|prefix| prefix.contains(address)) {
            return true;
        }
        // A translator on the path converts some IPv6 addresses to IPv4 addresses.
        let translated = match address {
            IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        !own.contains(&address) && !own.contains(&translated) && is_public(translated)
    }
}

/// Returns whether an address is in the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_unspecified()
                // "This network", shared address space, protocol assignments, benchmarking, and
                // reserved.
                || a == 0
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b))
                || a >= 240)
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Global unicast is 2000::/3 (RFC 4291 §2.4).
            (0x2000..0x4000).contains(&first)
        }
    }
}

/// Returns the IPv4 address that an IPv6 address contains: NAT64 (RFC 6052) and 6to4.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = v6.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_and_exceptions_are_permitted() {
        let own: IpAddr = "203.0.113.9".parse().unwrap();
        let filter = EgressFilter::new(vec!["10.1.0.0/16".parse().unwrap()]);
        let permits = |text: &str| filter.permits(&[own], text.parse().unwrap());
        for open in ["93.184.216.34", "2606:2800:220:1::1", "10.1.2.3", "64:ff9b::5db8:d822"] {
            assert!(permits(open), "{open}");
        }
        for closed in [
            "127.0.0.1",
            "10.2.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "203.0.113.9",
            "64:ff9b::cb00:7109",
            "2002:cb00:7109::1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.2.0.1",
            "64:ff9b::a02:1",
            "2002:7f00:1::1",
            "240.0.0.1",
            "198.18.0.1",
        ] {
            assert!(!permits(closed), "{closed}");
        }
    }
}
