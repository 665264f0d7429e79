//! The run of a cell: one lab, one server, and every download once in each round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_rig::Origin;
use manyways_rig::cell::Run;
use manyways_rig::download::{Download, Downloader, Fetch};
use manyways_rig::launch::{DriveError, Launcher, first_line, system};
use manyways_rig::links::{fluid_bound, period};
use manyways_rig::sample::median;
use manyways_rig::transfer::{Curve, Transfer, time_of_sum};
use manyways_trace::scenario::{Change, Event, LinkSpec};
use manyways_unit::{Size, Span};

use super::Get;
use super::plan::{
    self, Cell, Entry, HOST_NAME, MAX_SIZE, PRIMER_SIZE, other_servers, swapped_estimates,
};
use super::record::{Figures, LowerBound, Record};

/// Bytes after which a link counts as in use.
const MIN_USED_BYTES: u64 = 50_000;
/// Time limit until all links are in use.
const START_TIMEOUT: Span = Span::from_secs(5);
/// Size of the object that measures the start-up time of a contender.
const TRIAL_SIZE: Size = Size::from_bytes(64_000);
/// Assumed start-up time in seconds of a contender that does not report it.
const DEFAULT_LEAD: f64 = 0.03;

pub fn measure(
    get: &Get,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let mut launcher = Launcher::start(cell, "bench-get", get.seed, &get.termination)?;
    let mut sizes: Vec<Size> = cell.contenders.iter().map(|entry| entry.size).collect();
    sizes.extend([PRIMER_SIZE, TRIAL_SIZE, MAX_SIZE, plan::sample(cell)]);
    let origin = Origin::start(&mut launcher.lab, cell.hosts.len(), HOST_NAME, &sizes)?;
    for server in other_servers(cell) {
        // A missing server is reported with its contender.
        if Downloader::From(server).missing(&get.programs).is_none() {
            origin.start_other(&mut launcher.lab, server)?;
        }
    }
    let mut stage = CellRunner {
        get,
        cell,
        launcher,
        origin,
        leads: BTreeMap::new(),
        primed_caches: BTreeMap::new(),
        single_link_curves: BTreeMap::new(),
    };
    stage.sample_sockets(record)?;
    let mut able = stage.runnable_entries(record);
    for swapped in [false, true] {
        let is_known = |entry: &Entry| swapped_estimates(entry.contender) == Some(swapped);
        if able.iter().any(is_known) && !stage.prime_cache(swapped)? {
            let all: BTreeSet<String> = able
                .extract_if(.., |entry| is_known(entry))
                .map(|entry| entry.contender.name(&cell.links))
                .collect();
            let skipped = |name| format!("{name}: earlier transfers were not remembered");
            record.skipped.extend(all.into_iter().map(skipped));
        }
    }
    if !cell.is_constant() {
        stage.measure_leads(&able)?;
    }
    cell.run_rounds(&able, get.seed, record, progress, |round, entry| stage.fetch(round, entry))?;
    for round in 0..cell.rounds {
        stage.bounds(round, record);
    }
    record.drain_failures = stage.launcher.drain_failures.get();
    Ok(())
}

struct CellRunner<'a> {
    get: &'a Get,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    origin: Origin,
    /// Seconds from the start of a contender's process to the start of its transfer, for each run.
    leads: BTreeMap<String, Vec<f64>>,
    /// Cache folders with the path estimates of each link, by whether the links had each other's
    /// rates.
    primed_caches: BTreeMap<bool, PathBuf>,
    /// Curves of the transfers over one link alone, by round and link.
    single_link_curves: BTreeMap<(u32, usize), Curve>,
}

