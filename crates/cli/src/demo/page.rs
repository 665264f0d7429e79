//! The report and the picture of a demonstration.

use super::contender::{End, Run};
use super::outcome::Outcome;
use crate::report::bars::{Bar, Bars, WIDTH};
use crate::report::svg::{Anchor, Drawing};
use crate::report::timeline::{Panel, Timeline};
use crate::report::{Column, Line, Page};

/// The contender that the demonstration is about.
const OURS: &str = "manyways";

/// The whole report.
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

/// The charts alone, for a README.
pub fn picture(outcome: &Outcome) -> String {
    const EDGE: f64 = 24.0;
    const HEAD: f64 = 46.0;
    const SECOND_HEAD: f64 = 22.0;
    let (bars, timeline) = (bars(outcome), timeline(outcome));
    let first = EDGE + HEAD;
    let second = first + bars.height + EDGE;
    let height = second + SECOND_HEAD + timeline.height + EDGE;
    let title = headline(outcome);
    let about = format!("{} · {}, TLS", outcome.setting_short, outcome.server);
    let description = outcome.gain().unwrap_or_default();
    let mut drawing = Drawing::new(WIDTH + 2.0 * EDGE, height, &title, &description);
    drawing.text((EDGE, EDGE + 16.0), Anchor::Start, "headline", &title);
    drawing.text((EDGE, EDGE + 34.0), Anchor::Start, "tick", &about);
    drawing.place(&bars, (EDGE, first));
    drawing.text((EDGE, second + 14.0), Anchor::Start, "label strong", "What each link carried");
    drawing.place(&timeline, (EDGE, second + SECOND_HEAD));
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

fn timeline(outcome: &Outcome) -> Drawing {
    let panel = |run: &Run| {
        let delivered = run.delivered();
        let points = |value: &dyn Fn(&[manyways_trace::Size]) -> u64| -> Vec<(f64, f64)> {
            let samples = run.samples.iter();
            let point =
                |s: &super::watch::Sample| (s.at.as_secs_f64(), value(&s.delivered) as f64 / 1e6);
            samples.map(point).collect()
        };
        let used = |link: usize| delivered.get(link).is_some_and(|size| !size.is_zero());
        let lines: Vec<_> = (0..outcome.links.len())
            .map(|link| if used(link) { points(&|by| by[link].as_bytes()) } else { Vec::new() })
            .collect();
        let several = (0..outcome.links.len()).filter(|link| used(*link)).count() > 1;
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
