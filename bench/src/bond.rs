//! `manyways bond` beside what a user would take instead: the kernel's Multipath TCP through a
//! splice, one network through the same, and no gateway at all, over emulated links, in one run.
//!
//! [`mod@plan`] says what is measured, [`drive`] measures it, [`targets`] compares it with what was
//! to be reached, and [`table`] writes the page.

mod contender;
mod drive;
mod loopback;
mod plan;
mod record;
mod site;
mod table;
mod targets;
mod task;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_net::lab::registry::Registry;
use manyways_sys::signal::Termination;

use self::drive::Driver;
use self::plan::{Wish, plan};
use self::record::{Results, SCHEMA};
use self::site::Programs;
use crate::machine::Machine;
use crate::programs::{beside_this, program, version};
use crate::results::{self, Outputs};

/// Compare `manyways bond` with kernel MPTCP, one network, and no gateway (as root).
///
/// Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench bond --json bond.json --markdown bond.md
  manyways-bench bond --cells a,stalls --rounds 3
  manyways-bench bond --list")]
pub struct BondArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// How often everything runs in a cell; by default 15 times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these cells, by letter or name (see --list).
    #[arg(long, value_name = "CELL,…", value_delimiter = ',')]
    cells: Vec<String>,
    /// Seed of every order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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

/// What the page owes its reader.
const NOT_YET: [&str; 3] = [
    "reinjection that was not needed, over recorded pairs: both ends count it, and do not tell it yet",
    "page loads in a browser",
    "the four-app policy",
];

/// Runs it.
pub fn run(args: BondArgs) -> Result<ExitCode, String> {
    let cells = plan(&Wish { rounds: args.rounds, cells: &args.cells });
    if cells.is_empty() {
        return Err("there is nothing to measure; --list names all cells".to_owned());
    }
    if args.list {
        results::list(&cells, |cell| &cell.title);
        return Ok(ExitCode::SUCCESS);
    }
    let programs = programs(args.manyways)?;
    if !manyways_sys::sandbox::is_root() {
        return Err("it needs root, for network namespaces".to_owned());
    }
    let registry = Registry::of_user()
        .map_err(|error| format!("cannot open the folder of the running labs: {error}"))?;
    let termination =
        Termination::take().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let versions = version(&programs.manyways, "--version").into_iter().collect();
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        machine: Machine::here(&programs.manyways, versions)?,
        seed: args.seed,
        mode: "default".to_owned(),
        seconds: 0.0,
        left_out: NOT_YET.map(str::to_owned).into(),
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
    let (seed, registry) = (args.seed, &registry);
    let driver = Driver { registry, programs: &programs, termination: &termination, seed };
    results.measure(&cells, &outputs, |cell, progress| driver.measure(cell, progress))
}

fn programs(manyways: Option<PathBuf>) -> Result<Programs, String> {
    let here = |error| format!("cannot tell where this is: {error}");
    let manyways = match manyways {
        Some(binary) => binary,
        None => beside_this().map_err(here)?,
    };
    let manyways = std::path::absolute(&manyways).map_err(|error| error.to_string())?;
    if !manyways.is_file() {
        return Err(format!(
            "there is no {}: build it with cargo build --release -p manyways-cli",
            manyways.display()
        ));
    }
    let own = std::env::current_exe().map_err(here)?;
    let ss = program("ss").ok_or("ss is not installed: run scripts/setup bench")?;
    Ok(Programs { manyways, own, ss })
}
