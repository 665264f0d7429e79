//! Rules on a table of transfers whose completion times are known for every choice.

mod cdf;
mod document;
mod statistics;
mod walk;

use std::collections::BTreeSet;

use manyways_model::select::model::{Carriage, Model};
use manyways_model::select::simulate::{Case, Costs, Policy, Rule, best_fixed};
use manyways_model::select::transfers::{self, Transfer};
use manyways_model::select::{Baseline, Goal, Role, Sizes};
use thiserror::Error;

pub use self::document::{Document, Errors, GoalResult, Moment, RuleResult, SizeResult, Walk};
use self::statistics::Ran;

const WIFI: Carriage = Carriage::Only(Role::Wifi);
const LTE: Carriage = Carriage::Only(Role::Lte);

/// A rule with its name.
#[derive(Clone, Debug)]
pub struct NamedRule<'a> {
    pub name: String,
    pub rule: Rule<'a>,
}

/// A goal with its name.
#[derive(Clone, Debug)]
pub struct NamedGoal {
    pub name: String,
    pub goal: Goal,
}

/// A comparison of rules for goals.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulation<'a> {
    /// The name of the table.
    pub table: String,
    pub goals: Vec<NamedGoal>,
    pub rules: Vec<NamedRule<'a>>,
    pub costs: Costs,
    /// Whether both networks at once can be chosen too.
    pub with_both: bool,
}

