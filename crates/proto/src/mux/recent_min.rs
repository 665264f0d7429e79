//! The smallest sample of the recent past.

use manyways_unit::{Span, Time};

/// Interval after which older minima are forgotten.
const INTERVAL: Span = Span::from_secs(60);

/// The smallest samples of this interval and of the one before.
#[derive(Debug)]
pub(super) struct RecentMin<T> {
    since: Time,
    current: Option<T>,
    previous: Option<T>,
}

impl<T> Default for RecentMin<T> {
    fn default() -> Self {
        Self { since: Time::ZERO, current: None, previous: None }
    }
}

impl<T: Copy + Ord> RecentMin<T> {
    pub(super) fn observe(&mut self, now: Time, sample: T) {
        if now.since(self.since) >= INTERVAL {
            (self.since, self.previous) = (now, self.current.take());
        }
        self.current = Some(self.current.map_or(sample, |smallest| smallest.min(sample)));
    }

    /// Returns the smallest sample; `None` if there is none.
    pub(super) fn get(&self) -> Option<T> {
        self.current.into_iter().chain(self.previous).min()
    }
}
