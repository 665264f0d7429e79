//! `manyways flows`: analysis of captures.

mod align;
mod ask;
mod export;
mod filter;
mod known;
mod live;
mod report;
mod schema;
mod summary;

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use manyways_capture::{Capture, Folder, FolderError, Outcome, Plan, Progress, Source, Sources};
use manyways_flows::analysis::Settings;
use manyways_flows::flow::Limits;
use manyways_sys::poll::Waker;
use manyways_sys::signal::Termination;
use manyways_unit::Prefix;
use manyways_unit::{Span, Time};
use manyways_wire::frame::Opaque;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::report_file::{check_folder, keep_apart};

/// Analyse captures: the performance of flows, and its causes.
///
/// Reads pcap, pcapng and btsnoop, also compressed with gzip or zstd, of any snap length, or
/// captures on an interface, and reports the speed of each flow and its limit: the
/// application, round trips, windows, congestion or loss. Nothing that a packet carries is written,
/// unless --save-capture asks for the packets themselves.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  manyways flows office.pcapng
  manyways flows -o tables captures/ --local 10.0.0.0/8
  manyways flows -o tables 'day-*.pcap.zst' --json
  manyways flows -o shared --anonymize trace.pcap
  manyways flows -o tables day.pcap --pools wifi.csv --organisations routes.csv --dns resolver.csv
  manyways flows office.pcapng --filter 'host 192.0.2.7 and tcp port 80 or 443'
  manyways flows office.pcapng --report office.html --anonymize
  tcpdump -s 128 -w - | manyways flows -
  manyways flows --live eth0
  manyways flows --live eth0 -o tables --rotate 1h --keep 168

A folder with tables has a Parquet file for each; docs/flows-schema.md describes the tables.
Exit code: 0, also when a signal ends a live capture; 1 when a capture cannot be read to its end
(results up to there are kept) or the output cannot be written; 2 for invalid arguments.")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Captures: files, folders, quoted patterns, or - for standard input. Several are read in their
    /// order; one that begins where the one before ended goes on with its flows.
    #[arg(required_unless_present = "live", value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// Write tables into this folder.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace the results in the folder.
    #[arg(long, requires = "output")]
    force: bool,
    /// These addresses are local; may be repeated. Without it the client's side counts as local.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    local: Vec<Prefix>,
    /// Write a table of all packets as well.
    #[arg(long, requires = "output")]
    packets: bool,
    /// Hide whose flows they are: addresses keep their common prefixes, names become numbers. With
    /// a file of at least 32 bytes as the key the same ones are hidden alike in other runs.
    #[arg(long, value_name = "KEYFILE", num_args = 0..=1, require_equals = true)]
    anonymize: Option<Option<PathBuf>>,
    /// Exclude packets before this time: seconds since 1970, or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Time>,
    /// Exclude packets from this time on.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Time>,
    #[command(flatten)]
    known: known::Args,
    /// Only packets that match, as in tcpdump: hosts, networks, ports, protocols, VLANs and lengths
    /// with and, or, not and parentheses. `src host` matches one direction of a flow only.
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Write a report to read and to share: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Number of threads that analyse packets.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Idle timeout of a flow, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    idle: u64,
    /// Print one JSON document instead of the summary.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    live: live::LiveArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    Align(align::Args),
    Ask(ask::Args),
    Export(export::Args),
    Schema(schema::Args),
}

fn moment(text: &str) -> Result<Time, String> {
    const FORMS: &str = "seconds since 1970, or a moment like 2026-01-31T12:00:00Z";
    if let Ok(seconds) = text.parse::<f64>() {
        let is_time = seconds.is_finite() && seconds >= 0.0;
        return if is_time {
            Ok(Time::ZERO + Span::from_secs_f64(seconds))
        } else {
            Err(FORMS.into())
        };
    }
    let moment = humantime::parse_rfc3339_weak(text).map_err(|_| FORMS.to_owned())?;
    let since = moment.duration_since(std::time::UNIX_EPOCH).map_err(|_| FORMS.to_owned())?;
    let nanos = u64::try_from(since.as_nanos()).map_err(|_| FORMS.to_owned())?;
    Ok(Time::from_nanos(nanos))
}

