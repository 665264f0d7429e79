//! The tables of a cell.

use std::collections::BTreeMap;

use manyways_rig::page::{Page, failed, figure, heading, ratios, spread, table};
use manyways_rig::results::ResultsOf;
use manyways_rig::sample::{Quartiles, ratio};
use manyways_unit::Size;

use super::Get;
use super::record::{self, Record, by_round, contenders, times};

const PAGE: Page<'static> = Page {
    title: "manyways get beside what else there is",
    intro: "",
    parts: &[
        ("a", "Constant rates"),
        ("b", "Recorded pairs of Wi-Fi and cellular"),
        ("c", "Unequal paths"),
        ("d", "Bytes past an adjusted end"),
        ("e", "Pipelining"),
        ("f", "Multi-homing"),
        ("g", "An abrupt drop"),
        ("h", "Three paths"),
        ("i", "A path dies silently"),
        ("j", "Cold starts on recorded pairs"),
        ("k", "Other web servers"),
        ("l", "Estimates of the same conditions and of others"),
    ],
    method: include_str!("method.md"),
    sockets: String::new(),
};

pub fn page(results: &ResultsOf<Get>) -> String {
    let intro = format!(
        "Written by `make bench` ({}). Times are in seconds: median (quartiles).",
        match results.mode.as_str() {
            "full" => "everything: `BENCH=full`",
            "quick" => "a quick look, too short to conclude from",
            _ => "the part that fits into an hour; `BENCH=full` measures everything",
        }
    );
    let count = |of: fn(&Record) -> usize| results.cells.iter().map(of).sum::<usize>();
    let sockets = format!(
        "Every socket of both sides that was looked at in the middle of a transfer of each cell had \
         {}: {} of `manyways get`, {} subflows of kernel MPTCP. ",
        results.machine.congestion_control,
        count(|cell| cell.extra.sockets.get.len()),
        count(|cell| cell.extra.sockets.mptcp.len())
    );
    let page = Page { intro: &intro, sockets, ..PAGE };
    page.markdown(results, |out, cell| match cell.part.as_str() {
        "d" => cut_table(out, cell),
        _ => downloads(out, cell),
    })
}

fn downloads(out: &mut String, cell: &Record) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for bytes in record::sizes(cell) {
        let ours = times(cell, "mp-h2", bytes);
        let ideal = by_round(&cell.extra.ideal, bytes);
        let row = |name: &str, times: &BTreeMap<u32, f64>, failures: (usize, usize)| {
            let over_ideal = ratio(times, &ideal).filter(|_| name != "T\\*");
            let [medians, pairs] = ratios(ratio(&ours, times).filter(|_| name != "mp-h2"));
            vec![
                name.to_owned(),
                spread(Quartiles::of(times.values().copied()), 3),
                figure(over_ideal.map(|ratio| ratio.medians)),
                medians,
                pairs,
                failed(failures),
            ]
        };
        rows.push(heading(format!("**{}**", Size::from_bytes(bytes)), 6));
        rows.push(row("fluid bound", &by_round(&cell.extra.fluid, bytes), (0, 0)));
        if !ideal.is_empty() {
            rows.push(row("T\\*", &ideal, (0, 0)));
        }
        let mut names = contenders(cell, bytes);
        names.sort_unstable_by_key(|name| rank(name));
        for name in names {
            let failures = cell.failures(|run| run.contender == name && run.figures.bytes == bytes);
            let times = times(cell, name, bytes);
            if !times.is_empty() || failures.0 > 0 {
                rows.push(row(name, &times, failures));
            }
        }
    }
    let head = " | seconds | over T\\* | mp-h2 over this | pair by pair | failed";
    out.push('\n');
    table(out, head, rows);
}

/// Sorts manyways first, then the others over all paths, then single paths.
fn rank(name: &str) -> (u8, &str) {
    let group = if name.starts_with("mp-h2") {
        0
    } else if name.ends_with("alone") || name.contains("alone,") {
        2
    } else {
        1
    };
    (group, name)
}

