//! The report and the picture of a demonstration.

use manyways_lab::DEFAULT_CC;
use manyways_rig::transfer::{Change, PIECE, Request, idle};
use manyways_unit::Span;

use super::SIZE;
use super::contender::{Run, RunOutcome};
use super::outcome::Outcome;
use super::sampling::Sample;
use super::setting::{self, NETWORKS, labels};
use manyways_report::bars::{Bar, Bars, WIDTH};
use manyways_report::ranges::{self, Ranges};
use manyways_report::svg::{Anchor, Drawing};
use manyways_report::timeline::{Panel, Timeline};
use manyways_report::{Column, Page, TableRow};

/// The contender that the demonstration presents.
const MANYWAYS: &str = "manyways";

pub fn html(outcome: &Outcome) -> String {
    let mut page = Page::new(&headline(), &setting::describe());
    page.highlights(&highlights(outcome));
    page.heading("How long it took");
    page.figure(
        &bars(outcome),
        "A bar's length is the time until the last byte; its colours are the links' shares of the \
         bytes.",
    );
    let (head, lines) = outcome.table();
    let kinds = [Column::Text, Column::Numbers, Column::Numbers, Column::Text, Column::Numbers];
    let columns: Vec<_> = head.into_iter().zip(kinds).collect();
    let ours = outcome.runs.iter().position(|run| run.contender.name == MANYWAYS);
    let lines: Vec<TableRow> = lines
        .into_iter()
        .enumerate()
        .map(|(index, cells)| TableRow {
            cells,
            strong: Some(index) == ours,
            faint: index == outcome.runs.len(),
        })
        .collect();
    page.heading("The figures");
    let (file, server) = (megabytes(SIZE.as_bytes()), &outcome.server);
    let caption = format!("{file} MB from {server} over TLS; congestion control {DEFAULT_CC}");
    page.table(&caption, &columns, &lines);
    if let Some(ranges) = ranges(outcome) {
        page.heading("Which bytes came over which link");
        page.figure(
            &ranges,
            "Each line shows one request: the x axis is time, the y axis is the place in the \
             file; where the line is flat, no bytes arrived. The pale area above a line is the \
             part that has not arrived yet. The column at the right is the complete file, in the \
             colours of the links. Idle is the time without incoming data on a link, between its \
             first byte and the end. Kernel MPTCP is not shown: it requests the file once and \
             splits the bytes below HTTP. The next chart shows the bytes on its links.",
        );
    }
    page.heading("What each link carried");
    page.figure(
        &timeline(outcome),
        "IP bytes that each link has delivered since the start, sampled every 100 ms. Dashed: \
         sum of both links.",
    );
    page.heading("How to read this");
    page.notes(&outcome.notes());
    page.html(&format!("manyways {} demo", env!("CARGO_PKG_VERSION")))
}

/// The charts without the report, for a README.
pub fn picture(outcome: &Outcome) -> String {
    const EDGE: f64 = 24.0;
    const HEAD: f64 = 46.0;
    const SECOND_HEAD: f64 = 22.0;
    let bars = bars(outcome);
    let (words, second_chart) = match ranges(outcome) {
        Some(ranges) => ("Which bytes came over which link", ranges),
        None => ("What each link carried", timeline(outcome)),
    };
    let first = EDGE + HEAD;
    let second = first + bars.height + EDGE;
    let height = second + SECOND_HEAD + second_chart.height + EDGE;
    let title = headline();
    let about = format!("{} · {}, TLS", setting::short(), outcome.server);
    let description = outcome.speedup().unwrap_or_default();
    let mut drawing = Drawing::new(WIDTH + 2.0 * EDGE, height, &title, &description);
    drawing.text((EDGE, EDGE + 16.0), Anchor::Start, "headline", &title);
    drawing.text((EDGE, EDGE + 34.0), Anchor::Start, "tick", &about);
    drawing.embed(&bars, (EDGE, first));
    drawing.text((EDGE, second + 14.0), Anchor::Start, "label strong", words);
    drawing.embed(&second_chart, (EDGE, second + SECOND_HEAD));
    drawing.standalone()
}

