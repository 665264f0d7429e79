//! Traffic of an application: dominated by short flows, or by long ones.
//!
//! Deng's thesis (§2.3.2, figure 2-21) distinguishes applications of which all connections are short,
//! or live long and transfer little, from those with a few connections that last for seconds and
//! transfer much. It has no numbers. Here:
//!
//! - A flow is a connection of TCP or QUIC. All exchanges on it count together: with HTTP/2, a page
//!   of many small objects from one server is a long flow, as it is for congestion control and MPTCP.
//! - A [`Burst`] is a part of a flow without a pause of [`PAUSE`]. A connection that lives long and
//!   transfers little at a time has many small ones.
//! - A flow is long if a burst has at least [`LONG`] bytes, the size of long flows in the thesis's
//!   measurements of MPTCP (§2.2.4, §2.2.5). At 1 to 8 Mbit/s, such a burst takes 1 to 8 seconds. Its
//!   recorded duration does not decide, since that depends on the network of the recording.
//! - Long flows dominate if they carry at least [`DOMINANT`] of all bytes.

use manyways_unit::{Size, Span, Time};

use super::carriage::{Carriage, Carrier};
use super::recording::{Exchange, Recording};

/// Pause between exchanges that ends a burst.
pub const PAUSE: Span = Span::from_secs(1);
/// Least size of a burst of a long flow.
pub const LONG: Size = Size::from_bytes(1_000_000);
/// Least share of long flows in all bytes, if they dominate.
pub const DOMINANT: f64 = 0.5;

/// A pattern of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    ShortFlowDominated,
    LongFlowDominated,
}

/// A flow: one line of figure 2-21.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Number of the connection, as in [`Plan::connections`](super::Plan::connections).
    pub connection: usize,
    /// When the connection was opened; if that is unknown, its first request.
    pub start: Time,
    /// Time until the connection was closed; if that is unknown, until its last byte.
    pub duration: Span,
    /// Bytes in both directions.
    pub bytes: Size,
    /// By start. Empty if the connection was not used.
    pub bursts: Vec<Burst>,
}

/// Exchanges of a flow that follow each other without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub start: Time,
    pub duration: Span,
    /// Bytes in both directions.
    pub bytes: Size,
}

/// A pattern, and the values from which it follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    pub pattern: Pattern,
    /// By start.
    pub flows: Vec<Flow>,
    /// Bytes of all flows.
    pub bytes: Size,
    /// Number of long flows.
    pub long_flows: usize,
    /// Share of the long flows in `bytes`, from 0 to 1; 0 without bytes.
    pub long_share: f64,
}

impl Flow {
    /// Whether one of the bursts is large.
    pub fn is_long(&self) -> bool {
        self.bursts.iter().any(|burst| burst.bytes >= LONG)
    }

    fn of(connection: usize, carrier: &Carrier, exchanges: &[Exchange<'_>]) -> Option<Self> {
        let used = || carrier.exchanges.iter().map(|place| &exchanges[*place]);
        let start = carrier.opened.or_else(|| used().next().map(Exchange::sent))?;
        let mut bursts: Vec<Burst> = Vec::new();
        for exchange in used() {
            let (sent, bytes) = (exchange.sent(), exchange.uploaded + exchange.downloaded);
            let ended = exchange.ended().unwrap_or(sent);
            match bursts.last_mut() {
                Some(burst) if sent < burst.start + burst.duration + PAUSE => {
                    burst.duration = burst.duration.max(ended.since(burst.start));
                    burst.bytes += bytes;
                }
                _ => bursts.push(Burst { start: sent, duration: ended.since(sent), bytes }),
            }
        }
        let last = bursts.last().map_or(start, |burst| burst.start + burst.duration);
        let end = carrier.closed.unwrap_or(last).max(last);
        let bytes = bursts.iter().map(|burst| burst.bytes).sum();
        Some(Self { connection, start, duration: end.since(start), bytes, bursts })
    }
}

/// Returns the flows of a recording, by start. Exchanges without a connection get derived ones.
pub fn flows(recording: &Recording<'_>) -> Vec<Flow> {
    let carriage = Carriage::of(recording);
    let of = |(place, carrier)| Flow::of(place, carrier, recording.exchanges);
    let mut flows: Vec<Flow> = carriage.connections.iter().enumerate().filter_map(of).collect();
    flows.sort_by_key(|flow| (flow.start, flow.connection));
    flows
}

/// Finds the pattern of flows.
pub fn classify(mut flows: Vec<Flow>) -> Classification {
    flows.sort_by_key(|flow| (flow.start, flow.connection));
    let bytes: Size = flows.iter().map(|flow| flow.bytes).sum();
    let long = || flows.iter().filter(|flow| flow.is_long());
    let long_bytes: Size = long().map(|flow| flow.bytes).sum();
    let long_share = match bytes.is_zero() {
        true => 0.0,
        false => long_bytes.as_bytes() as f64 / bytes.as_bytes() as f64,
    };
    let long_flows = long().count();
    let pattern = match long_flows > 0 && long_share >= DOMINANT {
        true => Pattern::LongFlowDominated,
        false => Pattern::ShortFlowDominated,
    };
    Classification { pattern, flows, bytes, long_flows, long_share }
}

#[cfg(test)]
mod tests {
    use super::super::recording::{Completion, Connection, Protocol};
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn exchange(connection: usize, millis: (u64, u64), bytes: u64) -> Exchange<'static> {
        Exchange {
            connection: Some(connection),
            origin: "",
            protocol: Protocol::Http1,
            started: at(millis.0),
            sent: Some(at(millis.0)),
            ended: Some(at(millis.1)),
            uploaded: Size::from_bytes(1_000),
            downloaded: Size::from_bytes(bytes - 1_000),
            completion: Completion::Complete,
        }
    }

