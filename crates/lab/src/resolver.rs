//! The small name server that runs on the gateway of each emulated link. Each link has a zone of
//! its own, so that a name may have another address on each, as a content network's names do.
//!
//! It knows `A` and `AAAA` and no other records. Of the names below `.lab` that it does not know
//! it says that they do not exist; other names go to an upstream server when the lab has the
//! host's network, and do not exist otherwise.
//!
//! [`Zone`] and [`answer`] are pure; [`Resolver`] is the thread that serves them.

mod serve;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use simple_dns::rdata::{OPT, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE,
};

pub use self::serve::{Counters, Resolver};

/// What a UDP answer may hold when the asker does not say (RFC 1035, section 4.2.1).
const PLAIN_UDP: usize = 512;
/// What we promise and believe at most of UDP: it fits every link (RFC 9715).
const SAFE_UDP: u16 = 1232;
/// A header: what is shorter is no question.
const HEADER: usize = 12;
/// Questions come with at most this many further records; one `OPT` is usual.
const RECORD_LIMIT: u16 = 4;

/// The names of one link, as its gateway tells them. Names are compared without case.
#[derive(Clone, Debug)]
pub struct Zone {
    names: HashMap<String, Vec<IpAddr>>,
    /// How long an answer may be remembered, in seconds; one, because scenarios change fast.
    ttl: u32,
}

impl Default for Zone {
    fn default() -> Self {
        Self { names: HashMap::new(), ttl: 1 }
    }
}

impl Zone {
    /// Adds addresses to a name; a dot at its end makes no difference.
    pub fn insert(&mut self, name: &str, addresses: Vec<IpAddr>) {
        self.names.entry(key(name)).or_default().extend(addresses);
    }

    /// The addresses of a name, if it exists.
    pub fn get(&self, name: &str) -> Option<&[IpAddr]> {
        self.names.get(&key(name)).map(Vec::as_slice)
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// How a question came and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Answers that are too long are cut, and the asker comes again over TCP.
    Udp,
    /// Up to 65535 bytes.
    Tcp,
}

/// What is to be done about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this back.
    Answer(Vec<u8>),
    /// It is for another server; without one, send this back, which says that the name does not
    /// exist.
    Elsewhere(Vec<u8>),
    /// It is no question: send nothing.
    Silence,
}

/// The answer of `zone` to the bytes of a question, if it deserves one. Pure, and for any bytes.
pub fn answer(zone: &Zone, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
    match consider(zone, query, transport) {
        Verdict::Answer(bytes) | Verdict::Elsewhere(bytes) => Some(bytes),
        Verdict::Silence => None,
    }
}

