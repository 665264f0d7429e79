//! Runs one process on the device of a lab, from its start until its end and until the links are
//! empty.

use std::fmt::Debug;
use std::io::{self, Read};
use std::process::{Child, Command};

use manyways_lab::registry::Registry;
use manyways_lab::{DEFAULT_CC, Lab, LabError, LabSpec, Node};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_sys::wait::{Outcome, wait};
use manyways_trace::scenario::{CapacitySpec, Change, Event, LinkState};
use manyways_unit::{Span, Time};

use crate::cell::{Cell, Contender};
use crate::links::round_trip;
use crate::server::ServerError;
use crate::sockets::{Socket, sockets};

/// Interval of the checks of links and sockets.
pub const POLL_INTERVAL: Span = Span::from_millis(20);
/// Time limit for the links to become empty.
const DRAIN_TIMEOUT: Span = Span::from_secs(3);
/// Time limit in seconds of a transfer whose sockets are read.
const FINISH_TIMEOUT: f64 = 60.0;

/// Reason why a cell could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The user ended the whole benchmark.
    #[error("stopped by signal {0}")]
    Stopped(i32),
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The servers of the lab could not be started.
    #[error("{0}")]
    Server(String),
    #[error("a socket has the congestion control {0}, not {DEFAULT_CC}")]
    Control(String),
    /// The system refused an operation.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

impl From<ServerError> for DriveError {
    fn from(error: ServerError) -> Self {
        Self::Server(error.to_string())
    }
}

/// For `map_err`: `doing` is the failed operation.
pub fn system(doing: &'static str) -> impl Fn(io::Error) -> DriveError {
    move |error| DriveError::System(doing, error)
}

/// A lab in which contenders run, one at a time.
pub struct Launcher<'a> {
    pub lab: Lab,
    /// Signals that end the whole benchmark.
    termination: &'a Termination,
    /// Whether the links do not change during a run.
    is_constant: bool,
    /// Number of runs after which the links did not become quiet without intervention.
    pub drain_failures: std::cell::Cell<u32>,
}

/// Called during a run with the time since its start and with the IP bytes that each link has
/// delivered since then.
pub type Observer<'o> = &'o mut dyn FnMut(Span, &[u64]);

/// An ended process.
pub struct RunOutput {
    /// `None` if the process was killed at the timeout.
    pub success: Option<bool>,
    /// Duration since its start.
    pub seconds: f64,
    pub stdout: String,
    pub stderr: String,
    /// Delivered IP bytes of each link, towards the device.
    pub link_bytes: Vec<u64>,
    /// Start of the run, in the lab's time.
    pub start: Time,
}

impl<'a> Launcher<'a> {
    /// Builds the lab of a cell.
    ///
    /// Must be called while the process has a single thread.
    pub fn start<C: Contender, S: Debug>(
        cell: &Cell<C, S>,
        name: &str,
        seed: u64,
        termination: &'a Termination,
    ) -> Result<Self, DriveError> {
        let registry =
            Registry::of_user().map_err(system("open the folder of the running labs"))?;
        let name = format!("{name}-{}", std::process::id());
        let mut spec = LabSpec::new(name, cell.links.clone());
        spec.hosts.clone_from(&cell.hosts);
        spec.seed = seed;
        let lab = Lab::start(&registry, spec)?;
        let is_constant = cell.is_constant();
        Ok(Self { lab, termination, is_constant, drain_failures: Default::default() })
    }

    /// Runs a command on the device until it ends and the links are empty. `timeout` is in seconds.
    /// The traces of the links start at `offset`, and `events` change the links. The observer is
    /// called at an interval from the start until the process has ended.
    pub fn run(
        &self,
        command: Command,
        timeout: f64,
        (offset, events): (Span, &[Event]),
        mut observed: Option<(Span, Observer<'_>)>,
    ) -> Result<RunOutput, DriveError> {
        let before = self.delivered()?;
        let zero = self.lab.restart(offset, events)?;
        let clock = Clock::start();
        let elapsed = || clock.now().since(Time::ZERO);
        let mut child = self.lab.spawn(Node::Device(0), command)?;
        let timeout = Span::from_secs_f64(timeout);
        let interval = observed.as_ref().map_or(timeout, |(interval, _)| *interval);
        let (mut ended, mut remaining) = (false, timeout);
        while !ended && !remaining.is_zero() {
            ended = self.has_ended(&mut child, interval.min(remaining))?;
            remaining = timeout.saturating_sub(elapsed());
            if let Some((_, observer)) = &mut observed {
                observer(elapsed(), &self.delivered_since(&before)?);
            }
        }
        let seconds = elapsed().as_secs_f64();
        let (success, stdout, stderr) = output(&mut child, ended)?;
        self.drain()?;
        let link_bytes = self.delivered_since(&before)?;
        Ok(RunOutput { success, seconds, stdout, stderr, link_bytes, start: zero })
    }

    /// Returns the sockets of the device and of `hosts` hosts in the middle of a transfer, and the
    /// transfer's standard error. `is_middle` decides from the bytes that each link has delivered
    /// and from the time since the start.
    pub fn sockets_during(
        &self,
        command: Command,
        (hosts, ss): (usize, &std::path::Path),
        offset: Span,
        is_middle: impl Fn(&[u64], Span) -> bool,
    ) -> Result<(Vec<(Node, Socket)>, String), DriveError> {
        let mut seen = None;
        let mut observer = |elapsed, delivered: &[u64]| {
            if seen.is_none() && is_middle(delivered, elapsed) {
                let places = (0..hosts).map(Node::Host).chain([Node::Device(0)]);
                let at = |place| {
                    let found = sockets(&self.lab, ss, place)?.into_iter();
                    Ok(found.map(|socket| (place, socket)).collect())
                };
                seen = Some(places.map(at).collect::<Result<Vec<Vec<_>>, LabError>>());
            }
        };
        // The transfer runs to its end: packets of a killed process would stay on the links for a
        // long time.
        let ended =
            self.run(command, FINISH_TIMEOUT, (offset, &[]), Some((POLL_INTERVAL, &mut observer)))?;
        let seen = seen.transpose()?.unwrap_or_default().concat();
        match seen.iter().find(|(_, socket)| socket.congestion_control != DEFAULT_CC) {
            Some((_, socket)) => Err(DriveError::Control(socket.congestion_control.clone())),
            None => Ok((seen, ended.stderr)),
        }
    }

    /// Waits for a child; `false` if it runs for longer than `timeout`.
    pub fn has_ended(&self, child: &mut Child, timeout: Span) -> Result<bool, DriveError> {
        let outcome = wait(child, Some(timeout), Some(self.termination))
            .map_err(system("watch a contender"))?;
        match outcome {
            Outcome::Exited(_) => Ok(true),
            Outcome::TimedOut => Ok(false),
            Outcome::Signal(ended) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(DriveError::Stopped(ended.signal))
            }
        }
    }

