//! Requests and responses, inferred from nothing but who sends.

use manyways_unit::{Size, Span, Time};

use manyways_unit::ThinVec;

use super::End;

/// So many parts of requests are told apart while they wait for an answer; more of them are one.
const WAITING: usize = 16;
/// An answer passes later than its question.
const INSTANT: Span = Span::from_nanos(1);

/// A request and what came back for it, as far as changes of direction tell: what the client sends
/// in a row is taken for one request, and what the server sends until it answers the next one for
/// its response.
///
/// It is a guess about what cannot be read. Requests in a pipeline look like one, a client that
/// confirms something in the middle of a download cuts it in two, and what a protocol says for
/// itself (settings, windows, session tickets) looks like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The first byte of the request.
    pub began: Time,
    /// The latest byte of the request.
    pub asked: Time,
    /// The first byte of the response.
    pub answered: Time,
    /// The latest byte of the response.
    pub last: Time,
    /// What the client sent.
    pub request: Size,
    /// What the server sent.
    pub response: Size,
}

impl Exchange {
    /// From the end of the request to the beginning of the response, at the capture point.
    pub fn response_time(&self) -> Span {
        self.answered.since(self.asked)
    }
}

/// Tells requests and responses of one connection apart. It keeps the one that is going on, and a few
/// parts of the next request, however long the connection is.
///
/// While a request goes to the server, what the server sent before still passes. So bytes answer a
/// request only when the server can know it: see [`hears`](Turns::hears). What comes sooner belongs to
/// the response before.
///
/// An exchange is over when the next one is answered, or at the [`end`](Turns::end). At most one is
/// over with each call of [`handle`](Turns::handle): who does not [`poll`](Turns::poll) after it loses
/// that one to the next.
#[derive(Clone, Debug)]
pub struct Turns {
    now: Option<Turn>,
    /// What the client sent and the server has not answered.
    asked: ThinVec<Asked>,
    /// Taken at once.
    done: Option<Box<Exchange>>,
    count: u64,
    /// See [`Turns::hears`].
    heard: Time,
    way: Span,
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Time,
    bytes: Size,
}

/// What is going on.
#[derive(Clone, Copy, Debug)]
struct Turn {
    exchange: Exchange,
    /// What passed until then the server knew when it answered.
    known: Time,
}

impl Default for Turns {
    fn default() -> Self {
        let (heard, way) = (Time::MAX, INSTANT);
        Self { now: None, asked: ThinVec::default(), done: None, count: 0, heard, way }
    }
}

impl Turns {
    /// What the server sends from now on it sends when it has all that the client sent until `heard`,
    /// and nothing that passed less than `way` before: the way to the server and back. Unless this
    /// is said, the server has all at once.
    pub fn hears(&mut self, heard: Time, way: Span) {
        (self.heard, self.way) = (heard, way.max(INSTANT));
    }

    /// That end sent so many bytes at that time. None are nothing.
    pub fn handle(&mut self, at: Time, from: End, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let bytes = Size::from_bytes(bytes);
        match from {
            End::Client => self.asks(at, bytes),
            End::Server => self.answers(at, bytes),
        }
    }

    fn asks(&mut self, at: Time, bytes: Size) {
        // Bytes are told in the order of the stream. Those that came to the server before it answered,
        // and are told after that since something before them was missing, belong to the same request.
        if let Some(turn) = self.now.as_mut().filter(|turn| at <= turn.known) {
            let exchange = &mut turn.exchange;
            exchange.began = exchange.began.min(at);
            exchange.asked = exchange.asked.max(at);
            exchange.request += bytes;
            return;
        }
        let is_full = self.asked.len() >= WAITING;
        match self.asked.last_mut().filter(|last| is_full || last.at == at) {
            Some(last) => *last = Asked { at: at.max(last.at), bytes: last.bytes + bytes },
            None => self.asked.push(Asked { at, bytes }),
        }
    }

