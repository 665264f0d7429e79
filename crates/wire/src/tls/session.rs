//! One TLS connection over TCP, as it looks from outside.

mod sender;
mod story;
#[cfg(test)]
mod tests;

use manyways_unit::{Span, Time};

use super::reader::Reader;
use super::{Choice, Offer, Version};
use crate::stream::{End, Exchange, Piece};
use sender::Sender;
use story::Story;

/// The most alerts that are kept.
pub const ALERT_LIMIT: usize = 4;
/// After so many packets of a direction that do not begin with a record, what began in the middle
/// is not taken for TLS.
pub const TRIES: u8 = 64;

/// One TLS connection over TCP, followed from the pieces of its two directions.
///
/// The first message of each end is read; of all that follows only the headers of records are,
/// which are in the clear. Where a header was not captured, the boundaries of records are lost until
/// a packet begins with one; [`losses`](Session::losses) counts that. Memory is bounded: nothing
/// grows with the connection but numbers.
#[derive(Clone, Debug)]
pub struct Session {
    client: Half,
    server: Half,
    story: Story,
}

/// One direction.
#[derive(Clone, Debug)]
struct Half {
    reader: Reader,
    sender: Sender,
}

/// When the parts of a session passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first byte of the client's hello.
    pub client_hello: Option<Time>,
    /// The first byte of the server's first hello, which may ask for another hello of the client.
    pub server_hello: Option<Time>,
    /// The handshake is over, as far as can be seen. From TLS 1.3 on: the first byte of the first
    /// sealed record that the client sends after the server's hello, which is its Finished message,
    /// or in the same flight when it has a certificate as well. With early data, which looks the
    /// same, the first one that has the length of a Finished message. Before TLS 1.3: the Finished
    /// message that came second, which is the first handshake record after its sender changed to the
    /// new keys: the server's, or the client's when a session is resumed. Where that was not captured,
    /// the session ticket right before it. None when neither was, even if what follows shows that
    /// the handshake is over.
    pub over: Option<Time>,
    /// The client's first data: after the handshake, or before TLS 1.3 also within (false start).
    /// Early data is not among it.
    pub client_data: Option<Time>,
    /// The server's. What it sends in TLS 1.3 before the handshake is over looks like the handshake,
    /// and is not among it.
    pub server_data: Option<Time>,
}

/// An alert in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its first byte.
    pub at: Time,
    /// Who sent it.
    pub from: End,
    /// 1: a warning. 2: fatal.
    pub level: u8,
    /// What it is about, as it is on the wire.
    pub description: u8,
}

impl Default for Session {
    /// From the first byte of the connection.
    fn default() -> Self {
        Self::new(false)
    }
}

impl Session {
    fn new(is_midway: bool) -> Self {
        let half =
            |end| Half { reader: Reader::new(is_midway), sender: Sender::new(end, is_midway) };
        Self { client: half(End::Client), server: half(End::Server), story: Story::default() }
    }

    /// From somewhere in the connection: its beginning was not captured.
    pub fn midway() -> Self {
        Self::new(true)
    }

    /// The next bytes that an end sent. At most one exchange is over with them.
    pub fn handle(&mut self, from: End, piece: &Piece<'_>) {
        if self.story.is_tls == Some(false) {
            return;
        }
        let Self { client, server, story } = self;
        let (half, other) =
            if from == End::Client { (client, &server.sender) } else { (server, &client.sender) };
        if from == End::Server && piece.length > 0 {
            story.server_speaks(other);
        }
        let Half { reader, sender } = half;
        reader.handle(piece, |part| {
            sender.takes(part, &mut |sender, heard| story.hears(from, sender, other, heard));
        });
        if reader.is_wrong_from_start() || reader.tries() >= TRIES {
            story.is_tls.get_or_insert(false);
        }
    }

    /// What the server sends from now on it sends when it has what the client sent until `heard`, and
    /// nothing that passed less than `way` before: see
    /// [`Turns::hears`](crate::stream::Turns::hears).
    pub fn hears(&mut self, heard: Time, way: Span) {
        self.story.turns.hears(heard, way);
    }

    /// The connection is over, or what is known of it.
    pub fn end(&mut self) {
        let Self { client, server, story } = self;
        client.sender.finish(&mut |sender, heard| {
            story.hears(End::Client, sender, &server.sender, heard);
        });
        server.sender.finish(&mut |sender, heard| {
            story.hears(End::Server, sender, &client.sender, heard);
        });
        story.turns.end();
    }

    /// The exchange that is over, once; to be asked after each call of [`handle`](Self::handle) and
    /// of [`end`](Self::end). It is inferred: see [`Exchange`]. Its sizes are those of the records,
    /// headers and seals included. The first one of TLS 1.3 is the least sure, since servers send
    /// session tickets then, which look like a response, as do the settings of HTTP/2.
    pub fn poll(&mut self) -> Option<Exchange> {
        self.story.turns.poll()
    }

    /// Whether it is TLS; none when that is not known yet. What is no TLS is mostly known from the
    /// first byte of either end, and after [`TRIES`] packets at the latest; no more is read then.
    pub fn is_tls(&self) -> Option<bool> {
        self.story.is_tls
    }

    /// What the client offers in its first hello, once that is there, or as much of it as was
    /// captured.
    pub fn offer(&self) -> Option<&Offer> {
        self.story.offer.as_deref()
    }

    /// What the server chose, likewise.
    pub fn choice(&self) -> Option<&Choice> {
        self.story.choice.as_deref()
    }

    /// The version that is spoken, where the server's hello says it. That all is sealed after it
    /// says so as well, as only TLS 1.3 does that.
    pub fn version(&self) -> Option<Version> {
        self.story.version()
    }

    /// The server asked for a second hello (HelloRetryRequest).
    pub fn asks_again(&self) -> Option<bool> {
        self.story.asks_again
    }

    /// The session goes on from an earlier one. In TLS 1.3: from a key that both had before, as
    /// earlier sessions leave. Before that: the server confirmed the session that the client named;
    /// where it named none, the client made no new keys.
    pub fn is_resumed(&self) -> Option<bool> {
        self.story.is_resumed(&self.client.sender)
    }

    /// When the parts of the session passed.
    pub fn times(&self) -> Times {
        let [client, server] = [&self.client.sender, &self.server.sender];
        Times {
            client_hello: client.hello,
            server_hello: server.hello,
            over: self.story.over,
            client_data: client.data,
            server_data: server.data,
        }
    }

    /// From the client's hello until the handshake was over, at the capture point.
    pub fn handshake_time(&self) -> Option<Span> {
        let times = self.times();
        times.client_hello.zip(times.over).map(|(hello, over)| over.since(hello))
    }

    /// The first [`ALERT_LIMIT`] alerts in the clear.
    pub fn alerts(&self) -> &[Alert] {
        &self.story.alerts
    }

    /// Who was first to end the session in order, and when: an alert in the clear that says so, or
    /// a sealed one of the kind that nearly always does. In TLS 1.3, and where the version is not
    /// known, it is inferred from a record that has the length of an alert that TLS 1.3 seals.
    pub fn closed(&self) -> Option<(Time, End)> {
        self.story.closed.zip(self.story.closed_by)
    }

    /// How often the boundaries of records were lost, as a header was not captured or was none.
    pub fn losses(&self) -> u64 {
        self.client.reader.losses() + self.server.reader.losses()
    }

    /// How many exchanges are over.
    pub fn exchanges(&self) -> u64 {
        self.story.turns.count()
    }
}