/// The cell of the adjusted ends has other figures.
fn cut_table(out: &mut String, cell: &Record) {
    let mut wanted: Vec<u64> = cell.runs.iter().filter_map(|run| run.figures.stop).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (index, link) in cell.links.iter().enumerate() {
        for bytes in &wanted {
            for how in ["alone", "window", "reset"] {
                let name = format!("{link} {how}");
                let runs = || cell.runs.iter().filter(|run| run.contender == name);
                let here = || {
                    let figures = runs().map(|run| &run.figures);
                    figures.filter(|run| run.stop.unwrap_or(run.bytes) == *bytes)
                };
                let Some(seconds) = Quartiles::of(here().filter_map(|run| run.seconds)) else {
                    continue;
                };
                let kilo = |bytes: u64| bytes as f64 / 1000.0;
                let delivered = here().filter_map(|run| run.link_bytes.get(index));
                let tails =
                    here().map(|run| run.paths.iter().map(|path| path.overshoot_bytes).sum());
                let how = if how == "alone" { "all of an object" } else { how };
                rows.push(vec![
                    link.clone(),
                    Size::from_bytes(*bytes).to_string(),
                    how.to_owned(),
                    spread(Some(seconds), 3),
                    spread(Quartiles::of(delivered.map(|bytes| kilo(*bytes))), 1),
                    spread(Quartiles::of(tails.map(kilo)), 1),
                ]);
            }
        }
    }
    let head = "link | wanted | how | seconds | link delivered, KB | client saw past it, KB";
    out.push('\n');
    table(out, head, rows);
}

#[cfg(test)]
mod tests {
    use manyways_rig::cell::Run;
    use manyways_rig::machine::Machine;
    use manyways_rig::results::Family;

    use super::*;
    use crate::get::record::{Extra, Figures, LowerBound};

    fn results(cells: Vec<Record>) -> ResultsOf<Get> {
        ResultsOf::<Get> {
            schema: Get::SCHEMA.to_owned(),
            machine: Machine {
                cores: 2,
                kernel: "6.1".into(),
                congestion_control: "cubic".into(),
                programs: vec!["nginx 1.2".into()],
                build: String::new(),
            },
            seed: 1,
            mode: "default".into(),
            seconds: 120.0,
            skipped: vec!["(b): no pairs".into()],
            targets: Get::targets(&cells),
            cells,
        }
    }

    fn run(round: u32, contender: &str, seconds: Option<f64>) -> Run<Figures> {
        let failed = seconds.is_none().then(|| "it took too long".to_owned());
        let figures = Figures { bytes: 1_000_000, seconds, ..Figures::default() };
        Run { round, contender: contender.into(), failed, figures }
    }

    fn cell(runs: Vec<Run<Figures>>) -> Record {
        let moment = |round, seconds| LowerBound { round, bytes: 1_000_000, seconds };
        Record {
            name: "a-10-5-warm".into(),
            part: "a".into(),
            title: "wifi + lte".into(),
            links: vec!["wifi".into(), "lte".into()],
            rounds: 2,
            runs,
            extra: Extra {
                warm: true,
                constant: true,
                fluid: vec![moment(0, 0.5), moment(1, 0.5)],
                ideal: vec![moment(0, 0.8), moment(1, 1.0)],
                ..Extra::default()
            },
            ..Record::default()
        }
    }

    #[test]
    fn the_page_begins_with_the_targets_and_says_what_failed() {
        let measured = cell(vec![
            run(0, "kernel MPTCP", Some(1.0)),
            run(0, "mp-h2", Some(0.9)),
            run(1, "mp-h2", Some(0.9)),
            run(1, "kernel MPTCP", None),
        ]);
        let error = Some("nginx does not start".to_owned());
        let missing = Record { error, ..cell(Vec::new()) };
        let page = page(&results(vec![measured, missing]));
        let targets = page.find("mp-h2 / T\\*, constant rates, warm | <= 1.08 | 1.000").unwrap();
        let cell = page.find("### a-10-5-warm").unwrap();
        assert!(targets < cell);
        for words in [
            "| mp-h2 | 0.900 (0.900–0.900) | 1.000 | – | – |  |",
            "| kernel MPTCP | 1.000 (1.000–1.000) | 1.111 | 0.900 | 0.900 | 1 of 2 |",
            "| T\\* | 0.900 (0.850–0.950) | – | 1.000 | 1.012 |  |",
            "Failures: kernel MPTCP: it took too long (1).",
            "- (b): no pairs",
            "| not measured |",
            "Not measured: nginx does not start.",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn a_missed_target_stands_out() {
        let page = page(&results(vec![cell(vec![run(0, "mp-h2", Some(2.0))])]));
        assert!(page.contains("| **missed** |"), "{page}");
    }

    #[test]
    fn ends_of_ranges_have_their_own_table() {
        let mut stopped = run(0, "wifi window", Some(1.0));
        stopped.figures.stop = Some(500_000);
        stopped.figures.link_bytes = vec![530_000];
        let cell = Record { part: "d".into(), ..cell(vec![stopped]) };
        let page = page(&results(vec![cell]));
        let row = "| wifi | 500 KB | window | 1.000 (1.000–1.000) | 530.0 (530.0–530.0) | 0.0 (0.0–0.0) |";
        assert!(page.contains(row), "{page}");
    }
}
