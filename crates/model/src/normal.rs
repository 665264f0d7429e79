//! The normal distribution.

/// The standard normal distribution at `x`, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub(crate) fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let tail = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}
