//! `manyways radio control`: sends a radio to sleep as a policy says, while packets pass.
//!
//! One thread waits for the kernel to say that packets passed, for the end of a policy's wait and for
//! signals. Packets come in batches, up to [`LATENCY`] late; before the radio is sent to sleep the
//! kernel is asked whether there is one that was not told yet. So a sleep is never too soon, and where
//! a wait is shorter than that, late by what is left of it.

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

/// How often it is looked whether an interface that is down has come or gone.
const TICK: Span = Span::from_secs(1);
const SOURCE: u64 = 0;
const SIGNAL: u64 = 1;
const COMMAND: u64 = 2;
const BOND: u64 = 3;

/// What to do, beside what the policy decides.
#[derive(Debug)]
pub struct Options {
    /// How the radio is sent to sleep; without a command it is only told when it would be.
    pub exec: Option<Exec>,
    /// Who holds back what can wait while the radio sleeps, where the policy says so.
    pub bond: Option<Bond>,
    /// From one sleep to the next, at least.
    pub every: Span,
    /// Stop after so long; otherwise when a signal comes.
    pub duration: Option<Span>,
}

/// Something has happened.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The radio is sent to sleep.
    Sleep(control::Sleep),
    /// A packet has brought it back.
    Wake(control::Wake),
    /// A command is over.
    Command(Ended),
    /// The interface went down.
    Down,
    /// Connections that can wait are held back for so long, from this first one on.
    Hold(Span),
    /// One of them passes, having waited for so long.
    Pass(Span),
    /// The bond has gone, or is back; what it held back has passed.
    Bond {
        /// It is there.
        is_there: bool,
    },
}

/// Who is told.
pub trait Listener {
    /// At this time since the beginning. An error ends the control, as nobody listens any more.
    fn event(&mut self, at: Time, event: &Event) -> io::Result<()>;
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By the model.
    pub control: control::Outcome,
    /// How long it took.
    pub lasts: Span,
    /// Processor time of this process for it; that of commands is not in it.
    pub cpu: Span,
    /// How often the thread had something to do.
    pub wakeups: u64,
    /// Packets for which there was no room: that they passed is not known.
    pub missed: u64,
    /// Commands that were begun, and those of them that failed, were killed, or did not even begin.
    pub commands: u64,
    /// See [`Outcome::commands`].
    pub failed: u64,
    /// Connections that could wait, and how long those did that were held back.
    pub delays: Delays,
    /// Connections that were held back, and of which the application did not want to wait.
    pub given_up: u64,
    /// Why it ended where nobody wanted it to.
    pub fault: Option<String>,
}

/// Why it cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The system fails.
    #[error("cannot watch {interface}: {error}")]
    System {
        /// What was watched.
        interface: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Nobody hears what happens.
    #[error("cannot write what happens: {0}")]
    Listener(#[source] io::Error),
}

/// Sends the radio behind an interface to sleep whenever the policy says so, until time is up, a signal
/// comes or the interface is gone. A command that runs then is killed.
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
        // What is only said delays nothing.
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
            // What passed until now may still be on its way.
            ends = is_over.then(|| now + LATENCY + LATENCY);
        }
        if let Some(ends) = ends
            && (now >= ends || source.is_current().map_err(system)?)
        {
            break;
        }
        let mut until = ends.or(deadline).unwrap_or(Time::MAX);
        if let Some(due) = pump.due().filter(|_| ends.is_none()) {
            // Of the packets before this moment all are told, or the next ones will not take long.
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
                pump.outcome.fault = Some("the interface is not there any more".to_owned());
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

/// Who failed.
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

/// What happens between two waits.
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

    /// What has passed.
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

    /// When to ask the policy: not while a command runs, of which nobody knows what it does.
    fn due(&self) -> Option<Time> {
        let is_busy = self.exec.as_ref().is_some_and(Exec::is_running);
        self.controller.next_wakeup().filter(|_| !is_busy)
    }

    /// When a command has run for too long.
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

    /// Holds back what can wait, or lets it go. Says when to look again, if nothing happens until then.
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
            tracing::warn!("the bond does not hold anything back any more: {error}");
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

    /// Whether a command is over, or should be.
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
