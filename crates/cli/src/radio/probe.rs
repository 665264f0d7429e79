//! `manyways radio probe`: probes the timers of a radio on an interface.

use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_model::radio::gap_sweep::{self, GapSweep, InferredTimer, ProbeSchedule};
use manyways_model::radio::infer::InferenceError;
use manyways_net::radio::probe::{self, Document, ProbeError, ProbeFile, Prober, host_and_port};
use manyways_net::resolve;
use manyways_record::document;
use manyways_sys::interface::{self, Interface};
use manyways_sys::poll::Waker;
use manyways_sys::signal::Termination;
use manyways_unit::Span;
use manyways_unit::human::count_with_noun;

use super::infer::sentences;
use crate::failure::Failure;
use manyways_report::number::seconds;

/// Probe the release timers and promotion delays of a network
///
/// Waits for a gap, sends one small packet, and measures its round trip, which is longer after the
/// network has released the radio. Gap lengths from short to long are probed several times in
/// random order. Gaps that other packets disturb are restarted, so use an interface without other
/// traffic. Results are written line by line: the run can be stopped at any time and continued with
/// --resume.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio probe --interface wwan0 --target example.org
  manyways radio probe --interface wwan0 --target 192.0.2.1:443 --to 16s --step 250ms
  manyways radio probe --interface wwan0 --target example.org --resume
  manyways radio probe --interface wwan0 --target example.org --rounds 2 --json

Exit code: 0; 1 when the run fails; 2 when the arguments are invalid; 130 when a signal stops the run.")]
pub struct Args {
    /// Interface of the radio
    #[arg(long, value_name = "IFACE")]
    interface: String,
    /// Target: probed by ICMP echo, else by TCP to port 443 or 80; with a port, by TCP to that port
    #[arg(long, value_name = "HOST[:PORT]")]
    target: String,
    /// Shortest gap
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_gap)]
    from: Span,
    /// Longest gap
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_gap)]
    to: Span,
    /// Step between gap lengths, and so the resolution of timers
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_gap)]
    step: Span,
    /// Probes of each gap length
    #[arg(long, value_name = "N", default_value_t = GapSweep::DEFAULT.rounds,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for the results [default: radio-probe-IFACE.csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continue an existing file
    #[arg(long)]
    resume: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn parse_gap(text: &str) -> Result<Span, String> {
    let span = Span::from_str(text).map_err(|error| error.to_string())?;
    let (min, max) = (Span::from_millis(1), Span::from_secs(3_600));
    match (min..=max).contains(&span) {
        true => Ok(span),
        false => Err(format!("from {min} to {max}, like 500ms or 20s")),
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (host, port) = host_and_port(&args.target).map_err(|_| {
        Failure::usage(format!("`{}` has no port after the colon", args.target))
            .hint("write it like example.org, 192.0.2.1:443 or [2001:db8::1]:443")
    })?;
    let sweep = GapSweep { min: args.from, max: args.to, step: args.step, rounds: args.rounds };
    // Checked before the file is created.
    let wrong = |error| Failure::usage(format!("{error}")).hint("change --from, --to and --step");
    ProbeSchedule::new(&sweep, args.seed, &[]).map_err(wrong)?;
    let interface = find_interface(&args.interface)?;
    let path =
        args.output.unwrap_or_else(|| PathBuf::from(format!("radio-probe-{}.csv", interface.name)));
    if path.exists() && !args.resume {
        return Err(open_failure(&ErrorKind::AlreadyExists.into(), &path).into());
    }
    let termination = Termination::take().context("cannot watch for signals")?;
    let target = address(&interface, host)?;
    let mut line = Prober::open(&interface.name, &interface.addresses, target, port)
        .map_err(|error| failure(&error, None))?;
    let mut record =
        ProbeFile::open(&path, args.resume).map_err(|error| open_failure(&error, &path))?;
    let mut plan = ProbeSchedule::new(&sweep, args.seed, &record.planned_gaps()).map_err(wrong)?;
    let bar = begin(&plan, &line, &interface.name, target, &path);
    let waker = Waker::new().context("cannot wait")?;
    let mut stopped = None;
    let mut pause = |plan: &ProbeSchedule, span: Span| {
        show(&bar, plan);
        // Rounded up, because a slightly longer gap is better than a second look.
        let millis = span.as_nanos().div_ceil(1_000_000).min(1_000) as u16;
        match termination.wait_timeout(millis, &waker) {
            Ok((None, _)) => true,
            Ok((Some(ended), _)) => {
                stopped = Some(ended.signal);
                false
            }
            Err(_) => false,
        }
    };
    let done = probe::run(&mut line, &mut plan, &mut record, &mut pause);
    bar.finish_and_clear();
    let found = gap_sweep::infer_timers(record.probes());
    let is_whole = matches!(done, Ok(true));
    let text = match args.json {
        true => {
            let of = (interface.name.as_str(), args.target.as_str());
            let document = Document::new(of, line.method(), &plan, &path, is_whole, &found);
            document::to_json(&document)?
        }
        false => result_text(&plan, record.probes().len(), &found),
    };
    super::print(&text)?;
    match done {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            eprintln!("Stopped. {}.", resume_hint(&path));
            Ok(ExitCode::from(128 + stopped.unwrap_or(2) as u8))
        }
        Err(error) => Err(failure(&error, Some(&path)).into()),
    }
}

