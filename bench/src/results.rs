//! The run of a whole benchmark: cell by cell, written down after each, so that it can go on after
//! an end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use manyways_lab::LabError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::write;
use manyways_rig::launch::DriveError;
use manyways_rig::machine::Machine;
use manyways_rig::progress::Progress;
use manyways_rig::target::Target;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results<C> {
    /// Name and version of the schema.
    pub schema: String,
    /// Where and with what.
    pub machine: Machine,
    /// Seed of every order.
    pub seed: u64,
    /// How much was measured.
    pub mode: String,
    /// How long it took so far, in seconds.
    pub seconds: f64,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
    /// What was to be reached.
    pub targets: Vec<Target>,
    /// In the order of their parts.
    pub cells: Vec<C>,
}

/// A cell that is to be measured.
pub trait Planned {
    /// What is written down of it.
    type Record: Kept;

    /// Its name, unique.
    fn name(&self) -> &str;
    /// How long it will take, in seconds.
    fn estimate(&self) -> f64;
    /// How often its contenders run.
    fn rounds(&self) -> u32;
    /// A record with nothing measured yet.
    fn blank(&self) -> Self::Record;
}

/// A cell that was measured.
pub trait Kept: Serialize + DeserializeOwned {
    /// Its name.
    fn name(&self) -> &str;
    /// The part that it belongs to.
    fn part(&self) -> &str;
    /// What was planned, to tell whether it can be kept.
    fn plan(&self) -> &str;
    /// Why it came to nothing, if it did.
    fn error(&mut self) -> &mut Option<String>;
}

/// Where results go, and what is made of them.
pub struct Outputs<C> {
    /// The file of the figures.
    pub json: Option<PathBuf>,
    /// The page.
    pub markdown: Option<PathBuf>,
    /// What was to be reached.
    pub targets: fn(&[C]) -> Vec<Target>,
    /// Writes the page.
    pub page: fn(&Results<C>) -> String,
}

impl<C: Kept> Results<C> {
    /// Takes over what an earlier run measured.
    ///
    /// # Errors
    /// One sentence, where that cannot be.
    pub fn keep(&mut self, file: &Path) -> Result<(), String> {
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
        before.cells.retain_mut(|cell| cell.error().is_none());
        self.cells = before.cells;
        self.seconds = before.seconds;
        Ok(())
    }

    fn write(&mut self, outputs: &Outputs<C>) -> Result<(), String> {
        self.targets = (outputs.targets)(&self.cells);
        if let Some(file) = &outputs.markdown {
            write(file, &(outputs.page)(self))?;
        }
        if let Some(file) = &outputs.json {
            let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
            write(file, &(text + "\n"))?;
        }
        Ok(())
    }

    /// Measures every cell that is not there yet. `measure` tells after each round how many are
    /// done.
    ///
    /// # Errors
    /// One sentence, where nothing more can be measured.
    pub fn measure<P: Planned<Record = C>>(
        &mut self,
        cells: &[P],
        outputs: &Outputs<C>,
        mut measure: impl FnMut(&P, &mut dyn FnMut(u32)) -> Result<C, DriveError>,
    ) -> Result<ExitCode, String> {
        let there = |cell: &&P| {
            let plan = cell.blank();
            !self.cells.iter().any(|kept| kept.name() == cell.name() && kept.plan() == plan.plan())
        };
        let wanted: Vec<&P> = cells.iter().filter(there).collect();
        let before = self.seconds;
        let all = wanted.iter().map(|cell| cell.estimate()).sum();
        let mut progress = Progress::new(wanted.len(), cells.len() - wanted.len(), all);
        for cell in wanted {
            let outcome = measure(cell, &mut |round| {
                progress.tell(cell.name(), cell.estimate(), (round, cell.rounds()));
            });
            progress.finish(cell.estimate());
            let record = match outcome {
                Ok(record) => record,
                Err(DriveError::Stopped(signal)) => {
                    progress.clear();
                    eprintln!("stopped; --resume goes on with {}", cell.name());
                    return Ok(ExitCode::from(128 + signal as u8));
                }
                // Without these there is no other cell either.
                Err(DriveError::Lab(
                    error @ (LabError::NotPermitted(_) | LabError::CongestionControl { .. }),
                )) => return Err(error.to_string()),
                Err(error) => {
                    progress.clear();
                    eprintln!("{}: {error}", cell.name());
                    let mut record = cell.blank();
                    *record.error() = Some(error.to_string());
                    record
                }
            };
            self.cells.retain(|kept| kept.name() != record.name());
            self.cells.push(record);
            let place = |name: &str| cells.iter().position(|cell| cell.name() == name);
            self.cells.sort_by_key(|cell| (cell.part().to_owned(), place(cell.name())));
            self.seconds = before + progress.seconds();
            self.write(outputs)?;
        }
        progress.clear();
        // After a resume with nothing left to do, the page is made anew all the same.
        self.write(outputs)?;
        print!("{}", (outputs.page)(self));
        Ok(ExitCode::SUCCESS)
    }
}

/// Says what would be measured.
pub fn list<P: Planned>(cells: &[P], title: impl Fn(&P) -> &str) {
    for cell in cells {
        let (rounds, minutes) = (cell.rounds(), cell.estimate() / 60.0);
        println!("{:18} {minutes:5.1} min  {rounds:2} rounds  {}", cell.name(), title(cell));
    }
    let all: f64 = cells.iter().map(Planned::estimate).sum();
    println!("{:18} {:5.1} min", "all", all / 60.0);
}
