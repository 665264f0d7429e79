//! The results as Markdown, which reads well on a terminal too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::record::{CellRecord, Results};
use super::targets::shown;
use crate::sample::{Quartiles, ratio};
use crate::target;

/// What stands above the cells of a part.
const PARTS: [(&str, &str); 9] = [
    ("a", "Constant rates"),
    ("b", "Recorded pairs of Wi-Fi and cellular"),
    ("c", "Unequal paths"),
    ("d", "Bytes past an adjusted end"),
    ("e", "Pipelining"),
    ("f", "Multi-homing"),
    ("g", "An abrupt drop"),
    ("h", "Three paths"),
    ("i", "A path dies silently"),
];

const METHOD: &str = "\
- Every cell is one lab of `manyways lab`: real kernel stacks and sockets, emulated links with 150 ms \
drop-tail queues, a real nginx with TLS and HTTP/2. Wi-Fi has a round trip of 28 ms, LTE of 65 ms.
- In a round every contender runs once, one after the other, in an order that is shuffled by a \
seeded generator. Each run is a process of its own on links that are empty again. Ratios are of \
medians within one cell, and beside them the median of the rounds' own ratios.
- Warm: the same process has fetched 64 KB over each path by itself just before, one path after the \
other, and the kernel's slow start after idle is on: so the first path of two begins anew after half \
a second. One path alone waits as long there. Kernel MPTCP has had its 64 KB over its one connection, \
and begins at once. Cold: name look-up, connection and TLS count.
- Seconds are the program's own (`manyways get`, curl), from the start of that transfer to its last \
byte. aria2 tells none: its seconds are those of its process, start included.
- Every file is compared byte by byte with what the server has; one that differs is a failure.
- mp-h2 knows nothing beforehand; +fs knows the size, +bw/l what one earlier 4 MB transfer over each \
path alone has shown. fixed-chunk fetches chunks in turn over each path; a chunk that is not smaller \
than the object is left out, being one path alone.
- Kernel MPTCP is one MPTCP connection of `manyways get` (or of curl, where it says so) to an nginx \
under mptcpize. Where both ran, the targets take the faster one.
- One path alone runs once a round, for the cell's largest object; its time for a smaller one is when \
it had that much. A path that is much slower is stopped early, and has no time then.
- T\\* is when the curves of all paths alone, of the same round, sum to the object: what a perfect \
scheduler over these connections could reach. One path alone fills its queue until it loses \
something, and waits for that to be sent again; who does not can be faster than T\\*. The fluid \
bound has all links at full rate from the first moment, and the shortest round trip: it knows no \
headers, no slow start and no handshake.
- A round of a recorded pair begins 11 s after the one before it in the trace, for all contenders; \
the trace is set so that a transfer, not its warm-up, begins there. The same holds for what happens \
on the way.
- Bytes past an end: what the link delivered in all, less what it delivered in the median for an \
object that ends there.
- A target is met when every cell that it speaks of meets it.";

/// The whole page.
pub fn markdown(results: &Results) -> String {
    let mut out = String::from("# manyways get beside what else there is\n\n");
    let _ = writeln!(
        out,
        "Written by `make bench` ({}). Times are in seconds: median (quartiles).\n",
        match results.mode.as_str() {
            "full" => "everything: `BENCH=full`",
            "quick" => "a quick look, too short to conclude from",
            _ => "the part that fits into an hour; `BENCH=full` measures everything",
        }
    );
    out.push_str(&target::rows(&results.targets));
    for (letter, title) in PARTS {
        let cells = results.cells.iter().filter(|cell| cell.part == letter);
        for (index, cell) in cells.enumerate() {
            if index == 0 {
                let _ = writeln!(out, "\n## ({letter}) {title}");
            }
            self::cell(&mut out, cell);
        }
    }
    let _ = writeln!(out, "\n## How it was measured\n{METHOD}\n");
    machine(&mut out, results);
    out
}

