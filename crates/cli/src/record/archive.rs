//! `record check`, `show`, `import` and `export`: archives and HAR files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::record::{ArchiveFile, FileError, RepairError, journal_of, repair};
use manyways_record::document::to_json_pretty;
use manyways_report::text::table;
use manyways_unit::human::count_with_noun;
use manyways_unit::{Size, Span};
use manyways_wire::archive::{Archive, Exchange, Protocol};
use serde::Serialize;

use super::summary::reason;
use crate::failure::Failure;
use crate::report_file::check_folder;

/// Check that an archive is whole, or complete one whose recorder was killed
#[derive(clap::Args)]
#[command(after_help = "\
The exit code is 1 if there is a problem.

Examples:
  manyways record check page.zip
  manyways record check --repair page.zip")]
pub struct CheckArgs {
    /// The archive, or a HAR file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Complete the archive from its journal, after the recorder was killed or the disk was full
    #[arg(long)]
    repair: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document of `record check`.
#[derive(Serialize)]
struct RecordCheck {
    exchanges: usize,
    connections: usize,
    /// A sentence each.
    problems: Vec<String>,
}
manyways_record::document!(RecordCheck, "manyways.record-check/1");

/// Show the servers and exchanges of a recording
#[derive(clap::Args)]
#[command(after_help = "\
`think` is the median time that the servers took for a response, without the round-trip time.

Examples:
  manyways record show page.zip
  manyways record show --exchanges page.har
  manyways record show --json page.zip")]
pub struct ShowArgs {
    /// The archive, or a HAR file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Also list all exchanges
    #[arg(long)]
    exchanges: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Make an archive from a HAR file
#[derive(clap::Args)]
#[command(after_help = "\
HAR files of Chromium, Firefox, Playwright and mitmproxy are known. Bodies that the file lacks have only their \
lengths; a replay serves bytes of the same number.

Example:
  manyways record import page.har -o page.zip")]
pub struct ImportArgs {
    /// The HAR file
    #[arg(value_name = "HAR", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The archive to write; it must not exist
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

/// Write a recording as a HAR file, for browsers and other programs
#[derive(clap::Args)]
#[command(after_help = "\
Without --with-credentials the fields Cookie, Set-Cookie, Authorization and their relatives are left out. URLs and \
bodies stay as they are, and may contain secrets, too.

Example:
  manyways record export page.zip -o page.har")]
pub struct ExportArgs {
    /// The archive
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The HAR file to write; it must not exist
    #[arg(short, long, value_name = "HAR", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Also write the fields with passwords and cookies
    #[arg(long)]
    with_credentials: bool,
}

pub fn check(args: &CheckArgs) -> Result<ExitCode> {
    if args.repair {
        let written = repair(&args.file).map_err(repair_failure)?;
        eprintln!(
            "manyways: completed {} with {}",
            args.file.display(),
            count_with_noun(written.archive.exchanges.len(), "exchange")
        );
        if written.lost_bodies > 0 {
            eprintln!(
                "  of {} only the length was recorded",
                count_with_noun(written.lost_bodies as usize, "body")
            );
        }
    }
    let mut file = open(&args.file)?;
    let warnings = file.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let found = file.check().into_iter().map(|problem| problem.to_string());
    let checked = RecordCheck {
        exchanges: file.archive.exchanges.len(),
        connections: file.archive.connections.len(),
        problems: warnings.into_iter().chain(found).collect(),
    };
    let code = ExitCode::from(u8::from(!checked.problems.is_empty()));
    if args.json {
        print!("{}", to_json_pretty(&checked).context("cannot format the result")?);
        return Ok(code);
    }
    for problem in &checked.problems {
        eprintln!("manyways: {problem}");
    }
    println!(
        "{}: {}, {}, {}",
        args.file.display(),
        count_with_noun(checked.exchanges, "exchange"),
        count_with_noun(checked.connections, "connection"),
        count_with_noun(checked.problems.len(), "problem")
    );
    Ok(code)
}

/// The JSON document of `record show`.
#[derive(Serialize)]
struct RecordShow {
    exchanges: usize,
    body_bytes: u64,
    servers: Vec<ServerRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    list: Vec<ExchangeRow>,
    tunnelled: Vec<TunnelledRow>,
}
manyways_record::document!(RecordShow, "manyways.record-show/1");

#[derive(Serialize)]
struct ServerRow {
    /// Address and port. `None` if the HAR file lacks it.
    server: Option<String>,
    /// Server names of its connections, or hosts of their requests.
    names: Vec<String>,
    protocols: Vec<&'static str>,
    connections: usize,
    exchanges: usize,
    body_bytes: u64,
    rtt_seconds: Option<f64>,
    median_think_seconds: Option<f64>,
}

#[derive(Serialize)]
struct ExchangeRow {
    start_seconds: f64,
    method: String,
    url: String,
    protocol: &'static str,
    /// `None` without a response.
    status: Option<u16>,
    body_bytes: u64,
    think_seconds: Option<f64>,
    duration_seconds: Option<f64>,
    is_aborted: bool,
}

#[derive(Serialize)]
struct TunnelledRow {
    server: String,
    server_name: Option<String>,
    reason: &'static str,
    sent_bytes: u64,
    received_bytes: u64,
}

pub fn show(args: &ShowArgs) -> Result<ExitCode> {
    let file = open(&args.file)?;
    let archive = &file.archive;
    let shown = RecordShow {
        exchanges: archive.exchanges.len(),
        body_bytes: archive.exchanges.iter().map(body_bytes).sum(),
        servers: servers(archive),
        list: if args.exchanges { exchanges(archive) } else { Vec::new() },
        tunnelled: (archive.tunnelled.iter())
            .map(|one| TunnelledRow {
                server: one.server.to_string(),
                server_name: one.server_name.clone(),
                reason: reason(one.reason),
                sent_bytes: one.sent,
                received_bytes: one.received,
            })
            .collect(),
    };
    if args.json {
        print!("{}", to_json_pretty(&shown).context("cannot format the recording")?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{}, {}, {}",
        count_with_noun(shown.exchanges, "exchange"),
        count_with_noun(shown.servers.len(), "server"),
        Size::from_bytes(shown.body_bytes)
    );
    let head = ["server", "names", "protocol", "connections", "exchanges", "bytes", "RTT", "think"];
    print!("\n{}", table(&head, shown.servers.iter().map(server_cells)));
    if args.exchanges {
        let head = ["at", "", "status", "bytes", "think", "duration", "URL"];
        print!("\n{}", table(&head, shown.list.iter().map(exchange_cells)));
    }
    if !shown.tunnelled.is_empty() {
        let cells = |one: &TunnelledRow| {
            let name = one.server_name.clone().unwrap_or_else(|| one.server.clone());
            let bytes = Size::from_bytes(one.sent_bytes + one.received_bytes);
            vec![name, bytes.to_string(), one.reason.to_owned()]
        };
        let head = ["passed on unread", "bytes", "reason"];
        print!("\n{}", table(&head, shown.tunnelled.iter().map(cells)));
    }
    Ok(ExitCode::SUCCESS)
}

fn server_cells(row: &ServerRow) -> Vec<String> {
    let names = match &row.names[..] {
        [first, second, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second} and {} more", rest.len())
        }
        all => all.join(", "),
    };
    vec![
        row.server.clone().unwrap_or_else(|| "unknown".to_owned()),
        names,
        row.protocols.join(", "),
        row.connections.to_string(),
        row.exchanges.to_string(),
        Size::from_bytes(row.body_bytes).to_string(),
        time(row.rtt_seconds),
        time(row.median_think_seconds),
    ]
}

fn exchange_cells(row: &ExchangeRow) -> Vec<String> {
    let status = match row.status {
        Some(status) if row.is_aborted => format!("{status}, aborted"),
        Some(status) => status.to_string(),
        None => "none".to_owned(),
    };
    vec![
        format!("{:.3} s", row.start_seconds),
        row.method.clone(),
        status,
        Size::from_bytes(row.body_bytes).to_string(),
        time(row.think_seconds),
        time(row.duration_seconds),
        row.url.clone(),
    ]
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) => format!("{:.1} ms", seconds * 1e3),
        None => String::new(),
    }
}

fn servers(archive: &Archive) -> Vec<ServerRow> {
    #[derive(Default)]
    struct Draft {
        names: Vec<String>,
        protocols: Vec<&'static str>,
        connections: usize,
        exchanges: usize,
        body_bytes: u64,
        rtt: Option<Span>,
        thinks: Vec<Span>,
    }
    fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
        if !list.contains(&value) {
            list.push(value);
        }
    }
    let mut drafts: BTreeMap<Option<_>, Draft> = BTreeMap::new();
    for connection in &archive.connections {
        let draft = drafts.entry(connection.server).or_default();
        draft.connections += 1;
        draft.rtt = connection.rtt.into_iter().chain(draft.rtt).min();
        add(&mut draft.protocols, name(connection.protocol));
        let server_name = connection.tls.as_ref().and_then(|tls| tls.server_name.clone());
        server_name.into_iter().for_each(|name| add(&mut draft.names, name));
    }
    for exchange in &archive.exchanges {
        let connection = archive.connection_of(exchange);
        let draft = drafts.entry(connection.and_then(|one| one.server)).or_default();
        draft.exchanges += 1;
        draft.body_bytes += body_bytes(exchange);
        draft.thinks.extend(exchange.think);
        if connection.is_none_or(|connection| connection.tls.is_none()) {
            let host = exchange.request.url.split('/').nth(2).unwrap_or_default();
            add(&mut draft.names, host.to_owned());
        }
        add(&mut draft.protocols, name(exchange.request.protocol));
    }
    (drafts.into_iter())
        .map(|(server, mut draft)| {
            draft.thinks.sort_unstable();
            let median = draft.thinks.get(draft.thinks.len() / 2);
            ServerRow {
                server: server.map(|server| server.to_string()),
                names: draft.names,
                protocols: draft.protocols,
                connections: draft.connections,
                exchanges: draft.exchanges,
                body_bytes: draft.body_bytes,
                rtt_seconds: draft.rtt.map(Span::as_secs_f64),
                median_think_seconds: median.map(|span| span.as_secs_f64()),
            }
        })
        .collect()
}

