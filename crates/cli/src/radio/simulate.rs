//! `manyways radio simulate`: compares policies on traces.

mod charts;
mod page;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use manyways_model::radio::DelayTolerance;
use manyways_model::radio::sweep::{Sweep, Variants};
use manyways_net::radio::runs::{self, Document, Results, TraceResult};
use manyways_net::radio::trace::Trace;
use manyways_record::document;

use super::named_profile;
use super::traces::{self, GeneratorArgs, TraceArgs, failure, with_progress};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Compare policies for the radio's idle state on traces
///
/// For every trace, radio and policy: energy saved compared with the network's timers, number of
/// switches, errors compared with the oracle, and delays of sessions. The times of packets do not
/// depend on the radio, except in delayed sessions.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio simulate day.csv
  manyways radio simulate day.csv --profile lte --policy makeidle,context,oracle
  manyways radio simulate --app mixed-day --seed 1-20 --report policies.html
  manyways radio simulate --app mixed-day --tolerant email,news --policy makeidle+makeactive
  manyways radio simulate day.csv --policy makeidle --sweep n=10,50,100,400
  manyways radio simulate day.csv --sweep e-switch=0.5,1,2 --sweep turn-off=0.1,0.2,0.4,0.5
  manyways radio simulate 'traces/day.csv' --json --parquet runs.parquet

Policies:
  status-quo                 the network's timers
  fixed[:SECONDS]            a constant wait (4.5 s)
  iat[:P]                    the P-quantile (0.95) of the trace's gaps
  threshold                  the gap above which immediate dormancy saves energy
  oracle                     knows the next gap
  makeidle[:N]               the best wait for the last N gaps (100)
  printed                    makeidle with the equations exactly as printed in the thesis
  context                    the best wait after similar packets
  makeactive-fixed[:HOLD]    delays sessions by a constant time
  makeactive[:EXPERTS]       delays sessions by a learned time (10)
  makeidle+makeactive        both: makeidle goes idle, makeactive delays sessions

Only sessions that --tolerant or --rules name are delayed.
Exit code: 0; 1 when a trace cannot be read; 2 when the arguments are invalid; 128 + n when signal n
ends the run.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    generator: GeneratorArgs,
    /// Radios: names of `manyways radio profiles` or files
    #[arg(
        long,
        value_name = "PROFILES",
        value_delimiter = ',',
        default_value = "att-hspa,tmobile-3g,verizon-3g,verizon-lte"
    )]
    profile: Vec<String>,
    /// Policies to compare
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "fixed,iat,threshold,makeidle,context,oracle"
    )]
    policy: Vec<String>,
    /// Applications with delay-tolerant sessions, by name in the trace; `*` matches any characters
    #[arg(long, value_name = "APPS", value_delimiter = ',')]
    tolerant: Vec<String>,
    /// Rule file for delay-tolerant traffic, by application, domain and port
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Sweep a parameter: e-switch (factor of the profile's value), turn-off (share), burst-gap, or
    /// a policy's parameter: n, seconds, p, experts, gamma, hold; may be repeated
    #[arg(long, value_name = "KEY=VALUES")]
    sweep: Vec<Sweep>,
    /// Print a line for each trace too
    #[arg(long)]
    each: bool,
    /// Number of threads for policies
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Write every run as a row of a Parquet table
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write an HTML report, without external resources
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    args.parquet.as_deref().map(check_folder).transpose()?;
    let profiles = args.profile.iter().map(Path::new).filter(|path| path.is_file());
    let inputs = args.traces.paths().iter().map(PathBuf::as_path).chain(args.rules.as_deref());
    let inputs = inputs.chain(profiles);
    let outputs: Vec<&Path> =
        [&args.report, &args.parquet].into_iter().filter_map(|file| file.as_deref()).collect();
    check_distinct(&inputs.collect::<Vec<_>>(), &outputs)?;
    let known = args.profile.iter().map(|name| named_profile::find(name.trim()));
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let variants = Variants::new(&known, &args.policy, &args.sweep)
        .map_err(|error| Failure::usage(error.message).hint(error.hint))?;
    let tolerant = args.delay_tolerance()?;
    if tolerant.is_empty() && variants.jobs.iter().any(|job| job.plan.delays_sessions()) {
        let hint = "name applications with --tolerant email,news, or rules with --rules FILE";
        return Failure::refuse("a policy delays sessions, but no session is delay-tolerant", hint);
    }
    let made = args.generator.generated();
    if args.traces.paths().is_empty() && made.is_empty() {
        let hint = "name files, or generate traces: --app mixed-day --seed 1-20";
        return Failure::refuse("the trace is missing", hint);
    }
    if made.is_empty() && args.generator.duration().is_some() {
        return Failure::refuse(
            "--duration has no effect on trace files",
            "use --duration with --app",
        );
    }
    let threads = args.threads.map_or_else(default_threads, usize::from);
    let keeps = args.report.is_some();
    let (traces, signal) = with_progress(|progress| {
        let files = args.traces.paths().iter();
        let mut results = Vec::new();
        let opened = files.map(|path| args.traces.open(path, None, progress));
        let made =
            made.iter().map(|generator| Trace::generated(generator.clone()).map_err(failure));
        for trace in opened.chain(made) {
            let mut trace = trace?;
            let (stats, ran) = runs::run(
                &mut trace,
                &variants.profiles,
                &variants.jobs,
                &tolerant,
                threads,
                // Only decisions of the first trace are drawn.
                keeps && results.is_empty(),
                progress,
            )
            .map_err(failure)?;
            results.push(TraceResult {
                trace: trace.name().to_owned(),
                trace_stats: stats,
                runs: ran,
            });
            if stats.is_stopped || progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(results)
    })?;
    let results = Results { variants, traces };
    if results.has_nothing_to_delay() {
        eprintln!("manyways: the traces have no delay-tolerant sessions");
        eprintln!("hint: `manyways radio energy TRACE --profile lte` names its applications");
    }
    if let Some(file) = &args.parquet {
        runs::write_table(file, &results)?;
    }
    if let Some(file) = &args.report {
        report_file::write(file, &page::html(&results))?;
        eprintln!("The report is in {}.", file.display());
    }
    let text = match args.json {
        true => document::to_json_pretty(&Document::new(&results, signal.is_some()))?,
        false => text::text(&results, args.each),
    };
    super::print(&text)?;
    Ok(traces::code(signal))
}

impl Args {
    fn delay_tolerance(&self) -> Result<DelayTolerance> {
        let named = DelayTolerance::applications(&self.tolerant);
        Ok(match &self.rules {
            Some(file) => named_profile::read_rules(file)?.union(named),
            None => named,
        })
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64))
}
