//! Hosts at addresses of their own, like those of recorded servers, each at its own distance.
//!
//! They have no network stack of their own: the first remote host has their addresses, so that
//! servers for all of them can run in one process.

use std::collections::HashSet;
use std::net::IpAddr;
use std::str::FromStr;

use manyways_trace::link_text::one_way;
use manyways_trace::trace_file::MAX_DELAY;
use manyways_unit::Span;
use manyways_unit::human::{InvalidValue, quoted};

use super::address;

/// Maximum number of far hosts of a lab.
pub const MAX_FAR_HOSTS: usize = 1_000;

/// Maximum length of a name and of each of its labels (RFC 1035, section 2.3.4), without the dot at
/// its end.
const MAX_NAME_LENGTH: usize = 253;
const MAX_LABEL_LENGTH: usize = 63;

/// An address on the remote side, at which the first remote host serves. As text:
/// `ADDRESS[,name=NAME…][,extra-rtt=TIME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarHost {
    /// Any unicast address that the lab does not use itself ([`address`]); those of the first remote
    /// host are allowed.
    pub address: IpAddr,
    /// Round-trip time in addition to the link's, the same over every link: half of it each way.
    pub extra_rtt: Span,
    /// Names that resolve to the address, on every link. A name may belong to several far hosts.
    pub names: Vec<String>,
}

/// Reasons why a text or an address is not a far host.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FarHostError {
    /// The text does not start with an address.
    #[error("`{0}` is not an IPv4 or IPv6 address")]
    NotAnAddress(String),
    /// The address is not one of a single host on a network, or cannot be reached over a link.
    #[error("{0} cannot be the address of a far host: it is not that of one host on the internet")]
    NotAHost(IpAddr),
    /// The lab needs the address.
    #[error("{0} cannot be the address of a far host: the lab uses it itself")]
    InUse(IpAddr),
    /// Two far hosts have the same address.
    #[error("two far hosts have the address {0}")]
    Twice(IpAddr),
    /// There are more than [`MAX_FAR_HOSTS`].
    #[error("a lab has at most {MAX_FAR_HOSTS} far hosts")]
    TooMany,
    /// A name cannot be in a query.
    #[error("`{0}` is not a host name")]
    Name(String),
    /// A setting is not `name=` or `extra-rtt=`.
    #[error("`{0}` is not a setting of a far host")]
    Setting(String),
    /// The time occurs twice.
    #[error("`extra-rtt` is given twice")]
    TwoTimes,
    /// The time cannot be parsed.
    #[error("extra-rtt: {0}")]
    Time(#[from] InvalidValue),
    /// The time is too long.
    #[error("the extra round-trip time of {0} is longer than an hour")]
    TooFar(IpAddr),
}

impl FarHostError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAnAddress(_) | Self::Setting(_) => {
                "write a far host like 93.184.216.34,name=www.example.com,extra-rtt=40ms".to_owned()
            }
            Self::Name(_) => {
                "write a name like www.example.com, in another script its xn-- form".to_owned()
            }
            Self::Twice(_) => "give all its names at once, like name=a.com,name=b.com".to_owned(),
            Self::InUse(_) => "docs/lab.md lists the addresses of a lab".to_owned(),
            _ => return None,
        })
    }
}

impl FarHost {
    /// Creates a host without a name and directly at the links.
    pub fn new(address: IpAddr) -> Self {
        Self { address, extra_rtt: Span::ZERO, names: Vec::new() }
    }

    /// # Errors
    /// A lab cannot have the host.
    pub fn check(&self) -> Result<(), FarHostError> {
        if !is_host(self.address) {
            return Err(FarHostError::NotAHost(self.address));
        }
        if address::is_of_links(self.address) {
            return Err(FarHostError::InUse(self.address));
        }
        if self.extra_rtt > MAX_DELAY {
            return Err(FarHostError::TooFar(self.address));
        }
        match self.names.iter().find(|name| !is_name(name)) {
            Some(name) => Err(FarHostError::Name(quoted(name))),
            None => Ok(()),
        }
    }
}

impl FromStr for FarHost {
    type Err = FarHostError;

    fn from_str(text: &str) -> Result<Self, FarHostError> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let address = first.parse().map_err(|_| FarHostError::NotAnAddress(quoted(first)))?;
        let (mut host, mut extra_rtt) = (Self::new(address), None);
        for part in parts {
            match part.split_once('=') {
                Some(("name", name)) => host.names.push(name.to_owned()),
                Some(("extra-rtt", time)) => {
                    if extra_rtt.replace(one_way(time)?).is_some() {
                        return Err(FarHostError::TwoTimes);
                    }
                }
                _ => return Err(FarHostError::Setting(quoted(part))),
            }
        }
        host.extra_rtt = extra_rtt.unwrap_or_default();
        host.check()?;
        Ok(host)
    }
}

