//! The plan: the cells with their links, contenders and loads.

use manyways_rig::links::{Pair, link, mean_rate, rate_drop as rate_change};
use manyways_trace::scenario::{CapacitySpec, HostSpec, LinkSpec};
use manyways_unit::{Rate, Size, Span};

use crate::options::Mode;

/// A cell.
pub type Cell = manyways_rig::cell::Cell<Entry, ()>;

/// One run of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub contender: Contender,
    pub load: Load,
}

impl manyways_rig::cell::Contender for Entry {
    fn name(&self, _links: &[LinkSpec]) -> String {
        self.contender.name().to_owned()
    }
}

/// The way over the network of another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `bond lend` on each of so many phones.
    Lend { phones: usize, switch: Switch },
    /// Kernel MPTCP through a splice; the phone forwards one of its subflows and translates its
    /// address.
    Kibbutz,
    /// A queue of byte ranges, each fetched over the laptop's network or through a proxy on the
    /// phone.
    Combine,
    /// `bond` over the laptop's network and over the phone as a router.
    Tethered,
}

/// One change of a bond with lenders, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    None,
    /// The usual scheduler of MPTCP; nothing is recalled from a lender.
    MinRtt,
    /// Nothing is recalled from a lender.
    NoReinjection,
    /// As much is recalled as the paper prints.
    PrintedReinjection,
    /// The wait at a lender is the delay of the last message that it delayed.
    DelayEstimate,
    /// The same, and nothing is recalled from a lender.
    DelayEstimateOnly,
    /// ACKs pass over every path, also over the lender's network.
    AlwaysFeedback,
}

/// The load of a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A file; the connections have carried nothing, or [`WARM_SIZE`] right before.
    Download {
        size: Size,
        warm: bool,
    },
    Upload(Size),
    /// The process of the lender is killed during a stream.
    Killed,
    /// A lender starts during a download.
    Arrived,
    /// A file over a lender, with everything on one loopback.
    Loopback,
}

/// The default of everything.
pub const LEND: Contender = Contender::Lend { phones: 1, switch: Switch::None };
/// Bytes that warm connections have carried before.
pub const WARM_SIZE: Size = Size::from_bytes(MB);
/// Size of the ranges of COMBINE.
pub const CHUNK: Size = Size::from_bytes(256 << 10);
/// Time of a run at which a rate changes.
const CHANGE_TIME: Span = Span::from_secs(2);
/// Part of a recorded pair that one round uses.
pub const RECORDING_STEP: Span = Span::from_secs(17);
/// All recorded rates are multiplied by this.
pub const RECORDED_FACTOR: f64 = 0.15;
/// Rate of the uplinks beside recorded downlinks.
const RECORDED_UPLINK: Rate = Rate::from_mbps(5);
/// Pairs of recordings that are measured by default.
const FEW_PAIRS: usize = 3;
/// Size of the file over the loopback.
pub const LOOPBACK_SIZE: Size = Size::from_bytes(500 * MB);
/// A stream that needs both networks, and its length.
pub const STREAM: (Rate, Span) = (Rate::from_mbps(10), Span::from_secs(5));
/// Time of a run at which a lender is killed, or comes.
pub const EVENT_TIME: Span = Span::from_secs(2);
/// Size of the file during which a lender comes.
pub const ARRIVAL_SIZE: Size = Size::from_bytes(5 * MB);
/// Distance of the gateway beyond the links, and of the server beyond the gateway.
pub const HOP: Span = Span::from_millis(10);

const MB: u64 = 1_000_000;
const CELLULAR_RTT: Span = Span::from_millis(60);
const PIPE_RTT: Span = Span::from_millis(6);

