//! `manyways radio simulate`: compares policies on traces.

mod document;
mod page;
mod plan;
mod sheet;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use manyways_model::radio::Tolerant;
use manyways_model::radio::simulate::Outcome;
use manyways_net::radio::runs::{self, Ran};
use manyways_net::radio::trace::{Seen, Trace};

use self::plan::{Sweep, Variants};
use super::known;
use super::traces::{MadeArgs, TraceArgs, failure, watched};
use crate::failure::Failure;
use crate::report_file::{self, check_folder, keep_apart};

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
  printed                    makeidle by its equations as printed
  context                    the best wait after similar packets
  makeactive-fixed[:HOLD]    delays sessions by a constant time
  makeactive[:EXPERTS]       delays sessions by a learned time (10)
  makeidle+makeactive        goes idle by the first, delays by the second

Only sessions that --tolerant or --rules name are delayed.
Exit code: 0; 1 when a trace cannot be read; 2 when the arguments are invalid; 128 + n when signal n
ends the run.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    made: MadeArgs,
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
    #[arg(long, value_name = "KEY=VALUES", value_parser = plan::sweep)]
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

/// Results of a trace.
pub struct OfTrace {
    pub trace: String,
    pub seen: Seen,
    /// One entry per run, in the order of runs.
    pub ran: Vec<Ran>,
}

#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub joules: f64,
    pub status_quo: f64,
    pub status_quo_tail: f64,
    pub oracle: f64,
    pub switches: u64,
    pub status_quo_switches: u64,
    pub oracle_switches: u64,
    /// Gaps: right, false, stayed, missed.
    pub decided: [u64; 4],
    pub sleeps: u64,
    pub waits: f64,
    pub sessions: u64,
    pub held: u64,
    pub delays: f64,
}

impl Sum {
    pub fn add(&mut self, outcome: &Outcome, status_quo: &Outcome, oracle: &Outcome) {
        let account = &outcome.account;
        self.joules += account.total();
        self.status_quo += status_quo.account.total();
        self.status_quo_tail += status_quo.account.tail();
        self.oracle += oracle.account.total();
        self.switches += account.switches;
        self.status_quo_switches += status_quo.account.switches;
        self.oracle_switches += oracle.account.switches;
        let switches = &outcome.switches;
        let decided = [switches.right, switches.wrong, switches.stayed, switches.missed];
        for (sum, one) in self.decided.iter_mut().zip(decided) {
            *sum += one;
        }
        self.sleeps += account.sleeps;
        self.waits += account.waits;
        self.sessions += outcome.delays.count;
        self.held += outcome.delays.held;
        self.delays += outcome.delays.sum;
    }

    /// Saved share of all energy under the network's timers.
    pub fn saved(&self) -> f64 {
        1.0 - self.joules / self.status_quo
    }

    /// Saved share of the energy without transfers.
    pub fn saved_of_tail(&self) -> f64 {
        (self.status_quo - self.joules) / self.status_quo_tail
    }

    /// Share of the oracle's saving.
    pub fn of_oracle(&self) -> f64 {
        (self.status_quo - self.joules) / (self.status_quo - self.oracle)
    }

    /// Ratio to the switches under the network's timers.
    pub fn switches(&self) -> f64 {
        self.switches as f64 / self.status_quo_switches as f64
    }

    /// Ratio to the switches of the oracle.
    pub fn switches_of_oracle(&self) -> f64 {
        self.switches as f64 / self.oracle_switches as f64
    }

    /// Saved joules per switch.
    pub fn saved_per_switch(&self) -> f64 {
        (self.status_quo - self.joules) / self.switches.max(1) as f64
    }

    /// N_FS / (N_FS + N_TN).
    pub fn false_switches(&self) -> f64 {
        let [_, wrong, stayed, _] = self.decided.map(|count| count as f64);
        wrong / (wrong + stayed)
    }

    /// N_MS / (N_MS + N_TP).
    pub fn missed_switches(&self) -> f64 {
        let [right, _, _, missed] = self.decided.map(|count| count as f64);
        missed / (missed + right)
    }

    /// Mean wait before a dormancy in seconds.
    pub fn wait(&self) -> f64 {
        self.waits / self.sleeps as f64
    }

    /// Mean delay of delayed sessions in seconds.
    pub fn delay(&self) -> f64 {
        self.delays / self.held as f64
    }
}

pub struct Results {
    pub variants: Variants,
    pub traces: Vec<OfTrace>,
}

impl Results {
    /// Sum of a run over all traces.
    pub fn sum(&self, run: usize) -> Sum {
        let mut sum = Sum::default();
        for trace in &self.traces {
            self.add(&mut sum, trace, run);
        }
        sum
    }

