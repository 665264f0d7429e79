//! Conditions that do not flap: comparison of a value with a bound, with a margin and a hold time.

use manyways_unit::{Span, Time};

/// Comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Op {
    Is,
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// A comparison, and its hysteresis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Test {
    pub(super) op: Op,
    pub(super) bound: u64,
    /// Value at which a true condition becomes false, on the other side of `bound`.
    pub(super) leave: u64,
    /// Time for which the value must contradict the result before the result changes.
    pub(super) hold: Span,
}

/// A value at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// Unknown: the result does not change.
    Unknown,
    /// A measured value, which must persist.
    Value(u64),
    /// A certain value, which counts at once, for example that a path is down.
    Fact(u64),
}

/// The result of one [`Test`] over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Gauge {
    holds: Option<bool>,
    value: Option<u64>,
    /// Time since which the value contradicts the result.
    turning: Option<Time>,
}

impl Test {
    pub(super) fn fits(&self, value: u64) -> bool {
        match self.op {
            Op::Is => value == self.bound,
            Op::Below => value < self.bound,
            Op::AtMost => value <= self.bound,
            Op::Above => value > self.bound,
            Op::AtLeast => value >= self.bound,
        }
    }

    /// Returns whether `value` is beyond the margin, so that a true condition becomes false.
    fn leaves(&self, value: u64) -> bool {
        let far = match self.op {
            Op::Is => true,
            Op::Below | Op::AtMost => value >= self.leave,
            Op::Above | Op::AtLeast => value <= self.leave,
        };
        far && !self.fits(value)
    }
}

impl Gauge {
    /// Processes the value at `now`. The first value counts at once.
    pub(super) fn observe(&mut self, now: Time, test: &Test, reading: Reading) {
        let (value, hold) = match reading {
            Reading::Unknown => {
                self.value = None;
                self.turning = None;
                return;
            }
            Reading::Value(value) => (value, test.hold),
            Reading::Fact(value) => (value, Span::ZERO),
        };
        self.value = Some(value);
        let otherwise = match self.holds {
            None => {
                self.holds = Some(test.fits(value));
                return;
            }
            Some(true) => test.leaves(value),
            Some(false) => test.fits(value),
        };
        if !otherwise {
            self.turning = None;
            return;
        }
        let since = *self.turning.get_or_insert(now);
        if now.since(since) >= hold {
            self.holds = self.holds.map(|holds| !holds);
            self.turning = None;
        }
    }

    /// Returns whether the condition holds; false before the first known value.
    pub(super) fn holds(&self) -> bool {
        self.holds == Some(true)
    }

    pub(super) fn value(&self) -> Option<u64> {
        self.value
    }

