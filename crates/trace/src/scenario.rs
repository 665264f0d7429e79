//! The scenario as plain data: links, hosts, timed events, workloads and expectations.
//!
//! One format serves the simulator, the emulator and the benchmarks. Names of congestion controls,
//! workloads and expectations are strings that their owners resolve.

use crate::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span};

mod read;

pub use read::{MAX_HOSTS, MAX_LINKS, MAX_TEXT, ScenarioError, parse, place_of_radio};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, `[a-z0-9-]+`.
    pub name: String,
    /// One sentence for people.
    pub about: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// TCP congestion control of every namespace.
    pub cc: String,
    /// Where in their traces the links start.
    pub trace_offset: Span,
    /// The links, in the order of the file; at least one.
    pub links: Vec<LinkSpec>,
    /// Hosts of the far side; empty means one, `origin`, without extra delay.
    pub hosts: Vec<HostSpec>,
    /// What happens when, sorted by time; restarts with each workload.
    pub events: Vec<Event>,
    /// What runs, one after the other.
    pub workloads: Vec<Workload>,
    /// What must hold afterwards.
    pub expectations: Vec<Expectation>,
}

/// One emulated link, both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Interface name, see [`link_name`](crate::link_text::link_name).
    pub name: String,
    /// From the far side to the device.
    pub down: DirectionSpec,
    /// From the device to the far side.
    pub up: DirectionSpec,
    /// MTU in bytes, 1280 to 65535.
    pub mtu: u16,
    /// What sits on the link.
    pub middlebox: Option<Middlebox>,
    /// What wakes up before it carries anything.
    pub radio: Option<RadioSpec>,
    /// Whether `manyways paths` and `get` shall take the link as metered.
    pub metered: bool,
    /// Whether the link is up at the start.
    pub state: LinkState,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// What it can carry.
    pub capacity: CapacitySpec,
    /// Propagation delay.
    pub delay: DelaySpec,
    /// Each packet's delay varies uniformly by up to this, either way.
    pub jitter: Span,
    /// Whether jitter may reorder packets.
    pub reorder: bool,
    /// Packets lost on the wire, after they used its capacity.
    pub loss: LossSpec,
    /// The queue in front of the wire.
    pub queue: QueueSpec,
}

/// Capacity of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum CapacitySpec {
    /// No limit.
    Unlimited,
    /// The same rate all the time; zero carries nothing.
    Constant(Rate),
    /// A trace that has been read; `source` is how the user named it.
    Trace {
        /// The file as the user wrote it.
        source: String,
        /// Its content.
        trace: LinkTrace,
    },
}

/// Propagation delay of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum DelaySpec {
    /// The same all the time.
    Constant(Span),
    /// From a trace; `source` is how the user named it.
    Trace {
        /// The file as the user wrote it.
        source: String,
        /// Its content.
        steps: Steps<Span>,
    },
}

/// Loss on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossSpec {
    /// None.
    None,
    /// Each packet is lost with this probability, 0 to 1, independently.
    Independent(f64),
    /// Gilbert-Elliott: a good and a bad state, moved between before each packet.
    GilbertElliott {
        /// Probability to go from good to bad.
        to_bad: f64,
        /// Probability to go from bad to good.
        to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

/// How much may wait, and who goes when it is too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSpec {
    /// The most that waits.
    pub limit: QueueLimit,
    /// Which packet goes, and when.
    pub discipline: Discipline,
}

/// The most that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLimit {
    /// Bytes.
    Bytes(Size),
    /// Packets.
    Packets(u64),
    /// Bytes = time × rate (for a trace: its mean rate).
    Time(Span),
    /// No limit.
    Unlimited,
}

/// Queue disciplines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    /// The arriving packet goes when there is no room.
    DropTail,
    /// The oldest packets go until the arriving one has room.
    DropHead,
    /// CoDel (RFC 8289), with drop-tail at the limit.
    Codel {
        /// Acceptable standing delay, 5 ms by default.
        target: Span,
        /// Sliding window, 100 ms by default.
        interval: Span,
    },
}

/// A box on a link that does more than forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Middlebox {
    /// A NAT (IPv6: a stateful firewall) that forgets a mapping which was idle this long.
    Nat {
        /// Idle time.
        idle: Span,
    },
    /// Replaces MPTCP's TCP options by padding.
    StripMptcp,
}

/// The radio of a link. What its profile says is for its owner to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioSpec {
    /// As the user wrote it: the name of a profile, or a file.
    pub source: String,
    /// What is in the file; none where it is a name.
    pub text: Option<String>,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It does.
    Up,
    /// It swallows everything and tells nobody.
    Silent,
    /// The interface loses its carrier.
    NoCarrier,
}

