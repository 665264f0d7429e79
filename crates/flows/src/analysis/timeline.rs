//! Volume of traffic over time.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

/// Maximum number of bins.
const MAX_BINS: u64 = 360;
/// Bin widths in milliseconds: each is a multiple of the previous one. Larger widths double.
const BIN_WIDTHS_MS: [u64; 18] = [
    10,
    20,
    100,
    200,
    1_000,
    2_000,
    10_000,
    20_000,
    60_000,
    120_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    43_200_000,
    86_400_000,
    172_800_000,
];

/// Bytes over time, in at most 360 bins. The bin width grows with the time from the first byte to
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    step: usize,
    bins: BTreeMap<u64, Volume>,
}

/// Bytes of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Of TCP and UDP: sent by the client, then sent by the server.
    pub flows: [u64; 2],
    /// Of all packets.
    pub all: u64,
}

impl Timeline {
    pub fn width(&self) -> Span {
        Span::from_nanos(width(self.step))
    }

    /// Returns the start and the volume of each bin with traffic.
    pub fn bins(&self) -> impl Iterator<Item = (Time, Volume)> {
        let width = width(self.step);
        self.bins.iter().map(move |(bin, volume)| (Time::from_nanos(bin * width), *volume))
    }

    /// Adds the volume at a time.
    pub fn record(&mut self, at: Time, volume: Volume) {
        let bin = at.as_nanos() / width(self.step);
        let is_new = !self.bins.contains_key(&bin);
        self.bins.entry(bin).or_default().add(&volume);
        if is_new {
            self.shorten();
        }
    }

    /// Adds the volumes of another timeline.
    pub fn add(&mut self, other: &Self) {
        while self.step < other.step {
            self.coarsen();
        }
        let (theirs, ours) = (width(other.step), width(self.step));
        for (bin, volume) in &other.bins {
            self.bins.entry(bin * theirs / ours).or_default().add(volume);
        }
        self.shorten();
    }

    fn shorten(&mut self) {
        let is_long = |bins: &BTreeMap<u64, Volume>| {
            let ends = bins.first_key_value().zip(bins.last_key_value());
            ends.is_some_and(|((first, _), (last, _))| last - first >= MAX_BINS)
        };
        while is_long(&self.bins) {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        let before = width(self.step);
        self.step += 1;
        let after = width(self.step);
        for (bin, volume) in std::mem::take(&mut self.bins) {
            self.bins.entry(bin * before / after).or_default().add(&volume);
        }
    }
}

impl Volume {
    fn add(&mut self, other: &Self) {
        for (sum, more) in self.flows.iter_mut().zip(other.flows) {
            *sum += more;
        }
        self.all += other.all;
    }
}

/// Returns the bin width in nanoseconds.
fn width(step: usize) -> u64 {
    let millis = match (BIN_WIDTHS_MS.get(step), BIN_WIDTHS_MS.last()) {
        (Some(millis), _) => *millis,
        (None, Some(last)) => last << (step + 1 - BIN_WIDTHS_MS.len()).min(16),
        (None, None) => 1,
    };
    millis * 1_000_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn volume(all: u64) -> Volume {
        Volume { flows: [all / 2, all / 3], all }
    }

    fn of(passed: &[(u64, u64)]) -> Timeline {
        let mut timeline = Timeline::default();
        for (nanos, bytes) in passed {
            timeline.record(Time::from_nanos(*nanos), volume(*bytes));
        }
        timeline
    }

    fn sum(timeline: &Timeline) -> u64 {
        timeline.bins().map(|(_, volume)| volume.all).sum()
    }

    #[test]
    fn bins_are_as_long_as_they_must_be() {
        const SECOND: u64 = 1_000_000_000;
        for (seconds, millis) in [(1, 10), (10, 100), (3_600, 20_000), (86_400, 600_000)] {
            let timeline = of(&[(SECOND, 1), ((seconds + 1) * SECOND, 1)]);
            assert_eq!(timeline.width(), Span::from_millis(millis), "{seconds}");
            assert_eq!(timeline.bins().count(), 2);
        }
        assert_eq!(of(&[(7, 3)]).bins().next(), Some((Time::ZERO, volume(3))));
        // From 1970 to the largest time.
        let longest = of(&[(0, 1), (u64::MAX, 1)]);
        assert!(longest.bins().count() == 2 && sum(&longest) == 2);
    }

    #[test]
    fn each_width_is_a_multiple_of_the_one_before() {
        for step in 0..BIN_WIDTHS_MS.len() + 4 {
            assert!(width(step + 1).is_multiple_of(width(step)) && width(step + 1) > width(step));
        }
    }

    proptest! {
        #[test]
        fn parts_add_up_in_whatever_order(
            passed in prop::collection::vec((0_u64..1 << 45, 0_u64..9), 0..60),
            cut in 0_usize..60,
        ) {
            let (one, other) = passed.split_at(cut.min(passed.len()));
            let (one, other, whole) = (of(one), of(other), of(&passed));
            let mut sum_of_both = one.clone();
            sum_of_both.add(&other);
            prop_assert_eq!(&sum_of_both, &whole);
            let mut other = other;
            other.add(&one);
            prop_assert_eq!(&other, &whole);
            prop_assert_eq!(sum(&whole), passed.iter().map(|one| one.1).sum::<u64>());
            prop_assert!(whole.bins().count() as u64 <= MAX_BINS);
        }
    }
}
