//! The plan: the cells with their links, contenders and tasks.

use manyways_rig::links::{Pair, constant, link, mean_rate, round_trip, total_rate};
use manyways_trace::scenario::{
    CapacitySpec, DirectionSpec, HostSpec, LinkSpec, LinkState, LossSpec,
};
use manyways_unit::{Rate, Size, Span};

use super::contender::{BOND, Contender, Scheduling};
use super::task::Task;
use crate::traffic::web::PAGES;

/// A cell; each of its hosts has a server, and a gateway if a contender needs one.
pub type Cell = manyways_rig::cell::Cell<Entry, Setting>;

/// Conditions that are specific to these cells.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Think time of the servers for requests over a bond.
    pub think_time: Span,
    /// Whether no link is used.
    pub is_loopback: bool,
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
/// Duration of the four applications.
const APPS_DURATION: Span = Span::from_secs(20);
/// Part of a recorded pair that one round uses: three rounds use about a whole recording of 99 s.
pub const RECORDING_STEP: Span = Span::from_secs(30);
/// Duration of a bulk transfer at full rate.
const BULK_DURATION: Span = Span::from_secs(6);
/// Sizes of single files.
pub const SIZES: [u64; 7] = [10 * KB, 50 * KB, 100 * KB, 500 * KB, MB, 5 * MB, 10 * MB];
/// Above this size, single paths are omitted: they are far slower.
const MAX_SINGLE_PATH_SIZE: u64 = MB;
/// Number of idle streams of the target.
pub const IDLE_STREAMS: u32 = 20_000;
/// All schedulers; the first is the default.
pub const SCHEDULERS: [&str; 5] = ["buffer-aware", "minrtt", "round-robin", "single", "ecf"];

const MPTCP: [Contender; 2] = [Contender::Mptcp(0), Contender::Mptcp(1)];
const SPLICED: [Contender; 2] = [Contender::Spliced(0), Contender::Spliced(1)];
const DIRECT: [Contender; 2] = [Contender::Direct(0), Contender::Direct(1)];

/// The usual contenders.
const ALL: [&[Contender]; 3] = [&[BOND], &MPTCP, &DIRECT];

/// The cells in the order of their runs.
pub fn plan(recorded: &[Pair]) -> Vec<Cell> {
    let bulk = || each(&ALL, [Task::Bulk(BULK_DURATION)]);
    let requests = Task::Requests {
        size: Size::from_bytes(10 * KB),
        every: Span::from_millis(200),
        count: 30,
        keep: false,
        bulk: true,
    };
    let stalls = [LinkState::NoCarrier, LinkState::Silent].map(Task::Stall);
    let call = Task::Call(Span::from_secs(6));
    let single = Contender::scheduled("single");
    let schedulers = SCHEDULERS.map(Contender::scheduled);
    let by_scheduler = || each(&[&schedulers, &DIRECT], [Task::Bulk(BULK_DURATION)]);
    let four_apps = [Contender::Bond { by: Scheduling::FourApps, host: 0 }, Contender::Mptcp(0)];
    let apps = [false, true].map(|store| Task::Apps { length: APPS_DURATION, store });
    let mut cells = vec![
        cell('a', "files", paper_links(), files()),
        cell('b', "flows-10-kb", paper_links(), flows(10 * KB)),
        cell('b', "flows-100-kb", paper_links(), flows(100 * KB)),
        cell('c', "requests", paper_links(), each(&ALL, [requests])),
        proxy_locations(),
        cell('e', "sum-8-10", wifi_and_lte(8, 10), bulk()),
        cell('e', "sum-40-20", wifi_and_lte(40, 20), bulk()),
        cell('e', "sum-100-50", wifi_and_lte(100, 50), bulk()),
        cell('f', "unequal-40-5", wifi_and_lte(40, 5), bulk()),
        cell('f', "unequal-100-5", wifi_and_lte(100, 5), bulk()),
        cell('f', "delays-50-50", unequal_delays(), bulk()),
        cell('g', "stalls", paper_links(), each(&[&[BOND], &MPTCP], stalls)),
        lossy(),
        cell('i', "call", paper_links(), each(&[&[BOND, single], &DIRECT], [call])),
        loopback(),
        cell('k', "schedulers-files", paper_links(), each(&[&schedulers], SIZES.map(Task::file))),
        cell('k', "schedulers-40-5", wifi_and_lte(40, 5), by_scheduler()),
        cell('k', "schedulers-delays", unequal_delays(), by_scheduler()),
        cell('l', "pages", paper_links(), each(&ALL, PAGES.map(Task::Page))),
        cell('m', "four-apps", paper_links(), each(&[&four_apps], apps)),
    ];
    cells.extend(recorded.iter().map(|pair| {
        let entries = each(&[&[BOND]], [Task::CountedBulk(RECORDING_STEP)]);
        cell('n', &format!("pairs-{}", pair.name), pair.links(), entries)
    }));
    cells
}

