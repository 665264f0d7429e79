//! Figures of a run, and queries of the figures of a cell.

use std::collections::BTreeMap;

use manyways_rig::cell::CellRecord;
use serde::{Deserialize, Serialize};

pub type Record = CellRecord<Figures, ()>;

/// Quantities by name, as the tables show them. What the emulator knows begins with `true `.
pub type Quantities = BTreeMap<String, f64>;

/// Result of one run, for each network or route that was measured at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub networks: BTreeMap<String, Quantities>,
}

/// The values of a quantity of a contender on a network, by round.
pub fn values(cell: &Record, contender: &str, network: &str, quantity: &str) -> BTreeMap<u32, f64> {
    cell.values(
        |run| run.contender == contender,
        |figures| figures.networks.get(network)?.get(quantity).copied(),
    )
}

/// All networks of a contender, in the order of their names.
pub fn networks(cell: &Record, contender: &str) -> Vec<String> {
    let runs = cell.runs.iter().filter(|run| run.contender == contender);
    let mut names: Vec<String> =
        runs.flat_map(|run| run.figures.networks.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

/// All quantities of a contender on a network.
pub fn quantities(cell: &Record, contender: &str, network: &str) -> Vec<String> {
    let runs = cell.runs.iter().filter(|run| run.contender == contender);
    let all = runs.filter_map(|run| run.figures.networks.get(network)).flat_map(BTreeMap::keys);
    let mut names: Vec<String> = all.cloned().collect();
    names.sort();
    names.dedup();
    names
}
