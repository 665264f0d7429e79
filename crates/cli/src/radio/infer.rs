//! `manyways radio infer`: a profile's numbers out of measurements.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use manyways_capture::Source;
use manyways_model::radio::Profile;
use manyways_model::radio::csv::{CsvError, MAX_LINE};
use manyways_model::radio::infer::{Estimate, NoTimer, Probe};
use manyways_model::radio::ladder::{self, Timer};
use manyways_model::radio::powers::{Fit, Fitted, Powers};
use manyways_model::radio::probes::{Probes, Samples};
use manyways_model::radio::profile::{self, Technology};
use manyways_unit::{Span, Time};
use serde_json::{Value, json};

use super::known::{self, Known};
use super::timers;
use super::traces::{TraceArgs, failure, span, watched};
use crate::failure::Failure;
use crate::report_file::{self, keep_apart};
use manyways_report::number::{count, joules, percent, seconds, watts};
use manyways_report::text::table;

/// Find a radio's timers and powers in measurements.
///
/// From round trips after silences (--probes): when the network lets go of the radio, and at least how
/// long it takes to come back. Idle round trips have paging in them, so that only the shortest ones say
/// anything of the promotion. From what a power monitor saw while a trace of packets passed (--power):
/// the powers of the states, by least squares, where the timers are those of a profile.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio infer --probes radio-probe-wwan0.csv
  manyways radio infer --probes S20US_162_Verizon_4G.csv --json
  manyways radio infer phone.pcap --power monitor.csv --profile verizon-lte
  manyways radio infer phone.pcap --power monitor.csv --profile mine.toml --window 2s --offset 0.35
  manyways radio infer --probes probes.csv phone.pcap --power monitor.csv --profile lte -o mine.toml

With -o, what was found takes the place of the profile's own numbers: each timer that of the one
that ends nearest to it, and powers without what the rest of the device takes. Promotion delays are
left as they are.

Columns of probes: idle,round_trip in seconds, or interval,RTT2 with milliseconds. Columns of power:
time,watts (or milliwatts), by the clock of the trace.
Exit code: 0; 1 when nothing can be found or read; 2 when the request makes no sense; 128 + n when
signal n ends it.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// Round trips after silences, as CSV, also compressed; - for standard input.
    #[arg(long, value_name = "FILE")]
    probes: Option<PathBuf>,
    /// What a power monitor saw, as CSV, also compressed; - for standard input.
    #[arg(long, value_name = "FILE", requires_all = ["traces", "profile"])]
    power: Option<PathBuf>,
    /// Whose timers hold for the trace, and whose numbers stay where none is found: a name of
    /// `manyways radio profiles`, or a file.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Write the profile with what was found in it.
    #[arg(short, long, value_name = "FILE", requires = "profile")]
    output: Option<PathBuf>,
    /// Replace the file where it is there already.
    #[arg(long, requires = "output")]
    force: bool,
    /// Energy is compared in steps of this; longer than a promotion takes.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    window: Span,
    /// What to add to the monitor's times, in seconds: its clock is behind the trace's by so much.
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_hyphen_values = true)]
    offset: f64,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.probes.is_none() && args.power.is_none() {
        let failure = Failure::usage("there is nothing to infer from");
        return Err(failure
            .hint("give --probes FILE, or TRACE --power FILE --profile NAME")
            .into());
    }
    if !(-1e9..=1e9).contains(&args.offset) {
        return Err(Failure::usage("that is no offset").hint("--offset 0.35, in seconds").into());
    }
    let known = args.profile.as_deref().map(known::profile).transpose()?;
    check_output(args)?;
    let found = match &args.probes {
        Some(file) => Some(probes(file)?),
        None => None,
    };
    let with_timers = adopt_timers(args, known.as_ref(), found.as_ref())?;
    let fitted = match (&args.power, &with_timers) {
        (Some(file), Some(known)) => Some((powers(args, file, known)?, known)),
        _ => None,
    };
    let is_nothing = matches!(&found, Some((_, Err(_)))) && fitted.is_none();
    if args.json || !is_nothing {
        let text = match args.json {
            true => {
                serde_json::to_string_pretty(&document(found.as_ref(), fitted.as_ref()))? + "\n"
            }
            false => text(found.as_ref(), fitted.as_ref()),
        };
        let printed = super::print(&text)?;
        if !is_nothing {
            if let Some((file, known)) = args.output.as_ref().zip(with_timers.as_ref()) {
                save(args, file, known, fitted.as_ref().map(|(powers, _)| powers))?;
                if let Some((_, Ok(timers))) = &found {
                    compare(timers, &known.profile);
                }
            }
            return Ok(printed);
        }
    }
    let (probes, why) = match &found {
        Some((probes, Err(error))) => (*probes, error.to_string()),
        _ => (0, String::new()),
    };
    let name = args.probes.as_deref().unwrap_or(Path::new("")).display();
    let failure = Failure::new(format!("no timer is to be found in {name}: {why}"));
    Err(failure.hint(format!("it has {probes} probes that answered")).into())
}

