//! `manyways radio probe`: the timers of a radio, probed on an interface that is there.

use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_model::radio::infer::NoTimer;
use manyways_model::radio::ladder::{self, Ladder, Plan, Timer};
use manyways_net::radio::probe::{self, Line, ProbeError, Record, host_and_port};
use manyways_net::resolve;
use manyways_sys::interface::{self, Interface};
use manyways_sys::poll::Waker;
use manyways_sys::signal::Termination;
use manyways_unit::Span;
use manyways_unit::human::counted;
use serde_json::{Value, json};

use super::timers;
use crate::failure::Failure;
use manyways_report::number::seconds;

/// Find out when a network lets go of a radio, and how long coming back takes.
///
/// Keeps still for a while, sends one small packet, and measures its round trip: it takes longer once
/// the network has let go of the radio. That for silences from short to long, several times, in an
/// order by chance. Silences that other packets break are begun anew, so use it where nothing else
/// runs. What is measured is written down line by line: it can be stopped at any time, and go on later
/// with --resume.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio probe --interface wwan0 --target example.org
  manyways radio probe --interface wwan0 --target 192.0.2.1:443 --to 16s --step 250ms
  manyways radio probe --interface wwan0 --target example.org --resume
  manyways radio probe --interface wwan0 --target example.org --rounds 2 --json

Exit code: 0; 1 when it fails; 2 when the request makes no sense; 130 when it was stopped.")]
pub struct Args {
    /// The interface of the radio.
    #[arg(long, value_name = "IFACE")]
    interface: String,
    /// Who is to answer: by ICMP echo, else by TCP to port 443 or 80; with a port, by TCP to that one.
    #[arg(long, value_name = "HOST[:PORT]")]
    target: String,
    /// The shortest silence.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = silence)]
    from: Span,
    /// The longest silence.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = silence)]
    to: Span,
    /// From one silence to the next longer one: timers are found no finer than this.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = silence)]
    step: Span,
    /// How often every silence is probed.
    #[arg(long, value_name = "N", default_value_t = Ladder::USUAL.rounds,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Seed of their order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to write down what is measured [default: radio-probe-IFACE.csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Go on with that file, if it is there.
    #[arg(long)]
    resume: bool,
    /// Print what comes of it as one JSON document.
    #[arg(long)]
    json: bool,
}

fn silence(text: &str) -> Result<Span, String> {
    let span = Span::from_str(text).map_err(|error| error.to_string())?;
    let (least, most) = (Span::from_millis(1), Span::from_secs(3_600));
    match (least..=most).contains(&span) {
        true => Ok(span),
        false => Err(format!("from {least} to {most}, like 500ms or 20s")),
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (host, port) = host_and_port(&args.target).map_err(|_| {
        Failure::usage(format!("`{}` has no port behind its colon", args.target))
            .hint("write it like example.org, 192.0.2.1:443 or [2001:db8::1]:443")
    })?;
    let ladder = Ladder { least: args.from, most: args.to, step: args.step, rounds: args.rounds };
    // Before a file is made for it.
    let wrong = |error| Failure::usage(format!("{error}")).hint("choose --from, --to and --step");
    Plan::new(&ladder, args.seed, &[]).map_err(wrong)?;
    let interface = interface_named(&args.interface)?;
    let path =
        args.output.unwrap_or_else(|| PathBuf::from(format!("radio-probe-{}.csv", interface.name)));
    if path.exists() && !args.resume {
        return Err(unopened(&ErrorKind::AlreadyExists.into(), &path).into());
    }
    let termination = Termination::take().context("cannot watch for signals")?;
    let target = address(&interface, host)?;
    let mut line = Line::open(&interface.name, &interface.addresses, target, port)
        .map_err(|error| failure(&error, None))?;
    let mut record = Record::open(&path, args.resume).map_err(|error| unopened(&error, &path))?;
    let mut plan = Plan::new(&ladder, args.seed, &record.done()).map_err(wrong)?;
    let bar = begin(&plan, &line, &interface.name, target, &path);
    let waker = Waker::new().context("cannot wait")?;
    let mut stopped = None;
    let mut pause = |plan: &Plan, span: Span| {
        show(&bar, plan);
        // Rounded up: a silence is rather too long than looked at twice.
        let millis = span.as_nanos().div_ceil(1_000_000).min(1_000) as u16;
        match termination.within(millis, &waker) {
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
    let found = ladder::timers(record.probes());
    let is_whole = matches!(done, Ok(true));
    let text = match args.json {
        true => {
            let of = (interface.name.as_str(), args.target.as_str());
            document(of, &line, &plan, &path, is_whole, &found).to_string() + "\n"
        }
        false => words(&plan, record.probes().len(), &found),
    };
    super::print(&text)?;
    match done {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            eprintln!("Stopped. {}.", resume(&path));
            Ok(ExitCode::from(128 + stopped.unwrap_or(2) as u8))
        }
        Err(error) => Err(failure(&error, Some(&path)).into()),
    }
}

fn interface_named(name: &str) -> Result<Interface, Failure> {
    let all = interface::list().map_err(|error| Failure::new(error.to_string()))?;
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let hint = format!("there is {}; `manyways paths` says what they are", names.join(", "));
    let found = all.iter().find(|one| one.name == name).cloned();
    found.ok_or_else(|| Failure::usage(format!("there is no interface `{name}`")).hint(hint))
}

fn address(interface: &Interface, host: &str) -> Result<std::net::IpAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot look the target up")?;
    let found = runtime.block_on(resolve::lookup(interface, host));
    let found = found.map_err(|error| Failure::new(error.to_string()))?;
    let nothing = || Failure::new(format!("the name {host} has no address"));
    Ok(found.first().copied().ok_or_else(nothing)?)
}

fn unopened(error: &io::Error, path: &Path) -> Failure {
    let name = path.display();
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!("{name} is there already"))
            .hint("--resume goes on with it, and --output writes another one"),
        ErrorKind::InvalidData => {
            Failure::new(format!("{name} is something else than the probes of a radio"))
                .hint("--output writes another file")
        }
        _ => Failure::new(format!("cannot write {name}: {error}")),
    }
}

