//! Figures of a run by name, queries of the figures of a cell, and their table.

use std::collections::BTreeMap;

use manyways_rig::cell::{CellRecord, Run};
use manyways_rig::page::{failed, rounded, table};
use manyways_rig::sample::Quartiles;
use serde::{Deserialize, Serialize};

pub type Record = CellRecord<Figures, ()>;

/// Result of one run: quantities by name, as the tables show them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub quantities: BTreeMap<String, f64>,
}

impl Figures {
    pub fn of(quantities: impl IntoIterator<Item = (impl Into<String>, f64)>) -> Self {
        let named = quantities.into_iter().map(|(name, value)| (name.into(), value));
        Self { quantities: named.collect() }
    }

    /// All of these figures, which have different names.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Self {
        Self { quantities: all.into_iter().flat_map(|figures| figures.quantities).collect() }
    }

    /// A run with these figures, or the reason why it failed.
    pub fn run(outcome: Result<Self, String>) -> Run<Self> {
        match outcome {
            Ok(figures) => Run::of(figures, None),
            Err(reason) => Run::of(Self::default(), Some(reason)),
        }
    }
}

/// The values of a quantity of a contender, by round.
pub fn values(cell: &Record, contender: &str, quantity: &str) -> BTreeMap<u32, f64> {
    let value = |figures: &Figures| figures.quantities.get(quantity).copied();
    cell.values(|run| run.contender == contender, value)
}

/// All quantities of a contender, in alphabetical order.
pub fn quantities(cell: &Record, contender: &str) -> Vec<String> {
    let runs = cell.runs.iter().filter(|run| run.contender == contender);
    let mut names: Vec<String> =
        runs.flat_map(|run| run.figures.quantities.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

/// Writes a table with all figures of a cell: medians and quartiles.
pub fn figures_table(out: &mut String, cell: &Record) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for contender in cell.distinct(|run| Some(&run.contender)) {
        for name in quantities(cell, contender) {
            let all = values(cell, contender, &name);
            let figure = rounded(Quartiles::of(all.into_values()));
            let failures = failed(cell.failures(|run| run.contender == contender));
            rows.push(vec![contender.to_owned(), name, figure, failures]);
        }
    }
    out.push('\n');
    table(out, " | quantity | figure | failed", rows);
}
