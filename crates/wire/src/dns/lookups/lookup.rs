//! A query and its response.

use std::net::{IpAddr, SocketAddr};

use manyways_unit::{Span, Time};

use crate::dns::message::Message;
use crate::dns::{Kind, Rcode, resolve};

/// Transport of DNS messages in clear text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One message in each datagram.
    Udp,
    /// Messages in a stream, each after its length.
    Tcp,
}

/// The question of a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name in lower case without a trailing dot, `.` for the root; at most 1,016 bytes. A byte
    /// that is not visible ASCII is written as `\` with three decimal digits; a dot or a backslash
    /// inside a label has a backslash before it (RFC 1035, 5.1).
    pub name: Box<str>,
    /// Type of the queried record.
    pub kind: Kind,
    /// Class of the record; 1 is IN.
    pub class: u16,
}

/// A query and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub client: SocketAddr,
    /// Address of the name server.
    pub server: SocketAddr,
    pub transport: Transport,
    /// ID that both messages have.
    pub id: u16,
    /// `None` if neither captured message contains a complete question.
    pub question: Option<Question>,
    /// Time of the first query; `None` if only the response was captured.
    pub queried_at: Option<Time>,
    /// Number of copies of the query: the same question with the same ID between the same ports.
    pub queries: u32,
    /// Whether the query was captured more than once before the response, so that the response may
    /// belong to any copy.
    pub is_ambiguous: bool,
    /// The first response; `None` if none was captured in time.
    pub response: Option<Response>,
}

/// A response, as far as captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Time of the first response.
    pub at: Time,
    /// Number of responses. The other fields describe the first.
    pub responses: u32,
    /// The rcode. Without the extension if the message was truncated before its OPT record.
    pub rcode: Rcode,
    /// Number of answer records in the header; `None` if truncated.
    pub answer_count: Option<u16>,
    /// Distinct addresses of the name; at most [`MAX_ADDRESSES`](crate::dns::MAX_ADDRESSES).
    pub addresses: Vec<IpAddr>,
    /// The canonical name, after all CNAME records; `None` if the name is not an alias.
    pub canonical_name: Option<Box<str>>,
    /// Smallest TTL of the answer records; `None` without answers.
    pub ttl: Option<Span>,
    /// Whether the server truncated the response (TC bit); clients then query over TCP.
    pub is_truncated: bool,
    /// Whether the message was captured or readable only in part: addresses and aliases may be
    /// missing, and the TTL may be shorter.
    pub is_incomplete: bool,
}

impl Question {
    pub(crate) fn is_internet(&self) -> bool {
        self.class == 1
    }
}

impl Lookup {
    /// From the first query to the first response, at the capture point. Possibly too long by a
    /// retransmission if [`is_ambiguous`](Self::is_ambiguous) is set. `None` if one of the times is
    /// unknown, or if the clock stepped back between them.
    pub fn latency(&self) -> Option<Span> {
        let (asked, at) = (self.queried_at?, self.response.as_ref()?.at);
        (asked <= at).then(|| at.since(asked))
    }

    pub(super) fn on_repeated_query(&mut self, now: Time) {
        self.queried_at = Some(self.queried_at.map_or(now, |asked| asked.min(now)));
        self.queries = self.queries.saturating_add(1);
    }

    /// Whether a response to `question` may belong to this lookup. If one of the questions is
    /// unknown, only the ID decides.
    pub(super) fn matches(&self, question: &Option<Question>) -> bool {
        match (&self.question, question) {
            (Some(asked), Some(answered)) => asked == answered,
            _ => true,
        }
    }
}

impl Response {
    pub(super) fn read(at: Time, message: &Message) -> Self {
        let name = message.question.as_ref().map(|question| &*question.name);
        let (canonical, addresses) = name.map_or((None, Vec::new()), |name| {
            let (owner, addresses) = resolve(message, name);
            ((owner != name).then(|| owner.into()), addresses)
        });
        Self {
            at,
            responses: 1,
            rcode: message.rcode(),
            answer_count: message.counts.map(|[_, answers, ..]| answers),
            addresses: addresses.into_iter().map(|(address, _)| address).collect(),
            canonical_name: canonical,
            ttl: message.internet_answers().map(|record| record.ttl).min(),
            is_truncated: message.is_truncated(),
            is_incomplete: !message.is_complete,
        }
    }
}
