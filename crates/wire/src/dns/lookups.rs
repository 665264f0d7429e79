//! Questions to name servers with what became of them, as a capture point can tell.

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

/// Name servers listen here.
const PORT: u16 = 53;
/// And here each host of a link, to questions to all of them (RFC 6762).
const MULTICAST_PORT: u16 = 5353;

/// What [`Lookups`] may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupLimits {
    /// So many questions at a time; of more, those go first that were answered, and then the one
    /// that was asked first.
    pub lookups: usize,
    /// What is not answered for so long after it was asked first is unanswered.
    pub patience: Span,
    /// What was answered is kept for so long, as it may be asked or answered again: the question of
    /// a client that did not get the answer, and the answer to a question that was asked twice.
    pub settling: Span,
}

/// Joins the questions and the answers that pass a capture point.
#[derive(Debug, Default)]
pub struct Lookups {
    limits: LookupLimits,
    /// Those without an answer, in the order in which they were asked first.
    waiting: LruMap<Key, Lookup>,
    /// Those with one, in the order in which they were answered first.
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

/// What became of a message.
#[derive(Debug, Default)]
pub struct Heard {
    /// It is a question to a name server, or an answer to one.
    pub is_dns: bool,
    /// What it says of names, for [`Resolutions`](super::Resolutions).
    pub resolved: Option<Resolved>,
}

impl Default for LookupLimits {
    /// 65,536 questions, 30 seconds for an answer and 5 for another: at most about 200 MB when all
    /// that is said is as long as can be, and commonly a fifth of it.
    fn default() -> Self {
        Self { lookups: 1 << 16, patience: Span::from_secs(30), settling: Span::from_secs(5) }
    }
}

impl Lookups {
    /// Empty, with these limits.
    pub fn new(limits: LookupLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A message passes: a datagram's, or one of a stream as [`framed`](super::framed) finds it. It
    /// has `length` bytes, of which `message` are those that were captured. Only messages to or
    /// from port 53 are read.
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

    /// Time goes by without a message: questions that waited long enough are over.
    pub fn advance(&mut self, now: Time) {
        self.expire(now);
    }

    /// A question of which no more is expected, in no order. They wait here without a limit: to be
    /// called after each message.
    pub fn poll(&mut self) -> Option<Lookup> {
        self.over.pop_front()
    }

    /// Nothing passes any more: what has no answer gets none.
    pub fn finish(&mut self) {
        for held in [&mut self.settled, &mut self.waiting] {
            while let Some((_, lookup)) = held.pop_oldest() {
                self.over.push_back(lookup);
            }
        }
    }

    /// How many questions are held, with answers and without.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.settled.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// So many questions had to go unanswered before their time, as there were too many.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// So many messages to or from a name server could not be read, or are no questions and answers
    /// but other operations (RFC 1996, RFC 2136).
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// So many messages were for the hosts of a link (RFC 6762). They are answered by who likes to,
    /// and are no lookups.
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
        // The number is used again.
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
                    // It has the number of a question and answers another: nobody is to believe it.
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

    /// Each is looked at once, when its time is over.
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
    /// What it is the key of, when it was asked for at this time, if it was.
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

/// Whether it is a question or an answer to one, and nothing that is broken before its end. That
/// which says that a message was no question may have none.
fn is_question(message: &Message, is_cut: bool) -> bool {
    let has_none = message.counts.is_some_and(|[questions, ..]| questions == 0);
    message.operation() == 0 && (is_cut || has_none || message.question.is_some())
}
