//! DNS (RFC 1035): addresses and the names they were resolved from. A connection to one of the
//! addresses that shows no host name itself is attributed to the queried name.
//!
//! [`query`] and [`answer`] read complete messages, for forwarders that need reliable results;
//! [`Names`] keeps their names. [`Lookups`] reads captured messages, complete or truncated, and
//! joins queries with responses; [`Resolutions`] keeps the names that each client queried.
//! [`HostsTable`] reads names from files.

mod hosts;
mod lookups;
mod message;
mod names;
mod registry;
mod resolutions;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use manyways_unit::Span;

use message::{Data, Message};

pub use hosts::{HostsError, HostsErrorKind, HostsTable, MAX_HOSTS_LINES};
pub use lookups::{
    Lookup, LookupLimits, Lookups, MessageInfo, Question, Resolution, Response, Transport,
};
pub use names::{Limits, Names};
pub use registry::{Kind, Rcode};
pub use resolutions::{QueriedBy, Resolutions};

use crate::{HostName, Peek};

/// Maximum number of addresses read from one response.
pub const MAX_ADDRESSES: usize = 32;
/// Maximum number of CNAME records followed within one response.
const MAX_ALIASES: usize = 16;

/// A DNS query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// ID of the message, which the response repeats.
    pub id: u16,
    /// The queried name.
    pub name: HostName,
    /// Type of the queried record: 1 for IPv4, 28 for IPv6 addresses (IANA registry of resource
    /// record types).
    pub kind: u16,
}

/// A DNS response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// ID of the query.
    pub id: u16,
    /// The queried name, not its canonical name.
    pub name: HostName,
    /// Distinct addresses of the name, each with the smallest TTL of the records that lead to it;
    /// at most [`MAX_ADDRESSES`]. Empty if the name has no address of the queried type.
    pub addresses: Vec<(IpAddr, Span)>,
}

/// Reads the query in a datagram to a name server. `None` if the datagram is not a query, is
/// truncated, or does not query a host name.
pub fn query(datagram: &[u8]) -> Option<Query> {
    let message = read_complete(datagram)?;
    if message.is_response() {
        return None;
    }
    query_of(&message)
}

/// Reads the response in a datagram from a name server. `None` if the datagram is not a response,
/// is truncated, has an error code (for example NXDOMAIN) or does not answer a query for a host
/// name. The caller must discard responses without a query.
pub fn answer(datagram: &[u8]) -> Option<Answer> {
    let message = read_complete(datagram)?;
    if !message.is_response() || message.rcode() != Rcode::NO_ERROR {
        return None;
    }
    let Query { id, name, .. } = query_of(&message)?;
    let (_, addresses) = resolve(&message, name.as_str());
    Some(Answer { id, name, addresses })
}

/// The first message of a TCP stream to or from a name server. A length of two bytes precedes each
/// message (RFC 1035, 4.2.2). [`query`] and [`answer`] read the message; the next length follows
/// it.
pub fn tcp_message(bytes: &[u8]) -> Peek<&[u8]> {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Peek::More(2) };
    match usize::from(u16::from_be_bytes(*length)) {
        0 => Peek::No,
        length => rest.get(..length).map_or(Peek::More(2 + length), Peek::Complete),
    }
}

/// A complete standard query or its response, with exactly one question.
fn read_complete(bytes: &[u8]) -> Option<Message> {
    let message = Message::read(bytes)?;
    let is_one = message.counts.is_some_and(|[questions, ..]| questions == 1);
    (message.is_complete && is_one && message.opcode() == 0).then_some(message)
}

fn query_of(message: &Message) -> Option<Query> {
    let question = message.question.as_ref().filter(|question| question.is_internet())?;
    // A dot inside a label is escaped with a backslash, which a host name cannot contain.
    let name = HostName::parse(question.name.as_bytes())?;
    Some(Query { id: message.id, name, kind: question.kind.0 })
}

/// The canonical name of `name`, and its addresses.
fn resolve<'a>(message: &'a Message, name: &'a str) -> (&'a str, Vec<(IpAddr, Span)>) {
    let (mut owner, mut believed) = (name, Span::MAX);
    for _ in 0..MAX_ALIASES {
        let alias = message.internet_answers().find_map(|record| match &record.data {
            Data::Alias(target) if record.owner == owner => Some((target, record.ttl)),
            _ => None,
        });
        let Some((target, lifetime)) = alias else { break };
        (owner, believed) = (target, believed.min(lifetime));
    }
    let mut addresses: Vec<(IpAddr, Span)> = Vec::new();
    for record in message.internet_answers().filter(|record| record.owner == owner) {
        let Data::Address(address) = record.data else { continue };
        if addresses.len() < MAX_ADDRESSES && addresses.iter().all(|(known, _)| *known != address) {
            addresses.push((address, believed.min(record.ttl)));
        }
    }
    (owner, addresses)
}
