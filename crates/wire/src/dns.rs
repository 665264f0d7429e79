//! Which addresses a name server gave for which name (RFC 1035): a connection to one of them that
//! shows no name itself is then known by the one that was asked for.
//!
//! [`question`] and [`answer`] read messages that are all there, for who passes them on and has to
//! be sure; [`Names`] remembers their names. [`Lookups`] reads all that a capture has of the
//! messages that pass a capture point, cut or not, and joins questions with answers; a
//! [`Resolutions`] remembers which of the names each client asked for. [`Told`] knows what files tell
//! of that.

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

/// The most addresses that are taken from one answer.
pub const ADDRESS_LIMIT: usize = 32;
/// The longest chain of aliases that is followed inside one answer.
const ALIAS_LIMIT: usize = 16;

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

/// Reads the question in a datagram to a name server. None when it is none, not all there, or not
/// for a host.
pub fn question(datagram: &[u8]) -> Option<Asked> {
    let message = whole(datagram)?;
    if message.is_response() {
        return None;
    }
    asked(&message)
}

/// Reads the answer in a datagram from a name server. None when it is none, not all there, reports
/// an error (that there is no such name, say) or answers no question for a host. The caller knows
/// whether somebody asked for it, and is to drop what nobody did.
pub fn answer(datagram: &[u8]) -> Option<Answered> {
    let message = whole(datagram)?;
    if !message.is_response() || message.code() != Code::NO_ERROR {
        return None;
    }
    let Asked { id, name, .. } = asked(&message)?;
    let (_, addresses) = resolve(&message, name.as_str());
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

/// An ordinary message with one question that is all there.
fn whole(bytes: &[u8]) -> Option<Message> {
    let message = Message::read(bytes)?;
    let is_one = message.counts.is_some_and(|[questions, ..]| questions == 1);
    (message.is_whole && is_one && message.operation() == 0).then_some(message)
}

fn asked(message: &Message) -> Option<Asked> {
    let question = message.question.as_ref().filter(|question| question.is_internet())?;
    // A dot inside a label is written with a backslash, which no host's name has.
    let name = HostName::parse(question.name.as_bytes())?;
    Some(Asked { id: message.id, name, kind: question.kind.0 })
}

/// The name that this one is an alias of in the end, or itself, and its addresses.
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
