//! Compares `manyways get` with its alternatives over emulated links in one run: one network, fixed
//! chunks, aria2 and the kernel's Multipath TCP.
//!
//! [`mod@plan`] has the cells, [`manyways_rig::download`] the contenders, [`drive`] runs a
//! download, [`targets`] compares the figures with the target values, and [`table`] writes the
//! figures.

mod drive;
mod plan;
mod record;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::WebServer;
use manyways_rig::download::Programs;
use manyways_rig::launch::DriveError;
use manyways_rig::links::mean_rate;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;
use manyways_sys::signal::Termination;

use self::plan::{Cell, Entry, Setting, plan};
use self::record::{Extra, Figures, Record};
use crate::options::{Modes, Options, Pairs, require_root, required_program};

/// Compare `manyways get` with one network, fixed chunks, aria2 and kernel MPTCP (as root).
///
/// It measures over emulated links what fits into an hour, or with --full everything, which takes
/// many. Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench get --json get.json --markdown get.md
  manyways-bench get --quick --cells e,g
  manyways-bench get --cells j,k,l --json get-new.json
  manyways-bench get --full --list")]
pub struct GetArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    pairs: Pairs,
}

pub fn run(args: GetArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let pairs = args.pairs.find("b, j", &args.options.cells, &mut left_out)?;
    let mode = args.modes.mode();
    let cells = plan(mode, &args.options.cells, &pairs);
    args.options.run(mode, cells, left_out, |setup| {
        require_root()?;
        let (programs, ss) = (Programs::find(setup.manyways), required_program("ss")?);
        let others = WebServer::ALL.into_iter().filter(|server| *server != WebServer::Nginx);
        let others = others.filter_map(WebServer::version);
        let versions = programs.versions().into_iter().chain(others).collect();
        Ok((Get { programs, ss, termination: setup.termination, seed: setup.seed }, versions))
    })
}

/// State that all cells share.
struct Get {
    programs: Programs,
    /// Path of the program `ss`, which prints the sockets' congestion control.
    ss: PathBuf,
    termination: Termination,
    seed: u64,
}

impl Family for Get {
    const SCHEMA: &'static str = "manyways.bench-get/2";
    type Contender = Entry;
    type Setting = Setting;
    type Figures = Figures;
    type Extra = Extra;

    fn seconds(cell: &Cell) -> f64 {
        plan::seconds_of_all(cell)
    }

    fn extra(cell: &Cell) -> Extra {
        Extra {
            link_bps: cell.links.iter().map(|link| mean_rate(link).as_bps()).collect(),
            warm: cell.setting.warm,
            constant: cell.is_constant(),
            ..Extra::default()
        }
    }

    fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        drive::measure(self, cell, record, progress)
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        table::page(results)
    }
}
