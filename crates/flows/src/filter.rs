//! Which packets count: expressions in a part of the language of pcap-filter(7), which users of
//! tcpdump know.
//!
//! A [`Filter`] is parsed from text and says of a [`Candidate`] whether it matches. It differs from
//! tcpdump in three things, as it looks at what the analysis sees: at the packet inside of VLANs and
//! tunnels, so that `port 80` needs no `vlan` before it; at a packet that came in fragments as a
//! whole; and at no names of hosts, which would have to be asked for.

mod parse;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use manyways_unit::Prefix;
use manyways_wire::capture::LinkType;
use manyways_wire::frame::{self, Datagram, Opaque};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ARP: u16 = 0x0806;
/// Protocols that have a word, which stands for them alone.
const PROTOCOLS: [(&str, u8); 8] = [
    ("tcp", TCP),
    ("udp", UDP),
    ("sctp", SCTP),
    ("icmp", 1),
    ("icmp6", 58),
    ("igmp", 2),
    ("gre", 47),
    ("esp", 50),
];

/// An expression that packets match or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    expression: Expression,
}

/// What a filter looks at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The link that it passed.
    pub link: LinkType,
    /// Its frame, as much of it as was captured.
    pub frame: &'a [u8],
    /// How many bytes the frame has, captured or not; of a packet in fragments those of all frames.
    pub length: usize,
    /// The IP packet in it: the innermost one.
    pub datagram: Result<&'a Datagram<'a>, Opaque>,
}

/// Why a text is no filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct FilterError {
    /// Which bytes of the text are wrong; behind the last where something is missing.
    pub at: Range<usize>,
    /// What is wrong with them.
    pub problem: Problem,
}

/// What can be wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// There is nothing.
    #[error("the filter is empty")]
    Empty,
    /// It stops too early.
    #[error("the filter ends where {0} should come")]
    Ends(&'static str),
    /// A character that no filter has.
    #[error("{0:?} has no meaning in a filter")]
    Character(char),
    /// A word that nobody knows.
    #[error("`{0}` is no word of the filter language")]
    Word(String),
    /// Something that tcpdump reads.
    #[error("`{0}` is not read here")]
    NotRead(String),
    /// Something else should stand there.
    #[error("`{found}` stands where {wanted} should come")]
    Instead {
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
    /// A value that no word before it gives a meaning to.
    #[error("nothing says what `{0}` is")]
    Alone(String),
    /// The name of a host or network.
    #[error("`{0}` is no address")]
    Address(String),
    /// A host with a length.
    #[error("`{0}` is a network, not a host")]
    Length(String),
    /// A network with bits that belong to hosts.
    #[error("`{0}` has bits beyond its length")]
    Beyond(String),
    /// No mask of a network.
    #[error("`{0}` is no mask: its ones come first, then its zeros")]
    Mask(String),
    /// No port.
    #[error("`{0}` is no port")]
    Port(String),
    /// Several ports where one should stand.
    #[error("`{0}` is a range, not a port")]
    Range(String),
    /// No range of ports.
    #[error("`{0}` is no range of ports")]
    Ports(String),
    /// No protocol.
    #[error("`{0}` is no protocol")]
    Protocol(String),
    /// No number, or one that is too large.
    #[error("`{found}` is no number up to {most}")]
    Number {
        /// What stands there.
        found: String,
        /// The largest.
        most: u32,
    },
    /// Words that contradict each other.
    #[error("{0} cannot be what `{1}` says")]
    Contradiction(&'static str, String),
    /// A parenthesis without the other one.
    #[error("this parenthesis is not closed")]
    Open,
    /// Too deep, or too long.
    #[error("the filter is too long, or its parentheses are too deep")]
    Large,
}

impl Problem {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty | Self::Word(_) | Self::Character(_) => {
                "for example: tcp port 80 or 443; host 192.0.2.1; net 10.0.0.0/8 and not udp"
            }
            Self::Ends(_) | Self::Instead { .. } => {
                "join tests with and, or, not: host 192.0.2.1 and not port 22"
            }
            Self::NotRead(_) => {
                "hosts, networks, ports, protocols, VLANs and lengths are: tcpdump -r IN -w OUT filters by the rest"
            }
            Self::Alone(_) => "write what it is before it: port 80, host 192.0.2.1, net 10.0.0.0/8",
            Self::Address(_) => {
                "names are not looked up: write the address, as 192.0.2.1 or 2001:db8::1"
            }
            Self::Length(_) => "write net for a network: net 10.0.0.0/8",
            Self::Beyond(_) => "clear them, as in net 10.1.0.0/16, or make the length greater",
            Self::Mask(_) => "write the length instead: net 10.0.0.0/8",
            Self::Port(_) => {
                "a port is a number up to 65535 or a well-known name: port 443, port https"
            }
            Self::Range(_) => "write portrange for several: portrange 8000-8080",
            Self::Ports(_) => "write the first and the last one: portrange 8000-8080",
            Self::Protocol(_) => "a protocol is a number up to 255 or a name: proto 89, proto tcp",
            Self::Number { .. } => "write the number in decimal digits",
            Self::Contradiction(..) => "leave out one of the two",
            Self::Open => "close it behind what belongs together",
            Self::Large => {
                "lists are shorter: port 80 or 443; a network stands for all of its hosts"
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Test(Test),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Address(Way, Prefix),
    /// From the first to the last.
    Port(Way, u16, u16),
    /// Version 4 or 6.
    Version(u8),
    Protocol(u8),
    Arp,
    /// Any, or one.
    Vlan(Option<u16>),
    Length(Order, u32),
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Either,
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    AtMost,
    Equal,
    Not,
    AtLeast,
    Greater,
}

impl Filter {
    /// Whether it matches.
    pub fn matches(&self, candidate: &Candidate<'_>) -> bool {
        self.expression.matches(candidate)
    }
}

impl Candidate<'_> {
    fn protocol(&self) -> Option<u8> {
        self.datagram.ok().map(|datagram| datagram.protocol)
    }

    /// From which port, and to which one.
    fn ports(&self) -> Option<[u16; 2]> {
        let datagram = self.datagram.ok()?;
        let is_later = datagram.fragment.is_some_and(|part| part.offset > 0);
        if is_later || ![TCP, UDP, SCTP].contains(&datagram.protocol) {
            return None;
        }
        let [a, b, c, d]: [u8; 4] = *datagram.payload.first_chunk()?;
        Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
    }
}

impl Expression {
    fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }

    fn matches(&self, candidate: &Candidate<'_>) -> bool {
        match self {
            Self::And(one, other) => one.matches(candidate) && other.matches(candidate),
            Self::Or(one, other) => one.matches(candidate) || other.matches(candidate),
            Self::Not(one) => !one.matches(candidate),
            Self::Test(test) => test.matches(candidate),
        }
    }

    fn is_joined(&self) -> bool {
        matches!(self, Self::And(..) | Self::Or(..))
    }
}

impl Test {
    fn matches(self, candidate: &Candidate<'_>) -> bool {
        match self {
            Self::Address(way, prefix) => candidate.datagram.is_ok_and(|datagram| {
                way.any([datagram.source, datagram.destination], |one: IpAddr| prefix.contains(one))
            }),
            Self::Port(way, first, last) => candidate
                .ports()
                .is_some_and(|ports| way.any(ports, |port| (first..=last).contains(&port))),
            Self::Version(version) => {
                candidate.datagram.is_ok_and(|found| found.source.is_ipv4() == (version == 4))
            }
            Self::Protocol(protocol) => candidate.protocol() == Some(protocol),
            Self::Arp => candidate.datagram.err() == Some(Opaque::Protocol(ARP)),
            Self::Vlan(wanted) => frame::vlans(candidate.link, candidate.frame)
                .any(|vlan| wanted.is_none_or(|wanted| wanted == vlan)),
            Self::Length(order, length) => {
                order.holds(candidate.length, usize::try_from(length).unwrap_or(usize::MAX))
            }
        }
    }
}

impl Way {
    /// Whether it is so for the ends that this means.
    fn any<T>(self, [source, destination]: [T; 2], is_so: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => is_so(source) || is_so(destination),
            Self::Source => is_so(source),
            Self::Destination => is_so(destination),
        }
    }
}

