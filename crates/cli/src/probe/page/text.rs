//! Loads of a page as tables.

use manyways_net::probe::{Measurement, PageReport, PageTimings, Report};
use manyways_report::number::bytes;
use manyways_report::text::table;
use manyways_unit::Span;

use super::explain;
use crate::probe::run::cell;

/// The tables of all networks.
pub fn text(reports: &[Report]) -> String {
    let pages: Vec<(&str, &PageReport)> = reports
        .iter()
        .filter_map(|report| match &report.measurement {
            Some(Measurement::Page(page)) => Some((report.context.interface.as_str(), page)),
            _ => None,
        })
        .collect();
    if pages.is_empty() {
        return String::new();
    }
    let mut text = phases(&pages);
    text.push('\n');
    text.push_str(&milestones(&pages));
    for (interface, page) in &pages {
        text.push_str(&spread(interface, page));
        text.push_str(&explain::text(interface, page));
        text.push_str(&remarks(interface, page));
    }
    text
}

fn phases(pages: &[(&str, &PageReport)]) -> String {
    let head =
        ["NETWORK", "STATUS", "DNS", "CONNECT", "TLS", "FIRST BYTE", "RESPONSE", "OBJECTS", "SIZE"];
    let rows = pages.iter().map(|(interface, page)| {
        let median = page.medians();
        let status = page.typical().and_then(|run| run.status);
        vec![
            (*interface).to_owned(),
            status.map_or_else(|| "–".to_owned(), |status| status.to_string()),
            cell(median.dns),
            cell(median.connect),
            cell(median.tls),
            cell(median.first_byte),
            cell(median.response),
            median.objects.to_string(),
            bytes(median.bytes.as_bytes()),
        ]
    });
    table(&head, rows)
}

/// Name of a milestone, and its time.
type Milestone = (&'static str, fn(&PageTimings) -> Option<Span>);

const MILESTONES: [Milestone; 6] = [
    ("DOM INTERACTIVE", |one| one.dom_interactive),
    ("DOM LOADED", |one| one.dom_content_loaded),
    ("FCP", |one| one.first_contentful_paint),
    ("LCP", |one| one.largest_contentful_paint),
    ("PIT", |one| one.interactive),
    ("PLT", |one| one.load),
];

fn milestones(pages: &[(&str, &PageReport)]) -> String {
    let head: Vec<&str> =
        ["NETWORK"].into_iter().chain(MILESTONES.iter().map(|(name, _)| *name)).collect();
    let rows = pages.iter().map(|(interface, page)| {
        let median = page.medians();
        let times = MILESTONES.iter().map(|(_, time)| cell(time(&median)));
        std::iter::once((*interface).to_owned()).chain(times).collect::<Vec<String>>()
    });
    table(&head, rows)
}

/// Least and greatest times of several loads.
fn spread(interface: &str, page: &PageReport) -> String {
    if page.runs.len() < 2 {
        return String::new();
    }
    let rows = MILESTONES.iter().map(|(name, time)| {
        let times = || page.runs.iter().filter_map(|run| time(&run.timings));
        vec![
            (*name).to_owned(),
            times().count().to_string(),
            cell(times().min()),
            cell(time(&page.medians())),
            cell(times().max()),
        ]
    });
    let head = ["", "LOADS", "MIN", "MEDIAN", "MAX"];
    format!("\n{interface}, {} loads\n{}", page.runs.len(), table(&head, rows))
}

fn remarks(interface: &str, page: &PageReport) -> String {
    let Some(run) = page.typical() else { return String::new() };
    let mut text = String::new();
    if let Some(status) = run.status.filter(|status| *status >= 400) {
        text.push_str(&format!(
            "{interface}: the page is that of an error: the status is {status}.\n"
        ));
    }
    let failed = run.timings.failed;
    if failed > 0 {
        text.push_str(&format!(
            "{interface}: {failed} of {} objects failed.\n",
            run.timings.objects
        ));
    }
    if run.dialogs > 0 {
        text.push_str(&format!("{interface}: {} dialogs were dismissed.\n", run.dialogs));
    }
    if run.is_cut {
        text.push_str(&format!("{interface}: the page had more tasks than are kept.\n"));
    }
    text
}
