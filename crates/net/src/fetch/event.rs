//! The events of a transfer, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

/// What happens in a transfer. Byte counts are body bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TransferEvent {
    /// A transfer began.
    TransferStart {
        /// Counted from zero in the order of the command line.
        transfer: u32,
        /// What is fetched.
        url: String,
    },
    /// What one path has brought to a transfer so far.
    PathSample(PathSample),
    /// A path of a transfer came up, failed or was given up.
    PathState {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// `up`, `stalled`, `down`.
        state: String,
        /// One sentence, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A request was sent.
    Request {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Counted from zero within the transfer.
        request: u64,
        /// The first byte that was asked for.
        from: u64,
        /// One past the last; none for a plain GET, which asks for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
    /// The head of an answer came.
    Response {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// The status code.
        status: u16,
        /// The path's application round trip as it was estimated when the request was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_seconds: Option<f64>,
    },
    /// Bytes of the object came; pieces that follow each other within 5 ms are one.
    Received {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// The first of them.
        from: u64,
        /// One past the last.
        to: u64,
    },
    /// What a request is to bring was changed.
    RangeEnd {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// One past the last byte that is still wanted of it.
        to: u64,
    },
    /// Nothing more comes of a request.
    RequestEnd {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// Which request.
        request: u64,
        /// `finished` (all that was asked for), `cut` (all that was still wanted), `cancelled`,
        /// `failed`.
        how: String,
    },
    /// An application round trip was measured.
    Ping {
        /// Which transfer.
        transfer: u32,
        /// Name of the path.
        path: String,
        /// How long it took.
        rtt_seconds: f64,
        /// `h2` (a PING frame) or `tcp` (what the kernel measures).
        by: String,
    },
    /// A transfer ended.
    TransferEnd {
        /// Which transfer.
        transfer: u32,
        /// Whether the whole object is there.
        complete: bool,
        /// Body bytes written.
        bytes: u64,
    },
}

impl EventFamily for TransferEvent {
    const NAMES: &'static [&'static str] = &[
        "transfer-start",
        "path-sample",
        "path-state",
        "request",
        "response",
        "received",
        "range-end",
        "request-end",
        "ping",
        "transfer-end",
    ];
}

/// What one path has brought to a transfer so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// Which transfer.
    pub transfer: u32,
    /// Name of the path.
    pub path: String,
    /// Body bytes since the transfer began.
    pub bytes: u64,
    /// The path's rate as it is estimated now.
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
                TransferEvent::RangeEnd {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    to: 6_000_000,
                },
            ),
            at(
                385,
                TransferEvent::RequestEnd {
                    transfer: 0,
                    path: "lte".into(),
                    request: 1,
                    how: "cut".into(),
                },
            ),
            at(
                390,
                TransferEvent::Ping {
                    transfer: 0,
                    path: "lte".into(),
                    rtt_seconds: 0.0655,
                    by: "h2".into(),
                },
            ),
            at(400, TransferEvent::TransferEnd { transfer: 0, complete: true, bytes: 8_000_000 }),
        ];
        let header = Header::new("test", "0", Span::ZERO);
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", line(&header)).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let document = include_str!("../../../../docs/event-log.md");
        for name in TransferEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
