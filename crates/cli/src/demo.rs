//! `manyways demo`: one file over emulated Wi-Fi, over LTE, with kernel MPTCP, in fixed chunks and
//! with `manyways get`.

mod contender;
mod document;
mod outcome;
mod page;
mod sampling;
mod setting;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::LabError;
use manyways_record::document::{to_json, to_json_pretty};
use manyways_rig::download::{Downloader, Programs};
use manyways_rig::launch::{DriveError, Launcher};
use manyways_rig::programs::program;
use manyways_rig::{Origin, WARM_UP};
use manyways_sys::signal::Termination;
use manyways_unit::{Size, Span};

use crate::failure::Failure;
use crate::lab::{lab_failure, prepare};
use crate::report_file::{check_folder, write};
use contender::{Run, Testbed, cell};
use document::document;
use outcome::Outcome;

/// Name of the far host in the lab.
const HOST: &str = "origin.lab";
/// Size of the file.
const SIZE: Size = Size::from_bytes(8_000_000);
/// Timeout of the first small request, in seconds.
const WARM_UP_TIMEOUT: f64 = 15.0;

/// Watch a download use Wi-Fi and LTE at once, on this machine alone.
///
/// Builds a lab with an emulated Wi-Fi link, an emulated LTE link and a real nginx server,
/// and fetches 8 MB five times: over each link alone; over both with the kernel's Multipath TCP, in
/// fixed chunks, and as `manyways get` does by default. Reports the time of each. No traffic leaves the
/// machine. Needs root and nginx.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways demo
  manyways demo --report /tmp/demo.html --json result.json
  manyways demo --json - | jq '.contenders[] | {name, seconds}'")]
pub struct Args {
    /// Write the report to this file: one HTML file, without external resources.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Write the result as JSON to this file too (`-` for standard output, instead of the table).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the charts as an SVG picture, for a README or a slide.
    #[arg(long, value_name = "FILE", hide = true)]
    picture: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    program("nginx").ok_or_else(|| {
        Failure::new("nginx, which serves the file, is not installed")
            .hint("install it (Debian: apt-get install nginx-light), or run `make demo`")
    })?;
    // Checked before the runs, which take half a minute.
    for file in [Some(&args.report), args.picture.as_ref()].into_iter().flatten() {
        check_folder(file)?;
    }
    // It refuses with a hint before anything starts.
    prepare().context("the demonstration needs root")?;
    let termination = Termination::take().context("cannot watch for signals")?;
    let programs =
        Programs::find(std::env::current_exe().context("cannot tell where this program is")?);
    let outcome = match run_contenders(&programs, &termination) {
        Ok(outcome) => outcome,
        Err(DriveError::Stopped(signal)) => return Ok(ExitCode::from(128 + signal as u8)),
        Err(DriveError::Lab(error)) => return Err(demo_failure(error).into()),
        Err(error) => return Err(Failure::new(error.to_string()).into()),
    };
    write(&args.report, &page::html(&outcome))?;
    if let Some(file) = &args.picture {
        write(file, &page::picture(&outcome))?;
    }
    match &args.json {
        Some(file) if file.as_os_str() == "-" => print!("{}", to_json(&document(&outcome))?),
        Some(file) => {
            write(file, &to_json_pretty(&document(&outcome))?)?;
            print!("\n{}", outcome.text());
        }
        None => print!("\n{}", outcome.text()),
    }
    eprintln!("\nThe report with charts is in {}.", args.report.display());
    Ok(if outcome.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs every contender once, in a lab that ends before the result is written.
fn run_contenders(programs: &Programs, termination: &Termination) -> Result<Outcome, DriveError> {
    let cell = cell();
    let mut launcher = Launcher::start(&cell, "demo", 1, termination)?;
    eprint!("{}", outcome::wrap(&setting::describe()));
    let origin = Origin::start(&mut launcher.lab, 1, HOST, &[SIZE])?;
    let stage = Testbed { launcher: &launcher, programs, origin: &origin, links: &cell.links };
    // One small request over every link, so that no contender pays for one-time costs: the first
    // answers of the server and the resolvers. It also shows that the server answers.
    let greeting = stage.fetch(&cell.links, WARM_UP);
    let none = (Span::ZERO, &[][..]);
    let greeted = greeting.run(Downloader::MpH2, &launcher, WARM_UP_TIMEOUT, none, None)?;
    greeted.outcome.map_err(|reason| {
        DriveError::Server(format!("the server in the lab does not answer: {reason}"))
    })?;
    let mut runs: Vec<Run> = Vec::with_capacity(cell.contenders.len());
    for contender in &cell.contenders {
        let run = contender.run(&stage)?;
        eprintln!("{}", run.line());
        runs.push(run);
    }
    Ok(Outcome::new(origin.object(SIZE), runs))
}

fn demo_failure(error: LabError) -> Failure {
    let permitted =
        !matches!(error, LabError::NotPermitted(_) | LabError::CongestionControl { .. });
    let failure = lab_failure(error);
    if permitted { failure } else { failure.hint("run the demonstration as root") }
}
