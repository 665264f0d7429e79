//! Collects the messages of the threads of a live capture and writes them set by set.

use std::path::PathBuf;

use manyways_flows::analysis::{Aggregator, Counters, Record, Summary};
use manyways_record::table::{Batch, Schema};
use manyways_unit::Time;

use super::{Listener, LiveOptions};
use crate::folder::FolderError;
use crate::sets::Sets;
use crate::work::{CaptureStats, RunOptions, RunReport};

/// A message of a thread.
#[derive(Debug)]
pub(super) struct WorkerMessage {
    /// Number of the set that the message belongs to, from 0.
    pub set_index: u64,
    pub report: Report,
}

#[derive(Debug)]
pub(super) enum Report {
    Records(Vec<Record>),
    /// Final counters of a shard for the set.
    FinalCounters(Box<Counters>),
    /// File with the packets of the set.
    SavedFile(PathBuf),
    /// The packets cannot be written.
    SaveFailed(FolderError),
    /// Current counters of a shard for the set, and its number of active flows.
    ShardProgress {
        shard: u8,
        flows: usize,
        counters: Box<Counters>,
    },
    /// Numbers of captured and dropped packets in the set so far.
    CaptureProgress {
        captured: u64,
        dropped: u64,
    },
    /// Final numbers of captured and dropped packets of the set, and the start of the next set;
    /// `None` at the end of the capture.
    SetEnd {
        captured: u64,
        dropped: u64,
        next: Option<Time>,
    },
}

/// End of a set or of the capture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlushScope {
    Set,
    Capture,
}

/// Assembles sets from messages in any order.
pub(super) struct SetCollector<'a> {
    interface: String,
    threads: usize,
    saves_packets: bool,
    refresh: bool,
    aggregator: Aggregator,
    sets: Option<&'a mut Sets>,
    listener: &'a mut dyn Listener,
    set_index: u64,
    /// Messages of later sets.
    later_messages: Vec<WorkerMessage>,
    /// Number of shards that have finished the set, and the sum of their counters.
    finished_shards: usize,
    counters: Counters,
    set_end: Option<(u64, u64, Option<Time>)>,
    saved_file: Option<PathBuf>,
    /// Counters, captured and dropped packets of all earlier sets.
    earlier_totals: (Counters, u64, u64),
    /// Active flows and current counters of each shard.
    shard_progress: Vec<(usize, Counters)>,
}

impl<'a> SetCollector<'a> {
    pub(super) fn new(
        interface: String,
        plan: &RunOptions,
        watch: &LiveOptions,
        sets: Option<&'a mut Sets>,
        listener: &'a mut dyn Listener,
    ) -> Self {
        let aggregator = Aggregator::new(&plan.settings);
        let aggregator =
            if sets.is_some() { aggregator.with_recent() } else { aggregator.without_tables() };
        let threads = usize::from(plan.threads.clamp(1, 64));
        let saves = watch.save_packets && sets.is_some();
        Self {
            interface,
            threads,
            saves_packets: saves,
            refresh: watch.summarize,
            aggregator,
            sets,
            listener,
            set_index: 0,
            later_messages: Vec::new(),
            finished_shards: 0,
            counters: Counters::default(),
            set_end: None,
            saved_file: None,
            earlier_totals: (Counters::default(), 0, 0),
            shard_progress: vec![Default::default(); threads],
        }
    }

    /// Starts the first set.
    pub(super) fn begin(&mut self, at: Time) -> Result<(), FolderError> {
        self.sets.as_mut().map_or(Ok(()), |sets| sets.begin(at))
    }

    /// Processes a message.
    pub(super) fn handle(&mut self, message: WorkerMessage) -> Result<(), FolderError> {
        if message.set_index > self.set_index {
            self.later_messages.push(message);
            return Ok(());
        }
        match message.report {
            Report::Records(records) => {
                records.into_iter().for_each(|record| self.aggregator.add(record));
                if self.aggregator.is_full() {
                    self.flush(None)?;
                }
            }
            Report::FinalCounters(counters) => {
                self.counters.add(&counters);
                self.finished_shards += 1;
            }
            Report::SavedFile(path) => self.saved_file = Some(path),
            Report::SaveFailed(error) => return Err(error),
            Report::SetEnd { captured: taken, dropped: missed, next } => {
                self.set_end = Some((taken, missed, next))
            }
            Report::ShardProgress { shard, flows, counters } => {
                if let Some(going) = self.shard_progress.get_mut(usize::from(shard)) {
                    *going = (flows, *counters);
                }
            }
            Report::CaptureProgress { captured: taken, dropped: missed } => {
                self.report_progress(taken, missed)?
            }
        }
        match self.set_end {
            Some((taken, missed, next))
                if self.finished_shards == self.threads
                    && self.saves_packets == self.saved_file.is_some() =>
            {
                self.complete_set(taken, missed, next)
            }
            _ => Ok(()),
        }
    }

