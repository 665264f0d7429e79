//! Address prefixes (RFC 4632, RFC 4291), and the longest-prefix match.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A set of addresses that share their first bits: `192.0.2.0/24`, `2001:db8::/32`. A prefix of
/// full length is a single address and is written without a length. IPv4-mapped IPv6 addresses
/// (`::ffff:192.0.2.1`) count as the IPv4 addresses inside them, everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    // The derived order puts a prefix right before the prefixes that it covers; `merge` needs this.
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The part before the slash is not an address.
    #[error("`{0}` is not an address range: write it as 192.0.2.0/24 or 2001:db8::/32")]
    Address(String),
    /// The part after the slash is not a number of bits that the address can have.
    #[error("`{0}` needs a length after its slash: a number, up to 32 for IPv4 and 128 for IPv6")]
    Length(String),
    /// A bit after the prefix length is set.
    #[error("`{0}` has bits set after its length: the network is {1}")]
    HostBits(String, Prefix),
}

impl Prefix {
    /// Returns the prefix of the first `length` bits of `address`. `None` if the address has fewer
    /// bits, or if a later bit is set.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (address, length) = canonical(address, length);
        let prefix = Self { address, length };
        let fits =
            length <= address_length(address) && address_bits(address) & prefix.host_bits() == 0;
        fits.then_some(prefix)
    }

    /// Returns the prefix of `length` bits that contains `address`. `length` is limited to the
    /// number of bits of the address.
    pub fn containing(address: IpAddr, length: u8) -> Self {
        let (address, length) = canonical(address, length);
        let length = length.min(address_length(address));
        let host_bits = Self { address, length }.host_bits();
        let address = match address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !(host_bits as u32)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !host_bits).into(),
        };
        Self { address, length }
    }

    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The number of bits that all addresses share.
    pub fn length(self) -> u8 {
        self.length
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address_length(address) == address_length(self.address)
            && address_bits(address) & !self.host_bits() == address_bits(self.address)
    }

    /// Whether every address of the other prefix is in this one.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Returns the same addresses, sorted, without the prefixes that another one covers.
    pub fn merge(mut prefixes: Vec<Self>) -> Vec<Self> {
        prefixes.sort();
        let mut kept: Vec<Self> = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if !kept.last().is_some_and(|last| last.covers(prefix)) {
                kept.push(prefix);
            }
        }
        kept
    }

    /// Returns a mask of the bits after the prefix.
    fn host_bits(self) -> u128 {
        let open = address_length(self.address).saturating_sub(self.length);
        1_u128.checked_shl(open.into()).map_or(u128::MAX, |end| end - 1)
    }
}

/// Converts a prefix of IPv4-mapped addresses (`::ffff:192.0.2.0/120`) to an IPv4 prefix.
fn canonical(address: IpAddr, length: u8) -> (IpAddr, u8) {
    match (address.to_canonical(), length.checked_sub(96)) {
        (inner @ IpAddr::V4(_), Some(length)) if address.is_ipv6() => (inner, length),
        _ => (address, length),
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self::containing(address, u8::MAX)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let shown = || crate::human::quoted(text);
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address(shown()))?;
        let length = match length {
            None => address_length(address),
            // `u8::from_str` would also accept a sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| PrefixError::Length(shown()))?
            }
            Some(_) => return Err(PrefixError::Length(shown())),
        };
        if length > address_length(address) {
            return Err(PrefixError::Length(shown()));
        }
        Self::new(address, length)
            .ok_or_else(|| PrefixError::HostBits(shown(), Self::containing(address, length)))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length == address_length(self.address) {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.length),
        }
    }
}

/// Longest-prefix match: the prefixes as ranges that do not overlap, so that one binary search
/// finds the range of an address. A prefix needs at most two ranges: 8 bytes each for IPv4, 20
/// bytes each for IPv6.
#[derive(Clone, Debug, Default)]
pub struct PrefixMap {
    v4: Vec<(u32, u32)>,
    // Separate from the values, because a pair would take 32 bytes instead of 20.
    v6: Vec<u128>,
    v6_values: Vec<u32>,
}

/// Value of a range that no prefix covers.
const NONE: u32 = u32::MAX;

