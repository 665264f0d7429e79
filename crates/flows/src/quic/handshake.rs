//! Times of a QUIC handshake.

use manyways_unit::{Span, Time};

/// Datagrams of an endpoint within this time belong to one flight, later ones are retransmissions.
/// ClientHellos with post-quantum keys take two datagrams; and before the first RTT sample the
/// probe timeout is about 1 s (RFC 9002, 6.2.2).
const MAX_FLIGHT_DURATION: Span = Span::from_millis(20);

/// Times of the handshake's packets, and counts of flights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// First Initial packet of the client.
    pub client_initial: Option<Time>,
    /// First Initial packet of the server: a ServerHello, or an ACK before it.
    pub server_initial: Option<Time>,
    /// The client's first packet that requires the ServerHello.
    pub client_reply: Option<Time>,
    /// The client's first packet with a short header: it has all keys.
    pub completed: Option<Time>,
    /// Number of times that the client's flight passed before its response. Restarts after Retry
    /// and Version Negotiation.
    pub client_flights: u32,
    /// Number of times that the server's flight passed before its response.
    pub server_flights: u32,
    /// First and last datagram of the client's flight that has a response.
    client_flight: Option<(Time, Time)>,
    /// The server's first ACK-eliciting datagram.
    ack_eliciting: Option<Time>,
}

impl Handshake {
    /// Round-trip time from the capture point to the server. `None` if the client's flight passed
    /// twice.
    pub fn server_rtt(&self) -> Option<Span> {
        let (_, asked) = self.client_flight.filter(|_| self.client_flights == 1)?;
        elapsed(asked, self.server_initial?)
    }

    /// Round-trip time from the capture point to the client. `None` if the server's flight passed
    /// twice.
    pub fn client_rtt(&self) -> Option<Span> {
        let asked = self.ack_eliciting.filter(|_| self.server_flights == 1)?;
        elapsed(asked, self.client_reply?)
    }

    /// Handles an Initial packet of the client.
    pub(super) fn on_client_initial(&mut self, now: Time) {
        self.client_initial = self.client_initial.or(Some(now));
        if self.server_initial.is_some() {
            return;
        }
        match &mut self.client_flight {
            Some((first, last)) if now.since(*first) <= MAX_FLIGHT_DURATION => {
                *last = now.max(*last)
            }
            Some(_) => self.client_flights += 1,
            None => (self.client_flight, self.client_flights) = (Some((now, now)), 1),
        }
    }

    /// Handles a Retry or a Version Negotiation.
    pub(super) fn on_restart(&mut self) {
        if self.server_initial.is_none() {
            (self.client_flight, self.client_flights) = (None, 0);
        }
    }

    /// Handles an Initial packet of the server. An ACK-eliciting one pads its datagram (RFC 9000,
    /// 14.1); an ACK alone has no response.
    pub(super) fn on_server_initial(&mut self, now: Time, is_full: bool) {
        self.server_initial = self.server_initial.or(Some(now));
        if !is_full || self.client_reply.is_some() {
            return;
        }
        match self.ack_eliciting {
            Some(first) if now.since(first) <= MAX_FLIGHT_DURATION => {}
            Some(_) => self.server_flights += 1,
            None => (self.ack_eliciting, self.server_flights) = (Some(now), 1),
        }
    }

    /// Handles a packet that the client can send only after the ServerHello.
    pub(super) fn on_client_reply(&mut self, now: Time) {
        self.client_reply = self.client_reply.or(Some(now));
    }

    /// Handles a packet of the client with a short header.
    pub(super) fn on_short_header(&mut self, now: Time) {
        self.on_client_reply(now);
        self.completed = self.completed.or(Some(now));
    }
}

/// Returns the time from a cause to its effect. `None` if negative, because clocks of captures may
/// step back.
fn elapsed(earlier: Time, later: Time) -> Option<Span> {
    (later >= earlier).then(|| later.since(earlier))
}
