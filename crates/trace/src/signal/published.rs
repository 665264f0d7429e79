//! The signal of an interface as a lab publishes it to programs: the samples, and when they began.
//!
//! A lab writes it as a JSON document; `docs/lab.md` describes the fields.

use manyways_unit::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{MAX_LINES, MAX_TIME, MAX_VALUE, Sample, Signal, SignalTrace};

/// Name and version of the document.
pub const SCHEMA: &str = "manyways.lab-signal/1";
/// Length of a document in bytes, at most: more than that of [`MAX_LINES`] lines.
pub const MAX_PUBLISHED: u64 = 256 << 20;

/// A signal that is played back, repeatedly.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "Fields", try_from = "Fields")]
pub struct PublishedSignal {
    /// Name of the interface.
    pub interface: String,
    /// The file as the user wrote it.
    pub source: String,
    /// `CLOCK_MONOTONIC` of this machine at the start of the trace, in nanoseconds. Negative if the
    /// lab began in the middle of a trace that is longer than the machine runs.
    pub start: i64,
    pub trace: SignalTrace,
}

/// Reason why a document contains no signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidSignal {
    #[error("it has no samples, or more than {MAX_LINES}")]
    Length,
    #[error("`{0}` has another number of values than `nanoseconds`")]
    Column(&'static str),
    #[error("the times do not begin at zero, do not increase, or are too late")]
    Time,
    #[error("a value of `{0}` is not possible")]
    Value(&'static str),
}

/// Returns the name of the document of an interface, in the folder of the lab. `None` if no interface
/// can have this name.
pub fn published_file(interface: &str) -> Option<String> {
    let is_name = !interface.is_empty() && !interface.contains(['/', '\0']);
    is_name.then(|| format!("signal-{interface}.json"))
}

impl PublishedSignal {
    /// The time since the start of the trace, at a time of `CLOCK_MONOTONIC` in nanoseconds; zero
    /// before the start.
    pub fn position(&self, monotonic: u64) -> Span {
        let position = i128::from(monotonic) - i128::from(self.start);
        Span::from_nanos(u64::try_from(position.max(0)).unwrap_or(u64::MAX))
    }
}

/// The fields of the document.
#[derive(Serialize, Deserialize)]
struct Fields {
    interface: String,
    source: String,
    start_monotonic_nanoseconds: i64,
    /// For the programs that read it; it follows from the samples.
    period_nanoseconds: u64,
    samples: Columns,
}

/// Columns of equal length; signals without any value are left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Columns {
    nanoseconds: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rssi: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rsrp: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rsrq: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snr: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cqi: Option<Vec<Option<f64>>>,
}

impl Columns {
    fn column(&mut self, signal: Signal) -> &mut Option<Vec<Option<f64>>> {
        match signal {
            Signal::Rssi => &mut self.rssi,
            Signal::Rsrp => &mut self.rsrp,
            Signal::Rsrq => &mut self.rsrq,
            Signal::Snr => &mut self.snr,
            Signal::Cqi => &mut self.cqi,
        }
    }
}

impl From<PublishedSignal> for Fields {
    fn from(signal: PublishedSignal) -> Self {
        let all = signal.trace.samples();
        let nanoseconds = all.iter().map(|sample| sample.at.as_nanos()).collect();
        let mut samples = Columns { nanoseconds, ..Columns::default() };
        for signal in Signal::ALL {
            if all.iter().any(|sample| sample.get(signal).is_some()) {
                let values = all.iter().map(|sample| sample.get(signal));
                *samples.column(signal) = Some(values.collect());
            }
        }
        Self {
            period_nanoseconds: signal.trace.period().as_nanos(),
            start_monotonic_nanoseconds: signal.start,
            interface: signal.interface,
            source: signal.source,
            samples,
        }
    }
}

impl TryFrom<Fields> for PublishedSignal {
    type Error = InvalidSignal;

