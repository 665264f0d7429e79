//! DNS lookups: queries and their responses at a capture point.

mod lookup;
mod resolved;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

pub use lookup::{Lookup, Question, Reply, Transport};
pub use resolved::Resolved;

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
    pub patience: Span,
    /// Time for which an answered lookup is kept, because the query may be retransmitted by a
    /// client that missed the response, and then answered again.
    pub settling: Span,
}

/// Joins queries and responses at a capture point.
#[derive(Debug, Default)]
pub struct Lookups {
    limits: LookupLimits,
    /// Lookups without a response, in the order of their first query.
    waiting: LruMap<Key, Lookup>,
    /// Lookups with a response, in the order of their first response.
    settled: LruMap<Key, Lookup>,
    over: VecDeque<Lookup>,
    evicted: u64,
    unread: u64,
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
pub struct Heard {
    /// Whether the message is a query to a name server, or its response.
    pub is_dns: bool,
    /// Names in the message, for [`Resolutions`](super::Resolutions).
    pub resolved: Option<Resolved>,
}

impl Default for LookupLimits {
    /// 65,536 lookups, 30 s until the response and 5 s afterwards: at most about 200 MB if all
    /// names have maximum length, typically a fifth of that.
    fn default() -> Self {
        Self { lookups: 1 << 16, patience: Span::from_secs(30), settling: Span::from_secs(5) }
    }
}

impl Lookups {
    pub fn new(limits: LookupLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Processes a message: the payload of a datagram, or a message of a stream from
    /// [`framed`](super::framed). The message has `length` bytes, of which `message` were captured.
    /// Only messages to or from port 53 are read.
    pub fn handle(
        &mut self,
        now: Time,
        transport: Transport,
        from: SocketAddr,
        to: SocketAddr,
        message: &[u8],
        length: usize,
    ) -> Heard {
        self.expire(now);
        let ports = [from.port(), to.port()];
        if !ports.contains(&PORT) {
            self.multicast += u64::from(ports.contains(&MULTICAST_PORT));
            return Heard::default();
        }
        let is_cut = message.len() < length;
        let Some(message) = Message::read(message).filter(|found| is_question(found, is_cut))
        else {
            self.unread += 1;
            return Heard::default();
        };
        let (client, server) = if message.is_response() { (to, from) } else { (from, to) };
        if server.port() != PORT {
            self.unread += 1;
            return Heard::default();
        }
        let key = Key { client, server, transport, id: message.id };
        let resolved = if message.is_response() {
            self.answered(now, key, &message)
        } else {
            self.asked(now, key, message.question);
            None
        };
        self.keep_limit();
        Heard { is_dns: true, resolved }
    }

    /// Ends lookups whose time is over, without a message.
    pub fn advance(&mut self, now: Time) {
        self.expire(now);
    }

    /// Returns the next ended lookup, in no particular order. Lookups wait here without a limit:
    /// call this after each message.
    pub fn poll(&mut self) -> Option<Lookup> {
        self.over.pop_front()
    }

    /// Ends the capture: lookups without a response stay unanswered.
    pub fn finish(&mut self) {
        for held in [&mut self.settled, &mut self.waiting] {
            while let Some((_, lookup)) = held.pop_oldest() {
                self.over.push_back(lookup);
            }
        }
    }

    /// Number of lookups in memory, with and without a response.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.settled.len()
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
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Number of multicast DNS messages (RFC 6762). Any host may answer them, so they are not
    /// lookups.
    pub fn multicast(&self) -> u64 {
        self.multicast
    }

    fn asked(&mut self, now: Time, key: Key, question: Option<Question>) {
        let held = [&mut self.waiting, &mut self.settled];
        for lookup in held.into_iter().filter_map(|held| held.get_mut(&key)) {
            if lookup.question == question {
                lookup.ask_again(now);
                return;
            }
        }
        // The client reused the ID for another query.
        self.over.extend(self.waiting.remove(&key));
        self.over.extend(self.settled.remove(&key));
        self.waiting.insert(key, key.lookup(Some(now), question));
    }

    fn answered(&mut self, now: Time, key: Key, message: &Message) -> Option<Resolved> {
        let question = &message.question;
        if self.settled.get(&key).is_some_and(|lookup| lookup.may_ask(question)) {
            let reply = self.settled.get_mut(&key).and_then(|lookup| lookup.reply.as_mut())?;
            reply.times = reply.times.saturating_add(1);
        } else {
            let mut lookup = match self.waiting.get(&key) {
                Some(lookup) if !lookup.may_ask(question) => {
                    // A response to another question with the ID of this query: not trusted.
                    let mut stray = key.lookup(None, question.clone());
                    stray.reply = Some(Reply::read(now, message));
                    self.over.push_back(stray);
                    return None;
                }
                Some(_) => self.waiting.remove(&key)?,
                None => key.lookup(None, None),
            };
            lookup.question = lookup.question.or_else(|| question.clone());
            lookup.is_ambiguous = lookup.times > 1;
            lookup.reply = Some(Reply::read(now, message));
            self.over.extend(self.settled.insert(key, lookup));
        }
        Resolved::read(key.client.ip(), message)
    }

    /// Each lookup is examined once, when its time is over.
    fn expire(&mut self, now: Time) {
        let LookupLimits { patience, settling, .. } = self.limits;
        let is_late =
            |lookup: &Lookup| lookup.asked.is_some_and(|asked| now.since(asked) > patience);
        while self.waiting.oldest().is_some_and(is_late) {
            self.over.extend(self.waiting.pop_oldest().map(|(_, lookup)| lookup));
        }
        let is_settled = |lookup: &Lookup| {
            lookup.reply.as_ref().is_some_and(|reply| now.since(reply.at) > settling)
        };
        while self.settled.oldest().is_some_and(is_settled) {
            self.over.extend(self.settled.pop_oldest().map(|(_, lookup)| lookup));
        }
    }

    fn keep_limit(&mut self) {
        while self.len() > self.limits.lookups {
            let oldest = self.settled.pop_oldest().or_else(|| {
                self.evicted += 1;
                self.waiting.pop_oldest()
            });
            self.over.extend(oldest.map(|(_, lookup)| lookup));
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
            asked,
            times: asked.is_some().into(),
            is_ambiguous: false,
            reply: None,
        }
    }
}

/// Whether the message is a standard query or its response, and is readable up to its end. An error
/// response may have no question.
fn is_question(message: &Message, is_cut: bool) -> bool {
    let has_none = message.counts.is_some_and(|[questions, ..]| questions == 0);
    message.operation() == 0 && (is_cut || has_none || message.question.is_some())
}
