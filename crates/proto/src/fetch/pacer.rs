//! An action with a fixed interval.

use manyways_unit::{Span, Time};

/// Fires immediately, and then at most once per interval.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    interval: Span,
    next_at: Time,
}

impl Pacer {
    /// Creates a pacer that is due at `now`.
    pub fn new(now: Time, interval: Span) -> Self {
        Self { interval, next_at: now }
    }

    /// Returns whether the action is due. If so, the next time is one interval after `now`.
    pub fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.next_at <= now;
        if is_due {
            self.next_at = now + self.interval;
        }
        is_due
    }

    /// When the action is next due.
    pub fn next_wakeup(&self) -> Time {
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_poll_shifts_the_following_ones() {
        let mut pacer = Pacer::new(Time::ZERO, Span::from_millis(100));
        assert!(pacer.take_due(Time::ZERO));
        assert!(!pacer.take_due(Time::from_millis(99)));
        assert!(pacer.take_due(Time::from_millis(250)));
        assert_eq!(pacer.next_wakeup(), Time::from_millis(350));
    }
}
