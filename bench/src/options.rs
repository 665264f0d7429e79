//! The options that all families of benchmarks share, and the run that they configure.

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::links::{self, Pair};
use manyways_rig::machine::Machine;
use manyways_rig::programs::sibling_binary;
use manyways_rig::results::{CellOf, Family, Outputs, Results, list};
use manyways_sys::signal::Termination;

/// Options of every benchmark family.
#[derive(clap::Args)]
pub struct Options {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// How often every contender runs in a cell; by default the cell decides.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these cells, by letter, name (see --list) or what stands before a name's first dash.
    #[arg(long, value_name = "CELL,…", value_delimiter = ',')]
    pub cells: Vec<String>,
    /// Seed of every order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    manyways: Option<PathBuf>,
    /// Keep the cells that the file of --json has already, where the same was planned.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Only print what would be measured and how long that takes.
    #[arg(long)]
    list: bool,
}

/// Amount of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A few rounds of a few cells, for development.
    Quick,
    /// Cells and rounds that take at most an hour.
    Default,
    /// All cells with all rounds.
    Full,
}

/// Options of families that measure more or less.
#[derive(clap::Args)]
pub struct Modes {
    /// A look: a few rounds of a few cells.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything; BENCH=full in the environment has the same effect.
    #[arg(long)]
    full: bool,
}

/// Options of families that use recorded pairs of links.
#[derive(clap::Args)]
pub struct Pairs {
    /// The folder with recorded pairs, NAME_wifi.csv beside NAME_cellular.csv; MANYWAYS_PAIRS in
    /// the environment has the same effect.
    #[arg(long, value_name = "DIR")]
    pairs: Option<PathBuf>,
}

/// Values from which a family creates its driver.
pub struct Setup {
    /// The binary under test, as an absolute path.
    pub manyways: PathBuf,
    /// Signals that end the whole benchmark.
    pub termination: Termination,
    /// Seed that determines the order of the contenders.
    pub seed: u64,
}

impl Modes {
    /// The selected mode; --quick takes precedence over --full.
    pub fn mode(&self) -> Mode {
        let wants_full = || std::env::var_os("BENCH").is_some_and(|value| value == "full");
        match (self.quick, self.full || wants_full()) {
            (true, _) => Mode::Quick,
            (false, true) => Mode::Full,
            (false, false) => Mode::Default,
        }
    }
}

impl Pairs {
    /// Reads the recorded pairs if the selected cells include one of these parts, named as `a, b`;
    /// otherwise returns an empty list.
    ///
    /// # Errors
    /// One sentence, if an explicitly configured folder has no readable pairs.
    pub fn find(
        &self,
        parts: &str,
        cells: &[String],
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Pair>, String> {
        let is_meant = |part: char| part.is_ascii_lowercase() && parts.contains(part);
        let wants = |word: &String| word.starts_with(is_meant) || word.starts_with("pairs");
        match cells.is_empty() || cells.iter().any(wants) {
            true => links::find_pairs(self.pairs.as_deref(), parts, left_out),
            false => Ok(Vec::new()),
        }
    }
}

impl Options {
    /// Lists the selected cells, or measures them with the driver that `make` creates.
    ///
    /// # Errors
    /// One sentence, if nothing can be measured.
    pub fn run<F: Family>(
        self,
        mode: Mode,
        mut cells: Vec<CellOf<F>>,
        left_out: Vec<String>,
        make: impl FnOnce(Setup) -> Result<(F, Vec<String>), String>,
    ) -> Result<ExitCode, String> {
        cells.retain(|cell| cell.is_selected(&self.cells));
        cells.iter_mut().for_each(|cell| cell.rounds = self.rounds.unwrap_or(cell.rounds));
        if cells.is_empty() {
            let words = left_out.first().map(|words| format!(": {words}")).unwrap_or_default();
            return Err(format!("there is nothing to measure{words}; --list names all cells"));
        }
        if self.list {
            list::<F>(&cells);
            return Ok(ExitCode::SUCCESS);
        }
        let manyways = binary(self.manyways)?;
        let termination =
            Termination::take().map_err(|error| format!("cannot watch for signals: {error}"))?;
        let setup = Setup { manyways: manyways.clone(), termination, seed: self.seed };
        let (family, versions) = make(setup)?;
        let mut results = Results {
            schema: F::SCHEMA.to_owned(),
            machine: Machine::here(&manyways, versions)?,
            seed: self.seed,
            mode: format!("{mode:?}").to_lowercase(),
            seconds: 0.0,
            skipped: left_out,
            targets: Vec::new(),
            cells: Vec::new(),
        };
        if let Some(file) = self.json.as_deref().filter(|_| self.resume) {
            results.resume(file)?;
        }
        let outputs = Outputs { json: self.json, markdown: self.markdown };
        results.measure(&family, &cells, &outputs)
    }
}

/// The binary to measure: `named`, or `manyways` in the folder of this program.
///
/// # Errors
/// One sentence, if the file does not exist.
pub fn binary(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let beside = || sibling_binary().map_err(|error| format!("cannot tell where this is: {error}"));
    let binary = named.map_or_else(beside, Ok)?;
    let binary =
        std::path::absolute(&binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    match binary.is_file() {
        true => Ok(binary),
        false => Err(format!(
            "there is no {}: build it with cargo build --release -p manyways-cli",
            binary.display()
        )),
    }
}

/// # Errors
/// One sentence, if this process cannot create namespaces.
pub fn require_root() -> Result<(), String> {
    match manyways_sys::sandbox::is_root() {
        true => Ok(()),
        false => Err("it needs root, for network namespaces".to_owned()),
    }
}

/// Returns the path of a required program.
///
/// # Errors
/// One sentence, if the program is not installed.
pub fn required_program(name: &str) -> Result<PathBuf, String> {
    let missing = || format!("{name} is not installed: run scripts/setup bench");
    manyways_rig::programs::program(name).ok_or_else(missing)
}
