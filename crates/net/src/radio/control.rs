//! `manyways radio control`: sends a radio to idle by a policy while packets pass.
//!
//! One thread waits for packets reported by the kernel, for the end of the policy's wait, and for
//! signals. Packets arrive in batches, up to [`LATENCY`] late. Before fast dormancy the thread
//! checks for packets that are not yet reported. So dormancy is never too early; a wait shorter
//! than the latency is late by at most the difference.

mod bond;
mod exec;
mod source;

use std::io;
use std::os::fd::AsFd;

use manyways_model::radio::Profile;
use manyways_model::radio::control::{self, Controller};
use manyways_model::radio::policy::Policy;
use manyways_model::radio::simulate::Delays;
use manyways_sys::capture::LATENCY;
use manyways_sys::clock::Clock;
use manyways_sys::poll::Poller;
use manyways_sys::signal::Termination;
use manyways_sys::thread::process_cpu;
use manyways_unit::{Span, Time};
use thiserror::Error;

use self::bond::Said;
pub use self::bond::{Bond, BondError};
pub use self::exec::{Ended, Exec, How};
pub use self::source::{OpenError, Source, Watch};
use crate::bond::delay_gate::GateEvent;

/// Interval of checks whether an interface is up and exists.
const TICK: Span = Span::from_secs(1);
const SOURCE: u64 = 0;
const SIGNAL: u64 = 1;
const COMMAND: u64 = 2;
const BOND: u64 = 3;

/// Settings in addition to the policy.
#[derive(Debug)]
pub struct Options {
    /// Command that sends the radio to idle; `None` reports the decisions only.
    pub exec: Option<Exec>,
    /// Bond client that delays delay-tolerant connections, if the policy delays sessions.
    pub bond: Option<Bond>,
    /// Minimum interval between fast dormancies.
    pub every: Span,
    /// Run time; `None` runs until a signal.
    pub duration: Option<Span>,
}

/// A change that the controller reports to its caller.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Fast dormancy.
    Sleep(control::Sleep),
    /// A promotion caused by a packet.
    Wake(control::Wake),
    Command(Ended),
    Down,
    /// Delay-tolerant connections are delayed by this time, from the first one on.
    Hold(Span),
    /// A delayed connection passes after this delay.
    Pass(Span),
    /// The control connection to the bond was lost or restored; connections delayed before have
    /// passed.
    Bond {
        is_there: bool,
    },
}

