//! `manyways radio infer`: values of a profile from measurements.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use manyways_capture::Source;
use manyways_model::radio::csv::{CsvError, MAX_LINE};
use manyways_model::radio::infer::{Estimate, NoTimer, Probe};
use manyways_model::radio::ladder::{self, Timer};
use manyways_model::radio::powers::{Finding, Fit, Monitor, NoPowers, Powers, Quantity};
use manyways_model::radio::probes::{Probes, Samples};
use manyways_model::radio::profile::{self, Technology};
use manyways_model::radio::{Adopted, Direction, Profile};
use manyways_unit::human::counted;
use manyways_unit::{Span, Time};
use serde_json::{Value, json};

use super::known::{self, Known};
use super::options::{LEAVE, refuse};
use super::timers;
use super::traces::{TraceArgs, failure, span, watched};
use crate::failure::Failure;
use crate::report_file::{self, keep_apart};
use manyways_report::number::{count, joules, percent, seconds, watts};
use manyways_report::text::table;

/// Infer a radio's timers and powers from measurements
///
/// From round trips after gaps (--probes): the release timers and a lower bound of the promotion
/// delay. Round trips from idle contain paging, so only the shortest ones show the promotion. From
/// samples of a power monitor and a packet trace (--power): the powers of the states, by least
/// squares, with the timers of a profile.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio infer --probes radio-probe-wwan0.csv
  manyways radio infer --probes S20US_162_Verizon_4G.csv --json
  manyways radio infer phone.pcap --power monitor.csv --profile verizon-lte
  manyways radio infer phone.pcap --power monitor.csv --profile mine.toml --window 2s --offset 0.35
  manyways radio infer --probes probes.csv phone.pcap --power monitor.csv --profile lte -o mine.toml

With -o, measured values replace those of the profile: each timer replaces the one with the
nearest end, and powers exclude the rest of the device. Promotion delays are
unchanged.

Columns of probes: idle,round_trip in seconds, or interval,RTT2 with milliseconds. Columns of power:
time,watts (or milliwatts), by the clock of the trace.
Exit code: 0; 1 when nothing is found or an input cannot be read; 2 when the arguments are invalid; 128 + n when
signal n ends the run.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// Round trips after gaps, as CSV, also compressed; - for standard input
    #[arg(long, value_name = "FILE")]
    probes: Option<PathBuf>,
    /// Samples of a power monitor, as CSV, also compressed; - for standard input
    #[arg(long, value_name = "FILE")]
    power: Option<PathBuf>,
    /// Profile with the timers of the trace, whose other values remain unless measured: a name of
    /// `manyways radio profiles` or a file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Write the profile with the measured values
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Window for the comparison of energy, longer than a promotion and at least one sample of the
    /// monitor [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    window: Option<Span>,
    /// Seconds to add to the monitor's times if its clock is behind that of the trace [default: 0]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    offset: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.check()?;
    let known = args.profile.as_deref().map(known::profile).transpose()?;
    check_output(args)?;
    let found = match &args.probes {
        Some(file) => Some(probes(file)?),
        None => None,
    };
    let with_timers = adopt_timers(args, known.as_ref(), found.as_ref())?;
    let fitted = match (&args.power, args.traces.paths(), &with_timers) {
        (Some(file), [trace], Some(known)) => Some((powers(args, file, trace, known)?, known)),
        _ => None,
    };
    if let Some(offset) = fitted.as_ref().and_then(|(powers, _)| powers.offset) {
        eprintln!("manyways: the two clocks disagree: another offset halves the unexplained part");
        eprintln!("hint: try --offset {:.3}", args.offset.unwrap_or_default() + offset);
    }
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
    let failure = Failure::new(format!("no timer found in {name}: {why}"));
    Err(failure
        .hint(format!(
            "{} were answered; run `manyways radio probe` for more",
            counted(probes, "probe")
        ))
        .into())
}

