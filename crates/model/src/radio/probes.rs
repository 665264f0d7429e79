//! Round trips after silences, and samples of power, as lines of text.

use manyways_unit::Time;
use manyways_unit::human::quoted;

use super::csv::{CsvError, MAX_LINE, split, time, wrong};
use super::infer::Probe;

/// The longest round trip, in seconds: who waits for so long has given up.
const LONGEST: f64 = 60.0;
/// The most that a monitor sees, in watts.
const MOST: f64 = 1e4;

/// Reads probes line by line.
///
/// The first line names the columns, in any order, and others may stand between them.
///
/// | Column | Value |
/// |---|---|
/// | `idle` or `interval` | seconds of silence before |
/// | `round_trip` (seconds), or `rtt_ms`, `RTT2` or `RTT` (milliseconds) | the round trip behind it; none or 0 where nothing came back |
/// | `KeepOrDrop` | if there: only rows with `YEP` count |
///
/// Those with `interval`, `RTT2` and `KeepOrDrop` are the recordings of Narayanan et al., SIGCOMM 2021.
#[derive(Clone, Debug)]
pub struct Probes {
    line: u64,
    count: usize,
    idle: usize,
    round_trip: usize,
    /// Seconds in a unit of the round trip.
    unit: f64,
    keep: Option<usize>,
}

/// Reads samples of a power monitor line by line: `time`, and `watts` (or `power_w`), or `milliwatts`
/// (or `power_mw`). The time is that of the middle of a sample.
#[derive(Clone, Debug)]
pub struct Samples {
    line: u64,
    count: usize,
    time: usize,
    power: usize,
    unit: f64,
}

fn names(header: &str) -> Result<Vec<String>, CsvError> {
    let header = header.strip_prefix('\u{feff}').unwrap_or(header);
    let fields = split(header).map_err(|sentence| wrong(1, sentence))?;
    Ok(fields.iter().map(|name| name.trim().to_lowercase()).collect())
}

/// The first of these columns that is there, and what goes with it.
fn find<T: Copy>(
    names: &[String],
    wanted: &[(&str, T)],
    hint: &str,
) -> Result<(usize, T), CsvError> {
    let place = |(name, with): &(&str, T)| {
        names.iter().position(|one| one == name).map(|place| (place, *with))
    };
    wanted.iter().find_map(place).ok_or_else(|| CsvError {
        hint: Some(hint.to_owned()),
        ..wrong(1, format!("there is no column `{}`", wanted[0].0))
    })
}

fn fields(text: &str, line: u64, count: usize) -> Result<Option<Vec<String>>, CsvError> {
    if text.len() <= MAX_LINE && text.trim().is_empty() {
        return Ok(None);
    }
    let fields = split(text).map_err(|sentence| wrong(line, sentence))?;
    if fields.len() != count {
        return Err(wrong(line, format!("{} values for {count} columns", fields.len())));
    }
    Ok(Some(fields))
}

fn number(text: &str, line: u64) -> Result<f64, CsvError> {
    let text = text.trim();
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| wrong(line, format!("`{}` is not a number", quoted(text))))
}

impl Probes {
    /// Reads the line with the names of the columns.
    ///
    /// # Errors
    /// Where one that is needed is missing.
    pub fn new(header: &str) -> Result<Self, CsvError> {
        const HINT: &str = "the first line is idle,round_trip, both in seconds";
        const TRIPS: [(&str, f64); 4] =
            [("round_trip", 1.0), ("rtt_ms", 1e-3), ("rtt2", 1e-3), ("rtt", 1e-3)];
        let names = names(header)?;
        let (idle, ()) = find(&names, &[("idle", ()), ("interval", ())], HINT)?;
        let (round_trip, unit) = find(&names, &TRIPS, HINT)?;
        let keep = names.iter().position(|name| name == "keepordrop");
        Ok(Self { line: 1, count: names.len(), idle, round_trip, unit, keep })
    }

    /// Reads the next line; nothing where it is blank, dropped, or nothing came back.
    ///
    /// # Errors
    /// What is wrong with it.
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
        let idle = number(&fields[self.idle], self.line)?;
        let round_trip = number(round_trip, self.line)? * self.unit;
        if round_trip > LONGEST {
            return Err(CsvError {
                hint: Some("milliseconds stand in a column rtt_ms".to_owned()),
                ..wrong(self.line, format!("a round trip of {round_trip} s is none"))
            });
        }
        if idle < 0.0 {
            return Err(wrong(self.line, format!("a silence of {idle} s is none")));
        }
        Ok((round_trip > 0.0).then_some(Probe { idle, round_trip }))
    }
}

