//! The threads between the kernel's ring and the tables.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::time::{SystemTime, UNIX_EPOCH};

use manyways_flows::analysis::{Analysis, Record, Settings};
use manyways_sys::capture::{Frame, LATENCY, Ring};
use manyways_sys::clock::Clock;
use manyways_sys::poll::Poller;
use manyways_sys::signal::Termination;
use manyways_unit::{Span, Time};
use manyways_wire::capture::linux::Told;

use super::books::{Said, What};
use super::device::State;
use super::save::Save;
use super::{Live, Watch};
use crate::block::Block;
use crate::sets::Rotation;
use crate::work::RunError;

/// Interval of progress reports and of checks for idle timeouts.
const TICK: Span = Span::from_secs(1);
/// Packets older than this have been processed, so a flow without packets since then is idle.
const SLACK: Span = Span::from_secs(1);
/// Tokens of the file descriptors in the poller.
const RING: u64 = 0;
const SIGNAL: u64 = 1;

/// A task of an analysis thread.
pub(super) enum Task {
    Look(Arc<Block>),
    /// All packets until this time were processed.
    Tick(Time),
    /// As `Tick`, and the set ends.
    Turn(Time),
}

/// Takes packets from the ring and distributes them.
pub(super) struct Pump {
    live: Live,
    watch: Watch,
    tasks: Vec<SyncSender<Task>>,
    /// Channel to the saver; `None` if packets are not saved.
    save: Option<SyncSender<Save>>,
    said: SyncSender<Said>,
    used: Receiver<Arc<Block>>,
    began: Time,
    turn: u64,
    block: Block,
    pool: Vec<Block>,
    /// Time of the last packet.
    latest: Time,
    /// Captured packets, and packets dropped by the kernel, in the current set.
    taken: u64,
    missed: u64,
}

/// A channel is closed, because another thread has failed; that thread reports the error.
struct Deaf;

impl Pump {
    pub(super) fn new(
        live: Live,
        watch: &Watch,
        tasks: Vec<SyncSender<Task>>,
        said: SyncSender<Said>,
        used: Receiver<Arc<Block>>,
    ) -> Self {
        let mut block = Block::default();
        block.begin(&live.interfaces);
        Self {
            live,
            watch: *watch,
            tasks,
            save: None,
            said,
            used,
            began: wall(),
            turn: 0,
            block,
            pool: Vec::new(),
            latest: Time::ZERO,
            taken: 0,
            missed: 0,
        }
    }

    /// Enables saving of packets.
    pub(super) fn save(&mut self, save: SyncSender<Save>) {
        self.save = Some(save);
    }

    /// Start of the first set.
    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// Runs until the capture ends. Returns the reason if the capture ended early.
    pub(super) fn run(mut self, termination: &Termination) -> Result<Option<String>, RunError> {
        let interface = self.live.name.clone();
        let wrong = |error| RunError::Capture { interface: interface.clone(), error };
        let clock = Clock::start();
        let mut poller = Poller::new(clock).map_err(wrong)?;
        poller.add(self.live.ring.as_fd(), RING).map_err(wrong)?;
        poller.add(termination.as_fd(), SIGNAL).map_err(wrong)?;
        let mut rotation = self.watch.rotate.map(|every| Rotation::new(every, self.began));
        let deadline = self.watch.duration.map(|duration| clock.now() + duration);
        let mut tick = clock.now() + TICK;
        let (mut last, mut fault, mut was_down) = (None::<Last>, None, false);
        let mut ready = Vec::new();
        loop {
            let is_past = self.take(last.map(|last| last.wall));
            let is_idle = is_past.is_none();
            if (is_idle || self.block.is_full()) && self.send().is_err() {
                return Ok(None);
            }
            let (now, today) = (clock.now(), wall());
            if let Some(last) = last {
                if is_past == Some(true) || is_idle && now >= last.until {
                    break;
                }
            } else if fault.is_some()
                || deadline.is_some_and(|deadline| now >= deadline)
                || termination.now().map_err(wrong)?.is_some()
            {
                // The kernel may still hold packets captured before now.
                last = Some(Last { wall: today, until: now + LATENCY + LATENCY });
            }
            if let Some(rotation) = rotation.as_mut().filter(|rotation| rotation.is_due(today)) {
                let begins = rotation.turn(today);
                self.count().map_err(wrong)?;
                if self.turns(today, begins).is_err() {
                    return Ok(None);
                }
            }
            if now >= tick {
                tick = now + TICK;
                if was_down {
                    // The kernel sends no error if an interface is removed while it is down.
                    let state = self.live.state();
                    was_down = state == State::Down;
                    fault = fault.or_else(|| gone(state));
                }
                self.count().map_err(wrong)?;
                if self.ticks(today).is_err() {
                    return Ok(None);
                }
            }
            if !is_idle {
                continue;
            }
            let ends = rotation.map(|rotation| now + rotation.ends().since(today));
            let stops = last.map_or(deadline, |last| Some(last.until));
            let until = [ends, stops].into_iter().flatten().fold(tick, Time::min);
            poller.wait(Some(until), &mut ready).map_err(wrong)?;
            if ready.contains(&RING)
                && let Some(error) = self.live.ring.error().map_err(wrong)?
            {
                let state = self.live.state();
                fault = fault.or_else(|| gone(state));
                was_down = true;
                if fault.is_none() {
                    // No action necessary: the capture continues when the interface is up again.
                    tracing::warn!(
                        "{interface}: {error}: the capture continues when the interface is up"
                    );
                }
            }
        }
        self.count().map_err(wrong)?;
        let _ = self.ends(None);
        Ok(fault)
    }

