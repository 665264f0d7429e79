//! Comparisons of networks over time, in a Parquet file.

use std::io;
use std::path::{Path, PathBuf};

use manyways_capture::{TablesError, read_table};
use manyways_record::columns;
use manyways_record::table::{Batch, Column, Row, Schema, Value};
use manyways_unit::{Rate, Span, Time};

use super::compare::{CompareReport, ComparedNetwork, PURPOSES};
use super::report::Report;

/// Length of a text in bytes, at most. Longer ones are not from this program.
const MAX_TEXT: usize = 1 << 12;

/// The measurements of a network in one comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct SeriesRow {
    /// Number of the comparison, from 1 on.
    pub round: u64,
    /// Of the measurements of this network.
    pub started: Time,
    pub interface: String,
    pub kind: String,
    pub round_trip: Option<Span>,
    pub jitter: Option<Span>,
    pub loss: Option<f64>,
    pub down: Option<Rate>,
    pub up: Option<Rate>,
    /// Download while the other networks downloaded too.
    pub together: Option<Rate>,
    /// Standard deviation of the rate of the download, as a share of it.
    pub deviation: Option<f64>,
    /// For each of [`PURPOSES`], whether this network is the best one; `None` if that is unsure.
    pub is_best: [Option<bool>; PURPOSES.len()],
    /// Bytes of both directions.
    pub used: u64,
    /// Reason of an early end.
    pub message: Option<String>,
}

impl Row for SeriesRow {
    const TABLE: &'static str = "comparisons";
    const SCHEMA: &'static str = "manyways-comparison/1";
    const ABOUT: &'static str = "The measurements of a network in one comparison.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "round" Count "Number of the comparison, from 1 on." |row| row.round;
        "started" Time "Start of the measurements of this network." |row| row.started;
        "interface" Text "Interface of the network." |row| row.interface.as_str();
        "kind" Text "Kind of network, for example `wifi`." |row| row.kind.as_str();
        "round_trip" Span "Median round trip." |row| row.round_trip;
        "jitter" Span "Mean difference of consecutive round trips." |row| row.jitter;
        "loss" Number "Lost share of the round trips." |row| row.loss;
        "down" Count "Throughput down, in bits a second." |row| row.down.map(Rate::as_bps);
        "up" Count "Throughput up, in bits a second." |row| row.up.map(Rate::as_bps);
        "together" Count "Throughput down beside the other networks, in bits a second."
            |row| row.together.map(Rate::as_bps);
        "deviation" Number "Relative standard deviation of the rate down." |row| row.deviation;
        "best_10kb" Flag "Whether this network is the best one for 10 KB; absent if unsure."
            |row| row.is_best[0];
        "best_1mb" Flag "Whether this network is the best one for 1 MB; absent if unsure."
            |row| row.is_best[1];
        "best_10mb" Flag "Whether this network is the best one for 10 MB; absent if unsure."
            |row| row.is_best[2];
        "best_call" Flag "Whether this network is the best one for a call; absent if unsure."
            |row| row.is_best[3];
        "used" Count "Bytes of both directions." |row| row.used;
        "message" Text "Reason of an early end." |row| row.message.as_deref();
    };
}

impl SeriesRow {
    /// From the values of the columns in their order; `None` if one of the first is missing.
    fn of(values: &[Value<'_>]) -> Option<Self> {
        let mut values = values.iter();
        let mut next = || values.next().unwrap_or(&Value::Absent);
        let count = |value: &Value<'_>| match value {
            Value::Count(count) => Some(*count),
            _ => None,
        };
        let number = |value: &Value<'_>| match value {
            Value::Number(number) => Some(*number),
            Value::Span(span) => Some(span.as_secs_f64()),
            _ => None,
        };
        let span = |value: &Value<'_>| {
            number(value).filter(|seconds| *seconds >= 0.0).map(Span::from_secs_f64)
        };
        let text = |value: &Value<'_>| match value {
            Value::Text(text) if text.len() <= MAX_TEXT => Some(text.clone().into_owned()),
            _ => None,
        };
        let flag = |value: &Value<'_>| match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        };
        let rate = |value: &Value<'_>| count(value).map(Rate::from_bps);
        Some(Self {
            round: count(next())?,
            started: match next() {
                Value::Time(time) => *time,
                _ => return None,
            },
            interface: text(next())?,
            kind: text(next()).unwrap_or_default(),
            round_trip: span(next()),
            jitter: span(next()),
            loss: number(next()),
            down: rate(next()),
            up: rate(next()),
            together: rate(next()),
            deviation: number(next()),
            is_best: std::array::from_fn(|_| flag(next())),
            used: count(next()).unwrap_or_default(),
            message: text(next()),
        })
    }

    fn new(round: u64, network: &ComparedNetwork) -> Self {
        Self {
            round,
            started: Time::ZERO + network.ping.started,
            interface: network.ping.context.interface.clone(),
            kind: network.ping.context.kind.to_owned(),
            round_trip: network.round_trip(),
            jitter: network.jitter(),
            loss: network.loss(),
            down: ComparedNetwork::rate(network.down.as_ref()),
            up: ComparedNetwork::rate(network.up.as_ref()),
            together: ComparedNetwork::rate(network.together.as_ref()),
            deviation: network.measurement().and_then(|one| one.deviation),
            is_best: [None; PURPOSES.len()],
            used: network.used().as_bytes(),
            message: network.reports().find_map(|report: &Report| report.ending.message()),
        }
    }
}

