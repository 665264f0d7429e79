//! The predicted effect of a late object on the page load time, beside the measured one.

use std::collections::BTreeMap;

use manyways_model::qoe::page::known::{KnownPage, ORIGINS};
use manyways_rig::launch::DriveError;
use manyways_rig::order::shuffle;
use manyways_rig::sample::median;
use manyways_unit::Random;

use super::lab::{Lab, Outcome};
use super::{Loads, known, quantiles};
use crate::figures::Figures;

pub const LATE_MEDIAN: &str = "late objects: median error, ms";
pub const LATE_MOST: &str = "late objects: 90 % of the errors, ms";

const PORT: u16 = 8000;

/// A page and its objects that come late.
struct Page {
    seed: u64,
    objects: Vec<usize>,
}

/// Loads of a round, by page and late object.
type Outcomes = BTreeMap<(u64, Option<usize>), Outcome>;

/// Predicted and measured differences of the page load time, in milliseconds, by page and object.
#[derive(Default)]
struct Differences(BTreeMap<(u64, usize), Vec<[f64; 2]>>);

pub fn measure(
    loads: &Loads<'_>,
    progress: &mut dyn FnMut(u32),
) -> Result<Result<Figures, String>, DriveError> {
    let chosen = match choose(loads)? {
        Ok(chosen) => chosen,
        Err(reason) => return Ok(Err(reason)),
    };
    let (mut differences, mut failed) = (Differences::default(), None);
    for round in 0..loads.rounds {
        failed = differences.measure(loads, &chosen, round)?.or(failed);
        progress(round + 1);
    }
    let objects = chosen.iter().map(|page| page.objects.len()).sum();
    Ok(differences.figures(objects).ok_or_else(|| failed.unwrap_or_default()))
}

/// The slack of the objects is that of a first load of each page.
fn choose(loads: &Loads<'_>) -> Result<Result<Vec<Page>, String>, DriveError> {
    let late = &loads.pages.late;
    let mut lab = Lab::new(loads.link(1.0, 1.0));
    for (port, seed) in (PORT..).step_by(ORIGINS).zip(&late.seeds) {
        lab.servers.push(format!("exec \"$BENCH\" known-page-serve --seed {seed} --port {port}"));
        lab.loads.push(format!("--slack --url {}", known::url(&KnownPage::new(*seed), port)));
    }
    let outcomes = lab.run(loads.shell)?;
    let pages =
        outcomes.into_iter().zip(&late.seeds).enumerate().map(|(number, (outcome, seed))| {
            let mut random = Random::for_purpose(loads.seed, *seed);
            let slack = outcome?.slack;
            let objects = objects(&slack, late.objects, number % 2 == 0, &mut random);
            Ok(Page { seed: *seed, objects })
        });
    Ok(pages.collect())
}

/// By turns the object with the least slack and a random one of the others, none twice. The document is
/// not among them: it delays everything.
fn objects(
    slack: &BTreeMap<usize, f64>,
    count: usize,
    begins_with_least: bool,
    random: &mut Random,
) -> Vec<usize> {
    let mut left: Vec<(usize, f64)> =
        slack.iter().map(|(object, slack)| (*object, *slack)).filter(|one| one.0 != 0).collect();
    left.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut objects = Vec::new();
    while objects.len() < count && !left.is_empty() {
        let is_least = (objects.len() % 2 == 0) == begins_with_least;
        let place = if is_least { 0 } else { random.up_to(left.len() as u64 - 1) as usize };
        objects.push(left.remove(place).0);
    }
    objects
}

