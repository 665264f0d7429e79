//! The results as an HTML page.

use manyways_model::radio::compare::Sum;
use manyways_net::radio::runs::Results;

use super::charts::{bars, delays, swept};
use super::text::cells;
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{count, digits, percent};
use manyways_report::svg::Drawing;
use manyways_report::{self as report, Column, Page};

/// Maximum number of traces with separate rows.
const MAX_TRACES: usize = 40;
/// Minimum number of traces for charts across traces.
const MIN_CHARTED_TRACES: usize = 4;

pub fn html(results: &Results) -> String {
    let variants = &results.variants;
    let packets: u64 = results.traces.iter().map(|trace| trace.trace_stats.packets).sum();
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
        policy_table(&mut page, results, profile);
        if results.traces.len() >= MIN_CHARTED_TRACES {
            trace_charts(&mut page, results, profile);
        }
        if (2..=MAX_TRACES).contains(&results.traces.len()) {
            traces(&mut page, results, profile);
        }
    }
    for (drawing, caption) in swept(results) {
        page.figure(&drawing, &caption);
    }
    decisions(&mut page, results);
    page.heading("How to read this");
    page.notes(&[
        "Ratios are computed from sums over all traces; they are not averages of ratios. The network's timers alone are 100 %."
            .to_owned(),
        "The oracle knows the next gap and does not delay sessions: no policy without delays saves more."
            .to_owned(),
        "False: of the gaps in which the oracle stays connected, the share in which the radio was \
         released. Missed: of the gaps in which the oracle goes idle, the share in which it was not."
            .to_owned(),
    ]);
    page.html(&format!("manyways {} radio simulate", env!("CARGO_PKG_VERSION")))
}

fn policy_table(page: &mut Page, results: &Results, profile: usize) {
    let columns = Column::of(
        [
            "Policy",
            "Saved",
            "Of the tail",
            "Of the oracle",
            "Switches",
            "By the oracle's",
            "J a switch",
            "False",
            "Missed",
            "Mean wait",
        ],
        &[0],
    );
    let line = |run: usize| {
        let mut line = vec![results.variants.policies[run].clone()];
        line.extend(cells(&results.sum(run)));
        report::TableRow {
            cells: line,
            strong: false,
            faint: results.variants.jobs[run].plan.is_oracle(),
        }
    };
    let lines: Vec<report::TableRow> =
        results.variants.runs(profile).into_iter().map(line).collect();
    page.table("All traces together", &columns, &lines);
}

/// Charts of savings and switches by trace.
fn trace_charts(page: &mut Page, results: &Results, profile: usize) {
    let variants = &results.variants;
    /// Title, axis, value of a sum, caption.
    type Chart = (&'static str, Axis, fn(&Sum) -> f64, &'static str);
    let charts: [Chart; 3] = [
        (
            "Energy saved by trace",
            Axis { min_end: None, ..Axis::percent("saved") },
            |sum| sum.saved().max(0.0),
            "Energy saved over the network's timers, trace by trace in the order of the table (as \
             figures 4-10a and 4-11a).",
        ),
        (
            "Switches by trace",
            Axis::linear("ratio of switches"),
            Sum::switches,
            "Switches, divided by those under the network's timers, trace by trace (as figures 4-10b and \
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
            let values = results.traces.iter().map(|trace| value(&results.trace_sum(trace, run)));
            let mut points: Vec<(f64, f64)> = (0..).map(f64::from).zip(values).collect();
            // The last step is as wide as the others.
            points.extend(points.last().copied().map(|(at, value)| (at + 1.0, value)));
            points.retain(|(_, value)| value.is_finite());
            Line { name: variants.policies[run].clone(), points, is_filled: false }
        };
        let chart = Curves {
            title: title.to_owned(),
            description: "A line for each policy, a step for each trace.".to_owned(),
            x_axis: Axis::linear("traces"),
            y_axis: up,
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
        let mut columns = vec![("Trace", Column::Text)];
        columns.extend(runs.iter().map(|run| (variants.policies[*run].as_str(), Column::Numbers)));
        let lines: Vec<report::TableRow> = results
            .traces
            .iter()
            .map(|trace| {
                let each = runs.iter().map(|run| cell(&results.trace_sum(trace, *run)));
                let cells = std::iter::once(trace.trace.clone()).chain(each).collect();
                report::TableRow::plain(cells)
            })
            .collect();
        page.table(caption, &columns, &lines);
    }
}

/// Waits and delays over time, of the first trace.
fn decisions(page: &mut Page, results: &Results) {
    let variants = &results.variants;
    let Some(trace) = results.traces.first() else { return };
    let released = |profile: usize| {
        let tradeoff = manyways_model::radio::SleepTradeoff::of(&variants.profiles[profile]);
        tradeoff.stay.idle_after().as_secs_f64()
    };
    let mut wait: Option<(usize, Drawing)> = None;
    let mut hold: Option<(usize, Drawing)> = None;
    for run in 0..variants.jobs.len() {
        let job = &variants.jobs[run];
        let ran = &trace.runs[run];
        let curve = |title: &str, up: &str, points: Vec<(f64, f64)>| {
            Curves {
                title: title.to_owned(),
                description: "Changes over the trace.".to_owned(),
                x_axis: Axis::linear("hours since the first packet"),
                y_axis: Axis::linear(up),
                lines: vec![Line { name: String::new(), points, is_filled: false }],
            }
            .draw()
        };
        let hours = |points: &[(f64, f64)], max: f64| -> Vec<(f64, f64)> {
            points.iter().map(|(at, value)| (at / 3_600.0, value.min(max))).collect()
        };
        let changes = |points: &[(f64, f64)]| points.windows(2).any(|pair| pair[0].1 != pair[1].1);
        if wait.is_none() && changes(&ran.waits) {
            let points = hours(&ran.waits, released(job.profile));
            wait = Some((run, curve("Waits", "wait in seconds", points)));
        }
        if hold.is_none() && changes(&ran.delays) {
            let points = hours(&ran.delays, f64::INFINITY);
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
