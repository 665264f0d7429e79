//! The plan: the cells with their links, contenders and tasks.

use manyways_rig::links::{Pair, constant, describe, mean_rate, round_trip};
use manyways_trace::scenario::{DelaySpec, DirectionSpec, HostSpec, LinkSpec, LinkState, LossSpec};
use manyways_unit::{Rate, Size, Span};

use super::contender::{BOND, By, Contender};
use super::task::Task;
use crate::traffic::web::PAGES;

/// A cell; each of its hosts has a server, and a gateway if a contender needs one.
pub type Cell = manyways_rig::cell::Cell<Entry, Setting>;

/// Conditions that are specific to these cells.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Think time of the servers for requests over a bond.
    pub think: Span,
    /// Whether no link is used.
    pub on_loopback: bool,
}

/// One run of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub contender: Contender,
    pub task: Task,
}

impl manyways_rig::cell::Contender for Entry {
    fn name(&self, links: &[LinkSpec]) -> String {
        self.contender.name(links)
    }
}

const KB: u64 = 1_000;
const MB: u64 = 1_000_000;
/// Default number of rounds.
const ROUNDS: u32 = 15;
/// Rounds of the cells that compare schedulers.
const SCHEDULER_ROUNDS: u32 = 5;
/// Rounds of the cell with the longest rounds, and of the cells that read counters.
const PAGE_ROUNDS: u32 = 9;
const APPS_ROUNDS: u32 = 5;
const PAIR_ROUNDS: u32 = 3;
/// Duration of the four applications.
const APPS: Span = Span::from_secs(20);
/// Part of a recorded pair that one round uses: three rounds use about a whole recording of 99 s.
pub const RECORDED: Span = Span::from_secs(30);
/// Duration of a bulk transfer at full rate.
const BULK: Span = Span::from_secs(6);
/// Sizes of single files.
pub const SIZES: [u64; 7] = [10 * KB, 50 * KB, 100 * KB, 500 * KB, MB, 5 * MB, 10 * MB];
/// Above this size, single paths are omitted: they are far slower.
const LARGEST_ALONE: u64 = MB;
/// Number of idle streams of the target.
pub const CROWD: u32 = 20_000;
/// All schedulers; the first is the default.
pub const SCHEDULERS: [&str; 5] = ["buffer-aware", "minrtt", "round-robin", "single", "ecf"];

const MPTCP: [Contender; 2] = [Contender::Mptcp(0), Contender::Mptcp(1)];
const SPLICED: [Contender; 2] = [Contender::Spliced(0), Contender::Spliced(1)];
const DIRECT: [Contender; 2] = [Contender::Direct(0), Contender::Direct(1)];

/// The cells in the order of their runs.
pub fn plan(recorded: &[Pair]) -> Vec<Cell> {
    let parts = [
        files(),
        flows(),
        requests(),
        places(),
        sums(),
        unequal(),
        stalls(),
        lossy(),
        calls(),
        loopback(),
        schedulers(),
        pages(),
        four_apps(),
        pairs(recorded),
    ];
    parts.into_iter().flatten().collect()
}

/// Wi-Fi and LTE of the paper.
pub fn paper() -> Vec<LinkSpec> {
    let link = |name: &str, down: u64, up: u64, round_trip: u64| {
        let link = constant(name, 1, Span::from_millis(round_trip));
        let at = |kbps: u64, way: DirectionSpec| DirectionSpec {
            capacity: manyways_trace::scenario::CapacitySpec::Constant(Rate::from_kbps(kbps)),
            ..way
        };
        LinkSpec { down: at(down, link.down.clone()), up: at(up, link.up.clone()), ..link }
    };
    vec![link("wifi", 7_040, 2_020, 50), link("lte", 9_185, 2_286, 70)]
}

/// Links of other rates in Mbit/s, with the round-trip times of the paper.
fn wifi_and_lte(wifi: u64, lte: u64) -> Vec<LinkSpec> {
    let trip = Span::from_millis;
    vec![constant("wifi", wifi, trip(50)), constant("lte", lte, trip(70))]
}