/// A file of comparisons, complete after each one.
#[derive(Debug)]
pub struct Series {
    path: PathBuf,
    rows: Vec<SeriesRow>,
}

impl Series {
    /// Rows of a file, at most.
    const MAX_ROWS: usize = 1_000_000;

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or does not contain comparisons.
    pub fn read(path: &Path) -> Result<Self, TablesError> {
        let mut rows = Vec::new();
        read_table(path, &Schema::of::<SeriesRow>(), |batch, kinds| {
            let room = Self::MAX_ROWS - rows.len();
            rows.extend(batch.iter(kinds).filter_map(|row| SeriesRow::of(&row)).take(room));
        })?;
        Ok(Self { path: path.to_owned(), rows })
    }

    /// Continues a file, or begins a new one.
    ///
    /// # Errors
    /// It exists, and cannot be read or does not contain comparisons.
    pub fn open(path: &Path) -> Result<Self, TablesError> {
        match path.exists() {
            true => Self::read(path),
            false => Ok(Self { path: path.to_owned(), rows: Vec::new() }),
        }
    }

    pub fn rows(&self) -> &[SeriesRow] {
        &self.rows
    }

    /// Adds a comparison, and writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, report: &CompareReport) -> io::Result<()> {
        let round = self.rows.last().map_or(0, |row| row.round) + 1;
        let first = self.rows.len();
        self.rows.extend(report.networks.iter().map(|network| SeriesRow::new(round, network)));
        for (place, (_, purpose)) in PURPOSES.iter().enumerate() {
            let (indices, comparison) = report.compare(*purpose);
            let Some(winner) = comparison.winner else { continue };
            for (number, index) in indices.iter().enumerate() {
                if let Some(row) = self.rows.get_mut(first + index) {
                    row.is_best[place] = Some(number == winner);
                }
            }
        }
        let mut batch = Batch::of::<SeriesRow>();
        self.rows.iter().for_each(|row| batch.push(row, None));
        manyways_capture::write_table(&self.path, &Schema::of::<SeriesRow>(), &batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u64) -> SeriesRow {
        SeriesRow {
            round,
            started: Time::from_millis(1_700_000_000_123),
            interface: "wlan0".to_owned(),
            kind: "wifi".to_owned(),
            round_trip: Some(Span::from_millis(28)),
            jitter: None,
            loss: Some(0.1),
            down: Some(Rate::from_mbps(20)),
            up: None,
            together: Some(Rate::from_mbps(11)),
            deviation: Some(0.05),
            is_best: [Some(true), Some(false), None, None],
            used: 2_100_000,
            message: (round == 2).then(|| "wlan0 is gone or down".to_owned()),
        }
    }

    #[test]
    fn a_series_is_read_as_it_was_written_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.parquet");
        assert!(Series::open(&path).unwrap().rows().is_empty());
        let mut batch = Batch::of::<SeriesRow>();
        let rows = [row(1), row(2)];
        rows.iter().for_each(|row| batch.push(row, None));
        manyways_capture::write_table(&path, &Schema::of::<SeriesRow>(), &batch).unwrap();
        let series = Series::open(&path).unwrap();
        assert_eq!(series.rows(), rows);
        let other = folder.path().join("probes.parquet");
        super::super::row::write_table(&other, &[]).unwrap();
        for refused in [&other, &folder.path().join("none.parquet")] {
            assert!(Series::read(refused).is_err(), "{}", refused.display());
        }
        std::fs::write(&other, "PAR1 and more").unwrap();
        assert!(Series::open(&other).is_err());
        // A text that no program of this family writes.
        let mut batch = Batch::of::<SeriesRow>();
        let long = SeriesRow { interface: "w".repeat(MAX_TEXT + 1), ..row(2) };
        [row(1), long].iter().for_each(|row| batch.push(row, None));
        manyways_capture::write_table(&other, &Schema::of::<SeriesRow>(), &batch).unwrap();
        assert_eq!(Series::open(&other).unwrap().rows(), [row(1)]);
        // A file that was cut off.
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 4, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&other, &bytes[..length]).unwrap();
            assert!(Series::open(&other).is_err(), "{length}");
        }
    }
}