/// One host of the far side.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Its name; `NAME.lab` resolves to it.
    pub name: String,
    /// One-way delay beyond the link's own, by link name.
    pub extra_delay: Vec<(String, Span)>,
    /// More names that resolve to it: `(name, None)` on every link, `(name, Some(link))` on one.
    pub names: Vec<(String, Option<String>)>,
    /// Commands (for a shell) that serve there.
    pub serve: Vec<String>,
}

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Since the workload's start.
    pub at: Span,
    /// Which link.
    pub link: String,
    /// What changes.
    pub change: Vec<Change>,
}

/// One change to a link while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Up or down.
    State(LinkState),
    /// New capacity towards the device.
    Down(CapacitySpec),
    /// New capacity from the device.
    Up(CapacitySpec),
    /// New delay, by direction.
    Delay(Direction, DelaySpec),
    /// New jitter, by direction.
    Jitter(Direction, Span),
    /// New loss, by direction.
    Loss(Direction, LossSpec),
    /// Whether jitter may reorder, by direction.
    Reorder(Direction, bool),
    /// New queue limit, by direction; packets that wait stay.
    Queue(Direction, QueueLimit),
    /// New queue discipline, by direction; packets that wait stay.
    Discipline(Direction, Discipline),
    /// The device wants its radio to be dormant, now.
    Dormant,
}

impl Change {
    /// Which way it works, where that can be chosen.
    pub fn direction(&self) -> Option<Direction> {
        match self {
            Self::State(_) | Self::Down(_) | Self::Up(_) | Self::Dormant => None,
            Self::Delay(way, _)
            | Self::Jitter(way, _)
            | Self::Loss(way, _)
            | Self::Reorder(way, _)
            | Self::Queue(way, _)
            | Self::Discipline(way, _) => Some(*way),
        }
    }

    /// Whether it works one way only: such a change goes after the common ones.
    pub(crate) fn one_way(&self) -> bool {
        self.direction().is_some_and(|way| way != Direction::Both)
    }
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the device.
    Down,
    /// From the device.
    Up,
    /// Both ways.
    Both,
}

impl Default for DirectionSpec {
    /// No limit, no delay, no loss; where a capacity is set later, 150 ms of drop-tail queue.
    fn default() -> Self {
        Self {
            capacity: CapacitySpec::Unlimited,
            delay: DelaySpec::Constant(Span::ZERO),
            jitter: Span::ZERO,
            reorder: false,
            loss: LossSpec::None,
            queue: QueueSpec {
                limit: QueueLimit::Time(Span::from_millis(150)),
                discipline: Discipline::DropTail,
            },
        }
    }
}

impl LinkSpec {
    /// A link that is up, limits nothing and adds nothing: MTU 1500, not metered, no middlebox, no
    /// radio.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            down: DirectionSpec::default(),
            up: DirectionSpec::default(),
            mtu: 1500,
            middlebox: None,
            radio: None,
            metered: false,
            state: LinkState::Up,
        }
    }

    /// What the link is after `change`.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::State(state) => self.state = *state,
            Change::Down(capacity) => self.down.capacity = capacity.clone(),
            Change::Up(capacity) => self.up.capacity = capacity.clone(),
            Change::Delay(way, delay) => self.each(*way, |d| d.delay = delay.clone()),
            Change::Jitter(way, jitter) => self.each(*way, |d| d.jitter = *jitter),
            Change::Loss(way, loss) => self.each(*way, |d| d.loss = *loss),
            Change::Reorder(way, reorder) => self.each(*way, |d| d.reorder = *reorder),
            Change::Queue(way, limit) => self.each(*way, |d| d.queue.limit = *limit),
            Change::Discipline(way, discipline) => {
                self.each(*way, |d| d.queue.discipline = *discipline);
            }
            // It passes, and leaves the link as it was.
            Change::Dormant => {}
        }
    }

    fn each(&mut self, way: Direction, set: impl Fn(&mut DirectionSpec)) {
        if way != Direction::Up {
            set(&mut self.down);
        }
        if way != Direction::Down {
            set(&mut self.up);
        }
    }
}

/// A command that runs on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name, unique.
    pub name: String,
    /// For `/bin/sh -c`.
    pub run: String,
    /// It is killed after this and counts as failed.
    pub timeout: Span,
}

/// What must hold: `value` of `workload` compared with a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Which workload.
    pub workload: String,
    /// `exit`, `seconds`, the down/up bytes of a link (`wifi.down_bytes`), or how often its radio was
    /// brought back (`lte.promotions`).
    pub value: String,
    /// `<`, `<=`, `==`, `>=` or `>`.
    pub op: String,
    /// The bound.
    pub bound: f64,
}