    fn try_from(fields: Fields) -> Result<Self, InvalidSignal> {
        let mut columns = fields.samples;
        if !(1..=MAX_LINES).contains(&columns.nanoseconds.len()) {
            return Err(InvalidSignal::Length);
        }
        let (times, values) = (columns.nanoseconds.iter(), [None; Signal::ALL.len()]);
        let sample = |time: &u64| Sample { at: Span::from_nanos(*time), values };
        let mut samples: Vec<_> = times.map(sample).collect();
        let is_late = samples.last().is_none_or(|last| last.at > MAX_TIME);
        let is_sorted = samples.is_sorted_by(|one, next| one.at < next.at);
        if is_late || !is_sorted || !samples[0].at.is_zero() {
            return Err(InvalidSignal::Time);
        }
        for signal in Signal::ALL {
            let Some(column) = columns.column(signal).take() else { continue };
            if column.len() != samples.len() {
                return Err(InvalidSignal::Column(signal.name()));
            }
            if column.iter().flatten().any(|value| !(-MAX_VALUE..=MAX_VALUE).contains(value)) {
                return Err(InvalidSignal::Value(signal.name()));
            }
            for (sample, value) in samples.iter_mut().zip(column) {
                sample.values[signal as usize] = value;
            }
        }
        Ok(Self {
            interface: fields.interface,
            source: fields.source,
            start: fields.start_monotonic_nanoseconds,
            trace: SignalTrace { samples },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    fn walk() -> PublishedSignal {
        let text = "time,rssi,snr,cqi\n7,-61,,\n8.5,-74.5,,9\n";
        PublishedSignal {
            interface: "wifi".into(),
            source: "walk.csv".into(),
            start: 7,
            trace: SignalTrace::parse(text.as_bytes()).unwrap(),
        }
    }

    #[test]
    fn the_fields_are_documented_and_read_back() {
        let text = serde_json::to_string(&walk()).unwrap();
        let expected = "{\"interface\":\"wifi\",\"source\":\"walk.csv\",\
            \"start_monotonic_nanoseconds\":7,\"period_nanoseconds\":3000000000,\
            \"samples\":{\"nanoseconds\":[0,1500000000],\"rssi\":[-61.0,-74.5],\"cqi\":[null,9.0]}}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<PublishedSignal>(&text).unwrap(), walk());
        let page = include_str!("../../../../docs/lab.md");
        let fields = ["interface", "source", "start_monotonic_nanoseconds", "period_nanoseconds"];
        let columns = Signal::ALL.map(Signal::name);
        for name in [&fields[..], &["samples", "nanoseconds"], &columns].concat() {
            assert!(page.contains(&format!("`{name}`")), "{name} is not documented");
        }
    }

    #[test]
    fn the_position_counts_from_the_start() {
        let at = |start, monotonic| PublishedSignal { start, ..walk() }.position(monotonic);
        assert_eq!(at(7, 1_007), Span::from_nanos(1_000));
        assert_eq!(at(-5, 2), Span::from_nanos(7));
        assert_eq!(at(9, 8), Span::ZERO);
        assert_eq!(at(i64::MIN, u64::MAX), Span::MAX);
    }

    #[test]
    fn impossible_samples_are_refused() {
        let error = |samples: &str| {
            let text = format!(
                "{{\"interface\":\"a\",\"source\":\"\",\"start_monotonic_nanoseconds\":0,\
                 \"period_nanoseconds\":1,\"samples\":{samples}}}"
            );
            serde_json::from_str::<PublishedSignal>(&text).unwrap_err().to_string()
        };
        assert!(error("{}").starts_with("it has no samples"));
        let column = error("{\"nanoseconds\":[0,1],\"rssi\":[1]}");
        assert!(column.starts_with("`rssi` has another number of values"), "{column}");
        for times in ["[1]", "[0,0]", "[0,2,1]", "[0,9999999999999999]"] {
            let time = error(&format!("{{\"nanoseconds\":{times}}}"));
            assert!(time.starts_with("the times do not begin at zero"), "{times}: {time}");
        }
        let value = error("{\"nanoseconds\":[0],\"cqi\":[1e9]}");
        assert!(value.starts_with("a value of `cqi` is not possible"), "{value}");
    }

    #[test]
    fn only_names_of_interfaces_name_a_file() {
        assert_eq!(published_file("wifi").as_deref(), Some("signal-wifi.json"));
        assert_eq!((published_file("../wifi"), published_file("")), (None, None));
    }

    proptest! {
        #[test]
        fn every_signal_reads_back(
            start: i64,
            steps in vec((1..=3_600_000_000_u64, of(-1e3..=1e3), of(0.0..=15.0)), 1..20),
        ) {
            let mut at = Span::ZERO;
            let samples = steps.into_iter().enumerate().map(|(index, (step, rsrq, cqi))| {
                // Up to the end of the longest file.
                let step = if index == 10 { MAX_TIME.as_nanos() - 72_000_000_000 } else { step };
                at += Span::from_nanos(if index == 0 { 0 } else { step });
                Sample { at, values: [None, None, rsrq, None, cqi] }
            });
            let trace = SignalTrace { samples: samples.collect() };
            let signal = PublishedSignal { start, trace, ..walk() };
            let text = serde_json::to_vec(&signal).unwrap();
            prop_assert_eq!(serde_json::from_slice::<PublishedSignal>(&text).unwrap(), signal);
        }
    }
}
