//! Questions and answers as bytes, and the hosts file. Pure.

use std::net::IpAddr;

use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// The longest chain of aliases that is followed inside one answer.
const ALIAS_LIMIT: usize = 16;
/// The most addresses that are taken from one answer.
pub const ADDRESS_LIMIT: usize = 32;
/// The most records that an answer may claim to hold.
const RECORD_LIMIT: u16 = 512;
/// What fits every link in one packet (RFC 9715).
pub(super) const UDP_SIZE: u16 = 1232;

/// The family that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `A` records.
    V4,
    /// `AAAA` records.
    V6,
}

/// What a server's answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name's addresses, none when it exists without one in this family.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoSuchName,
    /// The answer was cut: ask again over TCP.
    Truncated,
    /// The server does not want to or cannot answer; the text says which.
    Unhelpful(&'static str),
    /// It is not an answer to this question.
    Foreign,
}

/// The bytes of a question. The name must be one that [`is_host_name`] accepts.
pub fn question(id: u16, name: &str, family: Family) -> Option<Vec<u8>> {
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
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: UDP_SIZE, version: 0 });
    packet.build_bytes_vec().ok()
}

/// Reads a server's answer to the question with this number, name and family. For any bytes.
pub fn read_answer(bytes: &[u8], id: u16, name: &str, family: Family) -> Answer {
    let counted = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    // The library makes room for what the header claims before it looks.
    if [6, 8, 10].into_iter().any(|at| counted(at) > RECORD_LIMIT) || counted(4) > 1 {
        return Answer::Foreign;
    }
    let Ok(packet) = Packet::parse(bytes) else { return Answer::Foreign };
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Answer::Foreign;
    }
    let text = |name: &Name<'_>| name.to_string().to_ascii_lowercase();
    let asked = name.trim_end_matches('.').to_ascii_lowercase();
    match packet.questions.first() {
        Some(question) if text(&question.qname) != asked => return Answer::Foreign,
        Some(_) => {}
        // A server that could not read the question cannot repeat it.
        None if packet.rcode() == RCODE::FormatError => {}
        None => return Answer::Foreign,
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Answer::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Answer::NoSuchName,
        RCODE::ServerFailure => return Answer::Unhelpful("it reports a failure (SERVFAIL)"),
        RCODE::Refused => return Answer::Unhelpful("it refuses to answer (REFUSED)"),
        RCODE::FormatError => return Answer::Unhelpful("it does not understand (FORMERR)"),
        RCODE::NotImplemented => return Answer::Unhelpful("it cannot do that (NOTIMP)"),
        _ => return Answer::Unhelpful("it answers with an error"),
    }
    let mut owner = asked;
    for _ in 0..ALIAS_LIMIT {
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
        if addresses.len() < ADDRESS_LIMIT && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Answer::Addresses(addresses)
}

/// Whether this can be asked for: labels of letters, digits, hyphens and underscores, at most 63
/// bytes each and 253 together. Other scripts must come in their `xn--` form.
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

/// The addresses that a hosts file gives `name`.
pub fn hosts(bytes: &[u8], name: &str) -> Vec<IpAddr> {
    let name = name.trim_end_matches('.');
    let text = String::from_utf8_lossy(bytes);
    let mut addresses = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(address) = words.next() else { continue };
        // A zone belongs to an interface, which is not known here.
        let Ok(address) = address.parse::<IpAddr>() else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name))
            && addresses.len() < ADDRESS_LIMIT
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    addresses
}
