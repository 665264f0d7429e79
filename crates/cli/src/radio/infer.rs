//! `manyways radio infer`: values of a profile from measurements.

mod text;

pub use self::text::sentences;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use manyways_model::radio::calibrate::CalibrationError;
use manyways_model::radio::gap_sweep::InferredTimer;
use manyways_model::radio::powers::Powers;
use manyways_model::radio::profiles::Known;
use manyways_net::radio::infer::{self, Document, InferError, Inferred};
use manyways_record::document;
use manyways_unit::Span;
use manyways_unit::human::count_with_noun;

use super::named_profile;
use super::options::{NO_EFFECT_HINT, check_combinations};
use super::traces::{TraceArgs, span, with_progress};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct};
use manyways_report::number::{percent, seconds, watts};

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
    /// Profile with the timers of the trace; values that are not measured are kept: a name of
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
    let known = args.profile.as_deref().map(named_profile::find).transpose()?;
    check_output(args)?;
    let inferred = args.probes.as_deref().map(infer::timers).transpose().map_err(failure)?;
    let timers = inferred.as_ref().and_then(|inferred| inferred.timers.as_deref().ok());
    let with_timers = known.as_ref().map(|known| apply_timers(args, known, timers)).transpose()?;
    let fitted = match (&args.power, args.traces.paths(), &with_timers) {
        (Some(file), [trace], Some(known)) => Some((powers(args, file, trace, known)?, known)),
        _ => None,
    };
    let fitted = fitted.as_ref().map(|(powers, known)| (powers, *known));
    if let Some(offset) = fitted.and_then(|(powers, _)| powers.offset) {
        eprintln!("manyways: the two clocks disagree: another offset halves the unexplained part");
        eprintln!("hint: try --offset {:.3}", args.offset.unwrap_or_default() + offset);
    }
    if args.json {
        let document = Document::new(inferred.as_ref(), fitted);
        super::print(&document::to_json_pretty(&document)?)?;
    }
    if let Some(Inferred { probes, timers: Err(error) }) = &inferred
        && fitted.is_none()
    {
        let name = args.probes.as_deref().unwrap_or(Path::new("")).display();
        let answered = count_with_noun(*probes, "probe");
        return Err(Failure::new(format!("no timer found in {name}: {error}"))
            .hint(format!("{answered} were answered; run `manyways radio probe` for more"))
            .into());
    }
    if !args.json {
        super::print(&text::text(inferred.as_ref(), fitted))?;
    }
    if let Some((file, known)) = args.output.as_ref().zip(with_timers.as_ref()) {
        save(args, file, known, fitted.map(|(powers, _)| powers))?;
        if let Some((state, least)) = known.profile.short_promotion(timers.unwrap_or_default()) {
            let (delay, least) = (seconds(state.promotion_delay.as_secs_f64()), seconds(least));
            eprintln!(
                "manyways: the profile's promotion delay is {delay}, but the measured delay is at least {least}"
            );
            eprintln!("hint: increase the promotion-delay of `{}`", state.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Refuses options without effect in their combination.
    fn check(&self) -> Result<(), Failure> {
        let probes_only = self.power.is_none();
        check_combinations(&[
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
                NO_EFFECT_HINT,
            ),
            (
                probes_only && self.window.is_some(),
                "--window has no effect without --power",
                NO_EFFECT_HINT,
            ),
            (
                probes_only && self.offset.is_some(),
                "--offset has no effect without --power",
                NO_EFFECT_HINT,
            ),
            (
                self.output.is_some() && self.profile.is_none(),
                "-o needs a --profile as the base of the new one",
                "add --profile lte; `manyways radio profiles` lists them",
            ),
            (
                self.force && self.output.is_none(),
                "--force has no effect without -o",
                NO_EFFECT_HINT,
            ),
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
        let hint = "save the others to files first";
        return Failure::refuse("only one input can be read from standard input", hint);
    }
    let Some(output) = &args.output else {
        return Ok(());
    };
    if output.is_dir() || output.as_os_str() == "-" {
        let hint = "write it like -o mine.toml";
        return Failure::refuse(format!("{} cannot be a file's name", output.display()), hint);
    }
    report_file::check_folder(output)?;
    let given = args.traces.paths().iter().chain(&args.probes).chain(&args.power);
    let profile = args.profile.as_ref().map(Path::new).filter(|path| path.is_file());
    let inputs: Vec<&Path> = given.map(PathBuf::as_path).chain(profile).collect();
    check_distinct(&inputs, &[output])?;
    if output.is_file() && !args.force {
        let hint = "name another file, or replace the file with --force";
        return Failure::refuse(format!("{} already exists", output.display()), hint);
    }
    Ok(())
}

/// The profile with the measured timers, if it is to be written with them; the powers are then
/// fitted to the states of these timers.
fn apply_timers(
    args: &Args,
    known: &Known,
    timers: Option<&[InferredTimer]>,
) -> Result<Known, Failure> {
    let Some(timers) = timers.filter(|_| args.output.is_some()) else { return Ok(known.clone()) };
    let profile = known.profile.clone().with_inferred_timers(timers).map_err(uncalibrated)?;
    Ok(Known { name: known.name.clone(), profile })
}

fn uncalibrated(error: CalibrationError) -> Failure {
    match &error {
        CalibrationError::TooManyTimers { ends, .. } => {
            let ends: Vec<String> = ends.iter().map(|end| seconds(*end)).collect();
            Failure::new(format!("{error}: the timers end after {}", ends.join(", ")))
                .hint("start from the --profile of another technology")
        }
        CalibrationError::Unexplained(explained) => Failure::new(format!(
            "the fit explains only {} of the variance, too little for a profile",
            percent(*explained)
        ))
        .hint("check that the trace is of this radio and that both clocks agree (--offset)"),
        _ => Failure::new(error.to_string())
            .hint("check the power column's unit and both clocks (--offset)"),
    }
}

/// Writes the profile with the measured values.
fn save(args: &Args, file: &Path, known: &Known, fitted: Option<&Powers>) -> Result<()> {
    let (adopted, text) = known.profile.clone().calibrated(fitted).map_err(uncalibrated)?;
    report_file::write(file, &text)?;
    let words = match adopted.rest_of_device {
        Some(rest) if rest > 0.0 => {
            format!(", without the {} of the rest of the device", watts(rest))
        }
        _ => String::new(),
    };
    let old = args.profile.as_deref().unwrap_or_default();
    eprintln!("{} contains {old} with the measured values{words}.", file.display());
    if adopted.rest_of_device.is_none() {
        eprintln!("manyways: the powers include the rest of the device");
        eprintln!("hint: record a trace with gaps that are long enough to release the radio");
    }
    if !adopted.negative.is_empty() {
        let names = text::names(&adopted.negative, &known.profile, ", ");
        eprintln!("manyways: negative, and set to 0 in the profile: {names}");
        eprintln!("hint: check the profile's timers, the trace's radio and both clocks (--offset)");
    }
    Ok(())
}

fn powers(args: &Args, file: &Path, trace: &Path, known: &Known) -> Result<Powers> {
    let (window, offset) = (args.window(), args.offset.unwrap_or_default());
    let (powers, signal) = with_progress(|progress| {
        let fit = infer::samples(file, &known.profile, window, offset, &progress.stop);
        let fit = fit.map_err(failure)?;
        let mut trace = args.traces.open(trace, None, progress)?;
        Ok(infer::powers(fit, &mut trace, progress).map_err(failure)?)
    })?;
    match signal {
        Some(signal) => {
            let failure = Failure::new("stopped before the end");
            Err(failure.code((128 + signal) as u8).into())
        }
        None => Ok(powers),
    }
}

fn failure(error: InferError) -> Failure {
    Failure::new(error.to_string()).maybe_hint(error.hint())
}
