//! Signals of a network over time, from CSV.
//!
//! The first line names the columns: `time` (seconds), and some of `rssi` and `rsrp` (dBm), `rsrq`
//! and `snr` (dB), `cqi` (0 to 15), in any order. An empty field or `-` is unknown. A line holds until
//! the next one, the last one as long as the one before, if the file is repeated. `#` begins a comment
//! line.
//!
//! ```text
//! time,rssi,cqi
//! 0,-61,
//! 1.5,-74.5,9
//! ```

mod published;

use manyways_unit::Span;
use manyways_unit::human::{decimal, quoted, without_bom};
use thiserror::Error;

pub use self::published::{MAX_PUBLISHED, PublishedSignal, SCHEMA, published_file};

/// Length of a file in bytes, at most.
pub const MAX_BYTES: usize = 64 << 20;
/// Lines of a file, at most.
pub const MAX_LINES: usize = 1_000_000;
/// Time of the last line, at most.
const MAX_TIME: Span = Span::from_secs(1_000 * 3_600);
/// No signal in dBm or dB, and no index, is farther from zero.
const MAX_VALUE: f64 = 1_000.0;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Received signal strength.
    Rssi,
    /// Reference signal received power (LTE, NR).
    Rsrp,
    /// Reference signal received quality.
    Rsrq,
    /// Ratio of signal to noise.
    Snr,
    /// Channel quality indicator.
    Cqi,
}

/// The signals at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Since the first line.
    pub at: Span,
    values: [Option<f64>; Signal::ALL.len()],
}

/// Signals of a network over time; at least one sample.
#[derive(Clone, PartialEq, Debug)]
pub struct SignalTrace {
    samples: Vec<Sample>,
}

/// Reason why bytes are not signals.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SignalError {
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// One sentence.
        reason: String,
    },
    #[error("the file has no signals")]
    Empty,
    #[error("the file is larger than {} MiB, or has more than {MAX_LINES} lines", MAX_BYTES >> 20)]
    TooLarge,
}

impl Signal {
    pub const ALL: [Self; 5] = [Self::Rssi, Self::Rsrp, Self::Rsrq, Self::Snr, Self::Cqi];

    /// Name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rssi => "rssi",
            Self::Rsrp => "rsrp",
            Self::Rsrq => "rsrq",
            Self::Snr => "snr",
            Self::Cqi => "cqi",
        }
    }
}

impl Sample {
    /// The value of a signal; `None` if it is unknown.
    pub fn get(&self, signal: Signal) -> Option<f64> {
        self.values[signal as usize]
    }
}

impl SignalTrace {
    /// Parses a file.
    ///
    /// # Errors
    /// A [`SignalError`] that names the line.
    pub fn parse(bytes: &[u8]) -> Result<Self, SignalError> {
        if bytes.len() > MAX_BYTES {
            return Err(SignalError::TooLarge);
        }
        let mut columns: Option<Vec<Option<Signal>>> = None;
        let (mut samples, mut start) = (Vec::new(), None);
        for (index, line) in without_bom(bytes).split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let fault = |reason: String| SignalError::Line { line: index + 1, reason };
            let text = str::from_utf8(line).map_err(|_| fault("it is not UTF-8 text".into()))?;
            let Some(columns) = &columns else {
                columns = Some(header(text).map_err(fault)?);
                continue;
            };
            if samples.len() == MAX_LINES {
                return Err(SignalError::TooLarge);
            }
            let fields: Vec<&str> = text.split(',').map(str::trim).collect();
            if fields.len() != columns.len() {
                let (found, expected) = (fields.len(), columns.len());
                return Err(fault(format!("it has {found} fields instead of {expected}")));
            }
            let (time, values) = fields_of(&fields, columns).map_err(fault)?;
            let at = time.saturating_sub(*start.get_or_insert(time));
            if samples.last().is_some_and(|last: &Sample| at <= last.at) {
                return Err(fault("the time is not later than on the line before".into()));
            }
            samples.push(Sample { at, values });
        }
        if samples.is_empty() { Err(SignalError::Empty) } else { Ok(Self { samples }) }
    }

    /// The signals at a time since the start: those of the last line that is not later. The last
    /// line holds for ever.
    pub fn at(&self, time: Span) -> &Sample {
        let behind = self.samples.partition_point(|sample| sample.at <= time);
        &self.samples[behind.saturating_sub(1)]
    }

    /// Time after which a repeated trace begins again: its last line holds as long as the one before,
    /// a single line for a second.
    pub fn period(&self) -> Span {
        match self.samples.as_slice() {
            [.., before, last] => last.at + last.at.saturating_sub(before.at),
            _ => Span::from_secs(1),
        }
    }

    /// The signals at a time since the start, if the trace is repeated.
    pub fn repeated_at(&self, time: Span) -> &Sample {
        // Never zero, because times increase.
        let period = self.period().as_nanos().max(1);
        self.at(Span::from_nanos(time.as_nanos() % period))
    }

    /// All samples in their order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

