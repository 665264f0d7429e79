//! The plan: the cells with their links, objects and contenders.

use std::collections::BTreeSet;

use manyways_rig::download::Downloader;
use manyways_rig::links::{
    LTE_RTT, Pair, WIFI_RTT, blackhole, constant, fluid_bound, mean_rate, rate_drop, round_trip,
    total_rate, wifi_and_lte,
};
use manyways_rig::{WARM_UP, WebServer};
use manyways_trace::scenario::{HostSpec, LinkSpec};
use manyways_unit::{Rate, Size, Span};

use crate::options::Mode;

pub type Cell = manyways_rig::cell::Cell<Entry, Setting>;

/// Conditions that are specific to these cells.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Whether connections are warmed up before a transfer.
    pub warm: bool,
    /// Whether every round begins at the start of the traces, instead of [`ROUND_STEP`] after the
    /// previous one.
    pub is_repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub contender: Downloader,
    /// Size of the object.
    pub size: Size,
    /// Ends the transfer after this many bytes; `None` for the whole object.
    pub stop: Option<Size>,
}

impl manyways_rig::cell::Contender for Entry {
    fn name(&self, links: &[LinkSpec]) -> String {
        self.contender.name(links)
    }
}

/// Host name of the server. Its address may depend on the link.
pub const HOST_NAME: &str = "www.lab";
/// Offset in a trace between the starts of two rounds.
const ROUND_STEP: Span = Span::from_secs(11);
/// The largest object.
pub const MAX_SIZE: Size = Size::from_bytes(20_000_000);
const KB: u64 = 1_000;
const MB: u64 = 1_000_000;
/// Chunk sizes in KiB (MP-H2).
pub const CHUNKS: [u64; 4] = [1024, 512, 256, 128];
/// Sum of the mean rates of a scaled pair's links.
const SCALED_RATE: Rate = Rate::from_mbps(20);
/// Maximum number of measured pairs.
const MAX_PAIRS: usize = 8;
/// The pairs of the cold starts, from four walks.
const COLD_PAIRS: [&str; 5] = ["7_1", "8_1", "8_3", "11_1", "12_1"];
/// Smallest object that aria2 splits (`-k1M`).
const ARIA2_MIN_SIZE: u64 = 2 * MB;

const VARIANTS: [Downloader; 3] = [Downloader::MpH2, Downloader::Sized, Downloader::Cached];
const BASELINES: [Downloader; 2] = [Downloader::MpH2, Downloader::Mptcp];
/// Contenders of a full run over recorded pairs.
const RECORDED: [Downloader; 4] =
    [Downloader::MpH2, Downloader::Sized, Downloader::Mptcp, Downloader::FixedChunk(1024)];

/// The cells in the order of their runs. A quick run includes the cells with a name in `words` too.
pub fn plan(mode: Mode, words: &[String], pairs: &[Pair]) -> Vec<Cell> {
    let parts = [
        part_a(mode),
        part_b(mode, pairs),
        part_c(mode),
        part_d(),
        part_e(mode),
        part_f(mode),
        part_g(mode),
        part_h(mode),
        part_i(mode),
        part_j(pairs),
        part_k(),
        part_l(),
    ];
    let mut cells: Vec<Cell> = parts.into_iter().flatten().collect();
    if mode == Mode::Quick {
        let looks = ["a-10-5-warm", "a-10-5-cold", "c-40-5", "d", "e-10-5", "g", "i-wifi"];
        let first_pair = cells.iter().find(|cell| cell.part == 'b').map(|cell| cell.name.clone());
        cells.retain(|cell| {
            let is_look = looks.contains(&&*cell.name) || Some(&cell.name) == first_pair.as_ref();
            is_look || words.contains(&cell.name)
        });
    }
    for cell in &mut cells {
        cell.rounds = match (mode, cell.part) {
            (Mode::Quick, _) | (_, 'j') => 3,
            (Mode::Full, 'a'..='i') => 15,
            // The eight pairs are repetitions of one question.
            (Mode::Default, 'b') => 5,
            _ => 8,
        };
    }
    cells
}