impl Samples {
    /// Reads the line with the names of the columns.
    ///
    /// # Errors
    /// Where one that is needed is missing.
    pub fn new(header: &str) -> Result<Self, CsvError> {
        const HINT: &str = "the first line is time,watts";
        const POWERS: [(&str, f64); 4] =
            [("watts", 1.0), ("power_w", 1.0), ("milliwatts", 1e-3), ("power_mw", 1e-3)];
        let names = names(header)?;
        let (time, ()) = find(&names, &[("time", ())], HINT)?;
        let (power, unit) = find(&names, &POWERS, HINT)?;
        Ok(Self { line: 1, count: names.len(), time, power, unit })
    }

    /// Reads the next line, with its power in watts; nothing where it is blank.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn line(&mut self, text: &str) -> Result<Option<(Time, f64)>, CsvError> {
        self.line += 1;
        let Some(fields) = fields(text, self.line, self.count)? else { return Ok(None) };
        let at = fields[self.time].trim();
        let at = time(at).ok_or_else(|| CsvError {
            hint: Some("write seconds, like 12.345678, or 2026-01-31T12:00:00.5Z".to_owned()),
            ..wrong(self.line, format!("`{}` is not a time", quoted(at)))
        })?;
        let watts = number(&fields[self.power], self.line)? * self.unit;
        match watts.abs() <= MOST {
            true => Ok(Some((at, watts))),
            false => Err(wrong(self.line, format!("{watts} W are no power of a device"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_either_kind_read() {
        let mut own = Probes::new("idle,round_trip,note").unwrap();
        let probe = own.line("2.5,0.31,x").unwrap().unwrap();
        assert_eq!((probe.idle, probe.round_trip), (2.5, 0.31));
        assert_eq!(own.line("2.5,,lost"), Ok(None));
        assert_eq!(own.line(""), Ok(None));
        let mut theirs = Probes::new(
            "enabled_radio_type,carrier,interval,RTT1,RTT2,active_radio_type,KeepOrDrop",
        )
        .unwrap();
        let probe = theirs.line("4G-LTE,Verizon,0.1,88,89,4,YEP").unwrap().unwrap();
        assert_eq!((probe.idle, probe.round_trip), (0.1, 0.089));
        assert_eq!(theirs.line("4G-LTE,Verizon,0.1,88,89,4,NOPE"), Ok(None));
        assert_eq!(theirs.line("4G-LTE,Verizon,0.1,88,0,4,YEP"), Ok(None));
    }

    #[test]
    fn samples_read() {
        let mut watts = Samples::new("time,watts").unwrap();
        assert_eq!(watts.line("1.5,0.916"), Ok(Some((Time::from_millis(1_500), 0.916))));
        let mut milli = Samples::new("power_mw,time").unwrap();
        assert_eq!(milli.line("916,1.5"), Ok(Some((Time::from_millis(1_500), 0.916))));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let fault = |error: CsvError| error.to_string();
        assert_eq!(fault(Probes::new("a,b").unwrap_err()), "line 1: there is no column `idle`");
        let mut probes = Probes::new("idle,rtt_ms").unwrap();
        assert_eq!(fault(probes.line("1").unwrap_err()), "line 2: 1 values for 2 columns");
        assert_eq!(fault(probes.line("x,1").unwrap_err()), "line 3: `x` is not a number");
        assert_eq!(fault(probes.line("1,NaN").unwrap_err()), "line 4: `NaN` is not a number");
        assert_eq!(fault(probes.line("-1,1").unwrap_err()), "line 5: a silence of -1 s is none");
        assert_eq!(fault(Samples::new("time").unwrap_err()), "line 1: there is no column `watts`");
        let error = probes.line("1,90000").unwrap_err();
        assert_eq!(fault(error), "line 6: a round trip of 90 s is none");
        let mut samples = Samples::new("time,watts").unwrap();
        assert!(samples.line("1,1e300").is_err());
        let mut samples = Samples::new("time,watts").unwrap();
        assert_eq!(fault(samples.line("a,1").unwrap_err()), "line 2: `a` is not a time");
        assert!(samples.line(&"x".repeat(5_000)).is_err());
    }
}