    fn connection(opened: Option<u64>, closed: Option<u64>) -> Connection {
        let protocol = Protocol::Http1;
        Connection { protocol, opened: opened.map(at), ready: None, closed: closed.map(at) }
    }

    #[test]
    fn flows_have_their_times_bytes_and_bursts() {
        let connections = [
            connection(None, None),
            connection(Some(50), Some(9_000)),
            connection(Some(70), Some(80)),
            connection(None, None),
        ];
        let exchanges = [
            exchange(1, (5_000, 5_100), 3_000),
            exchange(1, (100, 400), 2_000),
            exchange(0, (60, 1_000), 5_000),
            exchange(0, (1_999, 2_500), 7_000),
            exchange(0, (3_500, 3_600), 1_500),
            exchange(0, (2_000, 2_100), 1_000),
        ];
        let flows = flows(&Recording { connections: &connections, exchanges: &exchanges });
        let burst = |start, end, bytes| Burst {
            start: at(start),
            duration: at(end).since(at(start)),
            bytes: Size::from_bytes(bytes),
        };
        let flow = |connection, start, end, bytes, bursts| Flow {
            connection,
            start: at(start),
            duration: at(end).since(at(start)),
            bytes: Size::from_bytes(bytes),
            bursts,
        };
        let expected = [
            flow(1, 50, 9_000, 5_000, vec![burst(100, 400, 2_000), burst(5_000, 5_100, 3_000)]),
            // A pause of 999 ms does not end a burst, one of a second does.
            flow(0, 60, 3_600, 14_500, vec![burst(60, 2_500, 13_000), burst(3_500, 3_600, 1_500)]),
            flow(2, 70, 80, 0, vec![]),
        ];
        assert_eq!(flows, expected);
    }

    /// Classifies flows that are given by their bursts, a minute apart.
    fn of(flows: &[&[u64]]) -> (Pattern, usize, f64) {
        let flow = |bursts: &[u64]| Flow {
            connection: 0,
            start: Time::ZERO,
            duration: Span::ZERO,
            bytes: Size::from_bytes(bursts.iter().sum()),
            bursts: (bursts.iter().zip(0..))
                .map(|(bytes, place)| Burst {
                    start: at(place * 60_000),
                    duration: Span::ZERO,
                    bytes: Size::from_bytes(*bytes),
                })
                .collect(),
        };
        let found = classify(flows.iter().map(|bursts| flow(bursts)).collect());
        (found.pattern, found.long_flows, found.long_share)
    }

    #[test]
    fn long_flows_dominate_if_they_carry_half_of_the_bytes() {
        use Pattern::{LongFlowDominated, ShortFlowDominated};
        assert_eq!(of(&[]), (ShortFlowDominated, 0, 0.0));
        assert_eq!(of(&[&[]]), (ShortFlowDominated, 0, 0.0));
        assert_eq!(of(&[&[999_999], &[1_000]]), (ShortFlowDominated, 0, 0.0));
        assert_eq!(of(&[&[1_000_000], &[900_000, 100_000]]), (LongFlowDominated, 1, 0.5));
        assert_eq!(of(&[&[1_000_000], &[600_000], &[400_001]]).0, ShortFlowDominated);
        // A connection that lives long and transfers little at a time.
        assert_eq!(of(&[&[100_000; 50]]), (ShortFlowDominated, 0, 0.0));
        assert_eq!(of(&[&[2_000_000], &[3_000_000, 1_000]]), (LongFlowDominated, 2, 1.0));
    }
}
