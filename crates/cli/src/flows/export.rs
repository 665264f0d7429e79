//! `manyways flows export`: tables for other programs.

use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use manyways_capture::{Export, ExportError, ExportedTable, Folder, Format, Tables};
use serde::Serialize;

use super::report_errors;
use crate::failure::Failure;
use crate::report_file::check_distinct;

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
    /// The folder that `manyways flows -o` wrote, or a folder with the shards of several runs.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The format.
    #[arg(long, value_name = "FORMAT")]
    format: FormatArg,
    /// Destination: a folder for csv and tstat, a file for ipfix and with --table. Without it, or
    /// with -, a single file is written to standard output.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Write only this table: any for csv, tcp or udp for ipfix, one of the logs for tstat.
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
    skipped: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatArg {
    /// Comma-separated values (RFC 4180).
    Csv,
    /// Logs of Tstat 3.
    Tstat,
    /// IP Flow Information Export (RFC 7011).
    Ipfix,
}

impl From<FormatArg> for Format {
    fn from(name: FormatArg) -> Self {
        match name {
            FormatArg::Csv => Self::Csv,
            FormatArg::Tstat => Self::Tstat,
            FormatArg::Ipfix => Self::Ipfix,
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
    let is_file = args.table.is_some() || matches!(args.format, FormatArg::Ipfix);
    match is_file {
        true => check_distinct(&[&args.folder], &[out])?,
        false => Folder::check_distinct(out, std::slice::from_ref(&args.folder))
            .map_err(report_errors::of_folder)?,
    }
    let written = match is_file {
        true => export.write_file(out, args.force),
        false => export.write_folder(out, args.force),
    };
    let written = written.map_err(failure)?;
    let text = match args.json {
        true => serde_json::to_string(&document(out, &written))?,
        false => {
            let parts: Vec<String> = written.iter().map(describe).collect();
            format!("{} in {}", parts.join(", "), out.display())
        }
    };
    super::print(&format!("{text}\n"))?;
    warn(&written, out);
    Ok(ExitCode::SUCCESS)
}

fn document<'a>(path: &'a Path, written: &'a [ExportedTable]) -> Document<'a> {
    let file = |one: &'a ExportedTable| {
        let ExportedTable { name, rows, skipped: left_out, .. } = one;
        File { name, rows: *rows, skipped: *left_out }
    };
    Document { path, written: written.iter().map(file).collect() }
}

fn to_stdout(export: &Export<'_>, args: &Args) -> Result<ExitCode> {
    let is_binary = matches!(args.format, FormatArg::Ipfix);
    if args.json {
        let sentence = "the tables and the JSON document cannot both be on standard output";
        return Failure::refuse(sentence, "name a folder or a file with -o");
    }
    if !export.is_single_file() {
        let message = "several files cannot be written to standard output";
        let hint = "name a folder with -o, or one table with --table";
        return Failure::refuse(message, hint);
    }
    if is_binary && io::stdout().is_terminal() {
        let sentence = "IPFIX is binary and is not written to a terminal";
        return Failure::refuse(sentence, "name a file with -o");
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

fn describe(ExportedTable { name, rows, .. }: &ExportedTable) -> String {
    format!("{name} ({rows} row{})", if *rows == 1 { "" } else { "s" })
}

fn warn(written: &[ExportedTable], out: &Path) {
    let left_out: u64 = written.iter().map(|one| one.skipped).sum();
    if left_out > 0 {
        eprintln!(
            "manyways: {left_out} flows were not written to {}: their addresses, ports or times cannot be \
             represented in this format",
            out.display()
        );
    }
}

fn failure(error: ExportError) -> Failure {
    let message = error.to_string();
    match error {
        ExportError::Tables(error) => Failure::new(message).hint(error.hint()),
        ExportError::Name { known, .. } => {
            Failure::usage(message).hint(format!("the tables are: {}", known.join(", ")))
        }
        ExportError::NoFlows(_) => Failure::new(message).hint("csv takes any table"),
        ExportError::AlreadyExists(_) => Failure::new(message)
            .hint("name another file or folder with -o, or replace this one with --force"),
        ExportError::WrongFileType { .. } => Failure::usage(message)
            .hint("name a folder for csv and tstat, a file for ipfix and --table"),
        _ => Failure::new(message),
    }
}
