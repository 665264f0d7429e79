//! `manyways demo`: one file over emulated Wi-Fi, over LTE, with kernel MPTCP, in fixed chunks and
//! with `manyways get`.

mod contender;
mod kernel;
mod outcome;
mod page;
mod requests;
mod setting;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::{DEFAULT_CC, Lab, LabError, LabSpec};
use manyways_rig::download::{Downloader, Programs};
use manyways_rig::launch::{DriveError, Launcher, first_line};
use manyways_rig::programs::program;
use manyways_rig::{Origin, WARM_UP};
use manyways_sys::signal::Termination;
use manyways_unit::Size;

use crate::failure::Failure;
use crate::lab::{lab_failure, prepare};
use crate::report_file::{check_folder, write};
use contender::{CONTENDERS, Run, Stage};
use outcome::Outcome;
use setting::Setting;
use watch::Display;

/// Name of the far host in the lab.
const HOST: &str = "origin.lab";
/// Size of the file.
const SIZE: Size = Size::from_bytes(8_000_000);
/// Timeout of the first small request, in seconds.
const GREETING: f64 = 15.0;

/// Watch a download use Wi-Fi and LTE at once, on this machine alone.
///
/// Builds a lab with an emulated Wi-Fi and an emulated LTE link and a real nginx behind them,
/// fetches 8 MB over each link alone, over both with the kernel's Multipath TCP, in fixed chunks and
/// as `manyways get` does by default, and reports the time of each. No traffic leaves the machine. Needs root and nginx.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways demo
  manyways demo --report /tmp/demo.html --json result.json
  manyways demo --json - | jq '.contenders[] | {name, seconds}'")]
pub struct Args {
    /// Where the report goes: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Write the result as JSON to this file too (`-` for standard output, in the table's place).
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
    let setting = Setting::new()?;
    let registry = prepare().context("the demonstration needs root")?;
    let termination = Termination::take().context("cannot watch for signals")?;
    let spec = LabSpec::new(format!("demo-{}", std::process::id()), setting.specs());
    let lab = Lab::start(&registry, spec).map_err(demo_failure)?;
    eprint!("{}", outcome::wrapped(&setting.describe(DEFAULT_CC)));
    let programs =
        Programs::find(std::env::current_exe().context("cannot tell where this program is")?);
    let outcome = match contend(Launcher::over(lab, true, &termination), &programs, &setting) {
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
        Some(file) if file.as_os_str() == "-" => println!("{}", serde_json::to_string(&outcome)?),
        Some(file) => {
            write(file, &(serde_json::to_string_pretty(&outcome)? + "\n"))?;
            print!("\n{}", outcome.text());
        }
        None => print!("\n{}", outcome.text()),
    }
    eprintln!("\nThe report with charts is in {}.", args.report.display());
    Ok(if outcome.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs every contender once, in a lab that ends before the result is written.
fn contend(
    mut launcher: Launcher<'_>,
    programs: &Programs,
    setting: &Setting,
) -> Result<Outcome, DriveError> {
    let origin = Origin::start(&mut launcher.lab, 1, HOST, &[SIZE])?;
    let links = setting.specs();
    let stage = Stage { launcher: &launcher, programs, origin: &origin, links: &links };
    // One small request over every link, so that no contender pays for one-time costs: the first
    // answers of the server and the resolvers. It also shows that the server answers.
    let greeting = stage.command(Downloader::MpH2, &links, WARM_UP);
    let greeted = launcher.run(greeting, GREETING, Default::default(), &[])?;
    if greeted.success != Some(true) {
        let complaint = first_line(&greeted.stderr);
        return Err(DriveError::Site(format!(
            "the server in the lab does not answer: {complaint}"
        )));
    }
    let mut runs: Vec<Run> = Vec::with_capacity(CONTENDERS.len());
    for contender in &CONTENDERS {
        let run = contender.run(&stage, Display::new(contender.label, setting, SIZE))?;
        eprintln!("{}", run.line());
        runs.push(run);
    }
    Ok(Outcome::new(setting, origin.object(SIZE), DEFAULT_CC, runs))
}

fn demo_failure(error: LabError) -> Failure {
    let permitted =
        !matches!(error, LabError::NotPermitted(_) | LabError::CongestionControl { .. });
    let failure = lab_failure(error);
    if permitted { failure } else { failure.hint("run the demonstration as root") }
}