fn find_interface(name: &str) -> Result<Interface, Failure> {
    let all = interface::list().map_err(|error| Failure::new(error.to_string()))?;
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let hint = format!("the interfaces are {}; `manyways paths` describes them", names.join(", "));
    let found = all.iter().find(|one| one.name == name).cloned();
    found.ok_or_else(|| Failure::usage(format!("there is no interface `{name}`")).hint(hint))
}

fn address(interface: &Interface, host: &str) -> Result<std::net::IpAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot resolve the target")?;
    let found = runtime.block_on(resolve::lookup(interface, host));
    let found = found.map_err(|error| Failure::new(error.to_string()))?;
    let nothing = || Failure::new(format!("the name {host} has no address"));
    Ok(found.first().copied().ok_or_else(nothing)?)
}

fn open_failure(error: &io::Error, path: &Path) -> Failure {
    let name = path.display();
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!("{name} already exists"))
            .hint("--resume continues the file, and --output writes another one"),
        ErrorKind::InvalidData => Failure::new(format!("{name} is not a file of radio probes"))
            .hint("--output writes another file"),
        _ => Failure::new(format!("cannot write {name}: {error}")),
    }
}

fn resume_hint(path: &Path) -> String {
    format!(
        "{} has the results so far; continue with the same command and --resume",
        path.display()
    )
}

fn failure(error: &ProbeError, path: Option<&Path>) -> Failure {
    let failure = Failure::new(error.to_string());
    match (error, path) {
        (ProbeError::NoAnswer(..), _) => {
            failure.hint("name another target, with a TCP port that is open, like example.org:443")
        }
        (_, Some(path)) => failure.hint(resume_hint(path)),
        _ => failure,
    }
}

fn begin(
    plan: &ProbeSchedule,
    line: &Prober,
    interface: &str,
    target: std::net::IpAddr,
    path: &Path,
) -> ProgressBar {
    let remaining = plan.planned() - plan.answered();
    if remaining == 0 {
        eprintln!("All gaps are probed: {} is complete.", path.display());
        return ProgressBar::hidden();
    }
    eprintln!(
        "{} to {target} over {interface} by {}: {} in about {}, written to {}.",
        if plan.answered() == 0 { "Probes" } else { "Resumed probes" },
        line.method().description(),
        count_with_noun(remaining, "gap"),
        seconds(plan.remaining().as_secs_f64()),
        path.display(),
    );
    let bar = ProgressBar::no_length();
    if io::stderr().is_terminal() {
        bar.set_length(plan.planned() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} gaps, {msg}") {
            bar.set_style(style);
        }
    } else {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar
}

fn show(bar: &ProgressBar, plan: &ProbeSchedule) {
    if bar.is_hidden() {
        return;
    }
    let mut words = format!("{} left", seconds(plan.remaining().as_secs_f64()));
    if let Some(idle) = plan.current_gap() {
        words.push_str(&format!("; gap of {}", seconds(idle.as_secs_f64())));
    }
    if plan.disturbed() > 0 {
        words.push_str(&format!(
            "; {} restarted",
            count_with_noun(plan.disturbed() as usize, "gap")
        ));
    }
    bar.set_position(plan.answered() as u64);
    bar.set_message(words);
}

fn result_text(
    plan: &ProbeSchedule,
    probes: usize,
    found: &Result<Vec<InferredTimer>, InferenceError>,
) -> String {
    let mut text = format!("{} measured", count_with_noun(probes, "gap"));
    let broken = plan.disturbed() as usize;
    if broken > 0 {
        text.push_str(&format!("; {broken} restarted because of other packets"));
    }
    if plan.lost() > 0 {
        text.push_str(&format!(
            "; {} without an answer",
            count_with_noun(plan.lost() as usize, "probe")
        ));
    }
    text.push_str(".\n");
    if !plan.abandoned().is_empty() {
        let all: Vec<String> =
            plan.abandoned().iter().map(|idle| seconds(idle.as_secs_f64())).collect();
        text.push_str(&format!("Given up after too many restarts: {}.\n", all.join(", ")));
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            text.push_str(&format!("No timer was found: {error}.\n"));
            return text;
        }
    };
    text.push_str(&sentences(found));
    text
}
