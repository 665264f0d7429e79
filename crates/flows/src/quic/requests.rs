//! Requests and responses of a QUIC connection, inferred from sizes and directions: all else is
//! secret.

use manyways_unit::{Span, Time};

use manyways_unit::Samples;
use manyways_wire::stream::{End, Exchange, Turns};

/// A packet with a short header of at most so many bytes is none of a request or of a response. An
/// acknowledgement has 25 to 55: one byte, an id of 0 to 20 bytes, a number of 1 to 4, an ACK frame
/// of 5 to 15, and a seal of 16 (RFC 9000, 17.3.1 and 19.3; RFC 9001, 5.3); with one more frame
/// that moves a limit (19.9, 19.10) up to 80. A request of HTTP/3 has some 40 beside its compressed
/// fields, of which a path is one. So the shortest requests are missed, and an acknowledgement of a
/// dozen gaps is taken for one.
pub const CONFIRMS: usize = 80;
/// All paths of QUIC carry so many bytes. A datagram that is longer than all others of its sender is
/// a probe for how long they may be, and carries nothing else (RFC 9000, 14.4).
const EVERY_PATH: usize = 1_200;

/// Tells them apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    turns: Turns,
    /// The longest datagram of each end.
    longest: [usize; 2],
    times: Samples,
}

impl Requests {
    /// A datagram, in which so many bytes are for applications. No answer is there sooner than the
    /// trip to the server and back takes: what comes before that belongs to the response before.
    pub(super) fn handle(
        &mut self,
        now: Time,
        from: End,
        [datagram, inside]: [usize; 2],
        trip: Span,
    ) -> Option<Exchange> {
        let longest = &mut self.longest[from as usize];
        let is_probe = *longest > 0 && datagram > EVERY_PATH.max(*longest);
        *longest = datagram.max(*longest);
        if inside <= CONFIRMS || is_probe {
            return None;
        }
        if from == End::Server {
            // What of the client's it acknowledges is secret.
            self.turns.hears(Time::MAX, trip);
        }
        self.turns.handle(now, from, inside as u64);
        self.over()
    }

    /// Nothing passes any more.
    pub(super) fn end(&mut self) -> Option<Exchange> {
        self.turns.end();
        self.over()
    }

    /// How long responses took, but that of the exchange which is not over.
    pub(super) fn times(&self) -> &Samples {
        &self.times
    }

    fn over(&mut self) -> Option<Exchange> {
        let exchange = self.turns.poll()?;
        self.times.push(exchange.response_time());
        Some(exchange)
    }
}
