//! Measures `manyways record` and `manyways replay`: how near replays are to the recorded traffic, beside
//! mitmproxy and nginx, and which of several networks an application is fastest over.
//!
//! [`cells`] reads the fixed cells, [`mod@plan`] makes the plan of them, [`targets`] compares the figures
//! with the target values, and each other module runs the experiment of its name.

mod cells;
mod drives;
mod internet;
mod matching;
mod mitmproxy;
mod pages;
mod plan;
mod recorder;
mod same;
mod servers;
mod targets;
mod think;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::page::Page;
use manyways_rig::programs::versions;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;

pub use self::pages::origins::{PageOriginsArgs, run as page_origins};
use self::plan::{Cell, Experiment, plan};
pub use self::tools::{ConnectArgs, OriginArgs, ReplayedArgs, connect, origin, replayed, request};
use crate::figures::{Figures, Record, figures_table};
use crate::options::{Mode, Options, require_root, required_program};
use crate::shell::Tools;

/// Compare `manyways replay` with live origins, nginx and mitmproxy (15 minutes, as root).
///
/// Results are written after every cell, so that --resume can go on after an end.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench replay --json replay.json --markdown replay.md
  manyways-bench replay --cells think,server --rounds 1
  manyways-bench replay --list")]
pub struct ReplayArgs {
    #[command(flatten)]
    options: Options,
    /// The folder with HAR files of page loads; MANYWAYS_HARS in the environment has the same effect.
    #[arg(long, value_name = "DIR")]
    hars: Option<PathBuf>,
}

pub fn run(args: ReplayArgs) -> Result<ExitCode, String> {
    let mut left_out = Vec::new();
    let hars = args.hars.or_else(|| std::env::var_os("MANYWAYS_HARS").map(PathBuf::from));
    let hars = hars.unwrap_or_else(|| PathBuf::from(HARS));
    let cells = plan(&hars, &mut left_out)?;
    args.options.run(Mode::Default, cells, left_out, move |setup| {
        require_root()?;
        let options =
            [("curl", "-V"), ("nginx", "-v"), ("chromium", "--version"), ("h2load", "--version")];
        let mut found = vec![(setup.manyways.clone(), "--version")];
        for (name, option) in options {
            found.push((required_program(name)?, option));
        }
        let found: Vec<_> =
            found.iter().map(|(path, option)| (Some(path.as_path()), *option)).collect();
        let versions = versions(&found);
        Ok((Replay { tools: Tools::new(setup)?, hars }, versions))
    })
}

/// Where the HAR files are by default.
const HARS: &str = "../shared/har";

/// State that all cells share.
struct Replay {
    tools: Tools,
    /// Folder of HAR files.
    hars: PathBuf,
}

impl Family for Replay {
    const SCHEMA: &'static str = "manyways.bench-replay/1";
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
            Experiment::Matching(seeds) => matching::measure(self, cell, *seeds, record, progress),
            Experiment::Same => same::measure(self, cell, record, progress),
            Experiment::Pages(loads) => pages::measure(self, cell, loads, record, progress),
            Experiment::RecordedPage(loads) => pages::recorded(self, cell, loads, record, progress),
            Experiment::Think(think) => think::measure(self, cell, think, record, progress),
            Experiment::Connections(seconds) => {
                recorder::connections(self, cell, *seconds, record, progress)
            }
            Experiment::Server(size, seconds) => {
                servers::measure(self, cell, (*size, *seconds), record, progress)
            }
            Experiment::Drives(class, drive) => {
                drives::measure(self, cell, *class, drive, record, progress)
            }
        }
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        let page = Page {
            title: "manyways record and replay beside what they record, nginx and mitmproxy",
            intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
            parts: &[
                ("a", "The same exchanges"),
                ("b", "Think times"),
                ("c", "Page loads"),
                ("d", "The recorder"),
                ("e", "The server"),
                ("f", "Matching"),
                ("g", "Driven replays"),
            ],
            method: include_str!("replay/method.md"),
            sockets: String::new(),
        };
        page.markdown(results, figures)
    }
}

fn figures(out: &mut String, cell: &Record) {
    if cell.part == "g" {
        return drives::figures(out, cell);
    }
    figures_table(out, cell);
}
