//! Requests and responses, inferred from nothing but who sends.

use manyways_unit::{Size, Span, Time};

use super::End;

/// A request and what came back for it, as far as changes of direction tell: what the client sends
/// in a row is taken for one request, and what the server sends until the client speaks again for
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

/// Tells requests and responses of one connection apart. It keeps the one that is going on, however
/// long the connection is.
///
/// An exchange is over when the next one begins, or at the [`end`](Turns::end). At most one is over
/// with each call of [`handle`](Turns::handle): who does not [`poll`](Turns::poll) after it loses
/// that one to the next.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    now: Option<Turn>,
    /// Taken at once.
    done: Option<Box<Exchange>>,
    count: u64,
}

/// What is going on.
#[derive(Clone, Copy, Debug)]
struct Turn {
    began: Time,
    asked: Time,
    request: Size,
    /// First and latest byte of the response, and its size.
    response: Option<(Time, Time, Size)>,
}

impl Turns {
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
        // Bytes are told in the order of the stream. Those that passed before the answer did, and
        // are told after it since something before them was missing, belong to the same request.
        let is_same = |turn: &&mut Turn| turn.response.is_none_or(|(answered, ..)| at < answered);
        if let Some(turn) = self.now.as_mut().filter(is_same) {
            turn.began = turn.began.min(at);
            turn.asked = turn.asked.max(at);
            turn.request += bytes;
            return;
        }
        self.end();
        self.now = Some(Turn { began: at, asked: at, request: bytes, response: None });
    }

    fn answers(&mut self, at: Time, bytes: Size) {
        // Nobody asked for what passed before the question did.
        let Some(turn) = self.now.as_mut().filter(|turn| at >= turn.began) else { return };
        let (answered, last, response) = turn.response.unwrap_or((at, at, Size::ZERO));
        turn.response = Some((answered.min(at), last.max(at), response + bytes));
    }

    /// The connection is over, or what is known of it. A request without a response is no exchange.
    pub fn end(&mut self) {
        let Some(turn) = self.now.take() else { return };
        let Some((answered, last, response)) = turn.response else { return };
        self.count += 1;
        let Turn { began, asked, request, .. } = turn;
        self.done = Some(Box::new(Exchange { began, asked, answered, last, request, response }));
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
    fn an_exchange_is_given_out_when_the_next_one_begins() {
        let mut turns = Turns::default();
        turns.handle(ms(1), Client, 1);
        turns.handle(ms(2), Server, 1);
        assert_eq!((turns.poll(), turns.count()), (None, 0));
        turns.handle(ms(3), Client, 1);
        assert_eq!((turns.poll(), turns.count()), (Some(exchange([1, 1, 2, 2], 1, 1)), 1));
        turns.end();
        assert_eq!((turns.poll(), turns.count()), (None, 1));
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
                prop_assert!(one.began <= one.answered);
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
