//! One process on the device of a lab: from its start until it has ended and the links are empty.

use std::fmt::Debug;
use std::io::{self, Read};
use std::process::{Child, Command};

use manyways_lab::registry::Registry;
use manyways_lab::{DEFAULT_CC, Lab, LabError, LabSpec, Place};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_sys::wait::{Outcome, wait};
use manyways_trace::scenario::{CapacitySpec, Change, Event, LinkState};
use manyways_unit::{Span, Time};

use crate::cell::{Cell, Contender};
use crate::links::round_trip;
use crate::server::SiteError;
use crate::sockets::{Socket, sockets};

/// How often the links are looked at.
pub const LOOK: Span = Span::from_millis(20);
/// How long the links may take to become empty.
const DRAIN: Span = Span::from_secs(3);
/// How long a transfer whose sockets were looked at may take to its end.
const FINISHED: Span = Span::from_secs(30);

/// Why a cell came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The user wants the whole benchmark to end.
    #[error("stopped by signal {0}")]
    Stopped(i32),
    /// No lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// No far side.
    #[error("{0}")]
    Site(String),
    /// A socket is not as it should be.
    #[error("a socket has the congestion control {0}, not {DEFAULT_CC}")]
    Control(String),
    /// Anything else that the system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

impl From<SiteError> for DriveError {
    fn from(error: SiteError) -> Self {
        Self::Site(error.to_string())
    }
}

/// What was being done when the system refused.
pub fn system(doing: &'static str) -> impl Fn(io::Error) -> DriveError {
    move |error| DriveError::System(doing, error)
}

/// A lab in which contenders run, one at a time.
pub struct Launcher<'a> {
    /// The lab.
    pub lab: Lab,
    /// Ends the whole benchmark.
    termination: &'a Termination,
    /// Whether the links stay as they are during a run.
    is_constant: bool,
    /// How often the links did not become quiet by themselves.
    pub restless: std::cell::Cell<u32>,
}

/// What runs meanwhile: called with the time since a run's start and the IP bytes that each link
/// has delivered since then.
pub type Observer<'o> = &'o mut dyn FnMut(Span, &[u64]);

/// A process that has ended.
pub struct Ended {
    /// Nothing where it was killed because it took too long.
    pub success: Option<bool>,
    /// From its start.
    pub seconds: f64,
    /// What it wrote.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// IP bytes by link, towards the device.
    pub link_bytes: Vec<u64>,
    /// The lab's time zero of it.
    pub zero: Time,
}

impl<'a> Launcher<'a> {
    /// Builds the lab of a cell.
    ///
    /// Call it while the process has a single thread.
    pub fn start<C: Contender, S: Debug>(
        cell: &Cell<C, S>,
        name: &str,
        seed: u64,
        termination: &'a Termination,
    ) -> Result<Self, DriveError> {
        let registry =
            Registry::of_user().map_err(system("open the folder of the running labs"))?;
        let name = format!("{name}-{}", std::process::id());
        let hosts = cell.hosts.clone();
        let spec = LabSpec { hosts, seed, ..LabSpec::new(name, cell.links.clone()) };
        Ok(Self::over(Lab::start(&registry, spec)?, cell.is_constant(), termination))
    }

    /// The same in a lab that is there, whose links stay as they are during a run or do not.
    pub fn over(lab: Lab, is_constant: bool, termination: &'a Termination) -> Self {
        Self { lab, termination, is_constant, restless: Default::default() }
    }

    /// Runs a command on the device until it ends and the links are empty.
    pub fn run(
        &self,
        command: Command,
        timeout: f64,
        offset: Span,
        events: &[Event],
    ) -> Result<Ended, DriveError> {
        self.run_observed(command, timeout, (offset, events), None)
    }