/// Checks the far hosts of a lab with `host_count` remote hosts.
pub(crate) fn check(hosts: &[FarHost], host_count: usize) -> Result<(), FarHostError> {
    if hosts.len() > MAX_FAR_HOSTS {
        return Err(FarHostError::TooMany);
    }
    let mut seen = HashSet::with_capacity(hosts.len());
    for host in hosts {
        host.check()?;
        if !seen.insert(host.address) {
            return Err(FarHostError::Twice(host.address));
        }
        if (1..host_count).any(|number| address::host(number).contains(&host.address)) {
            return Err(FarHostError::InUse(host.address));
        }
    }
    Ok(())
}

/// Whether one host on another network can have the address.
fn is_host(address: IpAddr) -> bool {
    match address {
        // Hosts have no address in 0.0.0.0/8 and 240.0.0.0/4 (RFC 6890, section 2.2.2).
        IpAddr::V4(v4) => !matches!(v4.octets()[0], 0 | 127 | 224..) && !v4.is_link_local(),
        IpAddr::V6(v6) => {
            let is_special = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            !is_special && !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether a query can have the name.
fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=MAX_LABEL_LENGTH).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.len() <= MAX_NAME_LENGTH && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FarHost, FarHostError> {
        text.parse()
    }

    #[test]
    fn a_far_host_has_names_and_a_distance() {
        let host = parse("2606:2800:220::1,name=a.example,extra-rtt=40ms,name=B.example.").unwrap();
        assert_eq!(host.address, "2606:2800:220::1".parse::<IpAddr>().unwrap());
        assert_eq!(host.extra_rtt, Span::from_millis(40));
        assert_eq!(host.names, ["a.example", "B.example."]);
        assert_eq!(parse("93.184.216.34").unwrap(), FarHost::new([93, 184, 216, 34].into()));
    }

    #[test]
    fn what_is_no_far_host_is_refused_with_the_reason() {
        let long = format!("1.2.3.4,name={}.example", "a".repeat(64));
        for (text, reason) in [
            ("", "`` is not an IPv4 or IPv6 address"),
            ("example.com", "`example.com` is not an IPv4"),
            ("1.2.3.4:name=a", "`1.2.3.4:name=a` is not an IPv4"),
            ("1.2.3.4,delay=4ms", "`delay=4ms` is not a setting"),
            ("1.2.3.4,", "`` is not a setting"),
            ("1.2.3.4,extra-rtt=4", "extra-rtt: "),
            ("1.2.3.4,extra-rtt=2h", "extra-rtt: "),
            ("1.2.3.4,extra-rtt=1ms,extra-rtt=1ms", "given twice"),
            ("1.2.3.4,name=", "`` is not a host name"),
            ("1.2.3.4,name=a..b", "`a..b` is not a host name"),
            ("1.2.3.4,name=müll.example", "is not a host name"),
            (&long, "is not a host name"),
            ("0.1.2.3", "not that of one host"),
            ("127.0.0.53", "not that of one host"),
            ("224.0.0.1", "not that of one host"),
            ("255.255.255.255", "not that of one host"),
            ("169.254.1.1", "not that of one host"),
            ("::", "not that of one host"),
            ("::1", "not that of one host"),
            ("ff02::1", "not that of one host"),
            ("fe80::1", "not that of one host"),
            ("::ffff:1.2.3.4", "not that of one host"),
            ("10.64.1.1", "the lab uses it itself"),
            ("fd00:64:1::1", "the lab uses it itself"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    /// A recording that was made in a lab has the address of its host.
    #[test]
    fn the_first_remote_host_may_be_a_far_host_and_the_others_not() {
        let [first, second] = [0, 1].map(|number| FarHost::new(address::host(number)[0]));
        assert_eq!(check(&[first, second.clone()], 1), Ok(()));
        assert_eq!(
            check(std::slice::from_ref(&second), 2),
            Err(FarHostError::InUse(second.address))
        );
    }

    #[test]
    fn each_address_is_there_once_and_there_are_not_too_many() {
        let host = |number: usize| {
            FarHost::new(IpAddr::from([93, 184, (number >> 8) as u8, number as u8]))
        };
        let all: Vec<FarHost> = (0..=MAX_FAR_HOSTS).map(host).collect();
        assert_eq!(check(&all[1..], 1), Ok(()));
        assert_eq!(check(&all, 1), Err(FarHostError::TooMany));
        let twice = [host(1), host(2), host(1)];
        assert_eq!(check(&twice, 1), Err(FarHostError::Twice(host(1).address)));
        let far = FarHost { extra_rtt: Span::from_secs(3_601), ..host(1) };
        assert_eq!(check(&[far], 1), Err(FarHostError::TooFar(host(1).address)));
    }
}
