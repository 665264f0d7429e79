//! Measures `manyways radio`: the energy that its policies save on held-out traces, the speed of
//! the policies, and the accuracy of inferred timers for known radios.
//!
//! All figures except those of speed and of emulated radios are equal in every run.

mod emulated;
mod page;
mod pings;
mod quality;
mod speed;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use manyways_rig::machine::Machine;
use manyways_rig::measure::measure;
use manyways_rig::results::write;
use manyways_rig::target::{Target, missed_first};
use manyways_sys::clock::Clock;
use manyways_unit::Span;
use serde::Serialize;
use serde_json::Value;

use self::emulated::{ControllerLoad, InferredRadio, Pattern, Recording};
use self::quality::{AppSavings, ConstantDelay, Operator, SweepPoint};
use self::speed::{Memory, Speed};
use crate::options::binary;

/// Measure the savings and the speed of radio policies (about 30 minutes; the emulated part needs
/// root).
///
/// Traces are generated from held-out seeds: no policy was developed with them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways-bench radio --json radio.json --markdown radio.md
  manyways-bench radio --quick")]
pub struct RadioArgs {
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// A look: fewer traces and rounds, and nothing emulated.
    #[arg(long)]
    quick: bool,
    /// How often speed is measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// A folder with recorded round trips after silences (the RRC probes of Narayanan et al.,
    /// SIGCOMM 2021), to infer timers from.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    manyways: Option<PathBuf>,
}

/// All figures of a run.
#[derive(Default, Serialize)]
pub struct Results {
    schema: &'static str,
    machine: Machine,
    mode: &'static str,
    seconds: f64,
    /// Omitted measurements, each with its reason.
    skipped: Vec<String>,
    targets: Vec<Target>,
    /// Number of traces of mixed days, and their total number of packets.
    traces: u64,
    packets: u64,
    days: u64,
    operators: Vec<Operator>,
    constants: Vec<ConstantDelay>,
    apps: Vec<AppSavings>,
    sweep: Vec<SweepPoint>,
    /// Largest relative difference from the closed form.
    pings: Vec<pings::Ping>,
    speed: Vec<Speed>,
    memory: Vec<Memory>,
    recordings: Vec<Recording>,
    inferred: Vec<InferredRadio>,
    control: Vec<ControllerLoad>,
    patterns: Vec<Pattern>,
}

pub fn run(args: RadioArgs) -> Result<ExitCode, String> {
    let clock = Clock::start();
    let binary = binary(args.manyways)?;
    let is_quick = args.quick;
    let (seeds, days, rounds) = if is_quick { (4, 1, 3) } else { (40, 3, 10) };
    let tell = |what: &str| eprintln!("measuring: {what}");
    let mut results = Results {
        schema: "manyways.bench-radio/2",
        machine: Machine::here(&binary, Vec::new())?,
        mode: if is_quick { "quick" } else { "default" },
        traces: seeds,
        days,
        // Memory is measured first, while this process is still small.
        memory: speed::memory(&binary, if is_quick { &[1, 4] } else { &[2, 20, 200] })?,
        ..Results::default()
    };
    tell("policies on mixed days");
    quality::mixed(&binary, seeds, days, &mut results)?;
    tell("policies on single applications");
    results.apps = quality::apps(&binary, if is_quick { 1 } else { 5 })?;
    tell("other energies of a switch");
    results.sweep = quality::sweep(&binary, if is_quick { 1 } else { 10 }, days)?;
    tell("pings");
    results.pings = pings::pings();
    tell("speed");
    results.speed = speed::speed(args.rounds.unwrap_or(rounds))?;
    match &args.recordings {
        Some(folder) => results.recordings = emulated::recordings(&binary, folder)?,
        None => results
            .skipped
            .push("recorded round trips: no folder was given (--recordings)".to_owned()),
    }
    if is_quick {
        results.skipped.push("emulated radios: a look only".to_owned());
    } else if !manyways_sys::sandbox::is_root() {
        results.skipped.push("emulated radios: it takes root".to_owned());
    } else {
        tell("probing emulated radios");
        results.inferred = emulated::probe(&binary, 5)?;
        tell("the live controller");
        results.control = emulated::control(&binary)?;
        tell("the patterns of the thesis, live (18 minutes)");
        results.patterns = emulated::patterns(&binary)?;
    }
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

/// Standard output of a command that succeeds.
fn output(command: &mut Command, timeout: Span) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let done = measure(command, timeout, None).map_err(|error| format!("{command:?}: {error}"))?;
    done.output().map_err(|why| format!("{command:?}: {why}"))
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}
