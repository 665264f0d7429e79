//! Target values of `manyways get`, and whether they were met.

use std::collections::BTreeMap;

use manyways_rig::download::Downloader;
use manyways_rig::sample::{median, ratio};
use manyways_rig::target::{
    Bound, Figure, Target, Verdict, as_measured, each, middle_and_worst, target,
};

use super::plan::CHUNKS;
use super::record::{self, Figures, Record, by_round};

const HALF_MB: u64 = 512_000;
const MB: u64 = 1_000_000;
/// Additional bytes that a link may carry for an adjusted end, as a share of the object: PING
/// replies, and acknowledgements of the flow-control credit, which is granted in small steps.
const CONTROL: f64 = 0.01;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    let mut targets = Vec::new();
    for warm in [true, false] {
        let constant = |cell: &Record| {
            cell.more.constant
                && cell.more.warm == warm
                && ["a", "c", "h"].contains(&cell.part.as_str())
        };
        let over_ideal = |contender: Downloader| {
            figures(
                cells,
                constant,
                |_| true,
                |cell, bytes| compared(cell, contender, bytes, &by_round(&cell.more.ideal, bytes)),
            )
        };
        let name = |variant: &str| format!("{variant} / T\\*, constant rates, {}", heat(warm));
        targets.extend([
            each(name("mp-h2"), Bound::AtMost(1.08), over_ideal(Downloader::MpH2)),
            each(name("mp-h2+fs"), Bound::AtMost(1.05), over_ideal(Downloader::Sized)),
            each(name("mp-h2+fs+bw/l"), Bound::AtMost(1.05), over_ideal(Downloader::Known)),
        ]);
    }
    for warm in [true, false] {
        let here = |cell: &Record| cell.part == "a" && cell.more.warm == warm;
        let large = figures(cells, here, |bytes| bytes >= MB, over_mptcp);
        let small = figures(cells, here, |bytes| bytes == HALF_MB, over_mptcp);
        let name = |size: &str| format!("mp-h2 / kernel MPTCP, (a), {size}, {}", heat(warm));
        targets.push(each(name("1 MB and more"), Bound::AtMost(0.98), large));
        targets.push(each(name("512 KB"), Bound::AtMost(1.0), small));
    }
    let in_pairs = figures(cells, part("b"), |bytes| bytes >= MB, over_mptcp);
    let name = "mp-h2 / kernel MPTCP, (b), 1 MB and more".to_owned();
    targets.push(each(name, Bound::AtMost(1.0), in_pairs));
    targets.extend(over_chunks(cells));
    targets.extend(over_single(cells));
    targets.extend(past_the_end(cells));
    targets.extend(pipelining(cells));
    targets.push(estimate(cells));
    for warm in [true, false] {
        let here = |cell: &Record| cell.part == "f" && cell.more.warm == warm;
        let gain = figures(
            cells,
            here,
            |_| true,
            |cell, bytes| {
                let alone = times(cell, Downloader::OneServer, bytes);
                compared(cell, Downloader::MpH2, bytes, &alone).map(|ratio| 1.0 - ratio)
            },
        );
        let name = format!("multi-homing gain, {}", heat(warm));
        targets.push(each(name, Bound::AtLeast(0.05), gain));
    }
    let drop = figures(cells, part("g"), |_| true, over_mptcp);
    targets.push(each("abrupt drop (g) / kernel MPTCP".to_owned(), Bound::AtMost(1.04), drop));
    targets.push(death(cells));
    targets
}

fn heat(warm: bool) -> &'static str {
    if warm { "warm" } else { "cold" }
}

fn part(letter: &str) -> impl Fn(&Record) -> bool + use<'_> {
    move |cell| cell.part == letter
}

/// A figure for each selected object of each selected cell.
fn figures(
    cells: &[Record],
    here: impl Fn(&Record) -> bool,
    sizes: impl Fn(u64) -> bool,
    value: impl Fn(&Record, u64) -> Option<f64>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in cells.iter().filter(|cell| here(cell)) {
        for bytes in record::sizes(cell).into_iter().filter(|bytes| sizes(*bytes)) {
            let place = format!("{}, {}", cell.name, shown(bytes));
            figures.extend(value(cell, bytes).map(|value| Figure { place, value }));
        }
    }
    figures
}

