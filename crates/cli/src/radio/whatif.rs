//! `manyways radio whatif`: energy if an application sent at other times.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use manyways_model::radio::change::{Change, Changed, Moved};
use manyways_model::radio::meter::Meter;
use manyways_model::radio::policy::{Holding, NEVER, StatusQuo};
use manyways_model::radio::simulate::{Decides, Simulation};
use manyways_model::radio::{BURST_GAP, Choice, Decay, Packet, Profile, Tolerant};
use manyways_net::radio::trace::{Progress, Trace};
use manyways_unit::human::printable;
use manyways_unit::{Span, Time};
use serde::Serialize;

use super::energy::volts;
use super::known;
use super::traces::{TraceArgs, failure, span, watched};
use crate::failure::Failure;
use manyways_report::number::{count, digits, joules, percent, seconds};
use manyways_report::text::table;

/// Compute the energy if an application sent at other times
///
/// Prints a line for every change: the energy, and how far sessions are shifted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio whatif day.csv --profile lte --app im --batch 5min
  manyways radio whatif day.csv --profile lte --app news --batch 1min,5min,30min --prefetch 10min
  manyways radio whatif phone.pcap --profile lte --app .example.org --shift 60s --without --json
  manyways radio generate --heartbeat 30s | manyways radio whatif - --profile lte --batch 5min

A session is the traffic of a flow, or of an application if the trace has no flows, without a gap of
1.5 s. Each session moves as a whole.
Exit code: 0; 1 when the trace cannot be read; 2 when the arguments are invalid; 128 + n when signal n
ends the run.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// Radio: a name of `manyways radio profiles` or a file
    #[arg(long, value_name = "PROFILE")]
    profile: String,
    /// Application by its name in the trace (`*` matches any characters), or .example.org for a
    /// domain and all subdomains; may be repeated. Default: all traffic
    #[arg(long, value_name = "APP", value_delimiter = ',')]
    app: Vec<String>,
    /// Start sessions together, at the next multiple of this time
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = span)]
    batch: Vec<Span>,
    /// Delay sessions by at most this time until other traffic causes a promotion
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = span)]
    shift: Vec<Span>,
    /// Start sessions that begin within this time after a session together with that session
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = span)]
    prefetch: Vec<Span>,
    /// Remove the application's traffic
    #[arg(long)]
    without: bool,
    /// Voltage of the battery, for mAh
    #[arg(long, value_name = "VOLTS", default_value = "3.85", value_parser = volts)]
    voltage: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A row of the result.