fn resume(path: &Path) -> String {
    format!("{} has what was measured; go on with the same command and --resume", path.display())
}

fn failure(error: &ProbeError, path: Option<&Path>) -> Failure {
    let failure = Failure::new(error.to_string());
    match (error, path) {
        (ProbeError::Silent(..), _) => failure
            .hint("name another target, with a port where it listens on TCP, like example.org:443"),
        (_, Some(path)) => failure.hint(resume(path)),
        _ => failure,
    }
}

fn begin(
    plan: &Plan,
    line: &Line,
    interface: &str,
    target: std::net::IpAddr,
    path: &Path,
) -> ProgressBar {
    let left = plan.planned() - plan.answered();
    if left == 0 {
        eprintln!("Nothing is left to probe: {} has it all.", path.display());
        return ProgressBar::hidden();
    }
    eprintln!(
        "{} to {target} over {interface} by {}: {} in about {}, written to {}.",
        if plan.answered() == 0 { "Probing" } else { "Probing on" },
        line.method().words(),
        counted(left, "silence"),
        seconds(plan.left().as_secs_f64()),
        path.display(),
    );
    let bar = ProgressBar::no_length();
    if io::stderr().is_terminal() {
        bar.set_length(plan.planned() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} silences, {msg}") {
            bar.set_style(style);
        }
    } else {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar
}

fn show(bar: &ProgressBar, plan: &Plan) {
    if bar.is_hidden() {
        return;
    }
    let mut words = format!("{} left", seconds(plan.left().as_secs_f64()));
    if let Some(idle) = plan.idle() {
        words.push_str(&format!("; silent for {}", seconds(idle.as_secs_f64())));
    }
    if plan.disturbed() > 0 {
        words.push_str(&format!(
            "; {} by other packets",
            counted(plan.disturbed() as usize, "break")
        ));
    }
    bar.set_position(plan.answered() as u64);
    bar.set_message(words);
}

fn words(plan: &Plan, probes: usize, found: &Result<Vec<Timer>, NoTimer>) -> String {
    let mut text = format!("{} measured", counted(probes, "silence"));
    let broken = plan.disturbed() as usize;
    if broken > 0 {
        text.push_str(&format!("; {broken} broken by other packets and begun anew"));
    }
    if plan.lost() > 0 {
        text.push_str(&format!("; {} without an answer", counted(plan.lost() as usize, "probe")));
    }
    text.push_str(".\n");
    if !plan.given_up().is_empty() {
        let all: Vec<String> =
            plan.given_up().iter().map(|idle| seconds(idle.as_secs_f64())).collect();
        text.push_str(&format!("Given up, as they were broken too often: {}.\n", all.join(", ")));
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            text.push_str(&format!("No timer was found: {error}.\n"));
            return text;
        }
    };
    text.push_str(&timers::sentences(found));
    text
}

fn document(
    (interface, target): (&str, &str),
    line: &Line,
    plan: &Plan,
    path: &Path,
    is_whole: bool,
    found: &Result<Vec<Timer>, NoTimer>,
) -> Value {
    let all = timers::document(found.as_deref().unwrap_or_default());
    let given_up: Vec<f64> = plan.given_up().iter().map(|idle| idle.as_secs_f64()).collect();
    json!({
        "schema": "manyways.radio-probe/1",
        "interface": interface,
        "target": target,
        "method": line.method().words(),
        "file": path.display().to_string(),
        "whole": is_whole,
        "planned": plan.planned(),
        "answered": plan.answered(),
        "disturbed": plan.disturbed(),
        "lost": plan.lost(),
        "given_up_seconds": given_up,
        "timers": all,
        "awake_round_trip_seconds": found.as_ref().ok().and_then(|all| all.first()).map(|one| one.ends.awake),
        "no_timer": found.as_ref().err().map(ToString::to_string),
    })
}