impl PrefixMap {
    /// Builds the map from prefixes with values below `u32::MAX`. If a prefix occurs twice, its
    /// last value counts.
    pub fn of(prefixes: impl IntoIterator<Item = (Prefix, u32)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, value) in prefixes {
            match prefix.address {
                IpAddr::V4(first) => v4.push((u32::from(first), prefix.length, value)),
                IpAddr::V6(first) => v6.push((u128::from(first), prefix.length, value)),
            }
        }
        let v4_last = |first: u32, length: u8| {
            first | 1_u32.checked_shl((32 - length).into()).map_or(u32::MAX, |end| end - 1)
        };
        let v6_last = |first: u128, length: u8| {
            first | 1_u128.checked_shl((128 - length).into()).map_or(u128::MAX, |end| end - 1)
        };
        let (v6, v6_values) =
            flatten_prefixes(v6, v6_last, |last| last.checked_add(1)).into_iter().unzip();
        Self { v4: flatten_prefixes(v4, v4_last, |last| last.checked_add(1)), v6, v6_values }
    }

    /// Returns the value of the longest prefix that contains the address; `None` if no prefix does.
    pub fn find(&self, address: IpAddr) -> Option<u32> {
        let value = match address.to_canonical() {
            IpAddr::V4(v4) => {
                let index = self.v4.partition_point(|(first, _)| *first <= u32::from(v4));
                self.v4.get(index.checked_sub(1)?)?.1
            }
            IpAddr::V6(v6) => {
                let index = self.v6.partition_point(|first| *first <= u128::from(v6));
                *self.v6_values.get(index.checked_sub(1)?)?
            }
        };
        (value != NONE).then_some(value)
    }

    /// Returns the ranges with a value, in ascending order, IPv4 before IPv6: first and last
    /// address, and the value. No two overlap.
    pub fn ranges(&self) -> impl Iterator<Item = (IpAddr, IpAddr, u32)> {
        // A range ends before the next one, or with the last address.
        let v4 = self.v4.iter().enumerate().map(|(index, (first, value))| {
            let last = self.v4.get(index + 1).map_or(u32::MAX, |(next, _)| next - 1);
            (Ipv4Addr::from(*first).into(), Ipv4Addr::from(last).into(), *value)
        });
        let v6 = self.v6.iter().zip(&self.v6_values).enumerate().map(|(index, (first, value))| {
            let last = self.v6.get(index + 1).map_or(u128::MAX, |next| next - 1);
            (Ipv6Addr::from(*first).into(), Ipv6Addr::from(last).into(), *value)
        });
        v4.chain(v6).filter(|(_, _, value)| *value != NONE)
    }
}

/// Returns each address at which the longest prefix changes, with the value from there.
fn flatten_prefixes<A: Copy + Ord>(
    mut prefixes: Vec<(A, u8, u32)>,
    last: impl Fn(A, u8) -> A,
    next: impl Fn(A) -> Option<A>,
) -> Vec<(A, u32)> {
    // Shorter prefixes first; the sort is stable, so that the last of equal prefixes wins.
    prefixes.sort_by_key(|(first, length, _)| (*first, *length));
    let mut ranges: Vec<(A, u32)> = Vec::with_capacity(prefixes.len());
    // The enclosing prefixes of the current one: their last address and value.
    let mut open: Vec<(A, u32)> = Vec::new();
    for (first, length, value) in prefixes {
        while let Some((end, _)) = open.pop_if(|(end, _)| *end < first) {
            push_change(&mut ranges, next(end), open.last());
        }
        open.push((last(first, length), value));
        push_change(&mut ranges, Some(first), open.last());
    }
    while let Some((end, _)) = open.pop() {
        push_change(&mut ranges, next(end), open.last());
    }
    ranges.shrink_to_fit();
    ranges
}

fn push_change<A: Copy + Ord>(ranges: &mut Vec<(A, u32)>, at: Option<A>, to: Option<&(A, u32)>) {
    // There is no range after the last address.
    let Some(at) = at else { return };
    ranges.pop_if(|(first, _)| *first == at);
    let value = to.map_or(NONE, |(_, value)| *value);
    if ranges.last().map_or(NONE, |(_, before)| *before) != value {
        ranges.push((at, value));
    }
}

