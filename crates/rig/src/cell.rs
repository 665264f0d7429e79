//! Cells of contenders, the rounds in which the contenders take turns, and their records.

use std::collections::BTreeMap;
use std::fmt::Debug;

use manyways_trace::scenario::{Event, HostSpec, LinkSpec};
use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use crate::launch::DriveError;
use crate::links;
use crate::order::{hash, shuffle};

/// A program or configuration that runs in a cell.
pub trait Contender: Clone + Debug {
    /// Name in results and tables; `links` are the links of its cell.
    fn name(&self, links: &[LinkSpec]) -> String;
}

/// A contender that its name describes.
impl Contender for &'static str {
    fn name(&self, _links: &[LinkSpec]) -> String {
        (*self).to_owned()
    }
}

/// Contenders that take turns under the same conditions.
#[derive(Clone, Debug)]
pub struct Cell<C, S> {
    /// Unique among all cells.
    pub name: String,
    /// Letter of the group of cells to which the cell belongs.
    pub part: char,
    /// The conditions, in readable form.
    pub title: String,
    /// Contenders refer to links by index; empty if no link is emulated.
    pub links: Vec<LinkSpec>,
    /// Hosts on the server side; empty means one host.
    pub hosts: Vec<HostSpec>,
    /// Changes of the links; times count from the start of each run.
    pub events: Vec<Event>,
    /// Each contender runs once in each round.
    pub contenders: Vec<C>,
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

impl<C, S: Default> Cell<C, S> {
    /// A cell whose title describes its links.
    pub fn over(
        part: char,
        name: impl Into<String>,
        links: Vec<LinkSpec>,
        contenders: Vec<C>,
    ) -> Self {
        let title = links.iter().map(links::describe).collect::<Vec<_>>().join(" + ");
        Self { name: name.into(), part, title, links, contenders, ..Self::default() }
    }
}

impl<C: Contender, S: Debug> Cell<C, S> {
    /// Whether the links do not change during a run.
    pub fn is_constant(&self) -> bool {
        self.events.is_empty() && self.links.iter().all(|link| links::period(link).is_none())
    }

    /// Offset in the traces of the links at which a round starts: `step` after the start of the
    /// previous round, modulo the shortest period.
    pub fn offset(&self, round: u32, step: Span) -> Span {
        let period = self.links.iter().filter_map(links::period).min();
        let offset = step * u64::from(round);
        period.map_or(Span::ZERO, |period| Span::from_nanos(offset.as_nanos() % period.as_nanos()))
    }

    /// Whether one of `words` is the cell's name, its letter or its name up to the first dash. An
    /// empty list selects every cell.
    pub fn is_selected(&self, words: &[String]) -> bool {
        let group = self.name.split('-').next().unwrap_or_default();
        let is_meant =
            |word: &String| *word == self.name || word == group || *word == self.part.to_string();
        words.is_empty() || words.iter().any(is_meant)
    }

    /// Creates a record without runs.
    pub fn record<R: Default, M: Default>(&self, more: M) -> CellRecord<R, M> {
        CellRecord {
            name: self.name.clone(),
            part: self.part.to_string(),
            title: self.title.clone(),
            links: self.links.iter().map(|link| link.name.clone()).collect(),
            rounds: self.rounds,
            plan: format!("{:016x}", hash(&format!("{self:?}"))),
            extra: more,
            ..CellRecord::default()
        }
    }

    /// Runs each of `able` once in each round. The order depends on the seed, the cell's name and
    /// the round; the runs are recorded in the order of the plan. Calls `progress` after each round
    /// with the number of finished rounds.
    ///
    /// # Errors
    /// The first error of `run`; it ends the cell.
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
            for index in order {
                let contender = able[index].name(&self.links);
                runs.push((index, Run { round, contender, ..run(round, &able[index])? }));
            }
            runs.sort_by_key(|(index, _)| *index);
            record.runs.extend(runs.into_iter().map(|(_, run)| run));
            progress(round + 1);
        }
        Ok(())
    }
}

/// The record of a cell, as in the results file. `M` is specific to the family of benchmarks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CellRecord<R, M> {
    pub name: String,
    pub part: String,
    /// The conditions, in readable form.
    pub title: String,
    /// Names of the links; every list of links has this order.
    #[serde(default)]
    pub links: Vec<String>,
    /// Number of planned rounds.
    pub rounds: u32,
    /// Hash of the plan; a record with another hash is not reused.
    pub plan: String,
    /// All runs, sorted by round.
    pub runs: Vec<Run<R>>,
    /// Number of runs after which the links did not become quiet and were interrupted.
    #[serde(default)]
    pub drain_failures: u32,
    /// Duration of the cell, in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Contenders that could not run, each with the reason.
    pub skipped: Vec<String>,
    /// Reason why the cell was not measured; `None` if it was.
    pub error: Option<String>,
    /// Content that is specific to the family.
    #[serde(flatten)]
    pub extra: M,
}

/// One run of a contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run<R> {
    /// Counts from 0.
    pub round: u32,
    pub contender: String,
    /// Reason of the failure; `None` if the run succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    #[serde(flatten)]
    pub figures: R,
}

impl<R> Run<R> {
    /// Creates a run; [`Cell::run_rounds`] sets its round and contender.
    pub fn of(figures: R, failed: Option<String>) -> Self {
        Self { round: 0, contender: String::new(), failed, figures }
    }
}

impl<R, M> CellRecord<R, M> {
    /// By round, a figure of the selected runs that have it.
    pub fn values(
        &self,
        is_meant: impl Fn(&Run<R>) -> bool,
        figure: impl Fn(&R) -> Option<f64>,
    ) -> BTreeMap<u32, f64> {
        let runs = self.runs.iter().filter(|run| is_meant(run));
        runs.filter_map(|run| Some((run.round, figure(&run.figures)?))).collect()
    }

    /// Number of failed runs among the selected runs, and number of selected runs.
    pub fn failures(&self, is_meant: impl Fn(&Run<R>) -> bool) -> (usize, usize) {
        let of = || self.runs.iter().filter(|run| is_meant(run));
        (of().filter(|run| run.failed.is_some()).count(), of().count())
    }

    /// The distinct values of `word` over all runs, in the order of the plan.
    pub fn distinct<'a>(&'a self, word: impl Fn(&'a Run<R>) -> Option<&'a str>) -> Vec<&'a str> {
        let mut all: Vec<&str> = Vec::new();
        for word in self.runs.iter().filter_map(word) {
            if !all.contains(&word) {
                all.push(word);
            }
        }
        all
    }

    /// The distinct failure reasons with their counts; empty if no run failed.
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
