//! The requests of a replay: found, found approximately, missed, and recorded ones that nothing asked
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use manyways_net::replay::{Contents, Outcome, Served};
use manyways_record::document::to_json_pretty;
use manyways_report::number::seconds;
use manyways_report::waterfall::{Panel, Row, Waterfall};
use manyways_report::{Column, Page, TableRow};
use manyways_unit::human::count_with_noun;
use manyways_unit::{Size, Span, Time};
use manyways_wire::archive::Exchange;
use serde::Serialize;

/// Lines about misses on the terminal.
const MAX_LINES: usize = 10;
/// Rows of a table of the page.
const MAX_ROWS: usize = 200;

/// The JSON document.
#[derive(Serialize)]
struct ReplayReport {
    recording: String,
    /// Seconds since 1970 at the start of the command.
    started_seconds: f64,
    exchanges: usize,
    requests: usize,
    hits: usize,
    approximate: usize,
    missed: usize,
    never_asked: usize,
    body_bytes: u64,
    /// From the first request to the last byte of a response: recorded, and as the servers of the replay
    /// sent them.
    recorded_seconds: f64,
    replayed_seconds: f64,
    /// How late the servers answered, compared with the think times.
    lateness_seconds: Lateness,
    misses: Vec<MissRow>,
    approximate_hits: Vec<ApproximateRow>,
    unasked: Vec<String>,
    list: Vec<RequestRow>,
    /// Requests that are in no list, because there were too many.
    omitted: u64,
}
manyways_record::document!(ReplayReport, "manyways.replay/1");

#[derive(Default, Serialize)]
struct Lateness {
    median: f64,
    #[serde(rename = "p95")]
    most: f64,
}

#[derive(Serialize)]
struct MissRow {
    method: String,
    url: String,
    count: usize,
    /// The most similar recorded request.
    nearest: Option<String>,
}

#[derive(Serialize)]
struct ApproximateRow {
    url: String,
    recorded_url: String,
    score: f64,
    differences: Vec<String>,
}

/// A request in the order of arrival. Times are since the start of the command.
#[derive(Serialize)]
struct RequestRow {
    method: String,
    url: String,
    server: String,
    connection: u64,
    /// `hit`, `approximate` or `miss`.
    outcome: &'static str,
    /// Number of the recorded exchange, from 1.
    exchange: Option<usize>,
    at_seconds: f64,
    think_seconds: f64,
    first_byte_seconds: Option<f64>,
    last_byte_seconds: Option<f64>,
    body_bytes: u64,
}

/// The report of a replay.
pub struct Report {
    document: ReplayReport,
    recorded: Vec<Row>,
    replayed: Vec<Row>,
}

impl Report {
    /// `began` is the start of the command, by the clock of the server, whose origin is `epoch`.
    pub fn new(
        file: &Path,
        contents: &Contents,
        served: &[Served],
        omitted: u64,
        began: Time,
        epoch: Span,
    ) -> Self {
        let exchanges = &contents.archive().exchanges;
        let url = |number: usize| {
            exchanges.get(number).map(|one| one.request.url.clone()).unwrap_or_default()
        };
        let mut served: Vec<&Served> = served.iter().collect();
        served.sort_by_key(|one| one.at);
        let mut asked = BTreeSet::new();
        let mut misses: BTreeMap<(&str, &str), (usize, Option<usize>)> = BTreeMap::new();
        let mut approximate_hits = Vec::new();
        let (mut hits, mut approximate, mut missed) = (0, 0, 0);
        for one in &served {
            match &one.outcome {
                Outcome::Hit { exchange } => {
                    hits += 1;
                    asked.insert(*exchange);
                }
                Outcome::Approximate { exchange, score, differences } => {
                    approximate += 1;
                    asked.insert(*exchange);
                    approximate_hits.push(ApproximateRow {
                        url: one.url.clone(),
                        recorded_url: url(*exchange),
                        score: *score,
                        differences: differences.iter().map(ToString::to_string).collect(),
                    });
                }
                Outcome::Miss { nearest } => {
                    missed += 1;
                    let entry = misses.entry((&one.method, &one.url)).or_insert((0, *nearest));
                    entry.0 += 1;
                }
            }
        }
        // Exchanges without a response cannot answer.
        let answerable = exchanges.iter().enumerate().filter(|(_, one)| one.response.is_some());
        let unasked: Vec<String> = answerable
            .filter(|(number, _)| !asked.contains(number))
            .map(|(_, exchange)| exchange.request.url.clone())
            .collect();
        let recorded = recorded_rows(exchanges);
        let replayed = replayed_rows(&served);
        let end = |rows: &[Row]| rows.iter().map(|row| row.end).fold(0.0, f64::max);
        let document = ReplayReport {
            recording: file.display().to_string(),
            started_seconds: (began + epoch).as_secs_f64(),
            exchanges: exchanges.len(),
            requests: served.len(),
            hits,
            approximate,
            missed,
            never_asked: unasked.len(),
            body_bytes: served.iter().map(|one| one.bytes).sum(),
            recorded_seconds: end(&recorded),
            replayed_seconds: end(&replayed),
            lateness_seconds: lateness(&served),
            misses: (misses.into_iter())
                .map(|((method, missed), (count, nearest))| MissRow {
                    method: method.to_owned(),
                    url: missed.to_owned(),
                    count,
                    nearest: nearest.map(url),
                })
                .collect(),
            approximate_hits,
            unasked,
            list: served.iter().map(|one| request_row(one, began)).collect(),
            omitted,
        };
        Self { document, recorded, replayed }
    }

