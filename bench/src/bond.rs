//! Compares `manyways bond` with its alternatives over emulated links in one run: the kernel's
//! Multipath TCP through a splice, one network through the same splice, and direct connections.
//!
//! [`mod@plan`] has the cells, [`contender`] and [`task`] the contenders and their tasks, [`drive`]
//! runs a task, [`targets`] compares the figures with the target values, and [`table`] writes the
//! figures.

pub mod contender;
pub mod drive;
pub mod loopback;
pub mod plan;
pub mod record;
pub mod table;
mod targets;
pub mod task;
pub mod testbed;

use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::programs::{program, versions};
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;
use manyways_sys::signal::Termination;

use self::plan::{Cell, Entry, Setting, plan};
use self::record::{Extra, Figures, Record};
use self::testbed::Programs;
use crate::options::{Mode, Options, Pairs, require_root, required_program};

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
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    pairs: Pairs,
}

pub fn run(args: BondArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let pairs = args.pairs.find("n", &args.options.cells, &mut left_out)?;
    args.options.run(Mode::Default, plan(&pairs), left_out, |setup| {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot tell where this is: {error}"))?;
        let (ss, browser) = (required_program("ss")?, program("chromium"));
        require_root()?;
        let programs = Programs { manyways: setup.manyways, before: None, own, ss, browser };
        let found = [Some(programs.manyways.as_path()), programs.browser.as_deref()];
        let versions = versions(&found.map(|program| (program, "--version")));
        Ok((Bond { programs, termination: setup.termination, seed: setup.seed }, versions))
    })
}

/// State that all cells share.
pub struct Bond {
    pub programs: Programs,
    pub termination: Termination,
    pub seed: u64,
}

impl Family for Bond {
    const SCHEMA: &'static str = "manyways.bench-bond/2";
    type Contender = Entry;
    type Setting = Setting;
    type Figures = Figures;
    type Extra = Extra;

    fn seconds(cell: &Cell) -> f64 {
        plan::seconds_of_all(cell)
    }

    fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        match cell.setting.is_loopback {
            true => loopback::measure(self, cell, record, progress),
            false => drive::measure(self, cell, record, progress),
        }
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        table::page(results)
    }
}
