//! A page in a browser: when it can be read and used, and what it waits for.

mod archive;
mod document;
mod explain;
mod fault;
mod load;
mod protocol;
mod recorder;
#[cfg(test)]
mod tests;
mod through_proxy;
mod timings;
mod trace;
mod visit;
mod what_if;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::qoe::page::Load;
use manyways_unit::{Size, Span};
use manyways_wire::archive::Archive;

use super::browsing::Meter;
use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running};
use super::report::Measurement;
use crate::browser::BrowserError;
use crate::fetch::Location;

pub use archive::page_archive;
pub(super) use document::PageDocument;
pub use explain::{Cause, ExplainedPath, ExplainedStep, Explanation, Predicted};
pub use fault::PageError;
use recorder::Recorder;
pub use timings::{PageName, PageTimings};
use visit::{OVERHEAD, Visit, visit};
pub use what_if::{InvalidWhatIf, WhatIf};

/// Loads of a page in Chromium, each with an empty profile.
///
/// If the host has no other network that it could use, the browser connects itself; else through a
/// [`Proxy`](crate::browser::Proxy) that is bound to the network. All traffic of the interface counts
/// as that of the browser.
#[derive(Clone, Debug)]
pub struct Page {
    pub location: Location,
    /// The browser; if it is missing, the first one in `PATH`.
    pub browser: Option<PathBuf>,
    /// Number of loads.
    pub runs: u32,
    /// Maximum bytes received in each load; those sent are a quarter of them at most.
    pub max_bytes: Size,
    /// Time for each load, without that for the start of the browser.
    pub timeout: Span,
    /// A load has ended after its load event and so much time without an open request.
    pub quiet: Span,
    /// Conditions under which the load is predicted.
    pub what_ifs: Vec<WhatIf>,
}

/// Result of the loads of a page.
#[derive(Clone, Debug, Default)]
pub struct PageReport {
    /// Name and version of the browser.
    pub browser: Option<String>,
    pub runs: Vec<Arc<PageRun>>,
    /// Conditions under which the load is predicted.
    pub what_ifs: Vec<WhatIf>,
    /// Explanation of the typical load; made when it is asked for.
    explanation: Arc<OnceLock<Option<Explanation>>>,
}

/// One load of a page. If it ended early, some times are missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PageRun {
    pub name: PageName,
    /// Of the response with the page.
    pub status: Option<u16>,
    /// As the browser names it, such as `h2`.
    pub protocol: Option<String>,
    pub timings: PageTimings,
    pub load: Load,
    /// Requests and heads, without bodies.
    pub archive: Archive,
    /// Dialogs of the page, each of which was dismissed.
    pub dialogs: u64,
    /// Whether the browser used a proxy, because the host has several networks.
    pub is_proxied: bool,
    /// Whether there were too many tasks to keep all of them.
    pub is_cut: bool,
}

/// Reads a recording of the events of a load in the form of DevTools over a pipe: messages in JSON, each
/// with a zero byte at its end. Returns the load, and its requests as an archive.
///
/// # Errors
/// A message is not one of DevTools, or too long.
pub fn read_page_load(recording: &[u8]) -> Result<(Load, Archive), BrowserError> {
    let recorder = Recorder::read(recording)?;
    let (load, shown) = recorder.load();
    let archive = recorder.archive(&load, &shown, &PageName::default(), false);
    Ok((load, archive))
}

impl PageReport {
    /// The median of each time.
    pub fn medians(&self) -> PageTimings {
        let all: Vec<PageTimings> = self.runs.iter().map(|run| run.timings).collect();
        PageTimings::medians(&all)
    }

    /// The load with the median page load time, of those that have one; else the last load.
    pub fn typical(&self) -> Option<&PageRun> {
        let mut loaded: Vec<&PageRun> =
            self.runs.iter().map(Arc::as_ref).filter(|run| run.timings.load.is_some()).collect();
        loaded.sort_by_key(|run| run.timings.load);
        let typical = loaded.get(loaded.len().saturating_sub(1) / 2).copied();
        typical.or_else(|| self.runs.last().map(Arc::as_ref))
    }

    /// Why the typical load took as long as it did; `None` if it did not reach its load event. The first
    /// call computes it, in up to seconds for a page of many objects.
    pub fn explanation(&self) -> Option<&Explanation> {
        let explained =
            self.explanation.get_or_init(|| Explanation::of(&self.typical()?.load, &self.what_ifs));
        explained.as_ref()
    }
}

impl Page {
    /// Loads of one probe.
    const MAX_RUNS: u32 = 1_000;

    pub fn new(location: Location) -> Self {
        Self {
            location,
            browser: None,
            runs: 1,
            max_bytes: Size::from_bytes(20_000_000),
            timeout: Span::from_secs(30),
            quiet: Span::from_millis(500),
            what_ifs: Vec::new(),
        }
    }

    fn url(&self) -> String {
        let origin = self.location.origin();
        format!("{}://{}{}", origin.scheme(), origin.authority(), self.location.target())
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        run.own_all_traffic();
        let mut meter = Meter::start(run);
        let what_ifs = self.what_ifs.clone();
        let mut report = PageReport { what_ifs, ..PageReport::default() };
        for _ in 0..self.runs {
            let Visit { browser, run: recorded, ended } = visit(self, run, &mut meter).await;
            report.browser = report.browser.or(browser);
            report.runs.extend(recorded.map(Arc::new));
            report.explanation = Arc::default();
            if !report.runs.is_empty() {
                run.report(Measurement::Page(report.clone()));
            }
            ended?;
        }
        Ok(())
    }
}

impl Probe for Page {
    fn name(&self) -> &'static str {
        "page"
    }

    fn target(&self) -> String {
        self.url()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: String| Err(InvalidParameter(text));
        if self.runs == 0 || self.runs > Self::MAX_RUNS {
            return refuse(format!("the number of loads is not from 1 to {}", Self::MAX_RUNS));
        }
        if self.timeout.is_zero() {
            return refuse("the timeout is zero".to_owned());
        }
        let runs = u64::from(self.runs);
        let bytes = self.max_bytes.as_bytes().saturating_mul(runs);
        let duration = (self.timeout + OVERHEAD) * runs;
        // Requests and acknowledgements.
        let (up, down) = (Size::from_bytes(bytes / 4), Size::from_bytes(bytes));
        Ok(Plan::new(vec![Transfer { start: Span::ZERO, duration, up, down }]))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
