//! Statistics of the choices of a rule.

use std::collections::BTreeMap;

use manyways_model::select::Goal;
use manyways_model::select::model::Carriage;
use manyways_model::select::simulate::{Case, Costs, Regrets};

use super::cdf::{cdf, quantile};
use super::document::{RuleResult, SizeResult};

/// An objective within this share of the best one counts as near.
const NEAR: f64 = 0.05;
/// Rows by size, at most; above that, sizes are joined up to powers of ten.
const MAX_SIZES: usize = 16;
/// A mean regret below this is none: a fixed network is always right.
const NO_REGRET: f64 = 1e-9;

/// The choices of a rule for a goal.
pub(super) struct Ran<'a> {
    costs: &'a Costs,
    cases: &'a [Case],
    taken: Vec<Carriage>,
    pub(super) regrets: Regrets,
}

impl<'a> Ran<'a> {
    /// Every case has an outcome for every choice in `among`.
    pub(super) fn new(
        goal: &Goal,
        costs: &'a Costs,
        among: &[Carriage],
        cases: &'a [Case],
        taken: Vec<Carriage>,
    ) -> Self {
        let mut regrets = Regrets::default();
        for (case, taken) in cases.iter().zip(&taken) {
            regrets.add(case, goal, costs, among, *taken);
        }
        Self { costs, cases, taken, regrets }
    }

    pub(super) fn result(&self, name: &str, fixed: &Self) -> RuleResult {
        let all: Vec<usize> = (0..self.cases.len()).collect();
        let of = |value: &dyn Fn(&Case, Carriage, f64) -> f64| -> Vec<f64> {
            let known = self.cases.iter().zip(&self.taken);
            known
                .filter_map(|(case, taken)| Some(value(case, *taken, *case.outcomes.get(taken)?)))
                .collect()
        };
        let bits = |case: &Case| case.size.as_bytes() as f64 * 8.0;
        let speed = of(&|case, _, seconds| bits(case) / seconds);
        let energy =
            of(&|case, taken, secs| bits(case) / self.costs.joules(taken, case.size, secs));
        let pairs = self.regrets.values().iter().zip(fixed.regrets.values());
        let mut of_fixed: Vec<f64> = pairs.map(|(own, fixed)| (fixed - own).exp()).collect();
        let mut of_oracle: Vec<f64> =
            self.regrets.values().iter().map(|one| (-one).exp()).collect();
        RuleResult {
            rule: name.to_owned(),
            cases: self.regrets.count(),
            recovered: recovered(&self.regrets, &fixed.regrets),
            near: self.regrets.within(NEAR),
            right: self.regrets.right(),
            regret: self.regrets.mean(),
            bits_per_second: quantile(speed, 0.5),
            bits_per_joule: quantile(energy, 0.5),
            choices: self.choices(&all),
            sizes: self.by_size(fixed),
            of_oracle: cdf(&mut of_oracle),
            of_fixed: cdf(&mut of_fixed),
        }
    }

    fn by_size(&self, fixed: &Self) -> Vec<SizeResult> {
        let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, case) in self.cases.iter().enumerate() {
            groups.entry(case.size.as_bytes()).or_default().push(index);
        }
        if groups.len() > MAX_SIZES {
            let mut joined: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for (size, indices) in groups {
                joined.entry(power_of_ten(size)).or_default().extend(indices);
            }
            groups = joined;
        }
        groups.into_iter().map(|(up_to, indices)| self.size(up_to, &indices, fixed)).collect()
    }

    fn size(&self, up_to: u64, indices: &[usize], fixed: &Self) -> SizeResult {
        let regrets = self.regrets.of(indices);
        let seconds = indices
            .iter()
            .filter_map(|index| self.cases[*index].outcomes.get(&self.taken[*index]).copied());
        SizeResult {
            up_to,
            cases: indices.len(),
            recovered: recovered(&regrets, &fixed.regrets.of(indices)),
            near: regrets.within(NEAR),
            right: regrets.right(),
            regret: regrets.mean(),
            seconds: quantile(seconds.collect(), 0.5),
            choices: self.choices(indices),
        }
    }

    fn choices(&self, indices: &[usize]) -> BTreeMap<&'static str, f64> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for index in indices {
            *counts.entry(self.taken[*index].name()).or_default() += 1;
        }
        let share = |(name, count)| (name, count as f64 / indices.len() as f64);
        counts.into_iter().map(share).collect()
    }
}

/// `None` if the fixed network is always right.
fn recovered(own: &Regrets, fixed: &Regrets) -> Option<f64> {
    (fixed.mean() > NO_REGRET).then(|| own.recovered(fixed))
}

/// The power of ten that a size does not exceed.
fn power_of_ten(size: u64) -> u64 {
    let mut limit = 1_u64;
    while limit < size {
        limit = limit.saturating_mul(10);
    }
    limit
}
