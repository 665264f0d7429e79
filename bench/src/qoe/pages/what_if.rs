//! Predicted page load times under other conditions, beside loads under these conditions.

use std::collections::BTreeMap;

use manyways_rig::sample::median;

use super::lab::Outcome;
use super::{Loads, quantiles};
use crate::figures::Figures;

pub const WHAT_IF_MEDIAN: &str = "other conditions: median error, %";
pub const WHAT_IF_MOST: &str = "other conditions: 90 % of the errors, %";
/// Number of changes.
pub const COUNT: usize = 3;

/// In place of a network: nothing takes time.
const NO_NETWORK: &str = "wan:delay=0ms";

/// A change of the conditions.
pub struct Change {
    /// Its place among the predictions of a load.
    pub index: usize,
    /// As an option of `known-page-load`.
    pub text: String,
    /// Value of `--link` for the measurement.
    pub link: String,
    pub is_prompt: bool,
}

/// Predicted by measured page load times of all rounds, by page and change.
#[derive(Default)]
pub struct Ratios(BTreeMap<(String, String), Vec<f64>>);

/// In place of a change: the replay without one.
const REPLAYED: &str = "no change";

impl Loads<'_> {
    pub fn changes(&self) -> [Change; COUNT] {
        let cells = &self.pages.what_if;
        [
            Change {
                index: 0,
                text: format!("rtt={}", cells.rtt),
                link: self.link(cells.rtt, 1.0),
                is_prompt: false,
            },
            Change {
                index: 1,
                text: format!("rate={}", cells.rate),
                link: self.link(1.0, cells.rate),
                is_prompt: false,
            },
            Change {
                index: 2,
                text: "cached".to_owned(),
                link: NO_NETWORK.to_owned(),
                is_prompt: true,
            },
        ]
    }
}

impl Ratios {
    /// Adds a load under other conditions, beside one that predicts it. Returns why it failed.
    pub fn add(
        &mut self,
        name: &str,
        change: &Change,
        base: Option<&Outcome>,
        measured: &Outcome,
    ) -> Option<String> {
        match measured {
            Err(reason) => Some(format!("{name}: {reason}")),
            Ok(measured) => {
                let predicted = base?.as_ref().ok()?.what_if.get(change.index)?;
                self.push(name, &change.text, predicted / measured.page_load);
                None
            }
        }
    }

    /// Adds the replay of a load.
    pub fn add_replay(&mut self, name: &str, load: Option<&Outcome>) {
        if let Some(Ok(load)) = load {
            self.push(name, REPLAYED, load.replayed / load.page_load);
        }
    }

    fn push(&mut self, name: &str, change: &str, ratio: f64) {
        self.0.entry((name.to_owned(), change.to_owned())).or_default().push(ratio);
    }

    /// `None` if a change of a page was never measured.
    pub fn figures(&self, count: usize) -> Option<Figures> {
        let mut figures = Vec::new();
        let mut errors = Vec::new();
        for ((name, change), ratios) in &self.0 {
            let ratio = median(ratios.iter().copied())?;
            figures.push((format!("predicted / measured: {name}, {change}"), ratio));
            if change != REPLAYED {
                errors.extend(median(ratios.iter().map(|ratio| (ratio - 1.0).abs() * 100.0)));
            }
        }
        let is_whole = errors.len() == count;
        let [middle, most] = quantiles(errors);
        figures.extend([(WHAT_IF_MEDIAN.to_owned(), middle), (WHAT_IF_MOST.to_owned(), most)]);
        is_whole.then(|| Figures::of(figures))
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Loaded;
    use super::*;

    fn change(index: usize, text: &str) -> Change {
        Change { index, text: text.to_owned(), link: String::new(), is_prompt: false }
    }

    #[test]
    fn the_error_of_a_change_is_the_median_of_its_rounds() {
        let mut ratios = Ratios::default();
        for (predicted, measured) in [(0.9, 1.0), (1.3, 1.0), (2.4, 2.0)] {
            let base = Ok(Loaded {
                page_load: 3.0,
                replayed: 3.3,
                what_if: vec![0.0, predicted],
                ..Loaded::default()
            });
            let measured = Ok(Loaded { page_load: measured, ..Loaded::default() });
            ratios.add_replay("a", Some(&base));
            assert_eq!(ratios.add("a", &change(1, "rate=2"), Some(&base), &measured), None);
        }
        let figures = ratios.figures(1).unwrap().quantities;
        assert!((figures[WHAT_IF_MEDIAN] - 20.0).abs() < 1e-9);
        assert!((figures["predicted / measured: a, no change"] - 1.1).abs() < 1e-9);
        assert!(ratios.figures(2).is_none());
    }

    #[test]
    fn a_failed_load_is_told_and_leaves_the_rest() {
        let base = Ok(Loaded { what_if: vec![1.0, 1.0], ..Loaded::default() });
        let mut ratios = Ratios::default();
        let failed = ratios.add("a", &change(0, "x"), Some(&base), &Err("no".to_owned()));
        assert_eq!(failed.as_deref(), Some("a: no"));
        let measured = Ok(Loaded { page_load: 2.0, ..Loaded::default() });
        assert_eq!(ratios.add("a", &change(1, "y"), Some(&base), &measured), None);
        assert_eq!(ratios.0[&("a".to_owned(), "y".to_owned())], [0.5]);
    }
}
