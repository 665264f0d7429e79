//! The plan: the cells with their links, contenders and tasks.

use manyways_rig::links::{constant, link};
use manyways_trace::scenario::{CapacitySpec, HostSpec, LinkSpec, LinkState, LossSpec};
use manyways_unit::{Rate, Span};

use crate::bond::contender::{BOND, Contender};
use crate::bond::plan::{self as usual_plan, Setting, paper_links};
use crate::bond::task::Task;

/// A cell.
pub type Cell = manyways_rig::cell::Cell<Entry, ()>;

/// One run of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub contender: Contender,
    pub load: Load,
}

impl manyways_rig::cell::Contender for Entry {
    fn name(&self, links: &[LinkSpec]) -> String {
        self.contender.name(links)
    }
}

/// The load of a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A task of the other benchmarks of `bond`.
    Usual(Task),
    /// A new client connects while strangers of so many networks come; 0 are none.
    Newcomer { networks: u32, quic: bool },
    /// Requests of one key, while another one takes as much as it can.
    Requests { greedy: bool },
    /// The gateway is away for so long.
    Return(Span),
    /// A call beside a download.
    BusyCall,
}

/// Length of a call.
pub const CALL_LENGTH: Span = Span::from_secs(8);
/// For so long strangers come.
pub const FLOOD_LENGTH: Span = Span::from_secs(8);
/// Times that the gateway is away; an earlier version is measured for the first only.
const ABSENCES: [Span; 2] = [Span::from_secs(14), Span::from_secs(40)];

impl Load {
    /// Name, which is unique in a cell.
    pub fn name(&self) -> String {
        match self {
            Self::Usual(task) => task.name(),
            Self::Newcomer { networks, quic } => {
                let carrier = if *quic { "QUIC" } else { "TCP" };
                match networks {
                    0 => format!("{carrier}, no strangers"),
                    1 => format!("{carrier}, strangers of one /24"),
                    count => format!("{carrier}, strangers of {count} /24s"),
                }
            }
            Self::Requests { greedy: false } => "requests, alone".to_owned(),
            Self::Requests { greedy: true } => "requests beside a greedy key".to_owned(),
            Self::Return(span) => format!("back after {} s", span.as_secs_f64()),
            Self::BusyCall => "call beside a download".to_owned(),
        }
    }

    /// Unit of the figure.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Usual(task) => task.unit(),
            Self::Newcomer { .. } | Self::Return(_) => "s",
            Self::Requests { .. } | Self::BusyCall => "ms",
        }
    }

    /// Estimated duration in seconds.
    fn seconds(&self, contender: Contender) -> f64 {
        match self {
            Self::Usual(_) => 0.0,
            Self::Newcomer { networks: 0, .. } => 2.0,
            Self::Newcomer { .. } if contender == Contender::Before => 10.0,
            Self::Newcomer { .. } => 3.0,
            Self::Requests { greedy } => {
                if *greedy {
                    11.0
                } else {
                    9.0
                }
            }
            Self::Return(span) => span.as_secs_f64() + 4.0,
            Self::BusyCall => CALL_LENGTH.as_secs_f64() + 3.5,
        }
    }
}

/// The cells in the order of their runs; with an earlier version, also those that compare with it.
pub fn plan(with_before: bool) -> Vec<Cell> {
    let both: &[Contender] = if with_before { &[BOND, Contender::Before] } else { &[BOND] };
    let far = vec![constant("lte", 20, Span::from_millis(200))];
    let newcomer = |networks, quic| Load::Newcomer { networks, quic };
    let mut strangers = each(
        &[BOND],
        [(0, false), (1, false), (1_000, false), (0, true), (1, true), (1_000, true)]
            .map(|(networks, quic)| newcomer(networks, quic)),
    );
    if with_before {
        strangers.extend(each(&[Contender::Before], [newcomer(1, false), newcomer(1_000, true)]));
    }
    let mut returns = each(&[BOND], ABSENCES.map(Load::Return));
    if with_before {
        returns.extend(each(&[Contender::Before], [Load::Return(ABSENCES[0])]));
    }
    let requests = [false, true].map(|greedy| Load::Requests { greedy });
    let fast = || {
        let trip = Span::from_millis;
        vec![constant("wifi", 100, trip(50)), constant("lte", 50, trip(70))]
    };
    let direct = [0, 1, 2].map(Contender::Direct);
    let mut cells = vec![
        cell('a', "strangers", far, 3, strangers),
        cell('b', "greedy", fast(), 3, each(both, requests)),
        cell('c', "return", paper_links(), 2, returns),
        cell('d', "call", three_wans(), 3, each(&[both, &direct].concat(), [Load::BusyCall])),
    ];
    if with_before {
        let bulk = Task::Bulk(Span::from_secs(4));
        let tasks = |tasks: &[Task]| each(both, tasks.iter().map(|task| Load::Usual(*task)));
        let files = [10_000, 100_000, 1_000_000].map(Task::file);
        cells.extend([
            Cell {
                title: usual_plan::LOOPBACK.to_owned(),
                ..cell('e', "loopback", Vec::new(), 5, tasks(&[bulk, Task::Rush(20_000)]))
            },
            cell('e', "files", paper_links(), 5, tasks(&files)),
            cell('e', "pages", paper_links(), 5, tasks(&[Task::Page(40)])),
            cell('e', "stalls", paper_links(), 5, tasks(&[Task::Stall(LinkState::Silent)])),
        ]);
    }
    cells
}

