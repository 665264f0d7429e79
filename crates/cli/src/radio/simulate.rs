//! `manyways radio simulate`: which policy saves how much.

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

/// Run policies that send the radio to sleep over traces, and compare what they save.
///
/// For every trace, radio and policy: energy saved over the network's timers, how often the radio is
/// brought back, what was done wrong beside one who knows what comes, and how long sessions were held
/// back. Packets are where they are, whatever the radio does, but for those of sessions that are held
/// back.
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
  fixed[:SECONDS]            the same wait each time (4.5 s)
  iat[:P]                    the P-quantile (0.95) of the trace's own gaps
  threshold                  the wait from which on sleeping at once is worth it
  oracle                     knows what comes
  makeidle[:N]               what would have been best for the last N gaps (100)
  printed                    makeidle by its equations as printed
  context                    what has been best after packets like the last one
  makeactive-fixed[:HOLD]    holds back what may wait, always for as long
  makeactive[:EXPERTS]       holds back what may wait, for as long as it has learnt (10)
  makeidle+makeactive        sleeps like one, holds back like the other

Nothing is held back but what --tolerant or --rules name.
Exit code: 0; 1 when a trace cannot be read; 2 when the request makes no sense; 128 + n when signal n
ends it.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    made: MadeArgs,
    /// Radios: names of `manyways radio profiles`, or files.
    #[arg(
        long,
        value_name = "PROFILES",
        value_delimiter = ',',
        default_value = "att-hspa,tmobile-3g,verizon-3g,verizon-lte"
    )]
    profile: Vec<String>,
    /// Policies.
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "fixed,iat,threshold,makeidle,context,oracle"
    )]
    policy: Vec<String>,
    /// Applications whose sessions may be held back, as the trace calls them; `*` stands for any
    /// characters.
    #[arg(long, value_name = "APPS", value_delimiter = ',')]
    tolerant: Vec<String>,
    /// A file that says which traffic may be held back, by application, domain and port.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Try several values: e-switch (times as much as in the profile), turn-off (its share),
    /// burst-gap, or a policy's number: n, seconds, p, experts, gamma, hold. May be repeated.
    #[arg(long, value_name = "KEY=VALUES", value_parser = plan::sweep)]
    sweep: Vec<Sweep>,
    /// A line for each trace as well.
    #[arg(long)]
    each: bool,
    /// How many cores run policies.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Write every run as a row of a Parquet table.
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write a report to read and to share: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// What came of a trace.
pub struct OfTrace {
    pub trace: String,
    pub seen: Seen,
    /// As many as there are runs, in their order.
    pub ran: Vec<Ran>,
}

/// Sums over traces.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub joules: f64,
    pub status_quo: f64,
    pub status_quo_tail: f64,
    pub oracle: f64,
    pub switches: u64,
    pub status_quo_switches: u64,
    pub oracle_switches: u64,
    /// Right, wrong, stayed, missed.
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

    /// Of all the energy under the network's timers, this share.
    pub fn saved(&self) -> f64 {
        1.0 - self.joules / self.status_quo
    }

    /// Of what is not transfer.
    pub fn saved_of_tail(&self) -> f64 {
        (self.status_quo - self.joules) / self.status_quo_tail
    }

    /// Of what who knows what comes saves.
    pub fn of_oracle(&self) -> f64 {
        (self.status_quo - self.joules) / (self.status_quo - self.oracle)
    }

    /// Times as many as under the network's timers.
    pub fn switches(&self) -> f64 {
        self.switches as f64 / self.status_quo_switches as f64
    }

    /// Times as many as who knows what comes.
    pub fn switches_of_oracle(&self) -> f64 {
        self.switches as f64 / self.oracle_switches as f64
    }

    /// Joules that are saved for each time that the radio is brought back.
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

    /// Mean wait of those that ended in sleep, in seconds.
    pub fn wait(&self) -> f64 {
        self.waits / self.sleeps as f64
    }

    /// Mean delay of sessions that were held back, in seconds.
    pub fn delay(&self) -> f64 {
        self.delays / self.held as f64
    }
}

/// What there is to show.
pub struct Results {
    pub variants: Variants,
    pub traces: Vec<OfTrace>,
}

impl Results {
    /// A run over all traces.
    pub fn sum(&self, run: usize) -> Sum {
        let mut sum = Sum::default();
        for trace in &self.traces {
            self.add(&mut sum, trace, run);
        }
        sum
    }

    /// A run over one of them.
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

    /// Says so where nothing could be held back though somebody would have.
    fn warn(&self) {
        let holds = |run: &usize| self.variants.jobs[*run].plan.holds();
        let mut runs = (0..self.variants.jobs.len()).filter(holds).peekable();
        let held = |run: usize| {
            self.traces.iter().map(move |one| one.ran[run].outcome.delays.count).sum::<u64>()
        };
        if runs.peek().is_some() && runs.all(|run| held(run) == 0) {
            eprintln!("manyways: nothing in the traces is what may be held back");
            eprintln!("hint: `manyways radio energy TRACE --profile lte` names its applications");
        }
    }

    /// The delay that so large a share of the held sessions of all traces does not exceed.
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
        let failure = Failure::usage("a policy holds sessions back, and nothing may be held back");
        return Err(failure.hint("say what may: --tolerant email,news, or --rules FILE").into());
    }
    let made = args.made.all();
    if args.traces.paths().is_empty() && made.is_empty() {
        let failure = Failure::usage("there is no trace");
        return Err(failure
            .hint("name files, or have some made: --app mixed-day --seed 1-20")
            .into());
    }
    if made.is_empty() && args.made.lasts().is_some() {
        let failure = Failure::usage("--lasts is for traces that are made");
        return Err(failure.hint("with --app; a file is as long as it is").into());
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
                // Only those of the first one are drawn.
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
            eprintln!("manyways: stopped before the end: this is of what was read until then");
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