/// Wi-Fi and LTE of the paper, with these round-trip times in milliseconds.
fn paper_at(wifi: u64, lte: u64) -> Vec<LinkSpec> {
    let one = |name: &str, down: u64, up: u64, round_trip: u64| {
        let down = CapacitySpec::Constant(Rate::from_kbps(down));
        link(name, down, Rate::from_kbps(up), Span::from_millis(round_trip))
    };
    vec![one("wifi", 7_040, 2_020, wifi), one("lte", 9_185, 2_286, lte)]
}

/// Wi-Fi and LTE of the paper.
pub fn paper_links() -> Vec<LinkSpec> {
    paper_at(50, 70)
}

/// Links of other rates in Mbit/s, with the round-trip times of the paper.
fn wifi_and_lte(wifi: u64, lte: u64) -> Vec<LinkSpec> {
    let trip = Span::from_millis;
    vec![constant("wifi", wifi, trip(50)), constant("lte", lte, trip(70))]
}

fn unequal_delays() -> Vec<LinkSpec> {
    let trip = Span::from_millis;
    vec![constant("wifi", 50, trip(10)), constant("lte", 50, trip(200))]
}

/// Every contender with the first task, then with the next.
fn each(contenders: &[&[Contender]], tasks: impl IntoIterator<Item = Task>) -> Vec<Entry> {
    let all = contenders.concat();
    let of = |task| all.iter().map(move |contender| Entry { contender: *contender, task });
    tasks.into_iter().flat_map(of).collect()
}

fn cell(part: char, name: &str, links: Vec<LinkSpec>, contenders: Vec<Entry>) -> Cell {
    let rounds = match part {
        // Each scheduler and each of the four applications is one of several contenders.
        'k' | 'm' => 5,
        // The rounds of this cell are the longest.
        'l' => 9,
        // The pairs are repetitions of one question.
        'n' => 3,
        _ => 15,
    };
    let hosts = vec![host("origin", [0.0, 0.0])];
    Cell { hosts, rounds, ..Cell::over(part, name, links, contenders) }
}

/// A host with a round-trip time that is longer by these milliseconds over Wi-Fi and LTE.
fn host(name: &str, farther: [f64; 2]) -> HostSpec {
    let extra = |link: &str, millis: f64| (link.to_owned(), Span::from_secs_f64(millis / 2000.0));
    let extra_delay = vec![extra("wifi", farther[0]), extra("lte", farther[1])];
    HostSpec { name: name.to_owned(), extra_delay, ..HostSpec::default() }
}

fn files() -> Vec<Entry> {
    let of = |bytes| {
        let all = [&[BOND][..], &MPTCP, &SPLICED, &DIRECT];
        each(if bytes <= MAX_SINGLE_PATH_SIZE { &all } else { &all[..2] }, [Task::file(bytes)])
    };
    SIZES.into_iter().flat_map(of).collect()
}

fn flows(bytes: u64) -> Vec<Entry> {
    let size = Size::from_bytes(bytes);
    let of = |flows| [1, flows].map(|at_once| Task::Files { size, flows, at_once });
    each(&ALL, [5, 10, 20, 50].into_iter().flat_map(of))
}