/// Formats a size: `512 KB`, `20 MB`.
pub fn shown(bytes: u64) -> String {
    if bytes.is_multiple_of(MB) {
        format!("{} MB", bytes / MB)
    } else {
        format!("{} KB", bytes / 1000)
    }
}

fn times(cell: &Record, contender: Downloader, bytes: u64) -> BTreeMap<u32, f64> {
    record::times(cell, &contender.name(&[]), bytes)
}

/// A contender's median divided by another one.
fn compared(
    cell: &Record,
    contender: Downloader,
    bytes: u64,
    with: &BTreeMap<u32, f64>,
) -> Option<f64> {
    ratio(&times(cell, contender, bytes), with).map(|ratio| ratio.medians)
}

/// The times of the contender with the smallest median.
fn best(all: impl IntoIterator<Item = BTreeMap<u32, f64>>) -> BTreeMap<u32, f64> {
    let middle = |times: &BTreeMap<u32, f64>| median(times.values().copied());
    let known = all.into_iter().filter(|times| !times.is_empty());
    let key = |times: &BTreeMap<u32, f64>| middle(times).unwrap_or(f64::INFINITY);
    known.min_by(|a, b| key(a).total_cmp(&key(b))).unwrap_or_default()
}

fn over_mptcp(cell: &Record, bytes: u64) -> Option<f64> {
    let kernel = [Downloader::Mptcp, Downloader::MptcpCurl];
    let kernel = best(kernel.map(|contender| times(cell, contender, bytes)));
    compared(cell, Downloader::MpH2, bytes, &kernel)
}

/// Compares with the link that had the smallest median alone.
fn over_best_link(cell: &Record, bytes: u64) -> Option<f64> {
    let alone =
        best(cell.links.iter().map(|link| record::times(cell, &format!("{link} alone"), bytes)));
    compared(cell, Downloader::MpH2, bytes, &alone)
}

fn over_chunks(cells: &[Record]) -> [Target; 2] {
    let chunk = |cell: &Record, kib, bytes| times(cell, Downloader::FixedChunk(kib), bytes);
    let over_best = figures(
        cells,
        part("a"),
        |_| true,
        |cell, bytes| {
            let all: Vec<_> = CHUNKS.map(|kib| chunk(cell, kib, bytes)).into();
            // A single chunk size is not the best of several.
            let several = all.iter().filter(|times| !times.is_empty()).count() > 1;
            compared(cell, Downloader::MpH2, bytes, &best(all)).filter(|_| several)
        },
    );
    let fast = |cell: &Record| cell.name.starts_with("a-18-32");
    let over_largest = figures(
        cells,
        fast,
        |_| true,
        |cell, bytes| compared(cell, Downloader::MpH2, bytes, &chunk(cell, 1024, bytes)),
    );
    let name = "mp-h2 / best fixed-chunk of four sizes, (a)".to_owned();
    [
        middle_and_worst(name, (0.92, 1.02), &over_best),
        each("mp-h2 / fixed-chunk 1 MiB at (18, 32)".to_owned(), Bound::AtMost(0.90), over_largest),
    ]
}

fn over_single(cells: &[Record]) -> Vec<Target> {
    let large = |bytes| bytes == 20 * MB;
    let settings = [("20-20", 0.56), ("40-5", 0.95), ("100-10", 0.97), ("50-1", 1.02)];
    let mut targets: Vec<Target> = settings
        .into_iter()
        .map(|(rates, bound)| {
            let named = format!("c-{rates}");
            let here = |cell: &Record| cell.name == named;
            let name = format!("mp-h2 / best single path, 20 MB, {}", rates.replace('-', " + "));
            each(name, Bound::AtMost(bound), figures(cells, here, large, over_best_link))
        })
        .collect();
    let pairs = figures(cells, part("b"), large, over_best_link);
    let name = "mp-h2 / best single path, 20 MB, pairs".to_owned();
    targets.push(middle_and_worst(name, (0.75, 1.05), &pairs));
    targets
}

