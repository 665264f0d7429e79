//! `manyways flows export`: tables for other programs.

use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use manyways_capture::{Export, ExportError, Folder, Format, Tables, Written};
use serde::Serialize;

use super::folder_failure;
use crate::failure::Failure;
use crate::report_file::keep_apart;

/// Write tables of flows in a format that other programs read.
///
/// csv writes each table as a file of CSV into a folder; tstat writes log_tcp_complete,
/// log_tcp_nocomplete and log_udp_complete, as Tstat 3 does; ipfix writes TCP and UDP flows as
/// one file of IPFIX (RFC 5655), both directions of each in one record (RFC 5103).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways flows export tables --format csv -o csv
  manyways flows export tables --format csv --table http | head
  manyways flows export tables --format tstat -o logs
  manyways flows export tables --format ipfix -o flows.ipfix --json

docs/flows-export.md describes the mapping of each column.
Exit code: 0; 1 when tables cannot be read or nothing can be written; 2 for invalid arguments.")]
pub struct Args {
    /// The folder that `manyways flows -o` wrote, or one with the shards of several runs.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The format.
    #[arg(long, value_name = "FORMAT")]
    format: Name,
    /// Destination: a folder for csv and tstat, a file for ipfix and with --table. Without it, or with -,
    /// a single file is written to standard output.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Only this table: of csv any, of ipfix tcp or udp, of tstat one of its logs.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Replace existing files.
    #[arg(long, requires = "output")]
    force: bool,
    /// Print the written files as one JSON document.
    #[arg(long, requires = "output")]
    json: bool,
}

/// The written files, as JSON.
#[derive(Serialize)]
struct Document<'a> {
    path: &'a Path,
    written: Vec<File<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    rows: u64,
    /// Flows without the addresses, ports or times that the format requires.
    left_out: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    /// Comma-separated values (RFC 4180).
    Csv,
    /// Logs of Tstat 3.
    Tstat,
    /// IP Flow Information Export (RFC 7011).
    Ipfix,
}

impl From<Name> for Format {
    fn from(name: Name) -> Self {
        match name {
            Name::Csv => Self::Csv,
            Name::Tstat => Self::Tstat,
            Name::Ipfix => Self::Ipfix,
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let tables = Tables::open(&args.folder)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    let export =
        Export::new(&tables, args.format.into(), args.table.as_deref()).map_err(failure)?;
    let Some(out) = args.output.as_ref().filter(|out| out.as_os_str() != "-") else {
        return to_stdout(&export, args);
    };
    let is_file = args.table.is_some() || matches!(args.format, Name::Ipfix);
    match is_file {
        true => keep_apart(&[&args.folder], &[out])?,
        false => {
            Folder::keep_apart(out, std::slice::from_ref(&args.folder)).map_err(folder_failure)?
        }
    }
    let written = match is_file {
        true => export.to_file(out, args.force),
        false => export.to_folder(out, args.force),
    };
    let written = written.map_err(failure)?;
    let text = match args.json {
        true => serde_json::to_string(&document(out, &written))?,
        false => {
            let parts: Vec<String> = written.iter().map(told).collect();
            format!("{} in {}", parts.join(", "), out.display())
        }
    };
    super::print(&format!("{text}\n"))?;
    warn(&written, out);
    Ok(ExitCode::SUCCESS)
}

fn document<'a>(path: &'a Path, written: &'a [Written]) -> Document<'a> {
    let file = |one: &'a Written| {
        let Written { name, rows, left_out, .. } = one;
        File { name, rows: *rows, left_out: *left_out }
    };
    Document { path, written: written.iter().map(file).collect() }
}

fn to_stdout(export: &Export<'_>, args: &Args) -> Result<ExitCode> {
    let is_binary = matches!(args.format, Name::Ipfix);
    if args.json {
        let sentence = "standard output cannot take the tables and a document about them";
        return Err(Failure::usage(sentence).hint("name a folder or a file with -o").into());
    }
    if !export.is_one() {
        let sentence = "there are several files to write, and nowhere to put them";
        let hint = "name a folder with -o, or one of them with --table";
        return Err(Failure::usage(sentence).hint(hint).into());
    }
    if is_binary && io::stdout().is_terminal() {
        let sentence = "a file of IPFIX is nothing to look at in a terminal";
        return Err(Failure::usage(sentence).hint("name a file with -o").into());
    }
    // Locked once, and written in large parts.
    let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match export.write(out) {
        Ok(written) => {
            warn(&written, Path::new("standard output"));
            Ok(ExitCode::SUCCESS)
        }
        // The reader has closed standard output early.
        Err(ExportError::Closed) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(failure(error).into()),
    }
}

fn told(Written { name, rows, .. }: &Written) -> String {
    format!("{name} ({rows} row{})", if *rows == 1 { "" } else { "s" })
}

fn warn(written: &[Written], out: &Path) {
    let left_out: u64 = written.iter().map(|one| one.left_out).sum();
    if left_out > 0 {
        eprintln!(
            "manyways: {left_out} flows are not in {}: they have no addresses, ports or times that \
             the format takes",
            out.display()
        );
    }
}

fn failure(error: ExportError) -> Failure {
    let sentence = error.to_string();
    match error {
        ExportError::Tables(error) => Failure::new(sentence).hint(error.hint()),
        ExportError::Name { known, .. } => {
            Failure::usage(sentence).hint(format!("there is: {}", known.join(", ")))
        }
        ExportError::NoFlows(_) => Failure::new(sentence).hint("csv takes any table"),
        ExportError::Taken(_) => {
            Failure::new(sentence).hint("name another place, or replace it with --force")
        }
        ExportError::Place { .. } => Failure::usage(sentence)
            .hint("a folder for csv and tstat, a file for ipfix and --table"),
        _ => Failure::new(sentence),
    }
}