/// Key of the pseudonyms: the bytes of a file, or a random key for this run only.
fn key(file: Option<&Path>) -> Result<[u8; 32]> {
    let Some(file) = file else {
        let mut key = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut key))
            .context("cannot make a key")?;
        return Ok(key);
    };
    let wrong =
        |why: String| Failure::new(format!("cannot take {} for a key: {why}", file.display()));
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(1 << 16).read_to_end(&mut bytes))
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() < 32 {
        let hint = "make one: head -c 32 /dev/urandom > KEYFILE";
        return Err(wrong(format!("it has {} bytes, and 32 are needed", bytes.len()))
            .hint(hint)
            .into());
    }
    Ok(Sha256::digest(&bytes).into())
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|_| "an address, or one with a length: 10.0.0.0/8".to_owned())
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Some(Command::Align(args)) => return align::run(args),
        Some(Command::Ask(args)) => return ask::run(args),
        Some(Command::Export(args)) => return export::run(&args),
        Some(Command::Schema(args)) => return schema::run(&args),
        None => {}
    }
    // Errors of small files are reported before a large one is read.
    let plan = args.plan()?;
    // Report the error now, not after an hour.
    args.report.as_deref().map(check_folder).transpose()?;
    // The state of connections is small and scattered. If the kernel refuses the setting, the
    // process only needs more memory.
    let _ = manyways_sys::memory::in_small_pages();
    if let Some(interface) = args.live.live.clone() {
        return live::run(interface, &args.live, &plan, args.output.as_deref(), args.json);
    }
    let sources = Sources::find(&args.captures)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let read = sources.captures.iter().filter_map(Source::path).chain(args.known.files());
    let key = args.anonymize.as_ref().and_then(Option::as_deref);
    let report = args.report.as_deref();
    keep_apart(&read.chain(key).collect::<Vec<_>>(), &Vec::from_iter(report))?;
    let mut folder = folder(args.output.as_deref(), args.force, &args.captures)?;
    let progress = Progress::default();
    let termination = Termination::take().context("cannot watch for signals")?;
    let done = Waker::new().context("cannot wait for the end of the work")?;
    let lengths: Option<Vec<u64>> = sources.captures.iter().map(|source| source.length()).collect();
    let total = lengths.map(|lengths| lengths.iter().sum());
    let (outcome, signal) = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            // Also after a panic.
            let _done = Done(&done);
            manyways_capture::run(&sources.captures, &plan, folder.as_mut(), &progress)
        });
        let signal = watch(total, &progress, &termination, &done);
        (work.join(), signal)
    });
    let outcome = match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => return Err(Failure::new(error.to_string()).into()),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if let Some(failure) = nothing_read(&outcome) {
        return Err(failure.into());
    }
    let rows: Vec<(&str, u64)> =
        folder.as_ref().map(|folder| folder.rows().collect()).unwrap_or_default();
    let mut document = summary::document(&outcome, &rows, signal.is_some());
    document.filter = args.filter.clone();
    if args.anonymize.is_some() {
        document.hide();
    }
    if let Some(folder) = folder {
        let manifest = serde_json::to_string_pretty(&document)? + "\n";
        folder.finish(&manifest).map_err(folder_failure)?;
    }
    if let Some(file) = &args.report {
        let about = report::About {
            filter: args.filter.as_deref(),
            is_anonymous: args.anonymize.is_some(),
            is_stopped: signal.is_some(),
        };
        crate::report_file::write(file, &report::html(&outcome, &about))?;
    }
    let text = match args.json {
        true => serde_json::to_string(&document)? + "\n",
        false => summary::text(&outcome, &rows, args.output.as_deref()),
    };
    print(&text)?;
    if let Some(file) = &args.report {
        eprintln!("The report is in {}.", file.display());
    }
    if !sources.skipped.is_empty() {
        let files = summary::plural(sources.skipped.len() as u64, "file");
        eprintln!("manyways: left out of folders, as not captures: {files}");
    }
    if signal.is_some() {
        eprintln!(
            "manyways: stopped before the end: the results cover the packets read until then"
        );
    }
    let code = faults(&outcome);
    Ok(signal.map_or(code, |signal| ExitCode::from(128 + signal as u8)))
}

impl Args {
    /// Options of the analysis.
    fn plan(&self) -> Result<Plan> {
        let settings = Settings {
            local: self.local.clone(),
            limits: Limits { idle: Span::from_secs(self.idle), ..Limits::default() },
            packets: self.packets,
            from: self.from,
            to: self.to,
            filter: self.filter.as_deref().map(filter::read).transpose()?.map(Arc::new),
            overview: self.report.is_some(),
            mask: match &self.anonymize {
                Some(file) => Some(key(file.as_deref())?),
                None => None,
            },
            ..self.known.settings()?
        };
        Ok(Plan { settings, threads: self.threads.unwrap_or_else(cores) })
    }
}

