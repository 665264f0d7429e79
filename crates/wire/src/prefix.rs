//! Parts of the address space.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits, as `192.0.2.0/24` or `2001:db8::/32`. An address alone
/// is a prefix of all its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// What is wrong with the text of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// Before the slash is no address.
    #[error("no address: write it as 192.0.2.0/24 or 2001:db8::/32")]
    Address,
    /// Behind the slash is no number of bits that such an address has.
    #[error("no length: behind the slash comes a number, up to 32 for IPv4 and 128 for IPv6")]
    Length,
    /// A bit is set that is not part of the prefix.
    #[error("the address has bits beyond the prefix's length: clear them, or make it longer")]
    Beyond,
}

impl Prefix {
    /// The first so many bits of this address. None when it has fewer bits, or others set. One of
    /// IPv4 addresses inside IPv6 (`::ffff:192.0.2.0/120`) is that of the IPv4 addresses.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (address, length) = match (address.to_canonical(), length.checked_sub(96)) {
            (inner @ IpAddr::V4(_), Some(length)) if address.is_ipv6() => (inner, length),
            _ => (address, length),
        };
        let prefix = Self { address, length };
        let fits = length <= bits(address) && number(address) & prefix.rest() == 0;
        fits.then_some(prefix)
    }

    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits it fixes.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether an address is in it; an IPv4 address inside IPv6 is an IPv4 one.
    pub fn holds(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        bits(address) == bits(self.address)
            && number(address) & !self.rest() == number(self.address)
    }

    /// The bits that it leaves open.
    fn rest(self) -> u128 {
        let open = bits(self.address).saturating_sub(self.length);
        1_u128.checked_shl(open.into()).map_or(u128::MAX, |end| end - 1)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address)?;
        let length = match length {
            None => bits(address),
            // `u8` would read a sign too.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| PrefixError::Length)?
            }
            Some(_) => return Err(PrefixError::Length),
        };
        if length > bits(address) {
            return Err(PrefixError::Length);
        }
        Self::new(address, length).ok_or(PrefixError::Beyond)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Which of many prefixes is the longest that an address begins with: they are laid out as ranges
/// that do not overlap, so one binary search finds it. A prefix takes at most two ranges: 16 bytes
/// for IPv4 and 40 for IPv6.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    v4: Vec<(u32, u32)>,
    // Apart, as together they would take 32 bytes a range.
    v6: Vec<u128>,
    v6_values: Vec<u32>,
}

/// In place of a value: no prefix reaches here.
const NONE: u32 = u32::MAX;

impl Ranges {
    /// The ranges of these prefixes, each with a value below `u32::MAX`. Of two that are the same
    /// prefix, the later one counts.
    pub(crate) fn of(prefixes: impl IntoIterator<Item = (Prefix, u32)>) -> Self {
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
        let (v6, v6_values) = flat(v6, v6_last, |last| last.checked_add(1)).into_iter().unzip();
        Self { v4: flat(v4, v4_last, |last| last.checked_add(1)), v6, v6_values }
    }

    /// The value of the longest prefix of this address. An IPv4 address inside IPv6 is an IPv4 one.
    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
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
}

/// Where another prefix becomes the longest, and its value from there on.
fn flat<A: Copy + Ord>(
    mut prefixes: Vec<(A, u8, u32)>,
    last: impl Fn(A, u8) -> A,
    next: impl Fn(A) -> Option<A>,
) -> Vec<(A, u32)> {
    // The shorter first, and by a sort that keeps the order of equals.
    prefixes.sort_by_key(|(first, length, _)| (*first, *length));
    let mut ranges: Vec<(A, u32)> = Vec::with_capacity(prefixes.len());
    // The prefixes that the next one may lie in: their last address and value.
    let mut open: Vec<(A, u32)> = Vec::new();
    for (first, length, value) in prefixes {
        while let Some((end, _)) = open.pop_if(|(end, _)| *end < first) {
            change(&mut ranges, next(end), open.last());
        }
        open.push((last(first, length), value));
        change(&mut ranges, Some(first), open.last());
    }
    while let Some((end, _)) = open.pop() {
        change(&mut ranges, next(end), open.last());
    }
    ranges.shrink_to_fit();
    ranges
}

fn change<A: Copy + Ord>(ranges: &mut Vec<(A, u32)>, at: Option<A>, to: Option<&(A, u32)>) {
    // Behind the last address there is nothing to say.
    let Some(at) = at else { return };
    ranges.pop_if(|(first, _)| *first == at);
    let value = to.map_or(NONE, |(_, value)| *value);
    if ranges.last().map_or(NONE, |(_, before)| *before) != value {
        ranges.push((at, value));
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
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
        for text in ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.1/32", "::/0", "2001:db8::/32"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().length(), 32);
        let inside: Prefix = "::ffff:192.0.2.0/120".parse().unwrap();
        assert_eq!(inside.to_string(), "192.0.2.0/24");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| text.parse::<Prefix>().unwrap_err();
        assert_eq!(wrong("192.0.2/24"), PrefixError::Address);
        assert_eq!(wrong(""), PrefixError::Address);
        assert_eq!(wrong("192.0.2.0/33"), PrefixError::Length);
        assert_eq!(wrong("192.0.2.0/+8"), PrefixError::Length);
        assert_eq!(wrong("192.0.2.0/"), PrefixError::Length);
        assert_eq!(wrong("::/129"), PrefixError::Length);
        assert_eq!(wrong("192.0.2.1/24"), PrefixError::Beyond);
        assert_eq!(wrong("::1/0"), PrefixError::Beyond);
    }

    #[test]
    fn the_longest_prefix_wins() {
        let prefixes = ["10.0.0.0/8", "10.1.0.0/16", "10.1.255.0/24", "255.0.0.0/8", "::/0"];
        let numbered = prefixes.iter().zip(0..).map(|(text, value)| (text.parse().unwrap(), value));
        let ranges = Ranges::of(numbered);
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
        let ranges = Ranges::of([(prefix, 7), (prefix, 3)]);
        assert_eq!(ranges.find("192.0.2.9".parse().unwrap()), Some(3));
        assert_eq!(ranges.find("192.0.3.0".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn it_is_what_looking_at_each_gives(
            drawn in prop::collection::vec((any::<u8>(), 0_u8..=8, any::<bool>()), 0..24),
        ) {
            // Eight bits at the end of the space, where sums overflow first.
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
            let ranges = Ranges::of(prefixes.iter().copied());
            for (byte, v6) in (0..=255).flat_map(|byte| [(byte, false), (byte, true)]) {
                let best = drawn.iter().zip(0_u32..)
                    .filter(|((of, open, is_v6), _)| {
                        *is_v6 == v6 && masked(byte, *open) == masked(*of, *open)
                    })
                    .max_by_key(|((_, open, _), value)| (8 - open, *value))
                    .map(|(_, value)| value);
                prop_assert_eq!(ranges.find(place(byte, v6)), best);
            }
        }
    }
}
