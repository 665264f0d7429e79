//! The tables of a cell.

use manyways_rig::page::{Page, failed, rounded, table};
use manyways_rig::results::ResultsOf;
use manyways_rig::sample::Quartiles;

use super::Probe;
use super::record::{Record, networks, quantities, values};

pub fn page(results: &ResultsOf<Probe>) -> String {
    let page = Page {
        title: "manyways probe beside the truth, and beside what else there is",
        intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
        parts: &[
            ("a", "Round trips"),
            ("b", "Throughput"),
            ("c", "Bursts"),
            ("d", "Round trips under load"),
            ("e", "Routes"),
            ("f", "Requests"),
            ("g", "Name servers"),
            ("h", "Comparisons of recorded pairs"),
        ],
        method: include_str!("method.md"),
        sockets: String::new(),
    };
    page.markdown(results, figures)
}

fn figures(out: &mut String, cell: &Record) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for contender in cell.distinct(|run| Some(&run.contender)) {
        for network in networks(cell, contender) {
            let figures: Vec<String> = quantities(cell, contender, &network)
                .into_iter()
                .filter(|name| !name.contains("bytes "))
                .map(|name| {
                    let all = values(cell, contender, &network, &name);
                    format!("{name}: {}", rounded(Quartiles::of(all.into_values())))
                })
                .collect();
            rows.push(vec![
                contender.to_owned(),
                network,
                figures.join("; "),
                failed(cell.failures(|run| run.contender == contender)),
            ]);
        }
    }
    out.push('\n');
    table(out, " | network | figures | failed", rows);
}