/// Names of the links: of the laptop, and of two phones.
pub const NAMES: [&str; 5] = ["ps", "hs", "pipe", "hs2", "pipe2"];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Lend { phones: 2, .. } => "lend, 2 phones",
            Self::Lend { switch: Switch::None, .. } => "lend",
            Self::Lend { switch: Switch::MinRtt, .. } => "lend, minrtt",
            Self::Lend { switch: Switch::NoReinjection, .. } => "lend, no reinjection",
            Self::Lend { switch: Switch::PrintedReinjection, .. } => "lend, printed reinjection",
            Self::Lend { switch: Switch::DelayEstimate, .. } => "lend, delay estimate",
            Self::Lend { switch: Switch::DelayEstimateOnly, .. } => {
                "lend, delay estimate, no reinjection"
            }
            Self::Lend { switch: Switch::AlwaysFeedback, .. } => "lend, always feedback",
            Self::Kibbutz => "kibbutz",
            Self::Combine => "COMBINE",
            Self::Tethered => "tethered",
        }
    }

    /// Number of phones that lend.
    pub fn phones(self) -> usize {
        match self {
            Self::Lend { phones, .. } => phones,
            _ => 0,
        }
    }
}

impl Load {
    /// Name, which is unique in a cell.
    pub fn name(self) -> String {
        match self {
            Self::Download { size, warm: false } => size.to_string(),
            Self::Download { size, warm: true } => format!("{size}, warm"),
            Self::Upload(size) => format!("{size} upload"),
            Self::Killed => "lender killed, longest stall".to_owned(),
            Self::Arrived => "lender arrived, in use".to_owned(),
            Self::Loopback => "bulk".to_owned(),
        }
    }

    /// Unit of the figure.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Download { .. } | Self::Upload(_) | Self::Arrived => "s",
            Self::Killed => "ms",
            Self::Loopback => "Gbit/s",
        }
    }

    /// Estimated duration in seconds over paths of this total rate, without a start.
    fn seconds(self, rate: Rate) -> f64 {
        let of = |size: Size| size.as_bytes() as f64 * 8.0 / rate.as_bps().max(1) as f64 * 1.15;
        match self {
            Self::Download { size, warm } => of(size) + if warm { of(WARM_SIZE) } else { 0.0 },
            Self::Upload(size) => of(size),
            Self::Killed => STREAM.1.as_secs_f64() * 1.3,
            Self::Arrived => of(ARRIVAL_SIZE),
            Self::Loopback => 5.0,
        }
    }
}

