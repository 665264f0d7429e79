//! Which destinations a gateway connects to: by default the public internet alone, as a gateway is no
//! way into the network that it stands in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manyways_unit::Prefix;

/// Permits public addresses that are not the gateway's own, and exceptions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EgressFilter {
    /// Destinations that are permitted though they are not public.
    pub exceptions: Vec<Prefix>,
}

impl EgressFilter {
    /// A filter with these exceptions.
    pub fn new(exceptions: Vec<Prefix>) -> Self {
        Self { exceptions }
    }

    /// Whether a client may go to `address`, where the gateway has the addresses `own`.
    pub fn permits(&self, own: &[IpAddr], address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.exceptions.iter().any(|prefix| prefix.contains(address)) {
            return true;
        }
        // A translator on the way takes some IPv6 addresses for IPv4 ones.
        let translated = match address {
            IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        !own.contains(&address) && !own.contains(&translated) && is_public(translated)
    }
}

/// Whether an address is of the public internet.
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
                // "This network", shared by carriers, for protocols, for benchmarks, and reserved.
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

/// The IPv4 address that a translator would take an IPv6 address for: NAT64 (RFC 6052) and 6to4.
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