impl CellRunner<'_> {
    /// The entries that can run on this machine.
    fn runnable_entries(&self, record: &mut Record) -> Vec<Entry> {
        let no_subflow = record.extra.sockets.mptcp.is_empty();
        let mut able = Vec::new();
        for entry in &self.cell.contenders {
            let contender = entry.contender;
            let why = contender.missing(&self.get.programs).or_else(|| {
                let is_refused = contender.is_mptcp() && no_subflow;
                is_refused.then(|| "the kernel made no MPTCP subflow".to_owned())
            });
            let words = why.map(|reason| format!("{}: {reason}", contender.name(&self.cell.links)));
            match words {
                None => able.push(*entry),
                Some(words) if record.skipped.contains(&words) => {}
                Some(words) => record.skipped.push(words),
            }
        }
        able
    }

    /// Reads every socket in the middle of a transfer, on both sides, with and without MPTCP, and
    /// with each other server.
    fn sample_sockets(&self, record: &mut Record) -> Result<(), DriveError> {
        let wants_mptcp = self.cell.contenders.iter().any(|entry| entry.contender.is_mptcp());
        let others = other_servers(self.cell).into_iter().map(Downloader::From);
        for contender in [Downloader::MpH2, Downloader::Mptcp].into_iter().chain(others) {
            let mptcp = contender.is_mptcp();
            if mptcp && !wants_mptcp || contender.missing(&self.get.programs).is_some() {
                continue;
            }
            let fetch_of =
                Fetch { warm: false, ..self.fetch_spec(plan::sample(self.cell), None, None) };
            let (seen, complaint) = self.launcher.sockets_during(
                contender.command(&fetch_of),
                (self.cell.hosts.len(), &self.get.ss),
                plan::offset(self.cell, 0),
                |bytes, elapsed| {
                    bytes.iter().all(|bytes| *bytes >= MIN_USED_BYTES) || elapsed > START_TIMEOUT
                },
            )?;
            let seen = seen.into_iter().filter(|(_, socket)| socket.mptcp == mptcp);
            let controls: Vec<String> = seen.map(|(_, socket)| socket.congestion_control).collect();
            if controls.is_empty() {
                let (name, output) = (contender.name(&self.cell.links), first_line(&complaint));
                record.skipped.push(format!("a look at the sockets of {name}: {output}"));
            }
            let sockets = &mut record.extra.sockets;
            (if mptcp { &mut sockets.mptcp } else { &mut sockets.get }).extend(controls);
        }
        Ok(())
    }

    /// Fills a cache of path estimates with one transfer over each link alone, while the links have
    /// each other's rates if `swapped`. `false` if the estimate of a link is missing.
    fn prime_cache(&mut self, swapped: bool) -> Result<bool, DriveError> {
        let folder = self.origin.folder().join(if swapped { "primed-swapped" } else { "primed" });
        let changes = if swapped { swapped_rates(&self.cell.links) } else { Vec::new() };
        for index in 0..self.cell.links.len() {
            let fetch_of =
                Fetch { warm: false, ..self.fetch_spec(PRIMER_SIZE, None, Some(&folder)) };
            let when = (Span::ZERO, changes.as_slice());
            fetch_of.run(Downloader::Single(index), &self.launcher, 60.0, when, None)?;
        }
        let learned = fs::read_dir(&folder).map_or(0, Iterator::count);
        self.primed_caches.insert(swapped, folder);
        Ok(learned == self.cell.links.len())
    }

    /// Measures the start-up time of each contender, so that link changes can be aligned with the
    /// start of the transfer.
    fn measure_leads(&mut self, entries: &[Entry]) -> Result<(), DriveError> {
        for entry in entries {
            let name = entry.contender.name(&self.cell.links);
            if !entry.contender.is_get() || self.leads.contains_key(&name) {
                continue;
            }
            let memory = self.copy_cache(entry.contender)?;
            let fetch_of = self.fetch_spec(TRIAL_SIZE, None, memory.as_deref());
            let when = (plan::offset(self.cell, 0), &[][..]);
            let trial = fetch_of.run(entry.contender, &self.launcher, 30.0, when, None)?;
            self.leads.insert(name, self.lead(&trial).into_iter().collect());
        }
        Ok(())
    }

    /// Computes the lower bounds of the transfer times of a round.
    fn bounds(&self, round: u32, record: &mut Record) {
        let offset = plan::offset(self.cell, round);
        let alone: Vec<Curve> = self
            .single_link_curves
            .range((round, 0)..(round + 1, 0))
            .map(|(_, curve)| curve.clone())
            .collect();
        for size in plan::sizes(self.cell) {
            let bytes = size.as_bytes();
            let moment = |seconds| LowerBound { round, bytes, seconds };
            let bound = fluid_bound(&self.cell.links, offset, &self.cell.events, size);
            record.extra.fluid.extend(bound.map(moment));
            if alone.len() == self.cell.links.len() && self.cell.events.is_empty() {
                record.extra.ideal.extend(time_of_sum(&alone, bytes).map(moment));
            }
        }
    }

    /// Runs one download of a round.
    fn fetch(&mut self, round: u32, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let name = entry.contender.name(&self.cell.links);
        let known = self.leads.get(&name).and_then(|leads| median(leads.iter().copied()));
        let lead = if self.cell.is_constant() { 0.0 } else { known.unwrap_or(DEFAULT_LEAD) };
        let cache = self.copy_cache(entry.contender)?;
        let begin = plan::offset(self.cell, round);
        let offset = start_offset(begin, lead, self.cell.links.iter().filter_map(period).min());
        let lead = Span::from_secs_f64(lead);
        let events: Vec<Event> =
            self.cell.events.iter().map(|e| Event { at: e.at + lead, ..e.clone() }).collect();
        let patience = plan::seconds(self.cell, entry) * 4.0 + 20.0;
        let download = self.fetch_spec(entry.size, entry.stop, cache.as_deref()).run(
            entry.contender,
            &self.launcher,
            patience,
            (offset, &events),
            None,
        )?;
        let mut figures = Figures {
            bytes: entry.size.as_bytes(),
            stop: entry.stop.map(Size::as_bytes),
            link_bytes: download.ended.link_bytes.clone(),
            ..Figures::default()
        };
        if let Some(Ok(transfer)) = &download.log {
            let curves = transfer.curves();
            let all: Vec<Curve> = curves.values().cloned().collect();
            self.add_log_figures(entry, transfer, &all, &mut figures);
            if let Some(event) = events.first() {
                let start = self.launcher.unix_seconds(download.ended.start) - transfer.began;
                let at = start + event.at.as_secs_f64();
                let so_far: f64 = all.iter().map(|curve| curve.at(at)).sum();
                figures.event_at = Some(at);
                figures.remaining = Some(entry.size.as_bytes().saturating_sub(so_far as u64));
            }
            if let (Downloader::Single(link), Ok(_)) = (entry.contender, &download.outcome) {
                let curve = curves.get(&self.cell.links[link].name);
                self.single_link_curves.insert((round, link), curve.cloned().unwrap_or_default());
            }
            if !self.cell.is_constant() {
                let lead = self.lead(&download);
                self.leads.entry(name).or_default().extend(lead);
            }
        }
        Ok(match download.outcome {
            Ok(report) => {
                let (seconds, paths) = (Some(report.seconds), report.paths);
                Run::of(Figures { seconds, paths, ..figures }, None)
            }
            Err(reason) => Run::of(figures, Some(reason)),
        })
    }

    /// Seconds from the start of a contender's process to the start of its transfer.
    fn lead(&self, download: &Download) -> Option<f64> {
        let transfer = download.log.as_ref()?.as_ref().ok()?;
        Some(transfer.began - self.launcher.unix_seconds(download.ended.start))
    }

    /// Adds the content of a log to the figures of a run.
    fn add_log_figures(
        &self,
        entry: &Entry,
        transfer: &Transfer,
        curves: &[Curve],
        figures: &mut Figures,
    ) {
        figures.gaps = transfer.gaps();
        figures.response_delays = transfer.waits();
        if let (Downloader::Single(_), [curve]) = (entry.contender, curves) {
            let reached = |size: Size| {
                let bytes = size.as_bytes();
                Some((bytes, time_of_sum(curves, bytes)?))
            };
            figures.single_path_times =
                plan::sizes(self.cell).into_iter().filter_map(reached).collect();
            figures.rate = curve.rate();
        }
    }

    /// A copy of the primed cache for a contender that uses it, so that no run affects the next
    /// one.
    fn copy_cache(&self, contender: Downloader) -> Result<Option<PathBuf>, DriveError> {
        let swapped = swapped_estimates(contender);
        let Some(primed) = swapped.and_then(|swapped| self.primed_caches.get(&swapped)) else {
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

    fn fetch_spec<'e>(
        &'e self,
        size: Size,
        stop: Option<Size>,
        cache: Option<&'e Path>,
    ) -> Fetch<'e> {
        let (programs, links) = (&self.get.programs, self.cell.links.as_slice());
        Fetch {
            programs,
            origin: &self.origin,
            links,
            warm: self.cell.setting.warm,
            size,
            stop_after: stop,
            cache,
        }
    }
}