/// The cells in the order of their runs.
pub fn plan(mode: Mode, recorded: &[Pair]) -> Vec<Cell> {
    let full = mode == Mode::Full;
    let sizes: &[u64] = if full { &[MB / 2, MB, 2 * MB, 4 * MB] } else { &[MB, 4 * MB] };
    let file = |bytes, warm| Load::Download { size: Size::from_bytes(bytes), warm };
    let with = |switch| Contender::Lend { phones: 1, switch };
    let sized = |warm, contenders: &[Contender]| -> Vec<Entry> {
        sizes.iter().flat_map(|size| each(contenders, file(*size, warm))).collect()
    };
    let paper = sized(false, &[LEND, Contender::Kibbutz])
        .into_iter()
        .chain(sized(true, &[LEND, Contender::Combine, Contender::Tethered]))
        .collect();
    let bound = [4 * MB, 10 * MB].map(|size| each(&[LEND, with(Switch::MinRtt)], file(size, true)));
    let two = Contender::Lend { phones: 2, switch: Switch::None };
    let upload = Load::Upload(Size::from_bytes(4 * MB));
    let four = file(4 * MB, false);
    let reinjection = [LEND, with(Switch::NoReinjection), with(Switch::PrintedReinjection)];
    let estimates = [
        LEND,
        with(Switch::DelayEstimate),
        with(Switch::NoReinjection),
        with(Switch::DelayEstimateOnly),
    ];
    let mut cells = vec![
        cell('a', "paper", one_phone(8, 10, 5), paper),
        cell('b', "bound", one_phone(8, 10, 5), bound.concat()),
        cell('c', "phones", two_phones(8, 10, 5), each(&[two, Contender::Kibbutz], four)),
        cell('c', "uploads", one_phone(8, 10, 5), each(&[LEND, Contender::Kibbutz], upload)),
        changed(cell('d', "pipe-drops", one_phone(5, 10, 5), each(&reinjection, four)), "pipe", 1),
        changed(
            cell('e', "hs-drops", one_phone(5, 10, 5), each(&[LEND, Contender::Tethered], four)),
            "hs",
            1,
        ),
        cell('e', "estimates", one_phone(5, 10, 5), each(&estimates, four)),
        changed(
            cell(
                'f',
                "pipe-rises",
                one_phone(5, 10, 5),
                each(&[LEND, with(Switch::AlwaysFeedback)], four),
            ),
            "pipe",
            10,
        ),
    ];
    // By default a few that are far apart in the list, which has the walks of a place together.
    let step = if full { 1 } else { recorded.len().div_ceil(FEW_PAIRS).max(1) };
    for (index, own) in recorded.iter().enumerate().step_by(step) {
        // The phone walks elsewhere.
        let others = &recorded[(index + 1) % recorded.len()];
        let all = [
            each(&[LEND, Contender::Kibbutz], four),
            each(&[LEND, Contender::Combine], file(4 * MB, true)),
        ];
        let links = recorded_phone(own, others);
        cells.push(cell('g', &format!("pairs-{}", own.name), links, all.concat()));
    }
    cells.push(cell(
        'h',
        "lenders",
        one_phone(8, 10, 5),
        [each(&[LEND], Load::Killed), each(&[LEND], Load::Arrived)].concat(),
    ));
    let loopback =
        cell('h', "loopback", vec![LinkSpec::new("loopback")], each(&[LEND], Load::Loopback));
    let title = "everything on one loopback, all over the lender".to_owned();
    cells.push(Cell { title, hosts: Vec::new(), ..loopback });
    let rounds = if full { 10 } else { 5 };
    let rounds_of = |cell: &Cell| match (cell.part, full) {
        // The pairs are repetitions of one question.
        ('g', false) => 3,
        ('h', false) => 3,
        _ => rounds,
    };
    cells.iter_mut().for_each(|cell| cell.rounds = rounds_of(cell));
    cells
}

/// Estimated duration of a cell in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    let rate = |entry: &Entry| total_rate(cell, entry.contender);
    let run = |entry: &Entry| entry.load.seconds(rate(entry)) + 0.8;
    3.0 + cell.contenders.iter().map(run).sum::<f64>() * f64::from(cell.rounds)
}

/// Total rate of the paths of a contender: of a phone, that of the slower half.
pub fn total_rate(cell: &Cell, contender: Contender) -> Rate {
    let rates: Vec<Rate> = cell.links.iter().map(mean_rate).collect();
    let phones = if contender.phones() == 2 { 2 } else { 1 };
    let halves = rates.get(1..).unwrap_or_default().chunks_exact(2).take(phones);
    let phones: Rate = halves.filter_map(|both| both.iter().min()).copied().sum();
    rates.first().copied().unwrap_or_default() + phones
}

fn cell(part: char, name: &str, links: Vec<LinkSpec>, all: Vec<Entry>) -> Cell {
    let cellular: Vec<String> =
        links.iter().filter(|link| link.peer.is_none()).map(|link| link.name.clone()).collect();
    let host = |name: &str, distance: Span| {
        let half = Span::from_nanos(distance.as_nanos() / 2);
        let extra_delay = cellular.iter().map(|link| (link.clone(), half)).collect();
        HostSpec { name: name.to_owned(), extra_delay, ..HostSpec::default() }
    };
    let hosts = vec![host("gateway", HOP), host("server", HOP * 2)];
    Cell { hosts, ..Cell::over(part, name, links, all) }
}

/// The cell with another rate of a link, in Mbit/s, in the course of each run.
fn changed(cell: Cell, link: &str, mbps: u64) -> Cell {
    let title = format!("{}; after {CHANGE_TIME}, {link} has {mbps} Mbit/s", cell.title);
    let event = rate_change(link, CHANGE_TIME, Rate::from_mbps(mbps));
    Cell { events: vec![event], title, ..cell }
}

