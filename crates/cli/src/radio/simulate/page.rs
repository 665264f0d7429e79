//! The results as an HTML page.

use std::collections::BTreeMap;

use super::text::cells;
use super::{Results, Sum};
use manyways_report::bars::{Bar, Bars};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{count, digits, percent, seconds};
use manyways_report::svg::Drawing;
use manyways_report::{self as report, Column, Page};

/// Maximum number of traces with separate rows.
const TRACES: usize = 40;
/// Minimum number of traces for charts across traces.
const MANY: usize = 4;

pub fn html(results: &Results) -> String {
    let variants = &results.variants;
    let packets: u64 = results.traces.iter().map(|trace| trace.seen.packets).sum();
    let lead = format!(
        "Policies for the radio's idle state, over {} of {} packets.",
        match results.traces.len() {
            1 => "a trace".to_owned(),
            many => format!("{many} traces"),
        },
        count(packets)
    );
    let mut page = Page::new("Energy saved by radio policies", &lead);
    for profile in 0..variants.profiles.len() {
        page.heading(&variants.name(profile));
        page.notes(&[variants.profiles[profile].title.clone()]);
        page.figure(
            &bars(
                results,
                profile,
                "Energy saved",
                "share of the energy under the network's timers",
                |sum| (sum.saved().max(0.0), percent(sum.saved()), String::new()),
            ),
            "Energy saved over the network's timers (as figures 4-9 and 4-17 of Deng's thesis).",
        );
        page.figure(
            &bars(
                results,
                profile,
                "Signalling",
                "ratio to the switches under the network's timers",
                |sum| {
                    let about = format!("{} J saved each", digits(sum.saved_per_switch()));
                    (sum.switches(), format!("{:.2}", sum.switches()), about)
                },
            ),
            "Switches (as figures 4-10, 4-11 and 4-18), and the energy that each of them \
             saves.",
        );
        let share = |share: f64| match share.is_finite() {
            true => (share * 100.0, percent(share), String::new()),
            false => (0.0, "there was none".to_owned(), String::new()),
        };
        let wrong = |sum: &Sum| share(sum.false_switches());
        let axis = "% of the gaps in which the oracle stays connected";
        page.figure(
            &bars(results, profile, "False switches", axis, wrong),
            "Releases that the oracle does not make (as figure 4-12).",
        );
        let missed = |sum: &Sum| share(sum.missed_switches());
        let axis = "% of the gaps in which the oracle goes idle";
        page.figure(
            &bars(results, profile, "Missed switches", axis, missed),
            "Releases that only the oracle makes (as figure 4-12).",
        );
        if let Some(drawing) = delays(results, profile) {
            page.figure(&drawing, "Delays of sessions (as figure 4-15).");
        }
        all(&mut page, results, profile);
        if results.traces.len() >= MANY {
            across(&mut page, results, profile);
        }
        if (2..=TRACES).contains(&results.traces.len()) {
            traces(&mut page, results, profile);
        }
    }
    for (drawing, caption) in swept(results) {
        page.figure(&drawing, &caption);
    }
    decisions(&mut page, results);
    page.heading("How to read this");
    page.notes(&[
        "Sums over all traces are divided, not shares averaged. The network's timers alone are 100 %."
            .to_owned(),
        "The oracle knows the next gap and does not delay sessions: no policy without delays saves more."
            .to_owned(),
        "False: of the gaps in which the oracle stays connected, the share in which the radio was \
         released. Missed: of the gaps in which the oracle goes idle, the share in which it was not."
            .to_owned(),
    ]);
    page.html(&format!("manyways {} radio simulate", env!("CARGO_PKG_VERSION")))
}

/// The policy that decides when to go idle, and the one that delays sessions.
fn split(policy: &str) -> (String, String) {
    match policy.split_once('+') {
        Some((sleeps, holds)) => (sleeps.to_owned(), format!("+ {holds}")),
        None => (policy.to_owned(), String::new()),
    }
}

