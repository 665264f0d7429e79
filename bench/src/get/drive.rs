//! The run of a cell: one lab, one server, and every download once in each round.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_record::event;
use manyways_rig::Origin;
use manyways_rig::cell::Run;
use manyways_rig::download::{Downloader, Fetch, Report, read_curl, read_get};
use manyways_rig::launch::{DriveError, Ended, Launcher, first_line, system};
use manyways_rig::links::{fluid_bound, period};
use manyways_rig::sample::median;
use manyways_trace::scenario::Event;
use manyways_unit::{Size, Span};

use super::Get;
use super::curve::{self, Curve, Story, sum_reaches};
use super::plan::{self, Cell, Entry, LARGEST, NAME, PRIMER, STEP};
use super::record::{Figures, Moment, Record};

/// Bytes after which a link counts as in use.
const IN_USE: u64 = 50_000;
/// Time limit until all links are in use.
const STARTED: Span = Span::from_secs(5);
/// Size of the object that measures the start-up time of a contender.
const TRIAL: Size = Size::from_bytes(64_000);
/// Assumed start-up time in seconds of a contender that does not report it.
const USUAL_LEAD: f64 = 0.03;

pub fn measure(
    get: &Get,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let mut launcher = Launcher::start(cell, "bench-get", get.seed, &get.termination)?;
    let mut sizes: Vec<Size> = cell.contenders.iter().map(|entry| entry.size).collect();
    sizes.extend([PRIMER, TRIAL, LARGEST, plan::sample(cell)]);
    let origin = Origin::start(&mut launcher.lab, cell.hosts.len(), NAME, &sizes)?;
    let mut stage = Stage {
        get,
        cell,
        launcher,
        origin,
        leads: BTreeMap::new(),
        primed: None,
        alone: BTreeMap::new(),
    };
    stage.look_at_sockets(record)?;
    let mut able = stage.able(record);
    let known = |entry: &Entry| entry.contender == Downloader::Known;
    if able.iter().any(known) && !stage.prime()? {
        able.retain(|entry| !known(entry));
        let name = Downloader::Known.name(&cell.links);
        record.left_out.push(format!("{name}: earlier transfers were not remembered"));
    }
    if !cell.is_constant() {
        stage.rehearse(&able)?;
    }
    cell.run_rounds(&able, get.seed, record, progress, |round, entry| stage.fetch(round, entry))?;
    for round in 0..cell.rounds {
        stage.bounds(round, record);
    }
    record.restless = stage.launcher.restless.get();
    Ok(())
}

struct Stage<'a> {
    get: &'a Get,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    origin: Origin,
    /// Seconds from the start of a contender's process to the start of its transfer, for each run.
    leads: BTreeMap<String, Vec<f64>>,
    /// Cache folder with the path estimates of each link.
    primed: Option<PathBuf>,
    /// Curves of the transfers over one link alone, by round and link.
    alone: BTreeMap<(u32, usize), Curve>,
}

