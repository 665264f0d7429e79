//! Packet filters: expressions in a subset of the language of pcap-filter(7).
//!
//! A [`Filter`] is parsed from text and matches [`Candidate`]s. It differs from tcpdump in three
//! points, because it applies to the packets that the analysis decodes: it matches the packet
//! inside VLANs and tunnels, so that `port 80` needs no `vlan` before it; it matches a fragmented
//! packet after reassembly; and it does not resolve host names. As in tcpdump, the hosts of an ARP or
//! RARP packet are those that it asks for and answers.

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
use manyways_wire::frame::{self, IpPacket, SkipReason};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
/// Protocols that have a keyword, which is a complete test.
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

/// Protocols beside IP that have a keyword, by EtherType.
const ETHER_PROTOCOLS: [(&str, u16); 2] = [("arp", ARP), ("rarp", RARP)];

/// A parsed filter expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    expression: Expression,
}

/// A packet to be matched.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Link type of the interface that captured the packet.
    pub link: LinkType,
    /// The captured bytes of the frame.
    pub frame: &'a [u8],
    /// Original length of the frame in bytes; for a fragmented packet the sum over all frames.
    pub length: usize,
    /// The innermost IP packet of the frame.
    pub datagram: Result<&'a IpPacket<'a>, SkipReason>,
}

/// Reason why a text is not a filter, with the position of the error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct FilterError {
    /// Byte range of the error in the text; empty at the end of the text if a word is missing.
    pub at: Range<usize>,
    pub kind: FilterErrorKind,
}

/// A reason to reject the text of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FilterErrorKind {
    /// The text has no words.
    #[error("the filter is empty")]
    Empty,
    /// The text ends too early; contains the expected element.
    #[error("the filter ends where {0} is expected")]
    UnexpectedEnd(&'static str),
    /// A character that is not part of the filter language.
    #[error("{0:?} has no meaning in a filter")]
    Character(char),
    /// A word that is not part of the filter language.
    #[error("`{0}` is not a word of the filter language")]
    Word(String),
    /// An element of pcap-filter(7) that this module does not support.
    #[error("`{0}` is not supported")]
    Unsupported(String),
    /// An element at a wrong place.
    #[error("`{found}` is in the place of {wanted}")]
    Unexpected {
        /// The element in the text.
        found: String,
        /// The expected element.
        wanted: &'static str,
    },
    /// A value without a preceding word that defines its kind.
    #[error("the kind of `{0}` is missing")]
    MissingQualifier(String),
    /// A value that is not an address; host names are not resolved.
    #[error("`{0}` is not an address")]
    Address(String),
    /// A network after `host`.
    #[error("`{0}` is a network, not a host")]
    NetworkAsHost(String),
    /// A network with nonzero host bits.
    #[error("`{0}` has bits beyond its length")]
    HostBits(String),
    /// A value that is not a network mask.
    #[error("`{0}` is not a mask: its one bits must precede its zero bits")]
    Mask(String),
    /// A value that is neither a port number nor a known name of a port.
    #[error("`{0}` is not a port")]
    Port(String),
    /// A range of ports after `port`.
    #[error("`{0}` is a range, not a port")]
    RangeAsPort(String),
    /// A value that is not a range of ports.
    #[error("`{0}` is not a range of ports")]
    PortRange(String),
    /// A value that is neither a protocol number nor a known name of a protocol.
    #[error("`{0}` is not a protocol")]
    Protocol(String),
    /// A value that is not a number or exceeds `max`.
    #[error("`{found}` is not a number up to {max}")]
    Number {
        /// The text of the value.
        found: String,
        /// The largest permitted number.
        max: u32,
    },
    /// Qualifiers or values that contradict each other.
    #[error("`{1}` cannot be {0}")]
    Contradiction(&'static str, String),
    /// A parenthesis that is not closed.
    #[error("this parenthesis is not closed")]
    UnclosedParenthesis,
    /// A filter with too many tests, or parentheses nested too deeply.
    #[error("the filter is too long, or its parentheses are too deep")]
    TooLarge,
}

impl FilterErrorKind {
    /// Returns the hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty | Self::Word(_) | Self::Character(_) => {
                "for example: tcp port 80 or 443; host 192.0.2.1; net 10.0.0.0/8 and not udp"
            }
            Self::UnexpectedEnd(_) | Self::Unexpected { .. } => {
                "join tests with and, or, not: host 192.0.2.1 and not port 22"
            }
            Self::Unsupported(_) => {
                "use hosts, networks, ports, protocols, VLANs and lengths; for other tests, filter first: tcpdump -r IN -w OUT"
            }
            Self::MissingQualifier(_) => {
                "write its kind before it: port 80, host 192.0.2.1, net 10.0.0.0/8"
            }
            Self::Address(_) => {
                "host names are not resolved: write an address like 192.0.2.1 or 2001:db8::1"
            }
            Self::NetworkAsHost(_) => "write net for a network: net 10.0.0.0/8",
            Self::HostBits(_) => "clear these bits, as in net 10.1.0.0/16, or increase the length",
            Self::Mask(_) => "write the length instead: net 10.0.0.0/8",
            Self::Port(_) => {
                "a port is a number up to 65535 or a well-known name: port 443, port https"
            }
            Self::RangeAsPort(_) => "write portrange for several ports: portrange 8000-8080",
            Self::PortRange(_) => "write the first and the last port: portrange 8000-8080",
            Self::Protocol(_) => "a protocol is a number up to 255 or a name: proto 89, proto tcp",
            Self::Number { .. } => "write the number in decimal digits",
            Self::Contradiction(..) => "remove one of the two",
            Self::UnclosedParenthesis => "add the closing parenthesis",
            Self::TooLarge => {
                "shorten it: write port 80 or 443 for lists, and a network for its hosts"
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Primitive(Primitive),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Primitive {
    Address(Dir, Prefix),
    /// First and last port.
    Port(Dir, u16, u16),
    /// IP version, 4 or 6.
    Version(u8),
    Protocol(u8),
    /// EtherType of a protocol other than IP.
    Ether(u16),
    /// `None` matches any VLAN tag.
    Vlan(Option<u16>),
    Length(Comparison, u32),
}

/// The endpoint to which a test applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dir {
    Either,
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    Not,
    AtLeast,
    Greater,
}

impl Filter {
    /// Whether the packet matches the filter.
    pub fn matches(&self, candidate: &Candidate<'_>) -> bool {
        self.expression.matches(candidate)
    }
}

impl Candidate<'_> {
    fn protocol(&self) -> Option<u8> {
        self.datagram.ok().map(|datagram| datagram.protocol)
    }

    /// Returns the source and the destination; in ARP and RARP the protocol addresses of the sender
    /// and of the target, at the places where libpcap looks for them. `None` without addresses.
    fn addresses(&self) -> Option<[IpAddr; 2]> {
        match self.datagram {
            Ok(datagram) => Some([datagram.source, datagram.destination]),
            Err(SkipReason::Protocol(ARP | RARP)) => {
                let (_, message) = frame::other_protocol(self.link, self.frame)?;
                let address = |at: usize| -> Option<IpAddr> {
                    let bytes: [u8; 4] = *message.get(at..)?.first_chunk()?;
                    Some(bytes.into())
                };
                address(14).zip(address(24)).map(<[IpAddr; 2]>::from)
            }
            Err(_) => None,
        }
    }

    /// Returns the source and the destination port. `None` if the packet is not TCP, UDP or SCTP,
    /// is a later fragment, or has fewer than 4 bytes of payload.
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
            Self::Primitive(test) => test.matches(candidate),
        }
    }

    fn is_compound(&self) -> bool {
        matches!(self, Self::And(..) | Self::Or(..))
    }
}

