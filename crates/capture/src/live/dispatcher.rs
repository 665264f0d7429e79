//! The threads between the kernel's ring and the tables.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::time::{SystemTime, UNIX_EPOCH};

use manyways_flows::analysis::{Analysis, Record, Settings};
use manyways_sys::capture::{Frame, MAX_LATENCY, Ring};
use manyways_sys::clock::Clock;
use manyways_sys::poll::Poller;
use manyways_sys::signal::Termination;
use manyways_unit::{Span, Time};
use manyways_wire::capture::linux::FrameMetadata;

use super::interface::State;
use super::save::SaveTask;
use super::set_collector::{Report, WorkerMessage};
use super::{LiveCapture, LiveOptions};
use crate::block::Block;
use crate::sets::Rotation;
use crate::work::RunError;

/// Interval of progress reports and of checks for idle timeouts.
const TICK: Span = Span::from_secs(1);
/// Packets older than this have been processed, so a flow without packets since then is idle.
const MAX_PROCESSING_DELAY: Span = Span::from_secs(1);
/// Tokens of the file descriptors in the poller.
const RING: u64 = 0;
const SIGNAL: u64 = 1;

/// A task of an analysis thread.
pub(super) enum Task {
    Analyze(Arc<Block>),
    /// All packets until this time were processed.
    Tick(Time),
    /// As `Tick`, and the set ends.
    EndSet(Time),
}

/// Takes packets from the ring and distributes them.
pub(super) struct Dispatcher {
    live: LiveCapture,
    options: LiveOptions,
    tasks: Vec<SyncSender<Task>>,
    /// Channel to the saver; `None` if packets are not saved.
    save_tasks: Option<SyncSender<SaveTask>>,
    messages: SyncSender<WorkerMessage>,
    used_blocks: Receiver<Arc<Block>>,
    start: Time,
    set_index: u64,
    block: Block,
    pool: Vec<Block>,
    /// Time of the last packet.
    latest: Time,
    /// Captured packets, and packets dropped by the kernel, in the current set.
    captured: u64,
    dropped: u64,
}

/// A channel is closed, because another thread has failed; that thread reports the error.
struct ChannelClosed;

impl Dispatcher {
    pub(super) fn new(
        live: LiveCapture,
        watch: &LiveOptions,
        tasks: Vec<SyncSender<Task>>,
        messages: SyncSender<WorkerMessage>,
        used: Receiver<Arc<Block>>,
    ) -> Self {
        let mut block = Block::default();
        block.begin(&live.interfaces);
        Self {
            live,
            options: *watch,
            tasks,
            save_tasks: None,
            messages,
            used_blocks: used,
            start: wall_clock(),
            set_index: 0,
            block,
            pool: Vec::new(),
            latest: Time::ZERO,
            captured: 0,
            dropped: 0,
        }
    }

    /// Enables saving of packets.
    pub(super) fn enable_saving(&mut self, save: SyncSender<SaveTask>) {
        self.save_tasks = Some(save);
    }

    /// Start of the first set.
    pub(super) fn start(&self) -> Time {
        self.start
    }