/// Whether a profile can be written where it is wanted, and nothing is read twice.
fn check_output(args: &Args) -> Result<()> {
    let read = args.traces.paths().iter().chain(&args.probes).chain(&args.power);
    if read.filter(|path| path.as_os_str() == "-").count() > 1 {
        let failure = Failure::usage("standard input can be read for one of them only");
        return Err(failure.hint("write the others to files first").into());
    }
    let Some(output) = &args.output else {
        if args.profile.is_some() && args.power.is_none() {
            let failure = Failure::usage("the probes alone need no --profile");
            return Err(failure.hint("-o FILE writes it with the timers that are found").into());
        }
        return Ok(());
    };
    if output.is_dir() || output.as_os_str() == "-" {
        let failure = Failure::usage(format!("{} is no name for a file", output.display()));
        return Err(failure.hint("-o mine.toml").into());
    }
    report_file::check_folder(output)?;
    let given = args.traces.paths().iter().chain(&args.probes).chain(&args.power);
    let profile = args.profile.as_ref().map(Path::new).filter(|path| path.is_file());
    let inputs: Vec<&Path> = given.map(PathBuf::as_path).chain(profile).collect();
    keep_apart(&inputs, &[output])?;
    if output.is_file() && !args.force {
        let failure = Failure::usage(format!("{} is there already", output.display()));
        return Err(failure.hint("name another file, or replace it with --force").into());
    }
    Ok(())
}

/// The profile with the timers that were found, where it is to be written with them; the powers are then
/// those of the states that these give.
fn adopt_timers(
    args: &Args,
    known: Option<&Known>,
    found: Option<&Found>,
) -> Result<Option<Known>> {
    let Some(known) = known else { return Ok(None) };
    let timers = found.and_then(|(_, timers)| timers.as_deref().ok());
    let Some(timers) = timers.filter(|_| args.output.is_some()) else {
        return Ok(Some(known.clone()));
    };
    let ends = ends(timers, &known.profile);
    let source = "round trips after silences, by manyways radio infer";
    let profile = known.profile.clone().with_timers(&ends, source).map_err(|error| {
        let ends: Vec<String> = ends.iter().map(|end| seconds(*end)).collect();
        Failure::new(format!("{error}: they end after {}", ends.join(", ")))
            .hint("begin with the --profile of another technology")
    })?;
    Ok(Some(Known { name: known.name.clone(), profile }))
}

/// When timers end, as a profile has it: in the middle between the longest silence before and the
/// shortest one behind. One that ends sometimes here and always there ends in the middle between both,
/// but where the device is inactive in between, as 5G has it, both are timers.
fn ends(timers: &[Timer], profile: &Profile) -> Vec<f64> {
    let middle = |estimate: &Estimate| (estimate.before + estimate.value) / 2.0;
    if let [timer] = timers
        && profile.technology == Technology::Nr
        && profile.states.len() == 3
        && timer.ends.onset.value < timer.ends.completion.value
    {
        return vec![middle(&timer.ends.onset), middle(&timer.ends.completion)];
    }
    let both = |timer: &Timer| (middle(&timer.ends.onset) + middle(&timer.ends.completion)) / 2.0;
    timers.iter().map(both).collect()
}

/// Says where a profile's promotion takes less than it took at least.
fn compare(timers: &[Timer], profile: &Profile) {
    let Some(last) = timers.last() else { return };
    let Some(released) = profile.states.iter().find(|state| state.is_released) else { return };
    let delay = released.promotion_delay.as_secs_f64();
    if delay < last.promotion {
        let (delay, least) = (seconds(delay), seconds(last.promotion));
        eprintln!("manyways: its promotion delay is {delay}, where at least {least} were measured");
        eprintln!("hint: give `{}` in it a longer promotion-delay", released.name);
    }
}