fn cell(out: &mut String, cell: &CellRecord) {
    let _ = writeln!(out, "\n### {}\n{}. Rounds: {}.", cell.name, cell.title, cell.rounds);
    if let Some(error) = &cell.error {
        let _ = writeln!(out, "\nNot measured: {error}.");
        return;
    }
    for words in &cell.left_out {
        let _ = writeln!(out, "Left out: {words}.");
    }
    if cell.restless > 0 {
        let times = cell.restless;
        let _ = writeln!(out, "After {times} fetches the links were cut off to become quiet.");
    }
    if cell.part == "d" {
        ends(out, cell);
        return;
    }
    let _ = writeln!(out, "\n| | seconds | over T\\* | mp-h2 over this | pair by pair | failed |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for bytes in cell.sizes() {
        let ours = cell.times("mp-h2", bytes);
        let ideal = cell.ideal(bytes);
        let _ = writeln!(out, "| **{}** | | | | | |", shown(bytes));
        let mut row = |name: &str, times: &BTreeMap<u32, f64>, failed: (usize, usize)| {
            let over_ideal = ratio(times, &ideal).filter(|_| name != "T\\*");
            let over = ratio(&ours, times).filter(|_| name != "mp-h2");
            let figure = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.3}"));
            let cells = [
                spread(Quartiles::of(times.values().copied())),
                figure(over_ideal.map(|ratio| ratio.medians)),
                figure(over.map(|ratio| ratio.medians)),
                figure(over.map(|ratio| ratio.pairs)),
                if failed.0 > 0 { format!("{} of {}", failed.0, failed.1) } else { String::new() },
            ];
            let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
        };
        row("fluid bound", &cell.fluid(bytes), (0, 0));
        if !ideal.is_empty() {
            row("T\\*", &ideal, (0, 0));
        }
        let mut contenders = cell.contenders(bytes);
        contenders.sort_unstable_by_key(|name| rank(name));
        for name in contenders {
            let (times, failed) = (cell.times(name, bytes), cell.failures(name, bytes));
            if !times.is_empty() || failed.0 > 0 {
                row(name, &times, failed);
            }
        }
    }
    let reasons = reasons(cell);
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nFailures: {reasons}.");
    }
}

/// Ours, the others over all paths, and one path alone.
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

/// The cell of the range ends has other figures.
fn ends(out: &mut String, cell: &CellRecord) {
    let _ = writeln!(
        out,
        "\n| link | wanted | how | seconds | link delivered, KB | client saw past it, KB |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for (index, link) in cell.links.iter().enumerate() {
        let mut wanted: Vec<u64> = cell.runs.iter().filter_map(|run| run.stop).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for bytes in wanted {
            for how in ["alone", "window", "reset"] {
                let name = format!("{link} {how}");
                let here = |run: &&super::record::Run| {
                    run.contender == name && run.stop.unwrap_or(run.bytes) == bytes
                };
                let runs: Vec<_> = cell.runs.iter().filter(here).collect();
                let Some(seconds) = Quartiles::of(runs.iter().filter_map(|run| run.seconds)) else {
                    continue;
                };
                let kilo = |bytes: u64| bytes as f64 / 1000.0;
                let delivered = runs.iter().filter_map(|run| run.link_bytes.get(index));
                let delivered = Quartiles::of(delivered.map(|bytes| kilo(*bytes)));
                let tail = |run: &&super::record::Run| {
                    kilo(run.paths.iter().map(|path| path.tail_bytes).sum())
                };
                let tail = Quartiles::of(runs.iter().map(tail));
                let how = if how == "alone" { "all of an object" } else { how };
                let _ = writeln!(
                    out,
                    "| {link} | {} | {how} | {} | {} | {} |",
                    shown(bytes),
                    spread(Some(seconds)),
                    coarse(delivered),
                    coarse(tail),
                );
            }
        }
    }
    let reasons = reasons(cell);
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nFailures: {reasons}.");
    }
}

/// Why runs failed, each reason once.
fn reasons(cell: &CellRecord) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for run in &cell.runs {
        if let Some(why) = &run.failed {
            *counts.entry((&run.contender, why)).or_default() += 1;
        }
    }
    let one = |((name, why), count): (&(&str, &str), &usize)| format!("{name}: {why} ({count})");
    counts.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn machine(out: &mut String, results: &Results) {
    let machine = &results.machine;
    let _ = writeln!(
        out,
        "{} cores, kernel {}; {}. Every socket of both sides that was looked at in the middle of a \
         transfer of each cell had {}: {}. Seed {}; {:.0} minutes.",
        machine.cores,
        machine.kernel,
        machine.programs.join(", "),
        machine.congestion_control,
        sockets(results),
        results.seed,
        results.seconds / 60.0
    );
    if !results.left_out.is_empty() {
        let _ = writeln!(out, "\nNot measured:\n");
        for words in &results.left_out {
            let _ = writeln!(out, "- {words}");
        }
    }
}