fn exchanges(archive: &Archive) -> Vec<ExchangeRow> {
    let first = archive.exchanges.first().map(|exchange| exchange.started).unwrap_or_default();
    let row = |exchange: &Exchange| {
        let timings = &exchange.timings;
        let parts = [timings.send, timings.wait, timings.receive];
        let duration = parts.into_iter().flatten().map(Span::as_secs_f64).sum::<f64>();
        ExchangeRow {
            start_seconds: exchange.started.since(first).as_secs_f64(),
            method: exchange.request.method.clone(),
            url: exchange.request.url.clone(),
            protocol: name(exchange.request.protocol),
            status: exchange.response.as_ref().map(|response| response.status),
            body_bytes: body_bytes(exchange),
            think_seconds: exchange.think.map(Span::as_secs_f64),
            duration_seconds: (parts != [None; 3]).then_some(duration),
            is_aborted: exchange.abort.is_some(),
        }
    };
    archive.exchanges.iter().map(row).collect()
}

fn body_bytes(exchange: &Exchange) -> u64 {
    let response = exchange.response.as_ref().and_then(|response| response.body);
    exchange.request.body.into_iter().chain(response).map(|body| body.length).sum()
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http10 => "HTTP/1.0",
        Protocol::Http11 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
        Protocol::Http3 => "HTTP/3",
    }
}

