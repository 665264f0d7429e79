//! Requests and responses of a QUIC connection, inferred from sizes and directions, because all
//! else is encrypted.

use manyways_unit::{Span, Time};

use manyways_unit::Samples;
use manyways_wire::stream::{Endpoint, Exchange, ExchangeDetector};

/// A packet with a short header of at most this many bytes is not a part of a request or of a
/// response. An ACK has 25 to 55 bytes: first byte, connection ID of 0 to 20, packet number of 1 to
/// 4, ACK frame of 5 to 15, and tag of 16 (RFC 9000, 17.3.1 and 19.3; RFC 9001, 5.3); with another
/// frame for flow control (19.9, 19.10) up to 80. An HTTP/3 request has about 40 bytes in addition
/// to its compressed fields, one of which is the path. So the shortest requests are missed, and an
/// ACK with a dozen gaps counts as one.
pub const MAX_ACK_ONLY_LEN: usize = 80;
/// Each QUIC path carries datagrams of this size in bytes. A datagram that is longer than all
/// others of its sender is a probe of the path MTU, without other data (RFC 9000, 14.4).
const MIN_PATH_MTU: usize = 1_200;

/// Detects the exchanges of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    detector: ExchangeDetector,
    /// The longest datagram of each endpoint.
    longest: [usize; 2],
    response_times: Samples,
}

impl Requests {
    /// Handles a datagram with application data. A response cannot arrive before the round trip to
    /// the server: earlier data belongs to the previous response.
    pub(super) fn handle(
        &mut self,
        now: Time,
        from: Endpoint,
        [datagram, inside]: [usize; 2],
        one_way_delay: Span,
    ) -> Option<Exchange> {
        let longest = &mut self.longest[from as usize];
        let is_probe = *longest > 0 && datagram > MIN_PATH_MTU.max(*longest);
        *longest = datagram.max(*longest);
        if inside <= MAX_ACK_ONLY_LEN || is_probe {
            return None;
        }
        if from == Endpoint::Server {
            // The acknowledged data of the client is encrypted.
            self.detector.set_server_view(Time::MAX, one_way_delay, None);
        }
        self.detector.handle(now, from, inside as u64);
        self.take_exchange()
    }

    /// Ends the connection and returns the last exchange.
    pub(super) fn end(&mut self) -> Option<Exchange> {
        self.detector.end();
        self.take_exchange()
    }

    /// Returns the response times, except that of the active exchange.
    pub(super) fn response_times(&self) -> &Samples {
        &self.response_times
    }

    fn take_exchange(&mut self) -> Option<Exchange> {
        let exchange = self.detector.poll()?;
        self.response_times.push(exchange.response_time());
        Some(exchange)
    }
}
