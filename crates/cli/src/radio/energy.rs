//! `manyways radio energy`: energy of a trace and its causes.

mod page;
mod run_table;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use manyways_model::radio::energy::{Battery, By};
use manyways_model::radio::profiles::Known;
use manyways_net::radio::energy::{Document, measure};
use manyways_record::document;
use manyways_unit::Time;
use manyways_unit::human::quoted;

use self::run_table::Sheet;
use super::named_profile;
use super::traces::{self, TraceArgs, failure, with_progress};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Compute the energy of a packet trace on a network
///
/// Prints the energy of transfers and of tails, the number of switches, and the shares of
/// applications and kinds of bursts. The times of packets are taken from the trace and do not
/// depend on the radio.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio energy day.csv --profile lte
  manyways radio energy phone.pcap --local 10.0.0.0/8 --profile att-hspa --battery 4000mAh
  manyways radio energy tables --profile lte --report day.html
  manyways radio energy day.csv --profile lte --profile att-hspa --json
  manyways radio energy --radio lte=phone.pcapng --radio wifi=phone.pcapng    one device, two radios
  manyways radio generate --app mixed-day | manyways radio energy - --profile lte

With --radio, packets of other kinds of networks than the radio's are excluded, if the trace has
this information. docs/radio.md explains each figure.
Exit code: 0; 1 when a trace or a profile cannot be read; 2 when the arguments are invalid; 128 + n when
signal n ends the run.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// Radio: a name of `manyways radio profiles` or a file; may be repeated to compare
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    profile: Vec<String>,
    /// Radio and trace; may be repeated: all of them belong to one device
    #[arg(long, value_name = "PROFILE=TRACE", conflicts_with_all = ["traces", "profile"])]
    radio: Vec<String>,
    /// Capacity of the battery: prints the energy of a day as a share of it
    #[arg(long, value_name = "CAPACITY", value_parser = capacity)]
    battery: Option<f64>,
    /// Voltage of the battery
    #[arg(long, value_name = "VOLTS", default_value = "3.85", value_parser = volts)]
    voltage: f64,
    /// Attribute the energy to applications or to flows
    #[arg(long, value_name = "WHAT", default_value = "application")]
    by: Owners,
    /// Number of applications or flows to print; the others are one line
    #[arg(long, value_name = "COUNT", default_value = "15")]
    top: usize,
    /// Times of user inputs: a file with one time per line, on the trace's clock. Bursts within 1 s
    /// after an input are of kind `user`
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Write the states of the radio over time as CSV
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write an HTML report, without external resources
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Owners to which energy is attributed.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Owners {
    /// Applications by their names in the trace
    Application,
    /// Flows, or sessions if the trace has no flows
    Flow,
}

fn capacity(text: &str) -> Result<f64, String> {
    let number = text.trim().to_lowercase();
    let (number, factor) = match (number.strip_suffix("mah"), number.strip_suffix("ah")) {
        (Some(milli), _) => (milli.to_owned(), 1.0),
        (None, Some(whole)) => (whole.to_owned(), 1e3),
        (None, None) => (number, 1.0),
    };
    let mah = number.trim().parse::<f64>().ok().map(|number| number * factor);
    mah.filter(|mah| *mah > 0.0 && *mah <= 1e7)
        .ok_or_else(|| "write a capacity above 0 and up to 10000Ah, like 4000mAh or 4Ah".to_owned())
}

pub fn volts(text: &str) -> Result<f64, String> {
    let volts = text.trim().trim_end_matches(['V', 'v']).trim().parse::<f64>().ok();
    volts
        .filter(|volts| (0.1..=1e3).contains(volts))
        .ok_or_else(|| "write a voltage from 0.1 to 1000, like 3.85 or 3.85V".to_owned())
}

