//! The run of a whole benchmark, cell by cell. The results are written after each cell, so that a
//! later run can resume an interrupted one.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use manyways_lab::LabError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cell::{Cell, CellRecord, Contender};
use crate::launch::DriveError;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::target::{self, Target};

/// All records of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results<R, M> {
    /// Name and version of the schema.
    pub schema: String,
    /// Machine and programs of the measurement.
    pub machine: Machine,
    /// Seed that determines the order of the contenders.
    pub seed: u64,
    /// Name of the selected amount of measurements.
    pub mode: String,
    /// Duration so far, in seconds, over all resumed runs.
    pub seconds: f64,
    /// Omitted measurements, each with its reason.
    pub skipped: Vec<String>,
    /// Missed targets first.
    pub targets: Vec<Target>,
    /// Sorted by part.
    pub cells: Vec<CellRecord<R, M>>,
}

/// A family of benchmarks: measures its cells and evaluates their records.
pub trait Family {
    /// Name and version of the results' schema.
    const SCHEMA: &'static str;
    type Contender: Contender;
    /// Conditions of a cell that are specific to this family.
    type Setting: Debug;
    /// Figures of one run.
    type Figures: Default + Serialize + DeserializeOwned;
    /// Content of a record that is specific to this family.
    type Extra: Default + Serialize + DeserializeOwned;

    /// Estimated duration of a cell, in seconds.
    fn seconds(cell: &CellOf<Self>) -> f64;

    /// The content of a record that is known before the first run.
    fn extra(_cell: &CellOf<Self>) -> Self::Extra {
        Self::Extra::default()
    }

    /// Measures one cell. Calls `progress` after each round with the number of finished rounds.
    ///
    /// # Errors
    /// The reason why the cell could not be measured.
    fn measure(
        &self,
        cell: &CellOf<Self>,
        record: &mut RecordOf<Self>,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError>;

    fn targets(cells: &[RecordOf<Self>]) -> Vec<Target>;

    /// The results as Markdown.
    fn page(results: &ResultsOf<Self>) -> String;
}

/// A cell of a family.
pub type CellOf<F> = Cell<<F as Family>::Contender, <F as Family>::Setting>;
/// A record of a family.
pub type RecordOf<F> = CellRecord<<F as Family>::Figures, <F as Family>::Extra>;
/// All records of a family.
pub type ResultsOf<F> = Results<<F as Family>::Figures, <F as Family>::Extra>;

/// Files for the results.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// The results as JSON.
    pub json: Option<PathBuf>,
    /// The page, which is printed on standard output too.
    pub markdown: Option<PathBuf>,
}

impl<R: Serialize + DeserializeOwned, M: Serialize + DeserializeOwned> Results<R, M> {
    /// Loads the cells of an earlier run from `file`, without the failed ones. A missing file
    /// counts as empty.
    ///
    /// # Errors
    /// One sentence, if the file does not contain results or has those of another binary, machine
    /// or seed.
    pub fn resume(&mut self, file: &Path) -> Result<(), String> {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        };
        let mut before: Self = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{} holds no results: {error}", file.display()))?;
        if before.schema != self.schema
            || before.machine != self.machine
            || before.seed != self.seed
        {
            return Err(format!(
                "{} was measured with another binary, machine or seed: leave --resume out",
                file.display()
            ));
        }
        before.cells.retain(|cell| cell.error.is_none());
        self.cells = before.cells;
        self.seconds = before.seconds;
        Ok(())
    }

    /// Measures every cell that has no record yet, and writes the results after each.
    ///
    /// # Errors
    /// One sentence, if no further cell can be measured.
    pub fn measure<F>(
        &mut self,
        family: &F,
        cells: &[CellOf<F>],
        outputs: &Outputs,
    ) -> Result<ExitCode, String>
    where
        F: Family<Figures = R, Extra = M>,
        R: Default,
        M: Default,
    {
        let blank = |cell: &CellOf<F>| cell.record::<R, M>(F::extra(cell));
        let there = |cell: &&CellOf<F>| {
            let plan = blank(cell).plan;
            !self.cells.iter().any(|kept| kept.name == cell.name && kept.plan == plan)
        };
        let wanted: Vec<&CellOf<F>> = cells.iter().filter(there).collect();
        let before = self.seconds;
        let all = wanted.iter().map(|cell| F::seconds(cell)).sum();
        let mut progress = Progress::new(wanted.len(), cells.len() - wanted.len(), all);
        for cell in wanted {
            let mut record = blank(cell);
            let begun = progress.seconds();
            let outcome = family.measure(cell, &mut record, &mut |round| {
                progress.print(&cell.name, F::seconds(cell), (round, cell.rounds));
            });
            record.seconds = progress.seconds() - begun;
            progress.finish(F::seconds(cell));
            match outcome {
                Ok(()) => {}
                Err(DriveError::Stopped(signal)) => {
                    progress.clear();
                    eprintln!("stopped; --resume goes on with {}", cell.name);
                    return Ok(ExitCode::from(128 + signal as u8));
                }
                // These errors affect all other cells too.
                Err(DriveError::Lab(
                    error @ (LabError::NotPermitted(_) | LabError::CongestionControl { .. }),
                )) => return Err(error.to_string()),
                Err(error) => {
                    progress.clear();
                    eprintln!("{}: {error}", cell.name);
                    record = blank(cell);
                    record.error = Some(error.to_string());
                }
            }
            self.cells.retain(|kept| kept.name != record.name);
            self.cells.push(record);
            let place = |name: &str| cells.iter().position(|cell| cell.name == name);
            self.cells.sort_by_key(|cell| (cell.part.clone(), place(&cell.name)));
            self.seconds = before + progress.seconds();
            self.write::<F>(outputs)?;
        }
        progress.clear();
        // A resume with no remaining cell writes the page too.
        print!("{}", self.write::<F>(outputs)?);
        Ok(ExitCode::SUCCESS)
    }

    fn write<F: Family<Figures = R, Extra = M>>(
        &mut self,
        outputs: &Outputs,
    ) -> Result<String, String> {
        self.targets = target::missed_first(F::targets(&self.cells));
        let page = F::page(self);
        if let Some(file) = &outputs.markdown {
            write(file, &page)?;
        }
        if let Some(file) = &outputs.json {
            let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
            write(file, &(text + "\n"))?;
        }
        Ok(page)
    }
}

/// Prints the planned cells with their durations.
pub fn list<F: Family>(cells: &[CellOf<F>]) {
    for cell in cells {
        let (rounds, minutes) = (cell.rounds, F::seconds(cell) / 60.0);
        println!("{:18} {minutes:5.1} min  {rounds:2} rounds  {}", cell.name, cell.title);
    }
    let all: f64 = cells.iter().map(F::seconds).sum();
    println!("{:18} {:5.1} min", "all", all / 60.0);
}

/// Writes a file; creates its folder if necessary.
///
/// # Errors
/// One sentence.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, text))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

#[cfg(test)]
mod tests;
