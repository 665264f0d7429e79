//! `manyways radio energy`: what a trace takes on a network, and what for.

mod document;
mod measure;
mod page;
mod text;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use manyways_unit::Time;
use manyways_unit::human::quoted;

use self::measure::{By, Measured};
use super::known::{self, Known};
use super::traces::{TraceArgs, watched};
use crate::failure::Failure;
use crate::report_file::{self, check_folder, keep_apart};

/// What a trace of packets costs in energy on a network, and what for.
///
/// Says what transfers took and what the radio took to stay awake behind them, how often it was
/// brought back, which applications that was for, and which kinds of bursts. Packets are taken to be
/// where they are, whatever the radio does.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio energy day.csv --profile lte
  manyways radio energy phone.pcap --local 10.0.0.0/8 --profile att-hspa --battery 4000mAh
  manyways radio energy tables --profile lte --report day.html
  manyways radio energy day.csv --profile lte --profile att-hspa --json
  manyways radio energy --radio lte=phone.pcapng --radio wifi=phone.pcapng    one device, two radios
  manyways radio generate --app mixed-day | manyways radio energy - --profile lte

With --radio, packets of another kind of network than the radio's are left out, where the trace says
which it is. docs/radio.md says how each figure comes about.
Exit code: 0; 1 when a trace or a profile cannot be read; 2 when the request makes no sense; 128 + n when
signal n ends it.")]
pub struct Args {
    #[command(flatten)]
    traces: TraceArgs,
    /// The radio: a name of `manyways radio profiles`, or a file; may be repeated to compare.
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    profile: Vec<String>,
    /// A radio and what passed it; may be repeated: all of them are one device.
    #[arg(long, value_name = "PROFILE=TRACE", conflicts_with_all = ["traces", "profile"])]
    radio: Vec<String>,
    /// The battery's capacity: what a day takes is told as a part of it.
    #[arg(long, value_name = "CAPACITY", value_parser = capacity)]
    battery: Option<f64>,
    /// The battery's voltage.
    #[arg(long, value_name = "VOLTS", default_value = "3.85", value_parser = volts)]
    voltage: f64,
    /// What to divide the energy among.
    #[arg(long, value_name = "WHAT", default_value = "application")]
    by: By,
    /// How many of those are shown; the rest is one line.
    #[arg(long, value_name = "COUNT", default_value = "15")]
    top: usize,
    /// When the user did something: a file with a time a line, as in the trace. Bursts within a second
    /// behind are the user's.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Write in which state the radio is when, as CSV.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write a report to read and to share: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// What the battery holds.
#[derive(Clone, Copy)]
pub struct Battery {
    /// Ampere seconds; none where it was not said.
    pub capacity: Option<f64>,
    pub volts: f64,
}

impl Battery {
    /// So many joules in mAh.
    pub fn mah(&self, joules: f64) -> f64 {
        joules / self.volts / 3.6
    }

