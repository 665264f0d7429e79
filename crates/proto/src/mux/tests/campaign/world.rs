//! Client, gateway and network of a scenario in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;

use manyways_unit::{Span, Time};

use super::application::{ROLES, StreamRecord};
use super::client::Client;
use super::gateway::Gateway;
use super::network::{Connection, Item, Path, Side};
use super::scenario::{ApplicationPlan, End, Event, Reading, Scenario};
use crate::bond::dial::{CarrierEnd, Input as DialInput};
use crate::bond::path::PathState;
use crate::mux::tests::simulation::{CLIENT, GATEWAY, Piece};
use crate::mux::{Destination, FlowId, Input, ResetCode, StreamId};
use crate::sched::{PathId, PathSet, StreamPolicy};

/// Ends the run of a scenario with the violated invariant.
pub fn violated(invariant: String) -> ! {
    // The text is the result of the run: the hook for panics must not print it.
    resume_unwind(Box::new(invariant))
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            $crate::mux::tests::campaign::world::violated(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// Time in which all streams must complete after the faults, in addition to that of their bytes. A
/// path is dialled 40 s after a failure, and an interrupted connection ends after three minutes.
const COMPLETION_LIMIT: Span = Span::from_secs(300);
/// Time in which a gateway notices that carriers and sessions are abandoned.
const CLEANUP: Span = Span::from_secs(300);
/// Time in which a new stream must complete on a network without faults.
const NEW_STREAM_LIMIT: Span = Span::from_secs(120);
/// Maximum number of steps of a run.
const MAX_STEPS: u64 = 300_000;

/// The clock of a machine, and whether it sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// Nanoseconds by which its clock is ahead.
    ahead: i128,
    sleeps: Option<Sleep>,
}

#[derive(Clone, Copy, Debug)]
struct Sleep {
    since: Time,
    until: Time,
    stops_clock: bool,
}

impl Machine {
    /// Returns the time on the machine's clock.
    pub fn time(&self, now: Time) -> Time {
        Time::from_nanos((i128::from(now.as_nanos()) + self.ahead) as u64)
    }

    fn real_time(&self, clock: Time) -> Time {
        let nanos = (i128::from(clock.as_nanos()) - self.ahead).max(0);
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub fn is_asleep(&self) -> bool {
        self.sleeps.is_some()
    }

    fn wake(&mut self, now: Time) {
        if let Some(sleep) = self.sleeps.take()
            && sleep.stops_clock
        {
            self.ahead -= i128::from(now.since(sleep.since).as_nanos());
        }
    }
}

/// A change at a later time.
#[derive(Clone, Debug)]
pub enum Timer {
    Event(Event),
    Calm,
    EndSilence(PathId),
    LinkUp(PathId),
    Unblock(PathId),
    WakeUp(End),
    StartGateway,
    Connect(usize),
    Write(End, usize),
    Read(End, usize),
    Resolved,
}

/// Timers by time, and in the order in which they were added.
#[derive(Debug, Default)]
pub struct Timers {
    queue: BTreeMap<(Time, u64), Timer>,
    added: u64,
}

impl Timers {
    pub fn add(&mut self, at: Time, timer: Timer) {
        self.added += 1;
        self.queue.insert((at, self.added), timer);
    }

    fn next(&self) -> Option<Time> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    fn take_due(&mut self, now: Time) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.queue.pop_first().map(|(_, timer)| timer)
    }
}

/// The state of a run.
pub struct World<'a> {
    pub scenario: &'a Scenario,
    pub now: Time,
    pub paths: Vec<Path>,
    pub connections: BTreeMap<usize, Connection>,
    pub next_connection: usize,
    pub machines: [Machine; 2],
    pub client: Client,
    pub gateway: Gateway,
    pub streams: Vec<StreamRecord>,
    pub timers: Timers,
    /// Timers that expired while the machine of an endpoint slept.
    postponed: [Vec<Timer>; 2],
    /// Whether the faults have ended.
    pub is_calm: bool,
    pub datagrams: Datagrams,
    prints: bool,
    steps: u64,
    completion: Span,
}

