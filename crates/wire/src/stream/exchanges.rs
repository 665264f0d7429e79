//! Exchange detection: requests and responses, inferred from the direction of data only.

use manyways_unit::{Size, Span, Time};

use manyways_unit::ThinVec;

use super::Endpoint;

/// Maximum number of separate parts of waiting requests; further parts are merged.
const MAX_PENDING_PARTS: usize = 16;
/// A response is captured later than its request.
const MIN_RTT: Span = Span::from_nanos(1);

/// A request and its response, inferred from changes of direction: consecutive bytes of the client
/// count as one request, and bytes of the server until the response to the next request count as
/// its response.
///
/// An estimate for encrypted or unknown protocols. Pipelined requests look like one request, a
/// client that confirms data during a download splits the exchange, and control messages of a
/// protocol (settings, windows, session tickets) look like data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// First byte of the request.
    pub request_start: Time,
    /// Latest byte of the request.
    pub request_end: Time,
    /// First byte of the response.
    pub response_start: Time,
    /// Latest byte of the response.
    pub response_end: Time,
    /// Bytes from the client.
    pub request: Size,
    /// Bytes from the server.
    pub response: Size,
}

impl Exchange {
    /// From the end of the request to the beginning of the response, at the capture point.
    pub fn response_time(&self) -> Span {
        self.response_start.since(self.request_end)
    }
}

/// Separates the requests and responses of one connection. Keeps the current exchange and a few
/// parts of the next request, however long the connection is.
///
/// While a request is on the path to the server, earlier data of the server still arrives. So bytes
/// answer a request only if the server can have received the request (see
/// [`hears`](ExchangeDetector::set_server_view)). Earlier bytes belong to the previous response.
///
/// An exchange ends when the next request is answered, or at the [`end`](ExchangeDetector::end).
/// Each call of
/// [`handle`](ExchangeDetector::handle) ends at most one exchange. A caller that does not
/// [`poll`](ExchangeDetector::poll) afterwards loses the exchange when the next one ends.
#[derive(Clone, Debug)]
pub struct ExchangeDetector {
    current: Option<CurrentExchange>,
    /// Data of the client that the server has not answered.
    pending: ThinVec<PendingPart>,
    ended: Option<Box<Exchange>>,
    count: u64,
    /// See [`ExchangeDetector::set_server_view`].
    server_received_until: Time,
    server_rtt: Span,
    /// The fastest response so far. `Span::MAX` if there is none.
    fastest_response: Span,
}

#[derive(Clone, Copy, Debug)]
struct PendingPart {
    at: Time,
    bytes: Size,
}

/// The current exchange.
#[derive(Clone, Copy, Debug)]
struct CurrentExchange {
    exchange: Exchange,
    /// Time until which the server had received the client's data when it answered.
    received_until: Time,
}

impl Default for ExchangeDetector {
    fn default() -> Self {
        let (received_until, server_rtt) = (Time::MAX, MIN_RTT);
        Self {
            current: None,
            pending: ThinVec::default(),
            ended: None,
            count: 0,
            server_received_until: received_until,
            server_rtt,
            fastest_response: Span::MAX,
        }
    }
}

impl ExchangeDetector {
    /// Sets which data of the client the server can have received when it sends from now on: data
    /// captured until `received_until` and at least `server_rtt` earlier, the round-trip time from
    /// the capture point to the server. By default, the server receives all data at once.
    ///
    /// `handshake_rtt` is the round-trip time of the handshake. Acknowledgments can come from
    /// another host than the server: in a capture of a VPN on the phone, and before a proxy of a
    /// mobile network, they come at once, and data of the previous response is in flight at the next
    /// request. So no response takes less than half of the handshake. A handshake that waited for
    /// the promotion of a radio does not count: then the fastest response takes its place.
    pub fn set_server_view(
        &mut self,
        received_until: Time,
        server_rtt: Span,
        handshake_rtt: Option<Span>,
    ) {
        let known = handshake_rtt.filter(|_| self.fastest_response < Span::MAX);
        let rtt = known.map_or(Span::ZERO, |rtt| rtt.min(self.fastest_response));
        self.server_received_until = received_until;
        self.server_rtt = server_rtt.max(Span::from_nanos(rtt.as_nanos() / 2)).max(MIN_RTT);
    }

