//! `manyways flows`: analysis of captures.

mod align;
mod ask;
mod export;
mod filter;
mod live;
mod reference_data;
mod report;
mod report_errors;
mod schema;
mod summary;

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use manyways_capture::{Document, Folder, Progress, RunOptions, Source, Sources};
use manyways_record::document;
use manyways_report::number::plural;
use manyways_unit::Prefix;
use manyways_unit::{Span, Time};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::report_file::{check_distinct, check_folder};
use crate::watch::{self, Display};

/// Analyse captures: the performance of flows, and its causes.
///
/// Reads pcap, pcapng and btsnoop files of any snap length, also compressed with gzip or zstd, or
/// packets from an interface. Reports the speed of each flow and the limit of that speed: the
/// application, round trips, windows, congestion or loss. Payloads are never written,
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
    /// Captures: files, folders, quoted patterns, or - for standard input. Several captures
    /// are read in this order; flows continue if a capture begins where the previous one ended.
    #[arg(required_unless_present = "live", value_name = "CAPTURE")]
    captures: Vec<PathBuf>,
    /// Write tables into this folder.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace the results in the folder.
    #[arg(long, requires = "output")]
    force: bool,
    /// Local addresses; may be repeated. Without this option, the client of each flow is local.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    local: Vec<Prefix>,
    /// Write a table of all packets as well.
    #[arg(long, requires = "output")]
    packets: bool,
    /// Replace addresses (common prefixes remain common) and names (by numbers). With a key file of
    /// at least 32 bytes, the same address or name gets the same replacement in every run.
    #[arg(long, value_name = "KEYFILE", num_args = 0..=1, require_equals = true)]
    anonymize: Option<Option<PathBuf>>,
    /// Exclude packets before this time: seconds since 1970, or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Time>,
    /// Exclude packets at and after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Time>,
    #[command(flatten)]
    reference_data: reference_data::Args,
    /// Use only matching packets, as in tcpdump: hosts, networks, ports, protocols, VLANs and lengths
    /// with and, or, not and parentheses. `src host` matches one direction of a flow only.
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Write an HTML report, without external resources.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Number of threads that analyse packets.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Idle timeout of a flow of TCP, UDP or QUIC, in seconds.
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

