//! Scenarios as data, and their generator. An event has all its parameters, so that a scenario
//! stays the same if another event is removed.

use std::fmt;

use manyways_unit::{Random, Rate, Span, Time};

use crate::bond::dial::{CarrierTransport, TransportChoice};
use crate::mux::tests::lane::Link;
use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

/// Number of labels.
const LABELS: u8 = 4;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub limits: Limits,
    pub transport: TransportChoice,
    /// Maximum number of sessions of a key.
    pub sessions: u32,
    pub paths: Vec<PathPlan>,
    /// Events by time. All faults end at `calm_at`.
    pub events: Vec<(Time, Event)>,
    pub calm_at: Time,
}

/// Limits of both endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub credit: u64,
    pub stream_credit: u64,
    pub max_stream_credit: u64,
    pub max_unacked: u64,
    pub max_reinjection_budget: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct PathPlan {
    pub link: Link,
    /// Probabilities that a datagram is lost, doubled and delayed.
    pub datagrams: [f64; 3],
    /// Whether the path works after the faults. One path does.
    pub works_at_end: bool,
}

/// Number of an endpoint: the client or the gateway.
pub type End = usize;

#[derive(Clone, Debug)]
pub enum Event {
    /// Applications open streams of one kind. The servers answer after `connect`, or refuse.
    Open {
        count: u8,
        label: u8,
        plans: [ApplicationPlan; 2],
        connect: Span,
        is_refused: bool,
    },
    /// All packets of a path are lost, for a span or until the end of the faults.
    Silence {
        path: PathId,
        span: Option<Span>,
    },
    /// The interface of the client is down, which the client notices.
    LinkDown {
        path: PathId,
        span: Option<Span>,
    },
    /// The newest carrier of a path breaks. A share of the items in flight arrives before, in
    /// 1/256, and an endpoint notices or not.
    Break {
        path: PathId,
        shares: [u8; 2],
        notices: [bool; 2],
    },
    /// A NAT loses the mappings of a path.
    LoseMappings {
        path: PathId,
    },
    /// A middlebox drops new connections over one transport.
    Block {
        path: PathId,
        transport: CarrierTransport,
        span: Span,
    },
    Change {
        path: PathId,
        link: Link,
    },
    /// The client learns of a change of its path that changes nothing.
    PathChanged {
        path: PathId,
    },
    /// The machine of an endpoint sleeps. Its monotonic clock continues or stops.
    Suspend {
        end: End,
        span: Span,
        stops_clock: bool,
    },
    /// The monotonic clock of an endpoint jumps.
    Jump {
        end: End,
        span: Span,
    },
    Restart {
        how: Stop,
        span: Span,
    },
    /// Other clients with the same key start sessions, and disappear.
    Rivals {
        count: u8,
    },
    Relabel {
        label: u8,
        policy: StreamPolicy,
    },
    Assign {
        stream: usize,
        label: u8,
    },
    Reset {
        stream: usize,
        end: End,
    },
    Datagrams {
        end: End,
        flow: u32,
        label: u8,
        count: u8,
        len: usize,
    },
    CloseFlow {
        flow: u32,
    },
}

/// How a gateway stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It ends its sessions.
    Shutdown,
    /// Its process is killed: the kernel closes its connections, and refuses others.
    Kill,
    /// The machine loses power: its connections are reset after the start.
    Crash,
}

/// Behaviour of an application at one endpoint of a stream.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationPlan {
    pub bytes: u64,
    /// Bytes of one write and the time between two writes; at once if `None`.
    pub writes: Option<(u64, Span)>,
    pub reads: Reading,
    /// Whether the application ends its direction after its bytes, or only after the faults.
    pub finishes: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Reading {
    AtOnce,
    /// Bytes of one read and the time between two reads.
    Slow(u64, Span),
    /// Nothing until the end of the faults.
    Never,
}

