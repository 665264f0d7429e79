//! The plan: the cells with their links and contenders.

use manyways_rig::links::{Pair, describe, link};
use manyways_trace::scenario::{CapacitySpec, DelaySpec, LinkSpec, LossSpec};
use manyways_unit::{Random, Rate, Span};

pub type Cell = manyways_rig::cell::Cell<&'static str, Setting>;

/// Conditions that are specific to these cells.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    pub experiment: Experiment,
}

/// The measured quantity of a cell.
#[derive(Clone, Debug, Default)]
pub enum Experiment {
    /// Round trips of an idle link.
    #[default]
    Ping,
    /// Throughput of a transfer of 10 s.
    Tcp,
    /// Loss and reordering of a burst.
    Udp,
    /// Round trips beside a transfer.
    Load,
    /// The hop at which delay or loss begins.
    Trace(Fault),
    /// Phases of a request.
    Http,
    /// Time of an answer of a name server.
    Dns,
    /// The winner of a download on a recorded pair of links, from this position on.
    Compare(Span),
    /// The same on all pairs, in virtual time.
    Forecast,
}

/// The fault that begins at a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Delay,
    Loss,
}

/// Routers on the way of a trace.
pub const ROUTERS: usize = 6;
/// Delay that begins at a hop, of a round trip.
pub const HOP_DELAY: Span = Span::from_millis(40);
/// Loss that begins at a hop, of a round trip.
pub const HOP_LOSS: f64 = 0.03;
/// Duration of `tcp`.
pub const TRANSFER: Span = Span::from_secs(10);
/// Duration of a transfer of `load`.
pub const LOAD: Span = Span::from_secs(3);
/// Limit of the queue of every link.
pub const QUEUE: Span = Span::from_millis(150);
/// Datagrams of a burst.
pub const DATAGRAMS: u64 = 20_000;
/// UDP payload of a datagram.
pub const DATAGRAM_BYTES: u64 = 200;
/// Rate of the payload of a burst.
pub const BURST_RATE: Rate = Rate::from_mbps(20);
/// Links of the transfers: two are measured at the same time.
const TRANSFERS: [[(u64, u64); 2]; 2] = [[(5, 100), (20, 50)], [(100, 20), (200, 10)]];
/// Seed of the positions in the recordings.
const OFFSETS_SEED: u64 = 0x6c61_6231;

/// The cells in the order of their runs.
pub fn plan(recorded: &[Pair]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for millis in [5, 50, 200] {
        let links = vec![symmetric("link", 100, millis)];
        let contenders = vec!["probe icmp", "probe tcp", "fping"];
        cells.push(cell('a', &format!("ping-{millis}"), links, contenders, Experiment::Ping));
    }
    for pair in TRANSFERS {
        let links: Vec<LinkSpec> = pair.map(by_rate).into();
        let name = |program: &str| format!("{program}-{}-{}", pair[0].0, pair[1].0);
        let own = vec!["full down", "full up", "early down", "early up"];
        cells.push(Cell {
            rounds: 5,
            ..cell('b', &name("tcp"), links.clone(), own, Experiment::Tcp)
        });
        let iperf3 = vec!["iperf3 down", "iperf3 up"];
        cells
            .push(Cell { rounds: 1, ..cell('b', &name("iperf3"), links, iperf3, Experiment::Tcp) });
    }
    for (name, down, up, contenders) in [
        ("udp-down-0.2", 0.002, 0.0, vec!["probe down"]),
        ("udp-down-2", 0.02, 0.0, vec!["probe down", "iperf3 down"]),
        ("udp-down-10", 0.1, 0.0, vec!["probe down"]),
        ("udp-up-2", 0.0, 0.02, vec!["probe up", "iperf3 up"]),
    ] {
        cells.push(cell('c', name, vec![lossy(down, up)], contenders, Experiment::Udp));
    }
    cells.push(cell('c', "udp-reordered", vec![reordering()], vec!["probe down"], Experiment::Udp));
    let loaded = [2, 20, 100].map(|mbps| by_rate((mbps, 30))).into();
    cells.push(cell('d', "load", loaded, vec!["down", "up"], Experiment::Load));
    for (fault, word, title) in [
        (Fault::Delay, "delay", "a delay of 40 ms begins after one of 6 routers"),
        (Fault::Loss, "loss", "a loss of 3 % begins after one of 6 routers"),
    ] {
        for (program, rounds) in [("probe", 10), ("mtr", 2)] {
            let links = (1..=ROUTERS).map(|place| faulty(place, fault)).collect();
            let name = format!("trace-{word}-{program}");
            let cell = cell('e', &name, links, vec![program], Experiment::Trace(fault));
            cells.push(Cell { rounds, title: title.to_owned(), ..cell });
        }
    }
    let pages = vec!["http", "https h1", "https h2"];
    cells.push(cell('f', "http", vec![symmetric("link", 20, 40)], pages, Experiment::Http));
    let programs = vec!["probe", "dig"];
    cells.push(cell('g', "dns", vec![symmetric("link", 20, 30)], programs, Experiment::Dns));
    cells.extend(compared(recorded));
    if !recorded.is_empty() {
        let contenders = vec!["probe compare"];
        let cell = cell('h', "forecast", Vec::new(), contenders, Experiment::Forecast);
        let title = format!("{} recorded pairs, in virtual time", recorded.len());
        cells.push(Cell { rounds: 1, title, ..cell });
    }
    cells
}

