//! Loads of a page as JSON. Times are in seconds, sizes in bytes.

use manyways_unit::Span;
use serde::Serialize;

use super::{PageReport, PageRun, PageTimings};

/// Loads of a page.
#[derive(Debug, Serialize)]
pub struct PageDocument {
    browser: Option<String>,
    /// The median of each time.
    median: TimingsDocument,
    runs: Vec<RunDocument>,
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
        Self {
            browser: report.browser.clone(),
            median: TimingsDocument::of(&report.medians()),
            runs: report.runs.iter().map(|run| RunDocument::of(run)).collect(),
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
