//! Target values of `manyways get`, and whether they were met.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use manyways_rig::WebServer;
use manyways_rig::cell::Run;
use manyways_rig::download::Downloader;
use manyways_rig::sample::{best, median, ratio};
use manyways_rig::target::{Bound, Figure, Target, Verdict, as_measured, every_figure, target};
use manyways_unit::Size;

use super::plan::CHUNKS;
use super::record::{self, Figures, Record, by_round};

const HALF_MB: u64 = 512_000;
const MB: u64 = 1_000_000;
/// Additional bytes that a link may carry for an adjusted end, as a share of the object: PING
/// replies, and acknowledgements of the flow-control credit, which is granted in small steps.
const MAX_CONTROL_SHARE: f64 = 0.01;

/// Sizes of objects in bytes.
type Sizes = RangeInclusive<u64>;
const ALL: Sizes = 0..=u64::MAX;
const HALF: Sizes = HALF_MB..=HALF_MB;
const LARGE: Sizes = MB..=u64::MAX;
const ONE_MB: Sizes = MB..=MB;
const FOUR_MB: Sizes = 4 * MB..=4 * MB;
const LARGEST: Sizes = 20 * MB..=20 * MB;

/// The end of a target's name, its bound, the letters or names of its cells, and the objects.
type Row = (&'static str, Bound, &'static str, Sizes);

/// Targets with a figure for each object of each cell. `warm` selects cells by their connections.
fn rows(
    cells: &[Record],
    warm: Option<bool>,
    name: &str,
    figure: impl Fn(&Record, u64) -> Option<f64>,
    rows: &[Row],
) -> Vec<Target> {
    let heat = warm.map_or("", |warm| if warm { ", warm" } else { ", cold" });
    let target = |(end, bound, here, sizes): &Row| {
        let mut figures = Vec::new();
        for cell in cells.iter().filter(|cell| warm.is_none_or(|warm| warm == cell.extra.warm)) {
            let is_here = here.split(' ').any(|word| cell.part == word || cell.name == word);
            for bytes in record::sizes(cell).into_iter().filter(|_| is_here) {
                let place = format!("{}, {}", cell.name, Size::from_bytes(bytes));
                let value = figure(cell, bytes).filter(|_| sizes.contains(&bytes));
                figures.extend(value.map(|value| Figure { case: place, value }));
            }
        }
        every_figure(format!("{name}{end}{heat}"), *bound, figures)
    };
    rows.iter().map(target).collect()
}

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost, Higher, Median};
    let over_t = |cell: &Record, bytes, contender| {
        let ideal = by_round(&cell.extra.ideal, bytes);
        compared(&times(cell, contender, bytes), &ideal)
    };
    let over_ideal = |warm, contender: Downloader, bound| {
        let row = (" / T\\*, constant rates", AtMost(bound), "a c h", ALL);
        let over = |cell: &Record, bytes| over_t(cell, bytes, contender);
        rows(cells, Some(warm), &contender.name(&[]), over, &[row])
    };
    let over_ideal = |warm| {
        let all = [(Downloader::MpH2, 1.08), (Downloader::Sized, 1.05), (Downloader::Cached, 1.05)];
        all.map(|(contender, bound)| over_ideal(warm, contender, bound)).concat()
    };
    let of_a = [("1 MB and more", AtMost(0.98), "a", LARGE), ("512 KB", AtMost(1.0), "a", HALF)];
    let kernel = |warm| rows(cells, Some(warm), "mp-h2 / kernel MPTCP, (a), ", over_mptcp, &of_a);
    let homing = [("", AtLeast(0.05), "f", ALL)];
    let over_one = |cell: &Record, bytes| gain(cell, Downloader::OneServer, bytes);
    let homing = |warm| rows(cells, Some(warm), "multi-homing gain", over_one, &homing);
    let over_chunk = |cell: &Record, bytes| over(cell, bytes, [Downloader::FixedChunk(1024)]);
    let over_serial = |cell: &Record, bytes| gain(cell, Downloader::Serial, bytes);
    let rows = |name: &str, figure: &dyn Fn(&Record, u64) -> Option<f64>, all: &[Row]| {
        rows(cells, None, name, figure, all)
    };
    let chunks = ("best fixed-chunk of four sizes, (a)", Median(0.92, 1.02), "a", ALL);
    let fast = "a-18-32-warm a-18-32-cold";
    let largest = ("fixed-chunk 1 MiB at (18, 32)", AtMost(0.90), fast, ALL);
    let alone = [
        ("20 + 20", AtMost(0.56), "c-20-20", LARGEST),
        ("40 + 5", AtMost(0.95), "c-40-5", LARGEST),
        ("100 + 10", AtMost(0.97), "c-100-10", LARGEST),
        ("50 + 1", AtMost(1.02), "c-50-1", LARGEST),
        ("pairs", Median(0.75, 1.05), "b", LARGEST),
    ];
    let of_b = [("(b), 1 MB and more", AtMost(1.0), "b", LARGE)];
    let of_j = [("cold pairs (j)", Median(0.97, 1.05), "j", ALL)];
    let alone_cold = [
        ("cold pairs (j), 4 MB", Median(0.90, f64::INFINITY), "j", FOUR_MB),
        ("cold pairs (j), 1 MB", AtMost(1.03), "j", ONE_MB),
    ];
    let over_t = |cell: &Record, bytes| over_t(cell, bytes, Downloader::MpH2);
    let remembering = |cell: &Record, bytes| over_none(cell, bytes, Downloader::Remembering);
    let misled = |cell: &Record, bytes| over_none(cell, bytes, Downloader::Misled);
    [
        over_ideal(true),
        over_ideal(false),
        kernel(true),
        kernel(false),
        rows("mp-h2 / kernel MPTCP, ", &over_mptcp, &of_b),
        rows("mp-h2 / ", &over_best_chunk, &[chunks]),
        rows("mp-h2 / ", &over_chunk, &[largest]),
        rows("mp-h2 / best single path, 20 MB, ", &over_best_link, &alone),
        overshoot_targets(cells).into(),
        vec![pauses(cells)],
        rows("gain by pipelining, 2 MB", &over_serial, &[("", Higher, "e", ALL)]),
        vec![estimate(cells)],
        homing(true),
        homing(false),
        rows("abrupt drop (g) / kernel MPTCP", &over_mptcp, &[("", AtMost(1.04), "g", ALL)]),
        vec![path_failure(cells)],
        rows("mp-h2 / kernel MPTCP, ", &over_mptcp, &of_j),
        rows("mp-h2 / best single path, ", &over_best_link, &alone_cold),
        rows("mp-h2 / T\\*, cold pairs (j), ", &over_t, &[("4 MB", AtMost(1.08), "j", FOUR_MB)]),
        servers(cells).into(),
        rows("wrong estimates / none (l)", &misled, &[("", AtMost(1.03), "l", ALL)]),
        rows("right estimates / none (l)", &remembering, &[("", AtMost(0.95), "l", ALL)]),
        vec![duplicates(cells)],
    ]
    .concat()
}

