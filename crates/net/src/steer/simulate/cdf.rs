//! Distributions of bounded length.

use manyways_unit::quantile::of_sorted;

/// Points of a distribution, at most.
pub(super) const POINTS: usize = 101;

/// The quantiles from 0 to 1 as (value, share of the samples up to it). Values that are not finite
/// are left out.
pub(super) fn cdf(samples: &mut Vec<f64>) -> Vec<(f64, f64)> {
    samples.retain(|one| one.is_finite());
    samples.sort_by(f64::total_cmp);
    let share = |index: usize| index as f64 / (POINTS - 1) as f64;
    let point = |share: f64| Some((of_sorted(samples, share)?, share));
    (0..POINTS).filter_map(|index| point(share(index))).collect()
}

/// The sample that a share of the samples does not exceed; 0 without samples.
pub(super) fn quantile(mut samples: Vec<f64>, share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    of_sorted(&samples, share).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_a_limit_and_ends_at_the_greatest_sample() {
        let mut samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        samples.push(f64::INFINITY);
        let points = cdf(&mut samples);
        assert_eq!((points.len(), points[50], points[100]), (POINTS, (500.0, 0.5), (1_000.0, 1.0)));
        assert!(cdf(&mut vec![f64::NAN]).is_empty());
        assert_eq!((quantile(vec![3.0, 1.0, 2.0], 0.5), quantile(Vec::new(), 0.5)), (2.0, 0.0));
    }
}
