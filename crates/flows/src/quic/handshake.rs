//! When the parts of a QUIC handshake passed.

use manyways_unit::{Span, Time};

/// Datagrams of one end that follow the first within so long are one flight, and those that come
/// later are copies. Hellos with keys against quantum computers take two datagrams; and before
/// there is a first round trip nobody sends again within less than a second (RFC 9002, 6.2.2).
const FLIGHT: Span = Span::from_millis(20);

/// When the parts of the handshake passed first, and whether they passed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The client's first Initial packet.
    pub began: Option<Time>,
    /// The server's first Initial packet: a hello, or an acknowledgement before one.
    pub answer: Option<Time>,
    /// The client's first packet that only comes after the server's hello.
    pub reply: Option<Time>,
    /// The client's first packet with a short header: it has all keys.
    pub done: Option<Time>,
    /// How often the client's flight passed before its answer did. After a Retry and after a
    /// negotiation of versions it counts anew.
    pub initials: u32,
    /// How often the server's flight passed before its reply did.
    pub answers: u32,
    /// The first and the last datagram of the client's flight that is answered.
    asked: Option<(Time, Time)>,
    /// The server's first datagram that wants a reply.
    wants_reply: Option<Time>,
}

impl Handshake {
    /// From the capture point to the server and back, unless the client's flight passed twice.
    pub fn to_server(&self) -> Option<Span> {
        let (_, asked) = self.asked.filter(|_| self.initials == 1)?;
        after(asked, self.answer?)
    }

    /// From the capture point to the client and back, unless the server's flight passed twice.
    pub fn to_client(&self) -> Option<Span> {
        let asked = self.wants_reply.filter(|_| self.answers == 1)?;
        after(asked, self.reply?)
    }

    /// An Initial packet of the client.
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

    /// The client was told to ask again.
    pub(super) fn restarts(&mut self) {
        if self.answer.is_none() {
            (self.asked, self.initials) = (None, 0);
        }
    }

    /// An Initial packet of the server. What wants to be acknowledged fills its datagram (RFC 9000,
    /// 14.1); an acknowledgement alone gets no reply.
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

    /// A packet of the client that it cannot send before the server's hello is there.
    pub(super) fn replies(&mut self, now: Time) {
        self.reply = self.reply.or(Some(now));
    }

    /// A packet of the client with a short header.
    pub(super) fn is_done(&mut self, now: Time) {
        self.replies(now);
        self.done = self.done.or(Some(now));
    }
}

/// Clocks of captures step back, and what came before has no time.
fn after(earlier: Time, later: Time) -> Option<Span> {
    (later >= earlier).then(|| later.since(earlier))
}