    /// Runs until the capture ends. Returns the reason if the capture ended early.
    pub(super) fn run(mut self, termination: &Termination) -> Result<Option<String>, RunError> {
        let interface = self.live.name.clone();
        let wrong = |error| RunError::Capture { interface: interface.clone(), error };
        let clock = Clock::start();
        let mut poller = Poller::new(clock).map_err(wrong)?;
        poller.add(self.live.ring.as_fd(), RING).map_err(wrong)?;
        poller.add(termination.as_fd(), SIGNAL).map_err(wrong)?;
        let mut rotation =
            self.options.rotation_period.map(|interval| Rotation::new(interval, self.start));
        let deadline = self.options.duration.map(|duration| clock.now() + duration);
        let mut tick = clock.now() + TICK;
        let (mut last, mut fault, mut was_down) = (None::<StopPoint>, None, false);
        let mut ready = Vec::new();
        loop {
            let is_past = self.take_block(last.map(|last| last.end));
            let is_idle = is_past.is_none();
            if (is_idle || self.block.is_full()) && self.send_block().is_err() {
                return Ok(None);
            }
            let (now, today) = (clock.now(), wall_clock());
            if let Some(last) = last {
                if is_past == Some(true) || is_idle && now >= last.deadline {
                    break;
                }
            } else if fault.is_some()
                || deadline.is_some_and(|deadline| now >= deadline)
                || termination.try_wait().map_err(wrong)?.is_some()
            {
                // The kernel may still hold packets captured before now.
                last = Some(StopPoint { end: today, deadline: now + MAX_LATENCY + MAX_LATENCY });
            }
            if let Some(rotation) = rotation.as_mut().filter(|rotation| rotation.is_due(today)) {
                let start = rotation.rotate(today);
                self.add_drops().map_err(wrong)?;
                if self.end_set(today, start).is_err() {
                    return Ok(None);
                }
            }
            if now >= tick {
                tick = now + TICK;
                if was_down {
                    // The kernel sends no error if an interface is removed while it is down.
                    let state = self.live.state();
                    was_down = state == State::Down;
                    fault = fault.or_else(|| removal_error(state));
                }
                self.add_drops().map_err(wrong)?;
                if self.tick(today).is_err() {
                    return Ok(None);
                }
            }
            if !is_idle {
                continue;
            }
            let end = rotation.map(|rotation| now + rotation.end().since(today));
            let stops = last.map_or(deadline, |last| Some(last.deadline));
            let until = [end, stops].into_iter().flatten().fold(tick, Time::min);
            poller.wait(Some(until), &mut ready).map_err(wrong)?;
            if ready.contains(&RING)
                && let Some(error) = self.live.ring.error().map_err(wrong)?
            {
                let state = self.live.state();
                fault = fault.or_else(|| removal_error(state));
                was_down = true;
                if fault.is_none() {
                    // No action necessary: the capture continues when the interface is up again.
                    tracing::warn!(
                        "{interface}: {error}: the capture continues when the interface is up"
                    );
                }
            }
        }
        self.add_drops().map_err(wrong)?;
        let _ = self.report_set_end(None);
        Ok(fault)
    }

    /// Takes a block from the ring; `None` if there is none. Returns whether the block has packets
    /// captured at `end` or later, which are skipped.
    fn take_block(&mut self, end: Option<Time>) -> Option<bool> {
        let Self { live, block, captured: taken, latest, .. } = self;
        let (link, shards) = (live.interfaces.first()?.link, self.tasks.len() as u8);
        let mut is_past = false;
        let each = |frame: &Frame<'_>| {
            let metadata = FrameMetadata {
                protocol: frame.protocol,
                interface: frame.interface,
                hardware: frame.hardware,
                kind: frame.kind,
                address: frame.address,
                vlan: frame.vlan,
            };
            if end.is_some_and(|end| frame.at >= end) {
                is_past = true;
            } else if !metadata.is_copy() {
                *taken += 1;
                let steps_back = frame.at < std::mem::replace(latest, frame.at);
                block.push(
                    (frame.at, steps_back),
                    metadata.is_sent(),
                    frame.length,
                    shards,
                    |out| metadata.write(link, frame.bytes, out),
                );
            }
        };
        Ring::read_block(&mut live.ring, each).then_some(is_past)
    }

    /// Sends the captured packets to the analysis threads.
    fn send_block(&mut self) -> Result<(), ChannelClosed> {
        if self.block.summary().count == 0 {
            return Ok(());
        }
        self.pool.extend(self.used_blocks.try_iter().filter_map(Arc::into_inner));
        let mut next = self.pool.pop().unwrap_or_default();
        next.begin(&self.live.interfaces);
        let block = Arc::new(std::mem::replace(&mut self.block, next));
        if let Some(save) = &self.save_tasks {
            save.send(SaveTask::Block(block.clone())).map_err(|_| ChannelClosed)?;
        }
        self.send_task(|| Task::Analyze(block.clone()))
    }

    fn tick(&mut self, today: Time) -> Result<(), ChannelClosed> {
        self.send_task(|| Task::Tick(processed_until(today)))?;
        self.send_report(Report::CaptureProgress { captured: self.captured, dropped: self.dropped })
    }

    /// Ends a set and starts the next one.
    fn end_set(&mut self, today: Time, next: Time) -> Result<(), ChannelClosed> {
        self.send_block()?;
        self.send_task(|| Task::EndSet(processed_until(today)))?;
        self.report_set_end(Some(next))?;
        (self.captured, self.dropped) = (0, 0);
        self.set_index += 1;
        Ok(())
    }

    /// Reports that all packets of a set were taken.
    fn report_set_end(&mut self, next: Option<Time>) -> Result<(), ChannelClosed> {
        self.send_block()?;
        let (taken, dropped) = (self.captured, self.dropped);
        if let Some(save) = &self.save_tasks {
            save.send(SaveTask::EndSet { dropped, next }).map_err(|_| ChannelClosed)?;
        }
        self.send_report(Report::SetEnd { captured: taken, dropped, next })
    }

    fn send_task(&self, task: impl Fn() -> Task) -> Result<(), ChannelClosed> {
        self.tasks.iter().try_for_each(|one| one.send(task()).map_err(|_| ChannelClosed))
    }

    fn send_report(&self, what: Report) -> Result<(), ChannelClosed> {
        self.messages
            .send(WorkerMessage { set_index: self.set_index, report: what })
            .map_err(|_| ChannelClosed)
    }

    fn add_drops(&mut self) -> std::io::Result<()> {
        self.dropped += self.live.ring.counts()?.dropped;
        Ok(())
    }
}

