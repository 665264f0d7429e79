//! The run of a cell: one lab, and every entry once a round, in an order that changes.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread::sleep;

use manyways_net::lab::registry::Registry;
use manyways_net::lab::{DEFAULT_CC, Lab, LabSpec, Place};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::{Change, LinkState};
use manyways_trace::{Size, Span, Time};

use super::contender::Contender;
use super::loopback;
use super::plan::{Cell, Entry};
use super::record::{CellRecord, Run, Sockets};
use super::site::{Programs, Site};
use super::task::{GOES, Task};
use crate::launch::{DriveError, Launcher, all_of, first_line, system};
use crate::order::{hash, shuffle};
use crate::results::Planned;
use crate::sockets::sockets;
use crate::traffic::Told;

/// In the middle of a transfer of [`SAMPLE`] the sockets are looked at.
const MIDDLE: Span = Span::from_millis(700);
const SAMPLE: Size = Size::from_bytes(3_000_000);
/// Carriers that have been idle for so long begin with a small window again, as they do for a user
/// who comes back: what the run before left them would be a matter of the order.
const COOL: Span = Span::from_secs(2);
/// A link carries a stream when it brought most of it in the second before.
const BUSY: Span = Span::from_secs(1);

/// What all cells share.
pub struct Driver<'a> {
    /// Of the labs.
    pub registry: &'a Registry,
    /// What there is to run.
    pub programs: &'a Programs,
    /// Ends everything.
    pub termination: &'a Termination,
    /// Seed of every order.
    pub seed: u64,
}

impl Driver<'_> {
    /// Measures one cell. `progress` hears after each round how many are done.
    ///
    /// Call it while the process has a single thread.
    pub fn measure(
        &self,
        cell: &Cell,
        progress: &mut dyn FnMut(u32),
    ) -> Result<CellRecord, DriveError> {
        if cell.on_loopback {
            return loopback::measure(self, cell, progress);
        }
        let name = format!("bench-bond-{}", std::process::id());
        let hosts = cell.hosts.clone();
        let mut lab = Lab::start(
            self.registry,
            LabSpec { hosts, seed: self.seed, ..LabSpec::new(name, cell.links.clone()) },
        )?;
        let clock = Clock::start();
        let mut contenders: Vec<Contender> = Vec::new();
        for entry in &cell.entries {
            if !contenders.contains(&entry.contender) {
                contenders.push(entry.contender);
            }
        }
        let site = Site::start(&mut lab, self.programs, cell.hosts.len(), &contenders)?;
        let termination = self.termination;
        let launcher = Launcher { lab, termination, constant: true, restless: Default::default() };
        let mut record = cell.blank();
        let mut stage = Stage { driver: self, cell, launcher, site, last: BTreeMap::new(), clock };
        let mut able = Vec::new();
        for contender in contenders {
            let seen = stage.look_at_sockets(contender)?;
            if contender.is_mptcp() && seen.subflows.len() < cell.links.len() {
                let made = seen.subflows.len();
                let name = contender.name(&cell.links);
                record.left_out.push(format!("{name}: the kernel made {made} MPTCP subflows"));
            } else {
                able.push(contender);
            }
            record.sockets.push(seen);
        }
        let able = |entry: &&Entry| able.contains(&entry.contender);
        let able: Vec<Entry> = cell.entries.iter().filter(able).copied().collect();
        for round in 0..cell.rounds {
            let mut order = able.clone();
            shuffle(&mut order, self.seed ^ hash(&cell.name) ^ u64::from(round));
            for entry in order {
                record.runs.push(stage.run(round, &entry)?);
            }
            progress(round + 1);
        }
        record.runs.sort_by_key(|run| (run.round, stage.place(run)));
        record.restless = stage.launcher.restless.get();
        record.seconds = clock.now().as_secs_f64();
        Ok(record)
    }
}

/// A lab that is set up for a cell.
struct Stage<'a> {
    driver: &'a Driver<'a>,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    site: Site,
    /// When each contender's last run ended.
    last: BTreeMap<Contender, Time>,
    clock: Clock,
}

