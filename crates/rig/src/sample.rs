//! Statistics over the rounds of a measurement.

use std::collections::BTreeMap;

use manyways_unit::quantile::{interpolated, of_sorted};
use serde::Serialize;

/// Median and quartiles of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// 25th percentile.
    pub lower: f64,
    /// 50th percentile.
    pub median: f64,
    /// 75th percentile.
    pub upper: f64,
}

impl Quartiles {
    /// Interpolates linearly between neighbouring values; `None` if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |share| interpolated(&values, share);
        Some(Self { lower: at(0.25)?, median: at(0.5)?, upper: at(0.75)? })
    }
}

/// Comparison of two samples of the same rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Ratio of the medians.
    pub medians: f64,
    /// Median of the ratios of the rounds that both samples have.
    pub pairs: f64,
}

/// Returns `ours` divided by `theirs`; `None` if the samples have no common round.
pub fn ratio(ours: &BTreeMap<u32, f64>, theirs: &BTreeMap<u32, f64>) -> Option<Ratio> {
    let pair = |(round, own): (&u32, &f64)| Some(own / theirs.get(round)?);
    Some(Ratio {
        medians: median(ours.values().copied())? / median(theirs.values().copied())?,
        pairs: median(ours.iter().filter_map(pair))?,
    })
}

/// Returns the sample with the smallest median, or with the largest if `most`; empty if all are.
pub fn best(all: impl IntoIterator<Item = BTreeMap<u32, f64>>, most: bool) -> BTreeMap<u32, f64> {
    let sign = if most { -1.0 } else { 1.0 };
    let known = all.into_iter().filter(|values| !values.is_empty());
    let key = |values: &BTreeMap<u32, f64>| {
        median(values.values().copied()).map_or(f64::INFINITY, |median| median * sign)
    };
    known.min_by(|a, b| key(a).total_cmp(&key(b))).unwrap_or_default()
}

/// Returns the median; `None` if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Quartiles::of(values).map(|quartiles| quartiles.median)
}

/// Returns the value of the sample at quantile `share` (0 to 1), without interpolation.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    of_sorted(&values, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_values_next_to_them() {
        assert_eq!(Quartiles::of([]), None);
        let one = Quartiles { lower: 7.0, median: 7.0, upper: 7.0 };
        assert_eq!(Quartiles::of([7.0]), Some(one));
        let four = Quartiles { lower: 1.75, median: 2.5, upper: 3.25 };
        assert_eq!(Quartiles::of([4.0, 1.0, 3.0, 2.0]), Some(four));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.95), Some(95.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 1.0), Some(100.0));
        assert_eq!(quantile(&[7.0], 0.0), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_ratio_is_of_medians_and_pair_by_pair() {
        let ours = BTreeMap::from([(0, 1.0), (1, 2.0), (2, 9.0)]);
        let theirs = BTreeMap::from([(0, 2.0), (1, 5.0), (2, 10.0), (3, 4.0)]);
        let ratio = ratio(&ours, &theirs).unwrap();
        assert_eq!(ratio.medians, 2.0 / 4.5);
        assert_eq!(ratio.pairs, 0.5);
        assert_eq!(super::ratio(&ours, &BTreeMap::new()), None);
        assert_eq!(super::ratio(&ours, &BTreeMap::from([(7, 1.0)])), None);
    }
}