    fn answers(&mut self, at: Time, bytes: Size) {
        let Some(sent) = at.as_nanos().checked_sub(self.way.as_nanos()) else { return };
        let known = self.heard.min(Time::from_nanos(sent));
        let next = |asked: &[Asked]| asked.iter().position(|asked| asked.at <= known);
        if next(&self.asked).is_some() {
            self.over();
            let (mut began, mut asked, mut request) = (known, Time::ZERO, Size::ZERO);
            while let Some(part) = next(&self.asked).and_then(|index| self.asked.remove(index)) {
                (began, asked) = (began.min(part.at), asked.max(part.at));
                request += part.bytes;
            }
            let exchange =
                Exchange { began, asked, answered: at, last: at, request, response: bytes };
            self.now = Some(Turn { exchange, known });
            return;
        }
        // Nobody asked for what passed before the question did.
        let turn = self.now.as_mut().filter(|turn| at >= turn.exchange.began);
        let Some(Turn { exchange, known: knew }) = turn else { return };
        // It passed first, and is told later as something before it was missing.
        if at < exchange.answered && exchange.asked <= known {
            (exchange.answered, *knew) = (at, known.min(*knew));
        }
        exchange.last = exchange.last.max(at);
        exchange.response += bytes;
    }

    /// The connection is over, or what is known of it. A request without a response is no exchange.
    pub fn end(&mut self) {
        self.asked = ThinVec::default();
        self.over();
    }

    fn over(&mut self) {
        let Some(Turn { exchange, .. }) = self.now.take() else { return };
        self.count += 1;
        self.done = Some(Box::new(exchange));
    }

    /// The exchange that is over, once.
    pub fn poll(&mut self) -> Option<Exchange> {
        self.done.take().map(|done| *done)
    }

    /// How many are over.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use End::{Client, Server};
    use proptest::prelude::*;

    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// What is given out when so many bytes pass at these times.
    fn told(parts: &[(u64, End, u64)]) -> (Vec<Exchange>, Turns) {
        let mut turns = Turns::default();
        let mut all = Vec::new();
        for (at, from, bytes) in parts {
            turns.handle(ms(*at), *from, *bytes);
            all.extend(turns.poll());
        }
        turns.end();
        all.extend(turns.poll());
        assert_eq!(turns.poll(), None);
        assert_eq!(turns.count(), all.len() as u64);
        (all, turns)
    }

    fn exchange(times: [u64; 4], request: u64, response: u64) -> Exchange {
        let [began, asked, answered, last] = times.map(ms);
        let [request, response] = [request, response].map(Size::from_bytes);
        Exchange { began, asked, answered, last, request, response }
    }