    /// Which part of it they are.
    pub fn share(&self, joules: f64) -> Option<f64> {
        self.capacity.map(|mah| self.mah(joules) / mah)
    }
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

/// A radio and what passes it.
struct Asked {
    known: Known,
    trace: PathBuf,
    /// Packets of other kinds of networks are not of this radio.
    is_one_of_several: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    args.timeline.as_deref().map(check_folder).transpose()?;
    let asked = args.asked()?;
    let read = asked.iter().map(|one| one.trace.as_path()).chain(args.inputs.as_deref());
    let outputs: Vec<&Path> =
        [&args.report, &args.timeline].into_iter().filter_map(|file| file.as_deref()).collect();
    let profiles = args.profile.iter().chain(&args.radio);
    let profiles = profiles.map(|text| Path::new(text.split('=').next().unwrap_or(text)));
    let profiles = profiles.filter(|path| path.is_file());
    keep_apart(&read.chain(profiles).collect::<Vec<_>>(), &outputs)?;
    let inputs = args.inputs.as_deref().map(inputs).transpose()?.unwrap_or_default();
    let battery = Battery { capacity: args.battery, volts: args.voltage };
    let mut timeline = args.timeline.as_deref().map(Sheet::create).transpose()?;
    let (measured, signal) = watched(|progress| {
        let mut all = Vec::new();
        for one in &asked {
            if progress.stop.load(Ordering::Relaxed) && !all.is_empty() {
                break;
            }
            let technology = one.is_one_of_several.then_some(one.known.profile.technology);
            let mut trace = args.traces.open(&one.trace, technology, progress)?;
            let known = &one.known;
            let name = trace.name().to_owned();
            let mut write = |segment: &_, states: &[_]| match &mut timeline {
                Some(sheet) => sheet.write(&name, &known.name, segment, states),
                None => Ok(()),
            };
            all.push(measure::measure(known, &mut trace, &inputs, args.by, progress, &mut write)?);
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
    let document = document::document(&measured, &battery, is_device, signal.is_some());
    let text = match args.json {
        true => serde_json::to_string_pretty(&document)? + "\n",
        false => text::text(&measured, &battery, is_device, args.top),
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
    fn asked(&self) -> Result<Vec<Asked>> {
        let mut asked = Vec::new();
        for radio in &self.radio {
            let (profile, trace) = radio.split_once('=').ok_or_else(|| {
                Failure::usage(format!("`{radio}` is not a radio and a trace"))
                    .hint("write --radio lte=phone.pcapng")
            })?;
            let known = known::profile(profile)?;
            asked.push(Asked { known, trace: trace.into(), is_one_of_several: true });
        }
        if !self.radio.is_empty() {
            return Ok(asked);
        }
        if self.traces.paths().is_empty() {
            let failure = Failure::usage("there is no trace");
            return Err(failure.hint("manyways radio energy TRACE --profile lte").into());
        }
        if self.profile.is_empty() {
            let failure = Failure::usage("which radio is it");
            return Err(failure
                .hint("name one with --profile; manyways radio profiles lists them")
                .into());
        }
        let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
        if self.profile.len() > 1 && self.traces.paths().iter().any(|path| is_stdin(&path)) {
            let failure = Failure::usage("standard input can be read for one radio only");
            return Err(failure.hint("write it to a file first").into());
        }
        for trace in self.traces.paths() {
            for profile in &self.profile {
                let known = known::profile(profile)?;
                asked.push(Asked { known, trace: trace.clone(), is_one_of_several: false });
            }
        }
        Ok(asked)
    }
}

/// The moments in a file, a line each.
fn inputs(path: &Path) -> Result<Vec<Time>> {
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

/// The timeline as a file.
struct Sheet {
    path: PathBuf,
    /// Where it is written until it is whole.
    part: PathBuf,
    out: BufWriter<File>,
}

impl Sheet {
    fn create(path: &Path) -> Result<Self> {
        // A link stays one, and what is no file is written to.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_file = std::fs::metadata(&path).map_or(true, |found| found.is_file());
        let mut part = path.clone().into_os_string();
        if is_file {
            part.push(".part");
        }
        let part = PathBuf::from(part);
        let file =
            File::create(&part).with_context(|| format!("cannot write {}", path.display()))?;
        let mut sheet = Self { path, part, out: BufWriter::new(file) };
        let header = "trace,radio,begins,ends,state,joules\n";
        sheet.out.write_all(header.as_bytes()).with_context(|| sheet.failed())?;
        Ok(sheet)
    }

    fn failed(&self) -> String {
        format!("cannot write {}", self.path.display())
    }

    fn write(
        &mut self,
        trace: &str,
        radio: &str,
        segment: &manyways_model::radio::timeline::Segment,
        states: &[String],
    ) -> Result<()> {
        let state = measure::phase(segment.phase, states);
        let secs = |time: Time| {
            format!("{}.{:09}", time.as_nanos() / 1_000_000_000, time.as_nanos() % 1_000_000_000)
        };
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        writeln!(
            self.out,
            "{},{},{},{},{},{:.9}",
            quoted(trace),
            quoted(radio),
            secs(segment.begins),
            secs(segment.ends),
            quoted(&state),
            segment.joules
        )
        .with_context(|| self.failed())
    }

    fn close(mut self) -> Result<()> {
        self.out.flush().with_context(|| self.failed())?;
        std::fs::rename(&self.part, &self.path).with_context(|| self.failed())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        // One that was closed has another name by now.
        if self.part != self.path {
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// All radios together.
fn total(measured: &[Measured]) -> f64 {
    measured.iter().map(|one| one.account.total()).sum()
}
