//! Measures `manyways steer` on tables of transfers whose completion times are known for every
//! choice: how near its choices are to the best ones, at places that it has not seen.
//!
//! All figures but those of speed are equal in every run.

mod bond_lab;
mod data;
mod download;
mod emulated;
mod evaluate;
mod lab_download;
mod moves;
mod page;
mod probing;
mod speed;
mod square;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use manyways_net::steer::train;
use manyways_rig::launch::DriveError;
use manyways_rig::machine::Machine;
use manyways_rig::results::write;
use manyways_rig::target::{Target, missed_first};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use serde::Serialize;

use self::data::Set;
pub use self::data::{DataArgs, write_data};
use self::download::Download;
use self::emulated::Emulated;
use self::evaluate::{Outcome, Seen};
use self::lab_download::LabDownload;
use self::moves::Changes;
use self::probing::Probing;
use self::speed::Speed;
use self::square::Square;
pub use self::tables::{DefaultArgs, write_default};
use crate::options::binary;

/// Measure the choices of `manyways steer` on tables of transfers (about 15 minutes; 4 of them make
/// the tables, which are kept, and 8 are for labs, as root).
///
/// Models are trained with scikit-learn, without the walk or the log that they are tested on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench steer --json steer.json --markdown steer.md
  manyways-bench steer --python venv/bin/python")]
pub struct SteerArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// A Python with scikit-learn; MANYWAYS_PYTHON in the environment has the same effect.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Only what needs a lab (8 minutes): no tables and no models.
    #[arg(long)]
    labs: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// All figures of a run.
#[derive(Default, Serialize)]
pub struct Results {
    schema: &'static str,
    machine: Machine,
    seconds: f64,
    /// Omitted measurements, each with its reason.
    skipped: Vec<String>,
    targets: Vec<Target>,
    /// Unseen places.
    outcomes: Vec<Outcome>,
    /// Seen places.
    seen: Vec<Seen>,
    probing: Vec<Probing>,
    speed: Vec<Speed>,
    downloads: Vec<Download>,
    squares: Vec<Square>,
    emulated: Vec<Emulated>,
    lab_downloads: Vec<LabDownload>,
    changes: Changes,
}

pub fn run(args: SteerArgs) -> Result<ExitCode, String> {
    let clock = Clock::start();
    let python = train::python(args.python.as_deref());
    let mut results = Results {
        schema: "manyways.bench-steer/1",
        machine: Machine::here(Path::new(&binary(None)?), Vec::new())?,
        ..Results::default()
    };
    // No thread runs, and nothing else of this program watches for signals.
    let termination =
        Termination::take().map_err(|error| format!("cannot watch for signals: {error}"))?;
    if !args.labs {
        on_tables(&args, &python, &mut results, &termination)?;
    }
    in_labs(&args.data, &mut results, &termination)?;
    results.seconds = clock.now().as_secs_f64();
    results.targets = missed_first(page::targets(&results));
    let page = page::page(&results);
    if let Some(file) = &args.markdown {
        write(file, &page)?;
    }
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
        write(file, &(json + "\n"))?;
    }
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

fn tell(what: &str) {
    eprintln!("measuring: {what}");
}

/// Measures on the tables of transfers, and eight of their cells by emulation.
fn on_tables(
    args: &SteerArgs,
    python: &Path,
    results: &mut Results,
    termination: &Termination,
) -> Result<(), String> {
    write_data(&args.data)?;
    for set in [Set::A, Set::B] {
        if !args.data.includes(set) {
            results.skipped.push(format!("set ({set}): --set names another one"));
            continue;
        }
        let Some(transfers) = tables::read(&args.data, set)? else {
            results.skipped.push(format!("set ({set}): its recordings are missing"));
            continue;
        };
        tell(&format!("unseen places of ({set})"));
        let models = evaluate::train_folds(python, &transfers)?;
        results.outcomes.extend(evaluate::unseen(set, &transfers, &models)?);
        tell(&format!("probes at the places of ({set})"));
        results.probing.extend(probing::probing(set, &transfers, &models)?);
        tell(&format!("seen places of ({set})"));
        results.seen.extend(evaluate::seen(set, &transfers, python)?);
        if set != Set::A {
            continue;
        }
        tell("speed");
        results.speed = speed::speed(&transfers, &models)?;
        tell("long downloads");
        let places = data::places(set, &args.data)?;
        results.downloads = places.iter().map(download::download).collect::<Result<_, _>>()?;
        if let Some(reason) = emulated::obstacle() {
            results.skipped.push(format!("cells by emulation: {reason}"));
            continue;
        }
        tell("cells by emulation");
        results.emulated = emulated::emulate(&places, &transfers, binary(None)?, termination)?;
    }
    if args.data.includes(Set::C)
        && let Some(transfers) = tables::read(&args.data, Set::C)?
    {
        tell("probes at the places of (c)");
        let folds = evaluate::default_folds(&transfers)?;
        results.probing.extend(probing::probing(Set::C, &transfers, &folds)?);
    }
    tell("square waves");
    results.squares = square::squares()?;
    Ok(())
}

/// Measures what needs a lab.
fn in_labs(
    data: &DataArgs,
    results: &mut Results,
    termination: &Termination,
) -> Result<(), String> {
    if let Some(reason) = bond_lab::obstacle() {
        results.skipped.push(format!("downloads and changes in a lab: {reason}"));
        return Ok(());
    }
    let programs = bond_lab::programs()?;
    let skipped = &mut results.skipped;
    let mut skip = |what: &str, measured: Result<(), DriveError>| match measured {
        Err(error @ DriveError::Stopped(_)) => Err(error.to_string()),
        Err(error) => {
            skipped.push(format!("{what}: {error}"));
            Ok(())
        }
        Ok(()) => Ok(()),
    };
    tell("changes in a lab");
    let measured = moves::changes(&programs, termination, &mut results.changes);
    skip("changes in a lab", measured)?;
    tell("downloads in a lab");
    let (places, all) = (data::places(Set::A, data)?, &mut results.lab_downloads);
    let measured = lab_download::downloads(&places, &programs, termination, all);
    skip("downloads in a lab", measured)?;
    Ok(())
}