/// Draws scenarios.
struct Generator {
    random: Random,
    paths: u8,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, at most {} sessions, {:?}", self.transport, self.sessions, self.limits)?;
        for path in &self.paths {
            writeln!(f, "{path:?}")?;
        }
        for (at, event) in &self.events {
            writeln!(f, "{:>12.6} {event:?}", at.as_secs_f64())?;
        }
        writeln!(f, "{:>12.6} the faults end", self.calm_at.as_secs_f64())
    }
}

impl Scenario {
    pub fn of_seed(seed: u64) -> Self {
        let mut generator = Generator { random: Random::for_purpose(seed, 0), paths: 1 };
        generator.paths = 1 + generator.pick(&[0, 1, 1, 1, 2]);
        generator.scenario(seed)
    }
}

impl Generator {
    fn scenario(&mut self, seed: u64) -> Scenario {
        let mut paths: Vec<PathPlan> = (0..self.paths).map(|_| self.path_plan()).collect();
        let survivor = self.random.up_to(u64::from(self.paths) - 1) as usize;
        paths[survivor].works_at_end = true;
        let credit = self.pick(&[64 << 10, 256 << 10, 128 << 20]);
        let stream_credit = self.pick(&[16 << 10, 32 << 10]);
        // Some scenarios take seconds, others contain pauses in which paths fall asleep.
        let length = Span::from_secs(self.pick(&[1, 5, 20, 60, 300]));
        let count = 4 + self.random.up_to(24) as usize;
        // Events come in groups, because faults at the same time are the hardest.
        let groups: Vec<Time> = (0..=count / 6).map(|_| Time::ZERO + self.part(length)).collect();
        let mut events: Vec<(Time, Event)> = (0..count)
            .map(|_| {
                let near = self.pick(&groups) + self.millis(1, 2_000);
                let at =
                    if self.random.chance(0.3) { Time::ZERO + self.part(length) } else { near };
                (at, self.event())
            })
            .collect();
        for at in 0..2 {
            events.push((Time::from_millis(at * 40), self.open()));
        }
        events.sort_by_key(|(at, _)| *at);
        let last = events.last().map_or(Time::ZERO, |(at, _)| *at);
        Scenario {
            seed,
            limits: Limits {
                credit,
                stream_credit,
                max_stream_credit: self.pick(&[32 << 10, 256 << 10, 16 << 20]),
                max_unacked: self.pick(&[64 << 10, 96 << 20]),
                max_reinjection_budget: self.pick(&[8 << 10, 512 << 10]),
            },
            transport: self.pick(&[
                TransportChoice::TcpThenQuic,
                TransportChoice::TcpThenQuic,
                TransportChoice::Only(CarrierTransport::Tcp),
                TransportChoice::Only(CarrierTransport::Quic),
            ]),
            sessions: self.pick(&[2, 4]),
            paths,
            events,
            calm_at: last + self.millis(1, 3_000),
        }
    }

    fn event(&mut self) -> Event {
        let path = self.path();
        let end = self.random.up_to(1) as End;
        match self.random.up_to(99) {
            0..30 => self.open(),
            30..36 => Event::Silence { path, span: self.outage() },
            36..42 => Event::LinkDown { path, span: self.outage() },
            42..50 => Event::Break {
                path,
                shares: [self.random.up_to(255) as u8, self.random.up_to(255) as u8],
                notices: self.pick(&[[true, true], [true, true], [true, false], [false, true]]),
            },
            50..54 => Event::LoseMappings { path },
            54..57 => {
                let transport = self.pick(&[CarrierTransport::Tcp, CarrierTransport::Quic]);
                Event::Block { path, transport, span: self.millis(100, 60_000) }
            }
            57..61 => Event::Change { path, link: self.link() },
            61..63 => Event::PathChanged { path },
            63..67 => Event::Suspend {
                end,
                span: self.millis(10, 600_000),
                stops_clock: self.random.chance(0.5),
            },
            67..69 => Event::Jump { end, span: self.millis(10, 10_000_000) },
            69..74 => Event::Restart {
                how: self.pick(&[Stop::Shutdown, Stop::Kill, Stop::Crash]),
                span: self.millis(1, 20_000),
            },
            74..76 => Event::Rivals { count: 1 + self.random.up_to(4) as u8 },
            76..82 => Event::Relabel { label: self.label(), policy: self.policy() },
            82..85 => Event::Assign { stream: self.random.up_to(11) as usize, label: self.label() },
            85..90 => Event::Reset { stream: self.random.up_to(11) as usize, end },
            90..98 => Event::Datagrams {
                end,
                flow: self.random.up_to(2) as u32,
                label: self.label(),
                count: 1 + self.random.up_to(19) as u8,
                len: self.random.up_to(2_300) as usize,
            },
            _ => Event::CloseFlow { flow: self.random.up_to(2) as u32 },
        }
    }

