//! The smallest span of the recent past.

use manyways_unit::{Span, Time};

/// Interval after which older minima are forgotten.
const INTERVAL: Span = Span::from_secs(60);

/// The smallest samples of this interval and of the one before.
#[derive(Debug, Default)]
pub(super) struct RecentMin {
    since: Time,
    current: Option<Span>,
    previous: Option<Span>,
}

impl RecentMin {
    pub(super) fn observe(&mut self, now: Time, sample: Span) {
        if now.since(self.since) >= INTERVAL {
            (self.since, self.previous) = (now, self.current.take());
        }
        self.current = Some(self.current.map_or(sample, |smallest| smallest.min(sample)));
    }

    /// Returns the smallest sample; `None` if there is none.
    pub(super) fn get(&self) -> Option<Span> {
        self.current.into_iter().chain(self.previous).min()
    }
}