fn times(cell: &Record, contender: Downloader, bytes: u64) -> BTreeMap<u32, f64> {
    record::times(cell, &contender.name(&[]), bytes)
}

fn compared(ours: &BTreeMap<u32, f64>, theirs: &BTreeMap<u32, f64>) -> Option<f64> {
    ratio(ours, theirs).map(|ratio| ratio.medians)
}

/// MP-H2's median divided by the best of others.
fn over_best(
    cell: &Record,
    bytes: u64,
    others: impl IntoIterator<Item = BTreeMap<u32, f64>>,
) -> Option<f64> {
    compared(&times(cell, Downloader::MpH2, bytes), &best(others, false))
}

fn over<const N: usize>(cell: &Record, bytes: u64, others: [Downloader; N]) -> Option<f64> {
    over_best(cell, bytes, others.map(|other| times(cell, other, bytes)))
}

fn gain(cell: &Record, without: Downloader, bytes: u64) -> Option<f64> {
    over(cell, bytes, [without]).map(|ratio| 1.0 - ratio)
}

fn over_mptcp(cell: &Record, bytes: u64) -> Option<f64> {
    over(cell, bytes, [Downloader::Mptcp, Downloader::MptcpCurl])
}

/// Compares with the link that had the smallest median alone.
fn over_best_link(cell: &Record, bytes: u64) -> Option<f64> {
    let alone = |link: &String| record::times(cell, &format!("{link} alone"), bytes);
    over_best(cell, bytes, cell.links.iter().map(alone))
}

/// Compares a contender with estimates with MP-H2 without.
fn over_none(cell: &Record, bytes: u64, with: Downloader) -> Option<f64> {
    compared(&times(cell, with, bytes), &times(cell, Downloader::MpH2, bytes))
}

