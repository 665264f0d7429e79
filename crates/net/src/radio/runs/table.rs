//! The runs as a Parquet table.

use std::path::{Path, PathBuf};

use manyways_record::table::{Batch, Data, Kind, Schema, Values};

use super::Results;
use super::document::runs;

/// A column: name, field of [`Run`](super::Run), kind, and description.
type Column = (&'static str, &'static str, Kind, &'static str);

const COLUMNS: [Column; 21] = [
    ("trace", "trace", Kind::Text, "Name of the trace."),
    ("profile", "profile", Kind::Text, "The radio."),
    ("variant", "variant", Kind::Text, "Swept values of the radio."),
    ("policy", "policy", Kind::Text, "The policy with its parameters."),
    ("energy", "joules", Kind::Number, "Energy of the radio in joules."),
    ("saved", "saved", Kind::Number, "Saved share of the energy under the network's timers."),
    (
        "saved_of_tail",
        "saved_of_tail",
        Kind::Number,
        "Saved share of that energy without transfers.",
    ),
    ("saved_of_oracle", "saved_of_oracle", Kind::Number, "Share of the oracle's saving."),
    ("switches", "switches", Kind::Count, "Packets that found the radio released."),
    (
        "switches_by_status_quo",
        "switches_by_status_quo",
        Kind::Number,
        "Ratio to the switches under the network's timers.",
    ),
    (
        "switches_by_oracle",
        "switches_by_oracle",
        Kind::Number,
        "Ratio to the switches of the oracle.",
    ),
    (
        "energy_saved_per_switch",
        "joules_saved_per_switch",
        Kind::Number,
        "Joules saved for each switch.",
    ),
    ("false_switches", "false_switches", Kind::Number, "N_FS / (N_FS + N_TN)."),
    ("missed_switches", "missed_switches", Kind::Number, "N_MS / (N_MS + N_TP)."),
    ("sleeps", "sleeps", Kind::Count, "Number of fast dormancies."),
    ("mean_wait", "mean_wait_seconds", Kind::Number, "Mean wait before fast dormancy in seconds."),
    ("sessions", "sessions", Kind::Count, "Delay-tolerant sessions."),
    ("held", "held", Kind::Count, "Delayed sessions."),
    (
        "mean_delay",
        "mean_delay_seconds",
        Kind::Number,
        "Mean delay of delayed sessions in seconds.",
    ),
    (
        "median_delay",
        "median_delay_seconds",
        Kind::Number,
        "Median delay of delayed sessions in seconds.",
    ),
    (
        "p95_delay",
        "p95_delay_seconds",
        Kind::Number,
        "95th percentile of the delay of delayed sessions in seconds.",
    ),
];

/// The table could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {_1}", _0.display())]
pub struct TableError(PathBuf, String);

/// Writes a Parquet table with a row for each run.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_table(path: &Path, results: &Results) -> Result<(), TableError> {
    let wrong = |why: &dyn std::fmt::Display| TableError(path.to_owned(), why.to_string());
    let rows = runs(results).iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let rows = rows.map_err(|error| wrong(&error))?;
    let columns = COLUMNS.map(|(name, _, kind, about)| (name, kind, about)).to_vec();
    let schema = Schema { table: "runs", about: "A policy on a radio, over a trace.", columns };
    let values = COLUMNS.iter().map(|(_, field, kind, _)| {
        let cells = rows.iter().map(|row| &row[*field]);
        let present = cells.clone().map(|cell| *kind == Kind::Text || !cell.is_null()).collect();
        let data = match kind {
            Kind::Text => {
                let (mut all, mut ends) = (String::new(), Vec::new());
                for cell in cells {
                    all.push_str(cell.as_str().unwrap_or_default());
                    ends.push(all.len());
                }
                Data::Text(all, ends)
            }
            Kind::Count => Data::Integer(cells.filter_map(serde_json::Value::as_i64).collect()),
            _ => Data::Number(cells.filter_map(serde_json::Value::as_f64).collect()),
        };
        Values { present, data }
    });
    let batch = Batch::of_columns(values.collect());
    let batch = batch.ok_or_else(|| wrong(&"its columns differ in length"))?;
    manyways_capture::write_table(path, &schema, "manyways-radio/1", &batch)
        .map_err(|error| wrong(&error))
}
