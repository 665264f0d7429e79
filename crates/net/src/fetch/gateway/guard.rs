//! The servers that a gateway may reach.
//!
//! Two conditions hold for every connection. Its origin is the one that the user typed, or one that a
//! manifest or a redirect of this session contains: a page that learns the token cannot use the
//! gateway as a proxy. And its address is public, except for the origin that the user typed: neither
//! a manifest nor a redirect nor a name server leads into a private network.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::location::Origin;

/// Maximum number of origins of a session, against manifests with endless lists. Later ones are
/// refused.
pub const MAX_ORIGINS: usize = 1000;

/// The permitted servers of a session.
#[derive(Debug)]
pub(super) struct Guard {
    typed: Origin,
    /// Origins in manifests and redirects.
    met: Mutex<HashSet<Origin>>,
}

impl Guard {
    pub(super) fn new(typed: Origin) -> Self {
        Self { typed, met: Mutex::default() }
    }

    /// Whether the user typed the origin.
    pub(super) fn is_typed(&self, origin: &Origin) -> bool {
        *origin == self.typed
    }

    /// Permits requests to an origin that a manifest or a redirect contains.
    pub(super) fn meet(&self, origin: &Origin) {
        let mut met = self.met();
        if met.len() < MAX_ORIGINS {
            met.insert(origin.clone());
        }
    }

    /// Whether requests of the player may go to the origin.
    pub(super) fn permits_requests(&self, origin: &Origin) -> bool {
        self.is_typed(origin) || self.met().contains(origin)
    }

    /// Whether the server of an origin may be reached at an address.
    pub(super) fn permits_address(&self, origin: &Origin, address: IpAddr) -> bool {
        self.is_typed(origin) || is_public(address)
    }

    fn met(&self) -> MutexGuard<'_, HashSet<Origin>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address belongs to the public internet (registries of special-purpose addresses: RFC
/// 6890 and its updates). The addresses for benchmarks of RFC 2544 (198.18.0.0/15) count as public:
/// they lead into no private network, and labs have them.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_this_network = first == 0;
    let is_shared = first == 100 && (64..128).contains(&second);
    // 192.0.0.0/24 is for protocols; 192.88.99.0/24 led to relays of 6to4.
    let is_protocol =
        (first, second, third) == (192, 0, 0) || (first, second, third) == (192, 88, 99);
    let is_multicast_or_reserved = first >= 224;
    !(is_this_network
        || is_shared
        || is_protocol
        || is_multicast_or_reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // Translation to IPv4 (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // Protocols, among them tunnels (RFC 2928), and documentation (RFC 3849, RFC 9637).
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast addresses are the only ones that are assigned (RFC 4291, 2.4).
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: &str, port: u16) -> Origin {
        Origin { secure: false, host: host.into(), port }
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for (text, expected) in [
            ("93.184.216.34", true),
            ("198.18.0.1", true),
            ("172.32.0.1", true),
            ("100.128.0.1", true),
            ("2606:4700::1111", true),
            ("2002:5db8:d822::1", true),
            ("64:ff9b::5db8:d822", true),
            ("::ffff:93.184.216.34", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.1", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("::10.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b:1::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:a00:1::1", false),
            ("3fff:1::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn only_the_typed_origin_may_be_private() {
        let guard = Guard::new(origin("nas.lan", 80));
        let private = IpAddr::from([192, 168, 1, 2]);
        assert!(guard.permits_address(&origin("nas.lan", 80), private));
        assert!(!guard.permits_address(&origin("nas.lan", 81), private));
        assert!(!guard.permits_address(&Origin { secure: true, ..origin("nas.lan", 80) }, private));
        guard.meet(&origin("other.lan", 80));
        assert!(!guard.permits_address(&origin("other.lan", 80), private));
        assert!(guard.permits_address(&origin("other.lan", 80), IpAddr::from([9, 9, 9, 9])));
    }

    #[test]
    fn requests_go_to_the_typed_origin_and_to_those_of_the_session() {
        let guard = Guard::new(origin("a.example", 80));
        assert!(guard.permits_requests(&origin("a.example", 80)));
        assert!(!guard.permits_requests(&origin("b.example", 80)));
        guard.meet(&origin("b.example", 80));
        assert!(guard.permits_requests(&origin("b.example", 80)));
        for number in 0..2 * MAX_ORIGINS {
            guard.meet(&origin(&format!("{number}.example"), 80));
        }
        assert!(!guard.permits_requests(&origin("1999.example", 80)));
    }
}