/// The four proxy locations of the paper, and the server of the contenders without a proxy: 4 ms
/// beyond the first location.
fn proxy_locations() -> Cell {
    let hosts = vec![
        host("a", [0.0, 0.0]),
        host("b", [17.0, 17.0]),
        host("c", [54.0, 51.0]),
        host("d", [104.0, 99.0]),
        host("near-a", [4.0, 4.0]),
    ];
    let bonds = [0, 1, 2, 3].map(|host| Contender::Bond { by: Scheduling::Default, host });
    let kernel = [Contender::MptcpDirect(0), Contender::MptcpDirect(1)];
    let size = Size::from_bytes(50 * KB);
    let tasks = [
        Task::file(50 * KB),
        Task::Files { size, flows: 10, at_once: 10 },
        Task::Files { size, flows: 10, at_once: 1 },
        Task::file(5 * MB),
    ];
    let cell = cell('d', "places", paper_at(27, 49), each(&[&bonds, &kernel], tasks));
    let title = format!(
        "{} to the gateway at A; 44/66 ms to B, 81/100 ms to C, 131/148 ms to D; 4 ms from each to \
         the server",
        cell.title
    );
    // The gateway's handshake with the server and the request each take these 4 ms.
    let setting = Setting { think_time: Span::from_millis(8), ..Setting::default() };
    Cell { hosts, title, setting, ..cell }
}

fn lossy() -> Cell {
    let links = paper_links().into_iter().map(|link| {
        let with = |way: DirectionSpec| DirectionSpec { loss: LossSpec::Independent(0.02), ..way };
        LinkSpec { down: with(link.down.clone()), up: with(link.up.clone()), ..link }
    });
    let redundant = Contender::scheduled("redundant");
    let task = |(keep, interval, count)| Task::Requests {
        size: Size::from_bytes(KB),
        every: Span::from_millis(interval),
        count,
        keep,
        bulk: false,
    };
    // With short intervals, the segments of the next request reveal a loss to the kernel.
    let tasks = [(true, 300, 40), (true, 50, 120), (false, 50, 120)].map(task);
    let cell = cell('h', "lossy", links.collect(), each(&[&[redundant], &DIRECT], tasks));
    Cell { title: format!("{}; each way loses 2 %", cell.title), ..cell }
}

/// Title of a cell without links.
pub const LOOPBACK: &str = "both ends, the server and the load on one loopback, with TLS";

/// A lab requires a link, which these entries do not use.
fn loopback() -> Cell {
    let both = [BOND, Contender::Direct(0)];
    let mut entries = each(&[&both], [Task::Bulk(BULK_DURATION), Task::Rush(20_000)]);
    entries.extend(each(&[&[BOND]], [Task::Crowd(idle_streams())]));
    let cell = cell('j', "loopback", vec![LinkSpec::new("loopback")], entries);
    let setting = Setting { is_loopback: true, ..Setting::default() };
    Cell { title: LOOPBACK.to_owned(), setting, hosts: Vec::new(), ..cell }
}

/// Number of idle streams: that of the target, limited by the file limit of this machine. Each
/// stream is a file descriptor in every process.
fn idle_streams() -> u32 {
    let max = manyways_sys::privilege::raise_file_limit().unwrap_or(1024);
    IDLE_STREAMS.min(u32::try_from(max).unwrap_or(IDLE_STREAMS).saturating_sub(100))
}

/// Whether a task loads a web page.
pub fn needs_browser(cell: &Cell) -> bool {
    cell.contenders.iter().any(|entry| matches!(entry.task, Task::Page(_)))
}

/// Total mean rate of the links that a contender may use.
pub fn rate(cell: &Cell, contender: Contender) -> Rate {
    match contender.only_link().and_then(|index| cell.links.get(index)) {
        Some(link) => mean_rate(link),
        None => total_rate(&cell.links),
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

    use manyways_rig::links::describe;

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
        cells.retain(|cell| cell.is_selected(&chosen));
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["sum-8-10", "sum-40-20", "sum-100-50", "stalls"]);
    }

    #[test]
    fn the_links_are_those_of_the_paper() {
        let links: Vec<String> = paper_links().iter().map(describe).collect();
        assert_eq!(links, ["wifi 7.04 Mbit/s, 50 ms", "lte 9.19 Mbit/s, 70 ms"]);
        assert_eq!(
            proxy_locations().links.iter().map(round_trip).max(),
            Some(Span::from_millis(49))
        );
    }
}