/// The datagrams of a run.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// Session, flow and length of each sent datagram, by endpoint.
    sent: [Vec<(u64, FlowId, usize)>; 2],
    /// Numbers of the received datagrams.
    received: [BTreeSet<u64>; 2],
    /// Flows that were closed, after which late copies begin a new flow.
    pub closed: BTreeSet<FlowId>,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub steps: u64,
    pub streams: u64,
    pub complete: u64,
    pub bytes: u64,
    pub renewals: u64,
    pub carriers: u64,
    pub reinjected: u64,
    pub datagrams: u64,
    /// Time after the faults until all streams have ended, and the seed.
    pub slowest: (Span, u64),
}

impl<'a> World<'a> {
    /// Runs a scenario. An invariant that does not hold unwinds with its description.
    pub fn run(scenario: &'a Scenario, prints: bool) -> Summary {
        let mut machines = [Machine::default(); 2];
        machines[GATEWAY].ahead = 1_000_000_000_000;
        let gateway = Gateway::new(machines[GATEWAY].time(Time::ZERO), scenario.sessions);
        let mut world = Self {
            scenario,
            now: Time::ZERO,
            paths: scenario.paths.iter().map(Path::new).collect(),
            connections: BTreeMap::new(),
            next_connection: 0,
            machines,
            client: Client::new(scenario),
            gateway,
            streams: Vec::new(),
            timers: Timers::default(),
            postponed: Default::default(),
            is_calm: false,
            datagrams: Datagrams::default(),
            prints,
            steps: 0,
            completion: Span::ZERO,
        };
        for (at, event) in &scenario.events {
            world.timers.add(*at, Timer::Event(event.clone()));
        }
        world.timers.add(scenario.calm_at, Timer::Calm);
        world.run_until(scenario.calm_at, |_| false);
        world.check_end();
        world.summary()
    }

