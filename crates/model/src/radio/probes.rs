//! CSV readers for round trips after gaps, and for samples of power.

use manyways_unit::Time;
use manyways_unit::human::quoted;

use super::csv::{CsvError, MAX_LINE, column_index, line_error, names, split, time};
use super::infer::Probe;

/// In seconds; longer round trips are invalid.
const MAX_ROUND_TRIP: f64 = 60.0;
/// In seconds.
const MAX_SILENCE: f64 = 86_400.0;
/// In watts.
const MAX_POWER: f64 = 1e4;

/// Reads probes line by line.
///
/// The first line names the columns, in any order. Other columns are ignored.
///
/// | Column | Value |
/// |---|---|
/// | `idle` or `interval` | gap before the probe in seconds |
/// | `round_trip` (seconds), or `rtt_ms`, `RTT2` or `RTT` (milliseconds) | round trip after the gap; empty or 0 if there was no answer |
/// | `KeepOrDrop` | if present: only rows with `YEP` are read |
///
/// Files with `interval`, `RTT2` and `KeepOrDrop` are the recordings of Narayanan et al., SIGCOMM
/// 2021.
#[derive(Clone, Debug)]
pub struct ProbeReader {
    line: u64,
    count: usize,
    gap: usize,
    round_trip: usize,
    /// Seconds per unit of the round-trip column.
    unit: f64,
    keep: Option<usize>,
}

/// Reads samples of a power monitor line by line: `time`, and `watts` (or `power_w`), or
/// `milliwatts` (or `power_mw`). The time is the middle of a sample; times ascend.
#[derive(Clone, Debug)]
pub struct PowerSampleReader {
    line: u64,
    count: usize,
    time: usize,
    power: usize,
    unit: f64,
    last: Option<Time>,
}

/// The first of these columns that exists, with its value.
fn find_column<T: Copy>(
    names: &[String],
    wanted: &[(&str, T)],
    hint: &str,
) -> Result<(usize, T), CsvError> {
    for (name, with) in wanted {
        if let Some(index) = column_index(names, &[name])? {
            return Ok((index, *with));
        }
    }
    Err(CsvError {
        hint: Some(hint.to_owned()),
        ..line_error(1, format!("there is no column `{}`", wanted[0].0))
    })
}

fn fields(text: &str, line: u64, count: usize) -> Result<Option<Vec<String>>, CsvError> {
    if text.len() <= MAX_LINE && text.trim().is_empty() {
        return Ok(None);
    }
    let fields = split(text).map_err(|message| line_error(line, message))?;
    if fields.len() != count {
        return Err(line_error(line, format!("{} values for {count} columns", fields.len())));
    }
    Ok(Some(fields))
}

fn number(text: &str, line: u64) -> Result<f64, CsvError> {
    let text = text.trim();
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| line_error(line, format!("`{}` is not a number", quoted(text))))
}

impl ProbeReader {
    /// Reads the header line.
    ///
    /// # Errors
    /// Fails if a required column is missing or a column is ambiguous.
    pub fn new(header: &str) -> Result<Self, CsvError> {
        const HINT: &str = "the first line is idle,round_trip, both in seconds";
        const TRIPS: [(&str, f64); 4] =
            [("round_trip", 1.0), ("rtt_ms", 1e-3), ("rtt2", 1e-3), ("rtt", 1e-3)];
        let names = names(header)?;
        let (idle, ()) = find_column(&names, &[("idle", ()), ("interval", ())], HINT)?;
        let (round_trip, unit) = find_column(&names, &TRIPS, HINT)?;
        let keep = column_index(&names, &["keepordrop"])?;
        Ok(Self { line: 1, count: names.len(), gap: idle, round_trip, unit, keep })
    }

    /// Reads the next line. Returns `None` if the line is blank or dropped, or if there was no
    /// answer.
    ///
    /// # Errors
    /// Fails if a value is missing or malformed.
    pub fn line(&mut self, text: &str) -> Result<Option<Probe>, CsvError> {
        self.line += 1;
        let Some(fields) = fields(text, self.line, self.count)? else { return Ok(None) };
        if self.keep.is_some_and(|keep| fields[keep].trim() != "YEP") {
            return Ok(None);
        }
        let round_trip = fields[self.round_trip].trim();
        if round_trip.is_empty() {
            return Ok(None);
        }
        let idle_text = fields[self.gap].trim();
        let idle = number(idle_text, self.line)?;
        let trip_text = round_trip;
        let round_trip = number(round_trip, self.line)? * self.unit;
        if round_trip > MAX_ROUND_TRIP {
            let unit = if self.unit < 1.0 { "ms" } else { "s" };
            let max = (MAX_ROUND_TRIP / self.unit).round();
            let message =
                format!("`{}` is above the maximum round trip, {max} {unit}", quoted(trip_text));
            let hint =
                (self.unit == 1.0).then(|| "for milliseconds, name the column rtt_ms".to_owned());
            return Err(CsvError { hint, ..line_error(self.line, message) });
        }
        if !(0.0..=MAX_SILENCE).contains(&idle) {
            let message = format!("`{}` is not a gap of 0 to {MAX_SILENCE} s", quoted(idle_text));
            return Err(line_error(self.line, message));
        }
        Ok((round_trip > 0.0).then_some(Probe { gap: idle, round_trip }))
    }
}

