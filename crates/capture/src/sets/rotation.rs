//! Times at which sets end.

use manyways_unit::{Span, Time};

/// Minimum step back of the clock that starts a new set.
const STEP: Span = Span::from_secs(2);

/// Sets end at multiples of a period since the Unix epoch, so that hourly sets begin at full hours.
/// The first set may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    every: Span,
    begins: Time,
    ends: Time,
}

impl Rotation {
    /// Creates a rotation whose first set begins at `now`.
    pub(crate) fn new(every: Span, now: Time) -> Self {
        let every = every.max(Span::from_nanos(1));
        Self { every, begins: now, ends: before(now, every) + every }
    }

    /// End of the current set.
    pub(crate) fn ends(&self) -> Time {
        self.ends
    }

    /// Whether the current set has ended. A clock that was set back ends it as well, so that events
    /// are in the set of their time.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.ends || now + STEP < self.begins
    }

    /// Starts the next set and returns its start, which may be before `now` if the host slept.
    pub(crate) fn turn(&mut self, now: Time) -> Time {
        let next = Self::new(self.every, now);
        let begins = if now >= self.ends { before(now, self.every) } else { now };
        *self = Self { begins, ..next };
        begins
    }
}

/// The last multiple of `every` that is not after `now`.
fn before(now: Time, every: Span) -> Time {
    Time::from_nanos(now.as_nanos() - now.as_nanos() % every.as_nanos())
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
        assert_eq!(rotation.ends(), at(1_200));
        assert!(!rotation.is_due(at(1_199)) && rotation.is_due(at(1_200)));
        assert_eq!((rotation.turn(at(1_201)), rotation.ends()), (at(1_200), at(1_500)));
        // The host slept.
        assert_eq!((rotation.turn(at(9_100)), rotation.ends()), (at(9_000), at(9_300)));
        // Exactly at the end of the set.
        assert_eq!((rotation.turn(at(9_300)), rotation.ends()), (at(9_300), at(9_600)));
    }

    #[test]
    fn a_clock_set_back_starts_another_set() {
        let mut rotation = Rotation::new(Span::from_secs(300), at(1_200));
        assert!(!rotation.is_due(at(1_199)));
        assert!(rotation.is_due(at(700)));
        assert_eq!((rotation.turn(at(700)), rotation.ends()), (at(700), at(900)));
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
                    let begins = rotation.turn(now);
                    prop_assert!(begins <= now);
                }
                prop_assert!(now < rotation.ends() && !rotation.is_due(now));
            }
        }
    }
}
