//! The plan: the cells with their contenders.

use std::path::Path;

use super::cells::{Cells, Seeds};
use super::matching;

pub type Cell = manyways_rig::cell::Cell<&'static str, Experiment>;

/// The measured property of a cell.
#[derive(Clone, Debug, Default)]
pub enum Experiment {
    /// Requests of second runs.
    Matching(Seeds),
    #[default]
    None,
}

/// The cells in the order of their runs. Without the HAR files, those that need them are left out.
///
/// # Errors
/// One sentence, if the file of the cells is wrong.
pub fn plan(hars: &Path, left_out: &mut Vec<String>) -> Result<Vec<Cell>, String> {
    let cells = Cells::read()?;
    let _ = (hars, left_out);
    let seeds = cells.matching.seeds;
    Ok(vec![Cell {
        title: format!("{} generated pages, seeds from {} on", seeds.count, seeds.first),
        ..cell(
            'f',
            "matching",
            vec![matching::OURS, matching::MAHIMAHI],
            1,
            Experiment::Matching(seeds),
        )
    }])
}

fn cell(
    part: char,
    name: &str,
    contenders: Vec<&'static str>,
    rounds: u32,
    setting: Experiment,
) -> Cell {
    Cell { name: name.to_owned(), part, contenders, rounds, setting, ..Cell::default() }
}

/// Estimated duration of a cell, in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    let run = match &cell.setting {
        Experiment::Matching(_) => 10.0,
        Experiment::None => 0.0,
    };
    run * f64::from(cell.rounds) * cell.contenders.len() as f64
}