impl Primitive {
    fn matches(self, candidate: &Candidate<'_>) -> bool {
        match self {
            Self::Address(way, prefix) => candidate
                .addresses()
                .is_some_and(|ends| way.matches(ends, |one: IpAddr| prefix.contains(one))),
            Self::Port(way, first, last) => candidate
                .ports()
                .is_some_and(|ports| way.matches(ports, |port| (first..=last).contains(&port))),
            Self::Version(version) => {
                candidate.datagram.is_ok_and(|found| found.source.is_ipv4() == (version == 4))
            }
            Self::Protocol(protocol) => candidate.protocol() == Some(protocol),
            Self::Ether(protocol) => {
                candidate.datagram.err() == Some(SkipReason::Protocol(protocol))
            }
            Self::Vlan(wanted) => frame::vlans(candidate.link, candidate.frame)
                .any(|vlan| wanted.is_none_or(|wanted| wanted == vlan)),
            Self::Length(order, length) => {
                order.compare(candidate.length, usize::try_from(length).unwrap_or(usize::MAX))
            }
        }
    }
}

impl Dir {
    /// Whether `is_so` is true for the endpoint, or for either of the two.
    fn matches<T>(self, [source, destination]: [T; 2], is_so: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => is_so(source) || is_so(destination),
            Self::Source => is_so(source),
            Self::Destination => is_so(destination),
        }
    }
}

impl Comparison {
    const ALL: [(&'static str, Self); 7] = [
        ("<", Self::Less),
        ("<=", Self::AtMost),
        ("=", Self::Equal),
        ("==", Self::Equal),
        ("!=", Self::Not),
        (">=", Self::AtLeast),
        (">", Self::Greater),
    ];

    fn compare(self, one: usize, other: usize) -> bool {
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
    /// Writes the filter with all implied qualifiers. The text parses to the same filter, unless it
    /// is too large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behind = |f: &mut fmt::Formatter<'_>, one: &Self| match one.is_compound() {
            true => write!(f, "({one})"),
            false => write!(f, "{one}"),
        };
        // `and` and `or` have the same precedence and associate to the left: a left operand needs
        // no parentheses.
        let (one, word, other) = match self {
            Self::Primitive(test) => return test.fmt(f),
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

impl fmt::Display for Primitive {
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
            Self::Ether(protocol) => {
                match ETHER_PROTOCOLS.iter().find(|known| known.1 == *protocol) {
                    Some((word, _)) => f.write_str(word),
                    None => write!(f, "ether proto {protocol:#06x}"),
                }
            }
            Self::Vlan(None) => f.write_str("vlan"),
            Self::Vlan(Some(vlan)) => write!(f, "vlan {vlan}"),
            Self::Length(order, length) => {
                let sign =
                    Comparison::ALL.iter().find(|(_, one)| one == order).map_or("", |one| one.0);
                write!(f, "len {sign} {length}")
            }
        }
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Either => "",
            Self::Source => "src ",
            Self::Destination => "dst ",
        })
    }
}
