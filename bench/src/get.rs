//! `manyways get` beside what a user would take instead: one network, fixed chunks, aria2 and the
//! kernel's Multipath TCP, over emulated links, in one run.
//!
//! [`mod@plan`] says what is measured, [`drive`] measures it, [`targets`] compares it with what was to
//! be reached, and [`table`] writes the page. Results are written after every cell.

mod contender;
mod curve;
mod drive;
mod plan;
mod record;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_lab::registry::Registry;
use manyways_rig::programs::beside_this;
use manyways_sys::signal::Termination;

use self::contender::Programs;
use self::drive::{Driver, blank};
use self::plan::{Cell, Mode, Wish, plan};
use self::record::{CellRecord, Results, SCHEMA};
use crate::links;
use crate::machine::Machine;
use crate::results::{self, Kept, Outputs, Planned};

/// Compare `manyways get` with one network, fixed chunks, aria2 and kernel MPTCP (as root).
///
/// It measures over emulated links what fits into an hour, or with --full everything, which takes
/// many. Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench get --json get.json --markdown get.md
  manyways-bench get --quick --cells e,g
  manyways-bench get --full --list")]
pub struct GetArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// How often every contender runs in a cell; by default 15 times, or as the cell has time for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these cells, by letter (a to i) or name (see --list).
    #[arg(long, value_name = "CELL,…", value_delimiter = ',')]
    cells: Vec<String>,
    /// A look: 3 rounds of a few cells.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything; BENCH=full in the environment says the same.
    #[arg(long)]
    full: bool,
    /// Seed of every order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The folder with recorded pairs, NAME_wifi.csv beside NAME_cellular.csv; MANYWAYS_PAIRS in
    /// the environment says the same.
    #[arg(long, value_name = "DIR")]
    pairs: Option<PathBuf>,
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    manyways: Option<PathBuf>,
    /// Keep the cells that the file of --json has already, where the same was planned.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Only say what would be measured and how long that takes.
    #[arg(long)]
    list: bool,
}

/// Runs it.
pub fn run(args: GetArgs) -> Result<ExitCode, String> {
    let mode = match (args.quick, args.full || wants_full()) {
        (true, _) => Mode::Quick,
        (false, true) => Mode::Full,
        (false, false) => Mode::Default,
    };
    let mut left_out = Vec::new();
    let wants_pairs = args.cells.is_empty() || args.cells.iter().any(|cell| cell.starts_with('b'));
    let pairs = match wants_pairs {
        true => links::find_pairs(args.pairs.as_deref(), 'b', &mut left_out)?,
        false => Vec::new(),
    };
    let cells = plan(&Wish { mode, rounds: args.rounds, cells: &args.cells, pairs: &pairs });
    if cells.is_empty() {
        let words = left_out.first().map(|words| format!(": {words}")).unwrap_or_default();
        return Err(format!("there is nothing to measure{words}; --list names all cells"));
    }
    if args.list {
        results::list(&cells, |cell| &cell.title);
        return Ok(ExitCode::SUCCESS);
    }
    let binary = match args.manyways {
        Some(binary) => binary,
        None => beside_this().map_err(|error| format!("cannot tell where this is: {error}"))?,
    };
    let binary = std::path::absolute(&binary).map_err(|error| error.to_string())?;
    let programs = Programs::find(binary)?;
    if !manyways_sys::sandbox::is_root() {
        return Err("it needs root, for network namespaces".to_owned());
    }
    let registry = Registry::of_user()
        .map_err(|error| format!("cannot open the folder of the running labs: {error}"))?;
    let termination =
        Termination::take().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        machine: Machine::here(&programs.manyways, programs.versions())?,
        seed: args.seed,
        mode: format!("{mode:?}").to_lowercase(),
        seconds: 0.0,
        left_out,
        targets: Vec::new(),
        cells: Vec::new(),
    };
    if args.resume
        && let Some(file) = &args.json
    {
        results.keep(file)?;
    }
    let outputs = Outputs {
        json: args.json,
        markdown: args.markdown,
        targets: targets::targets,
        page: table::markdown,
    };
    let driver = Driver {
        registry: &registry,
        programs: &programs,
        termination: &termination,
        seed: args.seed,
    };
    results.measure(&cells, &outputs, |cell, progress| driver.measure(cell, progress))
}

fn wants_full() -> bool {
    std::env::var_os("BENCH").is_some_and(|value| value == "full")
}

impl Planned for Cell {
    type Record = CellRecord;

    fn name(&self) -> &str {
        &self.name
    }

    fn estimate(&self) -> f64 {
        self.seconds_of_all()
    }

    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn blank(&self) -> CellRecord {
        blank(self)
    }
}

impl Kept for CellRecord {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> &str {
        &self.part
    }

    fn plan(&self) -> &str {
        &self.plan
    }

    fn error(&mut self) -> &mut Option<String> {
        &mut self.error
    }
}
