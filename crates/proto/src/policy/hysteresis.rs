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
pub(super) struct Comparison {
    pub(super) op: Op,
    pub(super) threshold: u64,
    /// Value at which a true condition becomes false, on the other side of `bound`.
    pub(super) exit_threshold: u64,
    /// Time for which the value must contradict the result before the result changes.
    pub(super) hysteresis: Span,
}

/// A value at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Observation {
    /// Unknown: the result does not change.
    Unknown,
    /// A measured value, which must persist.
    Measured(u64),
    /// A certain value, which counts at once, for example that a path is down.
    Certain(u64),
}

/// The result of one [`Comparison`] over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ConditionState {
    is_met: Option<bool>,
    value: Option<u64>,
    /// Time since which the value contradicts the result.
    contradicted_since: Option<Time>,
}

impl Comparison {
    pub(super) fn matches(&self, value: u64) -> bool {
        match self.op {
            Op::Is => value == self.threshold,
            Op::Below => value < self.threshold,
            Op::AtMost => value <= self.threshold,
            Op::Above => value > self.threshold,
            Op::AtLeast => value >= self.threshold,
        }
    }

    /// Returns whether `value` is beyond the margin, so that a true condition becomes false.
    fn is_past_margin(&self, value: u64) -> bool {
        let far = match self.op {
            Op::Is => true,
            Op::Below | Op::AtMost => value >= self.exit_threshold,
            Op::Above | Op::AtLeast => value <= self.exit_threshold,
        };
        far && !self.matches(value)
    }
}

impl ConditionState {
    /// Processes the value at `now`. The first value counts at once.
    pub(super) fn observe(&mut self, now: Time, test: &Comparison, observation: Observation) {
        let (value, hysteresis) = match observation {
            Observation::Unknown => {
                self.value = None;
                self.contradicted_since = None;
                return;
            }
            Observation::Measured(value) => (value, test.hysteresis),
            Observation::Certain(value) => (value, Span::ZERO),
        };
        self.value = Some(value);
        let otherwise = match self.is_met {
            None => {
                self.is_met = Some(test.matches(value));
                return;
            }
            Some(true) => test.is_past_margin(value),
            Some(false) => test.matches(value),
        };
        if !otherwise {
            self.contradicted_since = None;
            return;
        }
        let since = *self.contradicted_since.get_or_insert(now);
        if now.since(since) >= hysteresis {
            self.is_met = self.is_met.map(|holds| !holds);
            self.contradicted_since = None;
        }
    }

    /// Returns whether the condition holds; false before the first known value.
    pub(super) fn is_met(&self) -> bool {
        self.is_met == Some(true)
    }

    pub(super) fn value(&self) -> Option<u64> {
        self.value
    }

