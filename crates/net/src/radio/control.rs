//! `manyways radio control`: sends a radio to idle by a policy while packets pass.
//!
//! One thread waits for packets reported by the kernel, for the end of the policy's wait, and for
//! signals. Packets arrive in batches, up to [`MAX_LATENCY`] late. Before fast dormancy the thread
//! checks for packets that are not yet reported. So dormancy is never too early; a wait shorter
//! than the latency is late by at most the difference.

mod bond;
mod event_order;
mod exec;
mod source;
mod summary;

use std::io;
use std::os::fd::AsFd;

use manyways_model::radio::control::{self, Controller};
use manyways_model::radio::{Delays, Packet, Policy, Profile};
use manyways_sys::capture::MAX_LATENCY;
use manyways_sys::clock::Clock;
use manyways_sys::poll::Poller;
use manyways_sys::signal::Termination;
use manyways_sys::thread::process_cpu;
use manyways_unit::{Span, Time};
use thiserror::Error;

use self::bond::BondUpdate;
pub use self::bond::{Bond, BondError};
use self::event_order::EventOrder;
use self::exec::CommandResult;
pub use self::exec::Exec;
pub use self::source::{OpenError, Source, SourceKind};
pub use self::summary::Summary;
use super::event::RadioEvent;
use crate::bond::GateEvent;

/// Interval of checks whether an interface is up and exists.
const CHECK_INTERVAL: Span = Span::from_secs(1);
const SOURCE_TOKEN: u64 = 0;
const SIGNAL_TOKEN: u64 = 1;
const COMMAND_TOKEN: u64 = 2;
const BOND_TOKEN: u64 = 3;

/// Settings in addition to the policy.
#[derive(Debug)]
pub struct Options {
    /// Command that sends the radio to idle; `None` reports the decisions only.
    pub exec: Option<Exec>,
    /// Bond client that delays delay-tolerant connections, if the policy delays sessions.
    pub bond: Option<Bond>,
    /// Minimum interval between fast dormancies.
    pub min_interval: Span,
    /// Run time; `None` runs until a signal.
    pub duration: Option<Span>,
}

/// Receiver of events.
pub trait Listener {
    /// `at` is the time since the start. An error ends the run, because events can no longer be
    /// reported.
    fn event(&mut self, at: Time, event: RadioEvent) -> io::Result<()>;
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Result of the model.
    pub control: control::Outcome,
    pub duration: Span,
    /// CPU time of this process for the run, without commands.
    pub cpu: Span,
    /// Number of wake-ups of the thread.
    pub wakeups: u64,
    /// Packets that the kernel dropped for lack of buffer space; the model does not know them.
    pub dropped: u64,
    /// Started commands, and those of them that failed, were killed, or could not be started.
    pub commands: u64,
    /// See [`Outcome::commands`].
    pub failed: u64,
    /// Delay-tolerant connections and their delays.
    pub delays: Delays,
    /// Delayed connections that the application closed before they passed.
    pub abandoned: u64,
    /// The failure that ended the run, if any.
    pub error: Option<String>,
}

/// Reason why the controller stops.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A system call failed.
    #[error("cannot watch {interface}: {error}")]
    System {
        interface: String,
        #[source]
        error: io::Error,
    },
    /// The [`Listener`] failed.
    #[error("cannot write events: {0}")]
    Listener(#[source] io::Error),
}

/// Sends the radio of an interface to idle when the policy decides so, until the duration ends, a
/// signal arrives or the interface is removed. A running command is killed then.
pub fn run(
    source: Source,
    profile: &Profile,
    policy: impl Policy,
    options: Options,
    termination: &Termination,
    listener: &mut dyn Listener,
) -> Result<Outcome, ControlError> {
    let interface = source.name().to_owned();
    let run = follow(source, profile, policy, options, termination, listener);
    run.map_err(|fault| match fault {
        RunError::System(error) => ControlError::System { interface, error },
        RunError::Listener(error) => ControlError::Listener(error),
    })
}

