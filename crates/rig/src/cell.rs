//! What is measured: cells of contenders, the rounds in which these take turns, and the records of
//! both.

use std::collections::BTreeMap;
use std::fmt::Debug;

use manyways_trace::scenario::{Event, HostSpec, LinkSpec};
use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use crate::launch::DriveError;
use crate::links;
use crate::order::{hash, shuffle};

/// A contender and what it does in a round.
pub trait Contender: Clone + Debug {
    /// Its name in results and tables; `links` are those of its cell.
    fn name(&self, links: &[LinkSpec]) -> String;
}

/// Contenders that take turns under the same conditions.
#[derive(Clone, Debug)]
pub struct Cell<C, S> {
    /// Unique among all cells.
    pub name: String,
    /// The letter of the group of cells to which it belongs.
    pub part: char,
    /// The conditions, for people.
    pub title: String,
    /// Numbered from zero by contenders; none where nothing is emulated.
    pub links: Vec<LinkSpec>,
    /// The far side; none means one host.
    pub hosts: Vec<HostSpec>,
    /// What changes on the links; counts from the start of each run.
    pub events: Vec<Event>,
    /// Each runs once a round.
    pub contenders: Vec<C>,
    /// How many rounds there are.
    pub rounds: u32,
    /// Conditions that only this family of benchmarks has.
    pub setting: S,
}

impl<C, S: Default> Default for Cell<C, S> {
    fn default() -> Self {
        Self {
            name: String::new(),
            part: char::default(),
            title: String::new(),
            links: Vec::new(),
            hosts: Vec::new(),
            events: Vec::new(),
            contenders: Vec::new(),
            rounds: 0,
            setting: S::default(),
        }
    }
}

impl<C: Contender, S: Debug> Cell<C, S> {
    /// Whether the links stay as they are during a run.
    pub fn is_constant(&self) -> bool {
        self.events.is_empty() && self.links.iter().all(|link| links::period(link).is_none())
    }

    /// Where in the traces of its links a round begins, `step` after the one before it.
    pub fn offset(&self, round: u32, step: Span) -> Span {
        let period = self.links.iter().filter_map(links::period).min();
        let offset = step * u64::from(round);
        period.map_or(Span::ZERO, |period| Span::from_nanos(offset.as_nanos() % period.as_nanos()))
    }

    /// Whether one of these words is its name, its letter or its name up to the first dash. No word
    /// means every cell.
    pub fn is_meant(&self, words: &[String]) -> bool {
        let group = self.name.split('-').next().unwrap_or_default();
        let is_meant =
            |word: &String| *word == self.name || word == group || *word == self.part.to_string();
        words.is_empty() || words.iter().any(is_meant)
    }

    /// A record without runs.
    pub fn record<R: Default, M: Default>(&self, more: M) -> CellRecord<R, M> {
        CellRecord {
            name: self.name.clone(),
            part: self.part.to_string(),
            title: self.title.clone(),
            links: self.links.iter().map(|link| link.name.clone()).collect(),
            rounds: self.rounds,
            plan: format!("{:016x}", hash(&format!("{self:?}"))),
            more,
            ..CellRecord::default()
        }
    }

    /// Runs each of `able` once a round, in an order that depends on the seed, the cell's name and
    /// the round. The runs are recorded in the order of the plan; `progress` hears after each round
    /// how many are done.
    ///
    /// # Errors
    /// The first error of `run`, after which nothing more runs.
    pub fn run_rounds<R, M>(
        &self,
        able: &[C],
        seed: u64,
        record: &mut CellRecord<R, M>,
        progress: &mut dyn FnMut(u32),
        mut run: impl FnMut(u32, &C) -> Result<Run<R>, DriveError>,
    ) -> Result<(), DriveError> {
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..able.len()).collect();
            shuffle(&mut order, seed ^ hash(&self.name) ^ u64::from(round));
            let mut runs = Vec::with_capacity(order.len());
            for place in order {
                let contender = able[place].name(&self.links);
                runs.push((place, Run { round, contender, ..run(round, &able[place])? }));
            }
            runs.sort_by_key(|(place, _)| *place);
            record.runs.extend(runs.into_iter().map(|(_, run)| run));
            progress(round + 1);
        }
        Ok(())
    }
}

/// What was measured in a cell, as it is written to the results file and read back to go on. `M` is
/// what only this family of benchmarks has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CellRecord<R, M> {
    /// The cell's name.
    pub name: String,
    /// Its letter.
    pub part: String,
    /// The conditions, for people.
    pub title: String,
    /// The links' names, in the order of every list of links.
    #[serde(default)]
    pub links: Vec<String>,
    /// How many rounds were planned.
    pub rounds: u32,
    /// Changes when anything of the plan does; a record with another one is not kept.
    pub plan: String,
    /// Every run, round by round.
    pub runs: Vec<Run<R>>,
    /// How often the links did not become quiet after a run, and were cut off for a moment.
    #[serde(default)]
    pub restless: u32,
    /// How long all of it took, in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Contenders that could not run, each with the reason.
    pub left_out: Vec<String>,
    /// Why the cell was not measured; `None` where it was.
    pub error: Option<String>,
    /// What only this family has.
    #[serde(flatten)]
    pub more: M,
}

/// One run of a contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run<R> {
    /// The round, from 0.
    pub round: u32,
    /// The contender's name.
    pub contender: String,
    /// Why it failed; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What was measured.
    #[serde(flatten)]
    pub figures: R,
}

impl<R> Run<R> {
    /// A run whose round and contender [`Cell::run_rounds`] fills in.
    pub fn of(figures: R, failed: Option<String>) -> Self {
        Self { round: 0, contender: String::new(), failed, figures }
    }
}

impl<R, M> CellRecord<R, M> {
    /// A figure of those runs that have it, by round.
    pub fn values(
        &self,
        is_meant: impl Fn(&Run<R>) -> bool,
        figure: impl Fn(&R) -> Option<f64>,
    ) -> BTreeMap<u32, f64> {
        let runs = self.runs.iter().filter(|run| is_meant(run));
        runs.filter_map(|run| Some((run.round, figure(&run.figures)?))).collect()
    }

    /// How many of these runs failed, and how many there were.
    pub fn failures(&self, is_meant: impl Fn(&Run<R>) -> bool) -> (usize, usize) {
        let of = || self.runs.iter().filter(|run| is_meant(run));
        (of().filter(|run| run.failed.is_some()).count(), of().count())
    }

    /// A word of each of these runs, each word once, in the order of the plan.
    pub fn each<'a>(&'a self, word: impl Fn(&'a Run<R>) -> Option<&'a str>) -> Vec<&'a str> {
        let mut all: Vec<&str> = Vec::new();
        for word in self.runs.iter().filter_map(word) {
            if !all.contains(&word) {
                all.push(word);
            }
        }
        all
    }

    /// Why runs failed, each reason once with its count; empty where none failed.
    pub fn reasons(&self) -> String {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for run in &self.runs {
            if let Some(reason) = &run.failed {
                *counts.entry((&run.contender, reason)).or_default() += 1;
            }
        }
        let one =
            |((name, why), count): (&(&str, &str), &usize)| format!("{name}: {why} ({count})");
        counts.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}
