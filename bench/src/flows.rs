//! `manyways flows` beside what else reads captures: tshark, tcptrace and NFStream, over the same
//! files, in one run; and how its time and memory grow.
//!
//! [`mod@plan`] says what is measured, [`drive`] measures it, [`targets`] compares it with what was
//! to be reached, and [`table`] writes the page. [`capture`] makes what is read.

mod capture;
mod contender;
mod drive;
mod plan;
mod record;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::programs::beside_this;
use manyways_sys::signal::Termination;

pub use self::capture::Shape;
use self::contender::Programs;
use self::drive::Driver;
pub use self::drive::make;
use self::plan::{Mode, plan};
use self::record::{Results, SCHEMA};
use crate::results::{self, Outputs};
use manyways_rig::machine::Machine;

/// Compare `manyways flows` with tshark, tcptrace and NFStream.
///
/// It makes captures in the folder for temporary files (1.6 GB at most at a time), and installs
/// NFStream into a virtual environment in the user's cache. What cannot be had is left out, and the
/// page says so. Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench flows --json flows.json --markdown flows.md
  manyways-bench flows --quick --cells headers")]
pub struct FlowsArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// How often every contender reads a capture; by default 5 times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these cells, by letter (a to d) or name (see --list).
    #[arg(long, value_name = "CELL,…", value_delimiter = ',')]
    cells: Vec<String>,
    /// A look: 3 rounds over smaller captures.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// A stream of 100 million packets as well; BENCH=full in the environment says the same.
    #[arg(long)]
    full: bool,
    /// Seed of every order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    manyways: Option<PathBuf>,
    /// Another build of it to stand beside: of cargo build, where --manyways is of make release.
    #[arg(long, value_name = "FILE")]
    untrained: Option<PathBuf>,
    /// Keep the cells that the file of --json has already, where the same was planned.
    #[arg(long, requires = "json")]
    resume: bool,
    /// Only say what would be measured and how long that takes.
    #[arg(long)]
    list: bool,
}

/// Runs it.
pub fn run(args: FlowsArgs) -> Result<ExitCode, String> {
    let wants_full = || std::env::var_os("BENCH").is_some_and(|value| value == "full");
    let mode = match (args.quick, args.full || wants_full()) {
        (true, _) => Mode::Quick,
        (false, true) => Mode::Full,
        (false, false) => Mode::Default,
    };
    let mut cells = plan(mode, args.rounds);
    cells.retain(|cell| {
        let is_meant = |wish: &String| *wish == cell.name || *wish == cell.part.to_string();
        args.cells.is_empty() || args.cells.iter().any(is_meant)
    });
    if cells.is_empty() {
        return Err("there is nothing to measure; --list names all cells".to_owned());
    }
    if args.list {
        results::list(&cells, |cell| &cell.title);
        return Ok(ExitCode::SUCCESS);
    }
    let binary = match args.manyways {
        Some(binary) => binary,
        None => beside_this().map_err(|error| format!("cannot tell where this is: {error}"))?,
    };
    let absolute = |file: PathBuf| {
        std::path::absolute(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let programs = Programs::find(absolute(binary)?, args.untrained.map(absolute).transpose()?);
    let termination =
        Termination::take().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        machine: Machine::here(&programs.manyways, programs.versions())?,
        seed: args.seed,
        mode: format!("{mode:?}").to_lowercase(),
        seconds: 0.0,
        left_out: Vec::new(),
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
    let driver = Driver { programs: &programs, termination: &termination, seed: args.seed };
    results.measure(&cells, &outputs, |cell, progress| driver.measure(cell, progress))
}