/// The median and the slowest run of each web server, divided by nginx's median. A failed run is
/// infinitely slow.
fn servers(cells: &[Record]) -> [Target; 2] {
    let (mut medians, mut slowest) = (Vec::new(), Vec::new());
    for cell in cells.iter().filter(|cell| cell.part == "k") {
        for server in WebServer::ALL {
            let contender = match server {
                WebServer::Nginx => Downloader::MpH2,
                other => Downloader::From(other),
            };
            for bytes in record::sizes(cell) {
                let nginx = times(cell, Downloader::MpH2, bytes);
                let Some(usual) = median(nginx.values().copied()) else { continue };
                let name = contender.name(&[]);
                let is_meant =
                    |run: &&Run<Figures>| run.contender == name && run.figures.bytes == bytes;
                let runs = cell.runs.iter().filter(is_meant);
                let seconds = |run: &Run<Figures>| run.figures.seconds.unwrap_or(f64::INFINITY);
                let of = |value| Figure::new(server.name(), value / usual);
                slowest.extend(runs.map(seconds).max_by(f64::total_cmp).map(of));
                if server != WebServer::Nginx {
                    medians.extend(median(times(cell, contender, bytes).into_values()).map(of));
                }
            }
        }
    }
    [
        every_figure("web server / nginx, medians (k)", Bound::AtMost(1.03), medians),
        every_figure("slowest run / nginx's median (k)", Bound::AtMost(1.08), slowest),
    ]
}

/// The median share of bytes that arrived twice, of each contender and object over all links.
fn duplicates(cells: &[Record]) -> Target {
    let mut shares = Vec::new();
    for cell in cells.iter().filter(|cell| ["j", "k", "l"].contains(&&*cell.part)) {
        for bytes in record::sizes(cell) {
            let ours = record::contenders(cell, bytes).into_iter();
            for name in ours.filter(|name| name.starts_with("mp-h2")) {
                let is_meant =
                    |run: &Run<Figures>| run.contender == name && run.figures.bytes == bytes;
                let share = |run: &Figures| {
                    let twice: u64 = run.paths.iter().map(|path| path.duplicate_bytes).sum();
                    run.seconds.map(|_| twice as f64 / bytes as f64)
                };
                let place = format!("{}, {}, {name}", cell.name, Size::from_bytes(bytes));
                let share = median(cell.values(is_meant, share).into_values());
                shares.extend(share.map(|share| Figure::new(place, share)));
            }
        }
    }
    every_figure("duplicate bytes / size (j, k, l)", Bound::Median(0.02, 0.06), shares)
}

fn over_best_chunk(cell: &Record, bytes: u64) -> Option<f64> {
    let chunks = CHUNKS.map(Downloader::FixedChunk);
    let measured = chunks.iter().filter(|chunk| !times(cell, **chunk, bytes).is_empty()).count();
    // A single chunk size is not the best of several.
    over(cell, bytes, chunks).filter(|_| measured > 1)
}

/// Successful runs that ended before the end of the object. `how` is the suffix of the contender's
/// name.
fn cut_runs<'a>(
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
struct Overshoot {
    case: String,
    requested: u64,
    /// Median of the additional bytes.
    bytes: f64,
}

/// The additional bytes by link and object, and the maximum overshoot that the client received.
fn overshoot(cells: &[Record], how: &str) -> (Vec<Overshoot>, u64) {
    let mut by_place: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
    let mut seen = 0;
    for (cell, link, _, run) in cut_runs(cells, how) {
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
            let place = (format!("{} at {}", cell.links[link], Size::from_bytes(wanted)), wanted);
            by_place.entry(place).or_default().push(carried - usual);
        }
        seen = seen.max(run.paths.iter().map(|path| path.overshoot_bytes).sum());
    }
    let middle = |((place, wanted), values): ((String, u64), Vec<f64>)| {
        Some(Overshoot { case: place, requested: wanted, bytes: median(values)? })
    };
    (by_place.into_iter().filter_map(middle).collect(), seen)
}

