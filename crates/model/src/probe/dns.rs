//! Whether a resolver lies: its answer compared with that of a second resolver.
//!
//! Different public addresses alone do not contradict each other: servers are chosen by the place of
//! the resolver.

use std::net::IpAddr;

/// An answer about one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The name has these addresses; none if it has records of other types only.
    Addresses(Vec<IpAddr>),
    /// The name does not exist (NXDOMAIN).
    NoName,
    /// No answer, or a failure of the resolver.
    Failure,
}

/// A wrong answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// An address for a name that does not exist.
    RewrittenNoName(IpAddr),
    /// An address that only the local network has, for a name with public addresses.
    Private(IpAddr),
    /// The address that the portal of the network has, for a name with others.
    Portal(IpAddr),
    /// The name does not exist or has no address, though it has public addresses.
    Denied,
}

impl Lie {
    /// Name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::RewrittenNoName(_) => "rewritten-no-name",
            Self::Private(_) => "private",
            Self::Portal(_) => "portal",
            Self::Denied => "denied",
        }
    }
}

/// Compares the answer of a network's resolver with that of a second one. `portal` is the address
/// of the network's login page, if it is known. Returns `None` if the answers do not contradict each
/// other.
pub fn lie(own: &Answer, second: &Answer, portal: Option<IpAddr>) -> Option<Lie> {
    let has_public = |answer: &Answer| match answer {
        Answer::Addresses(addresses) => addresses.iter().any(|address| !is_private(*address)),
        _ => false,
    };
    match (own, second) {
        (Answer::Failure, _) | (_, Answer::Failure) => None,
        (Answer::Addresses(own), Answer::NoName) => own.first().copied().map(Lie::RewrittenNoName),
        (Answer::Addresses(own), Answer::Addresses(other)) if has_public(second) => {
            let of_portal = own.iter().find(|address| Some(**address) == portal);
            let unshared = of_portal.filter(|address| !other.contains(address));
            let is_only_private = own.iter().all(|address| is_private(*address));
            match (unshared, own.first()) {
                (Some(address), _) => Some(Lie::Portal(*address)),
                (None, Some(address)) if is_only_private => Some(Lie::Private(*address)),
                (None, None) => Some(Lie::Denied),
                _ => None,
            }
        }
        (Answer::NoName, Answer::Addresses(_)) if has_public(second) => Some(Lie::Denied),
        _ => None,
    }
}

/// Whether an address leads nowhere beyond the local network (RFC 6890): private, shared, link-local,
/// loopback or unspecified.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            v4.is_private()
                || is_shared
                || v4.is_link_local()
                || v4.is_loopback()
                || v4.is_broadcast()
                || first == 0
        }
        IpAddr::V6(v6) => {
            v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_loopback()
                || v6.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> Answer {
        Answer::Addresses(all.iter().map(|address| address.parse().unwrap()).collect())
    }

    #[test]
    fn lies_are_told_from_other_places() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let portal = Some(address("192.0.2.80"));
        let public = addresses(&["198.51.100.1", "2001:db8::1"]);
        for (own, second, expected) in [
            (public.clone(), addresses(&["203.0.113.9"]), None),
            (public.clone(), Answer::Failure, None),
            (Answer::Failure, public.clone(), None),
            (
                addresses(&["203.0.113.9"]),
                Answer::NoName,
                Some(Lie::RewrittenNoName(address("203.0.113.9"))),
            ),
            (addresses(&["10.0.0.1"]), public.clone(), Some(Lie::Private(address("10.0.0.1")))),
            (addresses(&["100.64.0.1"]), public.clone(), Some(Lie::Private(address("100.64.0.1")))),
            (addresses(&["fe80::1"]), public.clone(), Some(Lie::Private(address("fe80::1")))),
            (addresses(&["192.0.2.80"]), public.clone(), Some(Lie::Portal(address("192.0.2.80")))),
            (addresses(&["192.0.2.80"]), addresses(&["192.0.2.80"]), None),
            // A name of the local network.
            (addresses(&["10.0.0.1"]), addresses(&["10.0.0.1"]), None),
            (addresses(&["10.0.0.1"]), addresses(&[]), None),
            (Answer::NoName, public.clone(), Some(Lie::Denied)),
            (addresses(&[]), public.clone(), Some(Lie::Denied)),
            (Answer::NoName, Answer::NoName, None),
            (
                addresses(&["::ffff:10.0.0.1"]),
                public.clone(),
                Some(Lie::Private(address("::ffff:10.0.0.1"))),
            ),
        ] {
            assert_eq!(lie(&own, &second, portal), expected, "{own:?} {second:?}");
        }
    }
}
