//! The events of `manyways steer run`, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

use super::document::DecisionDocument;

/// An event of a device whose networks are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SteerEvent {
    /// A network appeared, can or cannot be used from now on, or is gone.
    SteerNetwork {
        network: String,
        /// Why it cannot be used: one sentence. `None` if it can.
        unusable: Option<String>,
    },
    /// A stage of a probe has ended.
    SteerProbe {
        network: String,
        /// `pings` or `burst`.
        stage: String,
        /// Bytes of both directions.
        bytes: u64,
        /// Why something is missing: one sentence.
        missing: Option<String>,
    },
    /// Other networks carry flows from now on.
    SteerChoice {
        /// `new-flows`, or the goal of streams of a bond.
        flows: String,
        /// The networks, the first one first; empty: the host's own routes apply.
        networks: Vec<String>,
        /// Seconds until the kernel or the bond applied the choice; `None` if it could not.
        seconds: Option<f64>,
        decision: Option<Box<DecisionDocument>>,
    },
    /// The user prefers a network for a while.
    SteerPreference {
        network: String,
        app: Option<String>,
        /// 0: the preference has ended.
        seconds: f64,
    },
}

impl EventFamily for SteerEvent {
    const NAMES: &'static [&'static str] =
        &["steer-network", "steer-probe", "steer-choice", "steer-preference"];
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
            at(1, SteerEvent::SteerNetwork { network: "wlan0".into(), unusable: None }),
            at(
                2,
                SteerEvent::SteerProbe {
                    network: "wlan0".into(),
                    stage: "pings".into(),
                    bytes: 1_680,
                    missing: Some("wlan0 has no gateway to ping".into()),
                },
            ),
            at(
                3,
                SteerEvent::SteerChoice {
                    flows: "new-flows".into(),
                    networks: vec!["wlan0".into()],
                    seconds: Some(0.005),
                    decision: Some(Box::new(DecisionDocument::example())),
                },
            ),
            at(
                4,
                SteerEvent::SteerPreference { network: "wwan0".into(), app: None, seconds: 600.0 },
            ),
        ];
        let header = Header::new("steer run", "0.1.0", Span::from_secs(1));
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", header.line()).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let page = include_str!("../../../../docs/event-log.md");
        for name in SteerEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(page.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
