//! Set of 32-bit numbers.

use manyways_wire::tcp::Seq;

/// Maximum number of separate ranges; above it, the lowest is discarded and all numbers up to its
/// end count as seen.
const MAX_RANGES: usize = 64;
/// Position of the first number: far enough from 0 for numbers below it.
const START_OFFSET: u64 = 1 << 40;

/// Seen numbers, each counted once. They wrap at 2^32 and are unwrapped near the highest one.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// Half-open ranges, sorted and disjoint.
    ranges: Vec<(u64, u64)>,
    /// All numbers below this one count as seen.
    floor: u64,
    count: u64,
}

impl Ranges {
    /// Number of seen numbers. `None` if there are none.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.ranges.is_empty()).then_some(self.count)
    }

    /// Adds `length` numbers from `first` on, and returns how many are new. `None` if it is unknown
    /// whether some of them were seen.
    pub(super) fn add(&mut self, first: u32, length: u64) -> Option<u64> {
        let before = self.count;
        let is_known = self.insert(first, length);
        is_known.then(|| self.count - before)
    }

    /// Returns whether all numbers are above the forgotten ones.
    fn insert(&mut self, first: u32, length: u64) -> bool {
        let top = self.ranges.last().map_or(START_OFFSET + u64::from(first), |(_, end)| *end);
        let first = Seq(first).to_offset(top);
        let end = first.saturating_add(length);
        let is_known = first >= self.floor;
        let first = first.max(self.floor);
        if first >= end {
            return is_known;
        }
        let from = self.ranges.partition_point(|(_, behind)| *behind < first);
        let to = self.ranges.partition_point(|(begin, _)| *begin <= end);
        let Some(joined) = self.ranges.get(from..to).filter(|joined| !joined.is_empty()) else {
            self.ranges.insert(from, (first, end));
            self.count += end - first;
            if self.ranges.len() > MAX_RANGES {
                self.floor = self.ranges.remove(0).1;
            }
            return is_known;
        };
        let known: u64 = joined.iter().map(|(begin, behind)| behind - begin).sum();
        let begin = joined.first().map_or(first, |range| range.0.min(first));
        let behind = joined.last().map_or(end, |range| range.1.max(end));
        self.count += behind - begin - known;
        self.ranges.splice(from..to, [(begin, behind)]);
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_wrap_and_count_once() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.count(), None);
        ranges.add(u32::MAX - 9, 20);
        ranges.add(10, 5);
        ranges.add(u32::MAX - 9, 25);
        assert_eq!(ranges.count(), Some(25));
        ranges.add(100, 10);
        ranges.add(5, 100);
        assert_eq!((ranges.count(), ranges.ranges.len()), (Some(120), 1));
    }

    #[test]
    fn of_too_many_gaps_the_lowest_is_forgotten() {
        let mut ranges = Ranges::default();
        for number in 0..=MAX_RANGES as u32 {
            ranges.add(number * 10, 5);
        }
        assert_eq!((ranges.count(), ranges.ranges.len()), (Some(65 * 5), MAX_RANGES));
        assert_eq!(ranges.add(0, 8), None);
        assert_eq!(ranges.count(), Some(65 * 5 + 3), "up to the floor all were seen");
        assert_eq!(ranges.add(642, 8), Some(5));
    }

    #[test]
    fn numbers_far_away_do_not_overflow() {
        let mut ranges = Ranges::default();
        ranges.ranges.push((u64::MAX - 10, u64::MAX - 1));
        ranges.add(u32::MAX, u64::from(u16::MAX));
        ranges.add(0, 9);
        ranges.add(7, 9);
    }

    proptest! {
        #[test]
        fn it_counts_what_a_set_counts(
            start in any::<u32>(),
            added in prop::collection::vec((0_u32..400, 0_u64..30), 1..60),
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (first, length) in added {
                ranges.add(start.wrapping_add(first), length);
                set.extend((u64::from(first)..).take(length as usize));
                prop_assert_eq!(ranges.count().unwrap_or(0), set.len() as u64);
                prop_assert!(ranges.ranges.windows(2).all(|two| two[0].1 < two[1].0));
            }
        }
    }
}