impl Args {
    /// Refuses options without effect in their combination.
    fn check(&self) -> Result<(), Failure> {
        let probes_only = self.power.is_none();
        refuse(&[
            (
                self.probes.is_none() && self.power.is_none(),
                "neither --probes nor --power is given",
                "give --probes FILE, or TRACE --power FILE --profile NAME",
            ),
            (
                self.power.is_some() && (self.profile.is_none() || self.traces.paths().len() != 1),
                "--power needs one trace and the --profile with its timers",
                "manyways radio infer phone.pcap --power monitor.csv --profile lte",
            ),
            (
                probes_only && !self.traces.paths().is_empty(),
                "a trace has no effect without --power",
                "add --power FILE and --profile NAME, or leave the trace out",
            ),
            (
                probes_only && self.traces.has_local(),
                "--local has no effect without --power",
                LEAVE,
            ),
            (probes_only && self.window.is_some(), "--window has no effect without --power", LEAVE),
            (probes_only && self.offset.is_some(), "--offset has no effect without --power", LEAVE),
            (
                self.output.is_some() && self.profile.is_none(),
                "-o needs a --profile as the base of the new one",
                "add --profile lte; `manyways radio profiles` lists them",
            ),
            (self.force && self.output.is_none(), "--force has no effect without -o", LEAVE),
            (
                probes_only && self.profile.is_some() && self.output.is_none(),
                "--profile has no effect with --probes alone",
                "add -o FILE to write the profile with the measured timers",
            ),
            (
                self.offset.is_some_and(|offset| !(-1e9..=1e9).contains(&offset)),
                "--offset must be a number of seconds from -1e9 to 1e9",
                "write it like --offset 0.35",
            ),
        ])
    }

    fn window(&self) -> Span {
        self.window.unwrap_or(Span::from_secs(1))
    }
}

/// Fails if the profile cannot be written there, or if standard input would be read twice.
fn check_output(args: &Args) -> Result<()> {
    let read = args.traces.paths().iter().chain(&args.probes).chain(&args.power);
    if read.filter(|path| path.as_os_str() == "-").count() > 1 {
        let failure = Failure::usage("only one input can be read from standard input");
        return Err(failure.hint("save the others to files first").into());
    }
    let Some(output) = &args.output else {
        return Ok(());
    };
    if output.is_dir() || output.as_os_str() == "-" {
        let failure = Failure::usage(format!("{} cannot be a file's name", output.display()));
        return Err(failure.hint("write it like -o mine.toml").into());
    }
    report_file::check_folder(output)?;
    let given = args.traces.paths().iter().chain(&args.probes).chain(&args.power);
    let profile = args.profile.as_ref().map(Path::new).filter(|path| path.is_file());
    let inputs: Vec<&Path> = given.map(PathBuf::as_path).chain(profile).collect();
    keep_apart(&inputs, &[output])?;
    if output.is_file() && !args.force {
        let failure = Failure::usage(format!("{} already exists", output.display()));
        return Err(failure.hint("name another file, or replace the file with --force").into());
    }
    Ok(())
}

/// The profile with the measured timers, if it is to be written with them; the powers are then
/// fitted to the states of these timers.
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
    let source = "round trips after gaps, by manyways radio infer";
    let profile = known.profile.clone().with_timers(&ends, source).map_err(|error| {
        let ends: Vec<String> = ends.iter().map(|end| seconds(*end)).collect();
        Failure::new(format!("{error}: the timers end after {}", ends.join(", ")))
            .hint("start from the --profile of another technology")
    })?;
    Ok(Some(Known { name: known.name.clone(), profile }))
}

/// Ends of the timers for a profile: the middle between the longest gap before a transition and the
/// shortest one after it. For a gradual transition, the middle of onset and completion is used,
/// except for profiles with an inactive state (5G), where both are timers.
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

/// Warns if the profile's promotion delay is below the measured minimum.
fn compare(timers: &[Timer], profile: &Profile) {
    let Some(last) = timers.last() else { return };
    let Some(released) = profile.states.iter().find(|state| state.is_released) else { return };
    let delay = released.promotion_delay.as_secs_f64();
    if delay < last.promotion {
        let (delay, least) = (seconds(delay), seconds(last.promotion));
        eprintln!(
            "manyways: the profile's promotion delay is {delay}, but at least {least} were measured"
        );
        eprintln!("hint: increase the promotion-delay of `{}`", released.name);
    }
}

const MEASURED: &str = ", with the measured timers";
/// A fit with a smaller explained share does not change a profile.
const LEAST_EXPLAINED: f64 = 0.5;

