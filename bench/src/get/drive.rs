//! The run of a cell: one lab, and every contender once a round, in an order that changes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_lab::registry::Registry;
use manyways_lab::{DEFAULT_CC, Lab, LabSpec, Place};
use manyways_record::event;
use manyways_rig::Origin;
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::Event;
use manyways_unit::{Size, Span};

use super::contender::{Contender, Errand, Programs, Said, curl_said, get_said};
use super::curve::{self, Curve, Story, sum_reaches};
use super::plan::{Cell, Entry, LARGEST, NAME, PRIMER};
use super::record::{CellRecord, Moment, Run, Sockets};
use crate::launch::{DriveError, Ended, LOOK, Launcher, first_line, system};
use crate::links::{fluid_bound, mean_rate, period};
use crate::order::{hash, shuffle};
use crate::sample::median;
use crate::sockets::sockets;

/// A link is in use when it has brought so much.
const IN_USE: Size = Size::from_bytes(50_000);
/// How long it may take until all are.
const STARTED: Span = Span::from_secs(5);
/// How long it may take from there to its end.
const FINISHED: Span = Span::from_secs(30);
/// The object with which it is tried how long a contender takes to begin.
const TRIAL: Size = Size::from_bytes(64_000);
/// The same where a contender does not tell.
const USUAL_LEAD: f64 = 0.03;

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
        let name = format!("bench-get-{}", std::process::id());
        let hosts = cell.hosts.clone();
        let mut lab = Lab::start(
            self.registry,
            LabSpec { hosts, seed: self.seed, ..LabSpec::new(name, cell.links.clone()) },
        )?;
        let mut sizes: Vec<Size> = cell.entries.iter().map(|entry| entry.size).collect();
        sizes.extend([PRIMER, TRIAL, LARGEST, cell.sample()]);
        let clock = Clock::start();
        let site = Origin::start(&mut lab, cell.hosts.len(), NAME, &sizes)?;
        let mut record = blank(cell);
        let (termination, constant) = (self.termination, cell.is_constant());
        let launcher = Launcher { lab, termination, constant, restless: Default::default() };
        let mut stage =
            Stage { driver: self, cell, launcher, site, leads: BTreeMap::new(), primed: None };
        record.sockets = stage.look_at_sockets(&mut record.left_out)?;
        let mut able = stage.able(&record.sockets, &mut record.left_out);
        let known = |entry: &Entry| entry.contender == Contender::Known;
        if able.iter().any(known) && !stage.prime()? {
            able.retain(|entry| !known(entry));
            let name = Contender::Known.name(&cell.links);
            record.left_out.push(format!("{name}: earlier transfers were not remembered"));
        }
        if !cell.is_constant() {
            stage.rehearse(&able)?;
        }
        for round in 0..cell.rounds {
            stage.round(round, &able, &mut record)?;
            progress(round + 1);
        }
        record.restless = stage.launcher.restless.get();
        record.seconds = clock.now().as_secs_f64();
        Ok(record)
    }
}

/// A record with nothing measured yet.
pub fn blank(cell: &Cell) -> CellRecord {
    CellRecord {
        name: cell.name.clone(),
        part: cell.part.to_string(),
        title: cell.title.clone(),
        links: cell.links.iter().map(|link| link.name.clone()).collect(),
        link_bps: cell.links.iter().map(|link| mean_rate(link).as_bps()).collect(),
        warm: cell.warm,
        constant: cell.is_constant(),
        rounds: cell.rounds,
        plan: fingerprint(cell),
        ..CellRecord::default()
    }
}

/// Changes when anything of a cell does.
fn fingerprint(cell: &Cell) -> String {
    format!("{:016x}", hash(&format!("{cell:?}")))
}

/// A lab that is set up for a cell.
struct Stage<'a> {
    driver: &'a Driver<'a>,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    site: Origin,
    /// Seconds from the start of a contender's process to the start of its transfer, each time.
    leads: BTreeMap<String, Vec<f64>>,
    /// A memory of what each link is worth.
    primed: Option<PathBuf>,
}

