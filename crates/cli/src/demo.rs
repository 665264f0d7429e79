//! `manyways demo`: the same file over emulated Wi-Fi, LTE, kernel MPTCP, in fixed chunks and with
//! `manyways get`.

mod contender;
mod kernel;
mod outcome;
mod page;
mod requests;
mod setting;
mod site;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::{DEFAULT_CC, Lab, LabError, LabSpec};
use manyways_sys::signal::Termination;

use crate::failure::Failure;
use crate::lab::{lab_failure, prepare};
use crate::report_file::{check_folder, write};
use contender::{CONTENDERS, Run};
use outcome::Outcome;
use setting::Setting;
use site::Site;
use watch::{Display, Stopped};

/// Watch a download use Wi-Fi and LTE at once, on this machine alone.
///
/// Builds a lab with an emulated Wi-Fi and an emulated LTE link and a real nginx behind them,
/// fetches 8 MB over each link alone, over both with the kernel's Multipath TCP, in fixed chunks and
/// as `manyways get` does by itself, and says how long each took. Nothing leaves the machine. Needs root and nginx.
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
    let nginx = site::nginx()?;
    // Better now than after half a minute.
    for file in [Some(&args.report), args.picture.as_ref()].into_iter().flatten() {
        check_folder(file)?;
    }
    let setting = Setting::new()?;
    let registry = prepare().context("the demonstration needs root")?;
    let termination = Termination::take().context("cannot watch for signals")?;
    let name = format!("demo-{}", std::process::id());
    let spec = LabSpec { numbered: true, ..LabSpec::new(name, setting.specs()) };
    let mut lab = Lab::start(&registry, spec).map_err(demo_failure)?;
    eprint!("{}", outcome::wrapped(&setting.describe(DEFAULT_CC)));
    let outcome = match contend(&mut lab, &nginx, &setting, &termination) {
        Ok(outcome) => outcome,
        Err(error) => match error.downcast_ref::<Stopped>() {
            Some(Stopped(signal)) => return Ok(ExitCode::from(128 + *signal as u8)),
            None => return Err(error),
        },
    };
    // Whatever is done with the result, the lab is not needed for it.
    drop(lab);
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

fn contend(
    lab: &mut Lab,
    nginx: &Path,
    setting: &Setting,
    termination: &Termination,
) -> Result<Outcome> {
    let site = Site::start(lab, nginx)?;
    site.warm_up(lab, termination)?;
    let mut runs: Vec<Run> = Vec::with_capacity(CONTENDERS.len());
    for contender in &CONTENDERS {
        let display = Display::new(contender.label, setting, site.size());
        let run = contender.run(lab, &site, display, termination)?;
        eprintln!("{}", run.line());
        runs.push(run);
    }
    Ok(Outcome::new(setting, &site, DEFAULT_CC, runs))
}

fn demo_failure(error: LabError) -> Failure {
    let permitted =
        !matches!(error, LabError::NotPermitted(_) | LabError::CongestionControl { .. });
    let failure = lab_failure(error);
    if permitted { failure } else { failure.hint("run the demonstration as root") }
}
