//! What is measured of a run over a capture, and how the figures of a cell are looked up.

use std::collections::BTreeMap;

use manyways_rig::cell::CellRecord;
use serde::{Deserialize, Serialize};

use super::capture::Written;

/// A cell: one capture.
pub type Record = CellRecord<Figures, More>;

/// What a cell has besides its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// The capture.
    pub capture: Written,
    /// Its connections.
    pub flows: u32,
    /// Processes that wanted a core in the beginning, the last minute's average.
    pub load: f64,
}

/// What is measured of a contender that reads the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From its start to its end.
    pub seconds: f64,
    /// Seconds of processors.
    pub cpu: f64,
    /// Bytes that were resident at most.
    pub memory: u64,
    /// The same when all packets had been read and nothing was over, where that was looked at.
    pub live: Option<u64>,
}

/// A figure of a contender's runs, by round; failed runs have none.
pub fn values(
    cell: &Record,
    name: &str,
    figure: impl Fn(&Figures) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    cell.values(|run| run.contender == name && run.failed.is_none(), figure)
}

/// Packets in a second.
pub fn packet_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.more.capture.packets as f64 / run.seconds))
}

/// Bytes in a second.
pub fn byte_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.more.capture.bytes as f64 / run.seconds))
}
