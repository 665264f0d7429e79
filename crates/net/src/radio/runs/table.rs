//! The runs as a Parquet table.

use std::path::{Path, PathBuf};

use manyways_record::columns;
use manyways_record::table::{Batch, Column, Row, Schema};

use super::Results;
use super::document::{Run, runs};

impl Row for Run {
    const TABLE: &'static str = "runs";
    const SCHEMA: &'static str = "manyways-radio/1";
    const ABOUT: &'static str = "A policy on a radio, over a trace.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "trace" Text "Name of the trace." |run| run.trace.as_deref();
        "profile" Text "The radio." |run| run.profile.as_str();
        "variant" Text "Swept values of the radio." |run| run.variant.as_str();
        "policy" Text "The policy with its parameters." |run| run.policy.as_str();
        "energy" Number "Energy of the radio in joules." |run| run.joules;
        "saved" Number "Saved share of the energy under the network's timers." |run| run.saved;
        "saved_of_tail" Number "Saved share of that energy without transfers."
            |run| run.saved_of_tail;
        "saved_of_oracle" Number "Share of the oracle's saving." |run| run.saved_of_oracle;
        "switches" Count "Packets that found the radio released." |run| run.switches;
        "switches_by_status_quo" Number "Ratio to the switches under the network's timers."
            |run| run.switches_by_status_quo;
        "switches_by_oracle" Number "Ratio to the switches of the oracle."
            |run| run.switches_by_oracle;
        "energy_saved_per_switch" Number "Joules saved for each switch."
            |run| run.joules_saved_per_switch;
        "false_switches" Number "N_FS / (N_FS + N_TN)." |run| run.false_switches;
        "missed_switches" Number "N_MS / (N_MS + N_TP)." |run| run.missed_switches;
        "sleeps" Count "Number of fast dormancies." |run| run.sleeps;
        "mean_wait" Number "Mean wait before fast dormancy in seconds."
            |run| run.mean_wait_seconds;
        "sessions" Count "Delay-tolerant sessions." |run| run.sessions;
        "held" Count "Delayed sessions." |run| run.held;
        "mean_delay" Number "Mean delay of delayed sessions in seconds."
            |run| run.mean_delay_seconds;
        "median_delay" Number "Median delay of delayed sessions in seconds."
            |run| run.median_delay_seconds;
        "p95_delay" Number "95th percentile of the delay of delayed sessions in seconds."
            |run| run.p95_delay_seconds;
    };
}

/// The table could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {error}", path.display())]
pub struct TableError {
    path: PathBuf,
    #[source]
    error: std::io::Error,
}

/// Writes a Parquet table with a row for each run.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_table(path: &Path, results: &Results) -> Result<(), TableError> {
    let mut batch = Batch::of::<Run>();
    for run in runs(results) {
        batch.push(&run, None);
    }
    let written = manyways_capture::write_table(path, &Schema::of::<Run>(), &batch);
    written.map_err(|error| TableError { path: path.to_owned(), error })
}
