mod course;
mod network;
mod plan;
mod properties;

use manyways_unit::{Size, Time};

use super::recording::{Completion, Connection, Exchange, Protocol};

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// A connection of which no times are known.
fn connection(protocol: Protocol) -> Connection {
    Connection { protocol, opened: None, ready: None, closed: None }
}

/// A complete exchange with a request that was sent at the first of two times, and a response of
/// 1,000 bytes.
fn exchange(connection: usize, start: u64, end: u64) -> Exchange<'static> {
    Exchange {
        connection: Some(connection),
        origin: "https://a.example",
        protocol: Protocol::Http2,
        started: at(start),
        sent: Some(at(start)),
        ended: Some(at(end)),
        uploaded: Size::ZERO,
        downloaded: Size::from_bytes(1_000),
        completion: Completion::Complete,
    }
}