impl Stage<'_> {
    /// The entries that can run on this machine.
    fn able(&self, record: &mut Record) -> Vec<Entry> {
        let no_subflow = record.more.sockets.mptcp.is_empty();
        let mut able = Vec::new();
        for entry in &self.cell.contenders {
            let contender = entry.contender;
            let why = contender.missing(&self.get.programs).or_else(|| {
                (contender.is_mptcp() && no_subflow).then_some("the kernel made no MPTCP subflow")
            });
            let words = why.map(|why| format!("{}: {why}", contender.name(&self.cell.links)));
            match words {
                None => able.push(*entry),
                Some(words) if record.left_out.contains(&words) => {}
                Some(words) => record.left_out.push(words),
            }
        }
        able
    }

    /// Reads every socket in the middle of a transfer, on both sides, with and without MPTCP.
    fn look_at_sockets(&self, record: &mut Record) -> Result<(), DriveError> {
        let wants_mptcp = self.cell.contenders.iter().any(|entry| entry.contender.is_mptcp());
        for contender in [Downloader::MpH2, Downloader::Mptcp] {
            let mptcp = contender.is_mptcp();
            if mptcp && (!wants_mptcp || contender.missing(&self.get.programs).is_some()) {
                continue;
            }
            let fetch_of =
                Fetch { warm: false, ..self.fetch_of(plan::sample(self.cell), None, None) };
            let (seen, complaint) = self.launcher.sockets_during(
                contender.command(&fetch_of),
                (self.cell.hosts.len(), &self.get.ss),
                self.cell.offset(0, STEP),
                |bytes, elapsed| bytes.iter().all(|bytes| *bytes >= IN_USE) || elapsed > STARTED,
            )?;
            let seen = seen.into_iter().filter(|(_, socket)| socket.mptcp == mptcp);
            let controls: Vec<String> = seen.map(|(_, socket)| socket.control).collect();
            if controls.is_empty() {
                let (name, said) = (contender.name(&self.cell.links), first_line(&complaint));
                record.left_out.push(format!("a look at the sockets of {name}: {said}"));
            }
            let sockets = &mut record.more.sockets;
            *(if mptcp { &mut sockets.mptcp } else { &mut sockets.get }) = controls;
        }
        Ok(())
    }

    /// Fills the cache of path estimates with one transfer over each link alone. `false` if the
    /// estimate of a link is missing.
    fn prime(&mut self) -> Result<bool, DriveError> {
        let folder = self.origin.folder().join("primed");
        for index in 0..self.cell.links.len() {
            let fetch_of = Fetch { warm: false, ..self.fetch_of(PRIMER, None, Some(&folder)) };
            let command = Downloader::Single(index).command(&fetch_of);
            self.launcher.run(command, 60.0, Span::ZERO, &[])?;
        }
        let learned = fs::read_dir(&folder).map_or(0, Iterator::count);
        self.primed = Some(folder);
        Ok(learned == self.cell.links.len())
    }

    /// Measures the start-up time of each contender, so that link changes can be aligned with the
    /// start of the transfer.
    fn rehearse(&mut self, entries: &[Entry]) -> Result<(), DriveError> {
        for entry in entries {
            let name = entry.contender.name(&self.cell.links);
            if !entry.contender.is_get() || self.leads.contains_key(&name) {
                continue;
            }
            let _ = fs::remove_file(self.origin.events());
            let memory = self.fresh_memory(entry.contender)?;
            let fetch_of = self.fetch_of(TRIAL, None, memory.as_deref());
            let offset = self.cell.offset(0, STEP);
            let ended = self.launcher.run(entry.contender.command(&fetch_of), 30.0, offset, &[])?;
            let lead = self.story().map(|story| story.began - self.launcher.wall(ended.zero));
            self.leads.insert(name, lead.into_iter().collect());
        }
        Ok(())
    }

    /// Computes the lower bounds of the transfer times of a round.
    fn bounds(&self, round: u32, record: &mut Record) {
        let offset = self.cell.offset(round, STEP);
        let alone: Vec<Curve> =
            self.alone.range((round, 0)..(round + 1, 0)).map(|(_, curve)| curve.clone()).collect();
        for size in plan::sizes(self.cell) {
            let bytes = size.as_bytes();
            let moment = |seconds| Moment { round, bytes, seconds };
            let bound = fluid_bound(&self.cell.links, offset, &self.cell.events, size);
            record.more.fluid.extend(bound.map(moment));
            if alone.len() == self.cell.links.len() && self.cell.events.is_empty() {
                record.more.ideal.extend(sum_reaches(&alone, bytes).map(moment));
            }
        }
    }

    /// Runs one download of a round.
    fn fetch(&mut self, round: u32, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let name = entry.contender.name(&self.cell.links);
        let known = self.leads.get(&name).and_then(|leads| median(leads.iter().copied()));
        let lead = if self.cell.is_constant() { 0.0 } else { known.unwrap_or(USUAL_LEAD) };
        let cache = self.fresh_memory(entry.contender)?;
        let command =
            entry.contender.command(&self.fetch_of(entry.size, entry.stop, cache.as_deref()));
        let begin = self.cell.offset(round, STEP);
        let offset = ahead(begin, lead, self.cell.links.iter().filter_map(period).min());
        let lead = Span::from_secs_f64(lead);
        let events: Vec<Event> =
            self.cell.events.iter().map(|e| Event { at: e.at + lead, ..e.clone() }).collect();
        for file in [self.origin.events(), self.origin.download()] {
            let _ = fs::remove_file(file);
        }
        let patience = plan::seconds(self.cell, entry) * 4.0 + 20.0;
        let ended = self.launcher.run(command, patience, offset, &events)?;
        let mut figures = Figures {
            bytes: entry.size.as_bytes(),
            stop: entry.stop.map(Size::as_bytes),
            link_bytes: ended.link_bytes.clone(),
            ..Figures::default()
        };
        let outcome = self.outcome(entry, &ended);
        if let Some(story) = entry.contender.is_get().then(|| self.story()).flatten() {
            self.tell(entry, &story, &ended, &events, &mut figures);
            if let (Downloader::Single(link), Ok(_)) = (entry.contender, &outcome) {
                let curve = story.curves.get(&self.cell.links[link].name);
                self.alone.insert((round, link), curve.cloned().unwrap_or_default());
            }
            if !self.cell.is_constant() {
                let lead = story.began - self.launcher.wall(ended.zero);
                self.leads.entry(name).or_default().push(lead);
            }
        }
        Ok(match outcome {
            Ok(Report { seconds, paths, .. }) => {
                Run::of(Figures { seconds: Some(seconds), paths, ..figures }, None)
            }
            Err(why) => Run::of(figures, Some(why)),
        })
    }

    /// Adds the content of a log to the figures of a run.
    fn tell(
        &self,
        entry: &Entry,
        story: &Story,
        ended: &Ended,
        events: &[Event],
        figures: &mut Figures,
    ) {
        figures.gaps.clone_from(&story.gaps);
        figures.waits.clone_from(&story.waits);
        let curves: Vec<Curve> = story.curves.values().cloned().collect();
        if let (Downloader::Single(_), [curve]) = (entry.contender, &curves[..]) {
            let reached = |size: Size| {
                let bytes = size.as_bytes();
                Some((bytes, sum_reaches(&curves, bytes)?))
            };
            figures.reached = plan::sizes(self.cell).into_iter().filter_map(reached).collect();
            figures.rate = curve.rate();
        }
        if let Some(event) = events.first() {
            let at = self.launcher.wall(ended.zero) + event.at.as_secs_f64() - story.began;
            let so_far: f64 = curves.iter().map(|curve| curve.at(at)).sum();
            figures.event_at = Some(at);
            figures.remaining = Some(entry.size.as_bytes().saturating_sub(so_far as u64));
        }
    }

    /// The report of the contender, or the reason of its failure.
    fn outcome(&self, entry: &Entry, ended: &Ended) -> Result<Report, String> {
        match ended.success {
            None => return Err("it took too long".to_owned()),
            Some(false) => return Err(first_line(&ended.stderr)),
            Some(true) => {}
        }
        let file = fs::read(self.origin.download()).map_err(|e| format!("it left no file: {e}"))?;
        let whole = entry.stop.is_some() || file.len() as u64 == entry.size.as_bytes();
        if !whole || !self.origin.is_beginning(&file, entry.stop.unwrap_or(entry.size)) {
            return Err(format!("the file is not the server's ({} bytes)", file.len()));
        }
        let said = match entry.contender {
            Downloader::Aria2 => Some(Report { seconds: ended.seconds, ..Report::default() }),
            Downloader::Curl(_) | Downloader::MptcpCurl => read_curl(&ended.stdout),
            _ => read_get(&ended.stdout),
        };
        said.ok_or_else(|| "its report cannot be read".to_owned())
    }

    /// A copy of the primed cache for a contender that uses it, so that no run affects the next
    /// one.
    fn fresh_memory(&self, contender: Downloader) -> Result<Option<PathBuf>, DriveError> {
        let Some(primed) = self.primed.as_ref().filter(|_| contender == Downloader::Known) else {
            return Ok(None);
        };
        let folder = self.origin.folder().join("memory");
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

    fn fetch_of<'e>(
        &'e self,
        size: Size,
        stop: Option<Size>,
        cache: Option<&'e Path>,
    ) -> Fetch<'e> {
        let (programs, links) = (&self.get.programs, self.cell.links.as_slice());
        Fetch {
            programs,
            site: &self.origin,
            links,
            warm: self.cell.setting.warm,
            size,
            stop,
            cache,
        }
    }

    /// The content of the last contender's event log.
    fn story(&self) -> Option<Story> {
        let bytes = fs::read(self.origin.events()).ok()?;
        curve::read(&event::parse(&bytes).ok()?)
    }
}

/// The trace offset at which a run must start so that its transfer, `lead` seconds later, starts at
/// `offset`.
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
