//! The conditions of exchanges and connections of a replay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyways_unit::{Size, Span, Time};

use super::carriage::{Carriage, Carrier};
use super::recording::{Completion, Exchange, Protocol, Recording};

/// A request that was sent within this time after its connection was ready waited for the connection,
/// unless a response ended in between: the rest is the time of the client and of the recorder.
pub const WAITED_FOR_CONNECTION: Span = Span::from_millis(50);

/// Exchanges and connections with the conditions of their starts.
///
/// An exchange starts when the response that ended last before it has ended, on any connection, and
/// the recorded gap between both has passed. A failure of the server ends an exchange too; an abort of
/// the client does not count, because nothing arrives at the client. Exchanges without an end before
/// them start at their offset from the start of the recording. On a connection of HTTP/1, an exchange
/// also waits for the end of the previous one on it, unless the recording shows pipelining (RFC 9112,
/// 9.3.2): the request was sent before the previous response ended.
///
/// The gap contains the work of the application, not that of the network. So the time in which a
/// connection was opened is left out of the gap of requests that waited for it
/// ([`WAITED_FOR_CONNECTION`]). If the source does not have that time, it remains in the gap, and a
/// replay over a faster network is too slow by as much.
///
/// A connection that was opened before its first request, for example by a preconnect, opens with its
/// recorded gap after the response that ended last before, or when an exchange on it is due, if that is
/// earlier. All others open when the first of their exchanges is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    exchanges: Vec<PlannedExchange>,
    connections: Vec<PlannedConnection>,
}

/// The conditions of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedExchange {
    /// Index in [`Plan::connections`].
    pub connection: usize,
    /// Exchange that has to end first. `None`: the gap is an offset from the start of the drive.
    pub after: Option<usize>,
    pub gap: Span,
    /// Condition on its connection.
    pub predecessor: Option<Predecessor>,
    /// Time from the readiness of its connection to the request, at least.
    pub lag: Span,
    /// Set if the client, or the end of the recording, ended the exchange.
    pub cancellation: Option<Cancellation>,
    /// Set if the server ended the exchange after so many bytes: then it is complete if it fails
    /// behind them.
    pub server_abort: Option<Size>,
}

/// The previous exchange on a connection of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// This exchange has to end first.
    Ended(usize),
    /// The request of this exchange has to be sent first: requests were pipelined.
    Sent(usize),
}

/// When the client ends an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// When as many bytes have arrived as in the recording; at least one.
    Received(Size),
    /// At this time after the request: no byte had arrived.
    Waited(Span),
    /// When all other exchanges are over: the exchange was still waiting when the recording ended.
    OthersOver,
}

/// The conditions of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedConnection {
    pub protocol: Protocol,
    /// Exchanges on it, by start. The first one has the server of a derived connection.
    pub exchanges: Vec<usize>,
    /// Whether the recording has the connection. Derived ones have the numbers behind those of the
    /// recorded ones: up to six to an origin with HTTP/1, one with HTTP/2.
    pub is_recorded: bool,
    /// `None`: opens when an exchange is due.
    pub opening: Option<Opening>,
}

/// When a connection opens, if no exchange on it is due before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Exchange that has to end first. `None`: the gap is an offset from the start of the drive.
    pub after: Option<usize>,
    pub gap: Span,
}

impl Plan {
    /// Finds the conditions, in a time of O(n log n).
    pub fn new(recording: &Recording<'_>) -> Self {
        let Carriage { connections: carriers, of, order } = Carriage::of(recording);
        let exchanges = recording.exchanges;
        let mut openings: Vec<(Time, usize)> = carriers
            .iter()
            .enumerate()
            .filter_map(|(place, carrier)| Some((carrier.opened?, place)))
            .collect();
        openings.sort_unstable();
        let first_sent = order.first().map(|first| exchanges[*first].sent());
        let first_opened = openings.first().map(|(opened, _)| *opened);
        let start = first_sent.into_iter().chain(first_opened).min().unwrap_or(Time::ZERO);

        // A connection does not wait for an exchange that started with it: no condition is circular,
        // even if all times are equal.
        let mut ends = Ends::default();
        let mut openings = openings.into_iter().peekable();
        let mut opens = vec![None; carriers.len()];
        let mut planned = vec![None; exchanges.len()];
        for &place in &order {
            let sent = exchanges[place].sent();
            while let Some((opened, connection)) = openings.next_if(|(opened, _)| *opened <= sent) {
                opens[connection] = Some(ends.opening(opened, start));
            }
            let carrier = &carriers[of[place]];
            let (after, gap, lag) = ends.condition(&exchanges[place], carrier, start);
            planned[place] = Some(PlannedExchange {
                connection: of[place],
                after,
                gap,
                predecessor: None,
                lag,
                cancellation: cancellation(&exchanges[place]),
                server_abort: Some(exchanges[place].downloaded)
                    .filter(|_| exchanges[place].completion == Completion::AbortedByServer),
            });
            ends.push(place, &exchanges[place]);
        }
        for (opened, connection) in openings {
            opens[connection] = Some(ends.opening(opened, start));
        }

        let mut planned: Vec<PlannedExchange> = planned.into_iter().flatten().collect();
        for carrier in carriers.iter().filter(|carrier| carrier.protocol == Protocol::Http1) {
            for pair in carrier.exchanges.windows(2) {
                let [previous, next] = pair else { continue };
                planned[*next].predecessor =
                    Some(predecessor(exchanges, carrier, *previous, *next));
            }
        }
        let connections =
            carriers.into_iter().zip(opens).map(|(carrier, opening)| PlannedConnection {
                protocol: carrier.protocol,
                exchanges: carrier.exchanges,
                is_recorded: carrier.is_recorded,
                opening,
            });
        Self { exchanges: planned, connections: connections.collect() }
    }