fn each(contenders: &[&[Contender]], task: Task) -> Vec<Entry> {
    let all = contenders.iter().copied().flatten();
    all.map(|contender| Entry { contender: *contender, task }).collect()
}

fn cell(part: char, name: &str, links: Vec<LinkSpec>, contenders: Vec<Entry>) -> Cell {
    let described: Vec<_> = links.iter().map(describe).collect();
    let (name, title) = (name.to_owned(), described.join(" + "));
    let hosts = vec![host("origin", [0.0, 0.0])];
    Cell { name, part, title, links, hosts, contenders, rounds: ROUNDS, ..Cell::default() }
}

/// A host with a round-trip time that is longer by these milliseconds over Wi-Fi and LTE.
fn host(name: &str, farther: [f64; 2]) -> HostSpec {
    let extra = |link: &str, millis: f64| (link.to_owned(), Span::from_secs_f64(millis / 2000.0));
    let [wifi, lte] = farther;
    HostSpec {
        name: name.to_owned(),
        extra_delay: vec![extra("wifi", wifi), extra("lte", lte)],
        names: Vec::new(),
        serve: Vec::new(),
    }
}

fn files() -> Vec<Cell> {
    let mut entries = Vec::new();
    for bytes in SIZES {
        entries.extend(each(&[&[BOND], &MPTCP], Task::file(bytes)));
        if bytes <= LARGEST_ALONE {
            entries.extend(each(&[&SPLICED, &DIRECT], Task::file(bytes)));
        }
    }
    vec![cell('a', "files", paper(), entries)]
}

fn flows() -> Vec<Cell> {
    let of = |(name, size): (&str, u64)| {
        let size = Size::from_bytes(size);
        let mut entries = Vec::new();
        for flows in [5, 10, 20, 50] {
            for at_once in [1, flows] {
                let task = Task::Files { size, flows, at_once };
                entries.extend(each(&[&[BOND], &MPTCP, &DIRECT], task));
            }
        }
        cell('b', name, paper(), entries)
    };
    [("flows-10-kb", 10 * KB), ("flows-100-kb", 100 * KB)].map(of).into()
}

fn requests() -> Vec<Cell> {
    let task = Task::Requests {
        size: Size::from_bytes(10 * KB),
        every: Span::from_millis(200),
        count: 30,
        keep: false,
        bulk: true,
    };
    vec![cell('c', "requests", paper(), each(&[&[BOND], &MPTCP, &DIRECT], task))]
}

/// The four proxy locations of the paper, and the server of the contenders without a proxy: 4 ms
/// beyond the first location.
fn places() -> Vec<Cell> {
    let trip = Span::from_millis;
    let at = |name: &str, trip: Span| {
        let half = DelaySpec::Constant(Span::from_nanos(trip.as_nanos() / 2));
        let link = paper().into_iter().find(|link| link.name == name).unwrap_or(paper().remove(0));
        let with = |way: DirectionSpec| DirectionSpec { delay: half.clone(), ..way };
        LinkSpec { down: with(link.down.clone()), up: with(link.up.clone()), ..link }
    };
    let hosts = vec![
        host("a", [0.0, 0.0]),
        host("b", [17.0, 17.0]),
        host("c", [54.0, 51.0]),
        host("d", [104.0, 99.0]),
        host("near-a", [4.0, 4.0]),
    ];
    let bonds = [0, 1, 2, 3].map(|host| Contender::Bond { by: By::Default, host });
    let kernel = [Contender::MptcpDirect(0), Contender::MptcpDirect(1)];
    let size = Size::from_bytes(50 * KB);
    let tasks = [
        Task::file(50 * KB),
        Task::Files { size, flows: 10, at_once: 10 },
        Task::Files { size, flows: 10, at_once: 1 },
        Task::file(5 * MB),
    ];
    let entries = tasks.into_iter().flat_map(|task| each(&[&bonds, &kernel], task)).collect();
    let links = vec![at("wifi", trip(27)), at("lte", trip(49))];
    let cell = cell('d', "places", links, entries);
    let title = format!(
        "{} to the gateway at A; 44/66 ms to B, 81/100 ms to C, 131/148 ms to D; 4 ms from each to \
         the server",
        cell.title
    );
    // The gateway's handshake with the server and the request each take these 4 ms.
    let setting = Setting { think: Span::from_millis(8), ..Setting::default() };
    vec![Cell { hosts, title, setting, ..cell }]
}

