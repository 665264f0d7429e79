//! `manyways radio generate`: generates traces of applications from seeds.
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_model::radio::{App, Direction, Packet, workload};
use manyways_net::radio::trace::{Progress, Trace, TraceGenerator};
use manyways_unit::Span;

use super::traces::{GeneratorArgs, failure, span, with_progress};
use crate::failure::Failure;
use crate::report_file::PartFile;

/// Generate traces of applications from seeds
///
/// Seven categories of applications from a study of radio energy (news, im, microblog, game-ad,
/// email, social, finance), days of a user with several of them (mixed-day), and plain heartbeats.
/// The same seed yields the same trace. Seeds from 1000 on are for evaluation: do not tune policies
/// with them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways radio generate --app im --seed 7 -o im.csv
  manyways radio generate --app mixed-day --duration 7d --seed 1-20 -o traces
  manyways radio generate --heartbeat 30s --duration 1h | manyways radio energy - --profile lte

Columns: time in seconds, bytes including the IP header, direction, app, flow.
Exit code: 0; 1 when a trace cannot be written; 2 when the arguments are invalid; 128 + n when signal n
ends the run, which removes incomplete files.")]
pub struct Args {
    #[command(flatten)]
    generator: GeneratorArgs,
    /// Packets from the device at this interval
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with_all = ["app", "seed"])]
    heartbeat: Option<Span>,
    /// Bytes of each heartbeat
    #[arg(long, value_name = "BYTES", default_value = "100", requires = "heartbeat")]
    bytes: u32,
    /// File, or folder for several traces; default and -: standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "output")]
    force: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let made = args.generator.generated();
    let output = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    if let Some(interval) = args.heartbeat {
        let duration = args.generator.duration().unwrap_or(Span::from_secs(3_600));
        let apps = [App { name: "heartbeat".to_owned(), port: None }];
        let mut sheet = TraceFile::create(output, args.force)?;
        for packet in workload::heartbeats(interval, args.bytes, duration) {
            if !sheet.write(&packet, &apps)? {
                break;
            }
        }
        sheet.close()?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(first) = made.first() else {
        let hint = "name one with --app, or give --heartbeat 30s";
        return Failure::refuse("the application is missing", hint);
    };
    if made.len() > 1 && output.is_none() {
        let hint = "name a folder with -o";
        return Failure::refuse(
            format!("{} traces cannot be written to standard output", made.len()),
            hint,
        );
    }
    let is_one = made.len() == 1;
    if !is_one && let Some(folder) = output {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let (count, signal) = with_progress(|progress| {
        if is_one {
            write(first, output, args.force, progress)?;
            return Ok(1);
        }
        for (count, one) in made.iter().enumerate() {
            let name = format!("{}-{}.csv", one.app, one.seed);
            let path = output.map(|folder| folder.join(name));
            write(one, path.as_deref(), args.force, progress)?;
            if progress.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(count);
            }
        }
        Ok(made.len())
    })?;
    if let Some(folder) = output.filter(|_| !is_one) {
        eprintln!("{count} traces are in {}.", folder.display());
    }
    Ok(signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal as u8)))
}

fn write(
    generator: &TraceGenerator,
    path: Option<&Path>,
    force: bool,
    progress: &Progress,
) -> Result<()> {
    let mut trace = Trace::generated(generator.clone()).map_err(failure)?;
    let mut sheet = TraceFile::create(path, force)?;
    let mut fault = None;
    // Names are complete before the first packet.
    let names = generator.workload().map_err(failure)?;
    let apps: Vec<App> =
        names.names().iter().map(|name| App { name: name.clone(), port: None }).collect();
    let stats = trace
        .read(progress, |packet| {
            if fault.is_some() {
                return;
            }
            match sheet.write(packet, &apps) {
                Ok(true) => {}
                Ok(false) => fault = Some(None),
                Err(error) => fault = Some(Some(error)),
            }
            if fault.is_some() {
                progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        })
        .map_err(failure)?;
    if let Some(Some(error)) = fault {
        return Err(error);
    }
    match stats.is_stopped && path.is_some() {
        true => Ok(()),
        false => sheet.close(),
    }
}

/// A trace as CSV.
struct TraceFile {
    out: Output,
    line: String,
}

enum Output {
    Standard(BufWriter<io::Stdout>),
    File(PartFile),
}

impl TraceFile {
    fn create(path: Option<&Path>, force: bool) -> Result<Self> {
        let out = match path {
            None => Output::Standard(BufWriter::new(io::stdout())),
            Some(path) if path.is_dir() => {
                let hint = "name a file for one trace";
                return Failure::refuse(format!("{} is a folder", path.display()), hint);
            }
            // A write to a pipe or device does not destroy data.
            Some(path) if path.is_file() && !force => {
                let hint = "name another file, or replace the file with --force";
                return Failure::refuse(format!("{} already exists", path.display()), hint);
            }
            Some(path) => {
                let file = PartFile::create(path);
                let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                Output::File(file)
            }
        };
        let mut sheet = Self { out, line: "time,bytes,direction,app,flow\n".to_owned() };
        sheet.flush_line()?;
        Ok(sheet)
    }

    fn write(&mut self, packet: &Packet, apps: &[App]) -> Result<bool> {
        use std::fmt::Write as _;
        let nanos = packet.at.as_nanos();
        let direction = if packet.direction == Direction::Up { "up" } else { "down" };
        let app = apps.get(usize::from(packet.app)).map_or("", |app| app.name.as_str());
        let _ = writeln!(
            self.line,
            "{}.{:06},{},{direction},{app},{}",
            nanos / 1_000_000_000,
            nanos % 1_000_000_000 / 1_000,
            packet.bytes,
            packet.session
        );
        self.flush_line()
    }

    /// Returns whether the output still has a reader.
    fn flush_line(&mut self) -> Result<bool> {
        let out: &mut dyn Write = match &mut self.out {
            Output::Standard(out) => out,
            Output::File(file) => file,
        };
        let written = out.write_all(self.line.as_bytes());
        self.line.clear();
        has_reader(written)
    }

    fn close(self) -> Result<()> {
        has_reader(match self.out {
            Output::Standard(mut out) => out.flush(),
            Output::File(file) => file.close(),
        })
        .map(|_| ())
    }
}

fn has_reader(written: io::Result<()>) -> Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write the trace"),
        Ok(()) => Ok(true),
    }
}