impl Order {
    const ALL: [(&'static str, Self); 7] = [
        ("<", Self::Less),
        ("<=", Self::AtMost),
        ("=", Self::Equal),
        ("==", Self::Equal),
        ("!=", Self::Not),
        (">=", Self::AtLeast),
        (">", Self::Greater),
    ];

    fn holds(self, one: usize, other: usize) -> bool {
        match self {
            Self::Less => one < other,
            Self::AtMost => one <= other,
            Self::Equal => one == other,
            Self::Not => one != other,
            Self::AtLeast => one >= other,
            Self::Greater => one > other,
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(|expression| Self { expression })
    }
}

impl fmt::Display for Filter {
    /// With all that was left out: read again, it is the same filter, where it is not too large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behind = |f: &mut fmt::Formatter<'_>, one: &Self| match one.is_joined() {
            true => write!(f, "({one})"),
            false => write!(f, "{one}"),
        };
        // `and` and `or` bind alike, from the left: what is before them needs no parentheses.
        let (one, word, other) = match self {
            Self::Test(test) => return test.fmt(f),
            Self::Not(one) => {
                f.write_str("not ")?;
                return behind(f, one);
            }
            Self::And(one, other) => (one, "and", other),
            Self::Or(one, other) => (one, "or", other),
        };
        write!(f, "{one} {word} ")?;
        behind(f, other)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(way, prefix) => {
                let address = prefix.address();
                let bits = if address.is_ipv4() { 32 } else { 128 };
                match prefix.length() == bits {
                    true => write!(f, "{way}host {address}"),
                    false => write!(f, "{way}net {prefix}"),
                }
            }
            Self::Port(way, first, last) if first == last => write!(f, "{way}port {first}"),
            Self::Port(way, first, last) => write!(f, "{way}portrange {first}-{last}"),
            Self::Version(4) => f.write_str("ip"),
            Self::Version(_) => f.write_str("ip6"),
            Self::Protocol(number) => {
                match PROTOCOLS.iter().find(|(_, protocol)| protocol == number) {
                    Some((word, _)) => f.write_str(word),
                    None => write!(f, "proto {number}"),
                }
            }
            Self::Arp => f.write_str("arp"),
            Self::Vlan(None) => f.write_str("vlan"),
            Self::Vlan(Some(vlan)) => write!(f, "vlan {vlan}"),
            Self::Length(order, length) => {
                let sign = Order::ALL.iter().find(|(_, one)| one == order).map_or("", |one| one.0);
                write!(f, "len {sign} {length}")
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Either => "",
            Self::Source => "src ",
            Self::Destination => "dst ",
        })
    }
}