    /// Waits until the links have no packets of an earlier transfer. Links that may have no rate at
    /// present become unlimited for this time. If the links do not become quiet, all packets in
    /// flight are dropped: connections that failed early can exchange packets indefinitely.
    pub fn drain(&self) -> Result<(), DriveError> {
        if !self.is_constant {
            self.change(|| {
                let free = CapacitySpec::Unlimited;
                vec![Change::State(LinkState::Up), Change::Down(free.clone()), Change::Up(free)]
            })?;
        }
        if !self.is_drained()? {
            self.drain_failures.set(self.drain_failures.get() + 1);
            self.change(|| vec![Change::State(LinkState::Silent)])?;
            self.is_drained()?;
            self.change(|| vec![Change::State(LinkState::Up)])?;
        }
        Ok(())
    }

    fn change(&self, changes: impl Fn() -> Vec<Change>) -> Result<(), DriveError> {
        for link in self.lab.links() {
            self.lab.change(&link.name, changes())?;
        }
        Ok(())
    }

    /// Whether the links are empty and deliver nothing for the longest round-trip time, which is
    /// enough for a response to the last packet. `false` after 3 s.
    fn is_drained(&self) -> Result<bool, DriveError> {
        let answer =
            self.lab.links().iter().map(round_trip).max().unwrap_or_default() + POLL_INTERVAL;
        let clock = Clock::start();
        let (mut seen, mut since) = (None, clock.now());
        while clock.now().since(Time::ZERO) < DRAIN_TIMEOUT {
            let links = self.lab.relay().snapshot().map_err(system("look at the links"))?.links;
            let lanes = || links.iter().flat_map(|link| [&link.down, &link.up]);
            let empty =
                lanes().all(|lane| lane.backlog.size.is_zero() && lane.in_flight.size.is_zero());
            let now = Some(lanes().map(|lane| lane.delivered.packets).sum::<u64>());
            if !empty || now != seen {
                (seen, since) = (now, clock.now());
            } else if clock.now().since(since) >= answer {
                return Ok(true);
            }
            std::thread::sleep(POLL_INTERVAL.into());
        }
        Ok(false)
    }

    /// IP bytes that each link has delivered to the device so far.
    pub fn delivered(&self) -> Result<Vec<u64>, DriveError> {
        let snapshot = self.lab.relay().snapshot().map_err(system("look at the links"))?;
        Ok(snapshot.links.iter().map(|link| link.down.delivered.size.as_bytes()).collect())
    }

    /// IP bytes that each link has delivered to the device since it had delivered `before`.
    pub fn delivered_since(&self, before: &[u64]) -> Result<Vec<u64>, DriveError> {
        Ok(self.delivered()?.iter().zip(before).map(|(now, before)| now - before).collect())
    }

    /// IP bytes and packets that each link has delivered so far, in both directions together.
    pub fn carried(&self) -> Result<Vec<(u64, u64)>, DriveError> {
        let snapshot = self.lab.relay().snapshot().map_err(system("look at the links"))?;
        let both = snapshot.links.iter().map(|link| [link.down.delivered, link.up.delivered]);
        let sum = both.map(|[down, up]| {
            (down.size.as_bytes() + up.size.as_bytes(), down.packets + up.packets)
        });
        Ok(sum.collect())
    }

    /// Converts a time of the lab to seconds since 1970.
    pub fn unix_seconds(&self, time: Time) -> f64 {
        self.lab.relay().clock().epoch().as_secs_f64() + time.as_secs_f64()
    }
}

/// The success of a child, its standard output and its standard error. A child that has not
/// `ended` is killed, and has no success.
///
/// # Errors
/// If the child cannot be waited for.
pub fn output(
    child: &mut Child,
    ended: bool,
) -> Result<(Option<bool>, String, String), DriveError> {
    if !ended {
        let _ = child.kill();
    }
    let status = child.wait().map_err(system("wait for a contender"))?;
    let success = ended.then(|| status.success());
    Ok((success, read_all(child.stdout.take()), read_all(child.stderr.take())))
}

/// A child that is killed when the value is dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a pipe to its end.
pub fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // A read error ends the text early.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first line of a program's output that is not blank.
pub fn first_line(said: &str) -> String {
    let line = said.lines().find(|line| !line.trim().is_empty());
    line.map_or_else(|| "it printed nothing".to_owned(), str::to_owned)
}