/// Every contender with the load.
fn each(contenders: &[Contender], load: Load) -> Vec<Entry> {
    contenders.iter().map(|contender| Entry { contender: *contender, load }).collect()
}

/// A link with the same rate in both directions.
fn symmetric(name: &str, mbps: u64, trip: Span) -> LinkSpec {
    let rate = Rate::from_mbps(mbps);
    link(name, CapacitySpec::Constant(rate), rate, trip)
}

/// The laptop's network, and for each phone its network and the pipe, in Mbit/s.
fn one_phone(ps: u64, hs: u64, pipe: u64) -> Vec<LinkSpec> {
    let links = [(0, ps, CELLULAR_RTT), (1, hs, CELLULAR_RTT), (2, pipe, PIPE_RTT)];
    belonging(links.map(|(index, mbps, trip)| symmetric(NAMES[index], mbps, trip)).to_vec())
}

fn two_phones(ps: u64, hs: u64, pipe: u64) -> Vec<LinkSpec> {
    let mut links = one_phone(ps, hs, pipe);
    links.push(symmetric(NAMES[3], hs, CELLULAR_RTT));
    links.push(symmetric(NAMES[4], pipe, PIPE_RTT));
    belonging(links)
}

/// The cellular recordings of two walks, and the Wi-Fi of the second one as the pipe.
fn recorded_phone(own: &Pair, others: &Pair) -> Vec<LinkSpec> {
    let capacity = |pair: &Pair, index: usize| {
        let links = pair.scaled_by(RECORDED_FACTOR);
        links.into_iter().nth(index).map_or(CapacitySpec::Unlimited, |link| link.down.capacity)
    };
    let of = |name, capacity, trip| link(name, capacity, RECORDED_UPLINK, trip);
    belonging(vec![
        of(NAMES[0], capacity(own, 1), CELLULAR_RTT),
        of(NAMES[1], capacity(others, 1), CELLULAR_RTT),
        of(NAMES[2], capacity(others, 0), PIPE_RTT),
    ])
}

/// Puts the links on their devices.
fn belonging(links: Vec<LinkSpec>) -> Vec<LinkSpec> {
    let put = |(index, link): (usize, LinkSpec)| {
        let phone = if index < 3 { "phone" } else { "phone2" };
        let (device, peer) = match (index, index % 2) {
            (0, _) => ("laptop", None),
            (_, 1) => (phone, None),
            _ => ("laptop", Some(phone.to_owned())),
        };
        LinkSpec { device: Some(device.to_owned()), peer, ..link }
    };
    links.into_iter().enumerate().map(put).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_runs_twice_and_all_ends_within_a_quarter_of_an_hour() {
        let cells = plan(Mode::Default, &[]);
        for cell in &cells {
            let run = |entry: &Entry| (entry.contender.name(), entry.load.name());
            let runs: BTreeSet<_> = cell.contenders.iter().map(run).collect();
            assert_eq!(runs.len(), cell.contenders.len(), "{}", cell.name);
            assert!(cell.rounds > 0);
        }
        let all: f64 = cells.iter().map(seconds).sum();
        // The three recorded pairs take up to three minutes.
        assert!(all < 12.0 * 60.0, "{all}");
    }

    #[test]
    fn a_phone_is_as_fast_as_its_slower_half() {
        let cells = plan(Mode::Default, &[]);
        let rate = |name: &str, contender| {
            let cell = cells.iter().find(|cell| cell.name == name).unwrap();
            total_rate(cell, contender).as_mbps_f64()
        };
        let two = Contender::Lend { phones: 2, switch: Switch::None };
        assert_eq!((rate("paper", LEND), rate("phones", two)), (13.0, 18.0));
        assert_eq!(rate("phones", Contender::Kibbutz), 13.0);
    }
}