pub fn import(args: &ImportArgs) -> Result<ExitCode> {
    check_output(&args.output)?;
    let file = open(&args.file)?;
    for warning in &file.warnings {
        eprintln!("manyways: {warning}");
    }
    let (count, left_out) = (file.archive.exchanges.len(), file.left_out);
    file.store(&args.output).map_err(file_failure)?;
    let rest = match left_out {
        0 => String::new(),
        count => format!("; {} left out", count_with_noun(count, "entry")),
    };
    eprintln!(
        "manyways: wrote {} into {}{rest}",
        count_with_noun(count, "exchange"),
        args.output.display()
    );
    Ok(ExitCode::SUCCESS)
}

pub fn export(args: &ExportArgs) -> Result<ExitCode> {
    check_output(&args.output)?;
    let file = open(&args.file)?;
    let count = file.archive.exchanges.len();
    let removed = file.export(&args.output, args.with_credentials).map_err(file_failure)?;
    eprintln!(
        "manyways: wrote {} into {}",
        count_with_noun(count, "exchange"),
        args.output.display()
    );
    if removed > 0 {
        eprintln!("  left out {} with credentials", count_with_noun(removed, "field"));
        eprintln!(
            "hint: URLs and bodies can contain secrets, too; read the file before you share it"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn check_output(path: &Path) -> Result<(), Failure> {
    check_folder(path)?;
    match path.symlink_metadata() {
        Ok(_) => Failure::refuse(
            format!("{} already exists", path.display()),
            "name another file, or remove it",
        ),
        Err(_) => Ok(()),
    }
}

pub fn open(path: &Path) -> Result<ArchiveFile, Failure> {
    ArchiveFile::open(path).map_err(|error| {
        let journal = journal_of(path);
        let hint = journal.exists().then(|| {
            format!(
                "its recorder did not end: complete it with `manyways record check --repair {}`",
                path.display()
            )
        });
        file_failure(error).maybe_hint(hint)
    })
}

fn file_failure(error: FileError) -> Failure {
    Failure::new(error.to_string())
}

fn repair_failure(error: RepairError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        RepairError::NoJournal { .. } => {
            failure.hint("without --repair, `manyways record check` tells whether it is whole")
        }
        _ => failure,
    }
}