/// Three of the recorded pairs.
fn compared(recorded: &[Pair]) -> Vec<Cell> {
    let mut random = Random::new(OFFSETS_SEED);
    let chosen = recorded.iter().step_by(recorded.len().div_ceil(3).max(1));
    let compared = |pair: &Pair| {
        let mut links = pair.links();
        for link in &mut links {
            link.up.capacity = CapacitySpec::Constant(Rate::from_mbps(10));
        }
        let offset = Span::from_secs_f64((random.uniform() * 90.0).floor());
        let name = format!("compare-{}", pair.name);
        let experiment = Experiment::Compare(offset);
        let title = links.iter().map(describe).collect::<Vec<_>>().join(" + ");
        let title = format!("{title}; from {offset} on");
        let cell = cell('h', &name, links, vec!["probe compare"], experiment);
        Cell { rounds: 1, title, ..cell }
    };
    chosen.map(compared).collect()
}

fn cell(
    part: char,
    name: &str,
    links: Vec<LinkSpec>,
    contenders: Vec<&'static str>,
    experiment: Experiment,
) -> Cell {
    let cell = Cell::over(part, name, links, contenders);
    Cell { rounds: 10, setting: Setting { experiment }, ..cell }
}

/// A link with this rate in Mbit/s both ways, and this round-trip time in milliseconds.
fn symmetric(name: &str, mbps: u64, millis: u64) -> LinkSpec {
    let rate = Rate::from_mbps(mbps);
    link(name, CapacitySpec::Constant(rate), rate, Span::from_millis(millis))
}

/// A link that is named by its rate.
fn by_rate((mbps, millis): (u64, u64)) -> LinkSpec {
    symmetric(&format!("mbit{mbps}"), mbps, millis)
}

/// A link with these shares of lost packets.
fn lossy(down: f64, up: f64) -> LinkSpec {
    let mut link = symmetric("link", 100, 20);
    link.down.loss = LossSpec::Independent(down);
    link.up.loss = LossSpec::Independent(up);
    link
}

/// A link whose jitter of 1 ms reorders packets, one of which is sent each 80 µs.
fn reordering() -> LinkSpec {
    let mut link = symmetric("link", 100, 20);
    (link.down.jitter, link.down.reorder) = (Span::from_millis(1), true);
    link
}

/// The link after the router `place`.
fn faulty(place: usize, fault: Fault) -> LinkSpec {
    let mut link = LinkSpec::new(format!("place{place}"));
    match fault {
        Fault::Delay => {
            let half = Span::from_nanos(HOP_DELAY.as_nanos() / 2);
            link.down.delay = DelaySpec::Constant(half);
            link.up.delay = link.down.delay.clone();
        }
        Fault::Loss => link.up.loss = LossSpec::Independent(HOP_LOSS),
    }
    link
}

/// Estimated duration of a cell, in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    let run = |contender: &str| match cell.setting.experiment {
        Experiment::Ping => 0.7,
        Experiment::Tcp if contender.starts_with("early") => 2.5,
        Experiment::Tcp => TRANSFER.as_secs_f64() + 1.0,
        Experiment::Udp => 3.5,
        Experiment::Load => LOAD.as_secs_f64() + 1.8,
        Experiment::Trace(Fault::Delay) => 3.0,
        Experiment::Trace(Fault::Loss) => 6.0,
        Experiment::Http => 1.0,
        Experiment::Dns => 0.5,
        Experiment::Compare(_) => 12.0,
        Experiment::Forecast => 6.0,
    };
    let all: f64 = cell.contenders.iter().map(|contender| run(contender)).sum();
    1.5 + f64::from(cell.rounds) * all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_takes_a_quarter_of_an_hour() {
        let minutes = plan(&[]).iter().map(seconds).sum::<f64>() / 60.0;
        assert!((5.0..16.0).contains(&minutes), "{minutes}");
    }

    #[test]
    fn loss_begins_on_the_way_there_only() {
        // A loss on both ways would be twice the stated one.
        let link = faulty(2, Fault::Loss);
        assert_eq!(
            (link.up.loss, link.down.loss),
            (LossSpec::Independent(HOP_LOSS), LossSpec::None)
        );
    }
}
