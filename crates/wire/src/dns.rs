//! DNS (RFC 1035): addresses and the names they were resolved from. A connection to one of the
//! addresses that shows no host name itself is attributed to the queried name.
//!
//! [`question`] and [`answer`] read complete messages, for forwarders that need reliable results;
//! [`Names`] keeps their names. [`Lookups`] reads captured messages, complete or truncated, and
//! joins queries with responses; [`Resolutions`] keeps the names that each client queried. [`Told`]
//! reads names from files.

mod lookups;
mod message;
mod names;
mod registry;
mod resolutions;
#[cfg(test)]
mod tests;
mod told;

use std::net::IpAddr;

use manyways_unit::Span;

use message::{Data, Message};

pub use lookups::{Heard, Lookup, LookupLimits, Lookups, Question, Reply, Resolved, Transport};
pub use names::{Limits, Names};
pub use registry::{Code, Kind};
pub use resolutions::{AskedBy, Resolutions};
pub use told::{TOLD_LIMIT, Told, ToldError, ToldFault};

use crate::{HostName, Peek};

/// Maximum number of addresses read from one response.
pub const ADDRESS_LIMIT: usize = 32;
/// Maximum number of CNAME records followed within one response.
const ALIAS_LIMIT: usize = 16;

/// A DNS query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
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
pub struct Answered {
    /// ID of the query.
    pub id: u16,
    /// The queried name, not its canonical name.
    pub name: HostName,
    /// Distinct addresses of the name, each with the smallest TTL of the records that lead to it;
    /// at most [`ADDRESS_LIMIT`]. Empty if the name has no address of the queried type.
    pub addresses: Vec<(IpAddr, Span)>,
}

/// Reads the query in a datagram to a name server. `None` if the datagram is not a query, is
/// truncated, or does not query a host name.
pub fn question(datagram: &[u8]) -> Option<Asked> {
    let message = whole(datagram)?;
    if message.is_response() {
        return None;
    }
    asked(&message)
}

/// Reads the response in a datagram from a name server. `None` if the datagram is not a response,
/// is truncated, has an error code (for example NXDOMAIN) or does not answer a query for a host
/// name. The caller must discard responses without a query.
pub fn answer(datagram: &[u8]) -> Option<Answered> {
    let message = whole(datagram)?;
    if !message.is_response() || message.code() != Code::NO_ERROR {
        return None;
    }
    let Asked { id, name, .. } = asked(&message)?;
    let (_, addresses) = resolve(&message, name.as_str());
    Some(Answered { id, name, addresses })
}

/// The first message of a TCP stream to or from a name server. A length of two bytes precedes each
/// message (RFC 1035, 4.2.2). [`question`] and [`answer`] read the message; the next length follows
/// it.
pub fn framed(bytes: &[u8]) -> Peek<&[u8]> {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Peek::More(2) };
    match usize::from(u16::from_be_bytes(*length)) {
        0 => Peek::No,
        length => rest.get(..length).map_or(Peek::More(2 + length), Peek::Complete),
    }
}

/// A complete standard query or its response, with exactly one question.
fn whole(bytes: &[u8]) -> Option<Message> {
    let message = Message::read(bytes)?;
    let is_one = message.counts.is_some_and(|[questions, ..]| questions == 1);
    (message.is_whole && is_one && message.operation() == 0).then_some(message)
}

fn asked(message: &Message) -> Option<Asked> {
    let question = message.question.as_ref().filter(|question| question.is_internet())?;
    // A dot inside a label is escaped with a backslash, which a host name cannot contain.
    let name = HostName::parse(question.name.as_bytes())?;
    Some(Asked { id: message.id, name, kind: question.kind.0 })
}

/// The canonical name of `name`, and its addresses.
fn resolve<'a>(message: &'a Message, name: &'a str) -> (&'a str, Vec<(IpAddr, Span)>) {
    let (mut owner, mut believed) = (name, Span::MAX);
    for _ in 0..ALIAS_LIMIT {
        let alias = message.internet().find_map(|record| match &record.data {
            Data::Alias(target) if record.owner == owner => Some((target, record.lifetime)),
            _ => None,
        });
        let Some((target, lifetime)) = alias else { break };
        (owner, believed) = (target, believed.min(lifetime));
    }
    let mut addresses: Vec<(IpAddr, Span)> = Vec::new();
    for record in message.internet().filter(|record| record.owner == owner) {
        let Data::Address(address) = record.data else { continue };
        if addresses.len() < ADDRESS_LIMIT && addresses.iter().all(|(known, _)| *known != address) {
            addresses.push((address, believed.min(record.lifetime)));
        }
    }
    (owner, addresses)
}