/// Successful runs that ended before the end of the object. `how` is the suffix of the contender's
/// name.
fn stopped<'a>(
    cells: &'a [Record],
    how: &'a str,
) -> impl Iterator<Item = (&'a Record, usize, u32, &'a Figures)> {
    cells.iter().filter(|cell| cell.part == "d").flat_map(move |cell| {
        cell.links.iter().enumerate().flat_map(move |(index, link)| {
            let name = format!("{link} {how}");
            let of = cell.runs.iter().filter(move |run| run.contender == name);
            let done = of.filter(|run| run.figures.seconds.is_some());
            done.map(move |run| (cell, index, run.round, &run.figures))
        })
    })
}

/// Bytes that a link carried in addition to a transfer of the whole smaller object.
struct Beyond {
    place: String,
    wanted: u64,
    /// Median of the additional bytes.
    bytes: f64,
}

/// The additional bytes by link and object, and the maximum overshoot that the client received.
fn beyond(cells: &[Record], how: &str) -> (Vec<Beyond>, u64) {
    let mut by_place: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
    let mut seen = 0;
    for (cell, link, _, run) in stopped(cells, how) {
        let wanted = run.stop.unwrap_or_default();
        let whole = format!("{} alone", cell.links[link]);
        let carried = |run: &Figures| run.link_bytes.get(link).map(|bytes| *bytes as f64);
        let same = cell.values(
            |other| {
                let figures = &other.figures;
                other.contender == whole && figures.bytes == wanted && figures.seconds.is_some()
            },
            carried,
        );
        let usual = median(same.into_values());
        if let (Some(usual), Some(carried)) = (usual, carried(run)) {
            let place = (format!("{} at {}", cell.links[link], shown(wanted)), wanted);
            by_place.entry(place).or_default().push(carried - usual);
        }
        seen = seen.max(run.paths.iter().map(|path| path.tail_bytes).sum());
    }
    let middle = |((place, wanted), values): ((String, u64), Vec<f64>)| {
        Some(Beyond { place, wanted, bytes: median(values)? })
    };
    (by_place.into_iter().filter_map(middle).collect(), seen)
}

