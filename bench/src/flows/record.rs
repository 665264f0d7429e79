//! Figures of a run over a capture, and queries of the figures of a cell.

use std::collections::BTreeMap;

use manyways_rig::cell::CellRecord;
use serde::{Deserialize, Serialize};

use super::capture::Written;

/// The record of one capture.
pub type Record = CellRecord<Figures, More>;

/// Content of a cell's record in addition to its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    pub capture: Written,
    /// Number of connections in the capture.
    pub flows: u32,
    /// Load average of the last minute before the cell.
    pub load: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the start of the process to its end.
    pub seconds: f64,
    /// Processor time in seconds.
    pub cpu: f64,
    /// Peak resident memory in bytes.
    pub memory: u64,
    /// Peak resident memory after all packets were read and before the end of the connections;
    /// `None` if it was not measured.
    pub live: Option<u64>,
}

/// A figure of a contender's runs, by round; failed runs are omitted.
pub fn values(
    cell: &Record,
    name: &str,
    figure: impl Fn(&Figures) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    cell.values(|run| run.contender == name && run.failed.is_none(), figure)
}

/// Packets per second, by round.
pub fn packet_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.more.capture.packets as f64 / run.seconds))
}

/// Bytes per second, by round.
pub fn byte_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.more.capture.bytes as f64 / run.seconds))
}