/// The trace offset at which a run must start so that its transfer, `lead` seconds later, starts at
/// `offset`.
fn start_offset(offset: Span, lead: f64, period: Option<Span>) -> Span {
    let Some(period) = period else { return offset };
    let lead = Span::from_secs_f64(lead);
    if offset >= lead { offset - lead } else { offset + period - lead }
}

/// Changes that give each link the rates of the link at the same place from the end of the list.
fn swapped_rates(links: &[LinkSpec]) -> Vec<Event> {
    let event = |(link, other): (&LinkSpec, &LinkSpec)| {
        let (down, up) = (other.down.capacity.clone(), other.up.capacity.clone());
        let change = vec![Change::Down(down), Change::Up(up)];
        Event { when: None, at: Span::ZERO, until: None, link: link.name.clone(), change }
    };
    links.iter().zip(links.iter().rev()).map(event).collect()
}

#[cfg(test)]
mod tests {
    use manyways_rig::links::{WIFI_RTT, round_trip, wifi_and_lte};

    use super::*;

    #[test]
    fn a_trace_begins_early_enough_for_the_transfer_to_find_its_place() {
        let seconds = Span::from_secs_f64;
        assert_eq!(start_offset(seconds(11.0), 0.5, Some(seconds(100.0))), seconds(10.5));
        assert_eq!(start_offset(seconds(0.0), 0.5, Some(seconds(100.0))), seconds(99.5));
        assert_eq!(start_offset(seconds(3.0), 0.5, None), seconds(3.0));
    }

    #[test]
    fn links_change_their_rates_with_each_other() {
        let mut links = wifi_and_lte(40, 5);
        for event in swapped_rates(&links.clone()) {
            let link = links.iter_mut().find(|link| link.name == event.link).unwrap();
            event.change.iter().for_each(|change| link.apply(change));
        }
        let swapped = wifi_and_lte(5, 40);
        let rates = |links: &[LinkSpec]| {
            let both = |link: &LinkSpec| (link.down.capacity.clone(), link.up.capacity.clone());
            links.iter().map(both).collect::<Vec<_>>()
        };
        assert_eq!(rates(&links), rates(&swapped));
        assert_eq!(round_trip(&links[0]), WIFI_RTT);
    }
}
