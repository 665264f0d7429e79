//! Something that happens at a fixed interval.

use manyways_unit::{Span, Time};

/// Fires at once, and then at most once in an interval.
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

    /// Whether it is due; if so, the next time is one interval after `now`.
    pub fn fires(&mut self, now: Time) -> bool {
        let is_due = self.next_at <= now;
        if is_due {
            self.next_at = now + self.interval;
        }
        is_due
    }

    /// When it is due next.
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
        assert!(pacer.fires(Time::ZERO));
        assert!(!pacer.fires(Time::from_millis(99)));
        assert!(pacer.fires(Time::from_millis(250)));
        assert_eq!(pacer.next_wakeup(), Time::from_millis(350));
    }
}
