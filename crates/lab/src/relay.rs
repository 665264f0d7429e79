//! The relay: one thread that moves packets between TUN devices through the pure link cores.
//!
//! One thread serves all links, because a write takes microseconds and passing a packet between
//! threads takes as long. It writes before it reads: a relay that reads first falls behind by tens
//! of milliseconds when a sender bursts. A packet is released at the first wake-up after its time,
//! never before.

mod action;
mod air;
mod lane;
mod slab;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use manyways_link::distance::{Distances, Transit};
use manyways_link::medium::Medium;
use manyways_link::middlebox::{Middlebox, Side, Verdict};
use manyways_link::schedule::{Counters, Schedule};
use manyways_link::segment::{HeaderBuffer, Offload, Slice, plan, slice};
use manyways_link::settings::Settings;
use manyways_link::{Cause, Output, Packet};
use manyways_model::radio::Direction;
use manyways_sys::clock::{Clock, thread_cpu};
use manyways_sys::poll::{Poller, Waker};
use manyways_sys::thread::{ThreadPriority, set_realtime};
use manyways_sys::tun::{HEADER_SIZE, Tun};
use manyways_trace::scenario::{Change, LinkSpec, LinkState};
use manyways_unit::{Rate, Size, Span, Time};

use self::action::Pending;
use self::lane::Lane;
use self::slab::{Slab, Slot, Target};
use super::pcap::PcapWriter;
use super::radio::{Radio, RadioStats};
use super::signal::{SignalSender, SignalState};

pub use self::action::{Action, Applied, WaitingChange};
pub use self::lane::LaneStats;

/// Packets read from one device before the relay continues with the next one.
const READ_BATCH: usize = 16;

/// Number of applied actions that the relay keeps until the timeline takes them.
pub const MAX_APPLIED: usize = 1_000;

/// Above this total rate, real-time priority would starve the senders under test.
const REAL_TIME_LIMIT: Rate = Rate::from_mbps(2_000);

/// One link of the relay.
pub struct RelayLink {
    pub spec: LinkSpec,
    /// TUN of the device.
    pub device: Tun,
    /// TUNs of the remote hosts; the first one also receives packets that match no host's address.
    pub hosts: Vec<HostEnd>,
    /// The middlebox on the link; `None` for none.
    pub middlebox: Option<Middlebox>,
    /// The radio of the link; `None` for none.
    pub radio: Option<Radio>,
    /// The capture file; `None` to capture nothing.
    pub pcap: Option<PcapWriter>,
}

/// A remote host's end of a link.
pub struct HostEnd {
    pub tun: Tun,
    /// One-way delay in addition to the link's.
    pub extra_delay: Span,
    pub addresses: Vec<IpAddr>,
}

/// Configuration of the relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// One-way delays of single addresses of remote hosts, in addition to those of the hosts.
    pub distances: Distances,
    /// Seed of all randomness.
    pub seed: u64,
    /// Position in the traces at the start.
    pub trace_offset: Span,
    /// Whether to disable the emulation: packets pass from device to device, as a baseline for
    /// benchmarks.
    pub bare: bool,
}

/// Counters of one link.
#[derive(Clone, Debug, Default)]
pub struct LinkStats {
    pub state: LinkState,
    /// Towards the device.
    pub down: LaneStats,
    /// From the device.
    pub up: LaneStats,
    /// Current capacity towards the device; `None` if unlimited.
    pub down_rate: Option<Rate>,
    /// Current capacity from the device; `None` if unlimited.
    pub up_rate: Option<Rate>,
    /// Longest time between the due time of a packet and its release, in either direction, since
    /// the last [`Relay::restart`].
    pub max_lateness: Span,
    /// Packets dropped by the middlebox.
    pub middlebox_drops: u64,
    /// State of the radio; `None` if the link has no radio.
    pub radio: Option<RadioStats>,
    /// The radio signal; `None` if the link has none.
    pub signal: Option<SignalState>,
}