fn print(text: &str) -> Result<ExitCode> {
    crate::output::text(text);
    Ok(ExitCode::SUCCESS)
}

/// The output folder, if any, which must not be one of the input folders.
fn folder(
    path: Option<&Path>,
    may_replace: bool,
    inputs: &[PathBuf],
) -> Result<Option<Folder>, Failure> {
    let create = |path: &Path| {
        Folder::keep_apart(path, inputs)?;
        Folder::create(path, may_replace)
    };
    path.map(create).transpose().map_err(folder_failure)
}

/// The error if no capture is readable: a summary of zeros would look like a result.
fn nothing_read(outcome: &Outcome) -> Option<Failure> {
    const HINT: &str =
        "captures are pcap, pcapng or btsnoop files, also compressed with gzip or zstd";
    let why = |capture: &Capture| {
        let fault = capture.fault.as_ref().filter(|_| capture.packets == 0)?;
        Some(format!("{}: {fault}", capture.name))
    };
    let all: Option<Vec<String>> = outcome.captures.iter().map(why).collect();
    match &all?[..] {
        [] => None,
        [only] => Some(Failure::new(only).hint(HINT)),
        all => {
            all.iter().for_each(|why| eprintln!("manyways: {why}"));
            Some(Failure::new(format!("none of {} captures can be read", all.len())).hint(HINT))
        }
    }
}

/// Reports the captures that could not be read to their end.
fn faults(outcome: &Outcome) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for capture in &outcome.captures {
        let Some(fault) = &capture.fault else { continue };
        eprintln!("manyways: {}: {fault}", capture.name);
        code = ExitCode::FAILURE;
    }
    if code == ExitCode::FAILURE {
        eprintln!("hint: the results are of the packets before that");
    }
    for (opaque, packets) in &outcome.counters.opaque {
        let packets_are = summary::plural(*packets, "packet");
        match opaque {
            Opaque::Link(_) => {
                eprintln!("manyways: not read: {packets_are} of {opaque}");
                eprintln!("hint: capture on an interface of Ethernet, or on Linux's `any`");
                code = ExitCode::FAILURE;
            }
            // Truncated or malformed frames are in nearly every capture.
            Opaque::Broken if *packets > outcome.counters.packets / 2 => {
                eprintln!("manyways: {packets_are}, more than half, are {opaque}");
                eprintln!("hint: is the link type right, and the snap length at least 96 bytes?");
            }
            _ => {}
        }
    }
    code
}

/// Wakes the thread that waits for it when dropped.
struct Done<'a>(&'a Waker);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Shows the progress until the end; a signal stops the run.
fn watch(
    total: Option<u64>,
    progress: &Progress,
    termination: &Termination,
    done: &Waker,
) -> Option<i32> {
    /// In milliseconds.
    const LOOK: u16 = 50;
    let bar = match (io::stderr().is_terminal(), total) {
        (false, _) => ProgressBar::hidden(),
        (true, Some(total)) => ProgressBar::new(total)
            .with_style(style("{bar:30} {binary_bytes}/{binary_total_bytes} {msg} {eta} left")),
        (true, None) => {
            ProgressBar::no_length().with_style(style("{spinner} {binary_bytes} {msg}"))
        }
    };
    let (mut signal, mut is_done) = (None, false);
    while !is_done {
        // An error here appears again when the thread is joined.
        let (ended, is_over) = termination.within(LOOK, done).unwrap_or((None, true));
        is_done = is_over;
        bar.set_position(progress.read.load(Ordering::Relaxed));
        let packets = progress.packets.load(Ordering::Relaxed) as f64 / 1e6;
        bar.set_message(format!("{packets:.1} M packets"));
        signal = signal.or(ended.map(|ended| ended.signal));
        progress.stop.store(signal.is_some(), Ordering::Relaxed);
    }
    bar.finish_and_clear();
    signal
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn cores() -> u8 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64) as u8)
}

fn folder_failure(error: FolderError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        FolderError::Taken(_) => failure.hint("name another folder, or replace them with --force"),
        FolderError::Busy(_) => failure.hint("name another folder, or stop that one"),
        FolderError::Sets(_) => {
            failure.hint("name another folder: queries of this one would miss its sets")
        }
        FolderError::Input(_) => failure.code(2).hint("name another folder for the results"),
        _ => failure,
    }
}