    /// Prints the report to standard error, because standard output is the command's.
    pub fn print(&self) {
        let all = &self.document;
        eprintln!(
            "manyways: replayed {}: {}, {}, {}; {} never asked for",
            count_with_noun(all.requests, "request"),
            count_with_noun(all.hits, "hit"),
            count_with_noun(all.approximate, "approximate hit"),
            count_with_noun(all.missed, "miss"),
            count_with_noun(all.never_asked, "exchange"),
        );
        for miss in all.misses.iter().take(MAX_LINES) {
            let times =
                if miss.count > 1 { format!(" ({} times)", miss.count) } else { String::new() };
            eprintln!("  missed: {} {}{times}", miss.method, miss.url);
        }
        if all.misses.len() > MAX_LINES {
            eprintln!("  missed: {} more", count_with_noun(all.misses.len() - MAX_LINES, "URL"));
        }
        if let Some(miss) = all.misses.first() {
            eprintln!(
                "hint: `manyways replay why {} '{}'` explains a miss",
                all.recording, miss.url
            );
        }
        if all.requests == 0 {
            eprintln!("hint: `manyways record show {}` lists the recorded servers", all.recording);
        }
    }

    pub fn json(&self) -> serde_json::Result<String> {
        to_json_pretty(&self.document)
    }

    /// Returns the report as a page.
    pub fn html(mut self) -> String {
        let all = &self.document;
        let title = format!("Replay of {}", all.recording);
        let lead = "Requests of a recorded program to the servers of its recording, over emulated networks. \
                    The recorded times are those of the recorder, the replayed ones those of the servers.";
        let mut page = Page::new(&title, lead);
        let highlight = |name: &str, value: String| (name.to_owned(), value);
        page.highlights(&[
            highlight("requests", all.requests.to_string()),
            highlight("hits", all.hits.to_string()),
            highlight("approximate hits", all.approximate.to_string()),
            highlight("misses", all.missed.to_string()),
            highlight("never asked for", all.never_asked.to_string()),
            highlight("first request to last byte", seconds(all.replayed_seconds)),
            highlight("recorded", seconds(all.recorded_seconds)),
        ]);
        let panel = |label: &str, rows: &mut Vec<Row>, end: f64| Panel {
            label: label.to_owned(),
            about: format!("{}, {}", count_with_noun(rows.len(), "request"), seconds(end)),
            rows: std::mem::take(rows),
        };
        let waterfall = Waterfall {
            title: "Waterfalls".to_owned(),
            description: "One row per request: the wait for the response, then the response. Above the recorded load, \
                          below the replayed one."
                .to_owned(),
            time_label: "seconds since the first request".to_owned(),
            legend: ["hit", "approximate hit", "miss"].map(str::to_owned).into(),
            panels: vec![
                panel("recorded", &mut self.recorded, all.recorded_seconds),
                panel("replayed", &mut self.replayed, all.replayed_seconds),
            ],
        };
        page.figure(&waterfall.draw(), "Recorded and replayed requests");
        if !all.misses.is_empty() {
            page.heading("Misses");
            let rows = all.misses.iter().take(MAX_ROWS).map(|miss| {
                let nearest = miss.nearest.clone().unwrap_or_default();
                TableRow::plain(vec![
                    miss.method.clone(),
                    miss.url.clone(),
                    miss.count.to_string(),
                    nearest,
                ])
            });
            let columns =
                Column::of(["method", "URL", "requests", "most similar recorded URL"], &[0, 1, 3]);
            page.table(
                "Requests that no recorded exchange answers",
                &columns,
                &rows.collect::<Vec<_>>(),
            );
        }
        if !all.approximate_hits.is_empty() {
            page.heading("Approximate hits");
            let rows = all.approximate_hits.iter().take(MAX_ROWS).map(|one| {
                let differences = one.differences.join("; ");
                TableRow::plain(vec![one.url.clone(), format!("{:.2}", one.score), differences])
            });
            let columns = Column::of(["URL", "score", "differences"], &[0, 2]);
            page.table(
                "Requests that a similar exchange answers",
                &columns,
                &rows.collect::<Vec<_>>(),
            );
        }
        if !all.unasked.is_empty() {
            page.heading("Never asked for");
            let rows =
                all.unasked.iter().take(MAX_ROWS).map(|url| TableRow::plain(vec![url.clone()]));
            let columns = Column::of(["URL"], &[0]);
            page.table("Recorded exchanges without a request", &columns, &rows.collect::<Vec<_>>());
        }
        let bytes = Size::from_bytes(all.body_bytes);
        page.html(&format!("{bytes} in bodies; manyways {}", env!("CARGO_PKG_VERSION")))
    }
}

