//! The events of a bond, for event logs.

use std::collections::BTreeMap;

use manyways_proto::bond::path::PathState;
use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

use super::status::PathStateName;

/// An event of a bond at its client. Byte counts are those of applications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BondEvent {
    /// A path has changed its state.
    BondPath {
        /// Name of the path.
        path: String,
        #[serde(with = "PathStateName")]
        state: PathState,
    },
    /// A bond carries a connection from now on.
    BondOpen(BondOpen),
    /// A policy decided about a connection of a bond, at its start or later.
    BondPolicy {
        /// Number of the stream; `None` for traffic that is not a stream of the bond.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<u64>,
        /// Address or name, and port.
        to: String,
        /// Name of the rule; `None` for the default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// `bond`, `direct`, `block`.
        decision: String,
    },
    /// The chosen paths of auto rules have changed.
    BondChoice {
        /// Goal of the rules: `fast`, `balanced` or `thrifty`.
        goal: String,
        /// Names of the chosen paths; empty if the rules no longer have a choice.
        paths: Vec<String>,
    },
    /// A stream of the bond has ended.
    BondClose {
        /// Number of the stream.
        stream: u64,
        seconds: f64,
        /// Bytes that the application sent.
        up_bytes: u64,
        /// Bytes that were delivered to the application.
        down_bytes: u64,
        /// Payload bytes that each path carried, with all copies.
        paths: BTreeMap<String, BondShare>,
    },
    /// Bytes were reinjected because their path stalled. Totals since the start of the session.
    BondReinjection {
        /// Reinjected bytes.
        bytes: u64,
        /// Of these, bytes that their first path delivered after all.
        spurious_bytes: u64,
    },
}

impl EventFamily for BondEvent {
    const NAMES: &'static [&'static str] =
        &["bond-path", "bond-open", "bond-policy", "bond-choice", "bond-close", "bond-reinjection"];
}

/// A connection that a bond carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BondOpen {
    /// Number of the stream, from 0.
    pub stream: u64,
    /// Destination: address or name, and port.
    pub to: String,
    /// Name of the server; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Program; `None` if unknown. Looked up if a rule needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Name of the rule; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Bytes that one path carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondShare {
    /// From the device.
    pub sent: u64,
    /// To the device.
    pub received: u64,
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
            at(410, BondEvent::BondPath { path: "lte".into(), state: PathState::Suspect }),
            at(
                420,
                BondEvent::BondOpen(BondOpen {
                    stream: 0,
                    to: "192.0.2.1:443".into(),
                    domain: Some("www.example.com".into()),
                    process: None,
                    rule: Some("calls".into()),
                }),
            ),
            at(
                430,
                BondEvent::BondPolicy {
                    stream: Some(0),
                    to: "192.0.2.1:443".into(),
                    rule: None,
                    decision: "bond".into(),
                },
            ),
            at(435, BondEvent::BondChoice { goal: "fast".into(), paths: vec!["lte".into()] }),
            at(440, BondEvent::BondReinjection { bytes: 1_400, spurious_bytes: 0 }),
            at(
                450,
                BondEvent::BondClose {
                    stream: 0,
                    seconds: 0.03,
                    up_bytes: 77,
                    down_bytes: 1_000,
                    paths: [("lte".to_owned(), BondShare { sent: 77, received: 1_000 })].into(),
                },
            ),
        ];
        let header = Header::new("test", "0", Span::ZERO);
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", header.line()).as_bytes()).unwrap();
        assert_eq!((read.records, read.skipped), (records, 0));
        let document = include_str!("../../../../docs/event-log.md");
        for name in BondEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
