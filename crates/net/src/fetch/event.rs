//! The events of a transfer, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

/// An event of a transfer. Byte counts are body bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TransferEvent {
    /// A transfer began.
    TransferStart {
        /// Index in the order of the command line, from 0.
        transfer: u32,
        url: String,
    },
    /// Bytes that one path has received for a transfer.
    PathSample(PathSample),
    /// A path of a transfer came up, failed or was dropped.
    PathState {
        transfer: u32,
        path: String,
        /// `up`, `stalled`, `down`.
        state: String,
        /// Reason as one sentence, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A request was sent.
    Request {
        transfer: u32,
        path: String,
        /// Number within the transfer, from 0.
        request: u64,
        /// First requested byte.
        from: u64,
        /// One past the last requested byte; `None` for a plain GET.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
    /// The head of a response arrived.
    Response {
        transfer: u32,
        path: String,
        request: u64,
        status: u16,
        /// Estimated application RTT of the path when the request was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_seconds: Option<f64>,
    },
    /// Bytes of the object arrived; pieces within 5 ms are merged.
    Received {
        transfer: u32,
        path: String,
        request: u64,
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
    },
    /// The end of the bytes that are assigned to a request was changed.
    Cut {
        transfer: u32,
        path: String,
        request: u64,
        /// One past the last assigned byte.
        to: u64,
    },
    /// A request ended.
    RequestEnd { transfer: u32, path: String, request: u64, outcome: RequestOutcome },
    /// An application RTT was measured.
    Ping { transfer: u32, path: String, rtt_seconds: f64, by: PingMethod },
    /// A transfer ended.
    TransferEnd {
        transfer: u32,
        /// Whether the whole object was received.
        complete: bool,
        /// Body bytes written.
        bytes: u64,
    },
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RequestOutcome {
    /// All requested bytes arrived.
    Finished,
    /// All bytes up to the reduced end arrived.
    Cut,
    Cancelled,
    Failed,
}

/// How an application RTT was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PingMethod {
    /// By a PING frame of HTTP/2.
    H2,
    /// By TCP_INFO.
    Tcp,
}

impl EventFamily for TransferEvent {
    const NAMES: &'static [&'static str] = &[
        "transfer-start",
        "path-sample",
        "path-state",
        "request",
        "response",
        "received",
        "cut",
        "request-end",
        "ping",
        "transfer-end",
    ];
}

/// Bytes that one path has received for a transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    pub transfer: u32,
    pub path: String,
    /// Body bytes since the start of the transfer.
    pub bytes: u64,
    /// Estimated current rate of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
}

#[cfg(test)]
mod tests {
    use manyways_record::event::{Header, Record, line, parse};
    use manyways_unit::{Span, Time};

    use super::*;

    #[test]
    fn every_event_reads_back_and_is_documented() {
        let at = |millis, event| Record { time: Time::from_millis(millis), event };
        let records = vec![
            at(
                250,
                TransferEvent::TransferStart { transfer: 0, url: "https://origin.lab/8M".into() },
            ),
            at(
                300,
                TransferEvent::PathSample(PathSample {
                    transfer: 0,
                    path: "lte".into(),
                    bytes: 1,
                    rate_bps: None,
                }),
            ),
            at(
                350,
                TransferEvent::PathState {
                    transfer: 0,
                    path: "lte".into(),
                    state: "down".into(),
                    reason: Some("no route".into()),
                },
            ),
            at(
                360,
                TransferEvent::Request {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    from: 4_000_000,
                    to: Some(8_000_000),
                },
            ),
            at(
                370,
                TransferEvent::Response {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    status: 206,
                    expected_seconds: Some(0.065),
                },
            ),
            at(
                375,
                TransferEvent::Received {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    from: 4_000_000,
                    to: 4_016_384,
                },
            ),
            at(
                380,
                TransferEvent::Cut { transfer: 0, path: "lte".into(), request: 1, to: 6_000_000 },
            ),
            at(
                385,
                TransferEvent::RequestEnd {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    outcome: RequestOutcome::Cut,
                },
            ),
            at(
                390,
                TransferEvent::Ping {
                    transfer: 0,
                    path: "lte".into(),
                    rtt_seconds: 0.0655,
                    by: PingMethod::H2,
                },
            ),
            at(400, TransferEvent::TransferEnd { transfer: 0, complete: true, bytes: 8_000_000 }),
        ];
        let header = Header::new("test", "0", Span::ZERO);
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", header.line()).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let document = include_str!("../../../../docs/event-log.md");
        for name in TransferEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