    /// Returns the overall result. `error` is the reason why the capture ended early.
    pub(super) fn finish(self, error: Option<String>) -> RunReport {
        let (counters, taken, dropped) = self.earlier_totals;
        let summary = self.aggregator.summary().clone();
        let times = counters.first.zip(counters.last);
        let capture = CaptureStats { name: self.interface, packets: taken, dropped, times, error };
        RunReport { captures: vec![capture], counters, summary }
    }

    /// Completes a set after all threads have finished it.
    fn complete_set(
        &mut self,
        taken: u64,
        missed: u64,
        next: Option<Time>,
    ) -> Result<(), FolderError> {
        let counters = std::mem::take(&mut self.counters);
        self.earlier_totals.0.add(&counters);
        self.earlier_totals.1 += taken;
        self.earlier_totals.2 += missed;
        (self.finished_shards, self.set_end) = (0, None);
        self.shard_progress.iter_mut().for_each(|(_, counters)| *counters = Counters::default());
        self.flush(Some(if next.is_some() { FlushScope::Set } else { FlushScope::Capture }))?;
        if let Some(sets) = self.sets.as_mut() {
            let summary = self.aggregator.take_recent();
            let name = self.interface.clone();
            let times = counters.first.zip(counters.last);
            let capture =
                CaptureStats { name, packets: taken, dropped: missed, times, error: None };
            let set = RunReport { captures: vec![capture], counters, summary };
            let rows: Vec<(&str, u64)> =
                sets.folder().map(|folder| folder.rows().collect()).unwrap_or_default();
            if let Some(saved) = self.saved_file.take() {
                sets.add_file(&saved)?;
            }
            let manifest = self.listener.manifest(&set, &rows);
            if let Some(path) = sets.finish(&manifest)? {
                self.listener.on_set(&path, &set);
            }
            if let Some(next) = next {
                sets.begin(next)?;
            }
        }
        self.set_index += 1;
        let (now, later) = std::mem::take(&mut self.later_messages)
            .into_iter()
            .partition::<Vec<WorkerMessage>, _>(|message| message.set_index <= self.set_index);
        self.later_messages = later;
        now.into_iter().try_for_each(|message| self.handle(message))
    }

    fn report_progress(&mut self, taken: u64, dropped: u64) -> Result<(), FolderError> {
        if self.refresh {
            self.flush(None)?;
        }
        let (mut counters, flows) =
            (self.earlier_totals.0.clone(), self.shard_progress.iter().map(|one| one.0));
        let flows = flows.sum();
        self.shard_progress.iter().for_each(|(_, of_shard)| counters.add(of_shard));
        let summary = match self.refresh {
            true => self.aggregator.summary().clone(),
            false => Summary::default(),
        };
        let capture = CaptureStats {
            name: self.interface.clone(),
            packets: self.earlier_totals.1 + taken,
            dropped: self.earlier_totals.2 + dropped,
            times: counters.first.zip(counters.last),
            error: None,
        };
        self.listener.on_progress(&RunReport { captures: vec![capture], counters, summary }, flows);
        Ok(())
    }

    /// Writes the collected rows.
    fn flush(&mut self, end: Option<FlushScope>) -> Result<(), FolderError> {
        let mut folder = self.sets.as_mut().and_then(|sets| sets.folder());
        let mut result = Ok(());
        let each = |schema: &Schema, batch: &Batch| {
            if let (Some(folder), Ok(())) = (folder.as_deref_mut(), &result) {
                result = folder.write(schema, batch);
            }
        };
        match end {
            Some(FlushScope::Set) => self.aggregator.rotate(each),
            end => self.aggregator.flush(end == Some(FlushScope::Capture), each),
        }
        result
    }
}
