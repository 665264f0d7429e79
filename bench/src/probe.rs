//! Compares `manyways probe` with the settings and counters of emulated links, and with programs of
//! others in the same run.
//!
//! [`mod@plan`] has the cells, [`drive`] runs them, [`programs`] reads what programs print,
//! [`packets`] captures, [`route`] builds routes, [`mod@forecast`] evaluates comparisons in virtual
//! time, [`targets`] compares the figures with the target values, and [`table`] writes them.

mod drive;
mod forecast;
mod packets;
mod plan;
mod programs;
mod record;
mod route;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::links::Pair;
use manyways_rig::programs::versions;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;
use manyways_sys::signal::Termination;

pub use self::forecast::{ForecastArgs, forecast};
use self::plan::{Cell, Setting, plan};
use self::record::{Figures, Record};
use crate::options::{Mode, Options, Pairs, require_root, required_program};

/// Compare `manyways probe` with the truth, fping, iperf3, mtr and dig (15 minutes, as root).
///
/// Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench probe --json probe.json --markdown probe.md
  manyways-bench probe --cells ping,trace --rounds 3
  manyways-bench probe --list")]
pub struct ProbeArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    pairs: Pairs,
}

pub fn run(args: ProbeArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let pairs = args.pairs.find("h", &args.options.cells, &mut left_out)?;
    args.options.run(Mode::Default, plan(&pairs), left_out, move |setup| {
        require_root()?;
        let others = [("fping", "-v"), ("iperf3", "--version"), ("mtr", "--version")];
        let more = [("dig", "-v"), ("tcpdump", "--version"), ("nginx", "-v"), ("curl", "-V")];
        let mut found = vec![(setup.manyways.clone(), "--version")];
        for (name, option) in others.into_iter().chain(more) {
            found.push((required_program(name)?, option));
        }
        let found: Vec<_> =
            found.iter().map(|(path, option)| (Some(path.as_path()), *option)).collect();
        let versions = versions(&found);
        let (manyways, termination, seed) = (setup.manyways, setup.termination, setup.seed);
        Ok((Probe { manyways, pairs, termination, seed }, versions))
    })
}

/// State that all cells share.
struct Probe {
    manyways: PathBuf,
    /// Recorded pairs of links.
    pairs: Vec<Pair>,
    termination: Termination,
    seed: u64,
}

impl Family for Probe {
    const SCHEMA: &'static str = "manyways.bench-probe/1";
    type Contender = &'static str;
    type Setting = Setting;
    type Figures = Figures;
    type Extra = ();

    fn seconds(cell: &Cell) -> f64 {
        plan::seconds(cell)
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