/// As [`answer`], telling whose question it is.
pub fn consider(zone: &Zone, query: &[u8], transport: Transport) -> Verdict {
    let field = |at: usize| query.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    // Answers are not answered: two servers would never stop.
    if query.len() < HEADER || field(2) & PacketFlag::RESPONSE.bits() != 0 {
        return Verdict::Silence;
    }
    let asked = if field(4) == 1 && field(6) == 0 && field(8) == 0 && field(10) <= RECORD_LIMIT {
        Packet::parse(query).ok()
    } else {
        None
    };
    let Some(asked) = asked else {
        let mut reply = Packet::new_reply(field(0));
        *reply.rcode_mut() = RCODE::FormatError;
        return Verdict::Answer(build(reply, PLAIN_UDP));
    };
    let question = &asked.questions[0];
    let name = key(&question.qname.to_string());

    let mut reply = Packet::new_reply(asked.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    *reply.opcode_mut() = asked.opcode();
    reply.questions.push(question.clone());
    let mut limit = usize::from(u16::MAX);
    if let Some(opt) = asked.opt() {
        *reply.opt_mut() =
            Some(OPT { opt_codes: Vec::new(), udp_packet_size: SAFE_UDP, version: 0 });
        if transport == Transport::Udp {
            limit = usize::from(opt.udp_packet_size.min(SAFE_UDP)).max(PLAIN_UDP);
        }
    } else if transport == Transport::Udp {
        limit = PLAIN_UDP;
    }

    if asked.opcode() != OPCODE::StandardQuery {
        *reply.rcode_mut() = RCODE::NotImplemented;
        return Verdict::Answer(build(reply, limit));
    }
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
        *reply.rcode_mut() = RCODE::Refused;
        return Verdict::Answer(build(reply, limit));
    }
    let Some(addresses) = zone.names.get(&name) else {
        *reply.rcode_mut() = RCODE::NameError;
        let ours = name == super::DOMAIN || name.ends_with(&format!(".{}", super::DOMAIN));
        if ours {
            reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
            return Verdict::Answer(build(reply, limit));
        }
        return Verdict::Elsewhere(build(reply, limit));
    };
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    for address in addresses {
        let (kind, data) = match *address {
            IpAddr::V4(ip) => (TYPE::A, RData::A(ip.into())),
            IpAddr::V6(ip) => (TYPE::AAAA, RData::AAAA(ip.into())),
        };
        if matches!(question.qtype, QTYPE::ANY) || question.qtype == QTYPE::TYPE(kind) {
            reply.answers.push(ResourceRecord::new(
                question.qname.clone(),
                CLASS::IN,
                zone.ttl,
                data,
            ));
        }
    }
    Verdict::Answer(build(reply, limit))
}

/// The bytes of a reply, without its records and marked as cut when it is longer than `limit`.
fn build(mut reply: Packet<'_>, limit: usize) -> Vec<u8> {
    // Writing to memory fails for no packet that was made from parsed names.
    let bytes = reply.build_bytes_vec_compressed().unwrap_or_default();
    if bytes.len() <= limit {
        return bytes;
    }
    reply.answers.clear();
    reply.name_servers.clear();
    reply.additional_records.clear();
    reply.set_flags(PacketFlag::TRUNCATION);
    reply.build_bytes_vec_compressed().unwrap_or_default()
}

/// The question as it goes upstream: under another number, and with room for a long answer, so
/// that one over TCP need not be asked for.
fn upstream_question(query: &[u8], id: u16) -> Option<Vec<u8>> {
    let mut packet = Packet::parse(query).ok()?;
    packet.set_id(id);
    packet.additional_records.clear();
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: 4096, version: 0 });
    packet.build_bytes_vec().ok()
}

/// The upstream server's answer as the asker gets it, when it is one to that question.
fn upstream_answer(query: &[u8], reply: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let asked = Packet::parse(query).ok()?;
    let mut reply = Packet::parse(reply).ok()?;
    let same = |name: &Name<'_>| key(&name.to_string());
    let (question, echoed) = (asked.questions.first()?, reply.questions.first()?);
    if !reply.has_flags(PacketFlag::RESPONSE)
        || same(&question.qname) != same(&echoed.qname)
        || question.qtype != echoed.qtype
    {
        return None;
    }
    reply.set_id(asked.id());
    reply.questions.clone_from(&asked.questions);
    let limit = match (transport, asked.opt()) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => PLAIN_UDP,
        (Transport::Udp, Some(opt)) => {
            usize::from(opt.udp_packet_size.min(SAFE_UDP)).max(PLAIN_UDP)
        }
    };
    *reply.opt_mut() =
        asked.opt().map(|_| OPT { opt_codes: Vec::new(), udp_packet_size: SAFE_UDP, version: 0 });
    let bytes = build(reply, limit);
    (!bytes.is_empty()).then_some(bytes)
}

/// The name server that this host itself asks, to hand other names on to.
pub fn host_upstream() -> Option<SocketAddr> {
    let file = std::fs::read(Path::new("/etc/resolv.conf")).ok()?;
    let servers = manyways_sys::interface::announced::resolv_conf(&file).dns;
    Some(SocketAddr::new(*servers.first()?, 53))
}

#[cfg(test)]
mod tests;
