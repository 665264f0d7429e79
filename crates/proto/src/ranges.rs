//! Ranges of bytes (or of whatever is counted) and sets of them.

/// The bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// One past the last byte; `u64::MAX` where the end is not known.
    pub end: u64,
}

impl Range {
    /// From `start` up to `end`; empty where `end` is not past `start`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// How many bytes.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// A set of bytes, kept as sorted ranges that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds every byte of `range`.
    pub fn insert(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        // All ranges that overlap or touch melt into one.
        let first = self.0.partition_point(|r| r.end < range.start);
        let last = self.0.partition_point(|r| r.start <= range.end);
        let mut melted = range;
        if first < last {
            melted.start = melted.start.min(self.0[first].start);
            melted.end = melted.end.max(self.0[last - 1].end);
        }
        self.0.splice(first..last, [melted]);
    }

    /// Takes every byte of `range` out.
    pub fn remove(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|r| r.end <= range.start);
        let last = self.0.partition_point(|r| r.start < range.end);
        if first >= last {
            return;
        }
        let before = Range::new(self.0[first].start, range.start);
        let after = Range::new(range.end, self.0[last - 1].end);
        let kept = [before, after].into_iter().filter(|kept| !kept.is_empty());
        self.0.splice(first..last, kept);
    }

    /// The first range, where there is one.
    pub fn first(&self) -> Option<Range> {
        self.0.first().copied()
    }

    /// The first bytes at or after `from`, as one range.
    pub fn first_from(&self, from: u64) -> Option<Range> {
        let at = self.0.partition_point(|r| r.end <= from);
        self.0.get(at).map(|r| Range::new(r.start.max(from), r.end))
    }

    /// Of how many ranges the set consists.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// How many bytes are in the set.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|r| r.len()).sum()
    }

    /// Whether every byte of `range` is in the set.
    pub fn covers(&self, range: Range) -> bool {
        if range.is_empty() {
            return true;
        }
        let at = self.0.partition_point(|r| r.end <= range.start);
        self.0.get(at).is_some_and(|r| r.start <= range.start && range.end <= r.end)
    }

    /// The parts of `within` that are not in the set, in order.
    pub fn gaps(&self, within: Range) -> impl Iterator<Item = Range> + '_ {
        let first = self.0.partition_point(|r| r.end <= within.start);
        let mut cursor = within.start;
        let mut rest = self.0[first..].iter();
        std::iter::from_fn(move || {
            while cursor < within.end {
                let start = cursor;
                let (end, next) = match rest.next() {
                    Some(r) if r.start < within.end => (r.start, r.end),
                    _ => (within.end, within.end),
                };
                cursor = next;
                if start < end {
                    return Some(Range::new(start, end));
                }
            }
            None
        })
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One past the last byte of the set; 0 when it is empty.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |r| r.end)
    }
}

impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_row_of_flags(
            inserts in prop::collection::vec((0u64..60, 0u64..20), 0..20),
            (from, length) in (0u64..60, 0u64..40),
        ) {
            let mut flags = [false; 128];
            let mut set = Ranges::new();
            for (start, length) in inserts {
                set.insert(Range::new(start, start + length));
                flags[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert_eq!(set.total(), flags.iter().filter(|f| **f).count() as u64);
            let within = Range::new(from, from + length);
            let mut missing: Vec<u64> = Vec::new();
            for gap in set.gaps(within) {
                prop_assert!(!gap.is_empty());
                missing.extend(gap.start..gap.end);
            }
            let expected: Vec<u64> =
                (within.start..within.end).filter(|&at| !flags[at as usize]).collect();
            prop_assert_eq!(set.covers(within), expected.is_empty());
            prop_assert_eq!(missing, expected);
            let sorted = |set: &Ranges| {
                let list: Vec<Range> = set.iter().collect();
                list.windows(2).all(|w| w[0].end < w[1].start)
            };
            prop_assert!(sorted(&set));
            set.remove(within);
            flags[within.start as usize..within.end as usize].fill(false);
            prop_assert!(sorted(&set));
            prop_assert_eq!(set.total(), flags.iter().filter(|f| **f).count() as u64);
            let first = flags[from as usize..].iter().position(|f| *f).map(|at| from + at as u64);
            prop_assert_eq!(set.first_from(from).map(|r| r.start), first);
        }
    }
}