    /// In the order of the recording.
    pub fn exchanges(&self) -> &[PlannedExchange] {
        &self.exchanges
    }

    /// Those of the recording in their order, and behind them the derived ones. Without an opening and
    /// exchanges, a connection remains closed.
    pub fn connections(&self) -> &[PlannedConnection] {
        &self.connections
    }
}

/// Ends of exchanges, in a sweep over the recording.
#[derive(Default)]
struct Ends {
    /// Exchanges that have started and not yet ended.
    running: BinaryHeap<Reverse<(Time, usize)>>,
    last: Option<(Time, usize)>,
}

impl Ends {
    fn push(&mut self, place: usize, exchange: &Exchange<'_>) {
        if let Some(ended) = exchange.ended().filter(|_| !exchange.is_cut()) {
            self.running.push(Reverse((ended, place)));
        }
    }

    /// Returns the end that was last, up to a time that does not decrease.
    fn last_until(&mut self, now: Time) -> Option<(Time, usize)> {
        while let Some(Reverse(next)) = self.running.peek().filter(|next| next.0.0 <= now) {
            self.last = Some(*next);
            self.running.pop();
        }
        self.last
    }

    fn opening(&mut self, opened: Time, start: Time) -> Opening {
        let last = self.last_until(opened);
        let gap = opened.since(last.map_or(start, |(ended, _)| ended));
        Opening { after: last.map(|(_, place)| place), gap }
    }

    /// Returns the exchange to wait for, the gap and the lag.
    fn condition(
        &mut self,
        exchange: &Exchange<'_>,
        carrier: &Carrier,
        start: Time,
    ) -> (Option<usize>, Span, Span) {
        let sent = exchange.sent();
        let last = self.last_until(sent);
        let (base, after) = last.map_or((start, None), |(ended, place)| (ended, Some(place)));
        let (Some(opened), Some(ready)) = (carrier.opened, carrier.ready) else {
            return (after, sent.since(base), Span::ZERO);
        };
        let has_waited =
            ready <= sent && sent.since(ready) <= WAITED_FOR_CONNECTION && base <= ready;
        if !has_waited {
            return (after, sent.since(base), Span::ZERO);
        }
        // Without a time of its own, the request was wanted when the connection was.
        let wanted = if exchange.started < ready { opened.max(exchange.started) } else { opened };
        (after, wanted.since(base), sent.since(ready))
    }
}

fn cancellation(exchange: &Exchange<'_>) -> Option<Cancellation> {
    if !exchange.is_cut() {
        return None;
    }
    Some(match (exchange.downloaded.is_zero(), exchange.ended()) {
        (false, _) => Cancellation::Received(exchange.downloaded),
        (true, Some(ended)) => Cancellation::Waited(ended.since(exchange.sent())),
        (true, None) => Cancellation::OthersOver,
    })
}

fn predecessor(
    exchanges: &[Exchange<'_>],
    carrier: &Carrier,
    previous: usize,
    next: usize,
) -> Predecessor {
    let (before, after) = (&exchanges[previous], &exchanges[next]);
    let is_pipelined = match before.ended() {
        Some(ended) => {
            // A derived connection shows nothing.
            carrier.is_recorded && after.sent.is_some() && after.sent() < ended
        }
        // It never ended, so nothing can wait for its end.
        None => before.is_cut(),
    };
    if is_pipelined { Predecessor::Sent(previous) } else { Predecessor::Ended(previous) }
}