const fn size(bytes: u64) -> Size {
    Size::from_bytes(bytes)
}

/// Entries of these contenders with an object of `bytes` bytes.
fn fetch(contenders: &[Downloader], bytes: u64) -> Vec<Entry> {
    let size = size(bytes);
    contenders.iter().map(|contender| Entry { contender: *contender, size, stop: None }).collect()
}

/// Fixed chunks that are smaller than an object; one path would fetch a larger chunk alone.
fn chunks(bytes: u64) -> Vec<Entry> {
    let fitting = CHUNKS.into_iter().filter(|kib| kib * 1024 < bytes);
    fetch(&fitting.map(Downloader::FixedChunk).collect::<Vec<_>>(), bytes)
}

/// Each link alone. The fastest link fetches the whole object; each other link only the bytes that
/// T\* can need, or the whole object too if `whole`.
fn single_links(links: &[LinkSpec], bytes: u64, whole: bool) -> Vec<Entry> {
    let fastest = (0..links.len()).rev().max_by_key(|index| mean_rate(&links[*index]));
    let enough = |index: usize| {
        let bound = fluid_bound(links, Span::ZERO, &[], size(bytes))?;
        let span = Span::from_secs_f64(bound * 1.15 + 0.5);
        let enough = mean_rate(&links[index]).size_in(span);
        (!whole && Some(index) != fastest && enough.as_bytes() < bytes * 9 / 10).then_some(enough)
    };
    let entry = |index| Entry {
        contender: Downloader::Single(index),
        size: size(bytes),
        stop: enough(index),
    };
    (0..links.len()).map(entry).collect()
}

/// A host with the name [`HOST_NAME`], for one link or for all.
fn host(name: &str, link: Option<&str>) -> HostSpec {
    let names = vec![(HOST_NAME.to_owned(), link.map(str::to_owned))];
    HostSpec { name: name.to_owned(), names, ..HostSpec::default() }
}

fn warm_or_cold(warm: bool) -> &'static str {
    if warm { "warm" } else { "cold" }
}

fn cell(
    part: char,
    name: impl Into<String>,
    links: Vec<LinkSpec>,
    warm: bool,
    entries: Vec<Entry>,
) -> Cell {
    let cell = Cell::over(part, name, links, entries);
    let title = format!("{}; {} connections", cell.title, warm_or_cold(warm));
    let setting = Setting { warm, is_repeated: false };
    Cell { title, hosts: vec![host("origin", None)], setting, ..cell }
}

/// The two rivals, and further contenders of a full run.
fn rivals(mode: Mode, further: &[Downloader]) -> Vec<Downloader> {
    if mode == Mode::Full { [&BASELINES, further].concat() } else { BASELINES.into() }
}

fn part_a(mode: Mode) -> Vec<Cell> {
    const SLOW: [u64; 4] = [512 * KB, MB, 2 * MB, 4 * MB];
    const FAST: [u64; 3] = [5 * MB, 10 * MB, 20 * MB];
    let settings: [(u64, u64, &[u64]); 4] =
        [(5, 5, &SLOW), (5, 10, &SLOW), (10, 5, &SLOW), (18, 32, &FAST)];
    let mut cells = Vec::new();
    for warm in [true, false] {
        for (wifi, lte, all) in settings {
            let links = wifi_and_lte(wifi, lte);
            let entries = match mode {
                Mode::Full => every_size(&links, all, warm),
                _ => some_sizes(&links, (wifi, lte), warm),
            };
            if !entries.is_empty() {
                let name = format!("a-{wifi}-{lte}-{}", warm_or_cold(warm));
                cells.push(cell('a', name, links, warm, entries));
            }
        }
    }
    cells
}

