//! Trained models of completion times, which scikit-learn makes and this module evaluates.
//!
//! A model has a regressor of ln(seconds) for each choice. Delphi's are a regression tree and
//! support vectors (the thesis, §3.4.1). Ours are boosted trees over the closed form and the
//! indicators, monotone in closed form and size, which follow the closed form beyond the transfers
//! of the training.

mod read;
mod svr;
mod tree;

use std::collections::BTreeMap;

use manyways_unit::Size;

pub use self::read::{MAX_TEXT, ModelError, parse};
use self::svr::Svr;
use self::tree::Tree;
use super::features::{Feature, Features, Role};
use super::objective::Prediction;

/// The program that trains a model with scikit-learn (Python 3.11 or later).
pub const TRAINER: &str = include_str!("train.py");

/// The model that is used without another one. It was trained on generated walks only
/// (`manyways-bench steer-default`).
pub const DEFAULT: &str = include_str!("default.json");

/// The networks that a regressor is for: one, or both, with the one on which the connection begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carriage {
    Only(Role),
    Both(Role),
}

/// A trained model.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// One line for the user.
    pub title: String,
    /// The data of the training, in one line.
    pub data: String,
    regressors: BTreeMap<Carriage, Regressor>,
}

/// A predicted completion time.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// ln(seconds).
    pub value: f64,
    pub prediction: Prediction,
    /// Features that the model has, but which were unknown. Their medians, or the default branches
    /// of trees, stood for them.
    pub unknown: Vec<Feature>,
}

#[derive(Clone, PartialEq, Debug)]
struct Regressor {
    features: Vec<Feature>,
    /// For each feature, the value that stands for an unknown one.
    medians: Vec<f64>,
    kind: Kind,
    /// Offsets of the 80 % interval of ln(seconds), up to a size.
    intervals: Vec<Interval>,
}

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Tree(Tree),
    Svr(Svr),
    Boosted {
        baseline: f64,
        /// Smallest and greatest closed form of the training. Outside, ln(seconds) follows the
        /// closed form.
        range: [f64; 2],
        trees: Vec<Tree>,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Interval {
    up_to: Option<Size>,
    low: f64,
    high: f64,
}

impl Carriage {
    pub const ALL: [Self; 4] = [
        Self::Only(Role::Wifi),
        Self::Only(Role::Lte),
        Self::Both(Role::Wifi),
        Self::Both(Role::Lte),
    ];

    /// Name in models and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Only(role) => role.name(),
            Self::Both(Role::Wifi) => "wifi+lte",
            Self::Both(Role::Lte) => "lte+wifi",
        }
    }

    /// The carriage with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl Model {
    /// Whether it predicts the completion times over a carriage.
    pub fn has(&self, carriage: Carriage) -> bool {
        self.regressors.contains_key(&carriage)
    }

    /// Whether its regressors are of the kinds of the thesis: trees or support vectors.
    pub fn is_of_the_thesis(&self) -> bool {
        self.regressors.values().all(|one| !matches!(one.kind, Kind::Boosted { .. }))
    }

    /// The completion time of a transfer; `None` if the model has no regressor for this carriage.
    pub fn predict(&self, carriage: Carriage, features: &Features) -> Option<Predicted> {
        let regressor = self.regressors.get(&carriage)?;
        let value = regressor.value(features);
        let size = features.get(Feature::SIZE);
        let fits = |one: &&Interval| one.up_to.is_none_or(|up_to| size <= ln(up_to));
        let interval = regressor.intervals.iter().find(fits);
        let (low, high) = interval.map_or((0.0, 0.0), |one| (one.low, one.high));
        let prediction = Prediction {
            seconds: value.exp(),
            low: (value + low).exp(),
            high: (value + high).exp(),
        };
        let wanted = regressor.features.iter().copied();
        let unknown = wanted.filter(|one| features.get(*one).is_nan()).collect();
        Some(Predicted { value, prediction, unknown })
    }
}

impl Regressor {
    fn value(&self, features: &Features) -> f64 {
        let known = |feature: Feature| {
            let value = features.get(feature);
            if !value.is_nan() {
                return value;
            }
            let place = self.features.iter().position(|one| *one == feature);
            place.and_then(|place| self.medians.get(place)).copied().unwrap_or_default()
        };
        match &self.kind {
            // scikit-learn rounds the inputs of a tree to 32 bits.
            Kind::Tree(tree) => tree.predict(|one| f64::from(known(one) as f32)),
            Kind::Svr(svr) => svr.predict(&self.features, known),
            Kind::Boosted { baseline, range: [low, high], trees } => {
                let sum: f64 = trees.iter().map(|tree| tree.predict(|one| features.get(one))).sum();
                let closed = known(Feature::CLOSED);
                baseline + sum + (closed - closed.clamp(*low, *high))
            }
        }
    }
}

fn ln(size: Size) -> f64 {
    (size.as_bytes().max(1) as f64).ln()
}

#[cfg(test)]
mod tests;