/// Receiver of events.
pub trait Listener {
    /// `at` is the time since the start. An error ends the run, because events can no longer be
    /// reported.
    fn event(&mut self, at: Time, event: &Event) -> io::Result<()>;
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Result of the model.
    pub control: control::Outcome,
    pub lasts: Span,
    /// CPU time of this process for the run, without commands.
    pub cpu: Span,
    /// Number of wake-ups of the thread.
    pub wakeups: u64,
    /// Packets that the kernel dropped for lack of buffer space; the model does not know them.
    pub missed: u64,
    /// Started commands, and those of them that failed, were killed, or could not be started.
    pub commands: u64,
    /// See [`Outcome::commands`].
    pub failed: u64,
    /// Delay-tolerant connections and their delays.
    pub delays: Delays,
    /// Delayed connections that the application closed before they passed.
    pub given_up: u64,
    /// The failure that ended the run, if any.
    pub fault: Option<String>,
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
    mut source: Source,
    profile: &Profile,
    policy: impl Policy,
    options: Options,
    termination: &Termination,
    listener: &mut dyn Listener,
) -> Result<Outcome, ControlError> {
    let interface = source.name().to_owned();
    let system = |error| ControlError::System { interface: interface.clone(), error };
    let clock = Clock::start();
    let began = process_cpu().map_err(system)?;
    let mut poller = Poller::new(clock).map_err(system)?;
    if let Some(fd) = source.fd() {
        poller.add(fd, SOURCE).map_err(system)?;
    }
    poller.add(termination.as_fd(), SIGNAL).map_err(system)?;
    if let Some(fd) = options.bond.as_ref().and_then(Bond::fd) {
        poller.add(fd, BOND).map_err(system)?;
    }
    let deadline = options.duration.map(|duration| clock.now() + duration);
    let mut controller = Controller::new(profile, policy, options.every);
    if options.exec.is_some() {
        // Decisions that are only reported do not delay packets.
        controller = controller.with_promotions(profile);
    }
    let Options { exec, bond, .. } = options;
    let mut pump = Pump { controller, exec, bond, outcome: Outcome::default(), listener };
    let (mut ready, mut was_down, mut ends) = (Vec::new(), false, None::<Time>);
    let mut tick = clock.now() + TICK;
    loop {
        pump.outcome.wakeups += 1;
        pump.take(&mut source, &clock).map_err(|error| error.into(&interface))?;
        let now = clock.now();
        pump.command(now).map_err(|error| error.into(&interface))?;
        if ends.is_none() {
            let is_over = pump.outcome.fault.is_some()
                || deadline.is_some_and(|deadline| now >= deadline)
                || termination.now().map_err(system)?.is_some();
            // Packets that passed until now can still be in the kernel's ring.
            ends = is_over.then(|| now + LATENCY + LATENCY);
        }
        if let Some(ends) = ends
            && (now >= ends || source.is_current().map_err(system)?)
        {
            break;
        }
        let mut until = ends.or(deadline).unwrap_or(Time::MAX);
        if let Some(due) = pump.due().filter(|_| ends.is_none()) {
            // All packets before this time are reported, or the next ones will be soon.
            match due > now || source.is_current().map_err(system)? {
                true => pump.poll(now, &poller).map_err(|error| error.into(&interface))?,
                false => until = until.min(now + LATENCY),
            }
            until = pump.due().filter(|due| *due > now).map_or(until, |due| until.min(due));
        }
        let bond = pump.bond(clock.now(), &poller).map_err(|error| error.into(&interface))?;
        until = bond.map_or(until, |bond| until.min(bond));
        until = pump.patience().map_or(until, |patience| until.min(patience));
        until = source.step().map_or(until, |step| until.min(now + step));
        if was_down {
            until = until.min(tick);
        }
        let until = (until < Time::MAX).then_some(until);
        poller.wait(until, &mut ready).map_err(system)?;
        let now = clock.now();
        if source.has_failed(ready.contains(&SOURCE)).map_err(system)? || was_down && now >= tick {
            tick = now + TICK;
            let is_up = source.is_up().map_err(system)?;
            if is_up.is_none() {
                pump.outcome.fault = Some("the interface was removed".to_owned());
            } else if is_up == Some(false) && !was_down {
                pump.tell(now, &Event::Down).map_err(|error| error.into(&interface))?;
            }
            was_down = is_up == Some(false);
        }
    }
    let Pump { mut controller, exec, mut outcome, listener, .. } = pump;
    let now = clock.now();
    if let Some(ended) = exec.and_then(|exec| exec.stop(now)) {
        outcome.failed += 1;
        controller.refused();
        listener.event(now, &Event::Command(ended)).map_err(ControlError::Listener)?;
    }
    outcome.control = controller.finish();
    outcome.missed = source.missed().map_err(system)?;
    outcome.lasts = now.since(Time::ZERO);
    outcome.cpu = process_cpu().map_err(system)?.saturating_sub(began);
    Ok(outcome)
}

enum Fault {
    System(io::Error),
    Listener(io::Error),
}

impl Fault {
    fn into(self, interface: &str) -> ControlError {
        match self {
            Self::System(error) => ControlError::System { interface: interface.to_owned(), error },
            Self::Listener(error) => ControlError::Listener(error),
        }
    }
}

/// State between two waits.
struct Pump<'a, P> {
    controller: Controller<P>,
    exec: Option<Exec>,
    bond: Option<Bond>,
    outcome: Outcome,
    listener: &'a mut dyn Listener,
}

