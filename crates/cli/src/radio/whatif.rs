//! `manyways radio whatif`: energy if an application sent at other times.

use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::DelayTolerance;
use manyways_model::radio::change::Change;
use manyways_model::radio::energy::Battery;
use manyways_model::radio::whatif::Alternative;
use manyways_net::radio::whatif::{self, Document, Line, Question, WhatIfError};
use manyways_record::document;
use manyways_unit::Span;
use manyways_unit::human::printable;

use super::energy::volts;
use super::named_profile;
use super::traces::{self, TraceArgs, span, with_progress};
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
    /// Delay sessions until other traffic causes a promotion, but by at most this time
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = span)]
    shift: Vec<Span>,
    /// Move sessions that begin within this time after a session to the start of that session
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

pub fn run(args: &Args) -> Result<ExitCode> {
    let [path] = args.traces.paths() else {
        let hint = "manyways radio whatif TRACE --profile lte --batch 5min";
        return Failure::refuse("exactly one trace is needed", hint);
    };
    let known = named_profile::find(&args.profile)?;
    let changes = args.changes()?;
    let questions = args.questions();
    if questions.is_empty() {
        let hint = "give changes: --batch 5min, --shift 60s, --prefetch 10min";
        return Failure::refuse("no change is given", hint);
    }
    let battery = Battery { capacity: None, volts: args.voltage };
    let (mut document, signal) = with_progress(|progress| {
        let mut trace = args.traces.open(path, None, progress)?;
        let changes = (&changes, args.app.as_slice());
        let found = whatif::run(&mut trace, &known, &questions, changes, &battery, progress);
        Ok(found.map_err(|error| failure(error, trace.name(), &args.app))?)
    })?;
    document.stopped = signal.is_some();
    let spans = questions.iter().filter_map(|question| question.alternative.span());
    if spans.map(Span::as_secs_f64).any(|span| span > document.seconds) {
        eprintln!(
            "manyways: the trace lasts {}, which is shorter than the time of a change",
            seconds(document.seconds)
        );
    }
    super::print(&match args.json {
        true => document::to_json_pretty(&document)?,
        false => text(&document),
    })?;
    Ok(traces::code(signal))
}

fn failure(error: WhatIfError, trace: &str, apps: &[String]) -> Failure {
    match error {
        WhatIfError::Trace(error) => traces::failure(error),
        WhatIfError::NoApplication { mut known } => {
            known.truncate(20);
            Failure::new(format!("{trace} has no application {}", apps.join(", ")))
                .hint(format!("the applications are: {}", known.join(", ")))
        }
        error => Failure::new(error.to_string()),
    }
}

fn text(document: &Document) -> String {
    let head = ["", "energy", "saved", "share", "mAh", "switches", "sessions", "mean", "most"];
    let Document { trace, profile, applications, .. } = document;
    let changed = match applications.is_empty() {
        true => "everything".to_owned(),
        false => applications.join(", "),
    };
    format!(
        "{} on {}: {} packets in {}; changed: {}\n\n{}",
        printable(trace),
        printable(profile),
        count(document.packets),
        seconds(document.seconds),
        printable(&changed),
        table(&head, document.lines.iter().map(cells))
    )
}

fn cells(line: &Line) -> Vec<String> {
    let mut cells = vec![
        line.change.clone(),
        joules(line.joules),
        joules(line.joules_saved),
        percent(line.saved),
        digits(line.mah),
        count(line.switches),
    ];
    if line.sessions > 0 {
        cells.push(format!("{} of {}", count(line.moved), count(line.sessions)));
    }
    if let Some((mean, most)) = line.mean_move_seconds.zip(line.max_move_seconds) {
        cells.push(format!("{} {}", seconds(mean), line.direction));
        cells.push(seconds(most));
    }
    cells
}

impl Args {
    fn questions(&self) -> Vec<Question> {
        let all = |what: &'static str, spans: &[Span], of: fn(Span) -> Alternative| {
            let question = |span: &Span| Question {
                name: format!("{what} {}", seconds(span.as_secs_f64())),
                alternative: of(*span),
            };
            spans.iter().map(question).collect::<Vec<_>>()
        };
        let without = self.without.then(|| Question {
            name: "without".to_owned(),
            alternative: Alternative::Change(Change::Drop),
        });
        let mut questions =
            all("batch", &self.batch, |span| Alternative::Change(Change::Batch(span)));
        questions.extend(all("shift", &self.shift, Alternative::Shift));
        questions.extend(all("prefetch", &self.prefetch, |span| {
            Alternative::Change(Change::Prefetch(span))
        }));
        questions.extend(without);
        questions
    }

    /// Applications that change: domains as domains, other values by name.
    fn changes(&self) -> Result<DelayTolerance> {
        if self.app.is_empty() {
            return Ok(DelayTolerance::applications(&["*".to_owned()]));
        }
        let (domains, names): (Vec<String>, Vec<String>) =
            self.app.iter().cloned().partition(|app| app.starts_with('.') || app.starts_with("*."));
        let mut all = DelayTolerance::applications(&names);
        for domain in domains {
            // As the parser of rules expects.
            let quoted = domain.replace(['"', '\\'], "");
            let rule = format!("[[delay-tolerant]]\ndomain = \"{quoted}\"\n");
            let rule = DelayTolerance::parse(&rule).map_err(|error| {
                let failure = Failure::usage(error.message);
                failure.hint(error.hint.unwrap_or_default())
            })?;
            all = all.union(rule);
        }
        Ok(all)
    }
}