fn follow(
    mut source: Source,
    profile: &Profile,
    policy: impl Policy,
    options: Options,
    termination: &Termination,
    listener: &mut dyn Listener,
) -> Result<Outcome, RunError> {
    let clock = Clock::start();
    let began = process_cpu()?;
    let mut poller = Poller::new(clock)?;
    if let Some(fd) = source.fd() {
        poller.add(fd, SOURCE_TOKEN)?;
    }
    poller.add(termination.as_fd(), SIGNAL_TOKEN)?;
    if let Some(fd) = options.bond.as_ref().and_then(Bond::fd) {
        poller.add(fd, BOND_TOKEN)?;
    }
    let deadline = options.duration.map(|duration| clock.now() + duration);
    let mut controller = Controller::new(profile, policy, options.min_interval);
    if options.exec.is_some() {
        // Decisions that are only reported do not delay packets.
        controller = controller.with_promotions(profile);
    }
    let Options { exec, bond, .. } = options;
    let (events, outcome) = (EventOrder::default(), Outcome::default());
    let mut pump = Pump { controller, exec, bond, outcome, events, listener };
    let (mut ready, mut was_down, mut end) = (Vec::new(), false, None::<Time>);
    let mut tick = clock.now() + CHECK_INTERVAL;
    loop {
        pump.outcome.wakeups += 1;
        source.read_packets(&clock, |packet| pump.on_packet(packet))?;
        let now = clock.now();
        pump.poll_command(now)?;
        if end.is_none() {
            let is_over = pump.outcome.error.is_some()
                || deadline.is_some_and(|deadline| now >= deadline)
                || termination.try_wait()?.is_some();
            // Packets that passed until now can still be in the kernel's ring.
            end = is_over.then(|| now + MAX_LATENCY + MAX_LATENCY);
        }
        if let Some(end) = end
            && (now >= end || source.is_current()?)
        {
            break;
        }
        let mut until = end.or(deadline).unwrap_or(Time::MAX);
        if let Some(due) = pump.next_poll().filter(|_| end.is_none()) {
            // All packets before this time are reported, or the next ones will be soon.
            match due > now || source.is_current()? {
                true => pump.poll(now, &poller)?,
                false => until = until.min(now + MAX_LATENCY),
            }
            until = pump.next_poll().filter(|due| *due > now).map_or(until, |due| until.min(due));
        }
        let bond = pump.update_bond(clock.now(), &poller)?;
        until = bond.map_or(until, |bond| until.min(bond));
        until = pump.command_deadline().map_or(until, |timeout| until.min(timeout));
        until = source.read_interval().map_or(until, |step| until.min(now + step));
        if was_down {
            until = until.min(tick);
        }
        until = pump.flush(clock.now(), &mut source)?.map_or(until, |due| until.min(due));
        let until = (until < Time::MAX).then_some(until);
        poller.wait(until, &mut ready)?;
        let now = clock.now();
        if source.has_failed(ready.contains(&SOURCE_TOKEN))? || was_down && now >= tick {
            tick = now + CHECK_INTERVAL;
            let is_up = source.is_up()?;
            if is_up.is_none() {
                pump.outcome.error = Some("the interface was removed".to_owned());
            } else if is_up == Some(false) && !was_down {
                pump.events.push(now, RadioEvent::RadioDown);
            }
            was_down = is_up == Some(false);
        }
    }
    let now = clock.now();
    if let Some(ended) = pump.exec.take().and_then(|exec| exec.stop(now)) {
        pump.on_command_end(now, ended);
    }
    pump.report(|_| true)?;
    let Pump { controller, mut outcome, .. } = pump;
    outcome.control = controller.finish();
    outcome.dropped = source.dropped()?;
    outcome.duration = now.since(Time::ZERO);
    outcome.cpu = process_cpu()?.saturating_sub(began);
    Ok(outcome)
}

enum RunError {
    System(io::Error),
    Listener(io::Error),
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// State between two waits.
struct Pump<'a, P> {
    controller: Controller<P>,
    exec: Option<Exec>,
    bond: Option<Bond>,
    outcome: Outcome,
    events: EventOrder,
    listener: &'a mut dyn Listener,
}

