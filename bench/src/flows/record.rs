//! What was measured, as it is written to the results file and read back to go on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::capture::{Shape, Written};
use crate::results::{self, Kept};

/// Name and version of the results' schema.
pub const SCHEMA: &str = "manyways.bench-flows/1";

/// Everything.
pub type Results = results::Results<CellRecord>;

/// One cell: one capture.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CellRecord {
    /// Its name.
    pub name: String,
    /// Its letter.
    pub part: String,
    /// For people.
    pub title: String,
    /// How many rounds there were to be.
    pub rounds: u32,
    /// What was planned, to tell whether a result can be kept.
    pub plan: String,
    /// The capture.
    pub capture: Written,
    /// Its connections.
    pub flows: u32,
    /// Every run.
    pub runs: Vec<Run>,
    /// Processes that wanted a core in the beginning, the last minute's average.
    pub load: f64,
    /// Contenders that could not run, and why.
    pub left_out: Vec<String>,
    /// Why it came to nothing, if it did.
    pub error: Option<String>,
}

/// One run of a contender over the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which round.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// From its start to its end.
    pub seconds: f64,
    /// Of processors.
    pub cpu: f64,
    /// Bytes that were resident at most.
    pub memory: u64,
    /// The same when all packets had been read and nothing was over, where that was looked at.
    pub live: Option<u64>,
    /// Why it does not count, if it does not.
    pub failed: Option<String>,
}

impl CellRecord {
    /// A record of a capture with nothing measured yet.
    pub fn new(shape: &Shape) -> Self {
        Self { flows: shape.flows, ..Self::default() }
    }

    /// Who ran, in the order of the first round.
    pub fn contenders(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.contender.as_str()) {
                names.push(&run.contender);
            }
        }
        names.sort_unstable();
        names
    }

    /// A figure of a contender's runs, by round.
    pub fn values(&self, name: &str, figure: impl Fn(&Run) -> Option<f64>) -> BTreeMap<u32, f64> {
        let of = |run: &&Run| run.contender == name && run.failed.is_none();
        self.runs.iter().filter(of).filter_map(|run| Some((run.round, figure(run)?))).collect()
    }

    /// Packets in a second.
    pub fn packet_rates(&self, name: &str) -> BTreeMap<u32, f64> {
        self.values(name, |run| Some(self.capture.packets as f64 / run.seconds))
    }

    /// Bytes in a second.
    pub fn byte_rates(&self, name: &str) -> BTreeMap<u32, f64> {
        self.values(name, |run| Some(self.capture.bytes as f64 / run.seconds))
    }
}

impl Kept for CellRecord {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> &str {
        &self.part
    }

    fn plan(&self) -> &str {
        &self.plan
    }

    fn error(&mut self) -> &mut Option<String> {
        &mut self.error
    }
}
