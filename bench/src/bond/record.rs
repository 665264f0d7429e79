//! What is measured of a task, and how the figures of a cell are looked up.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use serde::{Deserialize, Serialize};

/// A cell.
pub type Record = CellRecord<Figures, More>;

/// What a cell has besides its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// What was seen of each contender's sockets.
    pub sockets: Vec<Sockets>,
}

/// The congestion control of every socket of both sides in the middle of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sockets {
    /// The contender's name.
    pub contender: String,
    /// Of plain connections.
    pub plain: Vec<String>,
    /// Of subflows of the kernel's MPTCP.
    pub subflows: Vec<String>,
}

/// What is measured of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The task's name.
    pub task: String,
    /// The unit of the figure.
    pub unit: String,
    /// The figure, in that unit; `None` where the run failed.
    pub value: Option<f64>,
    /// Every sample in that unit, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// Further figures by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// IP bytes that each link delivered to the device, until all was quiet.
    pub link_bytes: Vec<u64>,
}

/// Whether a run is of this contender at this task.
pub fn is(contender: &str, task: &str) -> impl Fn(&Run<Figures>) -> bool {
    move |run| run.contender == contender && run.figures.task == task
}

/// The figures of a contender at a task, by round.
pub fn values(cell: &Record, contender: &str, task: &str) -> BTreeMap<u32, f64> {
    cell.values(is(contender, task), |figures| figures.value)
}

/// Every sample of a contender at a task, of all rounds.
pub fn samples(cell: &Record, contender: &str, task: &str) -> Vec<f64> {
    let is = is(contender, task);
    let runs = cell.runs.iter().filter(|run| is(run));
    runs.flat_map(|run| run.figures.samples.iter().copied()).collect()
}

/// A further figure of a contender at a task, of all rounds.
pub fn more(cell: &Record, contender: &str, task: &str, name: &str) -> Vec<f64> {
    cell.values(is(contender, task), |run| run.more.get(name).copied()).into_values().collect()
}

/// Every task, in the order of the plan.
pub fn tasks(cell: &Record) -> Vec<&str> {
    cell.each(|run| Some(&run.figures.task))
}