    /// The same, observed at this interval from the start until the process has ended.
    pub fn run_observed(
        &self,
        command: Command,
        timeout: f64,
        (offset, events): (Span, &[Event]),
        mut observed: Option<(Span, Observer<'_>)>,
    ) -> Result<Ended, DriveError> {
        let before = self.delivered()?;
        let since = || -> Result<Vec<u64>, DriveError> {
            Ok(self.delivered()?.iter().zip(&before).map(|(a, b)| a - b).collect())
        };
        let zero = self.lab.restart(offset, events)?;
        let clock = Clock::start();
        let elapsed = || clock.now().since(Time::ZERO);
        let mut child = self.lab.spawn(Place::Device, command)?;
        let timeout = Span::from_secs_f64(timeout);
        let interval = observed.as_ref().map_or(timeout, |(interval, _)| *interval);
        let (mut ended, mut left) = (false, timeout);
        while !ended && !left.is_zero() {
            ended = self.has_ended(&mut child, interval.min(left))?;
            left = timeout.saturating_sub(elapsed());
            if let Some((_, observer)) = &mut observed {
                observer(elapsed(), &since()?);
            }
        }
        let seconds = elapsed().as_secs_f64();
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait().map_err(system("wait for a contender"))?;
        let stdout = all_of(child.stdout.take());
        let stderr = all_of(child.stderr.take());
        self.settle()?;
        let success = ended.then(|| status.success());
        Ok(Ended { success, seconds, stdout, stderr, link_bytes: since()?, zero })
    }

    /// The sockets of both sides in the middle of a transfer: when `is_middle` says so of the bytes
    /// that each link has delivered and of the time since the start. They are looked for on `hosts`
    /// hosts. What the transfer complained about comes back too.
    pub fn sockets_during(
        &self,
        command: Command,
        (hosts, ss): (usize, &std::path::Path),
        offset: Span,
        is_middle: impl Fn(&[u64], Span) -> bool,
    ) -> Result<(Vec<(Place, Socket)>, String), DriveError> {
        let before = self.delivered()?;
        self.lab.restart(offset, &[])?;
        let clock = Clock::start();
        let mut child = self.lab.spawn(Place::Device, command)?;
        let mut ended = false;
        while !ended {
            let since: Vec<u64> =
                self.delivered()?.iter().zip(&before).map(|(a, b)| a - b).collect();
            if is_middle(&since, clock.now().since(Time::ZERO)) {
                break;
            }
            ended = self.has_ended(&mut child, LOOK)?;
        }
        let mut seen = Vec::new();
        for place in (0..hosts).map(Place::Host).chain([Place::Device]) {
            let found = sockets(&self.lab, ss, place)?;
            seen.extend(found.into_iter().map(|socket| (place, socket)));
        }
        // To its end: what a killed one leaves behind would be on the links for a long time.
        if !ended && !self.has_ended(&mut child, FINISHED)? {
            let _ = child.kill();
        }
        let ended = child.wait_with_output().map_err(system("end a transfer"))?;
        self.settle()?;
        match seen.iter().find(|(_, socket)| socket.control != DEFAULT_CC) {
            Some((_, socket)) => Err(DriveError::Control(socket.control.clone())),
            None => Ok((seen, String::from_utf8_lossy(&ended.stderr).into_owned())),
        }
    }

    /// Waits for a child; false where it takes longer than `timeout`.
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

    /// Waits until the links have nothing left of an earlier fetch: at their own rates, or as fast
    /// as can be where these may be none. Where they never become quiet, all that is on its way is
    /// dropped: connections that died early can answer each other for ever.
    pub fn settle(&self) -> Result<(), DriveError> {
        if !self.is_constant {
            self.change(|| {
                let free = CapacitySpec::Unlimited;
                vec![Change::State(LinkState::Up), Change::Down(free.clone()), Change::Up(free)]
            })?;
        }
        if !self.becomes_quiet()? {
            self.restless.set(self.restless.get() + 1);
            self.change(|| vec![Change::State(LinkState::Silent)])?;
            self.becomes_quiet()?;
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

    /// Whether there comes a time in which nothing is under way or arrives, long enough for an
    /// answer to whatever came last.
    fn becomes_quiet(&self) -> Result<bool, DriveError> {
        let answer = self.lab.links().iter().map(round_trip).max().unwrap_or_default() + LOOK;
        let clock = Clock::start();
        let (mut seen, mut since) = (None, clock.now());
        while clock.now().since(Time::ZERO) < DRAIN {
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
            std::thread::sleep(LOOK.into());
        }
        Ok(false)
    }

    /// IP bytes that each link has brought so far.
    pub fn delivered(&self) -> Result<Vec<u64>, DriveError> {
        let snapshot = self.lab.relay().snapshot().map_err(system("look at the links"))?;
        Ok(snapshot.links.iter().map(|link| link.down.delivered.size.as_bytes()).collect())
    }

    /// What each link has carried so far, both ways together: IP bytes and packets.
    pub fn carried(&self) -> Result<Vec<(u64, u64)>, DriveError> {
        let snapshot = self.lab.relay().snapshot().map_err(system("look at the links"))?;
        let both = snapshot.links.iter().map(|link| [link.down.delivered, link.up.delivered]);
        let sum = both.map(|[down, up]| {
            (down.size.as_bytes() + up.size.as_bytes(), down.packets + up.packets)
        });
        Ok(sum.collect())
    }

    /// A time of the lab in wall-clock seconds since 1970.
    pub fn wall(&self, time: Time) -> f64 {
        self.lab.relay().clock().epoch().as_secs_f64() + time.as_secs_f64()
    }
}

/// Everything that a process wrote into a pipe.
pub fn all_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What cannot be read is as good as nothing.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first thing that a program complained about.
pub fn first_line(said: &str) -> String {
    let line = said.lines().find(|line| !line.trim().is_empty());
    line.map_or_else(|| "it said nothing".to_owned(), str::to_owned)
}
