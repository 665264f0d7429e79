//! Times of a QUIC handshake.

use manyways_unit::{Span, Time};

/// Datagrams of an endpoint within this time belong to one flight, later ones are retransmissions.
/// ClientHellos with post-quantum keys take two datagrams; and before the first RTT sample the
/// probe timeout is about 1 s (RFC 9002, 6.2.2).
const FLIGHT: Span = Span::from_millis(20);

/// Times of the handshake's packets, and counts of flights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// First Initial packet of the client.
    pub began: Option<Time>,
    /// First Initial packet of the server: a ServerHello, or an ACK before it.
    pub answer: Option<Time>,
    /// The client's first packet that requires the ServerHello.
    pub reply: Option<Time>,
    /// The client's first packet with a short header: it has all keys.
    pub done: Option<Time>,
    /// Number of times that the client's flight passed before its response. Restarts after Retry
    /// and Version Negotiation.
    pub initials: u32,
    /// Number of times that the server's flight passed before its response.
    pub answers: u32,
    /// First and last datagram of the client's flight that has a response.
    asked: Option<(Time, Time)>,
    /// The server's first ACK-eliciting datagram.
    wants_reply: Option<Time>,
}

impl Handshake {
    /// Round-trip time from the capture point to the server. `None` if the client's flight passed
    /// twice.
    pub fn to_server(&self) -> Option<Span> {
        let (_, asked) = self.asked.filter(|_| self.initials == 1)?;
        after(asked, self.answer?)
    }

    /// Round-trip time from the capture point to the client. `None` if the server's flight passed
    /// twice.
    pub fn to_client(&self) -> Option<Span> {
        let asked = self.wants_reply.filter(|_| self.answers == 1)?;
        after(asked, self.reply?)
    }

    /// Handles an Initial packet of the client.
    pub(super) fn asks(&mut self, now: Time) {
        self.began = self.began.or(Some(now));
        if self.answer.is_some() {
            return;
        }
        match &mut self.asked {
            Some((first, last)) if now.since(*first) <= FLIGHT => *last = now.max(*last),
            Some(_) => self.initials += 1,
            None => (self.asked, self.initials) = (Some((now, now)), 1),
        }
    }

    /// Handles a Retry or a Version Negotiation.
    pub(super) fn restarts(&mut self) {
        if self.answer.is_none() {
            (self.asked, self.initials) = (None, 0);
        }
    }

    /// Handles an Initial packet of the server. An ACK-eliciting one pads its datagram (RFC 9000,
    /// 14.1); an ACK alone has no response.
    pub(super) fn answers(&mut self, now: Time, is_full: bool) {
        self.answer = self.answer.or(Some(now));
        if !is_full || self.reply.is_some() {
            return;
        }
        match self.wants_reply {
            Some(first) if now.since(first) <= FLIGHT => {}
            Some(_) => self.answers += 1,
            None => (self.wants_reply, self.answers) = (Some(now), 1),
        }
    }

    /// Handles a packet that the client can send only after the ServerHello.
    pub(super) fn replies(&mut self, now: Time) {
        self.reply = self.reply.or(Some(now));
    }

    /// Handles a packet of the client with a short header.
    pub(super) fn is_done(&mut self, now: Time) {
        self.replies(now);
        self.done = self.done.or(Some(now));
    }
}

/// Returns the time from a cause to its effect. `None` if negative, because clocks of captures may
/// step back.
fn after(earlier: Time, later: Time) -> Option<Span> {
    (later >= earlier).then(|| later.since(earlier))
}