impl Stage<'_> {
    /// Where the plan has a run.
    fn place(&self, run: &Run) -> Option<usize> {
        let is = |entry: &Entry| {
            entry.contender.name(&self.cell.links) == run.contender && entry.task.name() == run.task
        };
        self.cell.entries.iter().position(is)
    }

    fn load(&self, entry: &Entry) -> Command {
        let mut command = Command::new(&self.driver.programs.own);
        command.arg("load").args(self.site.way(entry.contender, self.cell.hosts.len()));
        // The server beside a gateway is as far from it as the plan says; the others have links.
        if !self.cell.think.is_zero() && matches!(entry.contender, Contender::Bond { .. }) {
            command.arg(format!("--think={}ms", self.cell.think.as_nanos() / 1_000_000));
        }
        command.args(entry.task.arguments(self.cell.rate(entry.contender)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Looks at every socket in the middle of a transfer, on both sides.
    fn look_at_sockets(&self, contender: Contender) -> Result<Sockets, DriveError> {
        let entry = Entry { contender, task: Task::file(SAMPLE.as_bytes()) };
        let mut child = self.launcher.lab.spawn(Place::Device, self.load(&entry))?;
        sleep(MIDDLE.into());
        let mut seen =
            Sockets { contender: contender.name(&self.cell.links), ..Sockets::default() };
        for place in (0..self.cell.hosts.len()).map(Place::Host).chain([Place::Device]) {
            for socket in sockets(&self.launcher.lab, &self.driver.programs.ss, place)? {
                if socket.control != DEFAULT_CC {
                    return Err(DriveError::Control(socket.control));
                }
                match socket.mptcp {
                    // Both ends of a subflow are seen; one of them is the device's.
                    true if place == Place::Device => seen.subflows.push(socket.control),
                    true => {}
                    false => seen.plain.push(socket.control),
                }
            }
        }
        if !self.launcher.has_ended(&mut child, Span::from_secs(30))? {
            let _ = child.kill();
        }
        child.wait().map_err(system("end a transfer"))?;
        self.launcher.settle()?;
        Ok(seen)
    }

    fn run(&mut self, round: u32, entry: &Entry) -> Result<Run, DriveError> {
        if let Some(at) = self.last.get(&entry.contender)
            && matches!(entry.contender, Contender::Bond { .. })
        {
            let idle = self.clock.now().since(*at);
            sleep(COOL.saturating_sub(idle).into());
        }
        let unit = entry.task.unit();
        let mut run = Run {
            round,
            contender: entry.contender.name(&self.cell.links),
            task: entry.task.name(),
            unit: unit.name().to_owned(),
            ..Run::default()
        };
        let (outcome, link_bytes) = match entry.task {
            Task::Stall(state) => self.stall(entry, state)?,
            _ => {
                let patience = self.cell.seconds(entry) * 4.0 + 20.0;
                let ended = self.launcher.run(self.load(entry), patience, Span::ZERO, &[])?;
                let outcome = match ended.success {
                    None => Err("it took too long".to_owned()),
                    Some(false) => Err(first_line(&ended.stderr)),
                    Some(true) => Ok(ended.stdout),
                };
                (outcome, ended.link_bytes)
            }
        };
        self.last.insert(entry.contender, self.clock.now());
        run.link_bytes = link_bytes;
        let told = outcome.and_then(|line| {
            let told = serde_json::from_str::<Told>(line.trim());
            told.map_err(|error| format!("its report cannot be read: {error}"))
        });
        match told {
            Ok(told) => {
                run.value = Some(entry.task.figure(told.value, self.cell.rate(entry.contender)));
                run.more = told.more;
                if matches!(entry.task, Task::Requests { .. }) {
                    run.samples = told.samples.iter().map(|one| unit.shown(*one)).collect();
                }
            }
            Err(why) => run.failed = Some(why),
        }
        Ok(run)
    }

    /// A stream, whose link goes while it runs: the one that carries it, whichever that is.
    fn stall(
        &mut self,
        entry: &Entry,
        state: LinkState,
    ) -> Result<(Result<String, String>, Vec<u64>), DriveError> {
        self.site.renew(&self.launcher.lab, entry.contender)?;
        self.launcher.settle()?;
        let start = self.launcher.delivered()?;
        let mut child = self.launcher.lab.spawn(Place::Device, self.load(entry))?;
        sleep((GOES - BUSY).into());
        let before = self.launcher.delivered()?;
        sleep(BUSY.into());
        let now = self.launcher.delivered()?;
        let brought = |index: &usize| now[*index] - before[*index];
        let busy = (0..now.len()).max_by_key(brought).unwrap_or_default();
        let link = &self.cell.links[busy].name;
        self.launcher.lab.change(link, vec![Change::State(state)])?;
        let ended = self.launcher.has_ended(&mut child, Span::from_secs(60))?;
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait().map_err(system("wait for a contender"))?;
        let (said, complained) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
        self.launcher.lab.change(link, vec![Change::State(LinkState::Up)])?;
        self.launcher.settle()?;
        let bytes = self.launcher.delivered()?.iter().zip(&start).map(|(a, b)| a - b).collect();
        let outcome = match (ended, status.success()) {
            (false, _) => Err("it took too long".to_owned()),
            (true, false) => Err(first_line(&complained)),
            (true, true) => Ok(said),
        };
        Ok((outcome, bytes))
    }
}
