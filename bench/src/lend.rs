//! Compares `manyways bond lend` with other ways to use the network of a second device: kernel MPTCP
//! over a phone that forwards packets (kibbutz), byte ranges through a proxy on the phone (COMBINE),
//! and a bond over the phone as a router (tethered).
//!
//! [`mod@plan`] has the cells, [`devices`] starts all processes, [`mod@run`] runs a load, and [`targets`]
//! compares the figures with the target values.

mod devices;
mod plan;
mod run;
mod targets;

use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::page::Page;
use manyways_rig::programs::versions;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;

use self::plan::{Cell, Entry, plan};
use crate::bond::record::{Extra, Figures, Record};
use crate::bond::testbed::Programs;
use crate::bond::{Bond, table};
use crate::gateway::targets::judged;
use crate::options::{Modes, Options, Pairs, require_root, required_program};

/// Compare `manyways bond lend` with kibbutz, COMBINE and tethering (as root).
///
/// Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench lend --json lend.json --markdown lend.md
  manyways-bench lend --cells paper --rounds 2
  BENCH=full manyways-bench lend --json lend.json --resume")]
pub struct LendArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    pairs: Pairs,
}

pub fn run(args: LendArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let pairs = args.pairs.find("g", &args.options.cells, &mut left_out)?;
    let mode = args.modes.mode();
    args.options.run(mode, plan(mode, &pairs), left_out, |setup| {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot tell where this is: {error}"))?;
        let ss = required_program("ss")?;
        required_program("nft")?;
        require_root()?;
        let manyways = setup.manyways;
        let programs = Programs { manyways, before: None, own, ss, browser: None };
        let versions = versions(&[(Some(programs.manyways.as_path()), "--version")]);
        let bond = Bond { programs, termination: setup.termination, seed: setup.seed };
        Ok((Lend(bond), versions))
    })
}

struct Lend(Bond);

impl Family for Lend {
    const SCHEMA: &'static str = "manyways.bench-lend/1";
    type Contender = Entry;
    type Setting = ();
    type Figures = Figures;
    type Extra = Extra;

    fn seconds(cell: &Cell) -> f64 {
        plan::seconds(cell)
    }

    fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        run::measure(&self.0, cell, record, progress)
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        let page = Page {
            title: "manyways bond lend beside other ways to use a second device",
            intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
            parts: &[
                ("a", "The networks of the paper"),
                ("b", "Beside the bound"),
                ("c", "Three devices, and uploads"),
                ("d", "The pipe drops"),
                ("e", "The phone's network drops, and estimates"),
                ("f", "The pipe rises"),
                ("g", "Recorded networks"),
                ("h", "Lenders go and come, and loopback"),
            ],
            method: include_str!("lend/method.md"),
            sockets: String::new(),
        };
        page.markdown(results, |out, cell| table::figures(out, cell, judged))
    }
}
