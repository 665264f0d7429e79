//! Figures of a task, and queries of the figures of a cell.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use serde::{Deserialize, Serialize};

pub type Record = CellRecord<Figures, More>;

/// Content of a cell's record in addition to its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// One entry for each contender.
    pub sockets: Vec<Sockets>,
}

/// The congestion control of all sockets on both sides in the middle of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    pub contender: String,
    /// Plain connections.
    pub plain: Vec<String>,
    /// Subflows of kernel MPTCP.
    pub subflows: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub task: String,
    pub unit: String,
    /// In [`Self::unit`]; `None` if the run failed.
    pub value: Option<f64>,
    /// Individual samples in [`Self::unit`]; empty if there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// Delivered IP bytes of each link, towards the device, until all links were quiet.
    pub link_bytes: Vec<u64>,
}

/// Whether a run has this contender and this task.
pub fn is(contender: &str, task: &str) -> impl Fn(&Run<Figures>) -> bool {
    move |run| run.contender == contender && run.figures.task == task
}

/// The figures of a contender for a task, by round.
pub fn values(cell: &Record, contender: &str, task: &str) -> BTreeMap<u32, f64> {
    cell.values(is(contender, task), |figures| figures.value)
}

/// All samples of a contender for a task, over all rounds.
pub fn samples(cell: &Record, contender: &str, task: &str) -> Vec<f64> {
    let is = is(contender, task);
    let runs = cell.runs.iter().filter(|run| is(run));
    runs.flat_map(|run| run.figures.samples.iter().copied()).collect()
}

/// A further figure of a contender for a task, from all rounds.
pub fn more(cell: &Record, contender: &str, task: &str, name: &str) -> Vec<f64> {
    cell.values(is(contender, task), |run| run.more.get(name).copied()).into_values().collect()
}

/// All tasks, in the order of the plan.
pub fn tasks(cell: &Record) -> Vec<&str> {
    cell.each(|run| Some(&run.figures.task))
}
