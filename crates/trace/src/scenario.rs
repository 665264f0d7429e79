//! The scenario as plain data: links, hosts, timed events, workloads and expectations.
//!
//! The simulator, the emulator and the benchmarks share this format. Names of congestion controls,
//! workloads and expectations are strings, which their owners resolve.

use std::sync::Arc;

use crate::signal::SignalTrace;
use crate::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span};

mod read;

pub use read::{MAX_DEVICES, MAX_HOSTS, MAX_LINKS, MAX_TEXT, ScenarioError, parse, radio_position};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, `[a-z0-9-]+`.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// TCP congestion control of every namespace.
    pub cc: String,
    /// Position in the traces at the start.
    pub trace_offset: Span,
    /// The links, in the order of the file; at least one.
    pub links: Vec<LinkSpec>,
    /// The declared devices; see [`devices`].
    pub devices: Vec<DeviceSpec>,
    /// The remote hosts; if empty, one host `origin` without extra delay.
    pub hosts: Vec<HostSpec>,
    /// Events, sorted by time; restarted with each workload.
    pub events: Vec<Event>,
    /// Workloads, which run one after the other.
    pub workloads: Vec<Workload>,
    /// Conditions that are checked after the workloads.
    pub expectations: Vec<Expectation>,
}

/// One emulated link, both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Interface name, see [`link_name`](crate::link_text::link_name).
    pub name: String,
    /// The device with the link; `None` for the first one, see [`devices`].
    pub device: Option<String>,
    /// The device at the other end; `None` for the remote hosts.
    pub peer: Option<String>,
    /// Name of the air that the link shares with others; `None` for none.
    pub air: Option<String>,
    /// From the other end to the device.
    pub down: DirectionSpec,
    /// From the device to the other end.
    pub up: DirectionSpec,
    /// MTU in bytes, 1280 to 65535.
    pub mtu: u16,
    /// The middlebox on the link; `None` for none.
    pub middlebox: Option<Middlebox>,
    /// The radio of the link; `None` for none.
    pub radio: Option<RadioSpec>,
    /// The radio signal of the interface; `None` for none.
    pub signal: Option<SignalSpec>,
    /// Whether `manyways paths` and `get` should treat the link as metered.
    pub metered: bool,
    /// State at the start.
    pub state: LinkState,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    pub capacity: CapacitySpec,
    /// Propagation delay.
    pub delay: DelaySpec,
    /// Maximum deviation of each packet's delay, uniformly distributed in both directions.
    pub jitter: Span,
    /// Whether jitter may reorder packets.
    pub reorder: bool,
    /// Loss on the wire, after the packet has used capacity.
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
    /// A parsed trace.
    Trace {
        /// The file as the user wrote it.
        source: String,
        /// The parsed content.
        trace: LinkTrace,
    },
}

/// Propagation delay of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum DelaySpec {
    /// The same delay all the time.
    Constant(Span),
    /// A parsed trace.
    Trace {
        /// The file as the user wrote it.
        source: String,
        /// The parsed content.
        steps: Steps<Span>,
    },
}

/// Loss on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossSpec {
    /// No loss.
    None,
    /// Each packet is lost with this probability, 0 to 1, independently.
    Independent(f64),
    /// Gilbert-Elliott: a good and a bad state, with a possible transition before each packet.
    GilbertElliott {
        /// Transition probability from good to bad.
        to_bad: f64,
        /// Transition probability from bad to good.
        to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

/// Limit of a queue, and which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSpec {
    pub limit: QueueLimit,
    /// Which packets are dropped, and when.
    pub discipline: Discipline,
}

/// Maximum length of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLimit {
    /// IP bytes.
    Bytes(Size),
    /// Wire packets.
    Packets(u64),
    /// Bytes = time × rate (for a trace: its mean rate).
    Time(Span),
    /// No limit.
    Unlimited,
}

/// Queue disciplines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    /// Drops the arriving packet if there is no room.
    DropTail,
    /// Drops the oldest packets until the arriving one fits.
    DropHead,
    /// CoDel (RFC 8289), with drop-tail at the limit.
    Codel {
        /// Acceptable queueing delay, 5 ms by default.
        target: Span,
        /// Sliding window, 100 ms by default.
        interval: Span,
    },
}

/// A middlebox on a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Middlebox {
    /// A NAT (IPv6: a stateful firewall) with an idle timeout.
    Nat {
        /// Idle timeout of a mapping.
        idle: Span,
    },
    /// Replaces MPTCP's TCP options with padding.
    StripMptcp,
}

/// The radio of a link; its owner resolves the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioSpec {
    /// As the user wrote it: the name of a profile, or a file.
    pub source: String,
    /// Content of the file; `None` if `source` is the name of a profile.
    pub text: Option<String>,
}

