//! Measures a gateway on its worst day: under strangers, beside a greedy client, after a restart,
//! with a call beside a download; and, with `--before`, against an earlier version.
//!
//! [`mod@plan`] has the cells, [`faults`] runs what no other benchmark of `bond` runs, [`attack`] has
//! the attackers, and [`targets`] compares the figures with the target values.

mod attack;
mod faults;
mod plan;
pub mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use manyways_rig::launch::DriveError;
use manyways_rig::page::Page;
use manyways_rig::programs::versions;
use manyways_rig::results::{Family, ResultsOf};
use manyways_rig::target::Target;

use self::plan::{Cell, Entry, plan};
use crate::bond::record::{Extra, Figures, Record};
use crate::bond::testbed::Programs;
use crate::bond::{Bond, drive, loopback, table};
use crate::options::{Mode, Options, require_root, required_program};

/// Measure a gateway under strangers, beside a greedy client and after a restart (as root).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench gateway --json gateway.json --markdown gateway.md
  manyways-bench gateway --before ./manyways-0.1 --cells call,files")]
pub struct GatewayArgs {
    #[command(flatten)]
    options: Options,
    /// An earlier version of manyways, which takes turns with the one beside this program.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
}

pub fn run(args: GatewayArgs) -> Result<ExitCode, String> {
    let before = args.before;
    if let Some(file) = before.as_ref().filter(|file| !file.is_file()) {
        return Err(format!("--before: {} is not a file", file.display()));
    }
    let cells = plan(before.is_some());
    args.options.run(Mode::Default, cells, Vec::new(), |setup| {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot tell where this is: {error}"))?;
        let ss = required_program("ss")?;
        let browser = manyways_rig::programs::program("chromium");
        require_root()?;
        let programs = Programs { manyways: setup.manyways, before, own, ss, browser };
        let found = [Some(programs.manyways.as_path()), programs.browser.as_deref()];
        let versions = versions(&found.map(|program| (program, "--version")));
        let bond = Bond { programs, termination: setup.termination, seed: setup.seed };
        Ok((Gateway(bond), versions))
    })
}

struct Gateway(Bond);

impl Family for Gateway {
    const SCHEMA: &'static str = "manyways.bench-gateway/1";
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
        match plan::usual(cell) {
            Some(cell) if cell.setting.is_loopback => {
                loopback::measure(&self.0, &cell, record, progress)
            }
            Some(cell) => drive::measure(&self.0, &cell, record, progress),
            None => faults::measure(&self.0, cell, record, progress),
        }
    }

    fn targets(cells: &[Record]) -> Vec<Target> {
        targets::targets(cells)
    }

    fn page(results: &ResultsOf<Self>) -> String {
        let intro = format!(
            "Written by `make bench`. Figures are medians (quartiles). Missed targets come first. {}",
            failures(&results.cells)
        );
        let page = Page {
            title: "A gateway of manyways bond on its worst day",
            intro: &intro,
            parts: &[
                ("a", "Strangers"),
                ("b", "A greedy client"),
                ("c", "A gateway returns"),
                ("d", "A call beside a download"),
                ("e", "Beside an earlier version"),
            ],
            method: include_str!("gateway/method.md"),
            sockets: String::new(),
        };
        page.markdown(results, |out, cell| table::figures(out, cell, targets::judged))
    }
}

/// How many runs failed, and how many cells could not be measured.
fn failures(cells: &[Record]) -> String {
    let of = |cell: &Record| cell.failures(|_| true);
    let (failed, all) =
        cells.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut words = format!("Failed runs: {failed} of {all}.");
    let missing = cells.iter().filter(|cell| cell.error.is_some()).count();
    if missing > 0 {
        words += &format!(" Cells that could not be measured: {missing}.");
    }
    words
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;

    use super::*;

    #[test]
    fn the_page_states_how_many_runs_failed() {
        let run = |failed: Option<&str>| Run::of(Figures::default(), failed.map(str::to_owned));
        let cell = |runs| Record { runs, ..Record::default() };
        let of = |cells: &[Record]| failures(cells);
        let mut cells = vec![cell(vec![run(None), run(Some("reset"))]), cell(vec![run(None)])];
        assert_eq!(of(&cells), "Failed runs: 1 of 3.");
        cells.push(Record { error: Some("no lab".to_owned()), ..Record::default() });
        assert!(of(&cells).ends_with("3. Cells that could not be measured: 1."));
    }
}
