//! Much less that arrives than before.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

/// Time in which the rate is measured, and the longest time between its polls.
const WINDOW: Span = Span::from_millis(900);
const MAX_WINDOW: Span = Span::from_secs(3);
/// Share of the rate before, below which it has fallen.
const FALLEN: f64 = 0.25;

/// Measures the rate of what an interface has received in about the last second.
#[derive(Clone, Debug, Default)]
pub(super) struct FallMeter {
    /// Received bytes at polls: one of them is at least a window old, if there is one.
    polls: VecDeque<(Time, u64)>,
}

impl FallMeter {
    pub(super) fn on_counters(&mut self, now: Time, received: u64) {
        // A counter that decreases belongs to another interface of the same name.
        if self.polls.back().is_some_and(|(_, last)| received < *last) {
            self.polls.clear();
        }
        self.polls.push_back((now, received));
        while self.polls.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.polls.pop_front();
        }
    }

    /// Whether the rate of the last window is much lower than this one, in Mbit/s.
    pub(super) fn has_fallen(&self, before: f64) -> bool {
        let (Some((from, first)), Some((to, last))) = (self.polls.front(), self.polls.back())
        else {
            return false;
        };
        let window = to.since(*from);
        (WINDOW..=MAX_WINDOW).contains(&window)
            && Rate::of(Size::from_bytes(last - first), window).as_mbps_f64() < FALLEN * before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_rate_for_a_second_is_a_fall() {
        let mut meter = FallMeter::default();
        let mut received = 0;
        let mut poll = |millis: u64, kilobytes: u64| {
            received += kilobytes * 1_000;
            meter.on_counters(Time::from_millis(millis), received);
            meter.has_fallen(8.0)
        };
        // 8 Mbit/s are 500 KB in a half second.
        let polls = [(0, 500), (500, 500), (1_000, 500), (1_500, 120), (2_000, 120), (2_500, 130)];
        let found: Vec<bool> = polls.iter().map(|(at, passed)| poll(*at, *passed)).collect();
        assert_eq!(found, [false, false, false, false, true, false]);
        // Nothing is known about a time without polls, or about another interface.
        assert!(!poll(9_000, 0));
        let mut other = meter.clone();
        other.on_counters(Time::from_millis(9_500), 7);
        assert!(!other.has_fallen(8.0));
    }
}
