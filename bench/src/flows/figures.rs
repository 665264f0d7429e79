//! Figures of a run over a capture, their tables and their targets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use manyways_rig::cell::{CellRecord, Run};
use manyways_rig::measure::EndedProcess;
use manyways_rig::page::{Page, rounded, table};
use manyways_rig::results::Results;
use manyways_rig::sample::{Quartiles, median, ratio};
use manyways_rig::target::{Bound, Figure, Target, Verdict, every_figure, told};
use serde::{Deserialize, Serialize};

use crate::capture::Written;

/// The record of one capture.
pub type Record = CellRecord<Figures, More>;

/// Content of a cell's record in addition to its runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    pub capture: Written,
    /// Number of connections in the capture.
    pub flows: u32,
    /// Load average of the last minute before the cell.
    pub load: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the start of the process to its end.
    pub seconds: f64,
    /// Processor time in seconds.
    pub cpu: f64,
    /// Peak resident memory in bytes.
    pub memory: u64,
    /// Peak resident memory after all packets were read and before the end of the connections;
    /// `None` if it was not measured.
    pub live: Option<u64>,
}

impl Figures {
    pub fn of(done: EndedProcess, live: Option<u64>) -> Run<Self> {
        let (seconds, cpu, memory) = (done.seconds, done.cpu(), done.usage.memory.as_bytes());
        Run::of(Self { seconds, cpu, memory, live }, done.failed)
    }
}

/// The contender that the others are compared with.
const OURS: &str = "manyways-1";
const MEBI: f64 = 1_048_576.0;

/// A figure of a contender's runs, by round; failed runs are omitted.
fn values(
    cell: &Record,
    name: &str,
    figure: impl Fn(&Figures) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    cell.values(|run| run.contender == name && run.failed.is_none(), figure)
}

/// Packets per second, by round.
fn packet_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.extra.capture.packets as f64 / run.seconds))
}

/// Bytes per second, by round.
fn byte_rates(cell: &Record, name: &str) -> BTreeMap<u32, f64> {
    values(cell, name, |run| Some(cell.extra.capture.bytes as f64 / run.seconds))
}

pub fn page(results: &Results<Figures, More>) -> String {
    let page = Page {
        title: "manyways flows beside what else there is",
        intro: "Written by `make bench`. Figures are medians (quartiles). Missed targets come first.",
        parts: &[
            ("a", "Packet headers, and what else reads them"),
            ("b", "Whole packets"),
            ("c", "Connections that are alive"),
            ("d", "Captures that grow"),
        ],
        method: include_str!("method.md"),
        sockets: String::new(),
    };
    page.markdown(results, tables)
}

fn tables(out: &mut String, cell: &Record) {
    let _ = writeln!(
        out,
        "{} packets, {:.0} MB. Other work on this machine in the minute before: {:.1} cores.\n",
        cell.extra.capture.packets,
        cell.extra.capture.bytes as f64 / 1e6,
        cell.extra.load
    );
    let is_stream = cell.part == "c" || cell.part == "d";
    let head = match is_stream {
        true => " | seconds | processor seconds | peak, MiB | peak before the end, MiB",
        false => {
            " | million packets/s | GB/s | manyways-1 over this | processor seconds | peak, MiB"
        }
    };
    let mut names = cell.distinct(|run| Some(&run.contender));
    names.sort_unstable();
    let row = |name: &str| {
        let cpu = spread(&values(cell, name, |run| Some(run.cpu)), 1.0);
        let peak = spread(&values(cell, name, |run| Some(run.memory as f64)), MEBI);
        if is_stream {
            let seconds = spread(&values(cell, name, |run| Some(run.seconds)), 1.0);
            let live = values(cell, name, |run| run.live.map(|bytes| bytes as f64));
            return vec![name.to_owned(), seconds, cpu, peak, spread(&live, MEBI)];
        }
        let rates = packet_rates(cell, name);
        let over = ratio(&packet_rates(cell, OURS), &rates).filter(|_| name != OURS);
        let over = over.map_or("–".to_owned(), |over| format!("{:.2}", over.pairs));
        let bytes = spread(&byte_rates(cell, name), 1e9);
        vec![name.to_owned(), spread(&rates, 1e6), bytes, over, cpu, peak]
    };
    table(out, head, names.into_iter().map(row));
}