/// Counters of the relay.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time of the snapshot, on the relay's clock.
    pub at: Time,
    /// One entry per link, in the order of [`Relay::start`].
    pub links: Vec<LinkStats>,
    /// Changes that have not happened, and those that have and will be undone.
    pub waiting: Vec<WaitingChange>,
    /// Processor time of the relay's thread.
    pub cpu: Span,
    /// Packets that the kernel rejected (`EIO` and the like).
    pub write_errors: u64,
    /// Packets that were not IP packets, or had an invalid offload header.
    pub malformed: u64,
}

enum Command {
    Change { link: usize, changes: Vec<Change> },
    Schedule(Action),
    Cancel { link: usize, done: Sender<usize> },
    Restart { offset: Span, actions: Vec<Action>, done: Sender<Time> },
    Snapshot(Sender<Snapshot>),
    TakeApplied(Sender<Vec<Applied>>),
    Stop,
}

/// Handle of a running relay; dropping it stops the thread and removes the devices.
pub struct Relay {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<io::Result<()>>>,
    clock: Clock,
}

impl Relay {
    /// Starts the relay's thread, and passes the signals of the links on.
    pub(crate) fn start(
        links: Vec<RelayLink>,
        config: RelayConfig,
        signals: SignalSender,
    ) -> io::Result<Self> {
        let clock = Clock::start();
        let waker = Arc::new(Waker::new()?);
        let (commands, inbox) = channel();
        let mut worker = Worker::new(clock, links, &config, Arc::clone(&waker), inbox, signals)?;
        let thread =
            std::thread::Builder::new().name("lab-relay".into()).spawn(move || worker.run())?;
        Ok(Self { commands, waker, thread: Some(thread), clock })
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Changes a running link.
    pub fn change(&self, link: usize, changes: Vec<Change>) {
        self.send(Command::Change { link, changes });
    }

    /// Changes a running link later. Its condition counts from now.
    pub fn schedule(&self, action: Action) {
        self.send(Command::Schedule(action));
    }

    /// Removes the scheduled actions that would change a link. Returns their number. Changes
    /// that are made are still undone.
    pub fn cancel(&self, link: usize) -> io::Result<usize> {
        let (done, answer) = channel();
        self.send(Command::Cancel { link, done });
        answer.recv().map_err(|_| stopped_error())
    }

    /// Resets the links to their specification, restarts the traces at `offset` and replaces all
    /// scheduled actions, which count from now. Returns the time that counts as now.
    pub fn restart(&self, offset: Span, actions: Vec<Action>) -> io::Result<Time> {
        let (done, answer) = channel();
        self.send(Command::Restart { offset, actions, done });
        answer.recv().map_err(|_| stopped_error())
    }

    /// Returns the changes of scheduled actions since the previous call, at most the last
    /// [`MAX_APPLIED`].
    pub fn take_applied(&self) -> io::Result<Vec<Applied>> {
        let (answer, applied) = channel();
        self.send(Command::TakeApplied(answer));
        applied.recv().map_err(|_| stopped_error())
    }

    /// Returns the current counters.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let (answer, snapshot) = channel();
        self.send(Command::Snapshot(answer));
        snapshot.recv().map_err(|_| stopped_error())
    }

    /// Stops the thread and returns its result.
    pub fn stop(mut self) -> io::Result<()> {
        self.join()
    }