fn bars(
    results: &Results,
    profile: usize,
    title: &str,
    axis: &str,
    value: impl Fn(&Sum) -> (f64, String, String),
) -> Drawing {
    let variants = &results.variants;
    let bar = |run: usize| {
        let (value, words, about) = value(&results.sum(run));
        let name = split(&variants.policies[run]);
        Bar {
            label: name.0,
            about: name.1,
            value: value.is_finite().then_some(value),
            words: (words, about),
            parts: vec![1.0],
            strong: false,
        }
    };
    Bars {
        title: title.to_owned(),
        description: "A bar for each policy.".to_owned(),
        axis: axis.to_owned(),
        mark: None,
        legend: Vec::new(),
        bars: variants.runs(profile).into_iter().map(bar).collect(),
    }
    .draw()
}

fn delays(results: &Results, profile: usize) -> Option<Drawing> {
    let variants = &results.variants;
    let runs: Vec<usize> =
        variants.runs(profile).into_iter().filter(|run| variants.jobs[*run].plan.holds()).collect();
    if runs.is_empty() {
        return None;
    }
    let bar = |run: usize| {
        let name = split(&variants.policies[run]);
        let mean = results.sum(run).delay();
        let median = results.delay(run, 0.5);
        let words = median.map_or(String::new(), |median| format!("median {}", seconds(median)));
        Bar {
            label: name.0,
            about: name.1,
            value: mean.is_finite().then_some(mean),
            words: (seconds(mean), words),
            parts: vec![1.0],
            strong: false,
        }
    };
    let chart = Bars {
        title: "Delays".to_owned(),
        description: "Mean delay of the delayed sessions, by policy.".to_owned(),
        axis: "seconds".to_owned(),
        mark: None,
        legend: Vec::new(),
        bars: runs.into_iter().map(bar).collect(),
    };
    Some(chart.draw())
}

fn all(page: &mut Page, results: &Results, profile: usize) {
    let columns = [
        ("Policy", Column::Words),
        ("Saved", Column::Figures),
        ("Of the tail", Column::Figures),
        ("Of the oracle", Column::Figures),
        ("Switches", Column::Figures),
        ("By the oracle's", Column::Figures),
        ("J a switch", Column::Figures),
        ("False", Column::Figures),
        ("Missed", Column::Figures),
        ("Mean wait", Column::Figures),
    ];
    let line = |run: usize| {
        let mut line = vec![results.variants.policies[run].clone()];
        line.extend(cells(&results.sum(run)));
        report::Line {
            cells: line,
            strong: false,
            faint: results.variants.jobs[run].plan.is_oracle(),
        }
    };
    let lines: Vec<report::Line> = results.variants.runs(profile).into_iter().map(line).collect();
    page.table("All traces together", &columns, &lines);
}

/// Charts of savings and switches by trace.
fn across(page: &mut Page, results: &Results, profile: usize) {
    let variants = &results.variants;
    /// Title, axis, value of a sum, caption.
    type Chart = (&'static str, Axis, fn(&Sum) -> f64, &'static str);
    let charts: [Chart; 3] = [
        (
            "Energy saved by trace",
            Axis { to: None, ..Axis::parts("saved") },
            |sum| sum.saved().max(0.0),
            "Energy saved over the network's timers, trace by trace in the order of the table (as \
             figures 4-10a and 4-11a).",
        ),
        (
            "Switches by trace",
            Axis::linear("ratio of switches"),
            Sum::switches,
            "Switches, by those under the network's timers, trace by trace (as figures 4-10b and \
             4-11b).",
        ),
        (
            "Energy saved for each switch, by trace",
            Axis::linear("joules a switch"),
            |sum| sum.saved_per_switch().max(0.0),
            "Energy saved for each switch, trace by trace (as figures 4-10c and 4-11c).",
        ),
    ];
    for (title, up, value, caption) in charts {
        let line = |run: usize| {
            let values = results.traces.iter().map(|trace| value(&results.one(trace, run)));
            let mut points: Vec<(f64, f64)> = (0..).map(f64::from).zip(values).collect();
            // The last step is as wide as the others.
            points.extend(points.last().copied().map(|(at, value)| (at + 1.0, value)));
            points.retain(|(_, value)| value.is_finite());
            Line { name: variants.policies[run].clone(), points, is_filled: false }
        };
        let chart = Curves {
            title: title.to_owned(),
            description: "A line for each policy, a step for each trace.".to_owned(),
            across: Axis::linear("traces"),
            up,
            lines: variants.runs(profile).into_iter().map(line).collect(),
        };
        page.figure(&chart.draw(), caption);
    }
}