fn sums() -> Vec<Cell> {
    let of = |(wifi, lte): (u64, u64)| {
        let entries = each(&[&[BOND], &MPTCP, &DIRECT], Task::Bulk(BULK));
        cell('e', &format!("sum-{wifi}-{lte}"), wifi_and_lte(wifi, lte), entries)
    };
    [(8, 10), (40, 20), (100, 50)].map(of).into()
}

fn unequal() -> Vec<Cell> {
    let entries = || each(&[&[BOND], &MPTCP, &DIRECT], Task::Bulk(BULK));
    vec![
        cell('f', "unequal-40-5", wifi_and_lte(40, 5), entries()),
        cell('f', "unequal-100-5", wifi_and_lte(100, 5), entries()),
        cell('f', "delays-50-50", unlike_delays(), entries()),
    ]
}

fn unlike_delays() -> Vec<LinkSpec> {
    let trip = Span::from_millis;
    vec![constant("wifi", 50, trip(10)), constant("lte", 50, trip(200))]
}

fn stalls() -> Vec<Cell> {
    let tasks = [LinkState::NoCarrier, LinkState::Silent].map(Task::Stall);
    let entries = tasks.into_iter().flat_map(|task| each(&[&[BOND], &MPTCP], task)).collect();
    vec![cell('g', "stalls", paper(), entries)]
}

fn lossy() -> Vec<Cell> {
    let links = paper().into_iter().map(|link| {
        let with = |way: DirectionSpec| DirectionSpec { loss: LossSpec::Independent(0.02), ..way };
        LinkSpec { down: with(link.down.clone()), up: with(link.up.clone()), ..link }
    });
    let redundant = Contender::scheduled("redundant");
    let task = |(keep, every, count)| Task::Requests {
        size: Size::from_bytes(KB),
        every: Span::from_millis(every),
        count,
        keep,
        bulk: false,
    };
    // With short intervals, the segments of the next request reveal a loss to the kernel.
    let tasks = [(true, 300, 40), (true, 50, 120), (false, 50, 120)].map(task).into_iter();
    let entries = tasks.flat_map(|task| each(&[&[redundant], &DIRECT], task)).collect();
    let cell = cell('h', "lossy", links.collect(), entries);
    vec![Cell { title: format!("{}; each way loses 2 %", cell.title), ..cell }]
}

fn calls() -> Vec<Cell> {
    let single = Contender::scheduled("single");
    let task = Task::Call(Span::from_secs(6));
    vec![cell('i', "call", paper(), each(&[&[BOND, single], &DIRECT], task))]
}

/// A lab requires a link, which these entries do not use.
fn loopback() -> Vec<Cell> {
    let both = [BOND, Contender::Direct(0)];
    let mut entries = each(&[&both], Task::Bulk(BULK));
    entries.extend(each(&[&both], Task::Rush(20_000)));
    entries.extend(each(&[&[BOND]], Task::Crowd(crowd())));
    let cell = cell('j', "loopback", vec![LinkSpec::new("loopback")], entries);
    let title = "both ends, the server and the load on one loopback, with TLS".to_owned();
    let setting = Setting { on_loopback: true, ..Setting::default() };
    vec![Cell { title, setting, hosts: Vec::new(), ..cell }]
}

/// Number of idle streams: that of the target, limited by the file limit of this machine. Each
/// stream is a file descriptor in every process.
fn crowd() -> u32 {
    let most = manyways_sys::privilege::raise_file_limit().unwrap_or(1024);
    CROWD.min(u32::try_from(most).unwrap_or(CROWD).saturating_sub(100))
}

