//! Logs of a phone that downloads a file again and again over a production network: rate and signals
//! in each second.
//!
//! Source: Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, The Next Generation: a 5G Dataset with
//! Channel and Context Metrics", MMSys 2020 (G-NetTrack Pro). Its `Download` folder has 21 logs. The
//! rates are what the phone received; they are low for a second or two between two files too.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_model::select::Indicator;
use manyways_unit::Rate;

/// Default archive, relative to the repository.
const ARCHIVE: &str = "../shared/traces/signal/5G-production-dataset.zip";
/// The columns with signals.
const SIGNALS: [(&str, Indicator); 4] = [
    ("RSRP", Indicator::Rsrp),
    ("RSRQ", Indicator::Rsrq),
    ("SNR", Indicator::Snr),
    ("CQI", Indicator::Cqi),
];
/// Seconds of a day; a log may pass midnight.
const DAY: u64 = 86_400;

/// A log.
#[derive(Clone, Debug)]
pub struct SignalLog {
    pub name: String,
    pub seconds: Vec<Second>,
}

/// A second of a log.
#[derive(Clone, Debug)]
pub struct Second {
    pub down: Rate,
    /// dBm (RSRP), dB (RSRQ, SNR) and a number (CQI); without those that the modem did not report.
    pub signals: Vec<(Indicator, f64)>,
}

impl SignalLog {
    /// Reads the logs of the archive, sorted by name; none with a line on stderr if the default
    /// archive does not exist.
    ///
    /// # Errors
    /// One sentence, if the archive cannot be read.
    pub fn find(named: Option<&Path>) -> Result<Vec<Self>, String> {
        let variable = std::env::var_os("MANYWAYS_SIGNALS").map(PathBuf::from);
        let named = named.map(Path::to_owned).or(variable);
        let archive = named.as_deref().unwrap_or(Path::new(ARCHIVE));
        if named.is_none() && !archive.exists() {
            eprintln!("skipped: (set b): there is no {ARCHIVE}");
            return Ok(Vec::new());
        }
        let list = unzip(&["-Z1"], archive, &[])?;
        let is_log = |name: &&str| {
            name.contains("/Download/") && name.ends_with(".csv") && !name.starts_with("__MACOSX")
        };
        let mut files: Vec<&str> = list.lines().filter(is_log).collect();
        files.sort_unstable();
        let read = |file: &&str| {
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".csv");
            Self::parse(stem, &unzip(&["-p"], archive, &[file])?)
        };
        files.iter().map(read).collect()
    }

    /// Reads a log. Of several rows with the same second the last one counts; a second without a
    /// row is like the one before it.
    ///
    /// # Errors
    /// One sentence, if a column is missing or a row has no time or rate.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let column = |title: &str| {
            let found = columns.iter().position(|column| *column == title);
            found.ok_or_else(|| format!("{name}: there is no column {title}"))
        };
        let (time, rate) = (column("Timestamp")?, column("DL_bitrate")?);
        let mut places = Vec::new();
        for (title, indicator) in SIGNALS {
            places.push((column(title)?, indicator));
        }

        let (mut start, mut seconds) = (None, Vec::<Second>::new());
        for (index, line) in lines.enumerate() {
            let wrong = || format!("{name}: line {}: no time or rate", index + 2);
            let fields: Vec<&str> = line.split(',').collect();
            let field = |at: usize| fields.get(at).copied().unwrap_or_default();
            let clock = second_of_day(field(time)).ok_or_else(wrong)?;
            let kbit: f64 = field(rate).parse().map_err(|_| wrong())?;
            let at = ((clock + DAY - *start.get_or_insert(clock)) % DAY) as usize;
            let known = places.iter().filter_map(|(at, indicator)| {
                let value: f64 = field(*at).parse().ok()?;
                value.is_finite().then_some((*indicator, value))
            });
            let down = Rate::from_bps((kbit * 1e3) as u64);
            let second = Second { down, signals: known.collect() };
            seconds.truncate(at);
            let last = seconds.last().unwrap_or(&second).clone();
            seconds.resize(at, last);
            seconds.push(second);
        }
        if seconds.is_empty() {
            return Err(format!("{name}: no rows"));
        }
        Ok(Self { name: name.to_owned(), seconds })
    }
}

/// Seconds since midnight of `YYYY.MM.DD_hh.mm.ss`.
fn second_of_day(text: &str) -> Option<u64> {
    let clock = text.split_once('_')?.1;
    let parts: Vec<u64> = clock.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts[..] else { return None };
    Some((hours * 60 + minutes) * 60 + seconds)
}

/// Output of `unzip` (Info-ZIP).
fn unzip(options: &[&str], archive: &Path, files: &[&str]) -> Result<String, String> {
    let shown = archive.display();
    let output = Command::new("unzip").args(options).arg(archive).args(files).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("unzip is needed to read {shown} (Debian: apt install unzip)")
        }
        _ => format!("unzip: {error}"),
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{shown} cannot be read: {why}"));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{shown}: a log is not text"))
}