/// Writes the profile with the measured values.
fn save(args: &Args, file: &Path, known: &Known, fitted: Option<&Powers>) -> Result<()> {
    let mut changed = known.profile.clone();
    let (mut rest, mut negative) = (Some(0.0), Vec::new());
    if let Some(powers) = fitted {
        if powers.explained < LEAST_EXPLAINED {
            let explained = percent(powers.explained);
            let sentence = format!(
                "the fit explains only {explained} of the variance, too little for a profile"
            );
            return Err(Failure::new(sentence)
                .hint("check that the trace is of this radio and that both clocks agree (--offset)")
                .into());
        }
        Adopted { profile: changed, rest, negative } =
            changed.with_powers(powers, "a power monitor, by manyways radio infer");
    }
    if !changed.title.ends_with(MEASURED) {
        changed.title.push_str(MEASURED);
    }
    let text = profile::write(&changed);
    if let Err(error) = profile::parse(&text) {
        let failure = Failure::new(format!("the results do not make a valid profile: {error}"));
        return Err(failure
            .hint("check the power column's unit and both clocks (--offset)")
            .into());
    }
    report_file::write(file, &text)?;
    let words = match rest {
        Some(rest) if rest > 0.0 => {
            format!(", without the {} of the rest of the device", watts(rest))
        }
        _ => String::new(),
    };
    let old = args.profile.as_deref().unwrap_or_default();
    eprintln!("{} contains {old} with the measured values{words}.", file.display());
    if rest.is_none() {
        eprintln!("manyways: the powers include the rest of the device");
        eprintln!("hint: record a trace with gaps that are long enough to release the radio");
    }
    if !negative.is_empty() {
        let names: Vec<String> =
            negative.iter().map(|quantity| name(*quantity, &known.profile)).collect();
        eprintln!("manyways: negative, and set to 0 in the profile: {}", names.join(", "));
        eprintln!("hint: check the profile's timers, the trace's radio and both clocks (--offset)");
    }
    Ok(())
}

type Found = (usize, Result<Vec<Timer>, NoTimer>);

/// Passes the lines of a file to a callback.
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
        let text = str::from_utf8(&line).map_err(|_| {
            Failure::new(format!("{name}, line {number}: the line is not UTF-8 text"))
        })?;
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

