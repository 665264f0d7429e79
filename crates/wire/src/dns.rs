//! Which addresses a name server gave for which name (RFC 1035): a connection to one of them that
//! shows no name itself is then known by the one that was asked for.

mod names;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use manyways_trace::Span;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, TYPE};

pub use names::{Limits, Names};

use crate::{HostName, Peek};

/// The most addresses that are taken from one answer.
pub const ADDRESS_LIMIT: usize = 32;
/// The longest chain of aliases that is followed inside one answer.
const ALIAS_LIMIT: usize = 16;
/// The most records that a message may claim to hold in one section.
const RECORD_LIMIT: u16 = 512;

/// What somebody asks a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number by which the answer will name this question.
    pub id: u16,
    /// The name that is asked for.
    pub name: HostName,
    /// What is asked about it: the number of a record type, 1 for IPv4 and 28 for IPv6 addresses
    /// (the registry of DNS resource record types).
    pub kind: u16,
}

/// What a name server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The number of the question.
    pub id: u16,
    /// The name that was asked for, whatever aliases it has.
    pub name: HostName,
    /// Its addresses, each once and with the time for which that may be believed, the lifetimes of
    /// its aliases included; at most [`ADDRESS_LIMIT`], and none when the name has none of the kind
    /// that was asked for.
    pub addresses: Vec<(IpAddr, Span)>,
}

/// Reads the question in a datagram to a name server. None when it is none, or not for a host.
pub fn question(datagram: &[u8]) -> Option<Asked> {
    let packet = parse(datagram)?;
    if packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    asked(&packet)
}

/// Reads the answer in a datagram from a name server. None when it is none, reports an error (that
/// there is no such name, say) or answers no question for a host. The caller knows whether somebody
/// asked for it, and is to drop what nobody did.
pub fn answer(datagram: &[u8]) -> Option<Answered> {
    let packet = parse(datagram)?;
    if !packet.has_flags(PacketFlag::RESPONSE) || packet.rcode() != RCODE::NoError {
        return None;
    }
    let Asked { id, name, .. } = asked(&packet)?;
    let records: Vec<_> = packet
        .answers
        .iter()
        .filter(|record| record.class == CLASS::IN)
        .map(|record| (text(&record.name), lifetime(record.ttl), &record.rdata))
        .collect();

    let (mut owner, mut believed) = (name.to_string(), Span::MAX);
    for _ in 0..ALIAS_LIMIT {
        let alias = records.iter().find_map(|(of, lifetime, data)| match data {
            RData::CNAME(target) if *of == owner => Some((text(&target.0), *lifetime)),
            _ => None,
        });
        let Some((target, lifetime)) = alias else { break };
        (owner, believed) = (target, believed.min(lifetime));
    }
    let mut addresses: Vec<(IpAddr, Span)> = Vec::new();
    for (_, lifetime, data) in records.iter().filter(|(of, ..)| *of == owner) {
        let address = match data {
            RData::A(a) => IpAddr::V4(a.address.into()),
            RData::AAAA(a) => IpAddr::V6(a.address.into()),
            _ => continue,
        };
        if addresses.len() < ADDRESS_LIMIT && addresses.iter().all(|(known, _)| *known != address) {
            addresses.push((address, believed.min(*lifetime)));
        }
    }
    Some(Answered { id, name, addresses })
}

/// The first message of a TCP stream to or from a name server, where two bytes with its length come
/// before each (RFC 1035, 4.2.2). The message is what [`question`] and [`answer`] read; the next
/// one begins two bytes and its length later.
pub fn framed(bytes: &[u8]) -> Peek<&[u8]> {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Peek::More(2) };
    match usize::from(u16::from_be_bytes(*length)) {
        0 => Peek::No,
        length => rest.get(..length).map_or(Peek::More(2 + length), Peek::Complete),
    }
}

fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
    let counted = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    // The library makes room for what the header claims before it looks.
    if counted(4)? != 1 || [6, 8, 10].into_iter().any(|at| counted(at) > Some(RECORD_LIMIT)) {
        return None;
    }
    Packet::parse(bytes).ok().filter(|packet| packet.opcode() == OPCODE::StandardQuery)
}

fn asked(packet: &Packet<'_>) -> Option<Asked> {
    let question = packet.questions.first()?;
    if question.qclass != QCLASS::CLASS(CLASS::IN) {
        return None;
    }
    // The library writes a dot inside a label with a backslash, which no host's name has.
    let name = HostName::parse(text(&question.qname).as_bytes())?;
    let kind = match question.qtype {
        QTYPE::TYPE(kind) => TYPE::into(kind),
        other => other.into(),
    };
    Some(Asked { id: packet.id(), name, kind })
}

fn text(name: &Name<'_>) -> String {
    name.to_string().to_ascii_lowercase()
}

/// A lifetime with its first bit set is none at all (RFC 2181, 8).
fn lifetime(seconds: u32) -> Span {
    i32::try_from(seconds).map_or(Span::ZERO, |_| Span::from_secs(seconds.into()))
}
