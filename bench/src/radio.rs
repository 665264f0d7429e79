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
use std::process::ExitCode;

use manyways_rig::machine::Machine;
use manyways_rig::results::write;
use manyways_rig::target::{Target, missed_first};
use serde::Serialize;

use self::emulated::{Control, Pattern, Probed, Recording};
use self::quality::{Carrier, Constant, OfApps, Swept};
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
    /// A folder with recorded round trips after silences (the RRC probes of Narayanan et al., SIGCOMM
    /// 2021), to infer timers from.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    manyways: Option<PathBuf>,
}

/// All figures of a run.
#[derive(Serialize)]
pub struct Results {
    schema: &'static str,
    machine: Machine,
    mode: &'static str,
    seconds: f64,
    /// Omitted measurements, each with its reason.
    left_out: Vec<String>,
    targets: Vec<Target>,
    /// Number of traces of mixed days, and their total number of packets.
    traces: usize,
    packets: u64,
    days: u64,
    carriers: Vec<Carrier>,
    constants: Vec<Constant>,
    apps: Vec<OfApps>,
    swept: Vec<Swept>,
    /// Largest relative difference from the closed form.
    pings: Vec<pings::Ping>,
    speed: Vec<Speed>,
    memory: Vec<Memory>,
    recordings: Vec<Recording>,
    probed: Vec<Probed>,
    control: Vec<Control>,
    patterns: Vec<Pattern>,
}

pub fn run(args: RadioArgs) -> Result<ExitCode, String> {
    let began = std::time::SystemTime::now();
    let binary = binary(args.manyways)?;
    let (seeds, days, rounds) = if args.quick { (4, 1, 3) } else { (40, 3, 10) };
    let rounds = args.rounds.unwrap_or(rounds);
    let tell = |what: &str| eprintln!("measuring: {what}");
    let mut left_out = Vec::new();
    // Memory is measured first, while this process is still small.
    let memory = speed::memory(&binary, if args.quick { &[1, 4] } else { &[2, 20, 200] })?;
    tell("policies on mixed days");
    let (mixed, constants) = quality::mixed(seeds, days)?;
    tell("policies on single applications");
    let apps = quality::apps(if args.quick { 1 } else { 5 })?;
    tell("other energies of a switch");
    let swept = quality::sweep(if args.quick { 1 } else { 10 }, days)?;
    tell("pings");
    let pings = pings::pings();
    tell("speed");
    let speed = speed::speed(rounds)?;
    let recordings = match &args.recordings {
        Some(folder) => emulated::recordings(&binary, folder)?,
        None => {
            left_out.push("recorded round trips: no folder was given (--recordings)".to_owned());
            Vec::new()
        }
    };
    let is_root = manyways_sys::sandbox::is_root();
    if !is_root || args.quick {
        let why = if args.quick { "a look only" } else { "it takes root" };
        left_out.push(format!("emulated radios: {why}"));
    }
    let (mut probed, mut control, mut patterns) = (Vec::new(), Vec::new(), Vec::new());
    if is_root && !args.quick {
        tell("probing emulated radios");
        probed = emulated::probe(&binary, 5)?;
        tell("the live controller");
        control = emulated::control(&binary)?;
        tell("the patterns of the thesis, live (18 minutes)");
        patterns = emulated::patterns(&binary)?;
    }
    let mut results = Results {
        schema: "manyways.bench-radio/1",
        machine: Machine::here(&binary, Vec::new())?,
        mode: if args.quick { "quick" } else { "default" },
        seconds: began.elapsed().map_or(0.0, |time| time.as_secs_f64()),
        left_out,
        targets: Vec::new(),
        traces: mixed.traces,
        packets: mixed.packets,
        days,
        carriers: mixed.carriers,
        constants,
        apps,
        swept,
        pings,
        speed,
        memory,
        recordings,
        probed,
        control,
        patterns,
    };
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