    pub fn log(&self, text: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>12.6} {}", self.now.as_secs_f64(), text());
        }
    }

    fn summary(&self) -> Summary {
        let applications = || self.streams.iter().flat_map(|record| &record.applications);
        let complete = |record: &&StreamRecord| {
            record.applications.iter().all(|one| one.peer_has_finished && one.has_finished)
        };
        Summary {
            steps: self.steps,
            streams: self.streams.len() as u64,
            complete: self.streams.iter().filter(complete).count() as u64,
            bytes: applications().map(|application| application.received).sum(),
            renewals: self.client.renewals,
            carriers: self.next_connection as u64,
            reinjected: self.client.endpoint.mux.counters().reinjected,
            datagrams: self.datagrams.received.iter().map(|numbers| numbers.len() as u64).sum(),
            slowest: (self.completion, self.scenario.seed),
        }
    }

    /// Checks that everything completes after the faults, and that nothing is left.
    fn check_end(&mut self) {
        let bytes: u64 = self
            .streams
            .iter()
            .map(|record| record.applications.iter().map(|one| one.plan.bytes).sum::<u64>())
            .sum();
        let works = |(path, _): &(&Path, _)| path.works();
        let paths = self.paths.iter().zip(&self.scenario.paths).filter(works);
        let slowest = paths.map(|(path, _)| path.link.rate).min().unwrap_or_default();
        // Copies on every path, retransmissions and headers.
        let transfer = slowest.time_for(manyways_unit::Size::from_bytes(bytes * 4));
        self.run_until(self.now + COMPLETION_LIMIT + transfer, |world| !world.has_open_streams());
        self.completion = self.now.since(self.scenario.calm_at);
        self.check_streams();
        self.run_until(self.now + CLEANUP, |_| false);
        self.check_sessions();
        self.check_client();
        self.client.endpoint.check_empty();
        self.gateway.endpoints.values().for_each(super::endpoint::Endpoint::check_empty);
        for (number, path) in self.paths.iter().enumerate().filter(|(_, path)| path.works()) {
            let state = self.client.dialer.state(PathId(number as u8));
            let is_usable = matches!(state, PathState::Up | PathState::Asleep);
            ensure!(is_usable, "path {number} works and is {state:?}: {path:?}");
        }
        // The session of sleeping paths may have ended without the client's knowledge, once.
        for is_last in [false, true] {
            let renewals = self.client.renewals;
            let plan = |bytes| ApplicationPlan {
                bytes,
                writes: None,
                reads: Reading::AtOnce,
                finishes: true,
            };
            self.open(0, [plan(2_000), plan(20_000)], Span::from_millis(10), false);
            self.run_until(self.now + NEW_STREAM_LIMIT, |world| !world.has_open_streams());
            if is_last || self.client.renewals == renewals {
                self.check_streams();
            }
            ensure!(!is_last || self.client.renewals == renewals, "a session was renewed twice");
        }
    }

    /// Runs all events until a time, or until a condition holds.
    fn run_until(&mut self, until: Time, is_done: impl Fn(&Self) -> bool) {
        self.settle();
        while !is_done(self) {
            let Some(next) = self.next_event().filter(|next| *next <= until) else {
                self.now = self.now.max(until);
                return;
            };
            self.steps += 1;
            if self.steps >= MAX_STEPS {
                violated(format!("no end at {:?}", self.now));
            }
            self.step(next);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let connections = self.connections.values().filter_map(|one| one.next_event(self.now));
        let mut next = connections.chain(self.timers.next()).min();
        let mut consider = |end: End, wakeup: Option<Time>| {
            if let Some(at) = wakeup.map(|at| self.machines[end].real_time(at)) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        };
        if !self.machines[CLIENT].is_asleep() {
            consider(CLIENT, self.client.dialer.next_wakeup());
            consider(CLIENT, self.client.endpoint.mux.next_wakeup());
        }
        if !self.machines[GATEWAY].is_asleep() && self.gateway.is_running {
            consider(GATEWAY, Some(self.gateway.core.next_wakeup()));
            for endpoint in self.gateway.endpoints.values() {
                consider(GATEWAY, endpoint.mux.next_wakeup());
            }
        }
        next.map(|next| next.max(self.now))
    }

    fn step(&mut self, next: Time) {
        // Endpoints of connections at which something happens get a chance to send.
        let before = self.now;
        let due = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.next_event(before).is_some_and(|at| at <= next));
        let due: Vec<usize> = due.map(|(id, _)| *id).collect();
        self.now = next;
        while let Some(timer) = self.timers.take_due(next) {
            self.on_timer(timer);
        }
        for id in due {
            self.advance(id);
        }
        self.settle();
        if self.steps.is_multiple_of(64) {
            self.client.endpoint.check_sums();
            self.gateway.endpoints.values().for_each(super::endpoint::Endpoint::check_sums);
        }
    }

    /// Executes due events of a connection.
    fn advance(&mut self, id: usize) {
        for from in [CLIENT, GATEWAY] {
            while let Some(connection) = self.connections.get_mut(&id)
                && let Some(item) = connection.take_arrived(self.now, from)
            {
                self.deliver(id, 1 - from, item);
            }
        }
        let Some(connection) = self.connections.get(&id) else { return };
        let sides = connection.sides;
        if connection.keepalive_at().is_some_and(|at| at <= self.now) {
            return self.send(id, CLIENT, Item::Probe);
        }
        let is_late = |end: End| connection.deadline(end).is_some_and(|at| at <= self.now);
        let late = [is_late(CLIENT), is_late(GATEWAY)];
        let how = if self.is_tcp(id) { CarrierEnd::Broken } else { CarrierEnd::Idle };
        for end in [CLIENT, GATEWAY] {
            let Side::Carrier(session, carrier) = sides[end] else {
                if late[end] {
                    self.close(id, end);
                }
                continue;
            };
            if let Some(endpoint) = self.endpoint(end, session) {
                endpoint.is_due = true;
            }
            if late[end] {
                self.on_carrier_lost(end, session, carrier, how);
            }
        }
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    pub fn deliver(&mut self, id: usize, to: End, item: Item) {
        match to {
            CLIENT => self.deliver_to_client(id, item),
            _ => self.deliver_to_gateway(id, item),
        }
    }

    /// Runs both endpoints until they wait for time to pass.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            self.update_interruptions();
            let mut busy = false;
            if !self.machines[CLIENT].is_asleep() {
                busy |= self.run_client();
            }
            if !self.machines[GATEWAY].is_asleep() && self.gateway.is_running {
                busy |= self.run_gateway();
            }
            if !busy {
                return;
            }
        }
        violated("the endpoints do not come to rest: a wakeup is always due".to_owned());
    }

    pub fn update_interruptions(&mut self) {
        let is_down = self.machines.iter().any(Machine::is_asleep) || self.gateway.is_off;
        for connection in self.connections.values_mut() {
            let path = &self.paths[usize::from(connection.path.0)];
            let interrupted = is_down || connection.is_lost || !path.works();
            connection.set_interrupted(self.now, &path.link, interrupted);
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        // Among them the events that waited for a machine to wake up.
        let is_late_fault = matches!(
            timer,
            Timer::Event(_)
                | Timer::EndSilence(_)
                | Timer::LinkUp(_)
                | Timer::Unblock(_)
                | Timer::StartGateway
        );
        if self.is_calm && is_late_fault {
            return;
        }
        let end = match &timer {
            Timer::Event(event) => event.end(),
            Timer::Write(end, _) | Timer::Read(end, _) => Some(*end),
            Timer::LinkUp(_) | Timer::Resolved => Some(CLIENT),
            Timer::Connect(_) => Some(GATEWAY),
            _ => None,
        };
        if let Some(end) = end
            && self.machines[end].is_asleep()
        {
            return self.postponed[end].push(timer);
        }
        match timer {
            Timer::Event(event) => {
                self.log(|| format!("{event:?}"));
                self.on_event(event);
            }
            Timer::Calm => self.end_faults(),
            Timer::EndSilence(path) => self.paths[usize::from(path.0)].is_silent = false,
            Timer::LinkUp(path) => self.link_up(path),
            Timer::Unblock(path) => self.paths[usize::from(path.0)].blocked.clear(),
            Timer::WakeUp(end) => {
                let is_over = |sleep: &Sleep| sleep.until <= self.now;
                if self.machines[end].sleeps.as_ref().is_some_and(is_over) {
                    self.wake(end);
                }
            }
            Timer::StartGateway => self.start_gateway(),
            Timer::Connect(number) => self.connect(number),
            Timer::Write(end, number) => self.resume(end, number, false),
            Timer::Read(end, number) => self.resume(end, number, true),
            Timer::Resolved => {
                let found = self.client.dialer.gateway().to_vec();
                self.dial(DialInput::Resolved(found));
            }
        }
    }

    fn wake(&mut self, end: End) {
        self.machines[end].wake(self.now);
        for timer in std::mem::take(&mut self.postponed[end]) {
            self.timers.add(self.now, timer);
        }
    }

    fn link_up(&mut self, path: PathId) {
        let state = &mut self.paths[usize::from(path.0)];
        if !std::mem::replace(&mut state.has_link, true) {
            self.dial(DialInput::PathChanged(path));
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Open { count, label, plans, connect, is_refused } => {
                for _ in 0..count {
                    self.open(label, plans, connect, is_refused);
                }
            }
            Event::Silence { path, span } => {
                self.paths[usize::from(path.0)].is_silent = true;
                if let Some(span) = span {
                    self.timers.add(self.now + span, Timer::EndSilence(path));
                }
            }
            Event::LinkDown { path, span } => {
                self.paths[usize::from(path.0)].has_link = false;
                self.dial(DialInput::LinkDown(path));
                if let Some(span) = span {
                    self.timers.add(self.now + span, Timer::LinkUp(path));
                }
            }
            Event::Break { path, shares, notices } => {
                let is_asleep = self.machines.iter().any(Machine::is_asleep);
                if let Some(id) = self.newest_carrier(path).filter(|_| !is_asleep) {
                    self.break_connection(id, shares, notices);
                }
            }
            Event::LoseMappings { path } => {
                let lost = self.connections.values_mut().filter(|one| one.path == path);
                lost.for_each(|connection| connection.is_lost = true);
            }
            Event::Block { path, transport, span } => {
                self.paths[usize::from(path.0)].blocked.push(transport);
                self.timers.add(self.now + span, Timer::Unblock(path));
            }
            Event::Change { path, link } => self.paths[usize::from(path.0)].link = link,
            Event::PathChanged { path } => self.dial(DialInput::PathChanged(path)),
            Event::Suspend { end, span, stops_clock } => {
                let until = self.now + span;
                self.machines[end].sleeps = Some(Sleep { since: self.now, until, stops_clock });
                self.timers.add(until, Timer::WakeUp(end));
            }
            Event::Jump { end, span } => self.machines[end].ahead += i128::from(span.as_nanos()),
            Event::Restart { how, span } => {
                self.stop_gateway(how);
                self.timers.add(self.now + span, Timer::StartGateway);
            }
            Event::Rivals { count } => self.admit_rivals(count),
            Event::Relabel { label, policy } => self.relabel(label, policy),
            Event::Assign { stream, label } => self.assign(stream, label),
            Event::Reset { stream, end } => {
                if stream < self.streams.len() {
                    self.abort(end, stream, ResetCode::Aborted);
                }
            }
            Event::Datagrams { end, flow, label, count, len } => {
                for at in 0..usize::from(count) {
                    self.send_datagram(end, flow, label, len + at);
                }
            }
            Event::CloseFlow { flow } => self.close_flow(flow),
        }
    }

    fn relabel(&mut self, id: u8, policy: StreamPolicy) {
        let clock = self.machines[CLIENT].time(self.now);
        let endpoint = &mut self.client.endpoint;
        endpoint.is_due = true;
        endpoint.mux.handle(clock, Input::Relabel { id, stream_policy: policy });
    }

    fn assign(&mut self, number: usize, label: u8) {
        let clock = self.machines[CLIENT].time(self.now);
        let endpoint = &mut self.client.endpoint;
        let Some(record) = self.streams.get(number) else { return };
        if record.session == endpoint.session {
            endpoint.is_due = true;
            endpoint.mux.handle(clock, Input::Assign { stream: record.id, label });
        }
    }

    fn send_datagram(&mut self, end: End, application: u32, label: u8, len: usize) {
        let Some(flow) = self.flow(application, end == CLIENT) else { return };
        let session = self.client.endpoint.session;
        let clock = self.machines[end].time(self.now);
        let Some(endpoint) = self.client.endpoint_of(&mut self.gateway, end, session) else {
            return;
        };
        // A gateway answers only.
        if !endpoint.flows.contains(&flow) {
            return;
        }
        let sent = &mut self.datagrams.sent[end];
        let source = (StreamId(flow.0.into()), ROLES[end]);
        let data = Piece { source, at: (sent.len() as u64) << 20, len };
        sent.push((session, flow, len));
        let peer = Destination::Address([192, 0, 2, 1].into(), 3_478);
        endpoint.is_due = true;
        endpoint.mux.handle(clock, Input::Datagram { flow, label, peer, data });
    }

    pub fn on_datagram(&mut self, end: End, session: u64, flow: FlowId, data: Piece) {
        let number = data.at >> 20;
        let sent = self.datagrams.sent[1 - end].get(number as usize);
        ensure!(
            sent == Some(&(session, flow, data.len)),
            "datagram {number} arrived as {data:?} of {flow:?}, sent was {sent:?}"
        );
        let is_new = self.datagrams.received[end].insert(number);
        let was_closed = self.datagrams.closed.contains(&flow);
        ensure!(is_new || was_closed, "datagram {number} of {flow:?} arrived twice");
    }

    /// Ends all faults, except that some paths remain silent.
    fn end_faults(&mut self) {
        self.log(|| "the faults end".to_owned());
        self.is_calm = true;
        self.wake(CLIENT);
        self.wake(GATEWAY);
        self.start_gateway();
        for number in 0..self.paths.len() {
            let id = PathId(number as u8);
            let works = self.scenario.paths[number].works_at_end;
            self.paths[number].is_silent = !works;
            if works {
                self.paths[number].blocked.clear();
                self.link_up(id);
            }
        }
        self.detach_rivals();
        // A relabelling is a message, which would reveal to the client that a carrier is lost. So
        // only policies that may exclude the working paths change.
        for (label, policy) in self.client.endpoint.mux.labels() {
            if policy.paths != PathSet::ALL {
                self.relabel(label, StreamPolicy { paths: PathSet::ALL, ..policy });
            }
        }
        self.close_flows();
        for number in 0..self.streams.len() {
            for end in [CLIENT, GATEWAY] {
                self.resume(end, number, true);
                self.resume(end, number, false);
            }
        }
    }
}

impl Event {
    /// Returns the endpoint that must be awake for the event.
    fn end(&self) -> Option<End> {
        match self {
            Self::Reset { end, .. } | Self::Datagrams { end, .. } | Self::Suspend { end, .. } => {
                Some(*end)
            }
            Self::Open { .. }
            | Self::LinkDown { .. }
            | Self::PathChanged { .. }
            | Self::Relabel { .. }
            | Self::Assign { .. }
            | Self::CloseFlow { .. } => Some(CLIENT),
            Self::Restart { .. } | Self::Rivals { .. } => Some(GATEWAY),
            Self::Silence { .. }
            | Self::Break { .. }
            | Self::LoseMappings { .. }
            | Self::Block { .. }
            | Self::Change { .. }
            | Self::Jump { .. } => None,
        }
    }
}