struct What {
    name: String,
    joules: f64,
    switches: u64,
    moved: Moved,
    /// Direction of the shifts.
    way: &'static str,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    trace: String,
    profile: String,
    applications: Vec<String>,
    packets: u64,
    seconds: f64,
    /// Whether a signal stopped the run, so that rows are missing.
    stopped: bool,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    change: String,
    joules: f64,
    joules_saved: f64,
    /// Share of the energy without a change.
    saved: f64,
    mah: f64,
    switches: u64,
    sessions: u64,
    moved: u64,
    mean_move_seconds: Option<f64>,
    most_move_seconds: Option<f64>,
    /// `later`, `sooner`, or empty.
    moves: &'static str,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let [path] = args.traces.paths() else {
        let failure = Failure::usage("exactly one trace is needed");
        return Err(failure.hint("manyways radio whatif TRACE --profile lte --batch 5min").into());
    };
    let known = known::profile(&args.profile)?;
    let profile = &known.profile;
    let named = args.named()?;
    let mut changes: Vec<(String, Option<Change>, f64)> = Vec::new();
    let name = |what: &str, span: &Span| format!("{what} {}", seconds(span.as_secs_f64()));
    for span in &args.batch {
        changes.push((name("batch", span), Some(Change::Batch(*span)), 0.0));
    }
    for span in &args.shift {
        changes.push((name("shift", span), None, span.as_secs_f64()));
    }
    for span in &args.prefetch {
        changes.push((name("prefetch", span), Some(Change::Prefetch(*span)), 0.0));
    }
    if args.without {
        changes.push(("without".to_owned(), Some(Change::Drop), 0.0));
    }
    if changes.is_empty() {
        let failure = Failure::usage("no change is given");
        return Err(failure
            .hint("give changes: --batch 5min, --shift 60s, --prefetch 10min")
            .into());
    }
    let ((seen, lines), signal) = watched(|progress| {
        let mut trace = args.traces.open(path, None, progress)?;
        let mut count = Count::new(profile);
        let seen = trace.read(progress, |packet| count.push(packet)).map_err(failure)?;
        // All rows cover the same time: until the radio is released after the unchanged trace.
        let released = Choice::of(profile).stay.released();
        let tail = Span::from_secs_f64(if released.is_finite() { released } else { 0.0 });
        let until = seen.last.unwrap_or_default() + tail;
        let lasts = seen.first.zip(seen.last).map_or(0.0, |(a, b)| b.since(a).as_secs_f64());
        let times = args.batch.iter().chain(&args.prefetch).chain(&args.shift);
        if times.map(|span| span.as_secs_f64()).any(|span| span > lasts) {
            eprintln!(
                "manyways: the trace lasts {}, which is shorter than a given change",
                seconds(lasts)
            );
        }
        let switches = count.meter.account().switches;
        let joules = count.end(until);
        let chosen: Vec<bool> =
            trace.apps().iter().map(|app| args.app.is_empty() || named.may_wait(app)).collect();
        if !chosen.contains(&true) {
            let mut known: Vec<&str> = trace.apps().iter().map(|app| app.name.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            known.truncate(20);
            let sentence = format!("{} has no application {}", trace.name(), args.app.join(", "));
            return Err(Failure::new(sentence)
                .hint(format!("the applications are: {}", known.join(", ")))
                .into());
        }
        let mut lines = vec![What {
            name: "unchanged".to_owned(),
            joules,
            switches,
            moved: Moved::default(),
            way: "",
        }];
        for (name, change, hold) in &changes {
            if seen.is_stopped {
                break;
            }
            let horizon = (seen.first.unwrap_or_default(), until);
            let (joules, switches, moved) = match change {
                Some(change) => changed(&mut trace, profile, *change, &chosen, horizon, progress)?,
                None => shifted(&mut trace, profile, *hold, &chosen, progress)?,
            };
            // Results of a part of the trace cannot be compared.
            if progress.stop.load(Ordering::Relaxed) {
                break;
            }
            let way = match change {
                Some(Change::Prefetch(_)) => "sooner",
                Some(Change::Drop) => "",
                _ => "later",
            };
            lines.push(What { name: name.clone(), joules, switches, moved, way });
        }
        Ok((seen, (trace.name().to_owned(), lines)))
    })?;
    let (trace, lines) = lines;
    let lasts = seen.first.zip(seen.last).map_or(0.0, |(a, b)| b.since(a).as_secs_f64());
    let before = lines[0].joules;
    let mah = |joules: f64| joules / args.voltage / 3.6;
    let text = match args.json {
        true => {
            let document = Document {
                schema: "manyways.radio-whatif/1",
                trace,
                profile: known.name.clone(),
                applications: args.app.clone(),
                packets: seen.packets,
                seconds: lasts,
                stopped: signal.is_some(),
                lines: lines.iter().map(|line| line.document(before, mah)).collect(),
            };
            serde_json::to_string_pretty(&document)? + "\n"
        }
        false => {
            let mut rows = vec![
                ["", "energy", "saved", "share", "mAh", "switches", "sessions", "mean", "most"]
                    .map(str::to_owned)
                    .to_vec(),
            ];
            rows.extend(lines.iter().map(|line| line.cells(before, mah)));
            let who = match args.app.is_empty() {
                true => "everything".to_owned(),
                false => args.app.join(", "),
            };
            format!(
                "{} on {}: {} packets in {}; changed: {}\n\n{}",
                printable(&trace),
                printable(&known.name),
                count(seen.packets),
                seconds(lasts),
                printable(&who),
                table(&rows)
            )
        }
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
    /// Applications that change: domains as domains, other values by name.
    fn named(&self) -> Result<Tolerant> {
        let (domains, names): (Vec<String>, Vec<String>) =
            self.app.iter().cloned().partition(|app| app.starts_with('.') || app.starts_with("*."));
        let mut all = Tolerant::applications(&names);
        for domain in domains {
            // As the parser of rules expects.
            let quoted = domain.replace(['"', '\\'], "");
            let rule = format!("[[delay-tolerant]]\ndomain = \"{quoted}\"\n");
            let rule = Tolerant::parse(&rule).map_err(|error| {
                let failure = Failure::usage(error.sentence);
                failure.hint(error.hint.unwrap_or_default())
            })?;
            all = all.or(rule);
        }
        Ok(all)
    }
}

/// Sums the energy under the network's timers.
struct Count {
    meter: Meter,
    first: Option<Time>,
    last: Option<Time>,
}

impl Count {
    fn new(profile: &Profile) -> Self {
        Self { meter: Meter::new(profile), first: None, last: None }
    }

    fn push(&mut self, packet: &Packet) {
        self.first.get_or_insert(packet.at);
        match self.last {
            None => self.meter.begin(packet),
            Some(last) => {
                self.meter.next(packet, packet.at.since(last).as_secs_f64(), NEVER);
            }
        }
        self.last = Some(self.last.map_or(packet.at, |last| last.max(packet.at)));
    }

    /// The account at least until `until`, to cover the same time as the unchanged trace.
    fn end(mut self, until: Time) -> f64 {
        let stay = &self.meter.choice().stay;
        let released = stay.released().next_up();
        let Some(last) = self.last else { return 0.0 };
        // If the last packet is earlier, the radio is released for longer.
        let longer = until.since(last).as_secs_f64();
        let idle = (stay.energy(released.max(longer)) - stay.energy(released)).max(0.0);
        self.meter.end(NEVER);
        self.meter.account().total() + idle
    }
}

fn changed(
    trace: &mut Trace,
    profile: &Profile,
    change: Change,
    chosen: &[bool],
    (first, until): (Time, Time),
    progress: &Progress,
) -> Result<(f64, u64, Moved)> {
    let mut count = Count::new(profile);
    let mut changed = Changed::new(change);
    trace
        .read(progress, |packet| {
            let changes = chosen.get(usize::from(packet.app)) == Some(&true);
            changed.next(*packet, changes, |packet| count.push(&packet));
        })
        .map_err(failure)?;
    changed.end(|packet| count.push(&packet));
    let switches = count.meter.account().switches;
    // If no packet remains, the radio is released throughout.
    let idle =
        Decay::from(profile, profile.states.len() - 1).energy(until.since(first).as_secs_f64());
    let asleep = Decay::from(profile, profile.states.len() - 1);
    // The remaining packets may start later; before them the radio is released.
    let before = count.first.map_or(0.0, |begins| asleep.energy(begins.since(first).as_secs_f64()));
    let joules = if count.last.is_some() { before + count.end(until) } else { idle };
    Ok((joules, switches, changed.moved()))
}

/// Delayed while the radio is released, as MakeActive does with a constant delay.
fn shifted(
    trace: &mut Trace,
    profile: &Profile,
    hold: f64,
    chosen: &[bool],
    progress: &Progress,
) -> Result<(f64, u64, Moved)> {
    let tolerates = |packet: &Packet| chosen.get(usize::from(packet.app)) == Some(&true);
    let mut policy = Holding { sleeps: StatusQuo, holds: hold };
    let run = Simulation::new(profile, Decides::Policy(&mut policy), &tolerates);
    let mut run = run.ending_sessions(BURST_GAP);
    trace.read(progress, |packet| run.push(*packet)).map_err(failure)?;
    let outcome = run.finish();
    let delays = &outcome.delays;
    let moved = Moved {
        sessions: delays.count,
        moved: delays.held,
        secs: delays.sum,
        most: delays.quantile(1.0).unwrap_or(0.0),
    };
    Ok((outcome.account.total(), outcome.account.switches, moved))
}

impl What {
    fn mean(&self) -> Option<f64> {
        (self.moved.moved > 0 && !self.way.is_empty())
            .then(|| self.moved.secs / self.moved.moved as f64)
    }

    fn cells(&self, before: f64, mah: impl Fn(f64) -> f64) -> Vec<String> {
        let spent = self.joules;
        let mut cells = vec![
            self.name.clone(),
            joules(spent),
            joules(before - spent),
            percent((before - spent) / before),
            digits(mah(spent)),
            count(self.switches),
        ];
        if self.moved.sessions > 0 {
            cells.push(format!("{} of {}", count(self.moved.moved), count(self.moved.sessions)));
        }
        if let Some(mean) = self.mean() {
            cells.push(format!("{} {}", seconds(mean), self.way));
            cells.push(seconds(self.moved.most));
        }
        cells
    }

    fn document(&self, before: f64, mah: impl Fn(f64) -> f64) -> Line {
        let spent = self.joules;
        Line {
            change: self.name.clone(),
            joules: spent,
            joules_saved: before - spent,
            saved: (before - spent) / before,
            mah: mah(spent),
            switches: self.switches,
            sessions: self.moved.sessions,
            moved: self.moved.moved,
            mean_move_seconds: self.mean(),
            most_move_seconds: self.mean().map(|_| self.moved.most),
            moves: self.way,
        }
    }
}
