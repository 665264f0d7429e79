//! The events of a lab, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

/// What happens in a lab. Byte counts are IP bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LabEvent {
    /// One direction of a link, looked at regularly.
    LinkSample(LinkSample),
    /// A link was changed while it ran.
    LinkChange {
        /// Which link.
        link: String,
        /// What was set, as `key=value` words.
        set: Vec<String>,
    },
    /// A workload began; traces and events of the scenario restart here.
    WorkloadStart {
        /// Its name.
        workload: String,
    },
    /// A workload ended.
    WorkloadEnd {
        /// Its name.
        workload: String,
        /// Its exit code; none where it was killed.
        exit: Option<i32>,
        /// How long it ran.
        seconds: f64,
    },
}

impl EventFamily for LabEvent {
    const NAMES: &'static [&'static str] =
        &["link-sample", "link-change", "workload-start", "workload-end"];
}

/// Counters of one direction of a link; all but the queue are totals since the log began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSample {
    /// Which link.
    pub link: String,
    /// `down` (towards the device) or `up`.
    pub direction: Way,
    /// What its capacity is now; none where it is unlimited.
    pub rate_bps: Option<u64>,
    /// Bytes that came out at the other end.
    pub delivered_bytes: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// Packets that wait now.
    pub queue_packets: u64,
    /// Packets that are gone, by cause.
    pub dropped_packets: Drops,
}

/// A direction in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Towards the device.
    Down,
    /// From the device.
    Up,
}

/// Packets that are gone, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// No room in the queue.
    pub queue: u64,
    /// CoDel's decision.
    pub aqm: u64,
    /// Lost on the wire.
    pub loss: u64,
    /// The link was down.
    pub down: u64,
    /// A middlebox let them not pass.
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
                    direction: Way::Down,
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
        let read = parse(format!("{}{text}", line(&header)).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let document = include_str!("../../../docs/event-log.md");
        for name in LabEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