fn every_size(links: &[LinkSpec], sizes: &[u64], warm: bool) -> Vec<Entry> {
    let others = [Downloader::EqualSplit, Downloader::Mptcp, Downloader::MptcpCurl];
    let mut entries = Vec::new();
    for bytes in sizes {
        entries.extend(fetch(&VARIANTS, *bytes));
        entries.extend(chunks(*bytes));
        entries.extend(fetch(&others, *bytes));
        // aria2 starts a new process for each object, so its connections are never warm.
        if !warm && *bytes >= ARIA2_MIN_SIZE {
            entries.extend(fetch(&[Downloader::Aria2], *bytes));
        }
    }
    let largest = sizes.iter().copied().max().unwrap_or_default();
    entries.extend(single_links(links, largest, false));
    entries.extend(fetch(&[Downloader::Curl(0), Downloader::Curl(1)], largest));
    entries
}

/// A selection of sizes, so that the default run takes at most an hour.
fn some_sizes(links: &[LinkSpec], rates: (u64, u64), warm: bool) -> Vec<Entry> {
    let whole = |bytes: u64| {
        [fetch(&VARIANTS, bytes), chunks(bytes), fetch(&[Downloader::Mptcp], bytes)].concat()
    };
    let (mut entries, largest) = match (rates, warm) {
        ((5, 5) | (10, 5), true) => (whole(MB), MB),
        ((5, 10), true) => (whole(512 * KB), 512 * KB),
        ((18, 32), true) => (whole(5 * MB), 5 * MB),
        ((10, 5), false) => {
            let some = [Downloader::MpH2, Downloader::Sized, Downloader::Mptcp, Downloader::Aria2];
            (fetch(&some, 2 * MB), 2 * MB)
        }
        _ => return Vec::new(),
    };
    entries.extend(single_links(links, largest, false));
    entries
}

/// Recorded pairs: with large objects unchanged, with small objects scaled down.
fn part_b(mode: Mode, pairs: &[Pair]) -> Vec<Cell> {
    let mut cells = Vec::new();
    // Spread over the list, because neighbours are recordings of the same walk.
    for index in 0..MAX_PAIRS.min(pairs.len()) {
        let pair = &pairs[index * pairs.len() / MAX_PAIRS.min(pairs.len())];
        let links = pair.links();
        let some: &[Downloader] = if mode == Mode::Full { &RECORDED } else { &BASELINES };
        let mut entries = fetch(some, 20 * MB);
        if mode == Mode::Full {
            entries.extend(fetch(some, 4 * MB));
        }
        entries.extend(single_links(&links, 20 * MB, true));
        cells.push(cell('b', format!("b-{}", pair.name), links, true, entries));
        if mode == Mode::Full {
            let links = pair.scaled_links(SCALED_RATE);
            // Scaled pairs have smaller objects, and so smaller chunks.
            let mut entries = Vec::new();
            for bytes in [512 * KB, MB] {
                entries.extend(fetch(&RECORDED[..3], bytes));
                entries.extend(fetch(&[Downloader::FixedChunk(256)], bytes));
            }
            entries.extend(fetch(&RECORDED, 2 * MB));
            entries.extend(single_links(&links, 2 * MB, true));
            cells.push(cell('b', format!("b-{}-slow", pair.name), links, true, entries));
        }
    }
    cells
}

/// Unequal paths.
fn part_c(mode: Mode) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (wifi, lte) in [(40, 5), (50, 1), (20, 20), (100, 10)] {
        let links = wifi_and_lte(wifi, lte);
        let alone = single_links(&links, 20 * MB, false);
        let entries = [fetch(&rivals(mode, &VARIANTS[1..]), 20 * MB), alone.clone()].concat();
        cells.push(cell('c', format!("c-{wifi}-{lte}"), links.clone(), true, entries));
        if mode == Mode::Full {
            let entries = [fetch(&rivals(mode, &[Downloader::Aria2]), 20 * MB), alone].concat();
            cells.push(cell('c', format!("c-{wifi}-{lte}-cold"), links, false, entries));
        }
    }
    cells
}

