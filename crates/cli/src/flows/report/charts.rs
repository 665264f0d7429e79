//! Charts of a report.

use manyways_capture::RunReport;
use manyways_flows::analysis::{DeviceKind, Histogram, MAX_INITIAL_WINDOW, Overview, Quantity};
use manyways_flows::flow::{LimitedBy, SenderLimit};
use manyways_unit::{Rate, Span};

use super::super::summary;
use manyways_report::bars::{Bar, Bars};
use manyways_report::columns::Columns;
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bits_per_second, percent, seconds, shorten, span};
use manyways_report::svg::Drawing;

/// Maximum number of servers with a bar.
const MAX_SERVERS: usize = 5;
/// Maximum length of a name beside a bar, in characters.
const MAX_NAME_LENGTH: usize = 22;
/// Limits with their colours: those of the network first, those that are not a fault last.
pub const LIMITS: [SenderLimit; 6] = [
    SenderLimit::Congestion,
    SenderLimit::Loss,
    SenderLimit::ReceiverWindow,
    SenderLimit::Think,
    SenderLimit::SlowStart,
    SenderLimit::Application,
];

/// Chart of the volume over time. `None` without traffic, or with traffic at a single point in
/// time.
pub fn timeline(outcome: &RunReport) -> Option<Drawing> {
    let timeline = &outcome.counters.timeline;
    let begin = timeline.bins().next()?.0;
    let width = timeline.width();
    let (unit, seconds) = match timeline.bins().last()?.0.since(begin).as_secs_f64() {
        length if length > 7_200.0 => ("hours", 3_600.0),
        length if length > 120.0 => ("minutes", 60.0),
        _ => ("seconds", 1.0),
    };
    let rest = |flows: [u64; 2], all: u64| all.saturating_sub(flows.iter().sum());
    let mut lines = ["down", "up", "rest"].map(|name| Line {
        name: name.to_owned(),
        points: Vec::new(),
        is_filled: true,
    });
    let place = |at: Span| at.as_secs_f64() / seconds;
    let mut end = Span::ZERO;
    for (at, volume) in timeline.bins() {
        let since = at.since(begin);
        let values = [volume.flows[1], volume.flows[0], rest(volume.flows, volume.all)];
        for (line, bytes) in lines.iter_mut().zip(values) {
            // Omitted bins have no traffic.
            if since > end {
                line.points.push((place(end), 0.0));
            }
            let rate = bytes as f64 * 8.0 / width.as_secs_f64();
            line.points.push((place(since), rate));
        }
        end = since + width;
    }
    for line in &mut lines {
        line.points.push((place(end), 0.0));
    }
    let chart = Curves {
        title: "Traffic over time".to_owned(),
        description: format!(
            "{} in {}",
            summary::size(outcome.counters.bytes),
            span(outcome.lasted())
        ),
        x_axis: Axis::linear(&format!("{unit} since the first packet")),
        y_axis: Axis { format: bits_per_second, ..Axis::linear("") },
        lines: lines.into_iter().filter(|line| line.points.iter().any(|p| p.1 > 0.0)).collect(),
    };
    Some(chart.draw())
}

/// Chart of the limits of servers: all servers, by kind of client device, and those with the most
/// bytes.
pub fn limits(outcome: &RunReport, overview: &Overview) -> Option<Drawing> {
    let all = &outcome.summary.limited_by;
    if all.total().is_zero() {
        return None;
    }
    let mut bars = vec![bar("All flows", "", all, true)];
    if overview.limited_by.len() > 1 {
        bars.extend(overview.limited_by.iter().map(|(class, limited_by)| {
            let name = match class {
                DeviceKind::Handheld => "Handheld clients",
                DeviceKind::Other => "Other clients",
                DeviceKind::Unknown => "Unknown clients",
            };
            bar(name, "", limited_by, false)
        }));
    }
    let (servers, others) = overview.servers(MAX_SERVERS);
    if servers.len() > 1 || others.traffic.flows > 0 {
        bars.extend(servers.iter().map(|(name, server)| {
            bar(&shorten(name, MAX_NAME_LENGTH), "server", &server.limited_by, false)
        }));
    }
    let chart = Bars {
        title: "What limits servers".to_owned(),
        description: limit_text(all),
        axis: "share of the time, %".to_owned(),
        mark: None,
        legend: LIMITS.map(summary::limit_name).to_vec(),
        bars,
    };
    Some(chart.draw())
}

