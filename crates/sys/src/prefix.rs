//! Ranges of addresses, as routes and rules write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that share their first bits: `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    // The derived order puts a prefix right before those that it contains.
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The prefix of `bits` bits around an address; of one address alone where there are too many.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address {
            IpAddr::V4(ip) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(ip.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(ip) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(ip.to_bits() & mask).into(), bits }
            }
        }
    }

    /// The first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits are shared.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether an address is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self::new(address, self.bits) == self
    }

    /// The same addresses without a prefix that another one contains, in order.
    pub fn merge(mut prefixes: Vec<Self>) -> Vec<Self> {
        prefixes.sort();
        let mut kept: Vec<Self> = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if !kept.last().is_some_and(|last| last.contains(prefix.address)) {
                kept.push(prefix);
            }
        }
        kept
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self::new(address, u8::MAX)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The text is no address, and no address with a slash and a number of bits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address range: write it as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NotAPrefix(String);

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let wrong = || NotAPrefix(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        match bits {
            Some(bits) if bits > most => Err(wrong()),
            bits => Ok(Self::new(address, bits.unwrap_or(most))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn host_bits_are_cleared_and_a_lone_address_is_a_prefix() {
        assert_eq!(prefix("192.0.2.77/24").to_string(), "192.0.2.0/24");
        assert_eq!(prefix("2001:db8::1").to_string(), "2001:db8::1/128");
        assert_eq!(prefix("1.2.3.4/0").to_string(), "0.0.0.0/0");
        assert_eq!(prefix("1::/0").to_string(), "::/0");
        for wrong in ["", "x", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3/8", "::1/-1"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_other_family() {
        assert!(prefix("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
    }

    #[test]
    fn merging_drops_what_is_contained() {
        let all = ["10.1.0.0/16", "10.0.0.0/8", "10.1.2.3", "11.0.0.0/8", "fe80::/10", "fe80::1"];
        let merged = Prefix::merge(all.iter().map(|text| prefix(text)).collect());
        let texts: Vec<String> = merged.iter().map(Prefix::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "11.0.0.0/8", "fe80::/10"]);
    }
}
