//! Histograms of values that spread over many orders of magnitude.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use manyways_unit::{Rate, Span};

use manyways_unit::log_buckets;

/// Maximum number of values that are stored exactly.
const MAX_EXACT_VALUES: usize = 16;
/// Buckets per doubling, as a power of two: a bucket is at most 1.6 % wide.
const BUCKET_BITS: u32 = 6;

/// A quantity that is a whole number of its smallest unit.
pub trait Quantity: Copy + Ord {
    /// Returns the number of units.
    fn to_units(self) -> u64;
    /// Creates the quantity from a number of units.
    fn from_units(number: u64) -> Self;
}

impl Quantity for Span {
    fn to_units(self) -> u64 {
        self.as_nanos()
    }

    fn from_units(number: u64) -> Self {
        Self::from_nanos(number)
    }
}

impl Quantity for Rate {
    fn to_units(self) -> u64 {
        self.as_bps()
    }

    fn from_units(number: u64) -> Self {
        Self::from_bps(number)
    }
}

/// Histogram of values. Up to 16 values are exact; of more, each has an error of at most 0.8 %,
/// except the minimum and the maximum, which are exact. Needs at most about 4,000 buckets.
/// Histograms can be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<Q> {
    /// Unsorted values; empty once there are buckets.
    exact: Vec<u64>,
    buckets: BTreeMap<u16, u64>,
    count: u64,
    min: u64,
    max: u64,
    kind: PhantomData<Q>,
}

impl<Q> Default for Histogram<Q> {
    fn default() -> Self {
        Self {
            exact: Vec::new(),
            buckets: BTreeMap::new(),
            count: 0,
            min: u64::MAX,
            max: 0,
            kind: PhantomData,
        }
    }
}

impl<Q: Quantity> Histogram<Q> {
    /// Adds a value.
    pub fn push(&mut self, value: Q) {
        let value = value.to_units();
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        self.count += 1;
        if self.buckets.is_empty() && self.exact.len() < MAX_EXACT_VALUES {
            self.exact.push(value);
            return;
        }
        self.move_to_buckets();
        *self.buckets.entry(bucket_of(value)).or_default() += 1;
    }

    /// Adds a value, if there is one.
    pub fn push_some(&mut self, value: Option<Q>) {
        value.into_iter().for_each(|value| self.push(value));
    }