    /// Returns when the result changes if the value persists.
    pub(super) fn changes_at(&self, test: &Comparison) -> Option<Time> {
        self.contradicted_since.map(|since| since + test.hysteresis)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HYSTERESIS: u64 = 3_000;
    const COMPARISON: Comparison = Comparison {
        op: Op::Below,
        threshold: 100,
        exit_threshold: 120,
        hysteresis: Span::from_millis(HYSTERESIS),
    };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_first_value_is_believed_and_later_ones_have_to_last() {
        let mut gauge = ConditionState::default();
        gauge.observe(at(0), &COMPARISON, Observation::Unknown);
        assert!(!gauge.is_met());
        gauge.observe(at(1), &COMPARISON, Observation::Measured(99));
        assert!(gauge.is_met());
        // Within the margin nothing changes, even after a long time.
        gauge.observe(at(10), &COMPARISON, Observation::Measured(119));
        gauge.observe(at(90_000), &COMPARISON, Observation::Measured(119));
        assert!(gauge.is_met() && gauge.changes_at(&COMPARISON).is_none());
        gauge.observe(at(100_000), &COMPARISON, Observation::Measured(120));
        assert_eq!(gauge.changes_at(&COMPARISON), Some(at(103_000)));
        gauge.observe(at(102_999), &COMPARISON, Observation::Measured(500));
        assert!(gauge.is_met());
        gauge.observe(at(103_000), &COMPARISON, Observation::Measured(500));
        assert!(!gauge.is_met());
        // The change back has no margin, but the same hold time.
        gauge.observe(at(104_000), &COMPARISON, Observation::Measured(99));
        gauge.observe(at(105_000), &COMPARISON, Observation::Measured(100));
        gauge.observe(at(106_000), &COMPARISON, Observation::Measured(99));
        gauge.observe(at(107_500), &COMPARISON, Observation::Measured(99));
        assert!(!gauge.is_met());
        gauge.observe(at(109_000), &COMPARISON, Observation::Measured(99));
        assert!(gauge.is_met());
    }

    #[test]
    fn a_fact_is_believed_at_once_and_what_is_unknown_changes_nothing() {
        let mut gauge = ConditionState::default();
        gauge.observe(at(0), &COMPARISON, Observation::Measured(500));
        gauge.observe(at(1), &COMPARISON, Observation::Certain(0));
        assert!(gauge.is_met());
        gauge.observe(at(2), &COMPARISON, Observation::Measured(500));
        gauge.observe(at(2_000), &COMPARISON, Observation::Unknown);
        assert!(
            gauge.is_met() && gauge.value().is_none() && gauge.changes_at(&COMPARISON).is_none()
        );
        gauge.observe(at(4_000), &COMPARISON, Observation::Measured(500));
        assert!(gauge.is_met(), "the time to hold begins anew");
    }

    fn comparisons() -> impl Strategy<Value = Comparison> {
        let ops = prop_oneof![
            Just(Op::Below),
            Just(Op::AtMost),
            Just(Op::Above),
            Just(Op::AtLeast),
            Just(Op::Is)
        ];
        (ops, 0_u64..20, 0_u64..10, 0_u64..5_000).prop_map(|(op, bound, margin, hold)| Comparison {
            op,
            threshold: bound,
            exit_threshold: match op {
                Op::Below | Op::AtMost => bound + margin,
                _ => bound.saturating_sub(margin),
            },
            hysteresis: Span::from_millis(hold),
        })
    }

    proptest! {
        #[test]
        fn never_changes_more_often_than_it_holds(
            test in comparisons(),
            steps in prop::collection::vec((0_u64..2_000, prop::option::of(0_u64..30)), 0..200),
        ) {
            let mut gauge = ConditionState::default();
            let mut now = 0;
            let mut changed: Option<u64> = None;
            for (pause, value) in steps {
                now += pause;
                let before = gauge.is_met;
                gauge.observe(at(now), &test, value.map_or(Observation::Unknown, Observation::Measured));
                prop_assert!(gauge.changes_at(&test).is_none_or(|turn| turn > at(now)));
                if before.is_some() && gauge.is_met != before {
                    if let Some(changed) = changed {
                        prop_assert!(Span::from_millis(now - changed) >= test.hysteresis);
                    }
                    changed = Some(now);
                }
            }
        }

        #[test]
        fn a_path_that_comes_and_goes_turns_it_twice_a_hold_at_most(
            steps in prop::collection::vec((0_u64..2_000, prop::option::of(0_u64..300)), 0..200),
        ) {
            let mut gauge = ConditionState::default();
            let mut now = 0;
            let mut changes = Vec::new();
            for (pause, value) in steps {
                now += pause;
                let before = gauge.is_met;
                gauge.observe(at(now), &COMPARISON, value.map_or(Observation::Certain(0), Observation::Measured));
                if before.is_some() && gauge.is_met != before {
                    changes.push(now);
                }
            }
            for three in changes.windows(3) {
                prop_assert!(three[2] - three[0] >= HYSTERESIS, "{:?}", changes);
            }
        }

        #[test]
        fn a_value_that_stays_decides_in_the_end(test in comparisons(), first in 0_u64..40, last in 0_u64..40) {
            let mut gauge = ConditionState::default();
            gauge.observe(at(0), &test, Observation::Measured(first));
            gauge.observe(at(1), &test, Observation::Measured(last));
            gauge.observe(at(100_000), &test, Observation::Measured(last));
            if test.matches(last) {
                prop_assert!(gauge.is_met());
            } else if test.is_past_margin(last) {
                prop_assert!(!gauge.is_met());
            }
        }
    }
}
