//! Time of one decision.

use std::hint::black_box;

use manyways_model::select::model::{Carriage, Model};
use manyways_model::select::simulate::{Case, Policy, Rule};
use manyways_model::select::transfers::{self, Transfer};
use manyways_model::select::{Goal, Sizes};
use manyways_rig::sample::median;
use manyways_sys::clock::Clock;
use serde::Serialize;

use super::evaluate::{Fold, costs, default_model};

/// Rounds, of which the median counts, and decisions of a round.
const ROUNDS: usize = 15;
const DECISIONS: usize = 2_000;

/// Microseconds of one decision among four choices, with the closed form and all predictions.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub model: &'static str,
    pub micros: f64,
}

pub fn speed(transfers: &[Transfer], folds: &[Fold]) -> Result<Vec<Speed>, String> {
    let cases = transfers::cases(transfers);
    let fold = folds.first().ok_or("nothing was trained")?;
    let default = default_model()?;
    let models =
        [("default", &default), ("ours", &fold.ours), ("tree", &fold.tree), ("svr", &fold.svr)];
    Ok(models
        .map(|(name, model)| {
            let rounds = (0..ROUNDS).map(|_| round(&cases, model));
            Speed { model: name, micros: median(rounds).unwrap_or_default() }
        })
        .to_vec())
}

fn round(cases: &[Case], model: &Model) -> f64 {
    let (mut policy, costs) = (Policy::new(Rule::Model(model)), costs());
    let clock = Clock::start();
    for case in cases.iter().cycle().take(DECISIONS) {
        let sizes = Sizes::known(case.size);
        black_box(policy.choose(case, &sizes, &Goal::FAST, &costs, &Carriage::ALL));
    }
    clock.now().as_secs_f64() * 1e6 / DECISIONS as f64
}
