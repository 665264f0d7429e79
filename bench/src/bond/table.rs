//! The results as Markdown, which reads well on a terminal too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::record::{CellRecord, Results};
use manyways_rig::sample::{Quartiles, quantile, ratio};
use manyways_rig::target;

/// What stands above the cells of a part.
const PARTS: [(&str, &str); 14] = [
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
];

const METHOD: &str = "\
- Every cell is one lab of `manyways lab`: real kernel stacks and sockets, emulated links with 150 ms \
drop-tail queues. Unless it says otherwise Wi-Fi has 7.04/2.02 Mbit/s and a round trip of 50 ms, LTE \
9.185/2.286 Mbit/s and 70 ms. KB = 1000 bytes.
- In a round every contender does everything once, one after the other, in an order that is shuffled \
by a seeded generator, on links that are empty again. Ratios are of medians within one cell, and \
beside them the median of the rounds' own ratios.
- The client is our own load generator: it opens a connection, asks for so many bytes, and measures \
from connect() to the last of them. The server answers without thinking. Every byte is compared with \
what it should be; a run with a wrong one is a failure.
- bond: `manyways bond client` on the device and `manyways bond gateway` on the server's host. Both \
run during all of the cell, so that their carriers are open when a run begins; they have been idle \
for two seconds at least, so that the kernel begins with a small window again.
- mptcp-wifi, mptcp-lte: a transparent splice, one connection of the kernel's MPTCP for every flow, \
whose first segment has the destination and the flow's first bytes. Its first subflow goes over the \
link in its name. wifi, lte: the same splice with plain TCP over that link.
- direct-wifi, direct-lte: the load generator connects to the server itself, over that link.
- The load generator speaks SOCKS5 to bond and to the splice alike: both say yes at once.
- bulk: one file that takes six seconds at the full rate of the contender's links. Its goodput \
counts from connect() to the last byte, so slow start and the last bytes over the slower link count.
- requests during bulk: 10 KB each 200 ms, each over a new connection, from two seconds after a large \
file began. The figure of a run is the 95th percentile.
- A path goes: a stream of 1 Mbit/s, sent every 10 ms; after four seconds the link that brought most \
of it in the last one loses its carrier, or swallows everything. The figure is the longest time \
without a byte. No other links change meanwhile: of a carrier, the kernel tells all namespaces \
together once a second at most.
- A call: datagrams of 160 bytes fifty times a second, which come back. Both ends share a clock; the \
figure is the median one-way delay towards the device.
- Loopback: the server, both ends and the load run on the same loopback and the same processors, \
started anew for each run. direct-loopback is the load and the server without the bond.
- Web pages: generated ones with about the numbers, kinds and weight of the objects of the HTTP \
Archive's median page, smaller and larger, from five origins, which are ports of the server, over \
plain HTTP/1.1. A headless Chromium with a new profile loads one \
once; the figure is loadEventEnd - navigationStart, and a run that has not all bytes of all objects in the end is \
a failure. It speaks SOCKS5 to everyone, also to a splice that goes straight to the server for direct. \
Names are not looked up, and scripts do nothing but lead to more objects.
- The four-application policy: docs/policies/four-apps.toml as it is. Call: datagrams of 160 bytes fifty \
times a second, to port 3478. Messenger: 200 bytes each second over one connection of a process named \
messenger. App store: a file that takes as long over both links, fetched by a process named snapd. The \
figure is what the LTE link carried, both ways, IP headers included, from their start until all was \
quiet; 104 bytes are a keep-alive of an idle carrier and its acknowledgement. Of mptcp-wifi, the \
call goes straight over Wi-Fi.
- Recorded pairs: a file that takes 30 s at the links' mean rates, each round on where the one before \
ended in the recording. The figure is what both ends count as sent again though its path brought it, \
over the bytes of streams that came, each once.
- A target is met when every cell that it speaks of meets it.";

/// The whole page.
pub fn markdown(results: &Results) -> String {
    let mut out = String::from("# manyways bond beside what else there is\n\n");
    let _ = writeln!(
        out,
        "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.\n"
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
        let _ = writeln!(out, "After {times} runs the links were cut off to become quiet.");
    }
    let _ = writeln!(out, "\n| | figure | first over this | pair by pair | | failed |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for task in cell.tasks() {
        let contenders = cell.contenders(task);
        let unit = cell.runs.iter().find(|run| run.task == task).map_or("", |run| &run.unit);
        let _ = writeln!(out, "| **{task}**, {unit} | | | | | |");
        let first = contenders.first().map(|name| cell.values(name, task)).unwrap_or_default();
        for (index, name) in contenders.iter().enumerate() {
            let values = cell.values(name, task);
            let over = ratio(&first, &values).filter(|_| index > 0);
            let figure = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.3}"));
            let failed = match cell.failures(name, task) {
                (0, _) => String::new(),
                (failed, all) => format!("{failed} of {all}"),
            };
            let row = [
                (*name).to_owned(),
                spread(Quartiles::of(values.into_values())),
                figure(over.map(|ratio| ratio.medians)),
                figure(over.map(|ratio| ratio.pairs)),
                besides(cell, name, task),
                failed,
            ];
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
    }
    let reasons = reasons(cell);
    if !reasons.is_empty() {
        let _ = writeln!(out, "\nFailures: {reasons}.");
    }
}

/// What there is to know besides the figure.
fn besides(cell: &CellRecord, name: &str, task: &str) -> String {
    let mut words = Vec::new();
    let samples = cell.samples(name, task);
    for (share, called) in [(0.5, "median"), (0.99, "p99")] {
        let value = quantile(&samples, share);
        words.extend(value.map(|value| format!("{called} of all {value:.1}")));
    }
    let more = |what: &str| Quartiles::of(cell.more(name, task, what)).map(|all| all.median);
    words.extend(more("up").map(|up| format!("the other way {:.1}", up * 1000.0)));
    for (what, called) in [("reordered", "out of order"), ("lost", "lost")] {
        let all = cell.more(name, task, what);
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
    let sockets = results.cells.iter().flat_map(|cell| &cell.sockets);
    let (plain, subflows) = sockets.fold((0, 0), |(plain, subflows), seen| {
        (plain + seen.plain.len(), subflows + seen.subflows.len())
    });
    let _ = writeln!(
        out,
        "{} cores, kernel {}; {}. Every socket of both sides that was looked at in the middle of a \
         transfer of each contender in each cell had {}: {plain} plain ones, {subflows} subflows of \
         kernel MPTCP. Seed {}; {:.0} minutes.",
        machine.cores,
        machine.kernel,
        machine.programs.join(", "),
        machine.congestion_control,
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

fn spread(quartiles: Option<Quartiles>) -> String {
    let Some(Quartiles { lower, median, upper }) = quartiles else { return "–".into() };
    let places = if median >= 20.0 { 1 } else { 3 };
    format!("{median:.places$} ({lower:.places$}–{upper:.places$})")
}