/// The radio signal of a link over time. It only informs programs: packets pass as without it.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalSpec {
    /// The file as the user wrote it.
    pub source: String,
    /// The parsed content, which is repeated.
    pub trace: Arc<SignalTrace>,
}

/// Kind of network that a link emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    Wifi,
    Cellular,
    Bluetooth,
    /// All links whose name is not that of another kind.
    Ethernet,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// Packets pass.
    #[default]
    Up,
    /// All packets are dropped without notice; the interface stays up.
    Silent,
    /// The interface loses its carrier.
    NoCarrier,
    /// Packets wait in the queue until the state changes.
    Paused,
}

impl LinkState {
    /// Whether packets enter the link: they are not dropped because of its state.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Up | Self::Paused)
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSpec {
    /// Its name; letters, digits and hyphens.
    pub name: String,
    /// Shell commands that start servers on the device.
    pub serve: Vec<String>,
}

/// Name of the first device if nothing else names it.
pub const DEFAULT_DEVICE: &str = "device";

/// Returns the devices of a lab. If none is declared, they are [`DEFAULT_DEVICE`], if a link names no
/// device, and those that links name, in their order. A link that names none belongs to the first.
pub fn devices(declared: &[DeviceSpec], links: &[LinkSpec]) -> Vec<DeviceSpec> {
    if !declared.is_empty() {
        return declared.to_vec();
    }
    let is_named = !links.is_empty() && links.iter().all(|link| link.device.is_some());
    let mut names: Vec<&str> = Vec::new();
    names.extend((!is_named).then_some(DEFAULT_DEVICE));
    for link in links {
        for name in link.device.as_deref().into_iter().chain(link.peer.as_deref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let device = |name: &str| DeviceSpec { name: name.to_owned(), serve: Vec::new() };
    names.into_iter().map(device).collect()
}

/// One remote host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSpec {
    /// Its name; `NAME.lab` resolves to it.
    pub name: String,
    /// One-way delay in addition to the link's own, by link name.
    pub extra_delay: Vec<(String, Span)>,
    /// Further names that resolve to it: `(name, None)` on every link, `(name, Some(link))` on one.
    pub names: Vec<(String, Option<String>)>,
    /// Shell commands that start servers on the host.
    pub serve: Vec<String>,
}

/// A counter of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// IP bytes delivered to the device.
    DownBytes,
    /// IP bytes delivered to the far side.
    UpBytes,
    /// Packets towards the device that were dropped.
    DownDropped,
    /// Packets from the device that were dropped.
    UpDropped,
    /// Promotions of the radio.
    Promotions,
}

impl Counter {
    pub const ALL: [Self; 5] =
        [Self::DownBytes, Self::UpBytes, Self::DownDropped, Self::UpDropped, Self::Promotions];

    /// The name in a condition, like `down_bytes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DownBytes => "down_bytes",
            Self::UpBytes => "up_bytes",
            Self::DownDropped => "down_dropped",
            Self::UpDropped => "up_dropped",
            Self::Promotions => "promotions",
        }
    }
}

/// A condition on a counter of a link; counters never decrease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name of the link.
    pub link: String,
    pub counter: Counter,
    /// The condition holds from this value on.
    pub least: u64,
}

/// A change of a link at a time or on a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Counters count from the start of the workload; `None` for an event at a time.
    pub when: Option<Condition>,
    /// Time since the start of the workload, or since the condition held.
    pub at: Span,
    /// The change is undone when this condition holds, and not made if it holds already. `None` for
    /// a change that stays.
    pub until: Option<Condition>,
    /// Name of the link.
    pub link: String,
    /// The changes, in order.
    pub change: Vec<Change>,
}

/// One change to a running link.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
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
    /// New queue limit, by direction; waiting packets stay.
    Queue(Direction, QueueLimit),
    /// New queue discipline, by direction; waiting packets stay.
    Discipline(Direction, Discipline),
    /// New radio signal; `None` for none.
    Signal(Option<SignalSpec>),
    /// The device requests fast dormancy now.
    Dormant,
    /// The NAT of the link loses its mappings now.
    NatRestart,
}

impl Change {
    /// Returns the direction; `None` if the kind of change has no choice of direction.
    pub fn direction(&self) -> Option<Direction> {
        match self {
            Self::State(_)
            | Self::Down(_)
            | Self::Up(_)
            | Self::Signal(_)
            | Self::Dormant
            | Self::NatRestart => None,
            Self::Delay(way, _)
            | Self::Jitter(way, _)
            | Self::Loss(way, _)
            | Self::Reorder(way, _)
            | Self::Queue(way, _)
            | Self::Discipline(way, _) => Some(*way),
        }
    }

