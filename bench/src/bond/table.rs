//! The tables of a cell.

use manyways_rig::page::{Page, rounded, table};
use manyways_rig::results::ResultsOf;
use manyways_rig::sample::{Quartiles, quantile, ratio};

use super::Bond;
use super::record::{self, Record, is, samples, tasks, values};

pub fn page(results: &ResultsOf<Bond>) -> String {
    let sockets = results.cells.iter().flat_map(|cell| &cell.more.sockets);
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
    page.markdown(results, figures)
}

fn figures(out: &mut String, cell: &Record) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for task in tasks(cell) {
        let runs = || cell.runs.iter().filter(|run| run.figures.task == task);
        let unit = runs().next().map_or("", |run| &run.figures.unit);
        let mut heading = vec![String::new(); 6];
        heading[0] = format!("**{task}**, {unit}");
        rows.push(heading);
        let contenders = cell.each(|run| (run.figures.task == task).then_some(&*run.contender));
        let first = contenders.first().map(|name| values(cell, name, task)).unwrap_or_default();
        for (index, name) in contenders.iter().enumerate() {
            let values = values(cell, name, task);
            let over = ratio(&first, &values).filter(|_| index > 0);
            let figure = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.3}"));
            let failed = match cell.failures(is(name, task)) {
                (0, _) => String::new(),
                (failed, all) => format!("{failed} of {all}"),
            };
            rows.push(vec![
                (*name).to_owned(),
                rounded(Quartiles::of(values.into_values())),
                figure(over.map(|ratio| ratio.medians)),
                figure(over.map(|ratio| ratio.pairs)),
                besides(cell, name, task),
                failed,
            ]);
        }
    }
    out.push('\n');
    table(out, " | figure | first over this | pair by pair |  | failed", rows);
}

/// Further figures of a contender, as one cell of the table.
fn besides(cell: &Record, name: &str, task: &str) -> String {
    let mut words = Vec::new();
    let samples = samples(cell, name, task);
    for (share, called) in [(0.5, "median"), (0.99, "p99")] {
        let value = quantile(&samples, share);
        words.extend(value.map(|value| format!("{called} of all {value:.1}")));
    }
    let more =
        |what: &str| Quartiles::of(record::more(cell, name, task, what)).map(|all| all.median);
    words.extend(more("up").map(|up| format!("the other way {:.1}", up * 1000.0)));
    for (what, called) in [("reordered", "out of order"), ("lost", "lost")] {
        let all = record::more(cell, name, task, what);
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
    for (what, called) in [("reinjected", "sent again"), ("repeated", "came twice")] {
        words.extend(more(what).map(|value| format!("{called} {:.0} KB", value / 1000.0)));
    }
    for what in ["call, ms", "messenger p95, ms", "app store, Mbit/s", "Mbit/s"] {
        words.extend(more(what).map(|value| format!("{what}: {value:.1}")));
    }
    words.join("; ")
}