fn powers(args: &Args, file: &Path, trace: &Path, known: &Known) -> Result<Powers> {
    let failed = |error: NoPowers| {
        let hint = match error {
            NoPowers::TooLong => "choose a longer --window",
            _ => "use the same clock for both (--offset), and some minutes in common",
        };
        Failure::new(format!("cannot fit powers: {error}")).hint(hint)
    };
    let (fit, signal) = watched(|progress| {
        let monitor = monitor(args, file, &progress.stop)?;
        let mut fit = Fit::new(&known.profile, monitor).map_err(failed)?;
        let mut trace = args.traces.open(trace, None, progress)?;
        trace.read(progress, |packet| fit.packet(packet)).map_err(failure)?;
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

/// Reads the samples of a power monitor.
fn monitor(args: &Args, file: &Path, stop: &Arc<AtomicBool>) -> Result<Monitor> {
    let mut monitor = Monitor::new(args.window());
    let mut reader = None;
    let offset = args.offset.unwrap_or_default();
    let later = |at: Time| {
        let nanos = at.as_nanos() as i128 + (offset * 1e9).round() as i128;
        u64::try_from(nanos).ok().map(Time::from_nanos)
    };
    lines(file, stop, |line| {
        match &mut reader {
            None => reader = Some(Samples::new(line)?),
            Some(reader) => {
                if let Some((at, watts)) = reader.line(line)?
                    && let Some(at) = later(at)
                {
                    monitor.sample(at, watts);
                }
            }
        }
        Ok(())
    })?;
    Ok(monitor)
}

/// Name of a quantity for the user.
fn name(quantity: Quantity, profile: &Profile) -> String {
    let state = |place: usize| profile.states.get(place).map_or("", |state| &state.name);
    match quantity {
        Quantity::Transfer(Direction::Up) => "sending".to_owned(),
        Quantity::Transfer(Direction::Down) => "receiving".to_owned(),
        Quantity::PerMbit(Direction::Up) => "sending, per Mbit".to_owned(),
        Quantity::PerMbit(Direction::Down) => "receiving, per Mbit".to_owned(),
        Quantity::State(place) => state(place).to_owned(),
        Quantity::Promotion(place) => format!("promotion from {}", state(place)),
        Quantity::Demotion(place) => format!("demotion to {}", state(place)),
    }
}

/// A value in the unit of a quantity.
fn show(quantity: Quantity, value: f64) -> String {
    if quantity.is_power() { watts(value) } else { joules(value) }
}

fn text(found: Option<&Found>, fitted: Option<&(Powers, &Known)>) -> String {
    let mut text = String::new();
    if let Some((probes, timers)) = found {
        text.push_str(&format!("{} answered probes.\n", count(*probes as u64)));
        match timers {
            Ok(timers) => text.push_str(&timers::sentences(timers)),
            Err(error) => text.push_str(&format!("No timer was found: {error}.\n")),
        }
    }
    if let Some((powers, known)) = fitted {
        text.push_str(&of_powers(powers, known));
    }
    text
}

fn of_powers(powers: &Powers, known: &Known) -> String {
    let profile = &known.profile;
    let mut lines = vec![["", "fitted", "±", "in the profile"].map(str::to_owned).to_vec()];
    for (quantity, finding) in &powers.numbers {
        let (fitted, error) = match finding {
            Finding::Told(fitted) => (show(*quantity, fitted.value), show(*quantity, fitted.error)),
            _ => ("not determined".to_owned(), String::new()),
        };
        let own = show(*quantity, profile.number(*quantity));
        lines.push(vec![name(*quantity, profile), fitted, error, own]);
    }
    let mut text = table(&lines);
    text.push_str(&format!(
        "\n{} windows of {}, samples {} apart; {} of the variance is explained by the states of \
         {}'s timers. The power of the last state includes the rest of the device.\n",
        count(powers.windows as u64),
        seconds(powers.window.as_secs_f64()),
        seconds(powers.sampled.as_secs_f64()),
        percent(powers.explained),
        known.name
    ));
    for note in notes(powers, profile) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// Notes on values that are not determined, or vague.
fn notes(powers: &Powers, profile: &Profile) -> Vec<String> {
    let names = |quantities: &[Quantity]| {
        let names: Vec<String> = quantities.iter().map(|one| name(*one, profile)).collect();
        names.join("; ")
    };
    let mut notes = Vec::new();
    let (mut unseen, mut vague, mut groups) = (Vec::new(), Vec::new(), Vec::<Vec<Quantity>>::new());
    for (quantity, finding) in &powers.numbers {
        match finding {
            Finding::NotSeen => unseen.push(*quantity),
            Finding::NotApart(_) if groups.iter().flatten().any(|one| one == quantity) => {}
            Finding::NotApart(others) => {
                groups.push([&[*quantity], others.as_slice()].concat());
            }
            Finding::Told(_) if profile.is_vague(powers, *quantity) => vague.push(*quantity),
            Finding::Told(_) => {}
        }
    }
    if !unseen.is_empty() {
        notes.push(format!("Not in the trace: {}.", names(&unseen)));
    }
    for group in groups {
        notes.push(format!("Only together in the trace: {}.", names(&group)));
    }
    if !vague.is_empty() {
        notes.push(format!("Too uncertain for a profile: {}.", names(&vague)));
    }
    for (quantity, finding) in &powers.numbers {
        if let Finding::Told(fitted) = finding
            && fitted.is_bounded()
        {
            notes.push(format!(
                "Negative without the bound at 0: {}, {} ± {}.",
                name(*quantity, profile),
                show(*quantity, fitted.free),
                show(*quantity, fitted.error)
            ));
        }
    }
    let window = powers.window;
    let last = profile.states.len() - 1;
    let short = profile.states[..last].iter().filter(|one| one.timer.is_some_and(|it| it < window));
    let short: Vec<&str> = short.map(|state| state.name.as_str()).collect();
    if !short.is_empty() {
        notes.push(format!(
            "Shorter than a window, so that their power is derived from parts of windows: {}.",
            short.join("; ")
        ));
    }
    let long = profile.states.iter().filter(|state| state.promotion_delay > window);
    let long: Vec<&str> = long.map(|state| state.name.as_str()).collect();
    if !long.is_empty() {
        notes.push(format!(
            "Longer than a window, so that their energy may be in the powers of the next states: \
             promotions from {}.",
            long.join("; ")
        ));
    }
    notes
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
        let profile = &known.profile;
        let all = powers.numbers.iter().map(|(quantity, finding)| {
            let told = powers.told(*quantity);
            let (found, others) = match finding {
                Finding::NotSeen => ("not-seen", &[][..]),
                Finding::NotApart(others) => ("not-apart", others.as_slice()),
                Finding::Told(_) if profile.is_vague(powers, *quantity) => ("vague", &[][..]),
                Finding::Told(_) => ("told", &[][..]),
            };
            let others: Vec<String> = others.iter().map(|other| name(*other, profile)).collect();
            json!({
                "name": name(*quantity, profile),
                "unit": if quantity.is_power() { "W" } else { "J" },
                "found": found,
                "value": told.map(|fitted| fitted.value),
                "standard_error": told.map(|fitted| fitted.error),
                "unbounded_value": told.map(|fitted| fitted.free),
                "not_apart_from": others,
                "profile_value": profile.number(*quantity),
            })
        });
        json!({
            "profile": known.name,
            "windows": powers.windows,
            "window_seconds": powers.window.as_secs_f64(),
            "sample_seconds": powers.sampled.as_secs_f64(),
            "explained": powers.explained,
            "better_offset_seconds": powers.offset,
            "numbers": all.collect::<Vec<Value>>(),
        })
    });
    json!({ "schema": "manyways.radio-infer/1", "release": timers, "powers": powers })
}