/// Overshoot after an adjusted end, and the cost of the adjustment.
fn part_d() -> Vec<Cell> {
    let links = vec![
        constant("wifi", 10, WIFI_RTT),
        constant("lte", 5, LTE_RTT),
        constant("fast", 100, LTE_RTT),
    ];
    let mut entries = Vec::new();
    for (link, wanted) in [(0, MB), (1, MB), (2, MB), (2, 10 * MB)] {
        // A download of the whole smaller object shows what the link carries in any case.
        entries.extend(fetch(&[Downloader::Single(link)], wanted));
        for contender in [Downloader::Window(link), Downloader::Reset(link)] {
            entries.push(Entry { contender, size: size(2 * wanted), stop: Some(size(wanted)) });
        }
    }
    vec![cell('d', "d", links, false, entries)]
}

/// With and without pipelining.
fn part_e(mode: Mode) -> Vec<Cell> {
    // A TLS record is available only at its end, which takes 13 ms at 10 Mbit/s: the remaining
    // pauses are visible at higher rates.
    let settings = [(10, 5), (18, 32), (5, 10)];
    let settings = if mode == Mode::Full { &settings[..] } else { &settings[..2] };
    let of = |(wifi, lte): &(u64, u64)| {
        let entries = fetch(&[Downloader::MpH2, Downloader::Serial], 2 * MB);
        cell('e', format!("e-{wifi}-{lte}"), wifi_and_lte(*wifi, *lte), true, entries)
    };
    settings.iter().map(of).collect()
}

/// Two servers. The one that Wi-Fi resolves has a 20 ms longer round-trip time over LTE.
fn part_f(mode: Mode) -> Vec<Cell> {
    let far = HostSpec {
        extra_delay: vec![("lte".to_owned(), Span::from_millis(10))],
        ..host("far", Some("wifi"))
    };
    // The first host is also the name server, which must be near.
    let hosts = vec![host("near", Some("lte")), far];
    let settings: &[_] =
        if mode == Mode::Full { &[(5, 5), (5, 10), (10, 5)] } else { &[(5, 10), (10, 5)] };
    let temperatures: &[bool] = if mode == Mode::Full { &[true, false] } else { &[true] };
    let of = |(wifi, lte): (u64, u64), warm: bool| {
        let both = [Downloader::MpH2, Downloader::OneServer];
        let entries = [fetch(&both, 512 * KB), fetch(&both, MB)].concat();
        let links = wifi_and_lte(wifi, lte);
        let name = format!("f-{wifi}-{lte}-{}", warm_or_cold(warm));
        let cell = cell('f', name, links, warm, entries);
        let title = format!("{}; Wi-Fi's server is 20 ms farther from LTE", cell.title);
        Cell { hosts: hosts.clone(), title, ..cell }
    };
    let every = settings.iter().flat_map(|rates| temperatures.iter().map(|warm| (*rates, *warm)));
    every.map(|(rates, warm)| of(rates, warm)).collect()
}

/// One path becomes slow.
fn part_g(mode: Mode) -> Vec<Cell> {
    let entries = fetch(&rivals(mode, &VARIANTS[1..]), 2 * MB);
    let cell = cell('g', "g", wifi_and_lte(5, 5), true, entries);
    let at = Span::from_millis(1050);
    let title = format!("{}; LTE falls to 1 Mbit/s after {at}", cell.title);
    vec![Cell { title, events: vec![rate_drop("lte", at, Rate::from_mbps(1))], ..cell }]
}

/// Three paths.
fn part_h(mode: Mode) -> Vec<Cell> {
    let mut links = wifi_and_lte(10, 5);
    links.push(constant("eth", 20, Span::from_millis(40)));
    let further = [Downloader::Sized, Downloader::FixedChunk(512), Downloader::FixedChunk(256)];
    let some = fetch(&rivals(mode, &further), 4 * MB);
    let entries = [some, single_links(&links, 4 * MB, false)].concat();
    vec![cell('h', "h", links, true, entries)]
}

