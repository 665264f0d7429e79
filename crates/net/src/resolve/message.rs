//! Encoding of DNS queries, parsing of answers and of the hosts file. Without I/O.

use std::fmt;
use std::net::IpAddr;

pub use manyways_proto::resolve::{Edns, Family};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// Maximum length of a CNAME chain within one answer.
const MAX_ALIASES: usize = 16;
/// Maximum number of addresses that are read from one answer.
pub const MAX_ADDRESSES: usize = 32;
/// Maximum number of records in each section of an answer.
const MAX_RECORDS: u16 = 512;
/// The largest datagram that every link carries without fragmentation (RFC 9715).
const UDP_SIZE: u16 = 1232;

/// The content of a name server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The addresses of the name; empty if the name has none in this family.
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoSuchName,
    /// Longer than a datagram: must be queried over TCP.
    Truncated,
    /// The server cannot answer or refuses to.
    Failed(ResponseCode),
    /// Not an answer to this query.
    Unrelated,
}

/// OPT records in a message: the root as their name, and their type.
const OPT_START: [u8; 3] = [0, 0, 41];

/// An error that a name server reports (RFC 1035 §4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseCode {
    /// SERVFAIL.
    ServerFailure,
    /// REFUSED.
    Refused,
    /// FORMERR.
    FormatError,
    /// NOTIMP.
    NotImplemented,
    /// BADVERS (RFC 6891 §9).
    BadVersion,
    /// Any other.
    Other,
}

impl ResponseCode {
    /// Whether a server that does not know EDNS may report this for a query with an OPT record.
    pub fn may_concern_edns(self) -> bool {
        matches!(
            self,
            Self::ServerFailure | Self::FormatError | Self::NotImplemented | Self::BadVersion
        )
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerFailure => "the server reports a failure (SERVFAIL)",
            Self::Refused => "the server refuses to answer (REFUSED)",
            Self::FormatError => "the server cannot parse the query (FORMERR)",
            Self::NotImplemented => "the server does not support the query (NOTIMP)",
            Self::BadVersion => "the server does not support this version of EDNS (BADVERS)",
            Self::Other => "the server answers with an error",
        })
    }
}

/// Encodes a query. `None` unless [`is_host_name`] accepts the name.
pub fn encode_query(id: u16, name: &str, family: Family, edns: Edns) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = match family {
        Family::V4 => TYPE::A,
        Family::V6 => TYPE::AAAA,
    };
    packet.questions.push(Question::new(
        Name::new(name).ok()?,
        QTYPE::TYPE(kind),
        QCLASS::CLASS(CLASS::IN),
        false,
    ));
    let opt = OPT { opt_codes: Vec::new(), udp_packet_size: UDP_SIZE, version: 0 };
    *packet.opt_mut() = (edns == Edns::Offered).then_some(opt);
    packet.build_bytes_vec().ok()
}

/// Parses the answer to the query with this number, name and family. Accepts any bytes.
pub fn parse_response(bytes: &[u8], id: u16, name: &str, family: Family) -> DnsAnswer {
    let count = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    // simple-dns allocates for the number of records in the header.
    if [6, 8, 10].into_iter().any(|at| count(at) > MAX_RECORDS) || count(4) > 1 {
        return DnsAnswer::Unrelated;
    }
    let Ok(packet) = Packet::parse(bytes) else { return DnsAnswer::Unrelated };
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return DnsAnswer::Unrelated;
    }
    let text = |name: &Name<'_>| name.to_string().to_ascii_lowercase();
    let queried = name.trim_end_matches('.').to_ascii_lowercase();
    match packet.questions.first() {
        Some(question) if text(&question.qname) != queried => return DnsAnswer::Unrelated,
        Some(_) => {}
        // A server that could not parse the query cannot repeat its question.
        None if matches!(packet.rcode(), RCODE::FormatError | RCODE::NotImplemented) => {}
        None => return DnsAnswer::Unrelated,
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return DnsAnswer::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError if is_bad_version(bytes, &packet) => {
            return DnsAnswer::Failed(ResponseCode::BadVersion);
        }
        RCODE::NoError => {}
        RCODE::NameError => return DnsAnswer::NoSuchName,
        RCODE::ServerFailure => return DnsAnswer::Failed(ResponseCode::ServerFailure),
        RCODE::Refused => return DnsAnswer::Failed(ResponseCode::Refused),
        RCODE::FormatError => return DnsAnswer::Failed(ResponseCode::FormatError),
        RCODE::NotImplemented => return DnsAnswer::Failed(ResponseCode::NotImplemented),
        _ => return DnsAnswer::Failed(ResponseCode::Other),
    }
    let mut owner = queried;
    for _ in 0..MAX_ALIASES {
        let alias = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(target) if text(&record.name) == owner => Some(text(&target.0)),
            _ => None,
        });
        match alias {
            Some(target) => owner = target,
            None => break,
        }
    }
    let mut addresses = Vec::new();
    for record in packet.answers.iter().filter(|record| text(&record.name) == owner) {
        let address = match (&record.rdata, family) {
            (RData::A(a), Family::V4) => IpAddr::V4(a.address.into()),
            (RData::AAAA(a), Family::V6) => IpAddr::V6(a.address.into()),
            _ => continue,
        };
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    DnsAnswer::Addresses(addresses)
}

/// Whether the code is BADVERS, whose upper bits are in the OPT record. simple-dns does not read
/// them; an error here costs one more query.
fn is_bad_version(bytes: &[u8], packet: &Packet<'_>) -> bool {
    let opt = bytes.windows(OPT_START.len()).rposition(|window| window == OPT_START);
    // After the name and the type, the class has two bytes.
    packet.answers.is_empty() && opt.is_some_and(|at| bytes.get(at + 5) == Some(&1))
}

/// Whether this name can be queried: labels of letters, digits, hyphens and underscores, at most 63
/// bytes each and 253 in total. Names in other scripts must be in their `xn--` form.
pub fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
}

/// The addresses of `name` in a hosts file.
pub fn addresses_in_hosts(bytes: &[u8], name: &str) -> Vec<IpAddr> {
    let name = name.trim_end_matches('.');
    let text = String::from_utf8_lossy(bytes);
    let mut addresses = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(address) = words.next() else { continue };
        // An address with a zone is skipped: the zone names an interface, which is unknown here.
        let Ok(address) = address.parse::<IpAddr>() else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name))
            && addresses.len() < MAX_ADDRESSES
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}