fn bar(label: &str, about: &str, limited_by: &LimitedBy, strong: bool) -> Bar {
    let is_empty = limited_by.total().is_zero();
    let behind = match is_empty {
        true => "nothing is known".to_owned(),
        false => span(limited_by.total()),
    };
    Bar {
        label: label.to_owned(),
        about: about.to_owned(),
        value: (!is_empty).then_some(100.0),
        annotations: (behind, String::new()),
        parts: LIMITS.map(|limit| limited_by.share(limit)).to_vec(),
        strong,
    }
}

fn limit_text(limited_by: &LimitedBy) -> String {
    let part =
        |limit| format!("{} {}", summary::limit_name(limit), percent(limited_by.share(limit)));
    LIMITS.map(part).join(", ")
}

/// Chart of the distribution of times. `None` without samples.
pub fn spans(title: &str, all: &[(&str, &Histogram<Span>)], of: &str) -> Option<Drawing> {
    let axis = Axis::logarithmic("", seconds);
    curves(title, axis, all, Span::as_secs_f64, span, of)
}

/// Chart of the distribution of rates.
pub fn rates(found: &Histogram<Rate>) -> Option<Drawing> {
    let axis = Axis::logarithmic("", bits_per_second);
    let number = |rate: Rate| rate.as_bps() as f64;
    let words = manyways_report::number::rate;
    curves("Servicing rates", axis, &[("servicing rate", found)], number, words, "of flows")
}

fn curves<Q: Quantity>(
    title: &str,
    across: Axis,
    all: &[(&str, &Histogram<Q>)],
    number: impl Fn(Q) -> f64,
    words: impl Fn(Q) -> String,
    of: &str,
) -> Option<Drawing> {
    let mut medians = Vec::new();
    let mut lines = Vec::new();
    for (name, found) in all {
        let Some((least, median)) = found.min().zip(found.median()) else { continue };
        // A single value is not a line; the table contains it.
        if found.count() < 2 {
            continue;
        }
        let median = summary::quantile(words(median), found.count());
        medians.push(format!("{name}: median {median}"));
        let points = found.cdf().into_iter().map(|(value, part)| (number(value), part));
        lines.push(Line {
            name: format!("{name}, median {median}"),
            points: std::iter::once((number(least), 0.0)).chain(points).collect(),
            is_filled: false,
        });
    }
    if lines.is_empty() {
        return None;
    }
    let up = Axis::percent(of);
    let chart = Curves {
        title: title.to_owned(),
        description: medians.join("; "),
        x_axis: across,
        y_axis: up,
        lines,
    };
    Some(chart.draw())
}

/// Chart of flows by initial window.
pub fn windows(overview: &Overview) -> Option<Drawing> {
    let found = &overview.initial_windows;
    let max = *found.last_key_value()?.0;
    let columns = (1..=max.max(10)).map(|segments| {
        let name = match segments > MAX_INITIAL_WINDOW {
            true => "more".to_owned(),
            false => segments.to_string(),
        };
        (name, found.get(&segments).copied().unwrap_or(0))
    });
    let described = found.iter().map(|(segments, flows)| format!("{segments}: {flows}"));
    let chart = Columns {
        title: "First congestion windows".to_owned(),
        description: described.collect::<Vec<_>>().join(", "),
        x_label: "segments".to_owned(),
        y_label: "flows".to_owned(),
        columns: columns.collect(),
    };
    Some(chart.draw())
}