const MEASURED: &str = ", with what was measured";
/// A fit that explains less makes no profile.
const LEAST_EXPLAINED: f64 = 0.5;

/// Writes the profile with what was found.
fn save(args: &Args, file: &Path, known: &Known, fitted: Option<&Powers>) -> Result<()> {
    let mut changed = known.profile.clone();
    let mut rest = Some(0.0);
    if let Some(powers) = fitted {
        if powers.explained < LEAST_EXPLAINED {
            let explained = percent(powers.explained);
            let failure = Failure::new(format!(
                "{explained} of the variance is explained: that is no profile"
            ));
            return Err(failure.hint("is it the trace's radio, and is the clock the same?").into());
        }
        (changed, rest) = changed.with_powers(powers, "a power monitor, by manyways radio infer");
    }
    if !changed.title.ends_with(MEASURED) {
        changed.title.push_str(MEASURED);
    }
    let text = profile::write(&changed);
    if let Err(error) = profile::parse(&text) {
        let failure = Failure::new(format!("what was found makes no profile: {error}"));
        return Err(failure.hint("are the columns in watts, and the clocks the same?").into());
    }
    report_file::write(file, &text)?;
    let words = match rest {
        Some(rest) if rest > 0.0 => {
            format!(", without the {} that the rest of the device takes", watts(rest))
        }
        _ => String::new(),
    };
    let old = args.profile.as_deref().unwrap_or_default();
    eprintln!("{} is {old} with what was found{words}.", file.display());
    if rest.is_none() {
        eprintln!("manyways: what the rest of the device takes is in its powers");
        eprintln!("hint: take a trace with silences in which the radio is released");
    }
    Ok(())
}

type Found = (usize, Result<Vec<Timer>, NoTimer>);

/// Hands out the lines of a file.
fn lines(
    path: &Path,
    stop: &Arc<AtomicBool>,
    mut each: impl FnMut(&str) -> Result<(), CsvError>,
) -> Result<()> {
    let name = path.display();
    let wrong = |error: CsvError| {
        let failure = Failure::new(format!("{name}, {error}"));
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    };
    let opened = Source::at(path).and_then(|source| source.reader(stop));
    let opened = opened.map_err(|error| Failure::new(error.to_string()))?;
    let mut reader = BufReader::with_capacity(1 << 17, opened);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let room = MAX_LINE as u64 + 1;
        let read = reader.by_ref().take(room).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {name}"))? == 0 {
            return Ok(());
        }
        let text = str::from_utf8(&line)
            .map_err(|_| Failure::new(format!("{name}, line {number}: it is not text")))?;
        each(text).map_err(wrong)?;
    }
}

fn probes(path: &Path) -> Result<Found> {
    let mut reader = None;
    let mut all: Vec<Probe> = Vec::new();
    lines(path, &Arc::default(), |line| {
        match &mut reader {
            None => reader = Some(Probes::new(line)?),
            Some(reader) => all.extend(reader.line(line)?),
        }
        Ok(())
    })?;
    Ok((all.len(), ladder::timers(&all)))
}

fn powers(args: &Args, file: &Path, known: &Known) -> Result<Powers> {
    let [path] = args.traces.paths() else {
        return Err(Failure::usage("one trace is wanted").into());
    };
    let (fit, signal) = watched(|progress| {
        let mut fit = Fit::new(&known.profile, args.window);
        let mut trace = args.traces.open(path, None, progress)?;
        trace.read(progress, |packet| fit.packet(packet)).map_err(failure)?;
        let mut reader = None;
        let later = |at: Time| {
            let nanos = at.as_nanos() as i128 + (args.offset * 1e9).round() as i128;
            u64::try_from(nanos).ok().map(Time::from_nanos)
        };
        lines(file, &progress.stop, |line| {
            match &mut reader {
                None => reader = Some(Samples::new(line)?),
                Some(reader) => {
                    if let Some((at, watts)) = reader.line(line)?
                        && let Some(at) = later(at)
                    {
                        fit.sample(at, watts);
                    }
                }
            }
            Ok(())
        })?;
        let failed = |error: manyways_model::radio::powers::NoPowers| {
            Failure::new(format!("nothing can be fitted: {error}"))
                .hint("the two must have one clock (--offset), and last for some minutes")
        };
        Ok(fit.finish().map_err(failed)?)
    })?;
    match signal {
        Some(signal) => {
            let failure = Failure::new("stopped before the end");
            Err(failure.code((128 + signal) as u8).into())
        }
        None => Ok(fit),
    }
}

