//! Messages of a control connection. Without I/O.

use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use super::token::Token;

/// Protocol ID in ALPN (RFC 7301).
pub const PROTOCOL: &[u8] = b"manyways-probe/1";
/// Maximum bytes of a message, with its line feed.
pub const MAX_LINE: usize = 4_096;

/// From one message of the server about a transfer to the next.
pub(crate) const REPORT_INTERVAL: Span = Span::from_millis(100);

/// A message of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// A transfer over one TCP connection, of at most this many bytes and milliseconds.
    Tcp { direction: Direction, bytes: u64, millis: u64 },
    /// A burst of datagrams with this many bytes of UDP payload, at a constant rate in bits a
    /// second of payload.
    Udp { direction: Direction, packets: u64, size: u16, rate: u64 },
    /// Answers to datagrams.
    Echo { packets: u64, size: u16, millis: u64 },
    /// The end of the measurement.
    Stop,
}

/// Direction of the data, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Up,
    Down,
}

/// A message of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The measurement can start with this token.
    Ready { token: Token },
    /// The server does not serve this order.
    Refused { reason: String },
    /// Bytes received since the first one, and the time since then.
    Received { nanos: u64, bytes: u64 },
    /// The state of TCP at the server of a transfer down; `nanos` since its start, the round trip in
    /// nanoseconds.
    Sample { nanos: u64, rtt: Option<u64>, cwnd: u32, retransmitted: u32 },
    /// The measurement has ended: all bytes or datagrams that the server sent or received.
    Ended { sent: u64, received: u64 },
    /// The server's view of a burst up.
    Burst(BurstMessage),
}

/// A summary of a burst; times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BurstMessage {
    pub received: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Datagrams for which the server had no room.
    #[serde(default)]
    pub dropped: u64,
    pub mean_gap: Option<u64>,
    pub median_gap: Option<u64>,
    pub p90_gap: Option<u64>,
    pub median_variation: Option<u64>,
    pub p90_variation: Option<u64>,
    pub max_variation: Option<u64>,
}

/// A line that is not a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    #[error("a message has more than {MAX_LINE} bytes")]
    TooLong,
    #[error("a message cannot be parsed: {0}")]
    Malformed(String),
}

/// A message as a line.
pub(crate) fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    // Numbers, names and a bounded text: this does not fail.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Parses a line, with or without its line feed. Accepts any bytes.
///
/// # Errors
/// It is not a message of this type.
pub fn parse<'a, M: Deserialize<'a>>(line: &'a [u8]) -> Result<M, MessageError> {
    if line.len() > MAX_LINE {
        return Err(MessageError::TooLong);
    }
    serde_json::from_slice(line).map_err(|error| MessageError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_lines() {
        let order = Order::Tcp { direction: Direction::Down, bytes: 5, millis: 7 };
        let line = encode(&order);
        assert_eq!(line, b"{\"tcp\":{\"direction\":\"down\",\"bytes\":5,\"millis\":7}}\n");
        assert_eq!(parse::<Order>(&line), Ok(order));
        assert_eq!(parse::<Order>(b"\"stop\""), Ok(Order::Stop));
        let reply = Reply::Burst(BurstMessage { received: 3, ..BurstMessage::default() });
        assert_eq!(parse::<Reply>(&encode(&reply)), Ok(reply));
        let unknown = br#"{"tcp":{"direction":"down","bytes":5,"millis":7,"port":1}}"#;
        assert!(parse::<Order>(unknown).is_err());
        assert_eq!(parse::<Order>(&vec![b' '; MAX_LINE + 1]), Err(MessageError::TooLong));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse::<Order>(&line), parse::<Reply>(&line));
        }
    }
}
