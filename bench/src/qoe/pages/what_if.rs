//! Predicted page load times under other conditions, beside loads under these conditions.

use std::collections::BTreeMap;

use manyways_model::qoe::page::known::{KnownPage, ORIGINS};
use manyways_rig::launch::DriveError;
use manyways_rig::sample::median;

use super::lab::{Lab, Outcome};
use super::{Loads, apps, known, quantiles};
use crate::figures::Figures;

pub const WHAT_IF_MEDIAN: &str = "other conditions: median error, %";
pub const WHAT_IF_MOST: &str = "other conditions: 90 % of the errors, %";

const PORT: u16 = 8000;
/// In place of a network: nothing takes time.
const NO_NETWORK: &str = "wan:delay=0ms";

/// A page that is loaded under all conditions.
pub struct Subject {
    pub name: String,
    /// Commands of its servers.
    pub servers: Vec<String>,
    /// A command before its loads.
    pub before: String,
    pub url: String,
    /// The same from a server that takes no time.
    pub prompt_url: String,
}

/// A change of the conditions.
struct Change {
    /// As an option of `known-page-load`.
    text: String,
    /// Value of `--link` for the measurement.
    link: String,
    is_prompt: bool,
}

/// Predicted by measured page load times of all rounds, by page and change.
#[derive(Default)]
struct Ratios(BTreeMap<(String, String), Vec<f64>>);

/// In place of a change: the replay without one.
const REPLAYED: &str = "no change";

pub fn measure(
    loads: &Loads<'_>,
    skipped: &mut Vec<String>,
    progress: &mut dyn FnMut(u32),
) -> Result<Result<Figures, String>, DriveError> {
    let cells = &loads.pages.what_if;
    let changes = [
        Change {
            text: format!("rtt={}", cells.rtt),
            link: loads.link(cells.rtt, 1.0),
            is_prompt: false,
        },
        Change {
            text: format!("rate={}", cells.rate),
            link: loads.link(1.0, cells.rate),
            is_prompt: false,
        },
        Change { text: "cached".to_owned(), link: NO_NETWORK.to_owned(), is_prompt: true },
    ];
    let ports = (PORT..).step_by(2 * ORIGINS);
    let mut subjects: Vec<Subject> =
        ports.zip(&cells.seeds).map(|(port, seed)| known_page(port, *seed)).collect();
    let (found, missing) = apps::prepare(loads.shell)?;
    subjects.extend(found);
    skipped.extend(missing);
    let predict: String =
        changes.iter().map(|change| format!(" --what-if {}", change.text)).collect();
    let (mut ratios, mut failed) = (Ratios::default(), None);
    for round in 0..loads.rounds {
        let base = lab(&subjects, loads.link(1.0, 1.0), &predict, false).run(loads.shell)?;
        let changed = changes.iter().map(|change| {
            lab(&subjects, change.link.clone(), "", change.is_prompt).run(loads.shell)
        });
        let changed: Vec<Vec<Outcome>> = changed.collect::<Result<_, _>>()?;
        for (place, (subject, base)) in subjects.iter().zip(base).enumerate() {
            let measured = changed.iter().map(|outcomes| &outcomes[place]);
            failed = ratios.add(&subject.name, &changes, base, measured).or(failed);
        }
        progress(round + 1);
    }
    let count = subjects.len() * changes.len();
    Ok(ratios.figures(count).ok_or_else(|| failed.unwrap_or_default()))
}

fn known_page(port: u16, seed: u64) -> Subject {
    let prompt_port = port + ORIGINS as u16;
    let url = |port| known::url(&KnownPage::new(seed), port);
    let serve = |port| format!("exec \"$BENCH\" known-page-serve --seed {seed} --port {port}");
    Subject {
        name: format!("page {seed}"),
        servers: vec![serve(port), serve(prompt_port) + " --prompt"],
        before: String::new(),
        url: url(port),
        prompt_url: url(prompt_port),
    }
}

/// A load of each page.
fn lab(subjects: &[Subject], link: String, options: &str, is_prompt: bool) -> Lab {
    let mut lab = Lab::new(link);
    for subject in subjects {
        let url = if is_prompt { &subject.prompt_url } else { &subject.url };
        lab.servers.extend(subject.servers.iter().cloned());
        lab.before.push(subject.before.clone());
        lab.loads.push(format!("--url '{url}'{options}"));
    }
    lab
}

impl Ratios {
    /// Adds a round of a page. Returns why a load failed.
    fn add<'a>(
        &mut self,
        name: &str,
        changes: &[Change],
        base: Outcome,
        measured: impl Iterator<Item = &'a Outcome>,
    ) -> Option<String> {
        let named = |reason: &String| format!("{name}: {reason}");
        let base = match base {
            Ok(base) => base,
            Err(reason) => return Some(named(&reason)),
        };
        let mut add = |change: &str, ratio| {
            self.0.entry((name.to_owned(), change.to_owned())).or_default().push(ratio);
        };
        add(REPLAYED, base.replayed / base.page_load);
        let mut failed = None;
        for ((change, predicted), measured) in changes.iter().zip(base.what_if).zip(measured) {
            match measured {
                Ok(measured) => add(&change.text, predicted / measured.page_load),
                Err(reason) => failed = Some(named(reason)),
            }
        }
        failed
    }

    /// `None` if a change of a page was never measured.
    fn figures(&self, count: usize) -> Option<Figures> {
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

    #[test]
    fn the_error_of_a_change_is_the_median_of_its_rounds() {
        let change = Change { text: "rate=2".to_owned(), link: String::new(), is_prompt: false };
        let mut ratios = Ratios::default();
        for (predicted, measured) in [(0.9, 1.0), (1.3, 1.0), (2.4, 2.0)] {
            let base = Loaded {
                page_load: 3.0,
                replayed: 3.3,
                what_if: vec![predicted],
                ..Loaded::default()
            };
            let measured = Ok(Loaded { page_load: measured, ..Loaded::default() });
            assert_eq!(
                ratios.add("a", std::slice::from_ref(&change), Ok(base), [&measured].into_iter()),
                None
            );
        }
        let figures = ratios.figures(1).unwrap().quantities;
        assert!((figures[WHAT_IF_MEDIAN] - 20.0).abs() < 1e-9);
        assert!((figures["predicted / measured: a, no change"] - 1.1).abs() < 1e-9);
        assert!(ratios.figures(2).is_none());
    }

    #[test]
    fn a_failed_load_is_told_and_leaves_the_rest() {
        let change =
            |text: &str| Change { text: text.to_owned(), link: String::new(), is_prompt: false };
        let base = Loaded { page_load: 1.0, what_if: vec![1.0, 1.0], ..Loaded::default() };
        let outcomes = [Err("no".to_owned()), Ok(Loaded { page_load: 2.0, ..Loaded::default() })];
        let mut ratios = Ratios::default();
        let failed = ratios.add("a", &[change("x"), change("y")], Ok(base), outcomes.iter());
        assert_eq!(failed.as_deref(), Some("a: no"));
        assert_eq!(ratios.0[&("a".to_owned(), "y".to_owned())], [0.5]);
    }
}
