//! The predicted effect of a late object on the page load time, beside the measured one.

use std::collections::BTreeMap;

use manyways_rig::sample::median;
use manyways_unit::Random;

use super::rounds::Outcomes;
use super::{Subject, quantiles};
use crate::figures::Figures;

pub const LATE_MEDIAN: &str = "late objects: median error, ms";
pub const LATE_MOST: &str = "late objects: 90 % of the errors, ms";

/// Predicted and measured differences of the page load time, in milliseconds, by the name of the page and
/// the object.
#[derive(Default)]
pub struct Differences(BTreeMap<(String, usize), Vec<[f64; 2]>>);

/// This number of objects of each page, whose slack is known.
pub fn choose(slack: &[BTreeMap<usize, f64>], count: usize, seed: u64) -> Vec<Vec<usize>> {
    let of_page = |(number, slack): (usize, &BTreeMap<usize, f64>)| {
        let mut random = Random::for_purpose(seed, number as u64);
        objects(slack, count, number % 2 == 0, &mut random)
    };
    slack.iter().enumerate().map(of_page).collect()
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
    /// Adds a round of the objects of each page.
    pub fn add(&mut self, subjects: &[Subject], late: &[Vec<usize>], outcomes: &Outcomes) {
        for (page, (subject, objects)) in subjects.iter().zip(late).enumerate() {
            let Some(Ok(base)) = outcomes.get(&(page, None)) else { continue };
            for (object, predicted) in objects.iter().zip(&base.late) {
                let Some(Ok(late)) = outcomes.get(&(page, Some(*object))) else { continue };
                let measured = late.page_load - base.page_load;
                let both = [predicted - base.replayed, measured].map(|time| time * 1e3);
                self.0.entry((subject.name.clone(), *object)).or_default().push(both);
            }
        }
    }

    /// `None` if an object was never measured.
    pub fn figures(&self, objects: usize) -> Option<Figures> {
        let mut figures = Vec::new();
        let mut errors = Vec::new();
        for ((name, object), rounds) in &self.0 {
            let [predicted, measured] =
                [0, 1].map(|which| median(rounds.iter().map(|both| both[which])));
            let (predicted, measured) = (predicted?, measured?);
            errors.push((predicted - measured).abs());
            for (what, value) in [("predicted", predicted), ("measured", measured)] {
                figures.push((format!("{what}, ms: object {object} of {name}"), value));
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
            ((0, None), load(2.0, 1.9, vec![2.1, 1.9])),
            ((0, Some(7)), load(2.3, 0.0, Vec::new())),
            ((0, Some(5)), Err("no".to_owned())),
            ((1, None), Err("no".to_owned())),
            ((1, Some(7)), load(5.0, 0.0, Vec::new())),
        ]);
        let mut differences = Differences::default();
        differences.add(&["a", "b"].map(Subject::named), &[vec![7, 5], vec![7]], &outcomes);
        let [predicted, measured] = differences.0[&("a".to_owned(), 7)][0];
        assert!((predicted - 200.0).abs() < 1e-6 && (measured - 300.0).abs() < 1e-6);
        assert_eq!(differences.0.len(), 1);
    }

    #[test]
    fn the_error_of_an_object_is_that_of_the_medians() {
        let mut differences = Differences::default();
        let rounds = vec![[300.0, 310.0], [280.0, 290.0], [290.0, 400.0]];
        differences.0.insert(("a".to_owned(), 5), rounds);
        differences.0.insert(("a".to_owned(), 6), vec![[0.0, 40.0]]);
        let figures = differences.figures(2).unwrap().quantities;
        assert!((figures[LATE_MEDIAN] - 30.0).abs() < 1e-9);
        assert!((figures[LATE_MOST] - 38.0).abs() < 1e-9);
        assert_eq!(figures["predicted, ms: object 5 of a"], 290.0);
        assert!(differences.figures(3).is_none());
    }
}