    /// Whether data of the client waits for an answer. Only then [`Self::set_server_view`] matters.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds the time of a response that is not one of these exchanges, such as a ServerHello.
    pub fn on_other_response(&mut self, response_time: Span) {
        self.fastest_response = self.fastest_response.min(response_time);
    }

    /// Processes `bytes` bytes that an endpoint sent at `at`; 0 bytes have no effect.
    pub fn handle(&mut self, at: Time, from: Endpoint, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let bytes = Size::from_bytes(bytes);
        match from {
            Endpoint::Client => self.on_client_data(at, bytes),
            Endpoint::Server => self.on_server_data(at, bytes),
        }
    }

    fn on_client_data(&mut self, at: Time, bytes: Size) {
        // Bytes are processed in stream order. Bytes that reached the server before its response,
        // and are processed later because earlier bytes were missing, belong to the same request.
        if let Some(current) =
            self.current.as_mut().filter(|exchange| at <= exchange.received_until)
        {
            let exchange = &mut current.exchange;
            exchange.request_start = exchange.request_start.min(at);
            exchange.request_end = exchange.request_end.max(at);
            exchange.request += bytes;
            return;
        }
        let is_full = self.pending.len() >= MAX_PENDING_PARTS;
        match self.pending.last_mut().filter(|last| is_full || last.at == at) {
            Some(last) => *last = PendingPart { at: at.max(last.at), bytes: last.bytes + bytes },
            None => self.pending.push(PendingPart { at, bytes }),
        }
    }

    fn on_server_data(&mut self, at: Time, bytes: Size) {
        let Some(sent) = at.as_nanos().checked_sub(self.server_rtt.as_nanos()) else { return };
        let known = self.server_received_until.min(Time::from_nanos(sent));
        let next = |asked: &[PendingPart]| asked.iter().position(|asked| asked.at <= known);
        if next(&self.pending).is_some() {
            self.end_current();
            let (mut began, mut asked, mut request) = (known, Time::ZERO, Size::ZERO);
            while let Some(part) = next(&self.pending).and_then(|index| self.pending.remove(index))
            {
                (began, asked) = (began.min(part.at), asked.max(part.at));
                request += part.bytes;
            }
            let exchange = Exchange {
                request_start: began,
                request_end: asked,
                response_start: at,
                response_end: at,
                request,
                response: bytes,
            };
            self.fastest_response = self.fastest_response.min(exchange.response_time());
            self.current = Some(CurrentExchange { exchange, received_until: known });
            return;
        }
        // Data captured before the request does not answer it.
        let current = self.current.as_mut().filter(|current| at >= current.exchange.request_start);
        let Some(CurrentExchange { exchange, received_until: knew }) = current else { return };
        // Captured earlier, but processed later because earlier bytes were missing.
        if at < exchange.response_start && exchange.request_end <= known {
            (exchange.response_start, *knew) = (at, known.min(*knew));
        }
        exchange.response_end = exchange.response_end.max(at);
        exchange.response += bytes;
    }

    /// Ends the connection. A request without a response is not an exchange.
    pub fn end(&mut self) {
        self.pending = ThinVec::default();
        self.end_current();
    }

    fn end_current(&mut self) {
        let Some(CurrentExchange { exchange, .. }) = self.current.take() else { return };
        self.count += 1;
        self.ended = Some(Box::new(exchange));
    }

    /// Returns the exchange that has ended, once.
    pub fn poll(&mut self) -> Option<Exchange> {
        self.ended.take().map(|done| *done)
    }

    /// Number of ended exchanges.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use Endpoint::{Client, Server};
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// The exchanges of these parts, given as time, sender and number of bytes.
    fn detect(parts: &[(u64, Endpoint, u64)]) -> (Vec<Exchange>, ExchangeDetector) {
        let mut detector = ExchangeDetector::default();
        let mut all = Vec::new();
        for (at, from, bytes) in parts {
            detector.handle(ms(*at), *from, *bytes);
            all.extend(detector.poll());
        }
        detector.end();
        all.extend(detector.poll());
        assert_eq!(detector.poll(), None);
        assert_eq!(detector.count(), all.len() as u64);
        (all, detector)
    }

    fn exchange(times: [u64; 4], request: u64, response: u64) -> Exchange {
        let [began, asked, answered, last] = times.map(ms);
        let [request, response] = [request, response].map(Size::from_bytes);
        Exchange {
            request_start: began,
            request_end: asked,
            response_start: answered,
            response_end: last,
            request,
            response,
        }
    }