fn request_row(one: &Served, began: Time) -> RequestRow {
    let since = |time: Time| time.since(began).as_secs_f64();
    let (outcome, exchange) = match &one.outcome {
        Outcome::Hit { exchange } => ("hit", Some(exchange + 1)),
        Outcome::Approximate { exchange, .. } => ("approximate", Some(exchange + 1)),
        Outcome::Miss { .. } => ("miss", None),
    };
    RequestRow {
        method: one.method.clone(),
        url: one.url.clone(),
        server: one.server.to_string(),
        connection: one.connection,
        outcome,
        exchange,
        at_seconds: since(one.at),
        think_seconds: one.think.as_secs_f64(),
        first_byte_seconds: one.first_byte.map(since),
        last_byte_seconds: one.last_byte.map(since),
        body_bytes: one.bytes,
    }
}

/// The median and 95th percentile of first byte − request − think time.
fn lateness(served: &[&Served]) -> Lateness {
    let late = |one: &&Served| Some(one.first_byte?.since(one.at).saturating_sub(one.think));
    let mut all: Vec<Span> = served.iter().filter_map(late).collect();
    all.sort_unstable();
    let at = |share: f64| {
        let index = (share * all.len() as f64) as usize;
        all.get(index.min(all.len().saturating_sub(1))).map_or(0.0, |span| span.as_secs_f64())
    };
    Lateness { median: at(0.5), most: at(0.95) }
}

fn recorded_rows(exchanges: &[Exchange]) -> Vec<Row> {
    let first = exchanges.iter().map(|one| one.started).min().unwrap_or_default();
    let row = |one: &Exchange| {
        let start = one.started.since(first).as_secs_f64();
        let part = |span: Option<Span>| span.map_or(0.0, Span::as_secs_f64);
        let timings = &one.timings;
        let before = [timings.blocked, timings.dns, timings.connect];
        // Browsers count from the decision to ask, the recorder from the first byte of the request.
        let handshakes: f64 = match timings.blocked.is_some() {
            true => before.into_iter().map(part).sum(),
            false => 0.0,
        };
        let first_byte = start + handshakes + part(timings.send) + part(timings.wait);
        Row {
            label: label(&one.request.url),
            colour: 0,
            start,
            first_byte: one.response.as_ref().map(|_| first_byte),
            end: first_byte + part(timings.receive),
        }
    };
    let mut rows: Vec<Row> = exchanges.iter().map(row).collect();
    rows.sort_by(|one, other| one.start.total_cmp(&other.start));
    rows
}

fn replayed_rows(served: &[&Served]) -> Vec<Row> {
    let first = served.first().map(|one| one.at).unwrap_or_default();
    let row = |one: &&Served| {
        let since = |time: Time| time.since(first).as_secs_f64();
        let start = since(one.at);
        let first_byte = one.first_byte.map(since);
        Row {
            label: label(&one.url),
            colour: match one.outcome {
                Outcome::Hit { .. } => 0,
                Outcome::Approximate { .. } => 1,
                Outcome::Miss { .. } => 2,
            },
            start,
            first_byte,
            end: one.last_byte.map(since).or(first_byte).unwrap_or(start),
        }
    };
    served.iter().map(row).collect()
}

/// A URL without its scheme and query.
fn label(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('?').next().unwrap_or_default().to_owned()
}
