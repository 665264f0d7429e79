//! Target values of `manyways flows`, and whether they were met.

use manyways_rig::sample::{median, ratio};
use manyways_rig::target::{Bound, Figure, Target, Verdict, each, told_only};

use super::record::{Figures, Record, byte_rates, packet_rates, values};

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    let mut targets = vec![packets(cells), two_cores(cells)];
    for (name, bound) in [("tcptrace", 4.0), ("tshark", 10.0), ("nfstream", 10.0)] {
        targets.push(rival(cells, name, bound));
    }
    targets.extend([bytes(cells), live(cells, true), live(cells, false)]);
    targets.extend(two_processes(cells));
    targets.push(training(cells));
    targets.extend(growth(cells));
    targets
}

fn cell<'a>(cells: &'a [Record], name: &str) -> Option<&'a Record> {
    cells.iter().find(|cell| cell.name == name)
}

fn figure(place: &str, value: f64) -> Figure {
    Figure { place: place.to_owned(), value }
}

fn packets(cells: &[Record]) -> Target {
    let of = |cell: &Record| median(packet_rates(cell, "manyways-1").into_values());
    let value = cell(cells, "headers").and_then(of).map(|value| figure("headers", value / 1e6));
    let what = "million packets a second on one core".to_owned();
    each(what, Bound::AtLeast(3.0), value.into_iter().collect())
}

/// Median of the ratios of packet rates, round by round.
fn over(cells: &[Record], ours: &str, theirs: &str) -> Vec<Figure> {
    let of = |cell: &Record| ratio(&packet_rates(cell, ours), &packet_rates(cell, theirs));
    let value = cell(cells, "headers").and_then(of);
    value.map(|ratio| figure("pair by pair", ratio.pairs)).into_iter().collect()
}

fn two_cores(cells: &[Record]) -> Target {
    let figures = over(cells, "manyways-2", "manyways-1");
    each("two threads / one".to_owned(), Bound::AtLeast(1.7), figures)
}

/// The gain of a second core for two independent processes, and the part of it that two threads
/// reach.
fn two_processes(cells: &[Record]) -> Vec<Target> {
    let told = |what: &str, factor: f64, ours, theirs| {
        let mut figures = over(cells, ours, theirs);
        figures.iter_mut().for_each(|figure| figure.value *= factor);
        let target = each(what.to_owned(), Bound::AtLeast(1.0), figures);
        told_only(Target { wanted: String::new(), ..target })
    };
    let twice = "manyways-1-twice";
    vec![
        told("two processes at once, one on each core / one", 2.0, twice, "manyways-1"),
        told("two threads / two processes at once", 0.5, "manyways-2", twice),
    ]
}

/// The gain of profile-guided optimization.
fn training(cells: &[Record]) -> Target {
    let figures = over(cells, "manyways-1", "manyways-1-untrained");
    let target =
        each("make release / cargo build, on one core".to_owned(), Bound::AtLeast(1.0), figures);
    told_only(Target { wanted: String::new(), ..target })
}

fn rival(cells: &[Record], name: &str, bound: f64) -> Target {
    let figures = over(cells, "manyways-1", name);
    each(format!("one core / {name} on one core"), Bound::AtLeast(bound), figures)
}

fn bytes(cells: &[Record]) -> Target {
    let of = |cell: &Record| median(byte_rates(cell, "manyways-1").into_values());
    let value = cell(cells, "whole").and_then(of).map(|value| figure("whole", value / 1e9));
    let what = "GB a second of whole packets on one core".to_owned();
    each(what, Bound::AtLeast(1.5), value.into_iter().collect())
}

/// Memory for one more connection: while all connections are open, or at the peak of the whole run,
/// which includes the rows that are kept until the end.
fn live(cells: &[Record], is_live: bool) -> Target {
    let memory = |name: &str| {
        let cell = cell(cells, name)?;
        let figure = |run: &Figures| match is_live {
            true => run.live.map(|bytes| bytes as f64),
            false => Some(run.memory as f64),
        };
        Some((
            median(values(cell, "manyways-1", figure).into_values())?,
            f64::from(cell.more.flows),
        ))
    };
    let value = memory("alive-2000").zip(memory("alive-200000")).map(|(few, many)| {
        figure("200,000 over 2,000", (many.0 - few.0) / (many.1 - few.1) / 1_024.0)
    });
    let words = if is_live { "before the end" } else { "at most in all of the run" };
    let what = format!("KiB for each live connection, {words}");
    let target = each(what, Bound::AtMost(1.5), value.into_iter().collect());
    if is_live { target } else { told_only(Target { wanted: String::new(), ..target }) }
}

fn growth(cells: &[Record]) -> Vec<Target> {
    let of = |cell: &Record| {
        let packets = cell.more.capture.packets as f64;
        let cpu = median(values(cell, "manyways-1", |run| Some(run.cpu)).into_values())?;
        let memory = values(cell, "manyways-1", |run| Some(run.memory as f64));
        Some((cpu / packets * 1e9, median(memory.into_values())? / f64::from(1 << 20)))
    };
    let grown = || cells.iter().filter(|cell| cell.part == "d");
    let told = |what: &str, which: fn((f64, f64)) -> f64| {
        let one = |cell: &Record| Some(figure(&cell.name, which(of(cell)?)));
        let figures: Vec<Figure> = grown().filter_map(one).collect();
        let words = |figure: &Figure| format!("{:.1} ({})", figure.value, figure.place);
        let measured = figures.iter().map(words).collect::<Vec<_>>().join(", ");
        let verdict = if figures.is_empty() { Verdict::NotMeasured } else { Verdict::Told };
        Target { what: what.to_owned(), wanted: String::new(), measured, verdict }
    };
    vec![
        told("ns of a processor for a packet, as captures grow", |(time, _)| time),
        told("MiB at most, as captures grow", |(_, memory)| memory),
    ]
}