impl Stage<'_> {
    /// The entries that can run here.
    fn able(&self, sockets: &Sockets, left_out: &mut Vec<String>) -> Vec<Entry> {
        let programs = self.driver.programs;
        let mut able = Vec::new();
        for entry in &self.cell.entries {
            let contender = entry.contender;
            let why = contender.missing(programs).or_else(|| {
                (contender.is_mptcp() && sockets.mptcp.is_empty())
                    .then_some("the kernel made no MPTCP subflow")
            });
            match why {
                None => able.push(*entry),
                Some(why) => {
                    let words = format!("{}: {why}", contender.name(&self.cell.links));
                    if !left_out.contains(&words) {
                        left_out.push(words);
                    }
                }
            }
        }
        able
    }

    /// Looks at every socket in the middle of a transfer, on both sides, with and without MPTCP.
    fn look_at_sockets(&self, left_out: &mut Vec<String>) -> Result<Sockets, DriveError> {
        let mut seen = Sockets::default();
        let wants_mptcp = self.cell.entries.iter().any(|entry| entry.contender.is_mptcp());
        for contender in [Contender::MpH2, Contender::Mptcp] {
            let mptcp = contender.is_mptcp();
            if mptcp && (!wants_mptcp || contender.missing(self.driver.programs).is_some()) {
                continue;
            }
            let errand = Errand { warm: false, ..self.errand(self.cell.sample(), None, None) };
            let zero = self.launcher.lab.restart(self.cell.offset(0), &[])?;
            let before = self.launcher.delivered()?;
            let mut child = self.launcher.lab.spawn(Place::Device, contender.command(&errand))?;
            let mut over = false;
            while !over {
                let in_use = |(now, before): (&u64, &u64)| now - before >= IN_USE.as_bytes();
                let all = self.launcher.delivered()?.iter().zip(&before).all(in_use);
                let late = self.launcher.lab.relay().clock().now().since(zero) > STARTED;
                if all || late {
                    break;
                }
                over = self.launcher.has_ended(&mut child, LOOK)?;
            }
            let places = (0..self.cell.hosts.len()).map(Place::Host).chain([Place::Device]);
            let mut controls = Vec::new();
            for place in places {
                let found = sockets(&self.launcher.lab, &self.driver.programs.ss, place)?;
                controls.extend(found.into_iter().filter(|s| s.mptcp == mptcp).map(|s| s.control));
            }
            // To its end: what a killed one leaves behind would be on the links for a long time.
            if !over && !self.launcher.has_ended(&mut child, FINISHED)? {
                let _ = child.kill();
            }
            let ended = child.wait_with_output().map_err(system("end a transfer"))?;
            self.launcher.settle()?;
            if let Some(other) = controls.iter().find(|control| *control != DEFAULT_CC) {
                return Err(DriveError::Control(other.clone()));
            }
            if controls.is_empty() {
                let said = first_line(&String::from_utf8_lossy(&ended.stderr));
                let name = contender.name(&self.cell.links);
                left_out.push(format!("a look at the sockets of {name}: {said}"));
            }
            *(if mptcp { &mut seen.mptcp } else { &mut seen.get }) = controls;
        }
        Ok(seen)
    }

    /// Lets the client learn what each link is worth, by one transfer over it alone; false where it
    /// learned nothing of one.
    fn prime(&mut self) -> Result<bool, DriveError> {
        let folder = self.site.folder().join("primed");
        for index in 0..self.cell.links.len() {
            let errand = Errand { warm: false, ..self.errand(PRIMER, None, Some(&folder)) };
            let command = Contender::Single(index).command(&errand);
            self.launcher.run(command, 60.0, Span::ZERO, &[])?;
        }
        let learned = fs::read_dir(&folder).map_or(0, Iterator::count);
        self.primed = Some(folder);
        Ok(learned == self.cell.links.len())
    }

    /// Learns how long each contender takes until its transfer begins, so that what changes over
    /// time can begin with the transfer.
    fn rehearse(&mut self, entries: &[Entry]) -> Result<(), DriveError> {
        for entry in entries {
            let name = entry.contender.name(&self.cell.links);
            if !entry.contender.is_get() || self.leads.contains_key(&name) {
                continue;
            }
            let _ = fs::remove_file(self.site.events());
            let memory = self.fresh_memory(entry.contender)?;
            let errand = self.errand(TRIAL, None, memory.as_deref());
            let offset = self.cell.offset(0);
            let ended = self.launcher.run(entry.contender.command(&errand), 30.0, offset, &[])?;
            let lead = self.story().map(|story| story.began - self.launcher.wall(ended.zero));
            self.leads.insert(name, lead.into_iter().collect());
        }
        Ok(())
    }

    fn round(
        &mut self,
        round: u32,
        able: &[Entry],
        record: &mut CellRecord,
    ) -> Result<(), DriveError> {
        let mut order: Vec<Entry> = able.to_vec();
        shuffle(&mut order, self.driver.seed ^ hash(&self.cell.name) ^ u64::from(round));
        let mut alone: BTreeMap<usize, Curve> = BTreeMap::new();
        for entry in order {
            let (run, story) = self.fetch(round, &entry)?;
            if let (Contender::Single(link), None, Some(story)) =
                (entry.contender, &run.failed, story)
            {
                let name = self.cell.links.get(link).map(|link| link.name.as_str());
                let curve = name.and_then(|name| story.curves.get(name));
                alone.insert(link, curve.cloned().unwrap_or_default());
            }
            record.runs.push(run);
        }
        let offset = self.cell.offset(round);
        for size in self.cell.sizes() {
            let moment = |seconds| Moment { round, bytes: size.as_bytes(), seconds };
            let bound = fluid_bound(&self.cell.links, offset, &self.cell.events, size);
            record.fluid.extend(bound.map(moment));
            if alone.len() == self.cell.links.len() && self.cell.events.is_empty() {
                let curves: Vec<Curve> = alone.values().cloned().collect();
                record.ideal.extend(sum_reaches(&curves, size.as_bytes()).map(moment));
            }
        }
        Ok(())
    }

    /// One fetch of a round, and what its log says.
    fn fetch(&mut self, round: u32, entry: &Entry) -> Result<(Run, Option<Story>), DriveError> {
        let name = entry.contender.name(&self.cell.links);
        let known = self.leads.get(&name).and_then(|leads| median(leads.iter().copied()));
        let lead = if self.cell.is_constant() { 0.0 } else { known.unwrap_or(USUAL_LEAD) };
        let cache = self.fresh_memory(entry.contender)?;
        let command =
            entry.contender.command(&self.errand(entry.size, entry.stop, cache.as_deref()));
        let offset =
            ahead(self.cell.offset(round), lead, self.cell.links.iter().filter_map(period).min());
        let lead = Span::from_secs_f64(lead);
        let events: Vec<Event> =
            self.cell.events.iter().map(|e| Event { at: e.at + lead, ..e.clone() }).collect();
        for file in [self.site.events(), self.site.download()] {
            let _ = fs::remove_file(file);
        }
        let patience = self.cell.seconds(entry) * 4.0 + 20.0;
        let ended = self.launcher.run(command, patience, offset, &events)?;
        let mut run = Run {
            round,
            contender: name,
            bytes: entry.size.as_bytes(),
            stop: entry.stop.map(Size::as_bytes),
            link_bytes: ended.link_bytes.clone(),
            ..Run::default()
        };
        match self.outcome(entry, &ended) {
            Ok(said) => {
                run.seconds = Some(said.seconds);
                run.paths = said.paths;
            }
            Err(why) => run.failed = Some(why),
        }
        let story = if entry.contender.is_get() { self.story() } else { None };
        if let Some(story) = &story {
            self.tell(entry, story, &ended, &events, &mut run);
        }
        Ok((run, story))
    }

    /// Puts what a log says into a run.
    fn tell(
        &mut self,
        entry: &Entry,
        story: &Story,
        ended: &Ended,
        events: &[Event],
        run: &mut Run,
    ) {
        run.gaps.clone_from(&story.gaps);
        run.waits.clone_from(&story.waits);
        let curves: Vec<Curve> = story.curves.values().cloned().collect();
        if let (Contender::Single(_), [curve]) = (entry.contender, &curves[..]) {
            let reached = |size: Size| {
                let bytes = size.as_bytes();
                Some((bytes, sum_reaches(&curves, bytes)?))
            };
            run.reached = self.cell.sizes().into_iter().filter_map(reached).collect();
            run.rate = curve.rate();
        }
        if let Some(event) = events.first() {
            let at = self.launcher.wall(ended.zero) + event.at.as_secs_f64() - story.began;
            let so_far: f64 = curves.iter().map(|curve| curve.at(at)).sum();
            run.event_at = Some(at);
            run.remaining = Some(entry.size.as_bytes().saturating_sub(so_far as u64));
        }
        if !self.cell.is_constant() {
            let lead = story.began - self.launcher.wall(ended.zero);
            self.leads.entry(run.contender.clone()).or_default().push(lead);
        }
    }

    /// What the contender reports, or why it failed.
    fn outcome(&self, entry: &Entry, ended: &Ended) -> Result<Said, String> {
        match ended.success {
            None => return Err("it took too long".to_owned()),
            Some(false) => return Err(first_line(&ended.stderr)),
            Some(true) => {}
        }
        let file = fs::read(self.site.download()).map_err(|e| format!("it left no file: {e}"))?;
        let whole = entry.stop.is_some() || file.len() as u64 == entry.size.as_bytes();
        if !whole || !self.site.is_beginning(&file, entry.stop.unwrap_or(entry.size)) {
            return Err(format!("the file is not the server's ({} bytes)", file.len()));
        }
        let said = match entry.contender {
            Contender::Aria2 => Some(Said { seconds: ended.seconds, paths: Vec::new() }),
            Contender::Curl(_) | Contender::MptcpCurl => curl_said(&ended.stdout),
            _ => get_said(&ended.stdout),
        };
        said.ok_or_else(|| "its report cannot be read".to_owned())
    }

    /// A copy of the primed memory for a contender that has one, so that no run teaches the next.
    fn fresh_memory(&self, contender: Contender) -> Result<Option<PathBuf>, DriveError> {
        let Some(primed) = self.primed.as_ref().filter(|_| contender == Contender::Known) else {
            return Ok(None);
        };
        let folder = self.site.folder().join("memory");
        let copy = || -> io::Result<()> {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            for file in fs::read_dir(primed)? {
                let file = file?;
                fs::copy(file.path(), folder.join(file.file_name()))?;
            }
            Ok(())
        };
        copy().map_err(system("copy the memory of earlier transfers"))?;
        Ok(Some(folder))
    }

    fn errand<'e>(&'e self, size: Size, stop: Option<Size>, cache: Option<&'e Path>) -> Errand<'e> {
        let (programs, links) = (self.driver.programs, self.cell.links.as_slice());
        Errand { programs, site: &self.site, links, warm: self.cell.warm, size, stop, cache }
    }

    /// What the last contender's log says.
    fn story(&self) -> Option<Story> {
        let bytes = fs::read(self.site.events()).ok()?;
        curve::read(&event::parse(&bytes).ok()?)
    }
}

/// Where a trace has to begin for a transfer that begins `lead` seconds later to find `offset`.
fn ahead(offset: Span, lead: f64, period: Option<Span>) -> Span {
    let Some(period) = period else { return offset };
    let lead = Span::from_secs_f64(lead);
    if offset >= lead { offset - lead } else { offset + period - lead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_begins_early_enough_for_the_transfer_to_find_its_place() {
        let seconds = Span::from_secs_f64;
        assert_eq!(ahead(seconds(11.0), 0.5, Some(seconds(100.0))), seconds(10.5));
        assert_eq!(ahead(seconds(0.0), 0.5, Some(seconds(100.0))), seconds(99.5));
        assert_eq!(ahead(seconds(3.0), 0.5, None), seconds(3.0));
    }
}
