//! DNS lookups: queries and their responses at a capture point.

mod lookup;
mod resolution;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

pub use lookup::{Lookup, Question, Response, Transport};
pub use resolution::Resolution;

use super::message::Message;
use manyways_unit::LruMap;

/// Port of name servers.
const PORT: u16 = 53;
/// Port of multicast DNS (RFC 6762).
const MULTICAST_PORT: u16 = 5353;

/// Memory and time limits of [`Lookups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupLimits {
    /// Maximum number of lookups. Answered ones are removed first, then the one queried first.
    pub lookups: usize,
    /// Time after the first query until a lookup counts as unanswered.
    pub response_timeout: Span,
    /// Time for which an answered lookup is kept, because the query may be retransmitted by a
    /// client that missed the response, and then answered again.
    pub retention: Span,
}

/// Joins queries and responses at a capture point.
#[derive(Debug, Default)]
pub struct Lookups {
    limits: LookupLimits,
    /// Lookups without a response, in the order of their first query.
    unanswered: LruMap<Key, Lookup>,
    /// Lookups with a response, in the order of their first response.
    answered: LruMap<Key, Lookup>,
    ended: VecDeque<Lookup>,
    evicted: u64,
    unparsed: u64,
    multicast: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: SocketAddr,
    server: SocketAddr,
    transport: Transport,
    id: u16,
}

/// Result of processing a message.
#[derive(Debug, Default)]
pub struct MessageInfo {
    /// Whether the message is a query to a name server, or its response.
    pub is_dns: bool,
    /// Names in the message, for [`Resolutions`](super::Resolutions).
    pub resolution: Option<Resolution>,
}

impl Default for LookupLimits {
    /// 65,536 lookups, 30 s until the response and 5 s afterwards: at most about 200 MB if all
    /// names have maximum length, typically a fifth of that.
    fn default() -> Self {
        Self {
            lookups: 1 << 16,
            response_timeout: Span::from_secs(30),
            retention: Span::from_secs(5),
        }
    }
}

