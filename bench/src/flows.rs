//! Compares `manyways flows` with other programs that read captures: tshark, tcptrace and NFStream,
//! over the same files in one run. Also measures how its time and memory grow.
//!
//! [`mod@plan`] has the cells, [`contender`] the contenders, [`drive`] runs them, [`targets`]
//! compares the figures with the target values, and [`table`] writes the figures. [`capture`]
//! creates the input files.

mod capture;
mod contender;
mod drive;
mod plan;
mod record;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;

pub use self::capture::Shape;
use self::contender::{Contender, Programs};
use self::drive::Driver;
pub use self::drive::make;
use self::plan::{Cell, Setting, plan};
use self::record::{Figures, More, Record};
use crate::options::{Modes, Options};

/// Compare `manyways flows` with tshark, tcptrace and NFStream.
///
/// It makes captures in the folder for temporary files (1.6 GB at most at a time), and installs
/// NFStream into a virtual environment in the user's cache. Tools that cannot be installed are omitted,
/// and the page lists them. Results are written after every cell, so that --resume can continue.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench flows --json flows.json --markdown flows.md
  manyways-bench flows --quick --cells headers")]
pub struct FlowsArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    modes: Modes,
    /// Another build of it to stand beside: of cargo build, where --manyways is of make release.
    #[arg(long, value_name = "FILE")]
    untrained: Option<PathBuf>,
}

pub fn run(args: FlowsArgs) -> Result<ExitCode, String> {
    let mode = args.modes.mode();
    args.options.run(mode, plan(mode), Vec::new(), |setup| {
        let absolute = |file: PathBuf| {
            std::path::absolute(&file).map_err(|error| format!("{}: {error}", file.display()))
        };
        let untrained = args.untrained.map(absolute).transpose()?;
        let programs = Programs::find(setup.manyways, untrained);
        let versions = programs.versions();
        Ok((Driver { programs, termination: setup.termination, seed: setup.seed }, versions))
    })
}

impl Family for Driver {
    const SCHEMA: &'static str = "manyways.bench-flows/1";
    type Contender = Contender;
    type Setting = Setting;
    type Figures = Figures;
    type More = More;

    fn seconds(cell: &Cell) -> f64 {
        plan::seconds(cell)
    }

    fn more(cell: &Cell) -> More {
        More { flows: cell.setting.shape.flows, ..More::default() }
    }

    fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        Driver::measure(self, cell, record, progress)
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        table::page(results)
    }
}