    /// Adds all values of another histogram.
    pub fn add(&mut self, other: &Self) {
        if self.exact.len() + other.exact.len() > MAX_EXACT_VALUES || !other.buckets.is_empty() {
            self.move_to_buckets();
        }
        for value in &other.exact {
            match self.buckets.is_empty() && self.exact.len() < MAX_EXACT_VALUES {
                true => self.exact.push(*value),
                false => *self.buckets.entry(bucket_of(*value)).or_default() += 1,
            }
        }
        for (index, count) in &other.buckets {
            *self.buckets.entry(*index).or_default() += count;
        }
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.count += other.count;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` without values.
    pub fn min(&self) -> Option<Q> {
        (self.count > 0).then(|| Q::from_units(self.min))
    }

    /// `None` without values.
    pub fn max(&self) -> Option<Q> {
        (self.count > 0).then(|| Q::from_units(self.max))
    }

    /// `None` without values.
    pub fn median(&self) -> Option<Q> {
        self.quantile(0.5)
    }

    /// Returns the quantile at `part` (0 to 1), interpolated between two values. `None` without
    /// values.
    pub fn quantile(&self, part: f64) -> Option<Q> {
        let last = self.count.checked_sub(1)?;
        let rank = part.clamp(0.0, 1.0) * last as f64;
        let below = (rank as u64).min(last);
        let one = self.value_at_rank(below);
        let more = self.value_at_rank((below + 1).min(last)).saturating_sub(one);
        Some(Q::from_units(one + (more as f64 * (rank - below as f64)).round() as u64))
    }

    /// Returns the points of the cumulative distribution function, in ascending order.
    pub fn cdf(&self) -> Vec<(Q, f64)> {
        let all = self.count as f64;
        let mut steps = Vec::new();
        let mut below = 0;
        let mut few = self.exact.clone();
        few.sort_unstable();
        let ranges =
            self.buckets.iter().map(|(range, count)| (bucket_start(range + 1) - 1, *count));
        for (value, count) in few.into_iter().map(|value| (value, 1)).chain(ranges) {
            below += count;
            steps.push((Q::from_units(value.clamp(self.min, self.max)), below as f64 / all));
        }
        steps
    }

    /// Returns the value of this rank, from 0.
    fn value_at_rank(&self, rank: u64) -> u64 {
        if !self.exact.is_empty() {
            let mut few = self.exact.clone();
            few.sort_unstable();
            return few.get(rank as usize).copied().unwrap_or(self.max);
        }
        if rank == 0 {
            return self.min;
        }
        let mut below = 0;
        let mut is_it = |(_, count): &(&u16, &u64)| {
            below += **count;
            below > rank
        };
        match self.buckets.iter().find(&mut is_it) {
            Some((range, _)) if rank + 1 < self.count => {
                let middle = u64::midpoint(bucket_start(*range), bucket_start(range + 1) - 1);
                middle.clamp(self.min, self.max)
            }
            _ => self.max,
        }
    }

    fn move_to_buckets(&mut self) {
        for value in std::mem::take(&mut self.exact) {
            *self.buckets.entry(bucket_of(value)).or_default() += 1;
        }
    }
}

fn bucket_of(value: u64) -> u16 {
    log_buckets::index(value, BUCKET_BITS)
}

fn bucket_start(index: u16) -> u64 {
    log_buckets::lower_bound(index, BUCKET_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram<Span> {
        let mut distribution = Histogram::default();
        values.into_iter().for_each(|nanos| distribution.push(Span::from_nanos(nanos)));
        distribution
    }

    #[test]
    fn few_are_exact() {
        let none = of([]);
        assert_eq!((none.count(), none.median(), none.max()), (0, None, None));
        assert!(none.cdf().is_empty());
        let four = of([4_000_001, 1_000_001, 2_000_001, 3_000_001]);
        assert_eq!(four.median(), Some(Span::from_nanos(2_500_001)));
        assert_eq!(four.quantile(0.0), Some(Span::from_nanos(1_000_001)));
        assert_eq!(four.quantile(1.0), Some(Span::from_nanos(4_000_001)));
        assert_eq!(four.cdf()[1], (Span::from_nanos(2_000_001), 0.5));
    }

    #[test]
    fn ranges_follow_each_other() {
        for range in 0..(64 - BUCKET_BITS as u16) << BUCKET_BITS {
            let (begin, end) = (bucket_start(range), bucket_start(range + 1));
            assert!(begin < end, "{range}");
            assert_eq!((bucket_of(begin), bucket_of(end - 1)), (range, range));
        }
        assert_eq!(bucket_of(u64::MAX), bucket_of(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn quantiles_are_near_and_little_is_kept(
            mut values in prop::collection::vec((0_u32..63, any::<u64>()), 1..400),
            part in 0.0..=1.0_f64,
        ) {
            let mut values: Vec<u64> = values.drain(..).map(|(by, value)| value >> by).collect();
            let found = of(values.iter().copied());
            values.sort_unstable();
            // A rank between two values may yield either.
            let rank = part * (values.len() - 1) as f64;
            let [low, high] = [rank.floor(), rank.ceil()].map(|rank| values[rank as usize] as f64);
            let quantile = found.quantile(part).unwrap().as_nanos() as f64;
            prop_assert!(quantile >= low * 0.991 - 1.0 && quantile <= high * 1.009 + 1.0);
            prop_assert_eq!(found.min(), Some(Span::from_nanos(values[0])));
            prop_assert_eq!(found.max(), values.last().map(|nanos| Span::from_nanos(*nanos)));
            prop_assert!(found.buckets.len() <= 64 << BUCKET_BITS);
            let steps = found.cdf();
            prop_assert!(steps.is_sorted() && steps.last().unwrap().1 == 1.0);
        }

        #[test]
        fn parts_add_up(
            values in prop::collection::vec(any::<u64>(), 0..60),
            cut in 0_usize..60,
        ) {
            let (one, other) = values.split_at(cut.min(values.len()));
            let mut sum = of(one.iter().copied());
            sum.add(&of(other.iter().copied()));
            let whole = of(values.iter().copied());
            prop_assert_eq!(sum.count(), whole.count());
            for part in [0.0, 0.3, 0.5, 1.0] {
                prop_assert_eq!(sum.quantile(part), whole.quantile(part));
            }
        }
    }
}
