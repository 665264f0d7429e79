//! What was measured, as it is written to the results file and read back to go on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::{self, Kept};

/// Name and version of the results' schema.
pub const SCHEMA: &str = "manyways.bench-bond/1";

/// Everything.
pub type Results = results::Results<CellRecord>;

/// One cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CellRecord {
    /// Its name.
    pub name: String,
    /// Its letter.
    pub part: String,
    /// For people.
    pub title: String,
    /// The links' names, in the order of every list of links.
    pub links: Vec<String>,
    /// How many rounds there were to be.
    pub rounds: u32,
    /// What was planned, to tell whether a result can be kept.
    pub plan: String,
    /// What was seen of each contender's sockets.
    pub sockets: Vec<Sockets>,
    /// Every run.
    pub runs: Vec<Run>,
    /// How often the links did not become quiet after a run, and were cut off for a moment.
    pub restless: u32,
    /// How long all of it took, in seconds.
    pub seconds: f64,
    /// Contenders that could not run, and why.
    pub left_out: Vec<String>,
    /// Why it came to nothing, if it did.
    pub error: Option<String>,
}

/// The congestion control of every socket of both sides in the middle of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// Whose.
    pub contender: String,
    /// Of plain connections.
    pub plain: Vec<String>,
    /// Of subflows of the kernel's MPTCP.
    pub subflows: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which round.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// Did what.
    pub task: String,
    /// The unit of the figure.
    pub unit: String,
    /// The figure, in that unit; nothing where the run failed.
    pub value: Option<f64>,
    /// Every single one in that unit, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// What else there is to know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// IP bytes that each link delivered to the device, until all was quiet.
    pub link_bytes: Vec<u64>,
}

impl CellRecord {
    /// Runs of a contender at a task.
    pub fn of<'a>(&'a self, contender: &'a str, task: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.contender == contender && run.task == task)
    }

    /// The figures of a contender at a task, by round.
    pub fn values(&self, contender: &str, task: &str) -> BTreeMap<u32, f64> {
        let value = |run: &Run| Some((run.round, run.value?));
        self.of(contender, task).filter_map(value).collect()
    }

    /// Every single figure of all rounds.
    pub fn samples(&self, contender: &str, task: &str) -> Vec<f64> {
        self.of(contender, task).flat_map(|run| run.samples.iter().copied()).collect()
    }

    /// Something else that the runs told, of all rounds.
    pub fn more(&self, contender: &str, task: &str, what: &str) -> Vec<f64> {
        self.of(contender, task).filter_map(|run| run.more.get(what).copied()).collect()
    }

    /// How many runs failed, and how many there were.
    pub fn failures(&self, contender: &str, task: &str) -> (usize, usize) {
        let failed = self.of(contender, task).filter(|run| run.failed.is_some()).count();
        (failed, self.of(contender, task).count())
    }

    /// Every task, in the order of the plan's names.
    pub fn tasks(&self) -> Vec<&str> {
        unique(self.runs.iter().map(|run| run.task.as_str()))
    }

    /// Every contender at a task.
    pub fn contenders(&self, task: &str) -> Vec<&str> {
        unique(self.runs.iter().filter(|run| run.task == task).map(|run| run.contender.as_str()))
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
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