/// One path becomes silent.
fn part_i(mode: Mode) -> Vec<Cell> {
    let of = |(dead, survivor): (&str, usize)| {
        let some = if mode == Mode::Full { &BASELINES[..] } else { &BASELINES[..1] };
        // The rate of the surviving link, as a client measures it.
        let alone = fetch(&[Downloader::Single(survivor)], MB);
        let entries = [fetch(some, 4 * MB), alone].concat();
        let cell = cell('i', format!("i-{dead}"), wifi_and_lte(10, 5), true, entries);
        let at = Span::from_secs(1);
        let title = format!("{}; {dead} goes silent after {at}", cell.title);
        Cell { title, events: vec![blackhole(dead, at)], ..cell }
    };
    [("wifi", 1), ("lte", 0)].map(of).into()
}

/// Cold starts at the beginning of recorded pairs.
fn part_j(pairs: &[Pair]) -> Vec<Cell> {
    let pair = |name: &&str| pairs.iter().find(|pair| pair.name == *name);
    let of = |pair: &Pair| cold_pair(&pair.name, pair.links());
    COLD_PAIRS.iter().filter_map(pair).map(of).collect()
}

fn cold_pair(name: &str, links: Vec<LinkSpec>) -> Cell {
    let (both, alone) =
        ([Downloader::MpH2, Downloader::MptcpCurl], single_links(&links, 4 * MB, true));
    let entries = [fetch(&both, MB), fetch(&both, 4 * MB), alone].concat();
    let cell = cell('j', format!("j-{name}"), links, false, entries);
    Cell { setting: Setting { is_repeated: true, ..cell.setting }, ..cell }
}

/// Other web servers than nginx.
fn part_k() -> Vec<Cell> {
    let links = vec![constant("wifi", 10, WIFI_RTT), constant("lte", 5, Span::from_millis(64))];
    let others = WebServer::ALL.into_iter().filter(|server| *server != WebServer::Nginx);
    let from: Vec<_> =
        std::iter::once(Downloader::MpH2).chain(others.map(Downloader::From)).collect();
    vec![cell('k', "k", links, false, fetch(&from, 8 * MB))]
}

/// Path estimates of the same conditions and of others.
fn part_l() -> Vec<Cell> {
    let all = [Downloader::MpH2, Downloader::Remembering, Downloader::Misled];
    let of = |(wifi, lte): (u64, u64)| {
        let entries = [fetch(&all, 512 * KB), fetch(&all, 4 * MB)].concat();
        cell('l', format!("l-{wifi}-{lte}"), wifi_and_lte(wifi, lte), false, entries)
    };
    [(5, 40), (40, 5)].map(of).into()
}

/// Offset in the traces at which a round begins.
pub fn offset(cell: &Cell, round: u32) -> Span {
    if cell.setting.is_repeated { Span::ZERO } else { cell.offset(round, ROUND_STEP) }
}

/// Whether a contender uses cached path estimates, and whether they are from a time when the links
/// had each other's rates; `None` if it uses none.
pub fn swapped_estimates(contender: Downloader) -> Option<bool> {
    match contender {
        Downloader::Cached | Downloader::Remembering => Some(false),
        Downloader::Misled => Some(true),
        _ => None,
    }
}

/// The web servers other than nginx that a cell needs.
pub fn other_servers(cell: &Cell) -> Vec<WebServer> {
    let server = |entry: &Entry| match entry.contender {
        Downloader::From(server) => Some(server),
        _ => None,
    };
    cell.contenders.iter().filter_map(server).collect()
}

