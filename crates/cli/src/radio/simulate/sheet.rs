//! The runs as a Parquet table.

use std::path::Path;

use anyhow::{Context, Result};
use manyways_capture::write_table;
use manyways_record::table::{Batch, Data, Kind, Schema, Values};

use super::Results;
use super::document::{Run, runs};

/// A column: name, description, and value of a run.
type Column = (&'static str, &'static str, Value);

enum Value {
    Text(fn(&Run) -> &str),
    Count(fn(&Run) -> u64),
    Number(fn(&Run) -> Option<f64>),
}

const COLUMNS: [Column; 21] = [
    ("trace", "Name of the trace.", Value::Text(|run| run.trace.as_deref().unwrap_or(""))),
    ("profile", "The radio.", Value::Text(|run| &run.profile)),
    ("variant", "Swept values of the radio.", Value::Text(|run| &run.variant)),
    ("policy", "The policy with its parameters.", Value::Text(|run| &run.policy)),
    ("energy", "Energy of the radio in joules.", Value::Number(|run| Some(run.joules))),
    (
        "saved",
        "Saved share of the energy under the network's timers.",
        Value::Number(|run| run.saved),
    ),
    (
        "saved_of_tail",
        "Saved share of that energy without transfers.",
        Value::Number(|run| run.saved_of_tail),
    ),
    ("saved_of_oracle", "Share of the oracle's saving.", Value::Number(|run| run.saved_of_oracle)),
    ("switches", "Packets that found the radio released.", Value::Count(|run| run.switches)),
    (
        "switches_by_status_quo",
        "Ratio to the switches under the network's timers.",
        Value::Number(|run| run.switches_by_status_quo),
    ),
    (
        "switches_by_oracle",
        "Ratio to the switches of the oracle.",
        Value::Number(|run| run.switches_by_oracle),
    ),
    (
        "energy_saved_per_switch",
        "Joules saved for each switch.",
        Value::Number(|run| run.joules_saved_per_switch),
    ),
    ("false_switches", "N_FS / (N_FS + N_TN).", Value::Number(|run| run.false_switches)),
    ("missed_switches", "N_MS / (N_MS + N_TP).", Value::Number(|run| run.missed_switches)),
    ("sleeps", "Number of fast dormancies.", Value::Count(|run| run.sleeps)),
    (
        "mean_wait",
        "Mean wait before fast dormancy in seconds.",
        Value::Number(|run| run.mean_wait_seconds),
    ),
    ("sessions", "Delay-tolerant sessions.", Value::Count(|run| run.sessions)),
    ("held", "Delayed sessions.", Value::Count(|run| run.held)),
    (
        "mean_delay",
        "Mean delay of delayed sessions in seconds.",
        Value::Number(|run| run.mean_delay_seconds),
    ),
    (
        "median_delay",
        "Median delay of delayed sessions in seconds.",
        Value::Number(|run| run.median_delay_seconds),
    ),
    (
        "p95_delay",
        "95th percentile of the delay of delayed sessions in seconds.",
        Value::Number(|run| run.p95_delay_seconds),
    ),
];

/// Writes a row for each run.
pub fn write(path: &Path, results: &Results) -> Result<()> {
    let runs = runs(results);
    let columns = COLUMNS.iter().map(|(name, about, value)| {
        let kind = match value {
            Value::Text(_) => Kind::Text,
            Value::Count(_) => Kind::Count,
            Value::Number(_) => Kind::Number,
        };
        (*name, kind, *about)
    });
    let about = "A policy on a radio, over a trace.";
    let schema = Schema { table: "runs", about, columns: columns.collect() };
    let values = COLUMNS.iter().map(|(_, _, value)| match value {
        Value::Text(text) => {
            let (mut all, mut ends) = (String::new(), Vec::new());
            for run in &runs {
                all.push_str(text(run));
                ends.push(all.len());
            }
            Values { present: vec![true; runs.len()], data: Data::Text(all, ends) }
        }
        Value::Count(count) => Values {
            present: vec![true; runs.len()],
            data: Data::Whole(runs.iter().map(|run| count(run) as i64).collect()),
        },
        Value::Number(number) => Values {
            present: runs.iter().map(|run| number(run).is_some()).collect(),
            data: Data::Number(runs.iter().filter_map(number).collect()),
        },
    });
    let batch = Batch::of_columns(values.collect()).context("cannot create the table of runs")?;
    write_table(path, &schema, "manyways-radio/1", &batch)
        .with_context(|| format!("cannot write {}", path.display()))
}