fn spread(values: &BTreeMap<u32, f64>, unit: f64) -> String {
    rounded(Quartiles::of(values.values().map(|value| value / unit)))
}

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    // The median rate of a cell, and the median of the ratios of packet rates, round by round.
    let rate = |name, rates: fn(&Record, &str) -> BTreeMap<u32, f64>, unit| {
        figure(cells, name, name, |cell| Some(median(rates(cell, OURS).into_values())? / unit))
    };
    let over = |ours: &str, theirs: &str, factor: f64| {
        figure(cells, "headers", "pair by pair", |cell| {
            Some(ratio(&packet_rates(cell, ours), &packet_rates(cell, theirs))?.pairs * factor)
        })
    };
    let at_least =
        |what: &str, bound, figures| every_figure(what.to_owned(), Bound::AtLeast(bound), figures);
    let rival = |name: &str, bound| {
        at_least(&format!("one core / {name} on one core"), bound, over(OURS, name, 1.0))
    };
    let (two, twice) = ("manyways-2", "manyways-1-twice");
    let live = "KiB for each live connection, before the end".to_owned();
    let most = "KiB for each live connection, at most in all of the run";
    vec![
        at_least("million packets a second on one core", 3.0, rate("headers", packet_rates, 1e6)),
        at_least("two threads / one", 1.7, over(two, OURS, 1.0)),
        rival("tcptrace", 4.0),
        rival("tshark", 10.0),
        rival("nfstream", 10.0),
        at_least("GB a second of whole packets on one core", 1.5, rate("whole", byte_rates, 1e9)),
        every_figure(live, Bound::AtMost(1.5), for_each_connection(cells, |run| run.live)),
        told(most, for_each_connection(cells, |run| Some(run.memory))),
        told("two processes at once, one on each core / one", over(twice, OURS, 2.0)),
        told("two threads / two processes at once", over(two, twice, 0.5)),
        // The gain of profile-guided optimization.
        told("make release / cargo build, on one core", over(OURS, "manyways-1-untrained", 1.0)),
        growth(cells, "ns of a processor for a packet, as captures grow", |cell, run| {
            run.cpu / cell.extra.capture.packets as f64 * 1e9
        }),
        growth(cells, "MiB at most, as captures grow", |_, run| run.memory as f64 / MEBI),
    ]
}

/// The value of one cell; empty if it was not measured.
fn figure(
    cells: &[Record],
    name: &str,
    place: &str,
    value: impl Fn(&Record) -> Option<f64>,
) -> Vec<Figure> {
    let value = cells.iter().find(|cell| cell.name == name).and_then(value);
    value.map(|value| Figure { case: place.to_owned(), value }).into_iter().collect()
}

/// Memory for one more connection, in KiB.
fn for_each_connection(cells: &[Record], bytes: fn(&Figures) -> Option<u64>) -> Vec<Figure> {
    let memory = |cell: &Record| {
        let bytes = values(cell, OURS, |run| Some(bytes(run)? as f64));
        Some((median(bytes.into_values())?, f64::from(cell.extra.flows)))
    };
    let few = cells.iter().find(|cell| cell.name == "alive-2000").and_then(memory);
    figure(cells, "alive-200000", "200,000 over 2,000", |cell| {
        let ((few, flows), (many, all)) = (few?, memory(cell)?);
        Some((many - few) / (all - flows) / 1_024.0)
    })
}

/// The median of a figure in each of the growing captures.
fn growth(cells: &[Record], what: &str, value: fn(&Record, &Figures) -> f64) -> Target {
    let grown = cells.iter().filter(|cell| cell.part == "d");
    let words = |cell: &Record| {
        let values = values(cell, OURS, |run| Some(value(cell, run)));
        Some(format!("{:.1} ({})", median(values.into_values())?, cell.name))
    };
    let measured = grown.filter_map(words).collect::<Vec<_>>().join(", ");
    let verdict = if measured.is_empty() { Verdict::NotMeasured } else { Verdict::Reported };
    Target { quantity: what.to_owned(), required: String::new(), measured, verdict }
}