fn past_the_end(cells: &[Record]) -> [Target; 3] {
    let told = |beyond: &[Beyond]| {
        let one = |beyond: &Beyond| format!("{}: {:.0} KB", beyond.place, beyond.bytes / 1000.0);
        beyond.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let (window, seen) = beyond(cells, "window");
    let measured = format!(
        "the client saw {seen} B at most; the link carried more, control frames included: {}",
        told(&window)
    );
    let control = |beyond: &Beyond| beyond.bytes <= beyond.wanted as f64 * CONTROL;
    let clean = seen == 0 && window.iter().all(control);
    let name = "bytes past an adjusted end, window".to_owned();
    let window = target(name, "0".to_owned(), (!window.is_empty()).then_some((measured, clean)));
    let (reset, _) = beyond(cells, "reset");
    let measured = (!reset.is_empty()).then(|| (told(&reset), true));
    let reset = as_measured(target("the same, reset".to_owned(), String::new(), measured));
    let of = |how: &str| -> BTreeMap<u32, f64> {
        let far = stopped(cells, how).filter(|(cell, link, _, run)| {
            cell.links[*link] == "fast" && run.stop == Some(10 * MB)
        });
        far.filter_map(|(_, _, round, run)| Some((round, run.seconds?))).collect()
    };
    let share = ratio(&of("reset"), &of("window")).map(|ratio| ratio.medians);
    let figure = share.map(|value| Figure { place: "10 MB".to_owned(), value });
    let name = "rate with window / unrestricted, 100 Mbit/s × 65 ms".to_owned();
    [window, reset, each(name, Bound::AtLeast(0.98), figure.into_iter().collect())]
}

/// Maximum size of a TLS record's plaintext. No byte of a record is available before its last byte
/// has arrived.
const TLS_RECORD: f64 = 16_384.0;
/// The longest pause between two ranges that counts as none, in seconds.
const PAUSE: f64 = 0.010;

fn pipelining(cells: &[Record]) -> [Target; 2] {
    let name = Downloader::MpH2.name(&[]);
    let mut gaps = Vec::new();
    for cell in cells.iter().filter(|cell| cell.part == "e") {
        let record = |path: &str| {
            let link = cell.links.iter().position(|link| link == path)?;
            Some(TLS_RECORD * 8.0 / *cell.more.link_bps.get(link)? as f64)
        };
        for run in cell.runs.iter().filter(|run| run.contender == name) {
            let both = |(path, gap): &(String, f64)| (*gap, record(path).unwrap_or_default());
            gaps.extend(run.figures.gaps.iter().map(both));
        }
    }
    let all = gaps.len().max(1) as f64;
    let raw = gaps.iter().filter(|(gap, _)| *gap <= PAUSE).count() as f64 / all;
    let idle = gaps.iter().filter(|(gap, record)| gap - record <= PAUSE).count() as f64 / all;
    let measured = (!gaps.is_empty()).then(|| {
        let words = format!(
            "{:.0} % of {}; {:.0} % if the time of one 16 KB TLS record on the link, which is told \
             whole, does not count",
            raw * 100.0,
            gaps.len(),
            idle * 100.0
        );
        (words, raw >= 0.9)
    });
    let gain = figures(
        cells,
        part("e"),
        |_| true,
        |cell, bytes| {
            let serial = times(cell, Downloader::Serial, bytes);
            compared(cell, Downloader::MpH2, bytes, &serial).map(|ratio| 1.0 - ratio)
        },
    );
    let gain = each("gain by pipelining, 2 MB".to_owned(), Bound::AtLeast(f64::NEG_INFINITY), gain);
    [
        target(
            "iterations with at most 10 ms between two ranges, (e)".to_owned(),
            "90 %".to_owned(),
            measured,
        ),
        as_measured(gain),
    ]
}

fn estimate(cells: &[Record]) -> Target {
    let ours = [Downloader::MpH2, Downloader::Sized, Downloader::Known].map(|c| c.name(&[]));
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    let runs = runs.filter(|run| ours.contains(&run.contender));
    let waits: Vec<(f64, f64)> = runs.flat_map(|run| run.figures.waits.clone()).collect();
    let error =
        |(expected, took): &(f64, f64)| (*took > 0.0).then(|| (expected - took).abs() / took);
    let middle = median(waits.iter().filter_map(error));
    let measured = middle.map(|error| {
        (format!("{:.0} % in the median of {}", error * 100.0, waits.len()), error <= 0.2)
    });
    let name = "PING estimate against the response delay that followed".to_owned();
    target(name, "median error <= 20 %".to_owned(), measured)
}

/// The time from a path's failure to the end of the transfer, less 0.5 s, divided by the time that
/// the other path alone needs for the remaining bytes.
fn death(cells: &[Record]) -> Target {
    let name = Downloader::MpH2.name(&[]);
    let mut found = Vec::new();
    let mut lost = 0;
    for cell in cells.iter().filter(|cell| cell.part == "i") {
        let rate = median(cell.runs.iter().filter_map(|run| run.figures.rate));
        lost += cell.failures(|run| run.contender == name).0;
        let value = |run: &Figures| {
            let (at, left, rate) = (run.event_at?, run.remaining? as f64, rate?);
            (left > 0.0).then_some((run.seconds? - at - 0.5) / (left / rate))
        };
        let value = median(cell.values(|run| run.contender == name, value).into_values());
        found.extend(value.map(|value| Figure { place: cell.name.clone(), value }));
    }
    let what =
        "silent death of one path: (time to the end - 0.5 s) / (remaining bytes / surviving rate)";
    let target = each(what.to_owned(), Bound::AtMost(1.05), found);
    let wanted = format!("{}, no byte lost", target.wanted);
    let measured = format!("{}; {lost} failed", target.measured);
    match target.verdict {
        Verdict::NotMeasured => Target { wanted, ..target },
        Verdict::Met if lost > 0 => Target { wanted, measured, verdict: Verdict::Missed, ..target },
        _ => Target { wanted, measured, ..target },
    }
}

#[cfg(test)]
mod tests;