    /// Takes a block from the ring; `None` if there is none. Returns whether the block has packets
    /// captured at `end` or later, which are skipped.
    fn take(&mut self, end: Option<Time>) -> Option<bool> {
        let Self { live, block, taken, latest, .. } = self;
        let (link, shards) = (live.interfaces.first()?.link, self.tasks.len() as u8);
        let mut is_past = false;
        let each = |frame: &Frame<'_>| {
            let told = Told {
                protocol: frame.protocol,
                interface: frame.interface,
                hardware: frame.hardware,
                kind: frame.kind,
                address: frame.address,
                vlan: frame.vlan,
            };
            if end.is_some_and(|end| frame.at >= end) {
                is_past = true;
            } else if !told.is_copy() {
                *taken += 1;
                let steps_back = frame.at < std::mem::replace(latest, frame.at);
                block.push((frame.at, steps_back), told.is_sent(), frame.length, shards, |out| {
                    told.write(link, frame.bytes, out)
                });
            }
        };
        Ring::take(&mut live.ring, each).then_some(is_past)
    }

    /// Sends the captured packets to the analysis threads.
    fn send(&mut self) -> Result<(), Deaf> {
        if self.block.seen().count == 0 {
            return Ok(());
        }
        self.pool.extend(self.used.try_iter().filter_map(Arc::into_inner));
        let mut next = self.pool.pop().unwrap_or_default();
        next.begin(&self.live.interfaces);
        let block = Arc::new(std::mem::replace(&mut self.block, next));
        if let Some(save) = &self.save {
            save.send(Save::Block(block.clone())).map_err(|_| Deaf)?;
        }
        self.ask(|| Task::Look(block.clone()))
    }

    fn ticks(&mut self, today: Time) -> Result<(), Deaf> {
        self.ask(|| Task::Tick(before(today)))?;
        self.says(What::Passed { taken: self.taken, missed: self.missed })
    }

    /// Ends a set and starts the next one.
    fn turns(&mut self, today: Time, next: Time) -> Result<(), Deaf> {
        self.send()?;
        self.ask(|| Task::Turn(before(today)))?;
        self.ends(Some(next))?;
        (self.taken, self.missed) = (0, 0);
        self.turn += 1;
        Ok(())
    }

    /// Reports that all packets of a set were taken.
    fn ends(&mut self, next: Option<Time>) -> Result<(), Deaf> {
        self.send()?;
        let (taken, missed) = (self.taken, self.missed);
        if let Some(save) = &self.save {
            save.send(Save::Turn { missed, next }).map_err(|_| Deaf)?;
        }
        self.says(What::Taken { taken, missed, next })
    }

    fn ask(&self, task: impl Fn() -> Task) -> Result<(), Deaf> {
        self.tasks.iter().try_for_each(|one| one.send(task()).map_err(|_| Deaf))
    }

    fn says(&self, what: What) -> Result<(), Deaf> {
        self.said.send(Said { turn: self.turn, what }).map_err(|_| Deaf)
    }

    fn count(&mut self) -> std::io::Result<()> {
        self.missed += self.live.ring.counts()?.dropped;
        Ok(())
    }
}

/// The reason for the end of a capture if the interface was removed.
fn gone(state: State) -> Option<String> {
    (state == State::Gone).then(|| "the interface was removed".to_owned())
}

/// End of the capture: packets captured before `wall` are taken, for at most until `until`.
#[derive(Clone, Copy)]
struct Last {
    wall: Time,
    until: Time,
}

/// Analyses the packets of a shard.
pub(super) fn look(
    shard: u8,
    todo: &Receiver<Task>,
    settings: &Settings,
    said: &SyncSender<Said>,
    back: &Sender<Arc<Block>>,
) {
    let mut analysis = Analysis::new(settings.clone());
    let mut turn = 0;
    // A closed channel means that no more tasks follow.
    let says = |turn: u64, what: What| said.send(Said { turn, what }).ok();
    let hand_out = |turn: u64, analysis: &mut Analysis| {
        let records: Vec<Record> = std::iter::from_fn(|| analysis.poll()).collect();
        if !records.is_empty() {
            says(turn, What::Records(records));
        }
    };
    for task in todo {
        match task {
            Task::Look(block) => {
                for (interface, packet) in block.packets(shard) {
                    analysis.packet(interface, &packet);
                }
                back.send(block).ok();
                hand_out(turn, &mut analysis);
            }
            Task::Tick(now) => {
                analysis.advance(now);
                hand_out(turn, &mut analysis);
                let counters = Box::new(analysis.counters().clone());
                says(turn, What::Going { shard, flows: analysis.live(), counters });
            }
            Task::Turn(now) => {
                analysis.advance(now);
                hand_out(turn, &mut analysis);
                says(turn, What::Counted(Box::new(analysis.turn())));
                turn += 1;
            }
        }
    }
    analysis.finish();
    hand_out(turn, &mut analysis);
    says(turn, What::Counted(Box::new(analysis.turn())));
}

/// Current time of the clock that timestamps packets.
#[allow(clippy::disallowed_methods, reason = "packets and sets have wall-clock times")]
fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn before(now: Time) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(SLACK.as_nanos()))
}
