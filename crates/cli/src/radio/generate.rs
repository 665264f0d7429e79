//! `manyways radio generate`: generates traces of applications from seeds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_model::radio::{App, Direction, Packet, workload};
use manyways_net::radio::trace::{Made, Progress, Trace};
use manyways_unit::Span;

use super::traces::{MadeArgs, failure, span, watched};
use crate::failure::Failure;

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
  manyways radio generate --app mixed-day --lasts 7d --seed 1-20 -o traces
  manyways radio generate --heartbeat 30s --lasts 1h | manyways radio energy - --profile lte

Columns: time in seconds, bytes including the IP header, direction, app, flow.
Exit code: 0; 1 when a trace cannot be written; 2 when the arguments are invalid; 128 + n when signal n
ends the run, which removes incomplete files.")]
pub struct Args {
    #[command(flatten)]
    made: MadeArgs,
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
    let made = args.made.all();
    let output = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    if let Some(every) = args.heartbeat {
        let lasts = args.made.lasts().unwrap_or(Span::from_secs(3_600));
        let apps = [App { name: "heartbeat".to_owned(), port: None }];
        let mut sheet = Sheet::create(output, args.force)?;
        for packet in workload::heartbeats(every, args.bytes, lasts) {
            if !sheet.write(&packet, &apps)? {
                break;
            }
        }
        sheet.close()?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(first) = made.first() else {
        return Err(Failure::usage("the application is missing")
            .hint("name one with --app, or give --heartbeat 30s")
            .into());
    };
    if made.len() > 1 && output.is_none() {
        return Err(Failure::usage(format!(
            "{} traces cannot be written to standard output",
            made.len()
        ))
        .hint("name a folder with -o")
        .into());
    }
    let is_one = made.len() == 1;
    if !is_one && let Some(folder) = output {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let (count, signal) = watched(|progress| {
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

fn write(made: &Made, path: Option<&Path>, force: bool, progress: &Progress) -> Result<()> {
    let mut trace = Trace::made(made.clone()).map_err(failure)?;
    let mut sheet = Sheet::create(path, force)?;
    let mut fault = None;
    // Names are complete before the first packet.
    let names = made.begin().map_err(failure)?;
    let apps: Vec<App> =
        names.names().iter().map(|name| App { name: name.clone(), port: None }).collect();
    let seen = trace
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
    match seen.is_stopped && path.is_some() {
        true => Ok(()),
        false => sheet.close(),
    }
}

/// A trace as CSV. A file gets its final name when complete.
struct Sheet {
    out: BufWriter<Box<dyn Write + Send>>,
    file: Option<(PathBuf, PathBuf)>,
    line: String,
}

impl Sheet {
    fn create(path: Option<&Path>, force: bool) -> Result<Self> {
        let (out, file): (Box<dyn Write + Send>, _) = match path {
            None => (Box::new(io::stdout()), None),
            Some(path) => {
                if path.is_dir() {
                    return Err(Failure::usage(format!("{} is a folder", path.display()))
                        .hint("name a file for one trace")
                        .into());
                }
                let found = std::fs::metadata(path);
                if found.as_ref().is_ok_and(|found| !found.is_file()) {
                    // A write to a pipe or device does not destroy data.
                    let file = File::options().write(true).open(path);
                    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                    return Self::begin(Box::new(file), None);
                }
                if found.is_ok() && !force {
                    return Err(Failure::usage(format!("{} already exists", path.display()))
                        .hint("name another file, or replace the file with --force")
                        .into());
                }
                // A symbolic link is kept.
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
                let mut part = path.as_os_str().to_owned();
                part.push(".part");
                let part = PathBuf::from(part);
                let file = File::create(&part)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                (Box::new(file), Some((part, path)))
            }
        };
        Self::begin(out, file)
    }

    fn begin(out: Box<dyn Write + Send>, file: Option<(PathBuf, PathBuf)>) -> Result<Self> {
        let mut sheet = Self { out: BufWriter::new(out), file, line: String::new() };
        sheet.line.push_str("time,bytes,direction,app,flow\n");
        sheet.flush_line()?;
        Ok(sheet)
    }

    fn write(&mut self, packet: &Packet, apps: &[App]) -> Result<bool> {
        use std::fmt::Write as _;
        let nanos = packet.at.as_nanos();
        let way = if packet.direction == Direction::Up { "up" } else { "down" };
        let app = apps.get(usize::from(packet.app)).map_or("", |app| app.name.as_str());
        let _ = writeln!(
            self.line,
            "{}.{:06},{},{way},{app},{}",
            nanos / 1_000_000_000,
            nanos % 1_000_000_000 / 1_000,
            packet.bytes,
            packet.session
        );
        self.flush_line()
    }

    /// Returns whether the output still has a reader.
    fn flush_line(&mut self) -> Result<bool> {
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        self.is_read(written)
    }

    fn is_read(&self, written: io::Result<()>) -> Result<bool> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error).context("cannot write the trace"),
            Ok(()) => Ok(true),
        }
    }

    fn close(mut self) -> Result<()> {
        let flushed = self.out.flush();
        self.is_read(flushed)?;
        if let Some((part, path)) = &self.file {
            std::fs::rename(part, path)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.file = None;
        Ok(())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        // An incomplete file is removed.
        if let Some((part, _)) = &self.file {
            let _ = std::fs::remove_file(part);
        }
    }
}