fn address_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_reads_back_the_same() {
        for text in ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.1", "::/0", "2001:db8::/32"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().length(), 32);
        let inside: Prefix = "::ffff:192.0.2.0/120".parse().unwrap();
        assert_eq!(inside.to_string(), "192.0.2.0/24");
    }

    #[test]
    fn a_text_that_is_not_a_prefix_is_refused_with_the_reason() {
        let wrong = |text: &str| text.parse::<Prefix>().unwrap_err();
        for text in ["", "x", "192.0.2/24", "a/8"] {
            assert!(matches!(wrong(text), PrefixError::Address(_)), "{text}");
        }
        for text in ["192.0.2.0/33", "192.0.2.0/+8", "192.0.2.0/", "::/129", "::1/-1"] {
            assert!(matches!(wrong(text), PrefixError::Length(_)), "{text}");
        }
        assert_eq!(
            wrong("10.0.0.5/8").to_string(),
            "`10.0.0.5/8` has bits set after its length: the network is 10.0.0.0/8"
        );
        assert!(matches!(wrong("::1/0"), PrefixError::HostBits(..)));
        assert!(matches!(wrong("192.0.2.1/24"), PrefixError::HostBits(..)));
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_other_family() {
        let contains = |text: &str, address: &str| prefix(text).contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("0.0.0.0/0", "192.0.2.1") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1") && !contains("::/0", "192.0.2.1"));
        assert!(contains("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!contains("2001:db8::/33", "2001:db8:8000::1"));
        assert!(contains("192.0.2.1", "192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
        assert!(prefix("10.0.0.0/8").covers(prefix("10.1.0.0/16")));
        assert!(!prefix("10.1.0.0/16").covers(prefix("10.0.0.0/8")));
    }

    #[test]
    fn around_an_address_host_bits_are_cleared() {
        let around = |text: &str, bits| Prefix::containing(text.parse().unwrap(), bits).to_string();
        assert_eq!(around("192.0.2.77", 24), "192.0.2.0/24");
        assert_eq!(around("192.0.2.77", 0), "0.0.0.0/0");
        assert_eq!(around("2001:db8::1", 200), "2001:db8::1");
        assert_eq!(around("2001:db8::1", 0), "::/0");
        assert_eq!(around("::ffff:192.0.2.77", 120), "192.0.2.0/24");
    }

    #[test]
    fn merging_drops_covered_prefixes() {
        let all = ["10.1.0.0/16", "10.0.0.0/8", "10.1.2.3", "11.0.0.0/8", "fe80::/10", "fe80::1"];
        let merged = Prefix::merge(all.iter().map(|text| prefix(text)).collect());
        let texts: Vec<String> = merged.iter().map(Prefix::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "11.0.0.0/8", "fe80::/10"]);
    }

    #[test]
    fn the_longest_prefix_wins() {
        let prefixes = ["10.0.0.0/8", "10.1.0.0/16", "10.1.255.0/24", "255.0.0.0/8", "::/0"];
        let numbered = prefixes.iter().zip(0..).map(|(text, value)| (text.parse().unwrap(), value));
        let ranges = PrefixMap::of(numbered);
        let find = |text: &str| ranges.find(text.parse().unwrap());
        assert_eq!(find("9.255.255.255"), None);
        assert_eq!(find("10.0.255.255"), Some(0));
        assert_eq!(find("10.1.254.255"), Some(1));
        assert_eq!(find("10.1.255.255"), Some(2));
        assert_eq!(find("10.2.0.0"), Some(0));
        assert_eq!(find("11.0.0.0"), None);
        assert_eq!(find("255.255.255.255"), Some(3));
        assert_eq!(find("ffff::"), Some(4));
        assert_eq!(find("::ffff:10.1.0.1"), Some(1));
    }

    #[test]
    fn of_the_same_prefix_the_later_counts() {
        let prefix = "192.0.2.0/24".parse().unwrap();
        let ranges = PrefixMap::of([(prefix, 7), (prefix, 3)]);
        assert_eq!(ranges.find("192.0.2.9".parse().unwrap()), Some(3));
        assert_eq!(ranges.find("192.0.3.0".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn find_agrees_with_a_linear_search(
            drawn in prop::collection::vec((any::<u8>(), 0_u8..=8, any::<bool>()), 0..24),
        ) {
            // The last eight bits of the address space, where additions overflow first.
            let place = |byte: u8, v6: bool| if v6 {
                IpAddr::V6((u128::MAX - 255 + u128::from(byte)).into())
            } else {
                IpAddr::V4((u32::MAX - 255 + u32::from(byte)).into())
            };
            let masked = |byte: u8, open: u8| byte & (0xff_u16 << open) as u8;
            let prefixes: Vec<_> = drawn.iter().zip(0_u32..).map(|(&(byte, open, v6), value)| {
                let length = if v6 { 128 } else { 32 } - open;
                (Prefix::new(place(masked(byte, open), v6), length).unwrap(), value)
            }).collect();
            let ranges = PrefixMap::of(prefixes.iter().copied());
            for (byte, v6) in (0..=255).flat_map(|byte| [(byte, false), (byte, true)]) {
                let best = drawn.iter().zip(0_u32..)
                    .filter(|((of, open, is_v6), _)| {
                        *is_v6 == v6 && masked(byte, *open) == masked(*of, *open)
                    })
                    .max_by_key(|((_, open, _), value)| (8 - open, *value))
                    .map(|(_, value)| value);
                prop_assert_eq!(ranges.find(place(byte, v6)), best);
                let within = ranges.ranges().find(|(first, last, _)| {
                    (*first..=*last).contains(&place(byte, v6))
                });
                prop_assert_eq!(within.map(|(_, _, value)| value), best);
            }
        }
    }
}