impl<P: Policy> Pump<'_, P> {
    /// Reports the events at the times that are `due`.
    fn report(&mut self, due: impl Fn(Time) -> bool) -> Result<(), RunError> {
        let mut events = self.events.take(due);
        events
            .try_for_each(|(at, event)| self.listener.event(at, event))
            .map_err(RunError::Listener)
    }

    /// Reports the events before which no packet can still arrive. Returns the latest time of the
    /// next report, if others wait.
    fn flush(&mut self, now: Time, source: &mut Source) -> Result<Option<Time>, RunError> {
        if self.events.first().is_some() {
            let is_current = source.is_current()?;
            self.report(|at| is_current || at + MAX_LATENCY <= now)?;
        }
        Ok(self.events.first().map(|at| at + MAX_LATENCY))
    }

    fn on_packet(&mut self, packet: &Packet) {
        if let Some(wake) = self.controller.on_packet(packet) {
            let slept_seconds = wake.idle_time.as_secs_f64();
            let event = RadioEvent::RadioWake { slept_seconds, is_false: wake.is_false_switch };
            self.events.push(packet.at, event);
        }
    }

    /// Time of the next poll of the policy; `None` while a command runs, whose effect is unknown.
    fn next_poll(&self) -> Option<Time> {
        let is_busy = self.exec.as_ref().is_some_and(Exec::is_running);
        self.controller.next_wakeup().filter(|_| !is_busy)
    }

    /// Time at which a running command is killed.
    fn command_deadline(&self) -> Option<Time> {
        self.exec.as_ref().and_then(Exec::deadline)
    }

    fn poll(&mut self, now: Time, poller: &Poller) -> Result<(), RunError> {
        let Some(sleep) = self.controller.poll(now) else { return Ok(()) };
        let (idle_seconds, wait_seconds) = (sleep.gap.as_secs_f64(), sleep.wait.as_secs_f64());
        self.events.push(now, RadioEvent::RadioSleep { idle_seconds, wait_seconds });
        // All packets were read before this decision, and the command can print, too.
        self.report(|_| true)?;
        let Some(exec) = &mut self.exec else { return Ok(()) };
        self.outcome.commands += 1;
        match exec.start(now, &sleep) {
            Ok(fd) => poller.add(fd, COMMAND_TOKEN).map_err(RunError::System),
            Err(ended) => {
                self.on_command_end(now, ended);
                Ok(())
            }
        }
    }

    /// Updates the gate of the bond. Returns the time of the next update if there is no other
    /// event.
    fn update_bond(&mut self, now: Time, poller: &Poller) -> Result<Option<Time>, RunError> {
        let Some(mut bond) = self.bond.take() else { return Ok(None) };
        if bond.reconnect(now)
            && let Some(fd) = bond.fd()
        {
            poller.add(fd, BOND_TOKEN)?;
        }
        let (updates, end) = bond.read_events(now);
        for update in updates {
            self.on_bond_event(now, update);
        }
        let kept = bond.sync_gate(now, self.controller.gate(now));
        if let Some(error) = end.or(kept.err()) {
            tracing::warn!("bond: control connection lost, connections are not delayed: {error}");
            self.controller.on_gate_removed();
            self.events.push(now, RadioEvent::RadioBond { up: false });
        }
        let gate = self.controller.next_gate_change(now);
        let again = bond.next_attempt();
        self.bond = Some(bond);
        Ok(gate.into_iter().chain(again).min())
    }

    fn on_bond_event(&mut self, now: Time, update: BondUpdate) {
        match update {
            BondUpdate::Reconnected => self.events.push(now, RadioEvent::RadioBond { up: true }),
            BondUpdate::Gate(GateEvent::Started { is_delayed }) => {
                if !is_delayed {
                    self.outcome.delays.push(Span::ZERO);
                }
                if let Some(delay) = self.controller.on_session(now, is_delayed) {
                    let seconds = delay.as_secs_f64();
                    self.events.push(now, RadioEvent::RadioHold { seconds });
                }
            }
            BondUpdate::Gate(GateEvent::Released { waited_seconds }) => {
                self.outcome.delays.push(Span::from_secs_f64(waited_seconds));
                self.events.push(now, RadioEvent::RadioPass { waited_seconds });
            }
            BondUpdate::Gate(GateEvent::Abandoned) => self.outcome.abandoned += 1,
        }
    }

    /// Checks whether the running command has ended or must be killed.
    fn poll_command(&mut self, now: Time) -> Result<(), RunError> {
        let Some(exec) = &mut self.exec else { return Ok(()) };
        if let Some(ended) = exec.poll(now)? {
            self.on_command_end(now, ended);
        }
        Ok(())
    }

    fn on_command_end(&mut self, now: Time, ended: CommandResult) {
        if !ended.has_succeeded() {
            self.outcome.failed += 1;
            self.controller.on_dormancy_failure();
        }
        self.events.push(now, ended.into());
    }
}
