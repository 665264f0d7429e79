//! Compares `manyways flows` with other programs that read captures: tshark, tcptrace and NFStream,
//! over the same files in one run. Also measures how its time and memory grow.
//!
//! [`mod@plan`] has the cells, [`contender`] the contenders, and [`figures`] the tables and targets.

mod contender;
mod figures;
mod plan;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use manyways_rig::launch::{DriveError, system};
use manyways_rig::measure::{into_page_cache, load, measure};
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;
use manyways_sys::signal::Termination;

use self::contender::{Contender, Programs};
use self::figures::{Figures, More, Record};
use self::plan::{Cell, Setting, plan};
use crate::capture::{Source, TIMEOUT, Written};
use crate::options::{Modes, Options, binary};

/// Compare `manyways flows` with tshark, tcptrace and NFStream.
///
/// It makes captures in the folder for temporary files (1.6 GB at most at a time), and installs
/// NFStream into a virtual environment in the user's cache. Tools that cannot be installed are
/// omitted, and the page lists them. Results are written after every cell, so that --resume can
/// continue.
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
        let untrained = args.untrained.map(|file| binary(Some(file))).transpose()?;
        let programs = Programs::find(setup.manyways, untrained);
        let versions = programs.versions();
        Ok((Driver { programs, termination: setup.termination, seed: setup.seed }, versions))
    })
}

/// State that all cells share.
struct Driver {
    programs: Programs,
    /// Signals that end the whole benchmark.
    termination: Termination,
    /// Seed that determines the order of the contenders.
    seed: u64,
}

impl Family for Driver {
    const SCHEMA: &'static str = "manyways.bench-flows/2";
    type Contender = Contender;
    type Setting = Setting;
    type Figures = Figures;
    type Extra = More;

    fn seconds(cell: &Cell) -> f64 {
        let packets = cell.setting.capture.packets as f64;
        let speeds = cell.contenders.iter().map(|who| who.packets_per_second());
        // A pipe is as slow as the process that creates the packets.
        let made = packets / 1.5e6;
        let piped = if cell.setting.is_stream { made } else { 0.0 };
        f64::from(cell.rounds) * (speeds.map(|speed| packets / speed).sum::<f64>() + piped) + made
    }

    fn extra(cell: &Cell) -> More {
        More { flows: cell.setting.capture.flows, ..More::default() }
    }

    fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        record.extra.load = load();
        let folder = tempfile::tempdir().map_err(system("make a folder"))?;
        let (file, tables) = (folder.path().join("capture.pcap"), folder.path().join("tables"));
        let Setting { capture: shape, is_stream } = &cell.setting;
        let mut capture = Written::default();
        if !is_stream {
            capture = Source::write(shape, &file, &self.termination)?;
            self.check(&file, capture)?;
        }
        let mut contenders = cell.contenders.clone();
        contenders.retain(|who| {
            let missing = self.programs.file(*who).err();
            record.skipped.extend(missing.clone());
            missing.is_none()
        });
        let command = |who, file: &Path| {
            self.programs.command(who, file, &tables).map_err(DriveError::Server)
        };
        cell.run_rounds(&contenders, self.seed, record, progress, |_, who| {
            if *is_stream {
                let reader = command(*who, Path::new("-"))?;
                let (done, live, written) = Source::feed(shape, reader, &self.termination)?;
                capture = written;
                return Ok(Figures::of(done, live));
            }
            let program = self.programs.file(*who).map_err(DriveError::Server)?;
            for file in [program, &file] {
                into_page_cache(file).map_err(system("read a file"))?;
            }
            let done = measure(&mut command(*who, &file)?, TIMEOUT, Some(&self.termination))?;
            Ok(Figures::of(done, None))
        })?;
        record.extra.capture = capture;
        Ok(())
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        figures::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        figures::page(results)
    }
}

impl Driver {
    /// Checks before the measurement that `manyways flows` finds all packets.
    fn check(&self, file: &Path, written: Written) -> Result<(), DriveError> {
        let mut command = Command::new(&self.programs.manyways);
        command.args(["flows", "--json"]).arg(file).stdin(Stdio::null());
        let output = command.output().map_err(system("start manyways"))?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| DriveError::Server("manyways flows says no JSON".to_owned()))?;
        let found = &said["captures"][0]["packets"];
        if found.as_u64() == Some(written.packets) {
            return Ok(());
        }
        Err(DriveError::Server(format!("{found} packets were found of {}", written.packets)))
    }
}
