//! Figures of a task, and queries of the figures of a cell.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use serde::{Deserialize, Serialize};

use super::task::Task;

pub type Record = CellRecord<Figures, Extra>;

/// Content of a cell's record in addition to its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Extra {
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
    pub extra: BTreeMap<String, f64>,
    /// Delivered IP bytes of each link, towards the device, until all links were quiet.
    pub link_bytes: Vec<u64>,
}

impl Figures {
    /// The figures of a task that has not run.
    pub fn of(task: &Task) -> Self {
        Self { task: task.name(), unit: task.unit().to_owned(), ..Self::default() }
    }
}

/// Whether a run has this contender and this task.
pub fn selects(contender: &str, task: &str) -> impl Fn(&Run<Figures>) -> bool {
    move |run| run.contender == contender && run.figures.task == task
}

/// The figures of a contender for a task, by round.
pub fn values(cell: &Record, contender: &str, task: &str) -> BTreeMap<u32, f64> {
    cell.values(selects(contender, task), |figures| figures.value)
}

/// All samples of a contender for a task, over all rounds.
pub fn samples(cell: &Record, contender: &str, task: &str) -> Vec<f64> {
    let is = selects(contender, task);
    let runs = cell.runs.iter().filter(|run| is(run));
    runs.flat_map(|run| run.figures.samples.iter().copied()).collect()
}

/// A further figure of a contender for a task, from all rounds.
pub fn extra_values(cell: &Record, contender: &str, task: &str, name: &str) -> Vec<f64> {
    cell.values(selects(contender, task), |run| run.extra.get(name).copied())
        .into_values()
        .collect()
}

/// All tasks, in the order of the plan.
pub fn tasks(cell: &Record) -> Vec<&str> {
    cell.distinct(|run| Some(&run.figures.task))
}