fn parse_time(text: &str) -> Result<Time, String> {
    const FORMS: &str = "write seconds since 1970, or a time like 2026-01-31T12:00:00Z";
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
fn pseudonym_key(file: Option<&Path>) -> Result<[u8; 32]> {
    let Some(file) = file else {
        let mut key = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut key))
            .context("cannot make a key")?;
        return Ok(key);
    };
    let wrong =
        |why: String| Failure::new(format!("cannot use {} as a key: {why}", file.display()));
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(1 << 16).read_to_end(&mut bytes))
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() < 32 {
        let hint = "make one: head -c 32 /dev/urandom > KEYFILE";
        return Err(wrong(format!("the file has {} bytes, but a key needs 32", bytes.len()))
            .hint(hint)
            .into());
    }
    Ok(Sha256::digest(&bytes).into())
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|_| "write an address, or a prefix like 10.0.0.0/8".to_owned())
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
    let plan = args.analysis_plan()?;
    // Report the error now, not after an hour.
    args.report.as_deref().map(check_folder).transpose()?;
    // The state of connections is small and scattered. If the kernel refuses the setting, the
    // process only needs more memory.
    let _ = manyways_sys::memory::disable_huge_pages();
    if let Some(interface) = args.live.live.clone() {
        return live::run(interface, &args.live, &plan, args.output.as_deref(), args.json);
    }
    let sources = Sources::find(&args.captures)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let read = sources.captures.iter().filter_map(Source::path).chain(args.reference_data.files());
    let key = args.anonymize.as_ref().and_then(Option::as_deref);
    let report = args.report.as_deref();
    check_distinct(&read.chain(key).collect::<Vec<_>>(), &Vec::from_iter(report))?;
    let mut folder = output_folder(args.output.as_deref(), args.force, &args.captures)?;
    let progress = Progress::default();
    let lengths: Option<Vec<u64>> = sources.captures.iter().map(|source| source.length()).collect();
    let update = |bar: &ProgressBar| {
        bar.set_position(progress.read.load(Ordering::Relaxed));
        let packets = progress.packets.load(Ordering::Relaxed) as f64 / 1e6;
        bar.set_message(format!("{packets:.1} M packets"));
    };
    let bar = bar(lengths.map(|lengths| lengths.iter().sum()));
    let display = Display { bar, interval: 50, update: &update };
    let (outcome, signal) = watch::watched(display, &progress.stop, false, || {
        manyways_capture::run(&sources.captures, &plan, folder.as_mut(), &progress)
    })?;
    let outcome = outcome.map_err(|error| Failure::new(error.to_string()))?;
    if let Some(failure) = report_errors::unreadable_failure(&outcome) {
        return Err(failure.into());
    }
    let rows: Vec<(&str, u64)> =
        folder.as_ref().map(|folder| folder.rows().collect()).unwrap_or_default();
    let mut document = Document::new(&outcome, &rows, signal.is_some());
    document.filter = args.filter.clone();
    if args.anonymize.is_some() {
        document.anonymize();
    }
    if let Some(folder) = folder {
        let manifest = document::to_json_pretty(&document)?;
        folder.finish(&manifest).map_err(report_errors::of_folder)?;
    }
    if let Some(file) = &args.report {
        let about = report::RunInfo {
            filter: args.filter.as_deref(),
            is_anonymous: args.anonymize.is_some(),
            is_stopped: signal.is_some(),
        };
        crate::report_file::write(file, &report::html(&outcome, &about))?;
    }
    let text = match args.json {
        true => document::to_json(&document)?,
        false => summary::text(&outcome, &rows, args.output.as_deref()),
    };
    print(&text)?;
    if let Some(file) = &args.report {
        eprintln!("The report is in {}.", file.display());
    }
    if !sources.skipped.is_empty() {
        let files = plural(sources.skipped.len() as u64, "file");
        eprintln!("manyways: skipped in folders, because they are not captures: {files}");
    }
    if signal.is_some() {
        eprintln!(
            "manyways: stopped before the end: the results cover the packets read until then"
        );
    }
    Ok(watch::stopped(signal, report_errors::report(&outcome)))
}

impl Args {
    /// Options of the analysis.
    fn analysis_plan(&self) -> Result<RunOptions> {
        let mut settings = self.reference_data.settings()?;
        settings.local.clone_from(&self.local);
        settings.limits.idle = Span::from_secs(self.idle);
        settings.packets = self.packets;
        settings.from = self.from;
        settings.to = self.to;
        settings.filter = self.filter.as_deref().map(filter::read).transpose()?.map(Arc::new);
        settings.overview = self.report.is_some();
        settings.pseudonym_key = match &self.anonymize {
            Some(file) => Some(pseudonym_key(file.as_deref())?),
            None => None,
        };
        Ok(RunOptions::new(settings, self.threads.unwrap_or_else(default_threads)))
    }
}

fn print(text: &str) -> Result<ExitCode> {
    crate::output::text(text);
    Ok(ExitCode::SUCCESS)
}

/// The output folder, if any, which must not be one of the input folders.
fn output_folder(
    path: Option<&Path>,
    may_replace: bool,
    inputs: &[PathBuf],
) -> Result<Option<Folder>, Failure> {
    let create = |path: &Path| {
        Folder::check_distinct(path, inputs)?;
        Folder::create(path, may_replace)
    };
    path.map(create).transpose().map_err(report_errors::of_folder)
}

/// Display of the progress; `total` is the number of bytes, if known.
fn bar(total: Option<u64>) -> ProgressBar {
    match (io::stderr().is_terminal(), total) {
        (false, _) => ProgressBar::hidden(),
        (true, Some(total)) => ProgressBar::new(total).with_style(watch::style(
            "{bar:30} {binary_bytes}/{binary_total_bytes} {msg} {eta} left",
        )),
        (true, None) => {
            ProgressBar::no_length().with_style(watch::style("{spinner} {binary_bytes} {msg}"))
        }
    }
}

fn default_threads() -> u8 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64) as u8)
}
