//! The document of a simulation.

use std::collections::BTreeMap;

use manyways_model::select::model::Carriage;
use serde::Serialize;

use super::cdf::{cdf, quantile};

/// The output of `steer simulate --json`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Document {
    pub table: String,
    /// Rows of the table.
    pub transfers: usize,
    pub places: usize,
    /// Decisions whose outcome is known for every choice.
    pub cases: usize,
    /// Other decisions.
    pub skipped: usize,
    /// The choices that are compared.
    pub choices: Vec<&'static str>,
    pub goals: Vec<GoalResult>,
    pub errors: Vec<Errors>,
    /// `None` if no decisions follow each other at one place.
    pub walk: Option<Walk>,
}

manyways_record::document!(Document, "manyways.steer-simulation/1");

/// The rules for one goal, best first.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GoalResult {
    pub goal: String,
    /// Exponents of the objective.
    pub speed: f64,
    pub energy: f64,
    pub money: f64,
    /// The rate of a goal that has one instead.
    pub at_least_bps: Option<u64>,
    /// The network that is best if it is used always, known afterwards.
    pub best_fixed: &'static str,
    /// Its mean ln regret.
    pub fixed_regret: f64,
    pub rules: Vec<RuleResult>,
}

/// The choices of a rule.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleResult {
    pub rule: String,
    pub cases: usize,
    /// Share of the mean regret of the best fixed network that the rule does not have; `None` if that
    /// network is always right.
    pub recovered: Option<f64>,
    /// Share of the cases within 5 % of the best objective.
    pub near: f64,
    /// Share of the cases with the best choice.
    pub right: f64,
    /// Mean ln regret.
    pub regret: f64,
    /// Medians.
    pub bits_per_second: f64,
    pub bits_per_joule: f64,
    /// Share of the cases by choice.
    pub choices: BTreeMap<&'static str, f64>,
    /// The same by size, smallest first.
    pub sizes: Vec<SizeResult>,
    /// Distribution of objective / best objective: values with the share of the cases up to it.
    pub of_oracle: Vec<(f64, f64)>,
    /// Distribution of objective / objective of the best fixed network.
    pub of_fixed: Vec<(f64, f64)>,
}

/// The choices of a rule for transfers of similar sizes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SizeResult {
    /// Bytes, at most.
    pub up_to: u64,
    pub cases: usize,
    pub recovered: Option<f64>,
    pub near: f64,
    pub right: f64,
    pub regret: f64,
    /// Median completion time.
    pub seconds: f64,
    pub choices: BTreeMap<&'static str, f64>,
}

/// Relative errors |predicted / measured − 1| of completion times.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Errors {
    /// The rule that predicts.
    pub rule: String,
    pub choice: &'static str,
    pub cases: usize,
    pub p10: f64,
    pub median: f64,
    pub p90: f64,
    pub p99: f64,
    /// Errors with the share of the cases up to it.
    pub distribution: Vec<(f64, f64)>,
}

/// Decisions at the place where a fixed network is furthest from the best choices.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Walk {
    pub place: String,
    pub goal: String,
    /// The rule that takes the choices.
    pub rule: String,
    /// Bytes of each transfer.
    pub size: u64,
    pub moments: Vec<Moment>,
}

/// A decision of a walk.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Moment {
    pub second: u64,
    /// Completion times by choice.
    pub seconds: BTreeMap<&'static str, f64>,
    pub taken: &'static str,
}

impl Errors {
    /// `None` without samples.
    pub(super) fn new(rule: &str, carriage: Carriage, mut errors: Vec<f64>) -> Option<Self> {
        let distribution = cdf(&mut errors);
        if errors.is_empty() {
            return None;
        }
        let quantile = |share| quantile(errors.clone(), share);
        Some(Self {
            rule: rule.to_owned(),
            choice: carriage.name(),
            cases: errors.len(),
            p10: quantile(0.1),
            median: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            distribution,
        })
    }
}