/// The signal of each column; `None` is the time.
fn header(text: &str) -> Result<Vec<Option<Signal>>, String> {
    let mut columns = Vec::new();
    for name in text.split(',') {
        let name = name.trim();
        let signal = Signal::ALL.into_iter().find(|one| one.name() == name);
        if signal.is_none() && name != "time" {
            let name = quoted(name);
            return Err(format!("`{name}` is none of time, rssi, rsrp, rsrq, snr and cqi"));
        }
        if columns.contains(&signal) {
            return Err(format!("the column {name} is there twice"));
        }
        columns.push(signal);
    }
    if !columns.contains(&None) || columns.len() < 2 {
        return Err("the first line names the columns: time, and at least one signal".into());
    }
    Ok(columns)
}

type Values = [Option<f64>; Signal::ALL.len()];

fn fields_of(fields: &[&str], columns: &[Option<Signal>]) -> Result<(Span, Values), String> {
    let (mut time, mut values) = (Span::ZERO, [None; Signal::ALL.len()]);
    for (field, column) in fields.iter().zip(columns) {
        let Some(signal) = column else {
            let parsed = decimal(field, 1_000_000_000).map(Span::from_nanos);
            let parsed = parsed.filter(|time| *time <= MAX_TIME);
            time = parsed.ok_or_else(|| {
                format!("`{}` is not a possible number of seconds", quoted(field))
            })?;
            continue;
        };
        if field.is_empty() || *field == "-" {
            continue;
        }
        let value = field.parse().ok().filter(|value: &f64| value.abs() <= MAX_VALUE);
        let value = value.ok_or_else(|| {
            format!("`{}` is not a possible value of {}", quoted(field), signal.name())
        })?;
        values[*signal as usize] = Some(value);
    }
    Ok((time, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_until_the_next_one() {
        let text = "\u{feff}time, cqi,rssi\r\n# indoors\n10,7,-61\n11.5,-,-74.5\n\n20,,\n";
        let trace = SignalTrace::parse(text.as_bytes()).unwrap();
        let at = |millis| {
            let sample = trace.at(Span::from_millis(millis));
            (sample.get(Signal::Rssi), sample.get(Signal::Cqi), sample.get(Signal::Snr))
        };
        assert_eq!(at(0), (Some(-61.0), Some(7.0), None));
        assert_eq!(at(1_499), at(0));
        assert_eq!(at(1_500), (Some(-74.5), None, None));
        assert_eq!(at(1_000_000), (None, None, None));
        assert_eq!(trace.samples().len(), 3);
    }

    #[test]
    fn a_repeated_trace_holds_its_last_line_as_long_as_the_one_before() {
        let rssi = |text: &str, times: &[u64]| -> Vec<_> {
            let trace = SignalTrace::parse(text.as_bytes()).unwrap();
            let at = |millis| trace.repeated_at(Span::from_millis(millis)).get(Signal::Rssi);
            times.iter().map(|millis| at(*millis).unwrap()).collect()
        };
        let times = [0, 999, 1_000, 3_000, 4_999, 5_000, 6_000, 500_000];
        let expected = [-61.0, -61.0, -70.0, -80.0, -80.0, -61.0, -70.0, -61.0];
        assert_eq!(rssi("time,rssi\n5,-61\n6,-70\n8,-80\n", &times), expected);
        assert_eq!(rssi("time,rssi\n5,-61\n", &[0, 1_500]), [-61.0, -61.0]);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let error = |text: &str| SignalTrace::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(""), "the file has no signals");
        assert_eq!(error("time,rssi\n"), "the file has no signals");
        let name = "line 1: `color` is none of time, rssi, rsrp, rsrq, snr and cqi";
        assert_eq!(error("time,color\n"), name);
        assert_eq!(error("0,-61\n"), "line 1: `0` is none of time, rssi, rsrp, rsrq, snr and cqi");
        assert_eq!(error("time,cqi,cqi\n"), "line 1: the column cqi is there twice");
        let columns = "line 1: the first line names the columns: time, and at least one signal";
        assert_eq!((error("time\n"), error("rssi,cqi\n")), (columns.into(), columns.into()));
        assert_eq!(error("time,rssi\n1\n"), "line 2: it has 1 fields instead of 2");
        assert_eq!(error("time,rssi\nx,1\n"), "line 2: `x` is not a possible number of seconds");
        assert_eq!(error("time,rssi\n-1,1\n"), "line 2: `-1` is not a possible number of seconds");
        for value in ["NaN", "inf", "1e9", "low"] {
            let expected = format!("line 2: `{value}` is not a possible value of rssi");
            assert_eq!(error(&format!("time,rssi\n1,{value}\n")), expected);
        }
        let order = "line 3: the time is not later than on the line before";
        assert_eq!(error("time,rssi\n2,1\n2,1\n"), order);
        let bytes = [b"time,rssi\n1,".as_slice(), &[0xff]].concat();
        assert!(SignalTrace::parse(&bytes).is_err());
    }
}
