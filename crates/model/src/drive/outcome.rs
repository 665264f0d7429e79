//! Times of a driven replay.

use manyways_unit::{Size, Span, Time};

/// How an exchange of a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response is complete, or failed where the server of the recording aborted it.
    Complete,
    /// Cancelled where the recorded client did.
    Cancelled,
    /// The connection or the exchange failed.
    Failed,
}

/// Times of one exchange. `None`: has not happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeOutcome {
    /// All conditions but the connection were met.
    pub due: Option<Time>,
    /// The request was sent.
    pub start: Option<Time>,
    /// First byte of the response.
    pub first_byte: Option<Time>,
    /// Last byte of the response that has arrived.
    pub last_byte: Option<Time>,
    pub end: Option<Time>,
    pub received: Size,
    pub ending: Option<Ending>,
}

/// Times of one connection. `None`: has not happened. If it was opened again after a failure, all of
/// its attempts count as one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOutcome {
    /// The first attempt began.
    pub opened: Option<Time>,
    /// The first attempt that succeeded.
    pub ready: Option<Time>,
    /// The end for the app response time: the last of its readiness, its failures, requests sent on it,
    /// and bytes and ends of responses.
    pub end: Option<Time>,
    /// The drive closed it, the last time.
    pub closed: Option<Time>,
    pub attempts: u32,
}

/// Times of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the order of [`Plan::exchanges`](super::Plan::exchanges).
    pub exchanges: Vec<ExchangeOutcome>,
    /// In the order of [`Plan::connections`](super::Plan::connections).
    pub connections: Vec<ConnectionOutcome>,
}

impl Outcome {
    /// The app response time (Deng's thesis, §2.4): from the start of the first connection to the end
    /// of the last one. `None` if no connection was opened.
    ///
    /// A deviation: the thesis takes the end of a connection from a packet capture, where it is the
    /// last packet. A connection that is kept alive is closed long after its last response, by a
    /// timer of the client or server, so that the time would be that of the timer. Here a connection
    /// ends with its last activity ([`ConnectionOutcome::end`]); closing and cancelling are none.
    ///
    /// Comparable only among drives without failed exchanges ([`Outcome::failed`]).
    pub fn app_response_time(&self) -> Option<Span> {
        let end = self.connections.iter().filter_map(|connection| connection.end).max()?;
        Some(end.since(self.start()?))
    }

    /// Time from the start of the first connection to the last byte of a response. `None` if no byte
    /// of a response arrived. Shorter than the app response time if a request without a response, a
    /// failure or a connection without an exchange was last.
    pub fn last_byte_time(&self) -> Option<Span> {
        let last = self.exchanges.iter().filter_map(|exchange| exchange.last_byte).max()?;
        Some(last.since(self.start()?))
    }

    /// Number of failed exchanges.
    pub fn failed(&self) -> usize {
        let failed = |exchange: &&ExchangeOutcome| exchange.ending == Some(Ending::Failed);
        self.exchanges.iter().filter(failed).count()
    }

    fn start(&self) -> Option<Time> {
        self.connections.iter().filter_map(|connection| connection.opened).min()
    }
}
