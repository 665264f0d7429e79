//! The report of a run: one HTML page.

mod captures;
mod charts;
mod tables;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use manyways_capture::RunReport;
use manyways_flows::analysis::Overview;
use manyways_flows::flow::SenderLimit;

use self::captures::{captures, notes};
use self::tables::{carried, endpoint_table, losses, responses, round_trips, slow};
use super::summary::{self, duration_text, limit_description, percent, quantile, size};
use manyways_report::Page;
use manyways_report::number::{self, count, plural, shorten, span, utc_time};

/// Maximum number of servers, and of clients, with a row.
const MAX_ENDPOINTS: usize = 15;
/// Arguments of the run.
pub struct RunInfo<'a> {
    pub filter: Option<&'a str>,
    /// Whether addresses and names are anonymized.
    pub is_anonymous: bool,
    /// Whether a signal stopped the run.
    pub is_stopped: bool,
}

/// Returns the whole report.
pub fn html(outcome: &RunReport, about: &RunInfo<'_>) -> String {
    let empty = Overview::default();
    let overview = outcome.summary.overview.as_deref().unwrap_or(&empty);
    let mut page = Page::new(&title(outcome, about), &lead(outcome));
    page.highlights(&highlights(outcome));
    if let Some(drawing) = charts::timeline(outcome) {
        page.heading("Traffic over time");
        let caption = format!(
            "Frames in steps of {}. Down: TCP and UDP from servers; up: from clients; other: \
             all other frames, if any.",
            span(outcome.counters.timeline.width())
        );
        page.figure(&drawing, &caption);
    }
    if let Some(drawing) = charts::limits(outcome, overview) {
        page.heading("What limits servers");
        page.figure(
            &drawing,
            "Shares of the time between the data segments of servers, in TCP flows; the label of a bar \
             is the total over all flows. A long flow counts more.",
        );
        let means =
            |limit| format!("{}: {}.", summary::limit_name(limit), limit_description(limit));
        page.notes(&charts::LIMITS.map(means));
    }
    round_trips(&mut page, outcome);
    losses(&mut page, outcome, overview);
    responses(&mut page, overview);
    if let Some(drawing) = charts::windows(overview) {
        page.heading("First congestion windows of servers");
        let bounds = match overview.lower_bound_windows {
            0 => String::new(),
            flows => format!(" Not shown: {} with only a lower bound.", plural(flows, "flow")),
        };
        let caption = "Data that servers send before the first acknowledgment can reach them.";
        page.figure(&drawing, &format!("{caption}{bounds}"));
    }
    slow(&mut page, overview);
    let (servers, others) = overview.servers(MAX_ENDPOINTS);
    endpoint_table(&mut page, "Servers", "by registered domain", "Organisation", &servers, &others);
    let (clients, others) = overview.clients(MAX_ENDPOINTS);
    endpoint_table(&mut page, "Clients", "by address", "System", &clients, &others);
    carried(&mut page, overview);
    page.heading("The capture");
    page.notes(&notes(outcome, about));
    captures(&mut page, outcome, about);
    page.heading("How to read this");
    page.notes(&HOW_TO_READ.map(str::to_owned));
    page.html(&format!("manyways {} flows", env!("CARGO_PKG_VERSION")))
}

const HOW_TO_READ: [&str; 6] = [
    "* marks percentiles, medians included, of fewer than 20 values: another capture may well show \
     others.",
    "A round trip has two halves: local, between the capture point and the local end, and remote, \
     beyond the capture point. A long local half is caused by the access network, often Wi-Fi; a long \
     remote half is caused by distance.",
    "Loss is local or remote, too: the side of the capture point on which a segment was lost. Packets \
     that only the capture missed do not count as lost.",
    "The servicing rate is the speed of HTTP/1 responses: bytes divided by the time from \
     each request to the last byte of its response.",
    "Inferred response times are from changes of direction in encrypted data, which \
     approximate requests and responses.",
    "-o writes tables with a row for each flow, with these values and more; manyways flows ask \
     answers questions about them.",
];

fn title(outcome: &RunReport, about: &RunInfo<'_>) -> String {
    match &outcome.captures[..] {
        [capture] if !about.is_anonymous => format!("Traffic in {}", file_name(&capture.name)),
        captures => format!("Traffic in {}", plural(captures.len() as u64, "capture")),
    }
}

fn file_name(path: &str) -> String {
    let name = std::path::Path::new(path).file_name();
    shorten(&name.map_or(path.into(), |name| name.to_string_lossy()), 60)
}

fn lead(outcome: &RunReport) -> String {
    let counters = &outcome.counters;
    let Some((first, last)) = counters.first.zip(counters.last) else {
        return "There are no packets.".to_owned();
    };
    format!(
        "{} and {} in {}, from {} to {}",
        plural(counters.packets, "packet"),
        size(counters.bytes),
        duration_text(outcome),
        utc_time(first),
        utc_time(last)
    )
}

fn highlights(outcome: &RunReport) -> Vec<(String, String)> {
    let summary = &outcome.summary;
    let mut highlights = vec![("TCP flows".to_owned(), count(summary.flows))];
    let mut add = |what: &str, much: String| highlights.push((what.to_owned(), much));
    if let Some(median) = summary.rtt.median() {
        let flows = count(summary.rtt.count());
        let median = quantile(span(median), summary.rtt.count());
        add(&format!("Median round trip of {flows} of these flows"), median);
    }
    if summary.data_segments > 0 {
        let lost = summary.lost.iter().sum();
        add("Segments lost", percent(lost, summary.data_segments));
    }
    // The first value alone would hide its share of the time.
    let mut limits = SenderLimit::ALL;
    limits.sort_by_key(|limit| Reverse(summary.limited_by.span(*limit)));
    let limits = limits.into_iter().filter(|limit| !summary.limited_by.span(*limit).is_zero());
    let (names, shares): (Vec<String>, Vec<String>) = limits
        .take(2)
        .map(|limit| (summary::limit_name(limit), number::percent(summary.limited_by.share(limit))))
        .unzip();
    if !names.is_empty() {
        add(&format!("Servers limited by {}", names.join(", then ")), shares.join(", "));
    }
    highlights
}
