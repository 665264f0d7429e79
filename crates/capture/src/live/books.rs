//! What the threads of a live capture say, written down set by set.

use std::path::PathBuf;

use manyways_flows::analysis::{Counters, Record, Summary, Survey};
use manyways_record::table::{Batch, Schema};
use manyways_unit::Time;

use super::{Listener, Watch};
use crate::folder::FolderError;
use crate::sets::Sets;
use crate::work::{Capture, Outcome, Plan};

/// Something that a thread says.
#[derive(Debug)]
pub(super) struct Said {
    /// In which turn, from zero.
    pub turn: u64,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Records(Vec<Record>),
    /// What a shard counted in this turn, which is over for it.
    Counted(Box<Counters>),
    /// The packets of this turn are in this file.
    Saved(PathBuf),
    /// They cannot be written.
    Failed(FolderError),
    /// How a shard is getting on in this turn, and how many flows are going on in it.
    Going {
        shard: u8,
        flows: usize,
        counters: Box<Counters>,
    },
    /// So many packets were taken in this turn until now, and so many missed.
    Passed {
        taken: u64,
        missed: u64,
    },
    /// And so many in all of it; the next one begins then, where there is one.
    Taken {
        taken: u64,
        missed: u64,
        next: Option<Time>,
    },
}

/// What is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Set,
    All,
}

/// Takes down what is said, whoever says it first.
pub(super) struct Books<'a> {
    interface: String,
    threads: usize,
    saves: bool,
    refresh: bool,
    survey: Survey,
    sets: Option<&'a mut Sets>,
    listener: &'a mut dyn Listener,
    turn: u64,
    /// Said of a later turn, which has not begun here.
    later: Vec<Said>,
    /// Those who are done with this turn, and what they counted.
    done: usize,
    counters: Counters,
    taken: Option<(u64, u64, Option<Time>)>,
    saved: Option<PathBuf>,
    /// All turns before this one.
    before: (Counters, u64, u64),
    /// How each shard is getting on.
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

    /// The first set begins.
    pub(super) fn begin(&mut self, at: Time) -> Result<(), FolderError> {
        self.sets.as_mut().map_or(Ok(()), |sets| sets.begin(at))
    }

    /// Somebody says something.
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

    /// What came out in all. `fault` is why the capture had to end.
    pub(super) fn close(self, fault: Option<String>) -> Outcome {
        let (counters, taken, missed) = self.before;
        let summary = self.survey.summary().clone();
        let times = counters.first.zip(counters.last);
        let capture = Capture { name: self.interface, packets: taken, missed, times, fault };
        Outcome { captures: vec![capture], counters, summary }
    }

    /// A turn is over for everybody.
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

    /// Writes what is held.
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
