//! A question to a name server with what became of it.

use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use crate::dns::message::Message;
use crate::dns::{Code, Kind, resolve};

/// How messages of name servers travel, where they can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One in a datagram.
    Udp,
    /// Many in a stream.
    Tcp,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name in lower case and without a dot at its end, `.` for the root; at most 1,016 bytes.
    /// What is no visible ASCII is written as `\` with three decimal digits, a dot or a backslash
    /// inside a label with another backslash (RFC 1035, 5.1).
    pub name: Box<str>,
    /// What about it.
    pub kind: Kind,
    /// The class: 1 for the Internet.
    pub class: u16,
}

/// A question with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Who asked.
    pub client: SocketAddr,
    /// The name server.
    pub server: SocketAddr,
    /// How.
    pub transport: Transport,
    /// The number by which the answer names the question.
    pub id: u16,
    /// What was asked for; none where both messages were cut before its end, or had none.
    pub question: Option<Question>,
    /// When it passed first; none when only the answer did, as when the capture began later.
    pub asked: Option<Time>,
    /// How often it passed: the same question with the same number between the same ports.
    pub times: u32,
    /// Whether it passed more than once before it was answered, so that the answer may be one to
    /// either.
    pub is_ambiguous: bool,
    /// The first answer; none when none passed in time.
    pub reply: Option<Reply>,
}

/// An answer, as far as it was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// When it passed first.
    pub at: Time,
    /// How often an answer passed. Only the first is described here.
    pub times: u32,
    /// What it says. Without what may be behind its end, when it was cut.
    pub code: Code,
    /// How many answers it claims to have.
    pub answers: Option<u16>,
    /// The addresses of the name, each once; at most [`ADDRESS_LIMIT`](crate::dns::ADDRESS_LIMIT).
    pub addresses: Vec<IpAddr>,
    /// The name that the one asked for is an alias of, after all aliases.
    pub canonical: Option<Box<str>>,
    /// The shortest time for which one of its answers may be believed; none when there is none.
    pub lifetime: Option<Span>,
    /// The server had more to say than there was room for; clients then ask over TCP.
    pub is_truncated: bool,
    /// It was captured in part, or could be read in part: there may be more addresses and aliases,
    /// and the lifetime may be shorter.
    pub is_partial: bool,
}

impl Question {
    pub(crate) fn is_internet(&self) -> bool {
        self.class == 1
    }
}

impl Lookup {
    /// The time between the first question and the first answer, as it passed the capture point.
    /// It may be too long by a retransmission when [`is_ambiguous`](Self::is_ambiguous); none when
    /// one of them is not known or the clock stepped back between them.
    pub fn latency(&self) -> Option<Span> {
        let (asked, at) = (self.asked?, self.reply.as_ref()?.at);
        (asked <= at).then(|| at.since(asked))
    }

    pub(super) fn ask_again(&mut self, now: Time) {
        self.asked = Some(self.asked.map_or(now, |asked| asked.min(now)));
        self.times = self.times.saturating_add(1);
    }

    /// Whether an answer to this may be one to it. Where one of them is not known, the number is
    /// all that there is.
    pub(super) fn may_ask(&self, question: &Option<Question>) -> bool {
        match (&self.question, question) {
            (Some(asked), Some(answered)) => asked == answered,
            _ => true,
        }
    }
}

impl Reply {
    pub(super) fn read(at: Time, message: &Message) -> Self {
        let name = message.question.as_ref().map(|question| &*question.name);
        let (canonical, addresses) = name.map_or((None, Vec::new()), |name| {
            let (owner, addresses) = resolve(message, name);
            ((owner != name).then(|| owner.into()), addresses)
        });
        Self {
            at,
            times: 1,
            code: message.code(),
            answers: message.counts.map(|[_, answers, ..]| answers),
            addresses: addresses.into_iter().map(|(address, _)| address).collect(),
            canonical,
            lifetime: message.internet().map(|record| record.lifetime).min(),
            is_truncated: message.is_truncated(),
            is_partial: !message.is_whole,
        }
    }
}