fn overshoot_targets(cells: &[Record]) -> [Target; 3] {
    let told = |beyond: &[Overshoot]| {
        let one = |beyond: &Overshoot| format!("{}: {:.0} KB", beyond.case, beyond.bytes / 1000.0);
        beyond.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let (window, seen) = overshoot(cells, "window");
    let measured = format!(
        "the client saw {seen} B at most; the link carried more, control frames included: {}",
        told(&window)
    );
    let control = |beyond: &Overshoot| beyond.bytes <= beyond.requested as f64 * MAX_CONTROL_SHARE;
    let clean = seen == 0 && window.iter().all(control);
    let name = "bytes past an adjusted end, window";
    let window = target(name, "0", (!window.is_empty()).then_some((measured, clean)));
    let (reset, _) = overshoot(cells, "reset");
    let reset = as_measured("the same, reset", (!reset.is_empty()).then(|| told(&reset)));
    let of = |how: &str| -> BTreeMap<u32, f64> {
        let far = cut_runs(cells, how).filter(|(cell, link, _, run)| {
            cell.links[*link] == "fast" && run.stop == Some(10 * MB)
        });
        far.filter_map(|(_, _, round, run)| Some((round, run.seconds?))).collect()
    };
    let figure = ratio(&of("reset"), &of("window")).map(|all| Figure::new("10 MB", all.medians));
    let name = "rate with window / unrestricted, 100 Mbit/s × 65 ms";
    [window, reset, every_figure(name, Bound::AtLeast(0.98), figure.into_iter().collect())]
}

/// Maximum size of a TLS record's plaintext. No byte of a record is available before its last byte
/// has arrived.
const TLS_RECORD: f64 = 16_384.0;
/// The longest pause between two ranges that counts as none, in seconds.
const MAX_PAUSE: f64 = 0.010;

fn pauses(cells: &[Record]) -> Target {
    let name = Downloader::MpH2.name(&[]);
    let mut gaps = Vec::new();
    for cell in cells.iter().filter(|cell| cell.part == "e") {
        let record = |path: &str| {
            let link = cell.links.iter().position(|link| link == path)?;
            Some(TLS_RECORD * 8.0 / *cell.extra.link_bps.get(link)? as f64)
        };
        for run in cell.runs.iter().filter(|run| run.contender == name) {
            let both = |(path, gap): &(String, f64)| (*gap, record(path).unwrap_or_default());
            gaps.extend(run.figures.gaps.iter().map(both));
        }
    }
    let all = gaps.len().max(1) as f64;
    let raw = gaps.iter().filter(|(gap, _)| *gap <= MAX_PAUSE).count() as f64 / all;
    let idle = gaps.iter().filter(|(gap, record)| gap - record <= MAX_PAUSE).count() as f64 / all;
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
    target("iterations with at most 10 ms between two ranges, (e)", "90 %", measured)
}

fn estimate(cells: &[Record]) -> Target {
    let ours = [Downloader::MpH2, Downloader::Sized, Downloader::Cached].map(|c| c.name(&[]));
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    let runs = runs.filter(|run| ours.contains(&run.contender));
    let waits: Vec<(f64, f64)> = runs.flat_map(|run| run.figures.response_delays.clone()).collect();
    let error =
        |(expected, took): &(f64, f64)| (*took > 0.0).then(|| (expected - took).abs() / took);
    let middle = median(waits.iter().filter_map(error));
    let measured = middle.map(|error| {
        (format!("{:.0} % in the median of {}", error * 100.0, waits.len()), error <= 0.2)
    });
    let name = "PING estimate against the response delay that followed";
    target(name, "median error <= 20 %", measured)
}

/// The time from a path's failure to the end of the transfer, less 0.5 s, divided by the time that
/// the other path alone needs for the remaining bytes.
fn path_failure(cells: &[Record]) -> Target {
    let name = Downloader::MpH2.name(&[]);
    let mut found = Vec::new();
    let mut lost = 0;
    for cell in cells.iter().filter(|cell| cell.part == "i") {
        let rate = median(cell.runs.iter().filter_map(|run| run.figures.rate));
        lost += cell.failures(|run| run.contender == name).0;
        let value = |run: &Figures| {
            let (at, remaining, rate) = (run.event_at?, run.remaining? as f64, rate?);
            (remaining > 0.0).then_some((run.seconds? - at - 0.5) / (remaining / rate))
        };
        let value = median(cell.values(|run| run.contender == name, value).into_values());
        found.extend(value.map(|value| Figure::new(&cell.name, value)));
    }
    let what =
        "silent death of one path: (time to the end - 0.5 s) / (remaining bytes / surviving rate)";
    let target = every_figure(what, Bound::AtMost(1.05), found);
    let wanted = format!("{}, no byte lost", target.required);
    let measured = format!("{}; {lost} failed", target.measured);
    match target.verdict {
        Verdict::NotMeasured => Target { required: wanted, ..target },
        Verdict::Met if lost > 0 => {
            Target { required: wanted, measured, verdict: Verdict::Missed, ..target }
        }
        _ => Target { required: wanted, measured, ..target },
    }
}

#[cfg(test)]
mod tests;
