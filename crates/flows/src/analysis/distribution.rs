//! Histograms of values that spread over many orders of magnitude.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use manyways_unit::{Rate, Span};

use manyways_unit::log_buckets;

/// Maximum number of values that are stored exactly.
const EXACT: usize = 16;
/// Buckets per doubling, as a power of two: a bucket is at most 1.6 % wide.
const FINENESS: u32 = 6;

/// A quantity that is a whole number of its smallest unit.
pub trait Quantity: Copy + Ord {
    /// Returns the number of units.
    fn to_whole(self) -> u64;
    /// Creates the quantity from a number of units.
    fn of_whole(number: u64) -> Self;
}

impl Quantity for Span {
    fn to_whole(self) -> u64 {
        self.as_nanos()
    }

    fn of_whole(number: u64) -> Self {
        Self::from_nanos(number)
    }
}

impl Quantity for Rate {
    fn to_whole(self) -> u64 {
        self.as_bps()
    }

    fn of_whole(number: u64) -> Self {
        Self::from_bps(number)
    }
}

/// Histogram of values. Up to 16 values are exact; of more, each has an error of at most 0.8 %,
/// except the minimum and the maximum, which are exact. Needs at most about 4,000 buckets.
/// Histograms can be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution<Q> {
    /// Unsorted values; empty once there are buckets.
    few: Vec<u64>,
    ranges: BTreeMap<u16, u64>,
    count: u64,
    least: u64,
    most: u64,
    kind: PhantomData<Q>,
}

impl<Q> Default for Distribution<Q> {
    fn default() -> Self {
        Self {
            few: Vec::new(),
            ranges: BTreeMap::new(),
            count: 0,
            least: u64::MAX,
            most: 0,
            kind: PhantomData,
        }
    }
}

impl<Q: Quantity> Distribution<Q> {
    /// Adds a value.
    pub fn push(&mut self, value: Q) {
        let value = value.to_whole();
        (self.least, self.most) = (self.least.min(value), self.most.max(value));
        self.count += 1;
        if self.ranges.is_empty() && self.few.len() < EXACT {
            self.few.push(value);
            return;
        }
        self.spread();
        *self.ranges.entry(place(value)).or_default() += 1;
    }

    /// Adds a value, if there is one.
    pub fn extend(&mut self, value: Option<Q>) {
        value.into_iter().for_each(|value| self.push(value));
    }

    /// Adds all values of another histogram.
    pub fn add(&mut self, other: &Self) {
        if self.few.len() + other.few.len() > EXACT || !other.ranges.is_empty() {
            self.spread();
        }
        for value in &other.few {
            match self.ranges.is_empty() && self.few.len() < EXACT {
                true => self.few.push(*value),
                false => *self.ranges.entry(place(*value)).or_default() += 1,
            }
        }
        for (place, count) in &other.ranges {
            *self.ranges.entry(*place).or_default() += count;
        }
        (self.least, self.most) = (self.least.min(other.least), self.most.max(other.most));
        self.count += other.count;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `None` without values.
    pub fn least(&self) -> Option<Q> {
        (self.count > 0).then(|| Q::of_whole(self.least))
    }

    /// `None` without values.
    pub fn most(&self) -> Option<Q> {
        (self.count > 0).then(|| Q::of_whole(self.most))
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
        let one = self.at(below);
        let more = self.at((below + 1).min(last)).saturating_sub(one);
        Some(Q::of_whole(one + (more as f64 * (rank - below as f64)).round() as u64))
    }

    /// Returns the points of the cumulative distribution function, in ascending order.
    pub fn steps(&self) -> Vec<(Q, f64)> {
        let all = self.count as f64;
        let mut steps = Vec::new();
        let mut below = 0;
        let mut few = self.few.clone();
        few.sort_unstable();
        let ranges = self.ranges.iter().map(|(range, count)| (beginning(range + 1) - 1, *count));
        for (value, count) in few.into_iter().map(|value| (value, 1)).chain(ranges) {
            below += count;
            steps.push((Q::of_whole(value.clamp(self.least, self.most)), below as f64 / all));
        }
        steps
    }

    /// Returns the value of this rank, from 0.
    fn at(&self, rank: u64) -> u64 {
        if !self.few.is_empty() {
            let mut few = self.few.clone();
            few.sort_unstable();
            return few.get(rank as usize).copied().unwrap_or(self.most);
        }
        if rank == 0 {
            return self.least;
        }
        let mut below = 0;
        let mut is_it = |(_, count): &(&u16, &u64)| {
            below += **count;
            below > rank
        };
        match self.ranges.iter().find(&mut is_it) {
            Some((range, _)) if rank + 1 < self.count => {
                let middle = u64::midpoint(beginning(*range), beginning(range + 1) - 1);
                middle.clamp(self.least, self.most)
            }
            _ => self.most,
        }
    }

    fn spread(&mut self) {
        for value in std::mem::take(&mut self.few) {
            *self.ranges.entry(place(value)).or_default() += 1;
        }
    }
}

fn place(value: u64) -> u16 {
    log_buckets::place(value, FINENESS)
}

fn beginning(place: u16) -> u64 {
    log_buckets::beginning(place, FINENESS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Distribution<Span> {
        let mut distribution = Distribution::default();
        values.into_iter().for_each(|nanos| distribution.push(Span::from_nanos(nanos)));
        distribution
    }

    #[test]
    fn few_are_exact() {
        let none = of([]);
        assert_eq!((none.count(), none.median(), none.most()), (0, None, None));
        assert!(none.steps().is_empty());
        let four = of([4_000_001, 1_000_001, 2_000_001, 3_000_001]);
        assert_eq!(four.median(), Some(Span::from_nanos(2_500_001)));
        assert_eq!(four.quantile(0.0), Some(Span::from_nanos(1_000_001)));
        assert_eq!(four.quantile(1.0), Some(Span::from_nanos(4_000_001)));
        assert_eq!(four.steps()[1], (Span::from_nanos(2_000_001), 0.5));
    }

    #[test]
    fn ranges_follow_each_other() {
        for range in 0..(64 - FINENESS as u16) << FINENESS {
            let (begin, end) = (beginning(range), beginning(range + 1));
            assert!(begin < end, "{range}");
            assert_eq!((place(begin), place(end - 1)), (range, range));
        }
        assert_eq!(place(u64::MAX), place(u64::MAX - 1));
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
            prop_assert_eq!(found.least(), Some(Span::from_nanos(values[0])));
            prop_assert_eq!(found.most(), values.last().map(|nanos| Span::from_nanos(*nanos)));
            prop_assert!(found.ranges.len() <= 64 << FINENESS);
            let steps = found.steps();
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
