//! Loads of a page as JSON. Times are in seconds, sizes in bytes.

use manyways_unit::{Span, Time};
use serde::Serialize;

use super::explain::{ExplainedPath, Explanation, Predicted};
use super::{PageReport, PageRun, PageTimings};

/// Loads of a page.
#[derive(Debug, Serialize)]
pub struct PageDocument {
    browser: Option<String>,
    /// The median of each time.
    median: TimingsDocument,
    runs: Vec<RunDocument>,
    /// Number of the run that is explained, from 0.
    explained: Option<usize>,
    /// Null if the page did not reach its load event.
    explanation: Option<ExplanationDocument>,
}

/// Why a load took as long as it did.
#[derive(Debug, Serialize)]
struct ExplanationDocument {
    page_load: PathDocument,
    page_interactive: PathDocument,
    /// Time in which the parser waited for the network.
    parser_blocked: f64,
    /// The least first.
    slack: Vec<SlackDocument>,
    /// A prediction without a change.
    replayed: PredictionDocument,
    predictions: Vec<PredictionDocument>,
}

/// A critical path.
#[derive(Debug, Serialize)]
struct PathDocument {
    network: f64,
    computation: f64,
    lag: f64,
    steps: Vec<StepDocument>,
}

#[derive(Debug, Serialize)]
struct StepDocument {
    start: f64,
    duration: f64,
    /// `network`, `computation` or `lag`.
    cause: &'static str,
    activity: &'static str,
    url: Option<String>,
}

#[derive(Debug, Serialize)]
struct SlackDocument {
    url: String,
    ended: Option<f64>,
    slack: f64,
}

#[derive(Debug, Serialize)]
struct PredictionDocument {
    what_if: String,
    page_interactive: f64,
    page_load: f64,
}

#[derive(Debug, Serialize)]
struct RunDocument {
    /// Address after all redirects.
    url: String,
    title: String,
    status: Option<u16>,
    protocol: Option<String>,
    dialogs: u64,
    proxied: bool,
    #[serde(flatten)]
    timings: TimingsDocument,
}

#[derive(Debug, Serialize)]
struct TimingsDocument {
    dns: Option<f64>,
    connect: Option<f64>,
    tls: Option<f64>,
    first_byte: Option<f64>,
    response: Option<f64>,
    dom_interactive: Option<f64>,
    dom_content_loaded: Option<f64>,
    page_interactive: Option<f64>,
    page_load: Option<f64>,
    first_contentful_paint: Option<f64>,
    largest_contentful_paint: Option<f64>,
    objects: u64,
    failed: u64,
    bytes: u64,
}

impl PageDocument {
    pub fn of(report: &PageReport) -> Self {
        let typical = report.typical();
        Self {
            browser: report.browser.clone(),
            median: TimingsDocument::of(&report.medians()),
            runs: report.runs.iter().map(|run| RunDocument::of(run)).collect(),
            explained: typical.and_then(|typical| {
                report.runs.iter().position(|run| std::ptr::eq(run.as_ref(), typical))
            }),
            explanation: typical
                .zip(report.explanation())
                .map(|(run, explanation)| ExplanationDocument::of(explanation, run)),
        }
    }
}

impl ExplanationDocument {
    fn of(explanation: &Explanation, run: &PageRun) -> Self {
        let url = |request: usize| run.load.requests[request].url.clone();
        let path = |path: &ExplainedPath| PathDocument {
            network: path.shares.network.as_secs_f64(),
            computation: path.shares.computation.as_secs_f64(),
            lag: path.shares.lag.as_secs_f64(),
            steps: path
                .steps
                .iter()
                .map(|step| StepDocument {
                    start: step.start.as_secs_f64(),
                    duration: step.end.since(step.start).as_secs_f64(),
                    cause: step.cause.name(),
                    activity: step.name,
                    url: step.request.map(url),
                })
                .collect(),
        };
        let slack = explanation.slack.iter().map(|(request, slack)| SlackDocument {
            url: url(*request),
            ended: run.load.requests[*request].times.ended.map(Time::as_secs_f64),
            slack: slack.as_secs_f64(),
        });
        Self {
            page_load: path(&explanation.load),
            page_interactive: path(&explanation.interactive),
            parser_blocked: explanation.parser_blocked.as_secs_f64(),
            slack: slack.collect(),
            replayed: PredictionDocument::of(&explanation.replayed),
            predictions: explanation.predictions.iter().map(PredictionDocument::of).collect(),
        }
    }
}

impl PredictionDocument {
    fn of(predicted: &Predicted) -> Self {
        Self {
            what_if: predicted.what_if.clone(),
            page_interactive: predicted.interactive.as_secs_f64(),
            page_load: predicted.load.as_secs_f64(),
        }
    }
}

impl RunDocument {
    fn of(run: &PageRun) -> Self {
        Self {
            url: run.name.url.clone(),
            title: run.name.title.clone(),
            status: run.status,
            protocol: run.protocol.clone(),
            dialogs: run.dialogs,
            proxied: run.is_proxied,
            timings: TimingsDocument::of(&run.timings),
        }
    }
}

impl TimingsDocument {
    fn of(timings: &PageTimings) -> Self {
        let seconds = |span: Option<Span>| span.map(Span::as_secs_f64);
        Self {
            dns: seconds(timings.dns),
            connect: seconds(timings.connect),
            tls: seconds(timings.tls),
            first_byte: seconds(timings.first_byte),
            response: seconds(timings.response),
            dom_interactive: seconds(timings.dom_interactive),
            dom_content_loaded: seconds(timings.dom_content_loaded),
            page_interactive: seconds(timings.interactive),
            page_load: seconds(timings.load),
            first_contentful_paint: seconds(timings.first_contentful_paint),
            largest_contentful_paint: seconds(timings.largest_contentful_paint),
            objects: timings.objects,
            failed: timings.failed,
            bytes: timings.bytes.as_bytes(),
        }
    }
}