    fn open(&mut self) -> Event {
        let is_many = self.random.chance(0.1);
        Event::Open {
            count: if is_many { 2 + self.random.up_to(28) as u8 } else { 1 },
            label: self.label(),
            plans: [self.application(is_many), self.application(is_many)],
            connect: self.millis(1, 300),
            is_refused: self.random.chance(0.05),
        }
    }

    fn application(&mut self, is_small: bool) -> ApplicationPlan {
        let max = match is_small {
            true => self.pick(&[0, 300, 3_000]),
            false => self.pick(&[0, 300, 3_000, 3_000, 30_000, 30_000, 30_000, 200_000]),
        };
        let bytes = self.random.up_to(max);
        let piece = |bytes: u64| 1 + bytes / 8;
        let writes = self.random.chance(0.2).then(|| (piece(bytes), self.millis(1, 2_000)));
        let reads = match self.random.up_to(9) {
            0..7 => Reading::AtOnce,
            7..9 => Reading::Slow(4_000 + self.random.up_to(20_000), self.millis(1, 1_000)),
            _ => Reading::Never,
        };
        ApplicationPlan { bytes, writes, reads, finishes: self.random.chance(0.9) }
    }

    fn path_plan(&mut self) -> PathPlan {
        PathPlan {
            link: self.link(),
            datagrams: self.pick(&[[0.0; 3], [0.02, 0.0, 0.0], [0.1, 0.1, 0.3]]),
            works_at_end: self.random.chance(0.7),
        }
    }

    fn link(&mut self) -> Link {
        let kbps = self.log(100, 50_000);
        Link { rate: Rate::from_kbps(kbps), rtt: self.millis(2, 500), queue: Span::ZERO }
    }

    fn policy(&mut self) -> StreamPolicy {
        let primary = self.random.chance(0.5).then(|| self.path());
        StreamPolicy {
            scheduler: self.pick(&SchedulerKind::ALL),
            paths: match self.random.chance(0.6) {
                true => PathSet::ALL,
                false => PathSet::from_bits(self.random.up_to(7) as u32),
            },
            primary,
            priority: self.random.up_to(2) as u8,
        }
    }

    fn outage(&mut self) -> Option<Span> {
        self.random.chance(0.8).then(|| self.millis(20, 200_000))
    }

    fn path(&mut self) -> PathId {
        PathId(self.random.up_to(u64::from(self.paths) - 1) as u8)
    }

    fn label(&mut self) -> u8 {
        self.random.up_to(u64::from(LABELS) - 1) as u8
    }

    /// Returns a span with uniformly distributed logarithm.
    fn millis(&mut self, min: u64, max: u64) -> Span {
        Span::from_millis(self.log(min, max))
    }

    fn log(&mut self, min: u64, max: u64) -> u64 {
        let exponent = self.random.uniform() * (max as f64 / min as f64).ln();
        (min as f64 * exponent.exp()) as u64
    }

    fn part(&mut self, whole: Span) -> Span {
        Span::from_nanos(self.random.up_to(whole.as_nanos()))
    }

    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.random.up_to(values.len() as u64 - 1) as usize].clone()
    }
}