fn headline() -> String {
    format!("{} MB over Wi-Fi and LTE at once", megabytes(SIZE.as_bytes()))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The names of the colours.
fn legend() -> Vec<String> {
    labels().into_iter().map(str::to_owned).collect()
}

fn highlights(outcome: &Outcome) -> Vec<(String, String)> {
    let mut highlights = Vec::new();
    let Some(both) = outcome.seconds(MANYWAYS) else { return highlights };
    highlights.push(("manyways get".to_owned(), format!("{both:.2} s")));
    if let Some(alone) = outcome.seconds("wifi") {
        highlights.push(("Wi-Fi alone takes".to_owned(), format!("{:.2} × as long", alone / both)));
    }
    let bound = outcome.bound.as_secs_f64();
    highlights.push((
        "of what both links could carry".to_owned(),
        format!("{:.0} %", 100.0 * bound / both),
    ));
    highlights
}

fn bars(outcome: &Outcome) -> Drawing {
    let bound = outcome.bound.as_secs_f64();
    let bar = |run: &Run| {
        let words = match &run.outcome {
            RunOutcome::Delivered(report) => {
                let rate = megabytes(SIZE.as_bytes()) * 8.0 / report.seconds;
                (format!("{:.2} s", report.seconds), format!("{rate:.1} Mbit/s"))
            }
            RunOutcome::Failed(reason) => (format!("failed: {reason}"), String::new()),
            RunOutcome::Skipped(reason) => (format!("skipped: {reason}"), String::new()),
        };
        Bar {
            label: run.contender.label.to_owned(),
            about: run.contender.short_label.to_owned(),
            value: run.report().map(|report| report.seconds),
            annotations: words,
            parts: run.parts(),
            strong: run.contender.name == MANYWAYS,
        }
    };
    let description: Vec<String> = outcome.runs.iter().map(Run::line).map(condense).collect();
    Bars {
        title: "Time to fetch the file".to_owned(),
        description: description.join("; "),
        axis: "seconds, less is better".to_owned(),
        mark: Some((bound, format!("fluid bound {bound:.2} s"))),
        legend: legend(),
        bars: outcome.runs.iter().map(bar).collect(),
    }
    .draw()
}

/// A chart of the bytes of each link; `None` if no run split the file by requests.
fn ranges(outcome: &Outcome) -> Option<Drawing> {
    let runs: Vec<(&Run, &[Request])> =
        outcome.runs.iter().filter_map(|run| Some((run, run.split_requests()?))).collect();
    let panels: Vec<ranges::Panel> =
        runs.iter().map(|(run, requests)| ranges_panel(run, requests)).collect();
    if panels.iter().all(|panel| panel.requests.is_empty()) {
        return None;
    }
    let words = |panel: &ranges::Panel| {
        let notes =
            panel.notes.iter().map(|note| format!("{}, {}", note.text, note.details.join(", ")));
        format!("{}: {}", panel.label, notes.collect::<Vec<_>>().join("; "))
    };
    let chart = Ranges {
        title: "Bytes of the file by link over time".to_owned(),
        description: panels.iter().map(words).collect::<Vec<_>>().join(". "),
        time_label: "seconds since the start".to_owned(),
        offset_label: "place in the file, MB".to_owned(),
        size: megabytes(SIZE.as_bytes()),
        legend: legend(),
        panels,
    };
    Some(chart.draw())
}

fn ranges_panel(run: &Run, requests: &[Request]) -> ranges::Panel {
    let end = run.elapsed();
    // A failed run ends with its last received byte.
    let busy = requests.iter().filter_map(Request::receive_interval);
    let last = end.or_else(|| busy.map(|(_, last)| last).max()).unwrap_or_default();
    let notes = NETWORKS.iter().enumerate().map(|(colour, link)| {
        let own = || requests.iter().filter(|request| request.link == link.name);
        let bytes: u64 = own().map(Request::bytes).sum();
        let asked = match own().count() {
            1 => "1 request".to_owned(),
            count => format!("{count} requests"),
        };
        let idle = idle(own(), last).as_secs_f64();
        ranges::Note {
            colour,
            text: format!("{} {:.2} MB", link.label, megabytes(bytes)),
            details: vec![asked, format!("idle {idle:.2} s")],
        }
    });
    let colour = |name: &str| NETWORKS.iter().position(|link| link.name == name);
    let drawn = requests
        .iter()
        .filter_map(|request| Some(chart_request(request, colour(&request.link)?, last)));
    ranges::Panel {
        label: run.contender.label.to_owned(),
        about: run.contender.about.to_owned(),
        requests: drawn.collect(),
        notes: notes.collect(),
        end: end.map(end_of),
        strong: run.contender.name == MANYWAYS,
    }
}

fn chart_request(request: &Request, colour: usize, last: Span) -> ranges::Request {
    let mut before = request.sent;
    let pieces = request.pieces.iter().map(|piece| {
        let since = before.max(piece.at.saturating_sub(PIECE)).min(piece.at);
        before = piece.at;
        ranges::Piece {
            start: since.as_secs_f64(),
            end: piece.at.as_secs_f64(),
            from: megabytes(piece.from),
            to: megabytes(piece.to),
        }
    });
    let change = |change: &Change| (change.at.as_secs_f64(), megabytes(change.to));
    ranges::Request {
        colour,
        sent: request.sent.as_secs_f64(),
        // A request that ends after the download is drawn until the end of the download.
        end: request.over.unwrap_or(last).min(last.max(request.sent)).as_secs_f64(),
        from: megabytes(request.from),
        to: megabytes(request.to.unwrap_or(SIZE.as_bytes())),
        changes: request.changes.iter().map(change).collect(),
        pieces: pieces.collect(),
    }
}

/// The end of a run, and its text.
fn end_of(end: Span) -> (f64, String) {
    (end.as_secs_f64(), format!("{:.2} s", end.as_secs_f64()))
}

fn timeline(outcome: &Outcome) -> Drawing {
    let panel = |run: &Run| {
        let points = |value: &dyn Fn(&[u64]) -> u64| -> Vec<(f64, f64)> {
            let point = |s: &Sample| (s.at.as_secs_f64(), megabytes(value(&s.delivered)));
            run.samples.iter().map(point).collect()
        };
        let line =
            |link: usize| if run.has_used(link) { points(&|by| by[link]) } else { Vec::new() };
        let lines: Vec<_> = (0..NETWORKS.len()).map(line).collect();
        let several = lines.iter().filter(|line| !line.is_empty()).count() > 1;
        Panel {
            label: run.contender.label.to_owned(),
            about: String::new(),
            sum: match several {
                true => points(&|by| by.iter().sum()),
                false => Vec::new(),
            },
            lines,
            end: run.elapsed().map(end_of),
            strong: run.contender.name == MANYWAYS,
        }
    };
    let description = outcome
        .runs
        .iter()
        .filter(|run| run.report().is_some())
        .map(|run| format!("{}: {}", run.contender.label, run.shares()));
    Timeline {
        title: "Bytes that each link delivered over time".to_owned(),
        description: description.collect::<Vec<_>>().join("; "),
        time_label: "seconds since the start".to_owned(),
        unit: "MB".to_owned(),
        legend: legend(),
        panels: outcome.runs.iter().filter(|run| !run.samples.is_empty()).map(panel).collect(),
    }
    .draw()
}

fn condense(text: String) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