fn schedulers() -> Vec<Cell> {
    let all = SCHEDULERS.map(Contender::scheduled);
    let bulk = || each(&[&all, &DIRECT], Task::Bulk(BULK));
    let files = SIZES.into_iter().flat_map(|bytes| each(&[&all], Task::file(bytes))).collect();
    let mut cells = vec![
        cell('k', "schedulers-files", paper(), files),
        cell('k', "schedulers-40-5", wifi_and_lte(40, 5), bulk()),
        cell('k', "schedulers-delays", unlike_delays(), bulk()),
    ];
    cells.iter_mut().for_each(|cell| cell.rounds = SCHEDULER_ROUNDS);
    cells
}

fn pages() -> Vec<Cell> {
    let tasks = PAGES.map(Task::Page).into_iter();
    let entries = tasks.flat_map(|task| each(&[&[BOND], &MPTCP, &DIRECT], task)).collect();
    vec![Cell { rounds: PAGE_ROUNDS, ..cell('l', "pages", paper(), entries) }]
}

fn four_apps() -> Vec<Cell> {
    let bond = Contender::Bond { by: By::FourApps, host: 0 };
    let tasks = [false, true].map(|store| Task::Apps { length: APPS, store });
    let both = [bond, Contender::Mptcp(0)];
    let entries = tasks.into_iter().flat_map(|task| each(&[&both], task)).collect();
    vec![Cell { rounds: APPS_ROUNDS, ..cell('m', "four-apps", paper(), entries) }]
}

/// Every recorded pair, unchanged.
fn pairs(pairs: &[Pair]) -> Vec<Cell> {
    let of = |pair: &Pair| {
        let entries = each(&[&[BOND]], Task::Counted(RECORDED));
        let cell = cell('n', &format!("pairs-{}", pair.name), pair.links(), entries);
        Cell { rounds: PAIR_ROUNDS, ..cell }
    };
    pairs.iter().map(of).collect()
}

/// Whether a task loads a web page.
pub fn wants_browser(cell: &Cell) -> bool {
    cell.contenders.iter().any(|entry| matches!(entry.task, Task::Page(_)))
}

/// Total mean rate of the links that a contender may use.
pub fn rate(cell: &Cell, contender: Contender) -> Rate {
    match contender.only_link().and_then(|index| cell.links.get(index)) {
        Some(link) => mean_rate(link),
        None => cell.links.iter().map(mean_rate).sum(),
    }
}

/// Estimated duration of one entry in seconds.
pub fn seconds(cell: &Cell, entry: &Entry) -> f64 {
    let trip = cell.links.iter().map(round_trip).max().unwrap_or_default();
    entry.task.seconds(rate(cell, entry.contender), trip) + trip.as_secs_f64() + 0.2
}

/// Estimated duration of a cell in seconds.
pub fn seconds_of_all(cell: &Cell) -> f64 {
    let round: f64 = cell.contenders.iter().map(|entry| seconds(cell, entry)).sum();
    8.0 + round * f64::from(cell.rounds)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cells_have_names_of_their_own_and_nothing_runs_twice() {
        let cells = plan(&[]);
        let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), cells.len());
        for cell in &cells {
            let run = |entry: &Entry| (entry.contender.name(&cell.links), entry.task.name());
            let runs: BTreeSet<_> = cell.contenders.iter().map(run).collect();
            assert_eq!(runs.len(), cell.contenders.len(), "{}", cell.name);
            assert!(cell.rounds > 0);
        }
    }

    #[test]
    fn cells_are_chosen_by_letter_or_name() {
        let chosen = ["e".to_owned(), "stalls".to_owned()];
        let mut cells = plan(&[]);
        cells.retain(|cell| cell.is_meant(&chosen));
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["sum-8-10", "sum-40-20", "sum-100-50", "stalls"]);
    }

    #[test]
    fn the_links_are_those_of_the_paper() {
        let links: Vec<String> = paper().iter().map(describe).collect();
        assert_eq!(links, ["wifi 7.04 Mbit/s, 50 ms", "lte 9.19 Mbit/s, 70 ms"]);
        assert_eq!(places()[0].links.iter().map(round_trip).max(), Some(Span::from_millis(49)));
    }
}