    #[test]
    fn what_one_end_sends_in_a_row_is_one_turn() {
        let (all, _) = told(&[
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
    fn an_exchange_is_given_out_when_the_next_one_is_answered() {
        let mut turns = Turns::default();
        turns.handle(ms(1), Client, 1);
        turns.handle(ms(2), Server, 1);
        turns.handle(ms(3), Client, 1);
        assert_eq!((turns.poll(), turns.count()), (None, 0));
        turns.handle(ms(4), Server, 1);
        assert_eq!((turns.poll(), turns.count()), (Some(exchange([1, 1, 2, 2], 1, 1)), 1));
        turns.handle(ms(5), Client, 1);
        turns.end();
        assert_eq!((turns.poll(), turns.count()), (Some(exchange([3, 3, 4, 4], 1, 1)), 2));
        turns.end();
        assert_eq!((turns.poll(), turns.count()), (None, 2));
    }

    /// What is given out when the server is so far away, and has heard what passed until then when it
    /// sends: the times of `told`, with that one for each of the server's.
    fn from_afar(way: u64, parts: &[(u64, End, u64, u64)]) -> Vec<Exchange> {
        let mut turns = Turns::default();
        let mut all = Vec::new();
        for (at, from, bytes, heard) in parts {
            if *from == Server {
                turns.hears(ms(*heard), Span::from_millis(way));
            }
            turns.handle(ms(*at), *from, *bytes);
            all.extend(turns.poll());
        }
        turns.end();
        all.extend(turns.poll());
        all
    }

    /// A client that asks again, or confirms something, while a response of 20 ms comes from a server
    /// 40 ms away.
    #[test]
    fn what_was_on_its_way_when_the_client_spoke_is_of_the_response_before() {
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
        assert_eq!(from_afar(40, &parts), expected);
        // Each of both is enough: how far it is, or what the server says that it has.
        assert_eq!(from_afar(0, &parts), expected);
        let all_heard = parts.map(|(at, from, bytes, _)| (at, from, bytes, 1_000));
        assert_eq!(from_afar(40, &all_heard), expected);
    }

    #[test]
    fn an_answer_is_to_as_much_of_a_row_as_the_server_had() {
        let all = from_afar(
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
    fn a_client_that_never_stops_to_talk_is_answered() {
        let mut turns = Turns::default();
        let mut all = Vec::new();
        for at in 0..1_000 {
            turns.handle(ms(at), Client, 10);
            assert!(turns.asked.len() <= WAITING);
            if at % 100 >= 40 {
                turns.hears(ms(at - 40), Span::from_millis(40));
                turns.handle(ms(at), Server, 1_000);
            }
            all.extend(turns.poll());
        }
        assert!(all.len() > 50, "{}", all.len());
        assert!(all.iter().all(|one| one.response_time() >= Span::from_millis(40)));
    }

    #[test]
    fn what_nobody_asked_for_is_no_response() {
        let (all, turns) = told(&[(5, Server, 20), (6, Server, 20), (9, Client, 1)]);
        assert_eq!((all.as_slice(), turns.count()), (&[][..], 0));
        // Passed before the question, but told after it.
        let (all, _) = told(&[(9, Client, 1), (8, Server, 20), (11, Server, 2)]);
        assert_eq!(all, [exchange([9, 9, 11, 11], 1, 2)]);
    }

    #[test]
    fn times_that_go_back_in_a_stream_change_no_turn() {
        // The second packet of the request passed first; the first one again at 30.
        let (all, _) = told(&[(30, Client, 5), (20, Client, 5), (50, Server, 1), (45, Server, 1)]);
        assert_eq!(all, [exchange([20, 30, 45, 50], 10, 2)]);
        // A part of the request is told after the answer that passed after it.
        let (all, _) = told(&[(20, Client, 5), (50, Server, 1), (30, Client, 5), (60, Server, 1)]);
        assert_eq!(all, [exchange([20, 30, 50, 60], 10, 2)]);
        let (all, _) = told(&[(20, Client, 5), (50, Server, 1), (50, Client, 5), (60, Server, 1)]);
        assert_eq!(all.len(), 2);
    }

    proptest! {
        #[test]
        fn nothing_is_made_up_and_no_time_is_out_of_order(
            parts in prop::collection::vec((0_u64..50, any::<bool>(), 0_u64..9), 0..60),
        ) {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(at, asks, bytes)| (at, if asks { Client } else { Server }, bytes))
                .collect();
            let (all, turns) = told(&parts);
            let sent: u64 = parts.iter().filter(|part| part.1 == Server).map(|part| part.2).sum();
            let answers: u64 = all.iter().map(|exchange| exchange.response.as_bytes()).sum();
            prop_assert!(answers <= sent);
            prop_assert_eq!(turns.count(), all.len() as u64);
            for one in all {
                prop_assert!(one.began <= one.asked && one.answered <= one.last);
                prop_assert!(one.asked < one.answered);
                prop_assert!(!one.request.is_zero() && !one.response.is_zero());
            }
        }

        #[test]
        fn how_bytes_are_cut_does_not_matter(
            parts in prop::collection::vec((0_u64..50, any::<bool>(), 2_u64..9), 0..40),
        ) {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(at, asks, bytes)| (at, if asks { Client } else { Server }, bytes))
                .collect();
            let cut: Vec<_> =
                parts.iter().flat_map(|&(at, from, n)| [(at, from, 1), (at, from, n - 1)]).collect();
            prop_assert_eq!(told(&parts).0, told(&cut).0);
        }
    }
}
