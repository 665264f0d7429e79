//! Reads a model from JSON. The file may come from anywhere.

use std::collections::BTreeMap;

use manyways_unit::Size;
use serde::Deserialize;
use thiserror::Error;

use super::super::features::Feature;
use super::svr::Svr;
use super::tree::{Node, Split, Tree};
use super::{Carriage, Interval, Kind, Model, Regressor};

/// Length of a model in bytes, at most.
pub const MAX_TEXT: usize = 16 << 20;
/// Name of the schema without its version.
const SCHEMA: &str = "manyways.select-model/";
const VERSION: u32 = 1;
/// Nodes of all trees of a regressor, at most.
const MAX_NODES: usize = 200_000;
/// Numbers of all support vectors, at most.
const MAX_NUMBERS: usize = 1_000_000;
/// Characters of a title, at most.
const MAX_TITLE: usize = 200;

/// Reason why a text is not a model.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    #[error("it is longer than {} MiB", MAX_TEXT >> 20)]
    TooLong,
    #[error("it is not a model: {0}")]
    Json(String),
    #[error("it is version {0}, but this program reads version {VERSION}")]
    Version(u32),
    #[error("its schema is not {SCHEMA}{VERSION}")]
    Schema,
    #[error("its {0} is longer than {MAX_TITLE} characters, or has more than one line")]
    Title(&'static str),
    #[error("no program knows its choice {0}")]
    Carriage(String),
    #[error("it has no choice")]
    Empty,
    #[error("{choice}: {fault}")]
    Regressor {
        /// Name of the choice.
        choice: &'static str,
        #[source]
        fault: Fault,
    },
}

/// A fault of the regressor of one choice.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("no program knows its feature {0}")]
    Feature(String),
    #[error("the feature {0} is there twice")]
    Twice(String),
    #[error("{0} have different lengths")]
    Lengths(&'static str),
    #[error("a number of its {0} is not finite")]
    NotFinite(&'static str),
    #[error("its {0} must be positive")]
    NotPositive(&'static str),
    #[error("node {0} has a child that does not come after it, or does not exist")]
    Child(usize),
    #[error("node {0} has not exactly one parent")]
    Parent(usize),
    #[error("it has no node")]
    NoNode,
    #[error("it is too large")]
    TooLarge,
    #[error("a larger transfer could take less time")]
    NotMonotone,
    #[error("boosted trees need the feature closed")]
    NoClosedForm,
    #[error("the end of its range comes before the start")]
    Range,
    #[error("its intervals do not ascend, or the last one has a limit")]
    Intervals,
}

#[derive(Deserialize)]
struct Header {
    schema: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "schema")]
    _schema: String,
    title: String,
    data: String,
    regressors: BTreeMap<String, RegressorDocument>,
}

