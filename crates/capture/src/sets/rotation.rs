//! When a set ends and the next one begins.

use manyways_unit::{Span, Time};

/// A clock that is set back by less than this is not worth a set of its own.
const STEP: Span = Span::from_secs(2);

/// Sets end at the multiples of a span since the epoch, so that those of an hour begin with it,
/// whenever the first one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    every: Span,
    begins: Time,
    ends: Time,
}

impl Rotation {
    /// The first set begins now.
    pub(crate) fn new(every: Span, now: Time) -> Self {
        let every = every.max(Span::from_nanos(1));
        Self { every, begins: now, ends: before(now, every) + every }
    }

    /// When the set ends that is being written.
    pub(crate) fn ends(&self) -> Time {
        self.ends
    }

    /// Whether it has ended. It has too when the clock was set back: who looks for what happened
    /// then shall find it under that time.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.ends || now + STEP < self.begins
    }

    /// The next set begins; says when, which may be a while ago where the machine slept.
    pub(crate) fn turn(&mut self, now: Time) -> Time {
        let next = Self::new(self.every, now);
        let begins = if now >= self.ends { before(now, self.every) } else { now };
        *self = Self { begins, ..next };
        begins
    }
}

/// The last multiple that is not after this.
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
        // The machine slept.
        assert_eq!((rotation.turn(at(9_100)), rotation.ends()), (at(9_000), at(9_300)));
        // On the dot.
        assert_eq!((rotation.turn(at(9_300)), rotation.ends()), (at(9_300), at(9_600)));
    }

    #[test]
    fn a_clock_that_is_set_back_begins_another() {
        let mut rotation = Rotation::new(Span::from_secs(300), at(1_200));
        assert!(!rotation.is_due(at(1_199)));
        assert!(rotation.is_due(at(700)));
        assert_eq!((rotation.turn(at(700)), rotation.ends()), (at(700), at(900)));
        assert!(!rotation.is_due(at(700)));
    }

    proptest! {
        #[test]
        fn each_set_holds_the_moment_in_which_it_begins(
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
