//! Times at which sets end.

use manyways_unit::{Span, Time};

/// Minimum step back of the clock that starts a new set.
const MIN_STEP_BACK: Span = Span::from_secs(2);

/// Sets end at multiples of a period since the Unix epoch, so that hourly sets begin at full hours.
/// The first set may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    period: Span,
    start: Time,
    end: Time,
}

impl Rotation {
    /// Creates a rotation whose first set begins at `now`.
    pub(crate) fn new(interval: Span, now: Time) -> Self {
        let interval = interval.max(Span::from_nanos(1));
        Self { period: interval, start: now, end: period_start(now, interval) + interval }
    }

    /// End of the current set.
    pub(crate) fn end(&self) -> Time {
        self.end
    }

    /// Whether the current set has ended. A clock that was set back ends it as well, so that events
    /// are in the set of their time.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.end || now + MIN_STEP_BACK < self.start
    }

    /// Starts the next set and returns its start, which may be before `now` if the host slept.
    pub(crate) fn rotate(&mut self, now: Time) -> Time {
        let next = Self::new(self.period, now);
        let start = if now >= self.end { period_start(now, self.period) } else { now };
        *self = Self { start, ..next };
        start
    }
}

/// The last multiple of `interval` that is not after `now`.
fn period_start(now: Time, interval: Span) -> Time {
    Time::from_nanos(now.as_nanos() - now.as_nanos() % interval.as_nanos())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn sets_begin_at_round_times() {
        let mut rotation = Rotation::new(Span::from_secs(300), at(1_000));
        assert_eq!(rotation.end(), at(1_200));
        assert!(!rotation.is_due(at(1_199)) && rotation.is_due(at(1_200)));
        assert_eq!((rotation.rotate(at(1_201)), rotation.end()), (at(1_200), at(1_500)));
        // The host slept.
        assert_eq!((rotation.rotate(at(9_100)), rotation.end()), (at(9_000), at(9_300)));
        // Exactly at the end of the set.
        assert_eq!((rotation.rotate(at(9_300)), rotation.end()), (at(9_300), at(9_600)));
    }

    #[test]
    fn a_clock_set_back_starts_another_set() {
        let mut rotation = Rotation::new(Span::from_secs(300), at(1_200));
        assert!(!rotation.is_due(at(1_199)));
        assert!(rotation.is_due(at(700)));
        assert_eq!((rotation.rotate(at(700)), rotation.end()), (at(700), at(900)));
        assert!(!rotation.is_due(at(700)));
    }

    proptest! {
        #[test]
        fn each_set_contains_its_start(
            every in 0_u64..1 << 50,
            times in prop::collection::vec(0_u64..1 << 62, 1..20),
        ) {
            let first = Time::from_nanos(times[0]);
            let mut rotation = Rotation::new(Span::from_nanos(every), first);
            for now in times.into_iter().map(Time::from_nanos) {
                if rotation.is_due(now) {
                    let start = rotation.rotate(now);
                    prop_assert!(start <= now);
                }
                prop_assert!(now < rotation.end() && !rotation.is_due(now));
            }
        }
    }
}