/// Sorted sizes of all objects that a contender fetches over all links.
pub fn sizes(cell: &Cell) -> Vec<Size> {
    let shared = |entry: &&Entry| entry.contender.links(&cell.links).len() == cell.links.len();
    let mut sizes: Vec<Size> = cell.contenders.iter().filter(shared).map(|e| e.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Size of an object whose transfer takes about 2 s, which is long enough to read its sockets.
pub fn sample(cell: &Cell) -> Size {
    total_rate(&cell.links).size_in(Span::from_secs(2)).min(MAX_SIZE)
}

/// Estimated duration of a cell in seconds.
pub fn seconds_of_all(cell: &Cell) -> f64 {
    let round: f64 = cell.contenders.iter().map(|entry| seconds(cell, entry)).sum();
    let swapped = |entry: &Entry| swapped_estimates(entry.contender);
    let caches = cell.contenders.iter().filter_map(swapped).collect::<BTreeSet<_>>().len() as f64;
    let prime = |link: &LinkSpec| Rate::time_for(mean_rate(link), PRIMER_SIZE).as_secs_f64() + 0.5;
    let primed = caches * cell.links.iter().map(prime).sum::<f64>();
    // Each server starts, and serves a transfer in which its sockets are read.
    let others = 3.5 * other_servers(cell).len() as f64;
    let tried = if cell.is_constant() { 0.0 } else { 1.5 * cell.contenders.len() as f64 };
    7.0 + primed + others + tried + round * f64::from(cell.rounds)
}

/// Estimated duration of one entry in seconds.
pub fn seconds(cell: &Cell, entry: &Entry) -> f64 {
    let links = entry.contender.links(&cell.links);
    let bytes = entry.stop.unwrap_or(entry.size);
    let offset = offset(cell, 0);
    let moved = fluid_bound(links, offset, &cell.events, bytes).unwrap_or(60.0);
    let waits = match entry.contender {
        // Each request costs a round trip, and other requests do not overlap with the last one.
        Downloader::FixedChunk(_) | Downloader::EqualSplit => 1.3,
        Downloader::Aria2 => 1.5,
        _ => 1.1,
    };
    // Name resolution, connection, TLS and request, and the growth of the congestion window.
    let dial = |link: &LinkSpec, bytes| {
        let trips = round_trip(link).as_secs_f64() * 4.0;
        trips + mean_rate(link).time_for(bytes).as_secs_f64()
    };
    let ahead: f64 = match (cell.setting.warm, entry.contender.is_mptcp()) {
        (true, false) => {
            let warmed = entry.contender.listed_links(&cell.links, true);
            warmed.iter().map(|link| dial(link, WARM_UP)).sum()
        }
        (true, true) => links.first().map_or(0.0, |link| dial(link, WARM_UP)),
        (false, _) => links.iter().map(|link| dial(link, Size::ZERO)).fold(0.0, f64::max),
    };
    0.3 + ahead + moved * waits
}

/// Size of the object that fills the cache of path estimates, over each path.
pub const PRIMER_SIZE: Size = size(4 * MB);

#[cfg(test)]
mod tests {
    use manyways_rig::links::link;
    use manyways_trace::scenario::CapacitySpec;
    use manyways_trace::{LinkTrace, Steps};

    use super::*;

    fn of(mode: Mode, cells: &[String]) -> Vec<Cell> {
        let mut all = plan(mode, cells, &[]);
        all.retain(|cell| cell.is_selected(cells));
        all
    }

    fn find<'a>(cells: &'a [Cell], name: &str) -> &'a Cell {
        cells.iter().find(|cell| cell.name == name).unwrap()
    }

    #[test]
    fn a_default_run_is_over_within_an_hour() {
        let mut seconds: f64 = of(Mode::Default, &[]).iter().map(seconds_of_all).sum();
        // Eight pairs of 45 + 30 Mbit/s, whose recordings a test does not have.
        let links = wifi_and_lte(30, 45);
        let entries = [fetch(&BASELINES, 20 * MB), single_links(&links, 20 * MB, true)].concat();
        let pair = Cell { rounds: 5, ..cell('b', "b", links, true, entries) };
        seconds += 8.0 * seconds_of_all(&pair);
        seconds += cold_pairs(3);
        assert!((1800.0..3500.0).contains(&seconds), "{seconds}");
    }

    /// Seconds of the cold starts, on pairs of 45 + 30 Mbit/s.
    fn cold_pairs(rounds: u32) -> f64 {
        let cell = Cell { rounds, ..cold_pair("", wifi_and_lte(30, 45)) };
        COLD_PAIRS.len() as f64 * seconds_of_all(&cell)
    }

    #[test]
    fn cold_starts_servers_and_estimates_alone_take_a_quarter_of_an_hour() {
        let words = ["j", "k", "l"].map(str::to_owned);
        let cells = of(Mode::Default, &words);
        assert!(cells.iter().all(|cell| cell.rounds == 8));
        let seconds = cells.iter().map(seconds_of_all).sum::<f64>() + cold_pairs(3);
        assert!((300.0..900.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn estimates_of_each_kind_cost_a_transfer_over_each_link() {
        let cells = of(Mode::Full, &["l".to_owned()]);
        let both = find(&cells, "l-5-40");
        let one = both.contenders.iter().filter(|entry| entry.contender != Downloader::Misled);
        let one = Cell { contenders: one.copied().collect(), rounds: 0, ..both.clone() };
        let both = Cell { rounds: 0, ..both.clone() };
        // 4 MB at 5 and at 40 Mbit/s, and half a second for each.
        assert!((seconds_of_all(&both) - seconds_of_all(&one) - 8.2).abs() < 0.1);
    }

    #[test]
    fn a_round_of_a_cold_pair_begins_at_the_start_of_the_traces() {
        let steps = Steps::new(vec![(Span::ZERO, Rate::from_mbps(1))], Span::from_secs(100));
        let trace = LinkTrace::Rates(steps.unwrap());
        let capacity = CapacitySpec::Trace { source: String::new(), trace };
        let links = vec![link("wifi", capacity, Rate::from_mbps(1), WIFI_RTT)];
        let cold = cold_pair("7_1", links.clone());
        assert_eq!((offset(&cold, 0), offset(&cold, 2)), (Span::ZERO, Span::ZERO));
        let warm = cell('b', "b", links, true, Vec::new());
        assert_eq!((offset(&warm, 0), offset(&warm, 2)), (Span::ZERO, ROUND_STEP * 2));
    }

    #[test]
    fn every_part_is_in_every_full_run_and_names_are_unique() {
        for mode in [Mode::Default, Mode::Full] {
            let cells = of(mode, &[]);
            let parts: BTreeSet<char> = cells.iter().map(|cell| cell.part).collect();
            assert_eq!(parts.into_iter().collect::<String>(), "acdefghikl");
            let names: BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
            assert_eq!(names.len(), cells.len());
            for cell in &cells {
                let entries: Vec<_> = cell.contenders.iter().collect();
                let twice = |(i, e): (usize, &&Entry)| entries[..i].contains(e);
                assert!(!entries.iter().enumerate().any(twice), "{}", cell.name);
            }
        }
    }

    #[test]
    fn a_cell_can_be_chosen_by_letter_and_by_name() {
        let names = |cells: &[&str]| {
            let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
            of(Mode::Full, &cells).into_iter().map(|cell| cell.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["g", "c-50-1"]), ["c-50-1", "g"]);
        assert!(names(&["z"]).is_empty());
    }

    #[test]
    fn a_chunk_is_smaller_than_its_object() {
        let name = |entry: &Entry| entry.contender.name(&[]);
        let kib = |bytes| chunks(bytes).iter().map(name).collect::<Vec<_>>();
        assert_eq!(kib(512 * KB), ["fixed-chunk 256 KiB", "fixed-chunk 128 KiB"]);
        assert_eq!(kib(2 * MB).len(), 4);
    }

    #[test]
    fn a_slow_path_alone_is_not_waited_for() {
        let cells = of(Mode::Default, &[]);
        let unequal = find(&cells, "c-50-1");
        let alone = |link| {
            let contender = Downloader::Single(link);
            *unequal.contenders.iter().find(|entry| entry.contender == contender).unwrap()
        };
        assert_eq!(alone(0).stop, None);
        // 3.2 s over both links, plus 15 % and 0.5 s.
        let enough = alone(1).stop.unwrap().as_bytes();
        assert!((450_000..600_000).contains(&enough), "{enough}");
        assert_eq!(sizes(find(&cells, "a-5-5-warm")), [size(MB)]);
        assert!(sizes(find(&cells, "d")).is_empty());
    }
}
