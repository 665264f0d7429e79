//! Random processes in steps of a second.

use manyways_rig::order::normal;
use manyways_unit::Random;

/// An autoregressive process of order 1 with a normal distribution.
#[derive(Clone, Debug)]
pub struct Process {
    mean: f64,
    deviation: f64,
    correlation: f64,
    /// Distance from the mean, in deviations.
    value: f64,
}

impl Process {
    /// Begins at a value of its distribution.
    pub fn new(mean: f64, deviation: f64, correlation: f64, random: &mut Random) -> Self {
        Self { mean, deviation, correlation, value: normal(random) }
    }

    /// The value of the next second.
    pub fn step(&mut self, random: &mut Random) -> f64 {
        let change = (1.0 - self.correlation * self.correlation).sqrt() * normal(random);
        self.value = self.correlation * self.value + change;
        self.mean + self.deviation * self.value
    }
}

/// From 0 to 1 (the logistic function).
pub fn share(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}
