//! `record classify`: traffic dominated by short or by long flows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_model::drive::classify::{Classification, Flow, Pattern};
use manyways_net::replay::driver::classify;
use manyways_record::document::to_json_pretty;
use manyways_report::text::table;
use manyways_report::waterfall::{Panel, Row, Waterfall};
use manyways_report::{Column, Page, TableRow};
use manyways_unit::human::count_with_noun;
use manyways_unit::{Size, Time};
use manyways_wire::archive::Archive;
use serde::Serialize;

use super::archive::open;
use crate::report_file::{self, check_folder};

/// Classify the traffic of a recording: dominated by short flows or by long ones
#[derive(clap::Args)]
#[command(after_help = "\
A flow is a connection. It is long if it carries 1 MB without a pause of a second; long flows dominate if they carry at \
least half of all bytes. Several networks at once help long flows; short ones depend on the better network.

Examples:
  manyways record classify page.zip
  manyways record classify page.zip --html flows.html")]
pub struct ClassifyArgs {
    /// The archive, or a HAR file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Write a page with a chart of the flows into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct RecordClassify {
    /// `short-flow dominated` or `long-flow dominated`.
    pattern: &'static str,
    bytes: u64,
    long_flows: usize,
    /// Share of long flows in all bytes.
    long_share: f64,
    flows: Vec<FlowRow>,
}
manyways_record::document!(RecordClassify, "manyways.record-classify/1");

#[derive(Serialize)]
struct FlowRow {
    server: String,
    is_long: bool,
    /// Since the start of the first flow.
    start_seconds: f64,
    duration_seconds: f64,
    bytes: u64,
    /// Parts without a pause of a second.
    bursts: usize,
}

pub fn classify_file(args: &ClassifyArgs) -> Result<ExitCode> {
    if let Some(file) = &args.html {
        check_folder(file)?;
    }
    let file = open(&args.file)?;
    let found = classify(&file.archive);
    let document = document(&file.archive, &found);
    if let Some(path) = &args.html {
        report_file::write(path, &page(&document))?;
    }
    if args.json {
        print!("{}", to_json_pretty(&document).context("cannot format the flows")?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{}: {} of {} long, with {:.0} % of {}",
        document.pattern,
        count_with_noun(document.long_flows, "flow"),
        document.flows.len(),
        100.0 * document.long_share,
        Size::from_bytes(document.bytes)
    );
    let head = ["server", "at", "duration", "bytes", "bursts", ""];
    print!("\n{}", table(&head, document.flows.iter().map(cells)));
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &FlowRow) -> Vec<String> {
    vec![
        row.server.clone(),
        format!("{:.3} s", row.start_seconds),
        format!("{:.3} s", row.duration_seconds),
        Size::from_bytes(row.bytes).to_string(),
        row.bursts.to_string(),
        if row.is_long { "long".to_owned() } else { String::new() },
    ]
}

fn document(archive: &Archive, found: &Classification) -> RecordClassify {
    let first = found.flows.iter().map(|flow| flow.start).min().unwrap_or(Time::ZERO);
    RecordClassify {
        pattern: match found.pattern {
            Pattern::ShortFlowDominated => "short-flow dominated",
            Pattern::LongFlowDominated => "long-flow dominated",
        },
        bytes: found.bytes.as_bytes(),
        long_flows: found.long_flows,
        long_share: found.long_share,
        flows: found.flows.iter().map(|flow| row(archive, flow, first)).collect(),
    }
}

fn row(archive: &Archive, flow: &Flow, first: Time) -> FlowRow {
    let connection = archive.connections.get(flow.connection);
    let name = connection.and_then(|one| one.tls.as_ref()?.server_name.clone());
    let address = connection.and_then(|one| one.server).map(|server| server.to_string());
    FlowRow {
        server: name.or(address).unwrap_or_else(|| "unknown".to_owned()),
        is_long: flow.is_long(),
        start_seconds: flow.start.since(first).as_secs_f64(),
        duration_seconds: flow.duration.as_secs_f64(),
        bytes: flow.bytes.as_bytes(),
        bursts: flow.bursts.len(),
    }
}

/// Returns a page with the flows over time, as in figure 2-21 of Deng's thesis.
fn page(document: &RecordClassify) -> String {
    let lead = "Connections of a recorded application over time. Several networks at once help long flows.";
    let mut page = Page::new(&format!("Traffic: {}", document.pattern), lead);
    let rows = document.flows.iter().map(|flow| Row {
        label: format!("{}, {}", flow.server, Size::from_bytes(flow.bytes)),
        colour: usize::from(flow.is_long),
        start: flow.start_seconds,
        first_byte: Some(flow.start_seconds),
        end: flow.start_seconds + flow.duration_seconds,
    });
    let chart = Waterfall {
        title: "Flows".to_owned(),
        description: "One row per connection, from its start to its end.".to_owned(),
        time_label: "seconds since the first connection".to_owned(),
        legend: vec!["short flow".to_owned(), "long flow".to_owned()],
        panels: vec![Panel {
            label: document.pattern.to_owned(),
            about: count_with_noun(document.flows.len(), "flow"),
            rows: rows.collect(),
        }],
    };
    page.figure(&chart.draw(), "Flows of the recording");
    let columns = Column::of(["server", "at", "duration", "bytes", "bursts", "kind"], &[0, 5]);
    let rows = document.flows.iter().map(|flow| TableRow::plain(cells(flow)));
    page.table("Flows", &columns, &rows.collect::<Vec<_>>());
    page.html(&format!("manyways {}", env!("CARGO_PKG_VERSION")))
}
