//! The decisions that follow each other at one place.

use std::collections::BTreeMap;

use manyways_model::select::model::Carriage;
use manyways_model::select::simulate::{Case, Regrets, Rule};

use super::document::{Moment, Walk};
use super::{LTE, Simulation, WIFI};

/// Decisions of a walk, at least and at most.
const MIN_MOMENTS: usize = 4;
const MAX_MOMENTS: usize = 200;

impl Simulation<'_> {
    /// Transfers of one size at one place, for the first goal and the first rule that predicts: where
    /// the better of the two networks changes most.
    pub(super) fn walk(&self, cases: &[Case], among: &[Carriage]) -> Option<Walk> {
        let predicts = |rule: &Rule<'_>| matches!(rule, Rule::Model(_) | Rule::ClosedForm);
        let models = self.rules.iter().filter(|one| matches!(one.rule, Rule::Model(_)));
        let rule = models.chain(&self.rules).find(|one| predicts(&one.rule))?;
        let goal = self.goals.first()?;
        let mut groups: BTreeMap<(&str, &str, u64), Vec<usize>> = BTreeMap::new();
        for (index, case) in cases.iter().enumerate() {
            let key = (case.group.as_str(), case.place.as_str(), case.size.as_bytes());
            groups.entry(key).or_default().push(index);
        }
        let loss = |indices: &[usize]| {
            let mean = |fixed: Carriage| {
                let mut regrets = Regrets::default();
                for index in indices {
                    regrets.add(&cases[*index], &goal.goal, &self.costs, &[WIFI, LTE], fixed);
                }
                regrets.mean()
            };
            mean(WIFI).min(mean(LTE))
        };
        let long = groups.into_iter().filter(|(_, indices)| indices.len() >= MIN_MOMENTS);
        let rated = long.map(|(key, indices)| (loss(&indices), key, indices));
        let (_, (_, place, size), indices) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let taken = self.choices(rule.rule, &goal.goal, cases, among);
        let moment = |index: &usize| Moment {
            second: cases[*index].second,
            seconds: cases[*index]
                .outcomes
                .iter()
                .filter(|(carriage, _)| among.contains(carriage))
                .map(|(carriage, seconds)| (carriage.name(), *seconds))
                .collect(),
            taken: taken[*index].name(),
        };
        Some(Walk {
            place: place.to_owned(),
            goal: goal.name.clone(),
            rule: rule.name.clone(),
            size,
            moments: indices.iter().take(MAX_MOMENTS).map(moment).collect(),
        })
    }
}
