//! Collects the messages of the threads of a live capture and writes them set by set.

use std::path::PathBuf;

use manyways_flows::analysis::{Counters, Record, Summary, Survey};
use manyways_record::table::{Batch, Schema};
use manyways_unit::Time;

use super::{Listener, Watch};
use crate::folder::FolderError;
use crate::sets::Sets;
use crate::work::{Capture, Outcome, Plan};

/// A message of a thread.
#[derive(Debug)]
pub(super) struct Said {
    /// Number of the set that the message belongs to, from 0.
    pub turn: u64,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Records(Vec<Record>),
    /// Final counters of a shard for the set.
    Counted(Box<Counters>),
    /// File with the packets of the set.
    Saved(PathBuf),
    /// The packets cannot be written.
    Failed(FolderError),
    /// Current counters of a shard for the set, and its number of active flows.
    Going {
        shard: u8,
        flows: usize,
        counters: Box<Counters>,
    },
    /// Numbers of captured and dropped packets in the set so far.
    Passed {
        taken: u64,
        missed: u64,
    },
    /// Final numbers of captured and dropped packets of the set, and the start of the next set;
    /// `None` at the end of the capture.
    Taken {
        taken: u64,
        missed: u64,
        next: Option<Time>,
    },
}

/// End of a set or of the capture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Set,
    All,
}

/// Assembles sets from messages in any order.
pub(super) struct Books<'a> {
    interface: String,
    threads: usize,
    saves: bool,
    refresh: bool,
    survey: Survey,
    sets: Option<&'a mut Sets>,
    listener: &'a mut dyn Listener,
    turn: u64,
    /// Messages of later sets.
    later: Vec<Said>,
    /// Number of shards that have finished the set, and the sum of their counters.
    done: usize,
    counters: Counters,
    taken: Option<(u64, u64, Option<Time>)>,
    saved: Option<PathBuf>,
    /// Counters, captured and dropped packets of all earlier sets.
    before: (Counters, u64, u64),
    /// Active flows and current counters of each shard.
    going: Vec<(usize, Counters)>,
}

impl<'a> Books<'a> {
    pub(super) fn new(
        interface: String,
        plan: &Plan,
        watch: &Watch,
        sets: Option<&'a mut Sets>,
        listener: &'a mut dyn Listener,
    ) -> Self {
        let survey = Survey::new(&plan.settings);
        let survey = if sets.is_some() { survey.in_turns() } else { survey.without_tables() };
        let threads = usize::from(plan.threads.clamp(1, 64));
        let saves = watch.save && sets.is_some();
        Self {
            interface,
            threads,
            saves,
            refresh: watch.refresh,
            survey,
            sets,
            listener,
            turn: 0,
            later: Vec::new(),
            done: 0,
            counters: Counters::default(),
            taken: None,
            saved: None,
            before: (Counters::default(), 0, 0),
            going: vec![Default::default(); threads],
        }
    }

    /// Starts the first set.
    pub(super) fn begin(&mut self, at: Time) -> Result<(), FolderError> {
        self.sets.as_mut().map_or(Ok(()), |sets| sets.begin(at))
    }

    /// Processes a message.
    pub(super) fn hear(&mut self, said: Said) -> Result<(), FolderError> {
        if said.turn > self.turn {
            self.later.push(said);
            return Ok(());
        }
        match said.what {
            What::Records(records) => {
                records.into_iter().for_each(|record| self.survey.add(record));
                if self.survey.is_full() {
                    self.flush(None)?;
                }
            }
            What::Counted(counters) => {
                self.counters.add(&counters);
                self.done += 1;
            }
            What::Saved(path) => self.saved = Some(path),
            What::Failed(error) => return Err(error),
            What::Taken { taken, missed, next } => self.taken = Some((taken, missed, next)),
            What::Going { shard, flows, counters } => {
                if let Some(going) = self.going.get_mut(usize::from(shard)) {
                    *going = (flows, *counters);
                }
            }
            What::Passed { taken, missed } => self.tell(taken, missed)?,
        }
        match self.taken {
            Some((taken, missed, next))
                if self.done == self.threads && self.saves == self.saved.is_some() =>
            {
                self.turn(taken, missed, next)
            }
            _ => Ok(()),
        }
    }

    /// Returns the overall result. `fault` is the reason why the capture ended early.
    pub(super) fn close(self, fault: Option<String>) -> Outcome {
        let (counters, taken, missed) = self.before;
        let summary = self.survey.summary().clone();
        let times = counters.first.zip(counters.last);
        let capture = Capture { name: self.interface, packets: taken, missed, times, fault };
        Outcome { captures: vec![capture], counters, summary }
    }

    /// Completes a set after all threads have finished it.
    fn turn(&mut self, taken: u64, missed: u64, next: Option<Time>) -> Result<(), FolderError> {
        let counters = std::mem::take(&mut self.counters);
        self.before.0.add(&counters);
        self.before.1 += taken;
        self.before.2 += missed;
        (self.done, self.taken) = (0, None);
        self.going.iter_mut().for_each(|(_, counters)| *counters = Counters::default());
        self.flush(Some(if next.is_some() { Ends::Set } else { Ends::All }))?;
        if let Some(sets) = self.sets.as_mut() {
            let summary = self.survey.take_recent();
            let name = self.interface.clone();
            let times = counters.first.zip(counters.last);
            let capture = Capture { name, packets: taken, missed, times, fault: None };
            let set = Outcome { captures: vec![capture], counters, summary };
            let rows: Vec<(&str, u64)> =
                sets.folder().map(|folder| folder.rows().collect()).unwrap_or_default();
            if let Some(saved) = self.saved.take() {
                sets.adopt(&saved)?;
            }
            let manifest = self.listener.manifest(&set, &rows);
            if let Some(path) = sets.finish(&manifest)? {
                self.listener.set(&path, &set);
            }
            if let Some(next) = next {
                sets.begin(next)?;
            }
        }
        self.turn += 1;
        let (now, later) = std::mem::take(&mut self.later)
            .into_iter()
            .partition::<Vec<Said>, _>(|said| said.turn <= self.turn);
        self.later = later;
        now.into_iter().try_for_each(|said| self.hear(said))
    }

    fn tell(&mut self, taken: u64, missed: u64) -> Result<(), FolderError> {
        if self.refresh {
            self.flush(None)?;
        }
        let (mut counters, flows) = (self.before.0.clone(), self.going.iter().map(|one| one.0));
        let flows = flows.sum();
        self.going.iter().for_each(|(_, of_shard)| counters.add(of_shard));
        let summary = match self.refresh {
            true => self.survey.summary().clone(),
            false => Summary::default(),
        };
        let capture = Capture {
            name: self.interface.clone(),
            packets: self.before.1 + taken,
            missed: self.before.2 + missed,
            times: counters.first.zip(counters.last),
            fault: None,
        };
        self.listener.progress(&Outcome { captures: vec![capture], counters, summary }, flows);
        Ok(())
    }

    /// Writes the collected rows.
    fn flush(&mut self, end: Option<Ends>) -> Result<(), FolderError> {
        let mut folder = self.sets.as_mut().and_then(|sets| sets.folder());
        let mut result = Ok(());
        let each = |schema: &Schema, batch: &Batch| {
            if let (Some(folder), Ok(())) = (folder.as_deref_mut(), &result) {
                result = folder.write(schema, batch);
            }
        };
        match end {
            Some(Ends::Set) => self.survey.turn(each),
            end => self.survey.flush(end == Some(Ends::All), each),
        }
        result
    }
}