impl Differences {
    /// A round: each page as it is, and with each of its late objects, in a random order. Returns why a
    /// load failed.
    fn measure(
        &mut self,
        loads: &Loads<'_>,
        pages: &[Page],
        round: u32,
    ) -> Result<Option<String>, DriveError> {
        let delay = format!("{}ms", loads.pages.late.delay.as_millis_f64());
        let mut lab = Lab::new(loads.link(1.0, 1.0));
        let mut ports = (PORT..).step_by(ORIGINS);
        let mut load = |seed: u64, late: Option<usize>, options: &str| {
            let Some(port) = ports.next() else { return };
            let late = late.map(|object| format!(" --late {object}={delay}")).unwrap_or_default();
            let serve = format!("exec \"$BENCH\" known-page-serve --seed {seed} --port {port}");
            lab.servers.push(serve + &late);
            let url = known::url(&KnownPage::new(seed), port);
            lab.loads.push(format!("--url {url}{options}"));
        };
        let mut names = Vec::new();
        for Page { seed, objects } in pages {
            let predict = |object: &usize| format!(" --late {object}={delay}");
            load(*seed, None, &objects.iter().map(predict).collect::<String>());
            objects.iter().for_each(|object| load(*seed, Some(*object), ""));
            names.push((*seed, None));
            names.extend(objects.iter().map(|object| (*seed, Some(*object))));
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        shuffle(&mut order, loads.seed ^ u64::from(round));
        lab.loads = order.iter().map(|index| lab.loads[*index].clone()).collect();
        let names = order.iter().map(|index| names[*index]);
        let outcomes: Outcomes = names.zip(lab.run(loads.shell)?).collect();
        self.add(pages, &outcomes);
        Ok(outcomes.into_values().find_map(Result::err))
    }

    fn add(&mut self, pages: &[Page], outcomes: &Outcomes) {
        for Page { seed, objects } in pages {
            let Some(Ok(base)) = outcomes.get(&(*seed, None)) else { continue };
            for (object, predicted) in objects.iter().zip(&base.late) {
                let Some(Ok(late)) = outcomes.get(&(*seed, Some(*object))) else { continue };
                let measured = late.page_load - base.page_load;
                let both = [predicted - base.replayed, measured].map(|time| time * 1e3);
                self.0.entry((*seed, *object)).or_default().push(both);
            }
        }
    }

    /// `None` if an object was never measured.
    fn figures(&self, objects: usize) -> Option<Figures> {
        let mut figures = Vec::new();
        let mut errors = Vec::new();
        for ((seed, object), rounds) in &self.0 {
            let [predicted, measured] =
                [0, 1].map(|which| median(rounds.iter().map(|both| both[which])));
            let (predicted, measured) = (predicted?, measured?);
            errors.push((predicted - measured).abs());
            for (what, value) in [("predicted", predicted), ("measured", measured)] {
                figures.push((format!("{what}, ms: object {object} of page {seed}"), value));
            }
        }
        let is_whole = errors.len() == objects;
        let [middle, most] = quantiles(errors);
        figures.extend([(LATE_MEDIAN.to_owned(), middle), (LATE_MOST.to_owned(), most)]);
        is_whole.then(|| Figures::of(figures))
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Loaded;
    use super::*;

    #[test]
    fn objects_with_the_least_slack_and_others_take_turns() {
        let slack: BTreeMap<usize, f64> = (0..60).map(|index| (index, index as f64)).collect();
        let of = |begins| objects(&slack, 5, begins, &mut Random::new(1));
        let (first, second) = (of(true), of(false));
        assert_eq!([first[0], second[1]], [1, if second[0] == 1 { 2 } else { 1 }]);
        for mut objects in [first, second] {
            assert!(!objects.contains(&0));
            objects.sort_unstable();
            objects.dedup();
            assert_eq!(objects.len(), 5);
        }
        assert_eq!(
            objects(&BTreeMap::from([(0, 0.0), (4, 1.0)]), 5, true, &mut Random::new(1)),
            [4]
        );
    }

    #[test]
    fn a_late_load_is_compared_with_the_base_of_its_page() {
        let load = |page_load, replayed, late| {
            Ok(Loaded { page_load, replayed, late, ..Loaded::default() })
        };
        let outcomes = Outcomes::from([
            ((1, None), load(2.0, 1.9, vec![2.1, 1.9])),
            ((1, Some(7)), load(2.3, 0.0, Vec::new())),
            ((1, Some(5)), Err("no".to_owned())),
            ((2, None), Err("no".to_owned())),
            ((2, Some(7)), load(5.0, 0.0, Vec::new())),
        ]);
        let pages = [(1, vec![7, 5]), (2, vec![7])].map(|(seed, objects)| Page { seed, objects });
        let mut differences = Differences::default();
        differences.add(&pages, &outcomes);
        let [predicted, measured] = differences.0[&(1, 7)][0];
        assert!((predicted - 200.0).abs() < 1e-6 && (measured - 300.0).abs() < 1e-6);
        assert_eq!(differences.0.len(), 1);
    }

    #[test]
    fn the_error_of_an_object_is_that_of_the_medians() {
        let mut differences = Differences::default();
        let rounds = vec![[300.0, 310.0], [280.0, 290.0], [290.0, 400.0]];
        differences.0.insert((1, 5), rounds);
        differences.0.insert((1, 6), vec![[0.0, 40.0]]);
        let figures = differences.figures(2).unwrap().quantities;
        assert!((figures[LATE_MEDIAN] - 30.0).abs() < 1e-9);
        assert!((figures[LATE_MOST] - 38.0).abs() < 1e-9);
        assert_eq!(figures["predicted, ms: object 5 of page 1"], 290.0);
        assert!(differences.figures(3).is_none());
    }
}