/// Names, units and values of what was fitted.
fn rows(powers: &Powers, known: &Known) -> Vec<(String, &'static str, Option<Fitted>)> {
    let mut rows = vec![
        ("sending".to_owned(), "W", powers.transfer[0]),
        ("receiving".to_owned(), "W", powers.transfer[1]),
        ("sending, a million bits".to_owned(), "J", powers.per_mbit[0]),
        ("receiving, a million bits".to_owned(), "J", powers.per_mbit[1]),
    ];
    for (state, fitted) in known.profile.states.iter().zip(&powers.states) {
        rows.push((state.name.clone(), "W", *fitted));
    }
    rows.push(("to be brought back".to_owned(), "J", powers.promotion));
    rows.push(("to be let go".to_owned(), "J", powers.demotion));
    rows
}

fn text(found: Option<&Found>, fitted: Option<&(Powers, &Known)>) -> String {
    let mut text = String::new();
    if let Some((probes, timers)) = found {
        text.push_str(&format!("{} probes that answered.\n", count(*probes as u64)));
        match timers {
            Ok(timers) => text.push_str(&timers::sentences(timers)),
            Err(error) => text.push_str(&format!("No timer was found: {error}.\n")),
        }
    }
    if let Some((powers, known)) = fitted {
        let mut lines = vec![["", "fitted", "±", "in the profile"].map(str::to_owned).to_vec()];
        let profile_says = says(known);
        for ((name, unit, value), says) in rows(powers, known).into_iter().zip(profile_says) {
            let show = |value: f64| if unit == "W" { watts(value) } else { joules(value) };
            lines.push(vec![
                name,
                value.map_or("not seen apart".to_owned(), |fitted| show(fitted.value)),
                value.map_or(String::new(), |fitted| show(fitted.error)),
                show(says),
            ]);
        }
        text.push_str(&table(&lines));
        text.push_str(&format!(
            "\n{} windows; {} of the variance is explained by the states that {}'s timers \
             give. The last state's power has in it all else that the device takes.\n",
            count(powers.windows as u64),
            percent(powers.explained),
            known.name
        ));
    }
    text
}

/// What the profile says, in the order of the rows.
fn says(known: &Known) -> Vec<f64> {
    let profile = &known.profile;
    let transfer = &profile.transfer;
    let mut all = vec![
        transfer.send.as_watts(),
        transfer.receive.as_watts(),
        transfer.send_per_mbit.as_joules(),
        transfer.receive_per_mbit.as_joules(),
    ];
    let numbers = super::profiles::numbers("", profile);
    all.extend(numbers.states.iter().map(|state| state.mean_watts));
    let released = profile.states.iter().find(|state| state.is_released);
    all.push(released.map_or(0.0, |state| state.promotion.as_joules()));
    all.push(released.map_or(0.0, |state| state.demotion.as_joules()));
    all
}

fn document(found: Option<&Found>, fitted: Option<&(Powers, &Known)>) -> Value {
    let timers = found.map(|(probes, timers)| {
        json!({
            "probes": probes,
            "timers": timers::document(timers.as_deref().unwrap_or_default()),
            "no_timer": timers.as_ref().err().map(ToString::to_string),
        })
    });
    let powers = fitted.map(|(powers, known)| {
        let all = rows(powers, known).into_iter().map(|(name, unit, value)| {
            json!({
                "name": name,
                "unit": unit,
                "value": value.map(|fitted| fitted.value),
                "standard_error": value.map(|fitted| fitted.error),
            })
        });
        json!({
            "profile": known.name,
            "windows": powers.windows,
            "explained": powers.explained,
            "numbers": all.collect::<Vec<Value>>(),
        })
    });
    json!({ "schema": "manyways.radio-infer/1", "release": timers, "powers": powers })
}
