//! Why a page took as long as it did, as tables.

use manyways_net::probe::{ExplainedPath, ExplainedStep, Explanation, PageReport, PageRun};
use manyways_report::number::{percent, span};
use manyways_report::text::table;
use manyways_unit::{Span, Time, human};

/// Steps of a path that are shown.
const MAX_STEPS: usize = 40;
/// A step of less than this part of the path is not shown.
const SHORT: u64 = 100;
/// Objects with the least slack.
const MAX_OBJECTS: usize = 10;

/// The critical path, the objects with the least slack, and predictions.
pub fn text(interface: &str, page: &PageReport) -> String {
    let (Some(run), Some(explanation)) = (page.typical(), page.explanation()) else {
        return String::new();
    };
    let mut text = format!(
        "\n{interface}, critical path to the page load: {}\n{}",
        shares(&explanation.load),
        path(&explanation.load, run)
    );
    text.push_str(&format!(
        "{interface}, to the page being interactive: {}; the parser waited {} for the network\n",
        shares(&explanation.interactive),
        span(explanation.parser_blocked)
    ));
    text.push_str(&format!(
        "\n{interface}, objects with the least slack\n{}",
        slack(explanation, run)
    ));
    if !explanation.predictions.is_empty() {
        text.push('\n');
        text.push_str(&predictions(explanation, run));
    }
    text
}

/// The shares of a path.
pub fn shares(path: &ExplainedPath) -> String {
    let shares = &path.shares;
    let whole = (shares.network + shares.computation + shares.lag).as_secs_f64();
    let share = |part: Span| percent(if whole > 0.0 { part.as_secs_f64() / whole } else { 0.0 });
    format!(
        "{} network, {} computation, {} lag",
        share(shares.network),
        share(shares.computation),
        share(shares.lag)
    )
}

/// Cells of a path: start, duration, cause, activity and object of each step, and a sentence about
/// steps that are too short to be shown.
pub fn path_cells(path: &ExplainedPath, run: &PageRun) -> (Vec<Vec<String>>, Option<String>) {
    let length = |step: &ExplainedStep| step.end.since(step.start);
    let whole: Span = path.steps.iter().map(length).sum();
    let mut lengths: Vec<Span> = path.steps.iter().map(length).collect();
    lengths.sort_unstable();
    let longest = lengths.len().saturating_sub(MAX_STEPS);
    let least = lengths.get(longest).copied().unwrap_or_default();
    let least = least.max(Span::from_nanos(whole.as_nanos() / SHORT));
    let shown = path.steps.iter().filter(|step| length(step) >= least);
    let cells = shown.map(|step| {
        vec![
            span(step.start.since(Time::ZERO)),
            span(length(step)),
            step.cause.name().to_owned(),
            step.name.to_owned(),
            step.request.map(|request| object(run, request)).unwrap_or_default(),
        ]
    });
    let hidden: Vec<Span> = lengths.into_iter().filter(|length| *length < least).collect();
    let remark = (!hidden.is_empty()).then(|| {
        let total = span(hidden.iter().copied().sum());
        format!(
            "{} of {total} in all are not shown.",
            human::count_with_noun(hidden.len(), "shorter step")
        )
    });
    (cells.collect(), remark)
}

fn path(path: &ExplainedPath, run: &PageRun) -> String {
    let (rows, remark) = path_cells(path, run);
    let mut text = table(&["FROM", "TIME", "CAUSE", "ACTIVITY", "OBJECT"], rows);
    if let Some(remark) = remark {
        text.push_str(&remark);
        text.push('\n');
    }
    text
}

/// Cells of the objects with the least slack: the object, its end, its slack.
pub fn slack_cells(explanation: &Explanation, run: &PageRun) -> Vec<Vec<String>> {
    let rows = explanation.slack.iter().map(|(request, slack)| {
        let ended = run.load.requests[*request].times.ended;
        vec![
            object(run, *request),
            ended.map_or_else(|| "–".to_owned(), |time| span(time.since(Time::ZERO))),
            span(*slack),
        ]
    });
    rows.collect()
}

fn slack(explanation: &Explanation, run: &PageRun) -> String {
    let mut rows = slack_cells(explanation, run);
    rows.truncate(MAX_OBJECTS);
    table(&["OBJECT", "ENDED", "SLACK"], rows)
}

/// Cells of the predictions, below the measured load and its replay.
pub fn prediction_cells(explanation: &Explanation, run: &PageRun) -> Vec<Vec<String>> {
    let cell = |time: Option<Span>| time.map_or_else(|| "–".to_owned(), span);
    let timings = &run.timings;
    let measured = vec!["measured".to_owned(), cell(timings.interactive), cell(timings.load)];
    let one = |name: &str, interactive, load| vec![name.to_owned(), span(interactive), span(load)];
    let replayed = &explanation.replayed;
    let replayed = one("replayed", replayed.interactive, replayed.load);
    let predicted = explanation
        .predictions
        .iter()
        .map(|one_of| one(&one_of.what_if, one_of.interactive, one_of.load));
    [measured, replayed].into_iter().chain(predicted).collect()
}

fn predictions(explanation: &Explanation, run: &PageRun) -> String {
    table(&["WHAT IF", "PIT", "PLT"], prediction_cells(explanation, run))
}

/// A short name of an object: its path, and its server if that is another one than the page's.
pub fn object(run: &PageRun, request: usize) -> String {
    const LENGTH: usize = 60;
    let Some(found) = run.load.requests.get(request) else { return String::new() };
    let page = run.load.requests.first().map(|page| page.origin.as_str()).unwrap_or_default();
    let rest = found.url.split_once("://").map_or(found.url.as_str(), |(_, rest)| rest);
    let name = match found.origin == page {
        true => rest.find('/').map_or("/", |place| &rest[place..]),
        false => rest,
    };
    let name = human::printable(name);
    let count = name.chars().count();
    if count <= LENGTH {
        return name.into_owned();
    }
    // The end distinguishes it better than the middle.
    let head: String = name.chars().take(LENGTH / 2 - 1).collect();
    let tail: String = name.chars().skip(count - LENGTH / 2).collect();
    format!("{head}…{tail}")
}
