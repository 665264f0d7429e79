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

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use manyways_lab::registry::Registry;
use manyways_rig::programs::{beside_this, program, version};
use manyways_sys::signal::Termination;

use self::drive::Driver;
use self::plan::{Wish, plan};
use self::record::{Results, SCHEMA};
use self::site::Programs;
use crate::results::{self, Outputs};
use manyways_rig::links;
use manyways_rig::machine::Machine;

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
    /// How often everything runs in a cell; by default 15 times, or as the cell has time for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these cells, by letter, name (see --list) or what stands before a name's first dash.
    #[arg(long, value_name = "CELL,…", value_delimiter = ',')]
    cells: Vec<String>,
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
pub fn run(args: BondArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let wants = |word: &String| word == "n" || word.starts_with("pairs");
    let pairs = match args.cells.is_empty() || args.cells.iter().any(wants) {
        true => links::find_pairs(args.pairs.as_deref(), 'n', &mut left_out)?,
        false => Vec::new(),
    };
    let cells = plan(&Wish { rounds: args.rounds, cells: &args.cells, pairs: &pairs });
    if cells.is_empty() {
        let words = left_out.first().map(|words| format!(": {words}")).unwrap_or_default();
        return Err(format!("there is nothing to measure{words}; --list names all cells"));
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
    let of = |program: &Path| version(program, "--version");
    let browser = programs.browser.as_deref().and_then(of);
    let versions = of(&programs.manyways).into_iter().chain(browser).collect();
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        machine: Machine::here(&programs.manyways, versions)?,
        seed: args.seed,
        mode: "default".to_owned(),
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
    Ok(Programs { manyways, own, ss, browser: program("chromium") })
}