impl Lookups {
    pub fn new(limits: LookupLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Processes a message: the payload of a datagram, or a message of a stream from
    /// [`tcp_message`](super::tcp_message). The message has `length` bytes, of which `message` were
    /// captured. Only messages to or from port 53 are read.
    pub fn handle(
        &mut self,
        now: Time,
        transport: Transport,
        from: SocketAddr,
        to: SocketAddr,
        message: &[u8],
        length: usize,
    ) -> MessageInfo {
        self.expire(now);
        let ports = [from.port(), to.port()];
        if !ports.contains(&PORT) {
            self.multicast += u64::from(ports.contains(&MULTICAST_PORT));
            return MessageInfo::default();
        }
        let is_cut = message.len() < length;
        let Some(message) = Message::read(message).filter(|found| is_query(found, is_cut)) else {
            self.unparsed += 1;
            return MessageInfo::default();
        };
        let (client, server) = if message.is_response() { (to, from) } else { (from, to) };
        if server.port() != PORT {
            self.unparsed += 1;
            return MessageInfo::default();
        }
        let key = Key { client, server, transport, id: message.id };
        let resolved = if message.is_response() {
            self.on_response(now, key, &message)
        } else {
            self.on_query(now, key, message.question);
            None
        };
        self.enforce_limit();
        MessageInfo { is_dns: true, resolution: resolved }
    }

    /// Ends lookups whose time is over, without a message.
    pub fn advance(&mut self, now: Time) {
        self.expire(now);
    }

    /// Returns the next ended lookup, in no particular order. Lookups wait here without a limit:
    /// call this after each message.
    pub fn poll(&mut self) -> Option<Lookup> {
        self.ended.pop_front()
    }

    /// Ends the capture: lookups without a response stay unanswered.
    pub fn finish(&mut self) {
        for held in [&mut self.answered, &mut self.unanswered] {
            while let Some((_, lookup)) = held.pop_oldest() {
                self.ended.push_back(lookup);
            }
        }
    }

    /// Number of lookups in memory, with and without a response.
    pub fn len(&self) -> usize {
        self.unanswered.len() + self.answered.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of lookups removed without a response because of the limit.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Number of messages on port 53 that could not be read, or that have another opcode (RFC 1996,
    /// RFC 2136).
    pub fn unparsed(&self) -> u64 {
        self.unparsed
    }

    /// Number of multicast DNS messages (RFC 6762). Any host may answer them, so they are not
    /// lookups.
    pub fn multicast(&self) -> u64 {
        self.multicast
    }

    fn on_query(&mut self, now: Time, key: Key, question: Option<Question>) {
        let held = [&mut self.unanswered, &mut self.answered];
        for lookup in held.into_iter().filter_map(|held| held.get_mut(&key)) {
            if lookup.question == question {
                lookup.on_repeated_query(now);
                return;
            }
        }
        // The client reused the ID for another query.
        self.ended.extend(self.unanswered.remove(&key));
        self.ended.extend(self.answered.remove(&key));
        self.unanswered.insert(key, key.lookup(Some(now), question));
    }

    fn on_response(&mut self, now: Time, key: Key, message: &Message) -> Option<Resolution> {
        let question = &message.question;
        if self.answered.get(&key).is_some_and(|lookup| lookup.matches(question)) {
            let reply = self.answered.get_mut(&key).and_then(|lookup| lookup.response.as_mut())?;
            reply.responses = reply.responses.saturating_add(1);
        } else {
            let mut lookup = match self.unanswered.get(&key) {
                Some(lookup) if !lookup.matches(question) => {
                    // A response to another question with the ID of this query: not trusted.
                    let mut stray = key.lookup(None, question.clone());
                    stray.response = Some(Response::read(now, message));
                    self.ended.push_back(stray);
                    return None;
                }
                Some(_) => self.unanswered.remove(&key)?,
                None => key.lookup(None, None),
            };
            lookup.question = lookup.question.or_else(|| question.clone());
            lookup.is_ambiguous = lookup.queries > 1;
            lookup.response = Some(Response::read(now, message));
            self.ended.extend(self.answered.insert(key, lookup));
        }
        Resolution::read(key.client.ip(), message)
    }

    /// Each lookup is examined once, when its time is over.
    fn expire(&mut self, now: Time) {
        let LookupLimits { response_timeout: patience, retention: settling, .. } = self.limits;
        let is_late =
            |lookup: &Lookup| lookup.queried_at.is_some_and(|asked| now.since(asked) > patience);
        while self.unanswered.oldest().is_some_and(is_late) {
            self.ended.extend(self.unanswered.pop_oldest().map(|(_, lookup)| lookup));
        }
        let is_settled = |lookup: &Lookup| {
            lookup.response.as_ref().is_some_and(|reply| now.since(reply.at) > settling)
        };
        while self.answered.oldest().is_some_and(is_settled) {
            self.ended.extend(self.answered.pop_oldest().map(|(_, lookup)| lookup));
        }
    }

    fn enforce_limit(&mut self) {
        while self.len() > self.limits.lookups {
            let oldest = self.answered.pop_oldest().or_else(|| {
                self.evicted += 1;
                self.unanswered.pop_oldest()
            });
            self.ended.extend(oldest.map(|(_, lookup)| lookup));
        }
    }
}

impl Key {
    /// Creates a lookup; `asked` is `None` if the query was not captured.
    fn lookup(self, asked: Option<Time>, question: Option<Question>) -> Lookup {
        let Self { client, server, transport, id } = self;
        Lookup {
            client,
            server,
            transport,
            id,
            question,
            queried_at: asked,
            queries: asked.is_some().into(),
            is_ambiguous: false,
            response: None,
        }
    }
}

/// Whether the message is a standard query or its response, and is readable up to its end. An error
/// response may have no question.
fn is_query(message: &Message, is_cut: bool) -> bool {
    let has_none = message.counts.is_some_and(|[questions, ..]| questions == 0);
    message.opcode() == 0 && (is_cut || has_none || message.question.is_some())
}
