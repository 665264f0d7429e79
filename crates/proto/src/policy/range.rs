//! Numbers from one to another: ports, bytes, addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;
use manyways_unit::{Size, human};

/// One port or several in a row: `443`, `3478-3497`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ports {
    from: u16,
    to: u16,
}

/// How many bytes: `>1MB`, `<=100KB`, `100KB-1MB` (both included).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    text: String,
    from: u64,
    to: u64,
}

/// Addresses that begin alike: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    address: IpAddr,
    length: u32,
}

impl Ports {
    pub(super) fn fits(self, port: u16) -> bool {
        (self.from..=self.to).contains(&port)
    }

    pub(super) fn covers(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

impl FromStr for Ports {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let port = |text: &str| text.trim().parse().ok().filter(|port: &u16| *port > 0);
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (port(from), port(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(InvalidValue::new(
                text,
                "a port",
                "a number from 1 to 65535, or a range like 3478-3497",
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}-{}", self.from, self.to),
        }
    }
}

impl Bytes {
    pub(super) fn fits(&self, size: Size) -> bool {
        (self.from..=self.to).contains(&size.as_bytes())
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// The sizes at which the answer changes.
    pub(super) fn edges(&self) -> impl Iterator<Item = Size> {
        [Some(self.from), self.to.checked_add(1)].into_iter().flatten().map(Size::from_bytes)
    }
}

impl FromStr for Bytes {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid =
            || InvalidValue::new(text, "how many bytes", "it like >1MB, <=100KB or 100KB-1MB");
        let size = |text: &str| human::bytes(text).map(Size::as_bytes).map_err(|_| invalid());
        let trimmed = text.trim();
        let range = if let Some(rest) = trimmed.strip_prefix(">=") {
            Some((size(rest)?, u64::MAX))
        } else if let Some(rest) = trimmed.strip_prefix("<=") {
            Some((0, size(rest)?))
        } else if let Some(rest) = trimmed.strip_prefix('>') {
            size(rest)?.checked_add(1).map(|from| (from, u64::MAX))
        } else if let Some(rest) = trimmed.strip_prefix('<') {
            size(rest)?.checked_sub(1).map(|to| (0, to))
        } else if let Some((from, to)) = trimmed.split_once('-') {
            Some((size(from)?, size(to)?))
        } else {
            None
        };
        let (from, to) = range.filter(|(from, to)| from <= to).ok_or_else(invalid)?;
        Ok(Self { text: text.to_owned(), from, to })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Prefix {
    pub(super) fn fits(self, address: IpAddr) -> bool {
        // An IPv4 address in the clothes of IPv6 is what a dual-stack socket shows.
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4()
            && masked(address, self.length) == masked(self.address, self.length)
    }

    pub(super) fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.fits(other.address)
    }
}

/// The first `length` bits, at the top of 128.
fn masked(address: IpAddr, length: u32) -> u128 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    bits & u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = || {
            InvalidValue::new(
                text,
                "a range of addresses",
                "an address or a prefix without bits behind its length, like 192.0.2.1, \
                 10.0.0.0/8 or 2001:db8::/32",
            )
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|length| *length <= bits).ok_or_else(invalid)?
            }
            Some(_) => return Err(invalid()),
        };
        if masked(address, length) != masked(address, bits) || address != address.to_canonical() {
            return Err(invalid());
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.length) {
            (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128) => write!(f, "{}", self.address),
            _ => write!(f, "{}/{}", self.address, self.length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let ports = |text: &str| text.parse::<Ports>();
        assert!(ports("443").unwrap().fits(443) && !ports("443").unwrap().fits(444));
        let range = ports("3478-3497").unwrap();
        assert!(range.fits(3478) && range.fits(3497) && !range.fits(3477) && !range.fits(3498));
        assert!(range.covers(ports("3480").unwrap()) && !ports("3480").unwrap().covers(range));
        for text in ["", "0", "65536", "5-4", "a", "1-", "-1"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes() {
        let bytes = |text: &str| text.parse::<Bytes>().unwrap();
        let fits = |text: &str, size| bytes(text).fits(Size::from_bytes(size));
        assert!(!fits(">1MB", 1_000_000) && fits(">1MB", 1_000_001));
        assert!(fits(">= 1MB", 1_000_000) && fits("<=100KB", 100_000));
        assert!(fits("<100KB", 99_999) && !fits("<100KB", 100_000));
        assert!(fits("1KB-2KB", 1_000) && fits("1KB-2KB", 2_000) && !fits("1KB-2KB", 2_001));
        let edges = |text: &str| bytes(text).edges().map(Size::as_bytes).collect::<Vec<_>>();
        assert_eq!(edges(">1MB"), [1_000_001]);
        assert_eq!(edges("1KB-2KB"), [1_000, 2_001]);
        for text in ["", "1MB", "<0B", ">1 parsec", "2KB-1KB", ">18446744073709551615"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        let fits = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().fits(address.parse().unwrap())
        };
        assert!(fits("10.0.0.0/8", "10.255.0.1") && !fits("10.0.0.0/8", "11.0.0.0"));
        assert!(fits("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(fits("0.0.0.0/0", "192.0.2.1") && !fits("0.0.0.0/0", "::1"));
        assert!(fits("::/0", "2001:db8::1") && !fits("::/0", "192.0.2.1"));
        assert!(fits("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!fits("2001:db8::/33", "2001:db8:8000::1"));
        assert!(fits("192.0.2.1", "192.0.2.1") && !fits("192.0.2.1", "192.0.2.2"));
        for text in ["", "10.0.0.1/8", "10.0.0.0/33", "::/129", "a", "10.0.0.0/", "10.0.0.0/+8"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