/// Table of savings and switches by trace.
fn traces(page: &mut Page, results: &Results, profile: usize) {
    let variants = &results.variants;
    let runs = variants.runs(profile);
    type Cell = fn(&Sum) -> String;
    let tables: [(&str, Cell); 2] = [
        ("Energy saved, by trace", |sum| percent(sum.saved())),
        ("Switches by those under the network's timers, by trace", |sum| {
            format!("{:.2}", sum.switches())
        }),
    ];
    for (caption, cell) in tables {
        let mut columns = vec![("Trace", Column::Words)];
        columns.extend(runs.iter().map(|run| (variants.policies[*run].as_str(), Column::Figures)));
        let lines: Vec<report::Line> = results
            .traces
            .iter()
            .map(|trace| {
                let each = runs.iter().map(|run| cell(&results.one(trace, *run)));
                let cells = std::iter::once(trace.trace.clone()).chain(each).collect();
                report::Line { cells, strong: false, faint: false }
            })
            .collect();
        page.table(caption, &columns, &lines);
    }
}

/// Charts for each swept parameter of a policy or radio: savings and errors (figure 4-13 of Deng's
/// thesis).
fn swept(results: &Results) -> Vec<(Drawing, String)> {
    let variants = &results.variants;
    let mut charts = Vec::new();
    for sweep in variants.sweeps.iter().filter(|sweep| sweep.values.len() > 1) {
        // Grouped by policy with a line for each radio; for parameters of radios, the other way
        // round.
        let mut groups: BTreeMap<String, BTreeMap<String, Vec<(f64, Sum)>>> = BTreeMap::new();
        for run in (0..variants.jobs.len()).filter(|run| !variants.hidden[*run]) {
            let (name, tried) = &variants.names[variants.jobs[run].profile];
            let policy = &variants.policies[run];
            let sum = results.sum(run);
            if let Some((value, rest)) = without(policy, &format!(":{}=", sweep.key), &[':', '+']) {
                let radio = variants.name(variants.jobs[run].profile);
                groups.entry(rest).or_default().entry(radio).or_default().push((value, sum));
            } else if let Some((value, rest)) = without(tried, &format!("{}=", sweep.key), &[' ']) {
                let radio = format!("{name} {rest}").trim().to_owned();
                groups
                    .entry(radio)
                    .or_default()
                    .entry(policy.clone())
                    .or_default()
                    .push((value, sum));
            }
        }
        for (group, lines) in groups {
            let points = |values: &[(f64, Sum)], value: fn(&Sum) -> f64| {
                let points = values.iter().map(|(at, sum)| (*at, value(sum)));
                let mut points: Vec<(f64, f64)> =
                    points.filter(|(_, value)| value.is_finite()).collect();
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
                points
            };
            let line = |name: String, points| Line { name, points, is_filled: false };
            let saved = lines
                .iter()
                .map(|(name, values)| line(name.clone(), points(values, Sum::saved)))
                .collect();
            let wrong = lines.iter().flat_map(|(name, values)| {
                [
                    line(format!("{name} false"), points(values, Sum::false_switches)),
                    line(format!("{name} missed"), points(values, Sum::missed_switches)),
                ]
            });
            let captions = [
                format!("{group}: energy saved, by {}.", sweep.key),
                format!("{group}: wrong decisions, by {} (as figure 4-13).", sweep.key),
            ];
            for (lines, caption) in [saved, wrong.collect::<Vec<Line>>()].into_iter().zip(captions)
            {
                let chart = Curves {
                    title: caption.clone(),
                    description: "Each value holds until the next one.".to_owned(),
                    across: Axis::linear(&sweep.key),
                    up: Axis { to: None, ..Axis::parts("share") },
                    lines,
                };
                charts.push((chart.draw(), caption));
            }
        }
    }
    charts
}

