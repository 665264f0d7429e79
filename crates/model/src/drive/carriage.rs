//! The connections that carry the exchanges of a recording.

use std::cmp::Reverse;
use std::collections::HashMap;

use manyways_unit::Time;

use super::recording::{Protocol, Recording};

/// Connections of HTTP/1 to an origin at a time, as browsers open them.
const CONNECTIONS_OF_ORIGIN: usize = 6;

/// A connection for each exchange: the recorded one, or a derived one.
pub(super) struct Carriage {
    /// Recorded connections, and behind them the derived ones.
    pub(super) connections: Vec<Carrier>,
    /// For each exchange, the index in `connections`.
    pub(super) of: Vec<usize>,
    /// Exchanges by start.
    pub(super) order: Vec<usize>,
}

pub(super) struct Carrier {
    pub(super) protocol: Protocol,
    /// When it was opened. `None` if that is unknown, or was after its first exchange.
    pub(super) opened: Option<Time>,
    /// When it was ready; only with `opened`, not before it, and not after its first exchange.
    pub(super) ready: Option<Time>,
    pub(super) closed: Option<Time>,
    pub(super) is_recorded: bool,
    /// Exchanges on it, by start.
    pub(super) exchanges: Vec<usize>,
}

impl Carriage {
    pub(super) fn of(recording: &Recording<'_>) -> Self {
        let recorded = recording.connections.iter().map(|connection| Carrier {
            protocol: connection.protocol,
            opened: connection.opened,
            ready: connection.ready,
            closed: connection.closed,
            is_recorded: true,
            exchanges: Vec::new(),
        });
        let mut connections: Vec<Carrier> = recorded.collect();
        let exchanges = recording.exchanges;
        let mut order: Vec<usize> = (0..exchanges.len()).collect();
        order.sort_by_key(|place| (exchanges[*place].sent(), *place));

        let mut origins: HashMap<(&str, Protocol), Vec<Derived>> = HashMap::new();
        let mut of = vec![0; exchanges.len()];
        for &place in &order {
            let exchange = &exchanges[place];
            let known = exchange.connection.filter(|known| *known < recording.connections.len());
            let connection = known.unwrap_or_else(|| {
                let derived = origins.entry((exchange.origin, exchange.protocol)).or_default();
                let end = exchange.ended().unwrap_or(Time::MAX);
                select(derived, exchange.protocol, exchange.sent(), end).unwrap_or_else(|| {
                    derived.push(Derived { connection: connections.len(), free: end });
                    connections.push(Carrier {
                        protocol: exchange.protocol,
                        opened: None,
                        ready: None,
                        closed: None,
                        is_recorded: false,
                        exchanges: Vec::new(),
                    });
                    connections.len() - 1
                })
            });
            of[place] = connection;
            connections[connection].exchanges.push(place);
        }
        for carrier in &mut connections {
            let first = carrier.exchanges.first().map(|first| exchanges[*first].sent());
            let is_before = |time: Time| first.is_none_or(|first| time <= first);
            carrier.opened = carrier.opened.filter(|opened| is_before(*opened));
            let opened = carrier.opened;
            carrier.ready = carrier
                .ready
                .filter(|ready| is_before(*ready) && opened.is_some_and(|opened| opened <= *ready));
        }
        Self { connections, of, order }
    }
}

/// A derived connection, and when its last exchange ends.
struct Derived {
    connection: usize,
    free: Time,
}

/// Returns a connection for an exchange, or `None` for a new one: that of HTTP/2; of HTTP/1 the idle
/// one that was used last, as browsers select it, and if there are enough the one that is idle first.
fn select(derived: &mut [Derived], protocol: Protocol, sent: Time, end: Time) -> Option<usize> {
    let is_full = derived.len() >= CONNECTIONS_OF_ORIGIN;
    let selected = match protocol {
        Protocol::Http2 => derived.first_mut(),
        Protocol::Http1 => {
            let rank = |derived: &Derived| match derived.free <= sent {
                true => (Reverse(derived.free), Time::ZERO),
                false => (Reverse(Time::ZERO), derived.free),
            };
            let best = derived.iter_mut().min_by_key(|derived| rank(derived));
            best.filter(|best| best.free <= sent || is_full)
        }
    }?;
    selected.free = selected.free.max(end);
    Some(selected.connection)
}