/// The cell for the driver of the other benchmarks of `bond`; `None` if it has another load.
pub fn usual(cell: &Cell) -> Option<usual_plan::Cell> {
    let entry = |entry: &Entry| match entry.load {
        Load::Usual(task) => Some(usual_plan::Entry { contender: entry.contender, task }),
        _ => None,
    };
    let contenders = cell.contenders.iter().map(entry).collect::<Option<Vec<_>>>()?;
    Some(usual_plan::Cell {
        name: cell.name.clone(),
        part: cell.part,
        title: cell.title.clone(),
        links: match cell.links.is_empty() {
            // A lab requires a link, which these entries do not use.
            true => vec![LinkSpec::new("loopback")],
            false => cell.links.clone(),
        },
        hosts: match cell.links.is_empty() {
            true => Vec::new(),
            false => vec![HostSpec { name: "origin".to_owned(), ..HostSpec::default() }],
        },
        events: Vec::new(),
        contenders,
        rounds: cell.rounds,
        setting: Setting { is_loopback: cell.links.is_empty(), ..Setting::default() },
    })
}

/// Estimated duration of a cell in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    if let Some(cell) = usual(cell) {
        return usual_plan::seconds_of_all(&cell);
    }
    let round: f64 = cell.contenders.iter().map(|entry| entry.load.seconds(entry.contender)).sum();
    2.0 + round * f64::from(cell.rounds)
}

fn cell(part: char, name: &str, links: Vec<LinkSpec>, rounds: u32, all: Vec<Entry>) -> Cell {
    Cell { rounds, ..Cell::over(part, name, links, all) }
}

/// Every contender with the first load, then with the next.
fn each(contenders: &[Contender], loads: impl IntoIterator<Item = Load>) -> Vec<Entry> {
    let of = |load| contenders.iter().map(move |one| Entry { contender: *one, load });
    loads.into_iter().flat_map(of).collect()
}

/// VDSL, a satellite and 4G.
fn three_wans() -> Vec<LinkSpec> {
    let one = |name: &str, down: u64, up: u64, delay: u64, jitter: u64, loss: f64| {
        let down = CapacitySpec::Constant(Rate::from_mbps(down));
        let mut link = link(name, down, Rate::from_mbps(up), Span::from_millis(2 * delay));
        for way in [&mut link.down, &mut link.up] {
            way.jitter = Span::from_millis(jitter);
            way.loss = if loss > 0.0 { LossSpec::Independent(loss) } else { LossSpec::None };
        }
        link
    };
    vec![
        one("vdsl", 50, 10, 8, 0, 0.0),
        one("satellite", 150, 15, 22, 6, 0.003),
        one("4g", 140, 20, 28, 0, 0.000_5),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_runs_twice_and_all_ends_within_a_quarter_of_an_hour() {
        for with_before in [false, true] {
            let cells = plan(with_before);
            for cell in &cells {
                let run = |entry: &Entry| (entry.contender.name(&cell.links), entry.load.name());
                let runs: BTreeSet<_> = cell.contenders.iter().map(run).collect();
                assert_eq!(runs.len(), cell.contenders.len(), "{}", cell.name);
                assert!(cell.rounds > 0);
            }
            let all: f64 = cells.iter().map(seconds).sum();
            assert!(all < 15.0 * 60.0, "{all}");
        }
    }
}