/// A radio and its trace.
struct RadioTrace {
    radio: Known,
    trace: PathBuf,
    /// Whether the device has several radios, so that packets of other kinds of networks are
    /// excluded.
    has_other_radios: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    args.timeline.as_deref().map(check_folder).transpose()?;
    let asked = args.radio_traces()?;
    let read = asked.iter().map(|one| one.trace.as_path()).chain(args.inputs.as_deref());
    let outputs: Vec<&Path> =
        [&args.report, &args.timeline].into_iter().filter_map(|file| file.as_deref()).collect();
    let profiles = args.profile.iter().chain(&args.radio);
    let profiles = profiles.map(|text| Path::new(text.split('=').next().unwrap_or(text)));
    let profiles = profiles.filter(|path| path.is_file());
    check_distinct(&read.chain(profiles).collect::<Vec<_>>(), &outputs)?;
    let inputs = args.inputs.as_deref().map(read_inputs).transpose()?.unwrap_or_default();
    let battery = Battery { capacity: args.battery, volts: args.voltage };
    let mut timeline = args.timeline.as_deref().map(Sheet::create).transpose()?;
    let by = match args.by {
        Owners::Application => By::Application,
        Owners::Flow => By::Flow,
    };
    let (measured, signal) = with_progress(|progress| {
        let mut all = Vec::new();
        for one in &asked {
            if progress.stop.load(Ordering::Relaxed) && !all.is_empty() {
                break;
            }
            let technology = one.has_other_radios.then_some(one.radio.profile.technology);
            let mut trace = args.traces.open(&one.trace, technology, progress)?;
            let known = &one.radio;
            let name = trace.name().to_owned();
            let write = |segment: &_| {
                timeline.iter_mut().for_each(|sheet| sheet.write(&name, known, segment));
            };
            let measured = measure(known, &mut trace, &inputs, by, progress, write);
            all.push(measured.map_err(failure)?);
        }
        Ok(all)
    })?;
    if let Some(sheet) = timeline {
        sheet.close()?;
    }
    let is_device = !args.radio.is_empty();
    if let Some(file) = &args.report {
        report_file::write(file, &page::html(&measured, &battery, is_device, args.top))?;
        eprintln!("The report is in {}.", file.display());
    }
    let text = match args.json {
        true => {
            let document = Document::new(&measured, &battery, is_device, signal.is_some());
            document::to_json_pretty(&document)?
        }
        false => text::text(&measured, &battery, is_device, args.top),
    };
    super::print(&text)?;
    Ok(traces::code(signal))
}

impl Args {
    fn radio_traces(&self) -> Result<Vec<RadioTrace>> {
        let mut asked = Vec::new();
        for radio in &self.radio {
            let (profile, trace) = radio.split_once('=').ok_or_else(|| {
                Failure::usage(format!("`{radio}` is not a radio and a trace"))
                    .hint("write --radio lte=phone.pcapng")
            })?;
            let known = named_profile::find(profile)?;
            asked.push(RadioTrace { radio: known, trace: trace.into(), has_other_radios: true });
        }
        if !self.radio.is_empty() {
            return Ok(asked);
        }
        if self.traces.paths().is_empty() {
            let hint = "manyways radio energy TRACE --profile lte";
            return Failure::refuse("the trace is missing", hint);
        }
        if self.profile.is_empty() {
            let hint = "name one with --profile; manyways radio profiles lists them";
            return Failure::refuse("the radio is missing", hint);
        }
        let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
        if self.profile.len() > 1 && self.traces.paths().iter().any(|path| is_stdin(&path)) {
            let hint = "write the input to a file first";
            return Failure::refuse("standard input can be read for one radio only", hint);
        }
        for trace in self.traces.paths() {
            for profile in &self.profile {
                let known = named_profile::find(profile)?;
                asked.push(RadioTrace {
                    radio: known,
                    trace: trace.clone(),
                    has_other_radios: false,
                });
            }
        }
        Ok(asked)
    }
}

/// The times in a file, one per line.
fn read_inputs(path: &Path) -> Result<Vec<Time>> {
    const MOST: u64 = 64 << 20;
    let name = path.display();
    let length = std::fs::metadata(path).map_or(0, |found| found.len());
    if length > MOST {
        return Err(Failure::new(format!("{name} has more than {MOST} bytes")).into());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let time = manyways_model::radio::csv::time(line.trim()).ok_or_else(|| {
            Failure::new(format!("{name}, line {}: `{}` is not a time", number + 1, quoted(line)))
                .hint("write seconds, like 12.345678, or 2026-01-31T12:00:00.5Z")
        })?;
        times.push(time);
    }
    times.sort_unstable();
    Ok(times)
}
