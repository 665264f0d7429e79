//! One TLS connection over TCP, seen by an observer.

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

/// Maximum number of alerts that are kept.
pub const ALERT_LIMIT: usize = 4;
/// Number of packets of one direction that do not begin with a record after which a connection
/// captured midway is not taken for TLS.
pub const TRIES: u8 = 64;

/// Follows one TLS connection over TCP from the pieces of both directions.
///
/// Reads the first message of each endpoint, and afterwards only record headers, which are not
/// encrypted. If a header was not captured, record boundaries are lost until a packet begins with a
/// header; [`losses`](Session::losses) counts these gaps. Memory does not grow with the connection.
#[derive(Clone, Debug)]
pub struct Session {
    client: Half,
    server: Half,
    story: Story,
}

#[derive(Clone, Debug)]
struct Half {
    reader: Reader,
    sender: Sender,
}

/// Times of the phases of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// First byte of the ClientHello.
    pub client_hello: Option<Time>,
    /// First byte of the first ServerHello, which may be a HelloRetryRequest.
    pub server_hello: Option<Time>,
    /// End of the handshake, as far as visible. TLS 1.3: first byte of the client's first encrypted
    /// record after the ServerHello, which contains the Finished message or, with a client
    /// certificate, is in the same flight; with early data, which looks the same, the first record
    /// with the length of a Finished message. Earlier versions: the second Finished message, which
    /// is the first handshake record after its sender's ChangeCipherSpec (of the server, or of the
    /// client in a resumed session); if that record was not captured, the session ticket directly
    /// before it. `None` if neither was captured, even if later records show that the handshake has
    /// ended.
    pub over: Option<Time>,
    /// First application data of the client after the handshake, or before TLS 1.3 also within the
    /// handshake (false start). Excludes early data.
    pub client_data: Option<Time>,
    /// First application data of the server. In TLS 1.3, excludes data before the end of the
    /// handshake, which looks like handshake messages.
    pub server_data: Option<Time>,
}

/// An unencrypted alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Time of the first byte.
    pub at: Time,
    pub from: End,
    /// 1 is a warning, 2 is fatal.
    pub level: u8,
    /// Alert description, as on the wire (RFC 8446, 6).
    pub description: u8,
}

impl Default for Session {
    /// Creates a session that begins with the first byte of the connection.
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

    /// Creates a session for a connection whose beginning was not captured.
    pub fn midway() -> Self {
        Self::new(true)
    }

    /// Processes the next bytes of an endpoint. Ends at most one exchange.
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

    /// Sets which bytes of the client the server can have received when it sends from now on: those
    /// captured until `heard` and at least `way` earlier. See
    /// [`Turns::hears`](crate::stream::Turns::hears).
    pub fn hears(&mut self, heard: Time, way: Span) {
        self.story.turns.hears(heard, way);
    }

    /// Ends the connection.
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

    /// Returns the exchange that has ended, once. Call this after each call of
    /// [`handle`](Self::handle) and [`end`](Self::end). Exchanges are inferred (see [`Exchange`]);
    /// sizes include record headers and authentication tags. The first exchange in TLS 1.3 is the
    /// least certain, because session tickets and HTTP/2 settings of the server look like a
    /// response.
    pub fn poll(&mut self) -> Option<Exchange> {
        self.story.turns.poll()
    }

    /// Whether the connection is TLS; `None` as long as this is unknown. Other protocols are
    /// usually recognized by the first byte of either endpoint, and after [`TRIES`] packets at the
    /// latest; later bytes are not read.
    pub fn is_tls(&self) -> Option<bool> {
        self.story.is_tls
    }

    /// The client's offer in its first ClientHello, as soon as it is complete or its captured part
    /// has ended.
    pub fn offer(&self) -> Option<&Offer> {
        self.story.offer.as_deref()
    }

    /// The server's choice; `None` as long as no ServerHello was read.
    pub fn choice(&self) -> Option<&Choice> {
        self.story.choice.as_deref()
    }

    /// Negotiated version, from the ServerHello. A client that encrypts everything after the
    /// ServerHello also shows TLS 1.3.
    pub fn version(&self) -> Option<Version> {
        self.story.version()
    }

    /// Whether the server sent a HelloRetryRequest; `None` if unknown.
    pub fn asks_again(&self) -> Option<bool> {
        self.story.asks_again
    }

    /// Whether the session resumes an earlier one; `None` if unknown. TLS 1.3: the server accepted
    /// a pre-shared key. Earlier versions: the server confirmed the client's session ID; if the
    /// client sent none, whether the client sent no key exchange.
    pub fn is_resumed(&self) -> Option<bool> {
        self.story.is_resumed(&self.client.sender)
    }

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

    /// From the ClientHello to the end of the handshake, at the capture point.
    pub fn handshake_time(&self) -> Option<Span> {
        let times = self.times();
        times.client_hello.zip(times.over).map(|(hello, over)| over.since(hello))
    }

    /// The first [`ALERT_LIMIT`] unencrypted alerts.
    pub fn alerts(&self) -> &[Alert] {
        &self.story.alerts
    }

    /// Time and sender of the first orderly close: an unencrypted close_notify, or an encrypted
    /// alert, which nearly always is a close_notify. In TLS 1.3 and for an unknown version, a
    /// record with the length of an encrypted alert counts.
    pub fn closed(&self) -> Option<(Time, End)> {
        self.story.closed.zip(self.story.closed_by)
    }

    /// How often record boundaries were lost, because a header was not captured or is invalid.
    pub fn losses(&self) -> u64 {
        self.client.reader.losses() + self.server.reader.losses()
    }

    /// Number of ended exchanges.
    pub fn exchanges(&self) -> u64 {
        self.story.turns.count()
    }
}
