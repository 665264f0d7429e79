//! One TLS connection over TCP, seen by an observer.

mod sender;
mod state;
#[cfg(test)]
mod tests;

use manyways_unit::{Span, Time};

use super::reader::Reader;
use super::{ClientHelloDetails, ServerHello, Version};
use crate::stream::{Endpoint, Exchange, Piece};
use sender::Sender;
use state::SessionState;

/// Maximum number of alerts that are kept.
pub const MAX_ALERTS: usize = 4;
/// Number of packets of one direction that do not begin with a record after which a connection
/// captured midway is not taken for TLS.
pub const MAX_FAILED_RESYNCS: u8 = 64;

/// Follows one TLS connection over TCP from the pieces of both directions.
///
/// Reads the first message of each endpoint, and afterwards only record headers, which are not
/// encrypted. If a header was not captured, record boundaries are lost until a packet begins with a
/// header; [`losses`](Session::boundary_losses) counts these gaps. Memory does not grow with the
/// connection.
#[derive(Clone, Debug)]
pub struct Session {
    client: EndpointState,
    server: EndpointState,
    state: SessionState,
}

#[derive(Clone, Debug)]
struct EndpointState {
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
    pub handshake_end: Option<Time>,
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
    pub from: Endpoint,
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
        let half = |end| EndpointState {
            reader: Reader::new(is_midway),
            sender: Sender::new(end, is_midway),
        };
        Self {
            client: half(Endpoint::Client),
            server: half(Endpoint::Server),
            state: SessionState::default(),
        }
    }

    /// Creates a session for a connection whose beginning was not captured.
    pub fn midway() -> Self {
        Self::new(true)
    }

    /// Processes the next bytes of an endpoint. Ends at most one exchange.
    pub fn handle(&mut self, from: Endpoint, piece: &Piece<'_>) {
        if self.state.is_tls == Some(false) {
            return;
        }
        let Self { client, server, state: story } = self;
        let (endpoint, other) = if from == Endpoint::Client {
            (client, &server.sender)
        } else {
            (server, &client.sender)
        };
        if from == Endpoint::Server && piece.length > 0 {
            story.on_server_data(other);
        }
        let EndpointState { reader, sender } = endpoint;
        reader.handle(piece, |part| {
            sender.handle(part, &mut |sender, event| story.on_event(from, sender, other, event));
        });
        if reader.is_not_tls() || reader.failed_resyncs() >= MAX_FAILED_RESYNCS {
            story.is_tls.get_or_insert(false);
        }
    }

    /// Whether data of the client waits for an answer: see
    /// [`ExchangeDetector::has_pending`](crate::stream::ExchangeDetector::has_pending).
    pub fn has_pending(&self) -> bool {
        self.state.exchanges.has_pending()
    }

    /// Sets which bytes of the client the server can have received when it sends from now on: those
    /// captured until `received_until` and at least `server_rtt` earlier. See
    /// [`ExchangeDetector::set_server_view`](crate::stream::ExchangeDetector::set_server_view).
    pub fn set_server_view(
        &mut self,
        received_until: Time,
        server_rtt: Span,
        handshake_rtt: Option<Span>,
    ) {
        let Self { client, server, state } = self;
        if let (Some(asked), Some(answered)) = (client.sender.hello, server.sender.hello)
            && answered > asked
        {
            state.exchanges.on_other_response(answered.since(asked));
        }
        state.exchanges.set_server_view(received_until, server_rtt, handshake_rtt);
    }

    /// Ends the connection.
    pub fn end(&mut self) {
        let Self { client, server, state: story } = self;
        client.sender.finish(&mut |sender, event| {
            story.on_event(Endpoint::Client, sender, &server.sender, event);
        });
        server.sender.finish(&mut |sender, event| {
            story.on_event(Endpoint::Server, sender, &client.sender, event);
        });
        story.exchanges.end();
    }

    /// Returns the exchange that has ended, once. Call this after each call of
    /// [`handle`](Self::handle) and [`end`](Self::end). Exchanges are inferred (see [`Exchange`]);
    /// sizes include record headers and authentication tags. The first exchange in TLS 1.3 is the
    /// least certain, because session tickets and HTTP/2 settings of the server look like a
    /// response.
    pub fn poll(&mut self) -> Option<Exchange> {
        self.state.exchanges.poll()
    }

    /// Whether the connection is TLS; `None` as long as this is unknown. Other protocols are
    /// usually recognized by the first byte of either endpoint, and after [`MAX_FAILED_RESYNCS`]
    /// packets at the latest; later bytes are not read.
    pub fn is_tls(&self) -> Option<bool> {
        self.state.is_tls
    }

    /// The client's offer in its first ClientHello, as soon as it is complete or its captured part
    /// has ended.
    pub fn client_hello(&self) -> Option<&ClientHelloDetails> {
        self.state.client_hello.as_deref()
    }

    /// The server's choice; `None` as long as no ServerHello was read.
    pub fn server_hello(&self) -> Option<&ServerHello> {
        self.state.server_hello.as_deref()
    }

    /// Negotiated version, from the ServerHello. A client that encrypts everything after the
    /// ServerHello also shows TLS 1.3.
    pub fn version(&self) -> Option<Version> {
        self.state.version()
    }

    /// Whether the server sent a HelloRetryRequest; `None` if unknown.
    pub fn has_retry_request(&self) -> Option<bool> {
        self.state.has_retry_request
    }

    /// Whether the session resumes an earlier one; `None` if unknown. TLS 1.3: the server accepted
    /// a pre-shared key. Earlier versions: the server confirmed the client's session ID; if the
    /// client sent none, whether the client sent no key exchange.
    pub fn is_resumed(&self) -> Option<bool> {
        self.state.is_resumed(&self.client.sender)
    }

    pub fn times(&self) -> Times {
        let [client, server] = [&self.client.sender, &self.server.sender];
        Times {
            client_hello: client.hello,
            server_hello: server.hello,
            handshake_end: self.state.handshake_end,
            client_data: client.data,
            server_data: server.data,
        }
    }

    /// From the ClientHello to the end of the handshake, at the capture point.
    pub fn handshake_time(&self) -> Option<Span> {
        let times = self.times();
        times.client_hello.zip(times.handshake_end).map(|(hello, over)| over.since(hello))
    }

    /// The first [`MAX_ALERTS`] unencrypted alerts.
    pub fn alerts(&self) -> &[Alert] {
        &self.state.alerts
    }

    /// Time and sender of the first orderly close: an unencrypted close_notify, or an encrypted
    /// alert, which nearly always is a close_notify. In TLS 1.3 and for an unknown version, a
    /// record with the length of an encrypted alert counts.
    pub fn closed(&self) -> Option<(Time, Endpoint)> {
        self.state.closed.zip(self.state.closed_by)
    }

    /// How often record boundaries were lost, because a header was not captured or is invalid.
    pub fn boundary_losses(&self) -> u64 {
        self.client.reader.losses() + self.server.reader.losses()
    }

    /// Number of ended exchanges.
    pub fn exchanges(&self) -> u64 {
        self.state.exchanges.count()
    }
}