fn sockets(results: &Results) -> String {
    let count = |of: fn(&CellRecord) -> usize| results.cells.iter().map(of).sum::<usize>();
    let plain = count(|cell| cell.sockets.get.len());
    let subflows = count(|cell| cell.sockets.mptcp.len());
    format!("{plain} of `manyways get`, {subflows} subflows of kernel MPTCP")
}

fn spread(quartiles: Option<Quartiles>) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    format!("{median:.3} ({lower:.3}–{upper:.3})")
}

fn coarse(quartiles: Option<Quartiles>) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    format!("{median:.1} ({lower:.1}–{upper:.1})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::record::{Moment, Run, SCHEMA};
    use crate::get::targets::targets;
    use crate::machine::Machine;

    fn results(cells: Vec<CellRecord>) -> Results {
        Results {
            schema: SCHEMA.to_owned(),
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
            left_out: vec!["(b): no pairs".into()],
            targets: targets(&cells),
            cells,
        }
    }

    fn run(round: u32, contender: &str, seconds: Option<f64>) -> Run {
        let failed = seconds.is_none().then(|| "it took too long".to_owned());
        let contender = contender.into();
        Run { round, contender, bytes: 1_000_000, seconds, failed, ..Run::default() }
    }

    fn cell(runs: Vec<Run>) -> CellRecord {
        let moment = |round, seconds| Moment { round, bytes: 1_000_000, seconds };
        CellRecord {
            name: "a-10-5-warm".into(),
            part: "a".into(),
            title: "wifi + lte".into(),
            links: vec!["wifi".into(), "lte".into()],
            warm: true,
            constant: true,
            rounds: 2,
            fluid: vec![moment(0, 0.5), moment(1, 0.5)],
            ideal: vec![moment(0, 0.8), moment(1, 1.0)],
            runs,
            ..CellRecord::default()
        }
    }

    #[test]
    fn the_page_begins_with_the_targets_and_says_what_failed() {
        let page = markdown(&results(vec![cell(vec![
            run(0, "kernel MPTCP", Some(1.0)),
            run(0, "mp-h2", Some(0.9)),
            run(1, "mp-h2", Some(0.9)),
            run(1, "kernel MPTCP", None),
        ])]));
        let targets = page.find("mp-h2 / T\\*, constant rates, warm | <= 1.08 | 1.000").unwrap();
        let cell = page.find("### a-10-5-warm").unwrap();
        assert!(targets < cell);
        assert!(page.contains("| mp-h2 | 0.900 (0.900–0.900) | 1.000 | – | – |  |"), "{page}");
        let kernel = "| kernel MPTCP | 1.000 (1.000–1.000) | 1.111 | 0.900 | 0.900 | 1 of 2 |";
        assert!(page.contains(kernel), "{page}");
        assert!(page.contains("| T\\* | 0.900 (0.850–0.950) | – | 1.000 | 1.012 |  |"), "{page}");
        assert!(page.contains("Failures: kernel MPTCP: it took too long (1)."), "{page}");
        assert!(page.contains("- (b): no pairs"), "{page}");
        assert!(page.contains("| not measured |"), "{page}");
    }

    #[test]
    fn a_missed_target_stands_out() {
        let page = markdown(&results(vec![cell(vec![run(0, "mp-h2", Some(2.0))])]));
        assert!(page.contains("| **missed** |"), "{page}");
    }

    #[test]
    fn a_cell_that_came_to_nothing_says_why() {
        let error = Some("nginx does not start".to_owned());
        let page = markdown(&results(vec![CellRecord { error, ..cell(Vec::new()) }]));
        assert!(page.contains("Not measured: nginx does not start."), "{page}");
    }

    #[test]
    fn ends_of_ranges_have_their_own_table() {
        let stopped = Run {
            stop: Some(500_000),
            link_bytes: vec![530_000],
            ..run(0, "wifi window", Some(1.0))
        };
        let cell = CellRecord { part: "d".into(), ..cell(vec![stopped]) };
        let page = markdown(&results(vec![cell]));
        let row = "| wifi | 500 KB | window | 1.000 (1.000–1.000) | 530.0 (530.0–530.0) | 0.0 (0.0–0.0) |";
        assert!(page.contains(row), "{page}");
    }
}