#[derive(Deserialize)]
struct RegressorDocument {
    features: Vec<String>,
    medians: Vec<f64>,
    intervals: Vec<IntervalDocument>,
    #[serde(flatten)]
    kind: KindDocument,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum KindDocument {
    Tree {
        tree: TreeDocument,
    },
    Svr {
        gamma: f64,
        intercept: f64,
        mean: Vec<f64>,
        scale: Vec<f64>,
        vectors: Vec<Vec<f64>>,
        coefficients: Vec<f64>,
    },
    Boosted {
        baseline: f64,
        range: [f64; 2],
        trees: Vec<TreeDocument>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeDocument {
    /// Index of a feature; -1 for a leaf.
    feature: Vec<i64>,
    threshold: Vec<f64>,
    left: Vec<u32>,
    right: Vec<u32>,
    missing_left: Vec<bool>,
    value: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntervalDocument {
    up_to: Option<u64>,
    low: f64,
    high: f64,
}

/// Reads a model.
///
/// # Errors
/// A [`ModelError`] with one sentence for the user.
pub fn parse(text: &str) -> Result<Model, ModelError> {
    if text.len() > MAX_TEXT {
        return Err(ModelError::TooLong);
    }
    let json = |error: serde_json::Error| ModelError::Json(error.to_string());
    let header: Header = serde_json::from_str(text).map_err(json)?;
    let version = header.schema.strip_prefix(SCHEMA).ok_or(ModelError::Schema)?;
    match version.parse() {
        Ok(VERSION) => {}
        Ok(other) => return Err(ModelError::Version(other)),
        Err(_) => return Err(ModelError::Schema),
    }
    let document: Document = serde_json::from_str(text).map_err(json)?;
    for (name, line) in [("title", &document.title), ("data", &document.data)] {
        if line.chars().count() > MAX_TITLE || line.chars().any(char::is_control) {
            return Err(ModelError::Title(name));
        }
    }
    let mut regressors = BTreeMap::new();
    for (name, regressor) in document.regressors {
        let carriage = Carriage::named(&name).ok_or(ModelError::Carriage(name))?;
        let choice = carriage.name();
        let regressor = regressor.read();
        regressors
            .insert(carriage, regressor.map_err(|fault| ModelError::Regressor { choice, fault })?);
    }
    if regressors.is_empty() {
        return Err(ModelError::Empty);
    }
    Ok(Model { title: document.title, data: document.data, regressors })
}

impl RegressorDocument {
    fn read(self) -> Result<Regressor, Fault> {
        let mut features: Vec<Feature> = Vec::new();
        for name in self.features {
            let Some(feature) = Feature::named(&name) else { return Err(Fault::Feature(name)) };
            if features.contains(&feature) {
                return Err(Fault::Twice(name));
            }
            features.push(feature);
        }
        finite("medians", &self.medians)?;
        if self.medians.len() != features.len() {
            return Err(Fault::Lengths("features and medians"));
        }
        let kind = self.kind.read(&features)?;
        let intervals = self.intervals.into_iter().map(IntervalDocument::read);
        let intervals = intervals.collect::<Result<Vec<_>, _>>()?;
        let limits: Vec<Size> = intervals.iter().filter_map(|one| one.up_to).collect();
        let is_last_open = intervals.last().is_none_or(|one| one.up_to.is_none());
        let is_whole = limits.len() + 1 == intervals.len() || intervals.is_empty();
        if !is_last_open || !is_whole || !limits.is_sorted() {
            return Err(Fault::Intervals);
        }
        Ok(Regressor { features, medians: self.medians, kind, intervals })
    }
}

impl IntervalDocument {
    fn read(self) -> Result<Interval, Fault> {
        finite("intervals", &[self.low, self.high])?;
        if self.low > self.high {
            return Err(Fault::Intervals);
        }
        Ok(Interval { up_to: self.up_to.map(Size::from_bytes), low: self.low, high: self.high })
    }
}

impl KindDocument {
    fn read(self, features: &[Feature]) -> Result<Kind, Fault> {
        match self {
            Self::Tree { tree } => {
                if tree.value.len() > MAX_NODES {
                    return Err(Fault::TooLarge);
                }
                tree.read(features).map(Kind::Tree)
            }
            Self::Boosted { baseline, range, trees } => {
                finite("baseline", &[baseline])?;
                finite("range", &range)?;
                if range[0] > range[1] {
                    return Err(Fault::Range);
                }
                if !features.contains(&Feature::CLOSED) {
                    return Err(Fault::NoClosedForm);
                }
                if trees.iter().map(|tree| tree.value.len()).sum::<usize>() > MAX_NODES {
                    return Err(Fault::TooLarge);
                }
                let trees = trees.into_iter().map(|tree| tree.read(features));
                let trees = trees.collect::<Result<Vec<_>, _>>()?;
                let grows = |tree: &Tree| {
                    [Feature::SIZE, Feature::CLOSED].iter().all(|one| tree.is_monotone_in(*one))
                };
                if !trees.iter().all(grows) {
                    return Err(Fault::NotMonotone);
                }
                Ok(Kind::Boosted { baseline, range, trees })
            }
            Self::Svr { gamma, intercept, mean, scale, vectors, coefficients } => {
                let width = features.len();
                if mean.len() != width || scale.len() != width {
                    return Err(Fault::Lengths("features, mean and scale"));
                }
                if vectors.len() != coefficients.len()
                    || vectors.iter().any(|vector| vector.len() != width)
                {
                    return Err(Fault::Lengths("vectors and coefficients"));
                }
                if vectors.len().saturating_mul(width) > MAX_NUMBERS {
                    return Err(Fault::TooLarge);
                }
                let vectors = vectors.concat();
                for (name, numbers) in [
                    ("gamma and intercept", &[gamma, intercept][..]),
                    ("mean", &mean),
                    ("scale", &scale),
                    ("vectors", &vectors),
                    ("coefficients", &coefficients),
                ] {
                    finite(name, numbers)?;
                }
                for (name, numbers) in [("gamma", &[gamma][..]), ("scale", &scale)] {
                    if numbers.iter().any(|number| *number <= 0.0) {
                        return Err(Fault::NotPositive(name));
                    }
                }
                let scaling = mean.into_iter().zip(scale).collect();
                Ok(Kind::Svr(Svr { gamma, intercept, scaling, vectors, coefficients }))
            }
        }
    }
}

impl TreeDocument {
    fn read(self, features: &[Feature]) -> Result<Tree, Fault> {
        let count = self.value.len();
        let lengths = [
            self.feature.len(),
            self.threshold.len(),
            self.left.len(),
            self.right.len(),
            self.missing_left.len(),
        ];
        if lengths.iter().any(|length| *length != count) {
            return Err(Fault::Lengths("the arrays of a tree"));
        }
        if count == 0 {
            return Err(Fault::NoNode);
        }
        finite("values", &self.value)?;
        let mut parents = vec![0_u32; count];
        let mut nodes = Vec::with_capacity(count);
        for index in 0..count {
            let mut split = None;
            if self.feature[index] >= 0 {
                let feature = usize::try_from(self.feature[index]).ok();
                let feature = feature.and_then(|place| features.get(place)).copied();
                let feature =
                    feature.ok_or_else(|| Fault::Feature(self.feature[index].to_string()))?;
                finite("thresholds", &self.threshold[index..=index])?;
                let (left, right) = (self.left[index], self.right[index]);
                for child in [left, right] {
                    // A child comes after its node, so that no walk is endless.
                    let place = (child as usize > index).then_some(child as usize);
                    let parents = place.and_then(|place| parents.get_mut(place));
                    *parents.ok_or(Fault::Child(index))? += 1;
                }
                let (threshold, missing_left) = (self.threshold[index], self.missing_left[index]);
                split = Some(Split { feature, threshold, left, right, missing_left });
            }
            nodes.push(Node { split, value: self.value[index] });
        }
        match parents.iter().skip(1).position(|parents| *parents != 1) {
            Some(place) => Err(Fault::Parent(place + 1)),
            None => Ok(Tree { nodes }),
        }
    }
}

fn finite(name: &'static str, numbers: &[f64]) -> Result<(), Fault> {
    match numbers.iter().all(|number| number.is_finite()) {
        true => Ok(()),
        false => Err(Fault::NotFinite(name)),
    }
}