    /// Returns the changes that restore the settings of a link; `None` for a request, which cannot
    /// be undone.
    pub fn inverse(&self, link: &LinkSpec) -> Option<Vec<Self>> {
        let both = |change: fn(&DirectionSpec, Direction) -> Self| {
            vec![change(&link.down, Direction::Down), change(&link.up, Direction::Up)]
        };
        let mut all = match self {
            Self::State(_) => vec![Self::State(link.state)],
            Self::Down(_) => vec![Self::Down(link.down.capacity.clone())],
            Self::Up(_) => vec![Self::Up(link.up.capacity.clone())],
            Self::Delay(..) => both(|spec, way| Self::Delay(way, spec.delay.clone())),
            Self::Jitter(..) => both(|spec, way| Self::Jitter(way, spec.jitter)),
            Self::Loss(..) => both(|spec, way| Self::Loss(way, spec.loss)),
            Self::Reorder(..) => both(|spec, way| Self::Reorder(way, spec.reorder)),
            Self::Queue(..) => both(|spec, way| Self::Queue(way, spec.queue.limit)),
            Self::Discipline(..) => both(|spec, way| Self::Discipline(way, spec.queue.discipline)),
            Self::Signal(_) => vec![Self::Signal(link.signal.clone())],
            Self::Dormant | Self::NatRestart => return None,
        };
        if let Some(way @ (Direction::Down | Direction::Up)) = self.direction() {
            all.retain(|change| change.direction() == Some(way));
        }
        Some(all)
    }

    /// Whether the change applies to one direction; it is then applied after the common ones.
    pub(crate) fn is_one_way(&self) -> bool {
        self.direction().is_some_and(|direction| direction != Direction::Both)
    }
}

/// Direction of a setting.
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
    /// No limit, no delay, no loss; a queue of 150 ms with drop-tail if a capacity is set later.
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
    /// Creates a link that is up and has no limits: MTU 1500, not metered, no middlebox, no radio, no
    /// signal and no air.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            device: None,
            peer: None,
            air: None,
            down: DirectionSpec::default(),
            up: DirectionSpec::default(),
            mtu: 1500,
            middlebox: None,
            radio: None,
            signal: None,
            metered: false,
            state: LinkState::Up,
        }
    }

    /// Returns the kind of network that the link emulates, by its name.
    pub fn kind(&self) -> NetworkKind {
        let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| self.name.starts_with(prefix));
        if is(&["wifi", "wl"]) {
            NetworkKind::Wifi
        } else if is(&["lte", "cell", "5g", "4g", "nr", "umts", "3g", "wwan"]) {
            NetworkKind::Cellular
        } else if is(&["bt", "blue"]) {
            NetworkKind::Bluetooth
        } else {
            NetworkKind::Ethernet
        }
    }

    /// Changes the specification of the link.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::State(state) => self.state = *state,
            Change::Down(capacity) => self.down.capacity = capacity.clone(),
            Change::Up(capacity) => self.up.capacity = capacity.clone(),
            Change::Delay(way, delay) => self.update_directions(*way, |d| d.delay = delay.clone()),
            Change::Jitter(way, jitter) => self.update_directions(*way, |d| d.jitter = *jitter),
            Change::Loss(way, loss) => self.update_directions(*way, |d| d.loss = *loss),
            Change::Reorder(way, reorder) => self.update_directions(*way, |d| d.reorder = *reorder),
            Change::Queue(way, limit) => self.update_directions(*way, |d| d.queue.limit = *limit),
            Change::Discipline(way, discipline) => {
                self.update_directions(*way, |d| d.queue.discipline = *discipline);
            }
            Change::Signal(signal) => self.signal = signal.clone(),
            // These change the state of the radio or the NAT, not the specification.
            Change::Dormant | Change::NatRestart => {}
        }
    }

    fn update_directions(&mut self, direction: Direction, set: impl Fn(&mut DirectionSpec)) {
        if direction != Direction::Up {
            set(&mut self.down);
        }
        if direction != Direction::Down {
            set(&mut self.up);
        }
    }
}

/// A command that runs on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub name: String,
    /// The device; `None` for the first one.
    pub device: Option<String>,
    /// Command for `/bin/sh -c`.
    pub run: String,
    /// Time after which the command is killed and counts as failed.
    pub timeout: Span,
}

/// A condition: `value` of `workload` compared with a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Name of the workload.
    pub workload: String,
    /// `exit`, `seconds`, the down/up bytes of a link (`wifi.down_bytes`), or the promotions of its
    /// radio (`lte.promotions`).
    pub value: String,
    /// `<`, `<=`, `==`, `>=` or `>`.
    pub op: String,
    pub bound: f64,
}
