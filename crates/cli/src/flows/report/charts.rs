//! Charts of a report.

use manyways_capture::Outcome;
use manyways_flows::analysis::{Class, Distribution, Overview, Quantity, WINDOWS};
use manyways_flows::flow::{Limit, LimitedBy};
use manyways_unit::{Rate, Span};

use super::super::summary;
use manyways_report::bars::{Bar, Bars};
use manyways_report::columns::Columns;
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bits_per_second, cut, seconds, share, span};
use manyways_report::svg::Drawing;

/// Maximum number of servers with a bar.
const SERVERS: usize = 5;
/// Maximum length of a name beside a bar, in characters.
const NAME: usize = 22;
/// Limits with their colours: those of the network first, those that are not a fault last.
pub const LIMITS: [Limit; 6] = [
    Limit::Congestion,
    Limit::Loss,
    Limit::ReceiverWindow,
    Limit::Think,
    Limit::StartUp,
    Limit::Application,
];

/// Chart of the volume over time. `None` without traffic, or with traffic at a single point in
/// time.
pub fn timeline(outcome: &Outcome) -> Option<Drawing> {
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
            span(summary::lasted(outcome))
        ),
        across: Axis::linear(&format!("{unit} since the first packet")),
        up: Axis { words: bits_per_second, ..Axis::linear("") },
        lines: lines.into_iter().filter(|line| line.points.iter().any(|p| p.1 > 0.0)).collect(),
    };
    Some(chart.draw())
}

/// Chart of the limits of servers: all servers, by kind of client device, and those with the most
/// bytes.
pub fn limits(outcome: &Outcome, overview: &Overview) -> Option<Drawing> {
    let all = &outcome.summary.limited_by;
    if all.all().is_zero() {
        return None;
    }
    let mut bars = vec![bar("All flows", "", all, true)];
    if overview.limited_by.len() > 1 {
        bars.extend(overview.limited_by.iter().map(|(class, limited_by)| {
            let name = match class {
                Class::Handheld => "Handheld clients",
                Class::Other => "Other clients",
                Class::Unknown => "Unknown clients",
            };
            bar(name, "", limited_by, false)
        }));
    }
    let (servers, others) = overview.servers(SERVERS);
    if servers.len() > 1 || others.carried.flows > 0 {
        bars.extend(
            servers
                .iter()
                .map(|(name, server)| bar(&cut(name, NAME), "server", &server.limited_by, false)),
        );
    }
    let chart = Bars {
        title: "What limits servers".to_owned(),
        description: words(all),
        axis: "share of the time, %".to_owned(),
        mark: None,
        legend: LIMITS.map(summary::words).to_vec(),
        bars,
    };
    Some(chart.draw())
}

fn bar(label: &str, about: &str, limited_by: &LimitedBy, strong: bool) -> Bar {
    let is_empty = limited_by.all().is_zero();
    let behind = match is_empty {
        true => "nothing is known".to_owned(),
        false => span(limited_by.all()),
    };
    Bar {
        label: label.to_owned(),
        about: about.to_owned(),
        value: (!is_empty).then_some(100.0),
        words: (behind, String::new()),
        parts: LIMITS.map(|limit| limited_by.share(limit)).to_vec(),
        strong,
    }
}

fn words(limited_by: &LimitedBy) -> String {
    let part = |limit| {
        let share = share(limited_by.span(limit), limited_by.all());
        format!("{} {share}", summary::words(limit))
    };
    LIMITS.map(part).join(", ")
}

/// Chart of the distribution of times. `None` without samples.
pub fn spans(title: &str, all: &[(&str, &Distribution<Span>)], of: &str) -> Option<Drawing> {
    let axis = Axis::logarithmic("", seconds);
    curves(title, axis, all, Span::as_secs_f64, span, of)
}

/// Chart of the distribution of rates.
pub fn rates(found: &Distribution<Rate>) -> Option<Drawing> {
    let axis = Axis::logarithmic("", bits_per_second);
    let number = |rate: Rate| rate.as_bps() as f64;
    let words = manyways_report::number::rate;
    curves("Servicing rates", axis, &[("servicing rate", found)], number, words, "of flows")
}

fn curves<Q: Quantity>(
    title: &str,
    across: Axis,
    all: &[(&str, &Distribution<Q>)],
    number: impl Fn(Q) -> f64,
    words: impl Fn(Q) -> String,
    of: &str,
) -> Option<Drawing> {
    let mut medians = Vec::new();
    let mut lines = Vec::new();
    for (name, found) in all {
        let Some((least, median)) = found.least().zip(found.median()) else { continue };
        // A single value is not a line; the table contains it.
        if found.count() < 2 {
            continue;
        }
        medians.push(format!("{name}: median {}", words(median)));
        let points = found.steps().into_iter().map(|(value, part)| (number(value), part));
        lines.push(Line {
            name: format!("{name}, median {}", words(median)),
            points: std::iter::once((number(least), 0.0)).chain(points).collect(),
            is_filled: false,
        });
    }
    if lines.is_empty() {
        return None;
    }
    let up = Axis::parts(of);
    let chart =
        Curves { title: title.to_owned(), description: medians.join("; "), across, up, lines };
    Some(chart.draw())
}

/// Chart of flows by initial window.
pub fn windows(overview: &Overview) -> Option<Drawing> {
    let found = &overview.first_windows;
    let most = *found.last_key_value()?.0;
    let columns = (1..=most.max(10)).map(|segments| {
        let name = match segments > WINDOWS {
            true => "more".to_owned(),
            false => segments.to_string(),
        };
        (name, found.get(&segments).copied().unwrap_or(0))
    });
    let described = found.iter().map(|(segments, flows)| format!("{segments}: {flows}"));
    let chart = Columns {
        title: "First congestion windows".to_owned(),
        description: described.collect::<Vec<_>>().join(", "),
        across: "segments".to_owned(),
        up: "flows".to_owned(),
        columns: columns.collect(),
    };
    Some(chart.draw())
}
