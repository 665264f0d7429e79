//! The events of a lab, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

/// Events of a lab. Byte counts are IP bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LabEvent {
    /// Counters of one direction of a link, at regular intervals.
    LinkSample(LinkSample),
    /// A running link was changed.
    LinkChange {
        /// Name of the link.
        link: String,
        /// The new settings, as `key=value` words.
        set: Vec<String>,
    },
    /// A workload started; traces and events of the scenario restart at this time.
    WorkloadStart { workload: String },
    /// A workload ended.
    WorkloadEnd {
        workload: String,
        /// Exit code; `None` if the workload was killed.
        exit: Option<i32>,
        /// Duration.
        seconds: f64,
    },
}

impl EventFamily for LabEvent {
    const NAMES: &'static [&'static str] =
        &["link-sample", "link-change", "workload-start", "workload-end"];
}

/// Counters of one direction of a link; all except the queue are totals since the start of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    /// Name of the link.
    pub link: String,
    /// `down` (towards the device) or `up`.
    pub direction: LaneDirection,
    /// Current capacity; `None` if unlimited.
    pub rate_bps: Option<u64>,
    /// Bytes delivered at the other end.
    pub delivered_bytes: u64,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// Packets in the queue.
    pub queue_packets: u64,
    /// Dropped packets by cause.
    pub dropped_packets: Drops,
}

/// A direction in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaneDirection {
    /// Towards the device.
    Down,
    /// From the device.
    Up,
}

/// Dropped packets by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The queue was full.
    pub queue: u64,
    /// Dropped by CoDel.
    pub aqm: u64,
    /// Lost on the wire.
    pub loss: u64,
    /// The link was down.
    pub down: u64,
    /// Dropped by a middlebox.
    #[serde(default)]
    pub middlebox: u64,
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
            at(0, LabEvent::WorkloadStart { workload: "fetch".into() }),
            at(
                100,
                LabEvent::LinkSample(LinkSample {
                    link: "wifi".into(),
                    direction: LaneDirection::Down,
                    rate_bps: Some(10_000_000),
                    delivered_bytes: 125_000,
                    queue_bytes: 3_000,
                    queue_packets: 2,
                    dropped_packets: Drops { queue: 1, ..Drops::default() },
                }),
            ),
            at(200, LabEvent::LinkChange { link: "wifi".into(), set: vec!["state=silent".into()] }),
            at(
                500,
                LabEvent::WorkloadEnd { workload: "fetch".into(), exit: Some(0), seconds: 0.5 },
            ),
        ];
        let header = Header::new("test", "0", Span::ZERO);
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", header.line()).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let document = include_str!("../../../docs/event-log.md");
        for name in LabEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
