//! The tables of a cell.

use std::collections::BTreeMap;

use manyways_rig::page::{Page, failed, heading, ratios, rounded, table};
use manyways_rig::results::ResultsOf;
use manyways_rig::sample::{Quartiles, quantile, ratio};

use super::Bond;
use super::record::{self, Record, samples, selects, tasks, values};

pub fn page(results: &ResultsOf<Bond>) -> String {
    let sockets = results.cells.iter().flat_map(|cell| &cell.extra.sockets);
    let (plain, subflows) = sockets.fold((0, 0), |(plain, subflows), seen| {
        (plain + seen.plain.len(), subflows + seen.subflows.len())
    });
    let page = Page {
        title: "manyways bond beside what else there is",
        intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
        parts: &[
            ("a", "Single files"),
            ("b", "Many short flows"),
            ("c", "Requests during a bulk transfer"),
            ("d", "The gateway's place"),
            ("e", "Bulk, and the sum of the links"),
            ("f", "Unequal paths"),
            ("g", "A path goes"),
            ("h", "Loss on both paths"),
            ("i", "A call"),
            ("j", "Loopback"),
            ("k", "Schedulers"),
            ("l", "Web pages"),
            ("m", "The four-application policy"),
            ("n", "Recorded pairs"),
        ],
        method: include_str!("method.md"),
        sockets: format!(
            "Every socket of both sides that was looked at in the middle of a transfer of each \
             contender in each cell had {}: {plain} plain ones, {subflows} subflows of kernel \
             MPTCP. ",
            results.machine.congestion_control
        ),
    };
    page.markdown(results, |out, cell| figures(out, cell, values))
}

/// Writes the table of a cell; `values` are the figures of a contender for a task, by round.
pub fn figures(
    out: &mut String,
    cell: &Record,
    values: impl Fn(&Record, &str, &str) -> BTreeMap<u32, f64>,
) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for task in tasks(cell) {
        let runs = || cell.runs.iter().filter(|run| run.figures.task == task);
        let unit = runs().next().map_or("", |run| &run.figures.unit);
        rows.push(heading(format!("**{task}**, {unit}"), 6));
        let contenders = cell.distinct(|run| (run.figures.task == task).then_some(&*run.contender));
        let first = contenders.first().map(|name| values(cell, name, task)).unwrap_or_default();
        for (index, name) in contenders.iter().enumerate() {
            let values = values(cell, name, task);
            // Two infinite figures have no ratio.
            let over = ratio(&first, &values).filter(|over| !over.medians.is_nan());
            let [medians, pairs] = ratios(over.filter(|over| index > 0 && !over.pairs.is_nan()));
            rows.push(vec![
                (*name).to_owned(),
                rounded(Quartiles::of(values.into_values())),
                medians,
                pairs,
                extra_cell(cell, name, task),
                failed(cell.failures(selects(name, task))),
            ]);
        }
    }
    out.push('\n');
    table(out, " | figure | first over this | pair by pair |  | failed", rows);
}

/// Further figures of a contender, as one cell of the table.
fn extra_cell(cell: &Record, name: &str, task: &str) -> String {
    let mut words = Vec::new();
    let samples = samples(cell, name, task);
    for (share, called) in [(0.5, "median"), (0.99, "p99")] {
        let value = quantile(&samples, share);
        words.extend(value.map(|value| format!("{called} of all {value:.1}")));
    }
    let more = |what: &str| {
        Quartiles::of(record::extra_values(cell, name, task, what)).map(|all| all.median)
    };
    words.extend(more("up").map(|up| format!("the other way {:.1}", up * 1000.0)));
    for (what, called) in [("reordered", "out of order"), ("lost", "lost")] {
        let all = record::extra_values(cell, name, task, what);
        if !all.is_empty() {
            words.push(format!("{called} {:.0}", all.iter().sum::<f64>()));
        }
    }
    for what in ["client, MiB", "gateway, MiB"] {
        words.extend(more(what).map(|value| format!("{what}: {value:.1}")));
    }
    words.extend(more("megabytes").map(|value| format!("{value:.2} MB")));
    words.extend(more("packets").map(|value| format!("{value:.0} packets")));
    words.extend(more("share").map(|value| format!("{:.1} % of all bytes", value * 100.0)));
    for (what, called) in [("reinjected", "sent again"), ("duplicate", "duplicate")] {
        words.extend(more(what).map(|value| format!("{called} {:.0} KB", value / 1000.0)));
    }
    for what in ["median", "call, ms", "messenger p95, ms", "app store, Mbit/s", "Mbit/s"] {
        words.extend(more(what).map(|value| format!("{what}: {value:.1}")));
    }
    for what in ["strangers/s", "noticed, %", "attempts/s", "held"] {
        words.extend(more(what).map(|value| format!("{what}: {value:.0}")));
    }
    words.join("; ")
}
