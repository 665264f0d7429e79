//! The loads of all rounds.

use std::collections::BTreeMap;

use manyways_model::qoe::page::known::{KnownPage, ORIGINS};
use manyways_rig::launch::DriveError;
use manyways_rig::order::shuffle;

use super::edges::Edges;
use super::lab::{Lab, Outcome};
use super::late::{Differences, choose};
use super::load::Loaded;
use super::what_if::{Change, Ratios};
use super::{Loads, Subject, apps, known};
use crate::figures::Figures;

/// Port of the first origin of the first known page.
const PORT: u16 = 8000;

/// The loads of a round under the conditions of all, by page and late object.
pub type Outcomes = BTreeMap<(usize, Option<usize>), Outcome>;

impl Loads<'_> {
    /// Loads everything, and returns all figures; or why a load failed.
    pub fn measure(
        &self,
        skipped: &mut Vec<String>,
        progress: &mut dyn FnMut(u32),
    ) -> Result<Result<Figures, String>, DriveError> {
        let mut subjects = self.known_pages();
        let slack = match self.slack(&subjects)? {
            Ok(slack) => slack,
            Err(reason) => return Ok(Err(reason)),
        };
        let late = choose(&slack, self.pages.late.objects, self.seed);
        let (found, missing) = apps::prepare(self.shell)?;
        subjects.extend(found);
        skipped.extend(missing);
        let changes = self.changes();
        // Loads under other conditions are those of the last pages.
        let first_changed = self.pages.known.len() - self.pages.what_if.known;
        let (mut edges, mut differences, mut ratios) =
            (Edges::default(), Differences::default(), Ratios::default());
        let mut failed = None;
        for round in 0..self.rounds {
            let outcomes = self.round(round, &subjects, &late, &changes)?;
            for change in &changes {
                let changed = self.changed(change, &subjects[first_changed..])?;
                for (place, outcome) in changed.into_iter().enumerate() {
                    let page = first_changed + place;
                    let base = outcomes.get(&(page, None));
                    let name = &subjects[page].name;
                    failed = ratios.add(name, change, base, &outcome).or(failed);
                }
            }
            for (page, subject) in subjects.iter().enumerate() {
                let of_page = outcomes.iter().filter(|((of, _), _)| *of == page);
                let loaded: Vec<&Loaded> =
                    of_page.filter_map(|(_, outcome)| outcome.as_ref().ok()).collect();
                if let Some(seed) = subject.seed {
                    edges.add(seed, &loaded);
                }
                ratios.add_replay(&subject.name, outcomes.get(&(page, None)));
            }
            differences.add(&subjects, &late, &outcomes);
            let reason = outcomes.into_values().find_map(Result::err);
            failed = reason.or(failed);
            progress(round + 1);
        }
        let objects = late.iter().map(Vec::len).sum();
        let count = (subjects.len() - first_changed) * changes.len();
        let figures = [Some(edges.figures()), differences.figures(objects), ratios.figures(count)];
        let figures: Option<Vec<Figures>> = figures.into_iter().collect();
        Ok(figures.map(Figures::together).ok_or_else(|| failed.unwrap_or_default()))
    }

    fn known_pages(&self) -> Vec<Subject> {
        let ports = (PORT..).step_by(2 * ORIGINS);
        ports.zip(&self.pages.known).map(|(port, seed)| known_page(port, *seed)).collect()
    }

    /// The slack of the objects of each known page, of a first load.
    fn slack(
        &self,
        subjects: &[Subject],
    ) -> Result<Result<Vec<BTreeMap<usize, f64>>, String>, DriveError> {
        let mut lab = Lab::of(self.link(1.0, 1.0), subjects);
        let load = |subject: &Subject| format!("--slack --url '{}'", subject.url);
        lab.loads.extend(subjects.iter().map(load));
        let outcomes = lab.run(self.shell)?;
        Ok(outcomes.into_iter().map(|outcome| Ok(outcome?.slack)).collect())
    }

    /// Each page as it is, and with each of its late objects, in a random order.
    fn round(
        &self,
        round: u32,
        subjects: &[Subject],
        late: &[Vec<usize>],
        changes: &[Change],
    ) -> Result<Outcomes, DriveError> {
        let delay = format!("{}ms", self.pages.late.delay.as_millis_f64());
        let mut lab = Lab::of(self.link(1.0, 1.0), subjects);
        let what_if: String =
            changes.iter().map(|change| format!(" --what-if {}", change.text)).collect();
        let mut ports = (PORT..).step_by(ORIGINS).skip(2 * self.pages.known.len());
        let mut loads = Vec::new();
        for (page, subject) in subjects.iter().enumerate() {
            let objects = late.get(page).map(Vec::as_slice).unwrap_or_default();
            let late: String =
                objects.iter().map(|object| format!(" --late {object}={delay}")).collect();
            loads.push(((page, None), format!("--url '{}'{what_if}{late}", subject.url)));
            for (object, seed) in objects.iter().zip(subject.seed.into_iter().cycle()) {
                let Some(port) = ports.next() else { continue };
                let server = format!("{} --late {object}={delay}", known::serve(seed, port));
                lab.servers.push(server);
                let url = known::url(&KnownPage::new(seed), port);
                loads.push(((page, Some(*object)), format!("--url '{url}'")));
            }
        }
        shuffle(&mut loads, self.seed ^ u64::from(round));
        lab.loads.extend(loads.iter().map(|(_, load)| load.clone()));
        Ok(loads.into_iter().map(|(name, _)| name).zip(lab.run(self.shell)?).collect())
    }

    /// A load of each page under other conditions.
    fn changed(&self, change: &Change, subjects: &[Subject]) -> Result<Vec<Outcome>, DriveError> {
        let mut lab = Lab::of(change.link.clone(), subjects);
        for subject in subjects {
            let url = if change.is_prompt { &subject.prompt_url } else { &subject.url };
            lab.loads.push(format!("--url '{url}'"));
        }
        lab.run(self.shell)
    }
}

fn known_page(port: u16, seed: u64) -> Subject {
    let prompt_port = port + ORIGINS as u16;
    let url = |port| known::url(&KnownPage::new(seed), port);
    Subject {
        name: format!("page {seed}"),
        seed: Some(seed),
        servers: vec![known::serve(seed, port), known::serve(seed, prompt_port) + " --prompt"],
        before: String::new(),
        url: url(port),
        prompt_url: url(prompt_port),
    }
}
