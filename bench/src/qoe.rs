//! Measures films and pages: players beside Sabre and dash.js, `manyways get --serve` beside MSPlayer's
//! scheduler and the kernel's Multipath TCP.
//!
//! [`cells`] reads the fixed cells, [`mod@plan`] makes the plan of them, [`play`] plays films in labs,
//! [`pages`] loads pages in labs, [`targets`] compares the figures with the target values, and each other module runs the experiment of
//! its name.

mod cells;
mod one_network;
mod pages;
mod plan;
mod play;
mod sabre;
mod targets;
mod two_networks;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::page::Page;
use manyways_rig::programs::versions;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;
use manyways_unit::Span;

pub use self::pages::{KnownPageLoadArgs, KnownPageServeArgs, known_page_load, known_page_serve};
use self::plan::{Cell, Experiment, plan};
use crate::figures::{Figures, Record, figures_table};
use crate::options::{Modes, Options, Pairs, require_root, required_program};
use crate::shell::Tools;

/// Compare players of films with Sabre, dash.js, MSPlayer and the kernel's MPTCP (15 minutes, as root).
///
/// Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench qoe --json qoe.json --markdown qoe.md
  manyways-bench qoe --cells two-5-5 --jobs 1
  manyways-bench qoe --list")]
pub struct QoeArgs {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    modes: Modes,
    #[command(flatten)]
    pairs: Pairs,
    /// The folder with sabre.py and its films.
    #[arg(long, value_name = "DIR", default_value = "../shared/tools/sabre")]
    sabre: PathBuf,
    /// The folder with folders of Sabre's traces.
    #[arg(long, value_name = "DIR", default_value = "../shared/traces/abr")]
    traces: PathBuf,
    /// Labs at a time; by default the cells decide.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Duration of the films; by default the cells decide.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
}

pub fn run(args: QoeArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let mode = args.modes.mode();
    let pairs = args.pairs.find("b, d", &[], &mut left_out)?;
    let cells = plan(mode, &pairs, (args.jobs, args.duration))?;
    let (sabre, traces) = (args.sabre, args.traces);
    args.options.run(mode, cells, left_out, move |setup| {
        require_root()?;
        let mut found = vec![(setup.manyways.clone(), "--version")];
        for (name, option) in [("nginx", "-v"), ("chromium", "--version")] {
            found.push((required_program(name)?, option));
        }
        let found: Vec<_> =
            found.iter().map(|(path, option)| (Some(path.as_path()), *option)).collect();
        let versions = versions(&found);
        Ok((Qoe { tools: Tools::new(setup)?, sabre, traces }, versions))
    })
}

/// State that all cells share.
struct Qoe {
    tools: Tools,
    /// Folder of Sabre.
    sabre: PathBuf,
    /// Folder of its traces.
    traces: PathBuf,
}

impl Family for Qoe {
    const SCHEMA: &'static str = "manyways.bench-qoe/1";
    type Contender = &'static str;
    type Setting = Experiment;
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
        match &cell.setting {
            Experiment::None => Ok(()),
            Experiment::Sabre(with) => sabre::measure(self, cell, with, record, progress),
            Experiment::OneNetwork(film, one) => {
                one_network::measure(self, cell, (film, one), record, progress)
            }
            Experiment::TwoNetworks(film, step) => {
                two_networks::measure(self, cell, film, *step, record, progress)
            }
            Experiment::Pages(pages) => pages::measure(self, cell, pages, record, progress),
        }
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        let page = Page {
            title: "Films and pages beside Sabre, dash.js, MSPlayer and the kernel's MPTCP",
            intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
            parts: &[
                ("a", "The player in virtual time"),
                ("b", "Films over one network"),
                ("c", "Films over two networks"),
                ("d", "Films over recorded pairs of networks"),
                ("e", "Pages"),
            ],
            method: include_str!("qoe/method.md"),
            sockets: String::new(),
        };
        page.markdown(results, figures_table)
    }
}