    #[test]
    fn consecutive_data_of_an_endpoint_is_one_message() {
        let (all, _) = detect(&[
            (10, Client, 100),
            (12, Client, 50),
            (40, Server, 1000),
            (45, Server, 0),
            (60, Server, 500),
            (70, Client, 7),
            (90, Client, 0),
            (95, Server, 8),
        ]);
        assert_eq!(all, [exchange([10, 12, 40, 60], 150, 1500), exchange([70, 70, 95, 95], 7, 8)]);
        assert_eq!(all[0].response_time(), Span::from_millis(28));
    }

    #[test]
    fn an_exchange_ends_when_the_next_one_is_answered() {
        let mut detector = ExchangeDetector::default();
        detector.handle(ms(1), Client, 1);
        detector.handle(ms(2), Server, 1);
        detector.handle(ms(3), Client, 1);
        assert_eq!((detector.poll(), detector.count()), (None, 0));
        detector.handle(ms(4), Server, 1);
        assert_eq!((detector.poll(), detector.count()), (Some(exchange([1, 1, 2, 2], 1, 1)), 1));
        detector.handle(ms(5), Client, 1);
        detector.end();
        assert_eq!((detector.poll(), detector.count()), (Some(exchange([3, 3, 4, 4], 1, 1)), 2));
        detector.end();
        assert_eq!((detector.poll(), detector.count()), (None, 2));
    }

    /// The exchanges with a server at distance `server_rtt`. Each part of the server has a fourth
    /// value: the time until which the server has received the client's data.
    fn detect_at_distance(server_rtt: u64, parts: &[(u64, Endpoint, u64, u64)]) -> Vec<Exchange> {
        let mut detector = ExchangeDetector::default();
        let mut all = Vec::new();
        for (at, from, bytes, heard) in parts {
            if *from == Server {
                detector.set_server_view(ms(*heard), Span::from_millis(server_rtt), None);
            }
            detector.handle(ms(*at), *from, *bytes);
            all.extend(detector.poll());
        }
        detector.end();
        all.extend(detector.poll());
        all
    }

    /// Response times in ms of a connection whose data is acknowledged at once, with this time of
    /// its handshake.
    fn response_times(handshake: u64, parts: &[(u64, Endpoint)]) -> Vec<u64> {
        let mut detector = ExchangeDetector::default();
        let mut all = Vec::new();
        for (at, from) in parts {
            let handshake = Some(Span::from_millis(handshake));
            detector.set_server_view(ms(*at), MIN_RTT, handshake);
            detector.handle(ms(*at), *from, 100);
            all.extend(detector.poll());
        }
        detector.end();
        all.extend(detector.poll());
        all.iter().map(|one| one.response_time().as_nanos() / 1_000_000).collect()
    }

    /// The server is 60 ms away, and the acknowledgments come from a proxy beside the client.
    #[test]
    fn no_response_takes_less_than_half_of_the_handshake() {
        let parts =
            [(0, Client), (65, Server), (70, Client), (72, Server), (90, Server), (133, Server)];
        assert_eq!(response_times(60, &parts), [65, 63]);
        // Without a handshake, nothing contradicts the acknowledgments.
        assert_eq!(response_times(0, &parts), [65, 2]);
    }

    /// The handshake took 400 ms, because it waited for the radio.
    #[test]
    fn a_handshake_that_waited_for_the_radio_delays_no_response() {
        let parts = [(0, Client), (65, Server), (70, Client), (72, Server), (132, Server)];
        assert_eq!(response_times(400, &parts), [65, 62]);
    }

    /// A client that repeats a request, or confirms data, during a response of 20 ms from a server
    /// 40 ms away.
    #[test]
    fn data_in_flight_at_a_request_belongs_to_the_previous_response() {
        let parts = [
            (0, Client, 300, 0),
            (40, Server, 1_000, 0),
            (50, Client, 200, 0),
            (51, Server, 1_000, 0),
            (60, Server, 1_000, 0),
            (90, Server, 500, 50),
            (95, Server, 500, 50),
        ];
        let expected =
            [exchange([0, 0, 40, 60], 300, 3_000), exchange([50, 50, 90, 95], 200, 1_000)];
        assert_eq!(detect_at_distance(40, &parts), expected);
        // Either value is sufficient: the distance, or the acknowledged time.
        assert_eq!(detect_at_distance(0, &parts), expected);
        let all_heard = parts.map(|(at, from, bytes, _)| (at, from, bytes, 1_000));
        assert_eq!(detect_at_distance(40, &all_heard), expected);
    }