/// Reason why rules cannot be compared.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum SimulateError {
    #[error("no decision in the table has a transfer over each of {among}")]
    NoCases { among: String },
    #[error("the table has no transfers over wifi+lte or lte+wifi")]
    NoBoth,
    #[error("the policy {rule} needs transfers over {carriage}, and they are not compared")]
    NotAmong { rule: String, carriage: &'static str },
    #[error("the model of the policy {rule} does not predict {carriage}")]
    NotPredicted { rule: String, carriage: &'static str },
}

impl<'a> Simulation<'a> {
    pub fn new(table: &str, goals: Vec<NamedGoal>, rules: Vec<NamedRule<'a>>) -> Self {
        let costs = Costs::default();
        Self { table: table.to_owned(), goals, rules, costs, with_both: false }
    }

    /// Compares the rules. Each one knows the size of a transfer, and begins without memory at each
    /// place.
    ///
    /// # Errors
    /// A [`SimulateError`] with one sentence for the user.
    pub fn run(&self, transfers: &[Transfer]) -> Result<Document, SimulateError> {
        let among = self.among(transfers)?;
        self.check(&among)?;
        let mut cases = transfers::cases(transfers);
        let decisions = cases.len();
        cases.retain(|case| among.iter().all(|one| case.outcomes.contains_key(one)));
        if cases.is_empty() {
            let names: Vec<&str> = among.iter().map(|one| one.name()).collect();
            return Err(SimulateError::NoCases { among: names.join(", ") });
        }
        // Rules remember what they met at a place, in the order of time.
        cases.sort_by(|a, b| (&a.group, &a.place, a.second).cmp(&(&b.group, &b.place, b.second)));
        let places: BTreeSet<(&str, &str)> =
            cases.iter().map(|case| (case.group.as_str(), case.place.as_str())).collect();
        let goals = self.goals.iter().map(|goal| self.goal(goal, &cases, &among)).collect();
        Ok(Document {
            table: self.table.clone(),
            transfers: transfers.len(),
            places: places.len(),
            cases: cases.len(),
            skipped: decisions - cases.len(),
            choices: among.iter().map(|one| one.name()).collect(),
            goals,
            errors: self.errors(&cases, &among),
            walk: self.walk(&cases, &among),
        })
    }

    /// The choices that are compared.
    fn among(&self, transfers: &[Transfer]) -> Result<Vec<Carriage>, SimulateError> {
        let mut among = vec![WIFI, LTE];
        if self.with_both {
            let both = [Role::Wifi, Role::Lte].map(Carriage::Both);
            let has = |one: &Carriage| transfers.iter().any(|transfer| transfer.carriage == *one);
            among.extend(both.into_iter().filter(has));
            if among.len() == 2 {
                return Err(SimulateError::NoBoth);
            }
        }
        Ok(among)
    }

    fn check(&self, among: &[Carriage]) -> Result<(), SimulateError> {
        for NamedRule { name, rule } in &self.rules {
            let needed = match rule {
                Rule::Baseline(Baseline::Both) => Some(Carriage::Both(Role::Wifi)),
                Rule::Fixed(carriage) => Some(*carriage),
                _ => None,
            };
            if let Some(needed) = needed.filter(|one| !among.contains(one)) {
                let carriage = needed.name();
                return Err(SimulateError::NotAmong { rule: name.clone(), carriage });
            }
            let Rule::Model(model) = rule else { continue };
            if let Some(carriage) = among.iter().find(|one| !model.has(**one)) {
                let carriage = carriage.name();
                return Err(SimulateError::NotPredicted { rule: name.clone(), carriage });
            }
        }
        Ok(())
    }

    fn goal(&self, goal: &NamedGoal, cases: &[Case], among: &[Carriage]) -> GoalResult {
        let NamedGoal { name, goal } = goal;
        let references: Vec<&Case> = cases.iter().collect();
        let fixed = best_fixed(&references, goal, &self.costs, &[WIFI, LTE]).unwrap_or(WIFI);
        let run = |taken: Vec<Carriage>| Ran::new(goal, &self.costs, among, cases, taken);
        let of_fixed = run(vec![fixed; cases.len()]);
        let rule = |one: &NamedRule<'_>| {
            let taken = self.choices(one.rule, goal, cases, among);
            run(taken).result(&one.name, &of_fixed)
        };
        let mut rules: Vec<RuleResult> = self.rules.iter().map(rule).collect();
        rules.sort_by(|a, b| a.regret.total_cmp(&b.regret));
        GoalResult {
            goal: name.clone(),
            speed: goal.speed,
            energy: goal.energy,
            money: goal.money,
            at_least_bps: goal.at_least.map(|rate| rate.as_bps()),
            best_fixed: fixed.name(),
            fixed_regret: of_fixed.regrets.mean(),
            rules,
        }
    }

    /// The choices of a rule, in the order of the cases.
    fn choices(
        &self,
        rule: Rule<'_>,
        goal: &Goal,
        cases: &[Case],
        among: &[Carriage],
    ) -> Vec<Carriage> {
        let mut policy = Policy::new(rule);
        let choose = |case: &Case| {
            let sizes = Sizes::known(case.size);
            let taken = policy.choose(case, &sizes, goal, &self.costs, among).unwrap_or(WIFI);
            policy.ended(case, taken);
            taken
        };
        cases.iter().map(choose).collect()
    }

    /// Errors of the completion times that rules predict, for each choice.
    fn errors(&self, cases: &[Case], among: &[Carriage]) -> Vec<Errors> {
        let mut found = Vec::new();
        for NamedRule { name, rule } in &self.rules {
            for carriage in among {
                let predicted = |case: &Case| match rule {
                    Rule::Model(model) => predict(model, *carriage, case),
                    Rule::ClosedForm => {
                        Some(transfers::closed_form(*carriage, case.size, &case.indicators))
                    }
                    _ => None,
                };
                let errors = cases.iter().filter_map(|case| {
                    Some((predicted(case)? / case.outcomes.get(carriage)? - 1.0).abs())
                });
                found.extend(Errors::new(name, *carriage, errors.collect()));
            }
        }
        found
    }
}

fn predict(model: &Model, carriage: Carriage, case: &Case) -> Option<f64> {
    let features = transfers::features(carriage, case.size, &case.indicators);
    Some(model.predict(carriage, &features)?.prediction.seconds)
}

#[cfg(test)]
mod tests;
