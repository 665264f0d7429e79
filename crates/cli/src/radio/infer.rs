//! `manyways radio infer`: a profile's numbers out of measurements.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_model::radio::csv::{CsvError, MAX_LINE};
use manyways_model::radio::infer::{NoTimer, Probe};
use manyways_model::radio::ladder::{self, Timer};
use manyways_model::radio::powers::{Fit, Fitted, Powers};
use manyways_model::radio::probes::{Probes, Samples};
use manyways_trace::{Span, Time};
use serde_json::{Value, json};

use super::known::{self, Known};
use super::timers;
use super::traces::{TraceArgs, failure, span, watched};
use super::words::{count, joules, percent, table, watts};
use crate::failure::Failure;

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

Columns of probes: idle,round_trip in seconds, or interval,RTT2 with milliseconds. Columns of power:
time,watts (or milliwatts), by the clock of the trace.
Exit code: 0; 1 when nothing can be found or read; 2 when the request makes no sense; 128 + n when signal
n ends it.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// Round trips after silences, as CSV.
    #[arg(long, value_name = "FILE")]
    probes: Option<PathBuf>,
    /// What a power monitor saw, as CSV.
    #[arg(long, value_name = "FILE", requires_all = ["traces", "profile"])]
    power: Option<PathBuf>,
    /// Whose timers hold for the trace: a name of `manyways radio profiles`, or a file.
    #[arg(long, value_name = "PROFILE", requires = "power")]
    profile: Option<String>,
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
    let found = match &args.probes {
        Some(file) => Some(probes(file)?),
        None => None,
    };
    let fitted = match (&args.power, &args.profile) {
        (Some(file), Some(profile)) => Some((powers(args, file, profile)?, profile)),
        _ => None,
    };
    if let Some((probes, Err(error))) = &found
        && fitted.is_none()
    {
        let name = args.probes.as_deref().unwrap_or(Path::new("")).display();
        let failure = Failure::new(format!("no timer is to be found in {name}: {error}"));
        return Err(failure.hint(format!("it has {probes} probes that answered")).into());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&document(found.as_ref(), fitted.as_ref()))? + "\n",
        false => text(found.as_ref(), fitted.as_ref()),
    };
    super::print(&text)
}

type Found = (usize, Result<Vec<Timer>, NoTimer>);
type Told = (Powers, Known);

/// Hands out the lines of a file.
fn lines(path: &Path, mut each: impl FnMut(&str) -> Result<(), CsvError>) -> Result<()> {
    let name = path.display();
    let wrong = |error: CsvError| {
        let failure = Failure::new(format!("{name}, {error}"));
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    };
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut reader = BufReader::with_capacity(1 << 17, file);
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
    lines(path, |line| {
        match &mut reader {
            None => reader = Some(Probes::new(line)?),
            Some(reader) => all.extend(reader.line(line)?),
        }
        Ok(())
    })?;
    Ok((all.len(), ladder::timers(&all)))
}

fn powers(args: &Args, file: &Path, profile: &str) -> Result<Told> {
    let [path] = args.traces.paths() else {
        return Err(Failure::usage("one trace is wanted").into());
    };
    let known = known::profile(profile)?;
    let (fit, signal) = watched(|progress| {
        let mut fit = Fit::new(&known.profile, args.window);
        let mut trace = args.traces.open(path, None, progress)?;
        trace.read(progress, |packet| fit.packet(packet)).map_err(failure)?;
        let mut reader = None;
        let later = |at: Time| {
            let nanos = at.as_nanos() as i128 + (args.offset * 1e9).round() as i128;
            u64::try_from(nanos).ok().map(Time::from_nanos)
        };
        lines(file, |line| {
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
        None => Ok((fit, known)),
    }
}

/// Names, units and values of what was fitted.
fn rows((powers, known): &Told) -> Vec<(String, &'static str, Option<Fitted>)> {
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

fn text(found: Option<&Found>, fitted: Option<&(Told, &String)>) -> String {
    let mut text = String::new();
    if let Some((probes, timers)) = found {
        text.push_str(&format!("{} probes that answered.\n", count(*probes as u64)));
        match timers {
            Ok(timers) => text.push_str(&timers::sentences(timers)),
            Err(error) => text.push_str(&format!("No timer was found: {error}.\n")),
        }
    }
    if let Some((told, profile)) = fitted {
        let mut lines = vec![["", "fitted", "±", "in the profile"].map(str::to_owned).to_vec()];
        let profile_says = says(&told.1);
        for ((name, unit, value), says) in rows(told).into_iter().zip(profile_says) {
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
            "\n{} windows; {} of the variance is explained by the states that {profile}'s timers \
             give. The last state's power has in it all else that the device takes.\n",
            count(told.0.windows as u64),
            percent(told.0.explained)
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

fn document(found: Option<&Found>, fitted: Option<&(Told, &String)>) -> Value {
    let timers = found.map(|(probes, timers)| {
        json!({
            "probes": probes,
            "timers": timers::document(timers.as_deref().unwrap_or_default()),
            "no_timer": timers.as_ref().err().map(ToString::to_string),
        })
    });
    let powers = fitted.map(|(told, profile)| {
        let all = rows(told).into_iter().map(|(name, unit, value)| {
            json!({
                "name": name,
                "unit": unit,
                "value": value.map(|fitted| fitted.value),
                "standard_error": value.map(|fitted| fitted.error),
            })
        });
        json!({
            "profile": profile,
            "windows": told.0.windows,
            "explained": told.0.explained,
            "numbers": all.collect::<Vec<Value>>(),
        })
    });
    json!({ "schema": "manyways.radio-infer/1", "release": timers, "powers": powers })
}
