//! The small name server on the gateway of each emulated link. Each link has a separate zone, so
//! that a name may have different addresses on each link, like the names of a content delivery
//! network.
//!
//! It serves only `A` and `AAAA` records. For unknown names below `.lab` it returns NXDOMAIN. Other
//! names are forwarded to an upstream server if the lab has access to the host's network; otherwise
//! it returns NXDOMAIN for them.
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

/// Maximum size of a UDP response without EDNS (RFC 1035, section 4.2.1).
const MAX_PLAIN_UDP: usize = 512;
/// Maximum UDP size that is announced and accepted: it fits every link (RFC 9715).
const MAX_EDNS_UDP: u16 = 1232;
/// Size of a header; shorter messages are not queries.
const HEADER_SIZE: usize = 12;
/// Maximum number of additional records in a query; one `OPT` is usual.
const MAX_ADDITIONAL_RECORDS: u16 = 4;

/// The names of one link. Names are compared without case.
#[derive(Clone, Debug)]
pub struct Zone {
    names: HashMap<String, Vec<IpAddr>>,
    /// TTL of responses in seconds; 1, because scenarios change fast.
    ttl: u32,
}

impl Default for Zone {
    fn default() -> Self {
        Self { names: HashMap::new(), ttl: 1 }
    }
}

impl Zone {
    /// Adds addresses to a name, each once; a trailing dot makes no difference.
    pub fn insert(&mut self, name: &str, addresses: Vec<IpAddr>) {
        let known = self.names.entry(key(name)).or_default();
        for address in addresses {
            if !known.contains(&address) {
                known.push(address);
            }
        }
    }

    /// Returns the addresses of a name; `None` if the name does not exist.
    pub fn get(&self, name: &str) -> Option<&[IpAddr]> {
        self.names.get(&key(name)).map(Vec::as_slice)
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Transport of a query and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Responses that are too long are truncated, and the client repeats the query over TCP.
    Udp,
    /// Up to 65535 bytes.
    Tcp,
}

/// Decision about a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this response.
    Answer(Vec<u8>),
    /// The query is for another server; if there is none, send this NXDOMAIN response.
    Forward(Vec<u8>),
    /// The message is not a query: send no response.
    Ignore,
}

/// Returns the response of `zone` to the bytes of a query; `None` for no response. Pure, accepts
/// any bytes.
pub fn answer(zone: &Zone, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
    match decide(zone, query, transport) {
        Verdict::Answer(bytes) | Verdict::Forward(bytes) => Some(bytes),
        Verdict::Ignore => None,
    }
}

/// Like [`answer`], but distinguishes queries for other servers.
pub fn decide(zone: &Zone, query: &[u8], transport: Transport) -> Verdict {
    let field = |at: usize| query.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    // Responses are ignored: two servers would never stop.
    if query.len() < HEADER_SIZE || field(2) & PacketFlag::RESPONSE.bits() != 0 {
        return Verdict::Ignore;
    }
    let asked =
        if field(4) == 1 && field(6) == 0 && field(8) == 0 && field(10) <= MAX_ADDITIONAL_RECORDS {
            Packet::parse(query).ok()
        } else {
            None
        };
    let Some(asked) = asked else {
        let mut reply = Packet::new_reply(field(0));
        *reply.rcode_mut() = RCODE::FormatError;
        return Verdict::Answer(build(reply, MAX_PLAIN_UDP));
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
            Some(OPT { opt_codes: Vec::new(), udp_packet_size: MAX_EDNS_UDP, version: 0 });
        if transport == Transport::Udp {
            limit = usize::from(opt.udp_packet_size.min(MAX_EDNS_UDP)).max(MAX_PLAIN_UDP);
        }
    } else if transport == Transport::Udp {
        limit = MAX_PLAIN_UDP;
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
        return Verdict::Forward(build(reply, limit));
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

/// Returns the bytes of a reply; if it is longer than `limit`, without its records and truncated.
fn build(mut reply: Packet<'_>, limit: usize) -> Vec<u8> {
    // Writing to memory cannot fail for a packet that was made from parsed names.
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

/// Returns the query for the upstream server: with a different id, and with EDNS for a long
/// response, so that TCP is not needed.
fn upstream_query(query: &[u8], id: u16) -> Option<Vec<u8>> {
    let mut packet = Packet::parse(query).ok()?;
    packet.set_id(id);
    packet.additional_records.clear();
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: 4096, version: 0 });
    packet.build_bytes_vec().ok()
}

/// Returns the upstream server's response for the client; `None` if it does not match the query.
fn upstream_response(query: &[u8], reply: &[u8], transport: Transport) -> Option<Vec<u8>> {
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
        (Transport::Udp, None) => MAX_PLAIN_UDP,
        (Transport::Udp, Some(opt)) => {
            usize::from(opt.udp_packet_size.min(MAX_EDNS_UDP)).max(MAX_PLAIN_UDP)
        }
    };
    *reply.opt_mut() = asked.opt().map(|_| OPT {
        opt_codes: Vec::new(),
        udp_packet_size: MAX_EDNS_UDP,
        version: 0,
    });
    let bytes = build(reply, limit);
    (!bytes.is_empty()).then_some(bytes)
}

/// Returns the name server of the host, as upstream server for other names.
pub fn host_upstream() -> Option<SocketAddr> {
    let file = std::fs::read(Path::new("/etc/resolv.conf")).ok()?;
    let servers = manyways_sys::interface::announcement::resolv_conf(&file).dns;
    Some(SocketAddr::new(*servers.first()?, 53))
}

#[cfg(test)]
mod tests;