    /// Sum of a run over one trace.
    pub fn one(&self, trace: &OfTrace, run: usize) -> Sum {
        let mut sum = Sum::default();
        self.add(&mut sum, trace, run);
        sum
    }

    fn add(&self, sum: &mut Sum, trace: &OfTrace, run: usize) {
        let job = &self.variants.jobs[run];
        let [status_quo, oracle] = self.variants.baselines[job.profile];
        let outcome = |run: usize| &trace.ran[run].outcome;
        sum.add(outcome(run), outcome(status_quo), outcome(oracle));
    }

    /// Warns if a policy delays sessions but no session is delay-tolerant.
    fn warn(&self) {
        let holds = |run: &usize| self.variants.jobs[*run].plan.holds();
        let mut runs = (0..self.variants.jobs.len()).filter(holds).peekable();
        let held = |run: usize| {
            self.traces.iter().map(move |one| one.ran[run].outcome.delays.count).sum::<u64>()
        };
        if runs.peek().is_some() && runs.all(|run| held(run) == 0) {
            eprintln!("manyways: the traces have no delay-tolerant sessions");
            eprintln!("hint: `manyways radio energy TRACE --profile lte` names its applications");
        }
    }

    /// Quantile of the delays of delayed sessions over all traces.
    pub fn delay(&self, run: usize, share: f64) -> Option<f64> {
        let mut all = manyways_model::radio::simulate::Delays::default();
        for trace in &self.traces {
            all.merge(&trace.ran[run].outcome.delays);
        }
        all.quantile(share)
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    args.parquet.as_deref().map(check_folder).transpose()?;
    let profiles = args.profile.iter().map(Path::new).filter(|path| path.is_file());
    let inputs = args.traces.paths().iter().map(PathBuf::as_path).chain(args.rules.as_deref());
    let inputs = inputs.chain(profiles);
    let outputs: Vec<&Path> =
        [&args.report, &args.parquet].into_iter().filter_map(|file| file.as_deref()).collect();
    keep_apart(&inputs.collect::<Vec<_>>(), &outputs)?;
    let known = args.profile.iter().map(|name| known::profile(name.trim()));
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let variants = Variants::new(&known, &args.policy, &args.sweep)?;
    let tolerant = args.may_wait()?;
    if tolerant.is_empty() && variants.jobs.iter().any(|job| job.plan.holds()) {
        let failure = Failure::usage("a policy delays sessions, but no session is delay-tolerant");
        return Err(failure
            .hint("name applications with --tolerant email,news, or rules with --rules FILE")
            .into());
    }
    let made = args.made.all();
    if args.traces.paths().is_empty() && made.is_empty() {
        let failure = Failure::usage("the trace is missing");
        return Err(failure
            .hint("name files, or generate traces: --app mixed-day --seed 1-20")
            .into());
    }
    if made.is_empty() && args.made.lasts().is_some() {
        let failure = Failure::usage("--lasts has no effect on trace files");
        return Err(failure.hint("use --lasts with --app").into());
    }
    let threads = args.threads.map_or_else(cores, usize::from);
    let keeps = args.report.is_some();
    let (traces, signal) = watched(|progress| {
        let files = args.traces.paths().iter();
        let mut results = Vec::new();
        let opened = files.map(|path| args.traces.open(path, None, progress));
        let made = made.iter().map(|made| Trace::made(made.clone()).map_err(failure));
        for trace in opened.chain(made) {
            let mut trace = trace?;
            let (seen, ran) = runs::run(
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
            results.push(OfTrace { trace: trace.name().to_owned(), seen, ran });
            if seen.is_stopped || progress.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(results)
    })?;
    let results = Results { variants, traces };
    results.warn();
    if let Some(file) = &args.parquet {
        sheet::write(file, &results)?;
    }
    if let Some(file) = &args.report {
        report_file::write(file, &page::html(&results))?;
        eprintln!("The report is in {}.", file.display());
    }
    let text = match args.json {
        true => {
            serde_json::to_string_pretty(&document::document(&results, signal.is_some()))? + "\n"
        }
        false => text::text(&results, args.each),
    };
    super::print(&text)?;
    Ok(match signal {
        Some(signal) => {
            eprintln!("manyways: stopped before the end: results of the packets read until then");
            ExitCode::from(128 + signal as u8)
        }
        None => ExitCode::SUCCESS,
    })
}

impl Args {
    fn may_wait(&self) -> Result<Tolerant> {
        let named = Tolerant::applications(&self.tolerant);
        Ok(match &self.rules {
            Some(file) => known::tolerant(file)?.or(named),
            None => named,
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64))
}