impl<P: Policy> Pump<'_, P> {
    fn tell(&mut self, now: Time, event: &Event) -> Result<(), Fault> {
        self.listener.event(now, event).map_err(Fault::Listener)
    }

    /// Passes new packets to the controller.
    fn take(&mut self, source: &mut Source, clock: &Clock) -> Result<(), Fault> {
        let Self { controller, listener, .. } = self;
        let mut told = Ok(());
        let each = |packet: &_| {
            if let Some(wake) = controller.packet(packet)
                && told.is_ok()
            {
                told = listener.event(packet.at, &Event::Wake(wake)).map_err(Fault::Listener);
            }
        };
        source.take(clock, each).map_err(Fault::System)?;
        told
    }

    /// Time of the next poll of the policy; `None` while a command runs, whose effect is unknown.
    fn due(&self) -> Option<Time> {
        let is_busy = self.exec.as_ref().is_some_and(Exec::is_running);
        self.controller.next_wakeup().filter(|_| !is_busy)
    }

    /// Time at which a running command is killed.
    fn patience(&self) -> Option<Time> {
        self.exec.as_ref().and_then(Exec::until)
    }

    fn poll(&mut self, now: Time, poller: &Poller) -> Result<(), Fault> {
        let Some(sleep) = self.controller.poll(now) else { return Ok(()) };
        self.tell(now, &Event::Sleep(sleep))?;
        let Some(exec) = &mut self.exec else { return Ok(()) };
        self.outcome.commands += 1;
        match exec.start(now, &sleep) {
            Ok(fd) => poller.add(fd, COMMAND).map_err(Fault::System),
            Err(ended) => self.ended(now, ended),
        }
    }

    /// Updates the gate of the bond. Returns the time of the next update if there is no other
    /// event.
    fn bond(&mut self, now: Time, poller: &Poller) -> Result<Option<Time>, Fault> {
        let Some(mut bond) = self.bond.take() else { return Ok(None) };
        if bond.seek(now)
            && let Some(fd) = bond.fd()
        {
            poller.add(fd, BOND).map_err(Fault::System)?;
        }
        let (said, end) = bond.take(now);
        for said in said {
            self.said(now, said)?;
        }
        let kept = bond.keep(now, self.controller.gate(now));
        if let Some(error) = end.or(kept.err()) {
            tracing::warn!("bond: control connection lost, connections are not delayed: {error}");
            self.controller.gate_lost();
            self.tell(now, &Event::Bond { is_there: false })?;
        }
        let gate = self.controller.next_gate(now);
        let again = bond.again();
        self.bond = Some(bond);
        Ok(gate.into_iter().chain(again).min())
    }

    fn said(&mut self, now: Time, said: Said) -> Result<(), Fault> {
        match said {
            Said::Back => self.tell(now, &Event::Bond { is_there: true }),
            Said::Told(GateEvent::Started { is_delayed: waits }) => {
                if !waits {
                    self.outcome.delays.push(Span::ZERO);
                }
                let hold = self.controller.begins(now, waits);
                hold.map_or(Ok(()), |hold| self.tell(now, &Event::Hold(hold)))
            }
            Said::Told(GateEvent::Released { waited_seconds: seconds }) => {
                let waited = Span::from_secs_f64(seconds);
                self.outcome.delays.push(waited);
                self.tell(now, &Event::Pass(waited))
            }
            Said::Told(GateEvent::Abandoned) => {
                self.outcome.given_up += 1;
                Ok(())
            }
        }
    }

    /// Checks whether the running command has ended or must be killed.
    fn command(&mut self, now: Time) -> Result<(), Fault> {
        let Some(exec) = &mut self.exec else { return Ok(()) };
        let ended = exec.poll(now).map_err(Fault::System)?;
        ended.map_or(Ok(()), |ended| self.ended(now, ended))
    }

    fn ended(&mut self, now: Time, ended: Ended) -> Result<(), Fault> {
        if !ended.has_succeeded() {
            self.outcome.failed += 1;
            self.controller.refused();
        }
        self.tell(now, &Event::Command(ended))
    }
}
