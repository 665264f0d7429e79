//! The report and the picture of a demonstration.

use manyways_unit::Span;

use super::contender::{End, Run};
use super::outcome::Outcome;
use super::requests::{self, Request};
use manyways_report::bars::{Bar, Bars, WIDTH};
use manyways_report::ranges::{self, Ranges};
use manyways_report::svg::{Anchor, Drawing};
use manyways_report::timeline::{Panel, Timeline};
use manyways_report::{Column, Line, Page};

/// The contender that the demonstration presents.
const OURS: &str = "manyways";

pub fn html(outcome: &Outcome) -> String {
    let mut page = Page::new(&headline(outcome), &outcome.setting_words);
    page.highlights(&highlights(outcome));
    page.heading("How long it took");
    page.figure(
        &bars(outcome),
        "A bar's length is the time until the last byte; its colours are the links' shares of the \
         bytes.",
    );
    let (head, lines) = outcome.table();
    let kinds = [Column::Words, Column::Figures, Column::Figures, Column::Words, Column::Figures];
    let columns: Vec<_> = head.into_iter().zip(kinds).collect();
    let ours = outcome.runs.iter().position(|run| run.contender.name == OURS);
    let lines: Vec<Line> = lines
        .into_iter()
        .enumerate()
        .map(|(index, cells)| Line {
            cells,
            strong: Some(index) == ours,
            faint: index == outcome.runs.len(),
        })
        .collect();
    page.heading("The figures");
    let caption = format!(
        "{} from {} over TLS; congestion control {}",
        megabytes(outcome),
        outcome.server,
        outcome.cc
    );
    page.table(&caption, &columns, &lines);
    if let Some(ranges) = ranges(outcome) {
        page.heading("Which bytes came over which link");
        page.figure(
            &ranges,
            "A line is what one request brought: to the right when, upwards which bytes of the \
             file; where it is level, nothing came. The pale area above it is what that request \
             was still to bring. The column at the right is the file in the end, in the colours of \
             who brought it. Idle is how long no answer was coming in over a link, between its \
             first byte and the end. Kernel MPTCP is not here: it asks for the file once and \
             splits it below HTTP. What its links carried is in the next chart.",
        );
    }
    page.heading("What each link carried");
    page.figure(
        &timeline(outcome),
        "IP bytes that each link has delivered since the start, looked at every 100 ms. Dashed: \
         both together.",
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
    let title = headline(outcome);
    let about = format!("{} · {}, TLS", outcome.setting_short, outcome.server);
    let description = outcome.gain().unwrap_or_default();
    let mut drawing = Drawing::new(WIDTH + 2.0 * EDGE, height, &title, &description);
    drawing.text((EDGE, EDGE + 16.0), Anchor::Start, "headline", &title);
    drawing.text((EDGE, EDGE + 34.0), Anchor::Start, "tick", &about);
    drawing.place(&bars, (EDGE, first));
    drawing.text((EDGE, second + 14.0), Anchor::Start, "label strong", words);
    drawing.place(&second_chart, (EDGE, second + SECOND_HEAD));
    drawing.standalone()
}

fn headline(outcome: &Outcome) -> String {
    format!("{} over Wi-Fi and LTE at once", megabytes(outcome))
}

fn megabytes(outcome: &Outcome) -> String {
    format!("{} MB", outcome.bytes as f64 / 1e6)
}

fn highlights(outcome: &Outcome) -> Vec<(String, String)> {
    let seconds = |name: &str| {
        let run = outcome.runs.iter().find(|run| run.contender.name == name)?;
        Some((run.contender.label, run.delivery()?.elapsed.as_secs_f64()))
    };
    let mut highlights = Vec::new();
    let Some((label, both)) = seconds(OURS) else { return highlights };
    highlights.push((label.to_owned(), format!("{both:.2} s")));
    if let Some((label, alone)) = seconds("wifi") {
        highlights.push((format!("{label} takes"), format!("{:.2} × as long", alone / both)));
    }
    let bound = outcome.bound.total().as_secs_f64();
    highlights.push((
        "of what both links could carry".to_owned(),
        format!("{:.0} %", 100.0 * bound / both),
    ));
    highlights
}

fn bars(outcome: &Outcome) -> Drawing {
    let bound = outcome.bound.total().as_secs_f64();
    let bar = |run: &Run| {
        let delivered = run.delivered();
        let sum: u64 = delivered.iter().map(|size| size.as_bytes()).sum();
        let seconds = run.delivery().map(|delivery| delivery.elapsed.as_secs_f64());
        let words = match (&run.end, seconds) {
            (_, Some(seconds)) => {
                let rate = outcome.bytes as f64 * 8.0 / seconds / 1e6;
                (format!("{seconds:.2} s"), format!("{rate:.1} Mbit/s"))
            }
            (End::Failed(reason), _) => (format!("failed: {reason}"), String::new()),
            (End::Skipped(reason), _) => (format!("left out: {reason}"), String::new()),
            (End::Delivered(_), None) => Default::default(),
        };
        Bar {
            label: run.contender.label.to_owned(),
            about: run.contender.short.to_owned(),
            value: seconds,
            words,
            parts: delivered
                .iter()
                .map(|size| size.as_bytes() as f64 / sum.max(1) as f64)
                .collect(),
            strong: run.contender.name == OURS,
        }
    };
    let description: Vec<String> = outcome.runs.iter().map(Run::line).map(squeeze).collect();
    Bars {
        title: "Time to fetch the file".to_owned(),
        description: description.join("; "),
        axis: "seconds, less is better".to_owned(),
        mark: Some((bound, format!("fluid bound {bound:.2} s"))),
        legend: outcome.labels().into_iter().map(str::to_owned).collect(),
        bars: outcome.runs.iter().map(bar).collect(),
    }
    .draw()
}

/// A chart of the bytes of each link; `None` if no run split the file by requests.
fn ranges(outcome: &Outcome) -> Option<Drawing> {
    let runs: Vec<(&Run, &[Request])> =
        outcome.runs.iter().filter_map(|run| Some((run, run.split()?))).collect();
    let panels: Vec<ranges::Panel> =
        runs.iter().map(|(run, requests)| panel_of_ranges(outcome, run, requests)).collect();
    if panels.iter().all(|panel| panel.requests.is_empty()) {
        return None;
    }
    let words = |panel: &ranges::Panel| {
        let notes =
            panel.notes.iter().map(|note| format!("{}, {}", note.words, note.more.join(", ")));
        format!("{}: {}", panel.label, notes.collect::<Vec<_>>().join("; "))
    };
    let chart = Ranges {
        title: "Bytes of the file by link over time".to_owned(),
        description: panels.iter().map(words).collect::<Vec<_>>().join(". "),
        time: "seconds since the start".to_owned(),
        place: "place in the file, MB".to_owned(),
        size: outcome.bytes as f64 / 1e6,
        legend: outcome.labels().into_iter().map(str::to_owned).collect(),
        panels,
    };
    Some(chart.draw())
}

fn panel_of_ranges(outcome: &Outcome, run: &Run, requests: &[Request]) -> ranges::Panel {
    let end = run.delivery().map(|delivery| delivery.elapsed);
    // A failed run ends with its last received byte.
    let busy = requests.iter().filter_map(Request::busy);
    let last = end.or_else(|| busy.map(|(_, last)| last).max()).unwrap_or_default();
    let notes = outcome.links.iter().enumerate().map(|(colour, link)| {
        let own = || requests.iter().filter(|request| request.link == link.name);
        let bytes: u64 = own().map(Request::bytes).sum();
        let asked = match own().count() {
            1 => "1 request".to_owned(),
            count => format!("{count} requests"),
        };
        let idle = requests::idle(own(), last).as_secs_f64();
        ranges::Note {
            colour,
            words: format!("{} {:.2} MB", link.label, bytes as f64 / 1e6),
            more: vec![asked, format!("idle {idle:.2} s")],
        }
    });
    let colour = |name: &str| outcome.links.iter().position(|link| link.name == name);
    let drawn = requests
        .iter()
        .filter_map(|request| Some(drawn(request, colour(&request.link)?, last, outcome.bytes)));
    ranges::Panel {
        label: run.contender.label.to_owned(),
        about: run.contender.about.to_owned(),
        requests: drawn.collect(),
        notes: notes.collect(),
        end: end.map(|end| (end.as_secs_f64(), format!("{:.2} s", end.as_secs_f64()))),
        strong: run.contender.name == OURS,
    }
}

fn drawn(request: &Request, colour: usize, last: Span, size: u64) -> ranges::Request {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut before = request.sent;
    let pieces = request.pieces.iter().map(|piece| {
        let since = before.max(piece.at.saturating_sub(requests::PIECE)).min(piece.at);
        before = piece.at;
        ranges::Piece {
            since: since.as_secs_f64(),
            at: piece.at.as_secs_f64(),
            from: megabytes(piece.from),
            to: megabytes(piece.to),
        }
    });
    let change = |change: &requests::Change| (change.at.as_secs_f64(), megabytes(change.to));
    ranges::Request {
        colour,
        sent: request.sent.as_secs_f64(),
        // A request that ends after the download is drawn until the end of the download.
        over: request.over.unwrap_or(last).min(last.max(request.sent)).as_secs_f64(),
        from: megabytes(request.from),
        to: megabytes(request.to.unwrap_or(size)),
        changes: request.changes.iter().map(change).collect(),
        pieces: pieces.collect(),
    }
}

fn timeline(outcome: &Outcome) -> Drawing {
    let panel = |run: &Run| {
        let points = |value: &dyn Fn(&[manyways_unit::Size]) -> u64| -> Vec<(f64, f64)> {
            let samples = run.samples.iter();
            let point =
                |s: &super::watch::Sample| (s.at.as_secs_f64(), value(&s.delivered) as f64 / 1e6);
            samples.map(point).collect()
        };
        let lines: Vec<_> = (0..outcome.links.len())
            .map(|link| if run.used(link) { points(&|by| by[link].as_bytes()) } else { Vec::new() })
            .collect();
        let several = (0..outcome.links.len()).filter(|link| run.used(*link)).count() > 1;
        Panel {
            label: run.contender.label.to_owned(),
            about: String::new(),
            sum: match several {
                true => points(&|by| by.iter().map(|size| size.as_bytes()).sum()),
                false => Vec::new(),
            },
            lines,
            end: run.delivery().map(|delivery| {
                let seconds = delivery.elapsed.as_secs_f64();
                (seconds, format!("{seconds:.2} s"))
            }),
            strong: run.contender.name == OURS,
        }
    };
    let description = outcome
        .runs
        .iter()
        .filter(|run| run.delivery().is_some())
        .map(|run| format!("{}: {}", run.contender.label, run.shares(&outcome.labels())));
    Timeline {
        title: "Bytes that each link delivered over time".to_owned(),
        description: description.collect::<Vec<_>>().join("; "),
        time: "seconds since the start".to_owned(),
        unit: "MB".to_owned(),
        legend: outcome.labels().into_iter().map(str::to_owned).collect(),
        panels: outcome.runs.iter().filter(|run| !run.samples.is_empty()).map(panel).collect(),
    }
    .draw()
}

fn squeeze(text: String) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