/// The number after a mark, up to one of the end characters, and the text without both.
fn without(text: &str, mark: &str, ends: &[char]) -> Option<(f64, String)> {
    let (before, rest) = text.split_once(mark)?;
    let end = rest.find(ends).unwrap_or(rest.len());
    let value = rest[..end].parse().ok()?;
    Some((value, format!("{before}{}", &rest[end..]).trim().to_owned()))
}

/// Waits and delays over time, of the first trace.
fn decisions(page: &mut Page, results: &Results) {
    let variants = &results.variants;
    let Some(trace) = results.traces.first() else { return };
    let released = |profile: usize| {
        manyways_model::radio::Choice::of(&variants.profiles[profile]).stay.released()
    };
    let mut wait: Option<(usize, Drawing)> = None;
    let mut hold: Option<(usize, Drawing)> = None;
    for run in 0..variants.jobs.len() {
        let job = &variants.jobs[run];
        let ran = &trace.ran[run];
        let curve = |title: &str, up: &str, points: Vec<(f64, f64)>| {
            Curves {
                title: title.to_owned(),
                description: "Changes over the trace.".to_owned(),
                across: Axis::linear("hours since the first packet"),
                up: Axis::linear(up),
                lines: vec![Line { name: String::new(), points, is_filled: false }],
            }
            .draw()
        };
        let hours = |points: &[(f64, f64)], most: f64| -> Vec<(f64, f64)> {
            points.iter().map(|(at, value)| (at / 3_600.0, value.min(most))).collect()
        };
        let changes = |points: &[(f64, f64)]| points.windows(2).any(|pair| pair[0].1 != pair[1].1);
        if wait.is_none() && changes(&ran.waits) {
            let points = hours(&ran.waits, released(job.profile));
            wait = Some((run, curve("Waits", "wait in seconds", points)));
        }
        if hold.is_none() && changes(&ran.holds) {
            let points = hours(&ran.holds, f64::INFINITY);
            hold = Some((run, curve("Holds", "delay in seconds", points)));
        }
    }
    let name = |run: usize| {
        let profile = variants.name(variants.jobs[run].profile);
        format!("{} on {profile}, {}", variants.policies[run], trace.trace)
    };
    if let Some((run, drawing)) = wait {
        page.heading("Waits over time");
        let caption = format!(
            "{}: the wait after each packet (as figure 4-14); the network's timers \
             are the highest value.",
            name(run)
        );
        page.figure(&drawing, &caption);
    }
    if let Some((run, drawing)) = hold {
        page.heading("Learned delays");
        page.figure(&drawing, &format!("{} (as figure 4-16).", name(run)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_separated_from_the_text() {
        let of = |text: &str, mark: &str| without(text, mark, &[':', '+', ' ']);
        let both = "makeidle:n=50+makeactive:experts=20";
        let rest = "makeidle+makeactive:experts=20".to_owned();
        assert_eq!(of(both, ":n="), Some((50.0, rest)));
        assert_eq!(
            of("e-switch=0.5 turn-off=0.1", "e-switch="),
            Some((0.5, "turn-off=0.1".to_owned()))
        );
        assert_eq!(of("makeidle", ":n="), None);
    }
}
