//! The events of `manyways radio control`, for event logs.

use manyways_record::event::EventFamily;
use serde::{Deserialize, Serialize};

use super::control::Summary;

/// An event of a radio that a policy controls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RadioEvent {
    RadioBegin(RadioBegin),
    /// Fast dormancy.
    RadioSleep {
        /// Since the last packet.
        idle_seconds: f64,
        /// The wait by the policy.
        wait_seconds: f64,
    },
    /// A promotion, at the time of the packet that caused it.
    RadioWake {
        slept_seconds: f64,
        /// Whether going idle took at least the energy of staying connected.
        #[serde(rename = "false")]
        is_false: bool,
    },
    /// The command that sends the radio to idle has ended.
    RadioCommand {
        ended: CommandEnd,
        /// Exit code of a command that ended by itself.
        exit: Option<i32>,
        /// Signal of another process that ended the command.
        signal: Option<i32>,
        seconds: f64,
        /// Why a command could not be started; not in the log.
        #[serde(skip)]
        reason: Option<String>,
    },
    /// The interface is down.
    RadioDown,
    /// Delay-tolerant connections are delayed by at most this time, from the first one on.
    RadioHold {
        seconds: f64,
    },
    /// A delayed connection passes.
    RadioPass {
        waited_seconds: f64,
    },
    /// The control connection to the bond was lost or restored; connections delayed before have
    /// passed.
    RadioBond {
        up: bool,
    },
    /// The last event.
    RadioSummary(Box<Summary>),
}

impl EventFamily for RadioEvent {
    const NAMES: &'static [&'static str] = &[
        "radio-begin",
        "radio-sleep",
        "radio-wake",
        "radio-command",
        "radio-down",
        "radio-hold",
        "radio-pass",
        "radio-bond",
        "radio-summary",
    ];
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RadioBegin {
    pub interface: String,
    pub profile: String,
    pub policy: String,
    /// `log`, `exec`.
    pub actuator: String,
    /// `capture`, `counters`.
    pub source: String,
    /// Rules whose connections are delay-tolerant.
    pub hold: Vec<String>,
    /// Name of the bond client; `None` without rules.
    pub bond: Option<String>,
}

/// The way in which a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandEnd {
    /// By itself.
    Exit,
    /// By a signal that is not ours.
    Signal,
    /// Killed after the timeout.
    TimedOut,
    /// Killed at the end of the run.
    Stopped,
    NotStarted,
}

#[cfg(test)]
mod tests {
    use manyways_record::event::{Header, Record, line, parse};
    use manyways_unit::{Span, Time};

    use super::*;
    use crate::radio::control::Outcome;

    #[test]
    fn every_event_reads_back_and_is_documented() {
        let begin = RadioBegin {
            interface: "wwan0".into(),
            profile: "lte".into(),
            policy: "makeidle".into(),
            actuator: "exec".into(),
            source: "capture".into(),
            hold: vec!["mail".into()],
            bond: Some("default".into()),
        };
        let command = RadioEvent::RadioCommand {
            ended: CommandEnd::TimedOut,
            exit: None,
            signal: None,
            seconds: 10.0,
            reason: None,
        };
        let summary = Summary::of(&Outcome { wakeups: 7, ..Outcome::default() });
        let events = [
            RadioEvent::RadioBegin(begin),
            RadioEvent::RadioSleep { idle_seconds: 0.5, wait_seconds: 0.45 },
            RadioEvent::RadioWake { slept_seconds: 3.25, is_false: true },
            command,
            RadioEvent::RadioDown,
            RadioEvent::RadioHold { seconds: 4.0 },
            RadioEvent::RadioPass { waited_seconds: 1.5 },
            RadioEvent::RadioBond { up: false },
            RadioEvent::RadioSummary(Box::new(summary)),
        ];
        let records = events.map(|event| Record { time: Time::from_millis(410), event });
        let header = Header::new("test", "0", Span::ZERO);
        let text: String = records.iter().map(line).collect();
        let read = parse(format!("{}{text}", header.line()).as_bytes()).unwrap();
        assert_eq!((read.records.as_slice(), read.skipped), (&records[..], 0));
        assert!(text.contains("\"ended\":\"timed-out\",\"exit\":null,\"signal\":null,"), "{text}");
        let document = include_str!("../../../../docs/event-log.md");
        for name in RadioEvent::NAMES {
            assert!(text.contains(&format!("\"event\":\"{name}\"")), "{name} is not above");
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }
}