    #[test]
    fn a_response_answers_the_data_that_the_server_had_received() {
        let all = detect_at_distance(
            40,
            &[
                (0, Client, 100, 0),
                (1, Client, 100, 0),
                (30, Client, 100, 0),
                (45, Server, 1_000, 1),
                (60, Server, 1_000, 1),
                (75, Server, 1_000, 30),
            ],
        );
        let expected =
            [exchange([0, 1, 45, 60], 200, 2_000), exchange([30, 30, 75, 75], 100, 1_000)];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_client_that_sends_all_the_time_is_answered() {
        let mut detector = ExchangeDetector::default();
        let mut all = Vec::new();
        for at in 0..1_000 {
            detector.handle(ms(at), Client, 10);
            assert!(detector.pending.len() <= MAX_PENDING_PARTS);
            if at % 100 >= 40 {
                detector.set_server_view(ms(at - 40), Span::from_millis(40), None);
                detector.handle(ms(at), Server, 1_000);
            }
            all.extend(detector.poll());
        }
        assert!(all.len() > 50, "{}", all.len());
        assert!(all.iter().all(|one| one.response_time() >= Span::from_millis(40)));
    }

    #[test]
    fn data_without_a_request_is_not_a_response() {
        let (all, detector) = detect(&[(5, Server, 20), (6, Server, 20), (9, Client, 1)]);
        assert_eq!((all.as_slice(), detector.count()), (&[][..], 0));
        // Captured before the request, but processed afterwards.
        let (all, _) = detect(&[(9, Client, 1), (8, Server, 20), (11, Server, 2)]);
        assert_eq!(all, [exchange([9, 9, 11, 11], 1, 2)]);
    }

    #[test]
    fn reordered_packets_do_not_change_exchanges() {
        // The second packet of the request was captured first; the first one was retransmitted at
        // 30.
        let (all, _) =
            detect(&[(30, Client, 5), (20, Client, 5), (50, Server, 1), (45, Server, 1)]);
        assert_eq!(all, [exchange([20, 30, 45, 50], 10, 2)]);
        // A part of the request is processed after the response, which was captured later.
        let (all, _) =
            detect(&[(20, Client, 5), (50, Server, 1), (30, Client, 5), (60, Server, 1)]);
        assert_eq!(all, [exchange([20, 30, 50, 60], 10, 2)]);
        let (all, _) =
            detect(&[(20, Client, 5), (50, Server, 1), (50, Client, 5), (60, Server, 1)]);
        assert_eq!(all.len(), 2);
    }

    proptest! {
        #[test]
        fn exchanges_have_ordered_times_and_only_observed_bytes(
            parts in prop::collection::vec((0_u64..50, any::<bool>(), 0_u64..9), 0..60),
        ) {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(at, asks, bytes)| (at, if asks { Client } else { Server }, bytes))
                .collect();
            let (all, detector) = detect(&parts);
            let sent: u64 = parts.iter().filter(|part| part.1 == Server).map(|part| part.2).sum();
            let answers: u64 = all.iter().map(|exchange| exchange.response.as_bytes()).sum();
            prop_assert!(answers <= sent);
            prop_assert_eq!(detector.count(), all.len() as u64);
            for one in all {
                prop_assert!(one.request_start <= one.request_end && one.response_start <= one.response_end);
                prop_assert!(one.request_end < one.response_start);
                prop_assert!(!one.request.is_zero() && !one.response.is_zero());
            }
        }

        #[test]
        fn results_do_not_depend_on_piece_boundaries(
            parts in prop::collection::vec((0_u64..50, any::<bool>(), 2_u64..9), 0..40),
        ) {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(at, asks, bytes)| (at, if asks { Client } else { Server }, bytes))
                .collect();
            let cut: Vec<_> =
                parts.iter().flat_map(|&(at, from, n)| [(at, from, 1), (at, from, n - 1)]).collect();
            prop_assert_eq!(detect(&parts).0, detect(&cut).0);
        }
    }
}