    /// Returns when the result changes if the value persists.
    pub(super) fn turns_at(&self, test: &Test) -> Option<Time> {
        self.turning.map(|since| since + test.hold)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLD: u64 = 3_000;
    const TEST: Test =
        Test { op: Op::Below, bound: 100, leave: 120, hold: Span::from_millis(HOLD) };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_first_value_is_believed_and_later_ones_have_to_last() {
        let mut gauge = Gauge::default();
        gauge.observe(at(0), &TEST, Reading::Unknown);
        assert!(!gauge.holds());
        gauge.observe(at(1), &TEST, Reading::Value(99));
        assert!(gauge.holds());
        // Within the margin nothing changes, even after a long time.
        gauge.observe(at(10), &TEST, Reading::Value(119));
        gauge.observe(at(90_000), &TEST, Reading::Value(119));
        assert!(gauge.holds() && gauge.turns_at(&TEST).is_none());
        gauge.observe(at(100_000), &TEST, Reading::Value(120));
        assert_eq!(gauge.turns_at(&TEST), Some(at(103_000)));
        gauge.observe(at(102_999), &TEST, Reading::Value(500));
        assert!(gauge.holds());
        gauge.observe(at(103_000), &TEST, Reading::Value(500));
        assert!(!gauge.holds());
        // The change back has no margin, but the same hold time.
        gauge.observe(at(104_000), &TEST, Reading::Value(99));
        gauge.observe(at(105_000), &TEST, Reading::Value(100));
        gauge.observe(at(106_000), &TEST, Reading::Value(99));
        gauge.observe(at(107_500), &TEST, Reading::Value(99));
        assert!(!gauge.holds());
        gauge.observe(at(109_000), &TEST, Reading::Value(99));
        assert!(gauge.holds());
    }

    #[test]
    fn a_fact_is_believed_at_once_and_what_is_unknown_changes_nothing() {
        let mut gauge = Gauge::default();
        gauge.observe(at(0), &TEST, Reading::Value(500));
        gauge.observe(at(1), &TEST, Reading::Fact(0));
        assert!(gauge.holds());
        gauge.observe(at(2), &TEST, Reading::Value(500));
        gauge.observe(at(2_000), &TEST, Reading::Unknown);
        assert!(gauge.holds() && gauge.value().is_none() && gauge.turns_at(&TEST).is_none());
        gauge.observe(at(4_000), &TEST, Reading::Value(500));
        assert!(gauge.holds(), "the time to hold begins anew");
    }

    fn tests() -> impl Strategy<Value = Test> {
        let ops = prop_oneof![
            Just(Op::Below),
            Just(Op::AtMost),
            Just(Op::Above),
            Just(Op::AtLeast),
            Just(Op::Is)
        ];
        (ops, 0_u64..20, 0_u64..10, 0_u64..5_000).prop_map(|(op, bound, margin, hold)| Test {
            op,
            bound,
            leave: match op {
                Op::Below | Op::AtMost => bound + margin,
                _ => bound.saturating_sub(margin),
            },
            hold: Span::from_millis(hold),
        })
    }

    proptest! {
        #[test]
        fn never_changes_more_often_than_it_holds(
            test in tests(),
            steps in prop::collection::vec((0_u64..2_000, prop::option::of(0_u64..30)), 0..200),
        ) {
            let mut gauge = Gauge::default();
            let mut now = 0;
            let mut changed: Option<u64> = None;
            for (pause, value) in steps {
                now += pause;
                let before = gauge.holds;
                gauge.observe(at(now), &test, value.map_or(Reading::Unknown, Reading::Value));
                prop_assert!(gauge.turns_at(&test).is_none_or(|turn| turn > at(now)));
                if before.is_some() && gauge.holds != before {
                    if let Some(changed) = changed {
                        prop_assert!(Span::from_millis(now - changed) >= test.hold);
                    }
                    changed = Some(now);
                }
            }
        }

        #[test]
        fn a_path_that_comes_and_goes_turns_it_twice_a_hold_at_most(
            steps in prop::collection::vec((0_u64..2_000, prop::option::of(0_u64..300)), 0..200),
        ) {
            let mut gauge = Gauge::default();
            let mut now = 0;
            let mut changes = Vec::new();
            for (pause, value) in steps {
                now += pause;
                let before = gauge.holds;
                gauge.observe(at(now), &TEST, value.map_or(Reading::Fact(0), Reading::Value));
                if before.is_some() && gauge.holds != before {
                    changes.push(now);
                }
            }
            for three in changes.windows(3) {
                prop_assert!(three[2] - three[0] >= HOLD, "{:?}", changes);
            }
        }

        #[test]
        fn a_value_that_stays_decides_in_the_end(test in tests(), first in 0_u64..40, last in 0_u64..40) {
            let mut gauge = Gauge::default();
            gauge.observe(at(0), &test, Reading::Value(first));
            gauge.observe(at(1), &test, Reading::Value(last));
            gauge.observe(at(100_000), &test, Reading::Value(last));
            if test.fits(last) {
                prop_assert!(gauge.holds());
            } else if test.leaves(last) {
                prop_assert!(!gauge.holds());
            }
        }
    }
}