/// The reason for the end of a capture if the interface was removed.
fn removal_error(state: State) -> Option<String> {
    (state == State::Removed).then(|| "the interface was removed".to_owned())
}

/// End of the capture: packets captured before `wall` are taken, for at most until `until`.
#[derive(Clone, Copy)]
struct StopPoint {
    end: Time,
    deadline: Time,
}

/// Analyses the packets of a shard.
pub(super) fn analyze(
    shard: u8,
    todo: &Receiver<Task>,
    settings: &Settings,
    messages: &SyncSender<WorkerMessage>,
    back: &Sender<Arc<Block>>,
) {
    let mut analysis = Analysis::new(settings.clone());
    let mut set_index = 0;
    // A closed channel means that no more tasks follow.
    let says = |turn: u64, what: Report| {
        messages.send(WorkerMessage { set_index: turn, report: what }).ok()
    };
    let hand_out = |turn: u64, analysis: &mut Analysis| {
        let records: Vec<Record> = std::iter::from_fn(|| analysis.poll()).collect();
        if !records.is_empty() {
            says(turn, Report::Records(records));
        }
    };
    for task in todo {
        match task {
            Task::Analyze(block) => {
                for (interface, packet) in block.packets(shard) {
                    analysis.handle_packet(interface, &packet);
                }
                back.send(block).ok();
                hand_out(set_index, &mut analysis);
            }
            Task::Tick(now) => {
                analysis.advance(now);
                hand_out(set_index, &mut analysis);
                let counters = Box::new(analysis.counters().clone());
                says(
                    set_index,
                    Report::ShardProgress { shard, flows: analysis.active_flows(), counters },
                );
            }
            Task::EndSet(now) => {
                analysis.advance(now);
                hand_out(set_index, &mut analysis);
                says(set_index, Report::FinalCounters(Box::new(analysis.take_counters())));
                set_index += 1;
            }
        }
    }
    analysis.finish();
    hand_out(set_index, &mut analysis);
    says(set_index, Report::FinalCounters(Box::new(analysis.take_counters())));
}

/// Current time of the clock that timestamps packets.
#[allow(clippy::disallowed_methods, reason = "packets and sets have wall-clock times")]
fn wall_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn processed_until(now: Time) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(MAX_PROCESSING_DELAY.as_nanos()))
}
