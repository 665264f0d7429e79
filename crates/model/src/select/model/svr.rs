//! Support vector regression with a radial basis function.

use super::super::features::Feature;

/// A regression by support vectors over standardised features.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Svr {
    pub(super) gamma: f64,
    pub(super) intercept: f64,
    /// Mean and scale of each feature.
    pub(super) scaling: Vec<(f64, f64)>,
    /// The support vectors one after the other, with a number for each feature.
    pub(super) vectors: Vec<f64>,
    pub(super) coefficients: Vec<f64>,
}

impl Svr {
    pub(super) fn predict(&self, inputs: &[Feature], value: impl Fn(Feature) -> f64) -> f64 {
        let scaled: Vec<f64> = inputs
            .iter()
            .zip(&self.scaling)
            .map(|(feature, (mean, scale))| (value(*feature) - mean) / scale)
            .collect();
        let vectors = self.vectors.chunks_exact(scaled.len().max(1));
        let kernel = |vector: &[f64]| {
            let distance: f64 = vector.iter().zip(&scaled).map(|(a, b)| (a - b) * (a - b)).sum();
            (-self.gamma * distance).exp()
        };
        let terms = vectors.zip(&self.coefficients);
        self.intercept
            + terms.map(|(vector, coefficient)| coefficient * kernel(vector)).sum::<f64>()
    }
}