    fn send(&self, command: Command) {
        // A relay that has ended returns an error with the next answer and in `stop`.
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    fn join(&mut self) -> io::Result<()> {
        self.send(Command::Stop);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the relay's thread panicked")),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

fn stopped_error() -> io::Error {
    io::Error::other("the relay has stopped")
}

/// State of the relay's thread.
struct Worker {
    clock: Clock,
    poller: Poller,
    waker: Arc<Waker>,
    inbox: Receiver<Command>,
    links: Vec<Link>,
    /// The airs that several links share.
    airs: Vec<Medium>,
    distances: Distances,
    slab: Slab,
    schedule: Schedule<Pending>,
    applied: VecDeque<Applied>,
    write_errors: u64,
    malformed: u64,
    bare: bool,
    signals: SignalSender,
    /// A time, and the position of all traces at that time.
    trace: (Time, Span),
    /// Whether real-time priority is requested.
    real_time: bool,
}

struct Link {
    /// As specified; every restart returns to this.
    initial: LinkSpec,
    settings: Settings,
    /// The settings in effect.
    spec: LinkSpec,
    device: Tun,
    hosts: Vec<HostEnd>,
    down: Lane,
    up: Lane,
    /// Slots of packets from remote hosts that have not reached the link yet.
    approaching: Transit<u64>,
    /// Slices for remote hosts that left the link.
    departing: Transit<Departure>,
    middlebox: Option<Middlebox>,
    middlebox_drops: u64,
    radio: Option<Radio>,
    pcap: Option<PcapWriter>,
}

/// Segments of a packet on their way from a link to a remote host.
struct Departure {
    host: usize,
    /// Slot of the packet.
    id: u64,
    first: u32,
    count: u32,
}

const WAKER_TOKEN: u64 = u64::MAX - 1;

/// Port 0 of a link is the device, port n + 1 its n-th host.
fn token(link: usize, port: usize) -> u64 {
    (link as u64) << 32 | port as u64
}

impl Worker {
    fn new(
        clock: Clock,
        links: Vec<RelayLink>,
        config: &RelayConfig,
        waker: Arc<Waker>,
        inbox: Receiver<Command>,
        signals: SignalSender,
    ) -> io::Result<Self> {
        let poller = Poller::new(clock)?;
        poller.add(waker.as_fd(), WAKER_TOKEN)?;
        let now = clock.now();
        let mut states = Vec::with_capacity(links.len());
        for (index, mut link) in links.into_iter().enumerate() {
            if let Some(pcap) = &mut link.pcap {
                pcap.set_epoch(clock.epoch());
            }
            poller.add(link.device.as_fd(), token(index, 0))?;
            for (host, end) in link.hosts.iter().enumerate() {
                poller.add(end.tun.as_fd(), token(index, host + 1))?;
            }
            // Separate streams, so that the directions do not lose the same packets.
            let seed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((index as u64) << 1);
            let lane = |spec, way| Lane::new(spec, seed ^ way, now, config.trace_offset);
            let (down, up) = (lane(&link.spec.down, 0), lane(&link.spec.up, 1));
            if link.spec.state == LinkState::NoCarrier {
                link.device.set_carrier(false)?;
            }
            let mut state = Link {
                approaching: Transit::default(),
                departing: Transit::default(),
                initial: link.spec.clone(),
                settings: Settings::new(link.spec.clone()),
                spec: link.spec,
                device: link.device,
                hosts: link.hosts,
                down,
                up,
                middlebox: link.middlebox,
                middlebox_drops: 0,
                radio: link.radio,
                pcap: link.pcap,
            };
            for lane in [&mut state.down, &mut state.up] {
                lane.set_state(now, state.spec.state);
            }
            states.push(state);
        }
        let airs = air::airs(&states);
        let worker = Self {
            clock,
            poller,
            waker,
            inbox,
            links: states,
            airs,
            distances: config.distances.clone(),
            slab: Slab::new(),
            schedule: Schedule::default(),
            applied: VecDeque::new(),
            write_errors: 0,
            malformed: 0,
            bare: config.bare,
            signals,
            trace: (now, config.trace_offset),
            real_time: false,
        };
        worker.links.iter().filter(|link| link.spec.signal.is_some()).for_each(|link| {
            worker.publish_signal(link);
        });
        Ok(worker)
    }

    fn run(&mut self) -> io::Result<()> {
        set_realtime(false);
        self.update_priority();
        let mut ready = Vec::new();
        loop {
            let now = self.clock.now();
            self.apply_due(now);
            self.emit(now);
            let until = self.next_wakeup();
            self.poller.wait(until, &mut ready)?;
            for &token in &ready {
                if token == WAKER_TOKEN {
                    self.waker.clear();
                    while let Ok(command) = self.inbox.try_recv() {
                        if self.execute(command) {
                            return Ok(());
                        }
                    }
                } else {
                    let now = self.clock.now();
                    self.emit(now);
                    let (link, port) = ((token >> 32) as usize, (token & 0xffff_ffff) as usize);
                    if let Err(error) = self.receive(link, port) {
                        self.close_port(link, port, &error);
                    }
                }
            }
        }
    }

    /// Executes a command; returns whether it was the last one.
    fn execute(&mut self, command: Command) -> bool {
        let now = self.clock.now();
        match command {
            Command::Change { link, changes } => self.apply(now, link, &changes),
            Command::Schedule(action) => {
                self.emit(now);
                self.schedule(now, action);
            }
            Command::Cancel { link, done } => {
                let _ = done.send(self.schedule.retain(|pending| !pending.would_change(link)));
            }
            Command::Restart { offset, actions, done } => {
                self.emit(now);
                self.trace = (now, offset);
                let had_signal: Vec<_> =
                    self.links.iter().map(|link| link.spec.signal.is_some()).collect();
                for link in &mut self.links {
                    link.settings = Settings::new(link.initial.clone());
                    link.apply_settings(now);
                    link.down.restart(now, offset);
                    link.up.restart(now, offset);
                    link.restart_radio(now);
                }
                for (link, had_signal) in self.links.iter().zip(had_signal) {
                    if had_signal || link.spec.signal.is_some() {
                        self.publish_signal(link);
                    }
                }
                self.update_priority();
                self.schedule.retain(|_| false);
                for action in actions {
                    self.schedule(now, action);
                }
                let _ = done.send(now);
            }
            Command::Snapshot(answer) => {
                // The counters include only reported packets.
                self.emit(now);
                let (origin, offset) = self.trace;
                let position = now.since(origin) + offset;
                let _ = answer.send(Snapshot {
                    at: now,
                    waiting: self.waiting_changes(now),
                    links: self
                        .links
                        .iter_mut()
                        .map(|link| LinkStats {
                            state: link.spec.state,
                            radio: link.radio_stats(now),
                            signal: (link.spec.signal.as_ref())
                                .map(|signal| SignalState::at(signal, position)),
                            down: link.down.stats(),
                            up: link.up.stats(),
                            down_rate: link.down.rate(now),
                            up_rate: link.up.rate(now),
                            max_lateness: link.down.max_lateness().max(link.up.max_lateness()),
                            middlebox_drops: link.middlebox_drops,
                        })
                        .collect(),
                    cpu: thread_cpu(),
                    write_errors: self.write_errors,
                    malformed: self.malformed,
                });
            }
            Command::TakeApplied(answer) => {
                let _ = answer.send(std::mem::take(&mut self.applied).into());
            }
            Command::Stop => return true,
        }
        false
    }

    /// Publishes the signal of a link with the start of its traces.
    fn publish_signal(&self, link: &Link) {
        let (origin, offset) = self.trace;
        let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let start = nanos(self.clock.absolute(origin)).saturating_sub(nanos(offset.as_nanos()));
        self.signals.publish(&link.spec.name, link.spec.signal.clone(), start);
    }

    /// Uses real-time priority while the links are slow: a fast relay would starve the senders.
    fn update_priority(&mut self) {
        let peak = |link: &Link| link.down.peak_rate() + link.up.peak_rate();
        let real_time = self.links.iter().map(peak).sum::<Rate>() <= REAL_TIME_LIMIT;
        if real_time != self.real_time {
            self.real_time = real_time;
            if set_realtime(real_time) == ThreadPriority::Normal {
                tracing::debug!("the relay runs at ordinary priority");
            }
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        let action = self.schedule.next_wakeup();
        let airs = self.airs.iter().filter_map(Medium::next_wakeup);
        self.links.iter().filter_map(Link::next_wakeup).chain(airs).chain(action).min()
    }

    /// Writes the packets that are due.
    fn emit(&mut self, now: Time) {
        if !self.airs.is_empty() {
            // Links of one air depend on each other's packets.
            for index in 0..self.links.len() {
                self.take_approaching(now, index);
            }
            self.advance_airs(now);
        }
        for index in 0..self.links.len() {
            self.take_approaching(now, index);
            while let Some(output) = self.links[index].down.poll(now) {
                self.emit_down(now, index, output);
            }
            while let Some(output) = self.links[index].up.poll(now) {
                self.emit_up(index, output);
            }
            let link = &mut self.links[index];
            while let Some((at, Departure { host, id, first, count })) = link.departing.poll(now) {
                if let Some(slot) = self.slab.get(id) {
                    let part = Part::of(slot, first, count);
                    self.write_errors += part.write(slot, &link.hosts[host].tun);
                    link.up.record_release(at, self.clock.now());
                }
                self.slab.release(id, count);
            }
        }
    }

    /// Passes an output of the direction towards the device on.
    fn emit_down(&mut self, now: Time, index: usize, output: Output) {
        let link = &mut self.links[index];
        match output {
            Output::Deliver { at, id, first, count } => {
                if let Some(slot) = self.slab.get(id) {
                    let part = Part::of(slot, first, count);
                    if let Some(pcap) = &mut link.pcap {
                        let (header, payload) = part.bytes(slot);
                        pcap.record_slice(now, Side::Outside, header, payload, &part.offload);
                    }
                    self.write_errors += part.write(slot, &link.device);
                    link.down.record_release(at, self.clock.now());
                }
                self.slab.release(id, count);
                self.observe(at, index);
            }
            Output::Drop { at, id, first, count, cause } => {
                let part = (id, first, count);
                capture_drops(&mut link.pcap, &self.slab, at, Side::Outside, part, cause);
                self.slab.release(id, count);
                self.observe(at, index);
            }
        }
    }

    /// Passes an output of the direction from the device on.
    fn emit_up(&mut self, index: usize, output: Output) {
        let link = &mut self.links[index];
        match output {
            Output::Deliver { at, id, first, count } => {
                let Some(slot) = self.slab.get(id) else { return };
                let Target::Host { index: host, distance } = slot.target else { return };
                if distance.is_zero() {
                    let part = Part::of(slot, first, count);
                    self.write_errors += part.write(slot, &link.hosts[host].tun);
                    link.up.record_release(at, self.clock.now());
                    self.slab.release(id, count);
                } else {
                    link.departing.push(at + distance, Departure { host, id, first, count });
                }
                self.observe(at, index);
            }
            Output::Drop { at, id, first, count, cause } => {
                let part = (id, first, count);
                capture_drops(&mut link.pcap, &self.slab, at, Side::Inside, part, cause);
                self.slab.release(id, count);
                self.observe(at, index);
            }
        }
    }

    /// Removes a device that cannot be read because a process in the lab deleted it. The others
    /// continue.
    fn close_port(&mut self, link: usize, port: usize, error: &io::Error) {
        let tun = self.links[link].tun(port);
        tracing::warn!(%error, "{}: device removed", tun.name());
        // If it stayed in the set it would always be ready.
        let _ = self.poller.remove(tun.as_fd());
    }

    /// Reads the waiting packets of one device.
    fn receive(&mut self, index: usize, port: usize) -> io::Result<()> {
        let mut header = [0; HEADER_SIZE];
        for _ in 0..READ_BATCH {
            let link = &mut self.links[index];
            let Some(length) = link.tun(port).read(&mut header, self.slab.inbox())? else { break };
            let now = self.clock.now();
            let packet = &mut self.slab.inbox()[..length];
            let Some((target, distance)) = link.target(port, packet, &self.distances) else {
                continue; // multicast and link-local packets of the kernel
            };
            let offload = Offload::from_bytes(&header);
            if self.bare {
                let to = match target {
                    Target::Device => &link.device,
                    Target::Host { index: host, .. } => &link.hosts[host].tun,
                };
                self.write_errors += to.write(&header, &[], packet).is_err() as u64;
                continue;
            }
            // The capture shows the device's view, so the packet is recorded before the middlebox.
            if port == 0
                && let Some(pcap) = &mut link.pcap
            {
                pcap.record(now, Side::Inside, packet, &offload);
            }
            let side = if port == 0 { Side::Inside } else { Side::Outside };
            if let Some(middlebox) = &mut link.middlebox
                && middlebox.pass(now, side, packet, &offload) == Verdict::Drop
            {
                link.middlebox_drops += 1;
                continue;
            }
            let Ok(plan) = plan(packet, &offload) else {
                self.malformed += 1;
                continue;
            };
            let id = self.slab.insert(length, offload, plan, target);
            if port == 0 || distance.is_zero() {
                let direction = if port == 0 { Direction::Up } else { Direction::Down };
                self.advance_airs(now);
                self.links[index].enqueue(direction, now, id, &self.slab);
            } else {
                link.approaching.push(now + distance, id);
            }
        }
        Ok(())
    }
}

/// Consecutive segments of a packet, as a separate packet.
struct Part {
    offload: Offload,
    /// `None` if the part is the whole packet, which needs no new headers.
    slice: Option<(Slice, HeaderBuffer)>,
}

impl Part {
    fn of(slot: &Slot, first: u32, count: u32) -> Self {
        if count == slot.plan.segments {
            return Self { offload: slot.offload, slice: None };
        }
        let mut header = Slice::header_buffer();
        let slice = slice(slot.packet(), &slot.offload, &slot.plan, first, count, &mut header);
        Self { offload: slice.offload, slice: Some((slice, header)) }
    }

    /// Returns headers and payload.
    fn bytes<'a>(&'a self, slot: &'a Slot) -> (&'a [u8], &'a [u8]) {
        match &self.slice {
            None => (&[], slot.packet()),
            Some((slice, header)) => (slice.header(header), &slot.packet()[slice.payload.clone()]),
        }
    }

    /// Writes the part; returns the number of errors, 0 or 1.
    fn write(&self, slot: &Slot, tun: &Tun) -> u64 {
        let (header, payload) = self.bytes(slot);
        u64::from(tun.write(&self.offload.to_bytes(), header, payload).is_err())
    }
}

/// Captures packets that a link dropped.
fn capture_drops(
    pcap: &mut Option<PcapWriter>,
    slab: &Slab,
    at: Time,
    from: Side,
    (id, first, count): (u64, u32, u32),
    cause: Cause,
) {
    if let Some(pcap) = pcap
        && let Some(slot) = slab.get(id)
    {
        let part = Part::of(slot, first, count);
        let (header, payload) = part.bytes(slot);
        pcap.record_drop(at, from, cause, header, payload, &part.offload);
    }
}

impl Link {
    /// Passes a packet to one direction, which its radio may delay.
    fn enqueue(&mut self, direction: Direction, now: Time, id: u64, slab: &Slab) {
        let Some(slot) = slab.get(id) else { return };
        // A packet that is lost before it reaches the radio causes no promotion.
        if self.spec.state.accepts()
            && let busy = self.last_busy(now)
            && let Some(radio) = &mut self.radio
        {
            let opens = radio.on_packet(now, busy, direction);
            self.delay_until(now, opens);
        }
        let lane = if direction == Direction::Up { &mut self.up } else { &mut self.down };
        lane.handle(
            now,
            Packet {
                id,
                segments: slot.plan.segments,
                segment: Size::from_bytes(u64::from(slot.plan.segment)),
                last: Size::from_bytes(u64::from(slot.plan.last)),
            },
        );
    }

    /// Both directions share one radio.
    fn delay_until(&mut self, now: Time, until: Time) {
        self.down.delay_until(now, until);
        self.up.delay_until(now, until);
    }

    /// Returns the last time, up to `now`, at which a wire was busy.
    fn last_busy(&mut self, now: Time) -> Option<Time> {
        // Not needed for links without a radio.
        self.radio.as_ref()?;
        self.down.last_busy(now).max(self.up.last_busy(now))
    }

    fn restart_radio(&mut self, now: Time) {
        if let Some(radio) = &mut self.radio {
            radio.restart();
            self.delay_until(now, now);
        }
    }

    fn request_dormancy(&mut self, now: Time) {
        let busy = self.last_busy(now);
        if let Some(radio) = &mut self.radio {
            radio.request_dormancy(now, busy);
        }
    }

    fn counters(&mut self, now: Time) -> Counters {
        let promotions = self.radio_stats(now).map_or(0, |radio| radio.total_promotions());
        Counters::new(&self.down.stats(), &self.up.stats(), promotions)
    }

    fn radio_stats(&mut self, now: Time) -> Option<RadioStats> {
        let busy = self.last_busy(now);
        Some(self.radio.as_mut()?.stats(now, busy))
    }

    /// Applies the settings that differ from those in effect.
    fn apply_settings(&mut self, now: Time) {
        let spec = self.settings.current();
        if spec.state != self.spec.state {
            self.down.set_state(now, spec.state);
            self.up.set_state(now, spec.state);
            if let Err(error) = self.device.set_carrier(spec.state != LinkState::NoCarrier) {
                tracing::warn!(%error, "cannot change the carrier of {}", spec.name);
            }
        }
        self.down.change(now, &spec.down);
        self.up.change(now, &spec.up);
        self.spec = spec;
    }

    fn tun(&self, port: usize) -> &Tun {
        if port == 0 { &self.device } else { &self.hosts[port - 1].tun }
    }

    fn next_wakeup(&self) -> Option<Time> {
        let (approaching, departing) =
            (self.approaching.next_wakeup(), self.departing.next_wakeup());
        [self.down.next_wakeup(), self.up.next_wakeup(), approaching, departing]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the destination of a packet that was read at `port`, and its one-way delay between the
    /// link and the remote host. `None` for a packet that the relay does not pass.
    fn target(&self, port: usize, packet: &[u8], distances: &Distances) -> Option<(Target, Span)> {
        let to = destination(packet)?;
        let of_address = |address: Option<IpAddr>, distance: fn(&Distances, IpAddr) -> Span| {
            let known = address.filter(|_| !distances.is_empty());
            known.map_or(Span::ZERO, |address| distance(distances, address))
        };
        if port == 0 {
            let index = self.hosts.iter().position(|h| h.addresses.contains(&to)).unwrap_or(0);
            let distance =
                self.hosts.get(index)?.extra_delay + of_address(Some(to), Distances::to_host);
            Some((Target::Host { index, distance }, distance))
        } else {
            let distance = self.hosts.get(port - 1)?.extra_delay
                + of_address(source(packet), Distances::to_link);
            Some((Target::Device, distance))
        }
    }
}

/// Returns the destination of an IP packet; `None` for link-local or multicast and for non-IP
/// packets.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    let address = address_at(packet, [16, 24])?;
    let local = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
    };
    (!local).then_some(address)
}

/// Returns the source of an IP packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    address_at(packet, [12, 8])
}

/// Returns the address at an offset, which depends on the IP version: 4 or 6.
fn address_at(packet: &[u8], [v4, v6]: [usize; 2]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(<[u8; 4]>::try_from(packet.get(v4..v4 + 4)?).ok()?.into()),
        6 => Some(<[u8; 16]>::try_from(packet.get(v6..v6 + 16)?).ok()?.into()),
        _ => None,
    }
}