impl PowerSampleReader {
    /// Reads the header line.
    ///
    /// # Errors
    /// Fails if a required column is missing or a column is ambiguous.
    pub fn new(header: &str) -> Result<Self, CsvError> {
        const HINT: &str = "the first line is time,watts";
        const POWERS: [(&str, f64); 4] =
            [("watts", 1.0), ("power_w", 1.0), ("milliwatts", 1e-3), ("power_mw", 1e-3)];
        let names = names(header)?;
        let (time, ()) = find_column(&names, &[("time", ())], HINT)?;
        let (power, unit) = find_column(&names, &POWERS, HINT)?;
        Ok(Self { line: 1, count: names.len(), time, power, unit, last: None })
    }

    /// Reads the next line: time and watts, or `None` if the line is blank.
    ///
    /// # Errors
    /// Fails if a value is missing, malformed or out of order.
    pub fn line(&mut self, text: &str) -> Result<Option<(Time, f64)>, CsvError> {
        self.line += 1;
        let Some(fields) = fields(text, self.line, self.count)? else { return Ok(None) };
        let at = fields[self.time].trim();
        let at = time(at).ok_or_else(|| CsvError {
            hint: Some("write seconds, like 12.345678, or 2026-01-31T12:00:00.5Z".to_owned()),
            ..line_error(self.line, format!("`{}` is not a time", quoted(at)))
        })?;
        if self.last.is_some_and(|last| at < last) {
            return Err(CsvError {
                hint: Some("sort the lines by time".to_owned()),
                ..line_error(self.line, "the time is earlier than in the line before".to_owned())
            });
        }
        self.last = Some(at);
        let text = fields[self.power].trim();
        let watts = number(text, self.line)? * self.unit;
        if watts.abs() > MAX_POWER {
            let message = format!("`{}` is more than {MAX_POWER} W", quoted(text));
            return Err(CsvError {
                hint: Some("for milliwatts, name the column milliwatts".to_owned()),
                ..line_error(self.line, message)
            });
        }
        Ok(Some((at, watts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_either_kind_read() {
        let mut own = ProbeReader::new("idle,round_trip,note").unwrap();
        let probe = own.line("2.5,0.31,x").unwrap().unwrap();
        assert_eq!((probe.gap, probe.round_trip), (2.5, 0.31));
        assert_eq!(own.line("2.5,,lost"), Ok(None));
        assert_eq!(own.line(""), Ok(None));
        let mut theirs = ProbeReader::new(
            "enabled_radio_type,carrier,interval,RTT1,RTT2,active_radio_type,KeepOrDrop",
        )
        .unwrap();
        let probe = theirs.line("4G-LTE,Verizon,0.1,88,89,4,YEP").unwrap().unwrap();
        assert_eq!((probe.gap, probe.round_trip), (0.1, 0.089));
        assert_eq!(theirs.line("4G-LTE,Verizon,0.1,88,89,4,NOPE"), Ok(None));
        assert_eq!(theirs.line("4G-LTE,Verizon,0.1,88,0,4,YEP"), Ok(None));
    }

    #[test]
    fn samples_read() {
        let mut watts = PowerSampleReader::new("time,watts").unwrap();
        assert_eq!(watts.line("1.5,0.916"), Ok(Some((Time::from_millis(1_500), 0.916))));
        let mut milli = PowerSampleReader::new("power_mw,time").unwrap();
        assert_eq!(milli.line("916,1.5"), Ok(Some((Time::from_millis(1_500), 0.916))));
    }

    #[test]
    fn errors_name_their_line() {
        let fault = |error: CsvError| error.to_string();
        assert_eq!(
            fault(ProbeReader::new("a,b").unwrap_err()),
            "line 1: there is no column `idle`"
        );
        let mut probes = ProbeReader::new("idle,rtt_ms").unwrap();
        assert_eq!(fault(probes.line("1").unwrap_err()), "line 2: 1 values for 2 columns");
        assert_eq!(fault(probes.line("x,1").unwrap_err()), "line 3: `x` is not a number");
        assert_eq!(fault(probes.line("1,NaN").unwrap_err()), "line 4: `NaN` is not a number");
        assert_eq!(
            fault(probes.line("-1,1").unwrap_err()),
            "line 5: `-1` is not a gap of 0 to 86400 s"
        );
        assert_eq!(
            fault(PowerSampleReader::new("time").unwrap_err()),
            "line 1: there is no column `watts`"
        );
        let error = probes.line("1,90000").unwrap_err();
        assert_eq!(fault(error), "line 6: `90000` is above the maximum round trip, 60000 ms");
        for far in ["1,1e308", "1e308,1"] {
            let message = fault(probes.line(far).unwrap_err());
            assert!(message.contains("`1e308`") && message.len() < 80, "{message}");
        }
        let mut seconds = ProbeReader::new("idle,round_trip").unwrap();
        let error = seconds.line("1,310").unwrap_err();
        assert!(error.message.ends_with("60 s") && error.hint.is_some(), "{error:?}");
        let mut samples = PowerSampleReader::new("time,watts").unwrap();
        let message = fault(samples.line("1,1e300").unwrap_err());
        assert_eq!(message, "line 2: `1e300` is more than 10000 W");
        samples.line("1,2").unwrap();
        let message = fault(samples.line("0.5,2").unwrap_err());
        assert_eq!(message, "line 4: the time is earlier than in the line before");
        for twice in ["time,watts,time", "time,watts,watts"] {
            let message = fault(PowerSampleReader::new(twice).unwrap_err());
            assert!(message.contains("occurs twice"), "{message}");
        }
        assert!(ProbeReader::new("idle,round_trip,Idle").is_err());
        let mut samples = PowerSampleReader::new("time,watts").unwrap();
        assert_eq!(fault(samples.line("a,1").unwrap_err()), "line 2: `a` is not a time");
        assert!(samples.line(&"x".repeat(5_000)).is_err());
    }
}
