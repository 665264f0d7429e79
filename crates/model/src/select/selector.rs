//! The choice for a transfer, and when to leave it.

use manyways_unit::{Rate, Size, Span, Time};

use super::Choice;
use super::objective::{Goal, Terms};

/// Probability with which another choice must be better.
const MIN_PROBABILITY: f64 = 0.7;
/// Least saving of another choice, as a share of the seconds that remain.
const MIN_SAVING: f64 = 0.1;
/// Shortest time on a choice before it is left, unless it stands still.
pub(super) const DWELL: Span = Span::from_secs(2);

/// A choice that is open: its networks are up and within their plans.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    pub choice: Choice,
    pub terms: Terms,
    /// Seconds that the rest of the transfer is expected to take, and at most with 80 %.
    pub seconds: f64,
    pub high: f64,
}

/// The choice that is used now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kept {
    pub choice: Choice,
    pub since: Time,
    /// Whether no byte has arrived for longer than a transfer pauses.
    pub stands_still: bool,
    /// Time on it before it is left.
    pub dwell: Span,
}

/// The result of a decision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Selection {
    /// Index of the candidate.
    pub best: usize,
    /// The second best; `None` if there is one candidate only.
    pub runner_up: Option<usize>,
    /// Probability that the best one is better than the runner-up, or than the one that is used now.
    pub probability: f64,
    pub reason: SelectionReason,
}

/// Why a candidate is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SelectionReason {
    /// It has the greatest objective.
    Best,
    /// It is the cheapest one that is fast enough.
    FastEnough,
    /// None is fast enough; this is the fastest one.
    NoneFastEnough,
    /// It is used now, and none is better by enough.
    Kept,
    /// It is used now, and for too short a time to leave it.
    Dwelling,
}

/// Chooses for one goal, with hysteresis.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    pub goal: Goal,
    /// Seconds that a change of network has cost.
    pub switching_cost: f64,
}

impl Selector {
    /// The choice for a transfer of which `size` remains; `None` without candidates.
    pub fn select(
        &self,
        now: Time,
        candidates: &[Candidate],
        size: Size,
        kept: Option<Kept>,
    ) -> Option<Selection> {
        let (best, reason) = self.best(candidates, size)?;
        let of = |index: usize| &candidates[index];
        // Of equal ones the first: `max_by` returns the last one.
        let others = (0..candidates.len()).rev().filter(|index| *index != best);
        let runner_up =
            others.max_by(|a, b| of(*a).terms.objective.total_cmp(&of(*b).terms.objective));
        let probability = |over: usize| of(best).terms.probability_over(&of(over).terms);
        let found =
            Selection { best, runner_up, probability: runner_up.map_or(1.0, probability), reason };
        let used = kept.and_then(|kept| {
            let index = candidates.iter().position(|one| one.choice == kept.choice)?;
            Some((kept, index)).filter(|_| index != best)
        });
        let Some((kept, index)) = used else { return Some(found) };
        let stay = |reason| {
            let probability = 1.0 - probability(index);
            Some(Selection { best: index, runner_up: Some(best), probability, reason })
        };
        if kept.stands_still {
            return Some(Selection { probability: probability(index), ..found });
        }
        if now < kept.since + kept.dwell {
            return stay(SelectionReason::Dwelling);
        }
        if probability(index) < MIN_PROBABILITY || !self.saves(of(index), of(best)) {
            return stay(SelectionReason::Kept);
        }
        Some(Selection { probability: probability(index), ..found })
    }

    /// Whether leaving `used` saves more than it costs. The objective saves as much as the seconds
    /// that it would take to lower it by the same amount.
    fn saves(&self, used: &Candidate, best: &Candidate) -> bool {
        let gain = 1.0 - (used.terms.objective - best.terms.objective).exp();
        gain > MIN_SAVING.max(self.switching_cost / used.seconds.max(1e-9))
    }

    fn best(&self, candidates: &[Candidate], size: Size) -> Option<(usize, SelectionReason)> {
        let greatest = |value: &dyn Fn(&Candidate) -> f64, from: &[usize]| {
            from.iter()
                .rev()
                .copied()
                .max_by(|a, b| value(&candidates[*a]).total_cmp(&value(&candidates[*b])))
        };
        let all: Vec<usize> = (0..candidates.len()).collect();
        let Some(at_least) = self.goal.at_least else {
            let objective = |one: &Candidate| one.terms.objective;
            return Some((greatest(&objective, &all)?, SelectionReason::Best));
        };
        let is_fast = |index: &usize| {
            let seconds = Span::from_secs_f64(candidates[*index].high);
            Rate::of(size, seconds.max(Span::from_nanos(1))) >= at_least
        };
        let fast: Vec<usize> = all.iter().copied().filter(is_fast).collect();
        // Money first, then energy.
        let cheapness = |one: &Candidate| -one.terms.money - one.terms.energy * 1e-9;
        match greatest(&cheapness, &fast) {
            Some(index) => Some((index, SelectionReason::FastEnough)),
            None => {
                let fastest = greatest(&|one| one.terms.speed, &all)?;
                Some((fastest, SelectionReason::NoneFastEnough))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::energy::TransferEnergy;
    use super::super::objective::Prediction;
    use super::*;

    const SIZE: Size = Size::from_bytes(1_000_000);
    const WIFI: Choice = Choice::Only(0);
    const LTE: Choice = Choice::Only(1);

    fn candidate(choice: Choice, seconds: f64, spread: f64, price: f64) -> Candidate {
        let (low, high) = (seconds / spread, seconds * spread);
        let energy = TransferEnergy::constant(1.0, 0.0);
        let terms = Goal::FAST.terms(Prediction { seconds, low, high }, SIZE, energy, price);
        Candidate { choice, terms, seconds, high }
    }

    fn selector() -> Selector {
        Selector { goal: Goal::FAST, switching_cost: 0.0 }
    }

    fn kept(stands_still: bool) -> Option<Kept> {
        Some(Kept { choice: WIFI, since: Time::ZERO, stands_still, dwell: DWELL })
    }

    fn select(wifi: f64, lte: f64, spread: f64, at: u64, stands_still: bool) -> SelectionReason {
        let candidates = [candidate(WIFI, wifi, spread, 0.0), candidate(LTE, lte, spread, 1.0)];
        let now = Time::from_millis(at);
        selector().select(now, &candidates, SIZE, kept(stands_still)).unwrap().reason
    }

    #[test]
    fn another_network_must_be_better_by_enough_and_surely() {
        use SelectionReason::{Best, Dwelling, Kept};
        assert_eq!(select(2.0, 1.0, 1.01, 5_000, false), Best);
        // By 5 %; by a half, but who knows; too early; too early, but nothing arrives.
        assert_eq!(select(2.0, 1.9, 1.01, 5_000, false), Kept);
        assert_eq!(select(2.0, 1.0, 9.0, 5_000, false), Kept);
        assert_eq!(select(2.0, 1.0, 1.01, 1_900, false), Dwelling);
        assert_eq!(select(2.0, 1.0, 1.01, 1_900, true), Best);
    }

    #[test]
    fn a_change_that_costs_more_than_it_saves_is_not_made() {
        let candidates = [candidate(WIFI, 2.0, 1.01, 0.0), candidate(LTE, 1.0, 1.01, 0.0)];
        let now = Time::from_millis(5_000);
        let at_cost = |switching_cost| {
            let selector = Selector { switching_cost, ..selector() };
            selector.select(now, &candidates, SIZE, kept(false)).unwrap().best
        };
        assert_eq!((at_cost(0.9), at_cost(1.1)), (1, 0));
    }

    #[test]
    fn a_network_that_is_gone_is_left_at_once() {
        let candidates = [candidate(LTE, 9.0, 2.0, 1.0)];
        let found = selector().select(Time::ZERO, &candidates, SIZE, kept(false)).unwrap();
        assert_eq!((found.best, found.runner_up, found.reason), (0, None, SelectionReason::Best));
        assert_eq!(selector().select(Time::ZERO, &[], SIZE, None), None);
    }

    #[test]
    fn the_cheapest_one_that_is_fast_enough_carries_a_stream() {
        // 1 MB in 1.6 s are 5 Mbit/s.
        let goal = Goal { at_least: Some(Rate::from_mbps(5)), ..Goal::FAST };
        let selector = Selector { goal, ..selector() };
        let select = |wifi: f64, lte: f64| {
            let candidates = [candidate(WIFI, wifi, 1.1, 0.0), candidate(LTE, lte, 1.1, 1.0)];
            let found = selector.select(Time::ZERO, &candidates, SIZE, None).unwrap();
            (candidates[found.best].choice, found.reason)
        };
        assert_eq!(select(1.4, 0.5), (WIFI, SelectionReason::FastEnough));
        assert_eq!(select(1.5, 0.5), (LTE, SelectionReason::FastEnough));
        assert_eq!(select(3.0, 2.0), (LTE, SelectionReason::NoneFastEnough));
    }

    proptest! {
        #[test]
        fn without_a_choice_before_the_greatest_objective_wins(
            seconds in prop::collection::vec(0.001_f64..100.0, 1..6), spread in 1.0_f64..4.0,
        ) {
            let candidates: Vec<Candidate> = seconds
                .iter()
                .enumerate()
                .map(|(index, seconds)| candidate(Choice::Only(index), *seconds, spread, 0.0))
                .collect();
            let found = selector().select(Time::ZERO, &candidates, SIZE, None).unwrap();
            let best = seconds.iter().copied().fold(f64::MAX, f64::min);
            prop_assert_eq!(seconds[found.best], best);
            prop_assert!((0.5 - 1e-6..=1.0).contains(&found.probability));
        }
    }

    #[test]
    fn of_equal_choices_the_first_one_is_taken() {
        let three = [0, 1, 2].map(|index| candidate(Choice::Only(index), 1.0, 1.1, 0.0));
        let found = selector().select(Time::ZERO, &three, SIZE, None).unwrap();
        assert_eq!((found.best, found.runner_up), (0, Some(1)));
    }

    #[test]
    fn a_choice_is_left_for_one_that_is_surely_better_than_itself() {
        // The second best is as good as the best one; the used one is far behind.
        let seconds = [2.0, 1.0, 1.0];
        let three: Vec<Candidate> =
            (0..3).map(|index| candidate(Choice::Only(index), seconds[index], 1.1, 0.0)).collect();
        let select = |millis, stands_still| {
            let now = Time::from_millis(millis);
            selector().select(now, &three, SIZE, kept(stands_still)).unwrap()
        };
        for found in [select(2_000, false), select(0, true)] {
            assert_eq!((found.best, found.runner_up), (1, Some(2)));
            assert!(found.probability > 0.99, "{found:?}");
        }
        let early = select(1_999, false);
        assert_eq!((early.best, early.runner_up), (0, Some(1)));
        assert!(early.probability < 0.01, "{early:?}");
    }

    #[test]
    fn a_choice_that_is_better_with_six_tenths_is_not_taken() {
        let probability = |spread| {
            let two = [candidate(WIFI, 1.5, spread, 0.0), candidate(LTE, 1.0, spread, 0.0)];
            let found = selector().select(Time::from_millis(9_000), &two, SIZE, kept(false));
            let found = found.unwrap();
            (found.best, (found.probability * 10.0).round())
        };
        assert_eq!((probability(4.0), probability(1.8)), ((0, 4.0), (1, 7.0)));
    }

    #[test]
    fn of_equally_cheap_ones_the_least_energy_and_without_a_fast_one_speed_decides() {
        let at = |mbps| Selector {
            goal: Goal { at_least: Some(Rate::from_mbps(mbps)), ..Goal::BALANCED },
            ..selector()
        };
        let with = |choice, seconds: f64, watts| {
            let prediction = Prediction::exact(seconds);
            let energy = TransferEnergy::constant(watts, 0.0);
            let terms = Goal::BALANCED.terms(prediction, SIZE, energy, 0.0);
            Candidate { choice, terms, seconds, high: seconds }
        };
        let two = [with(WIFI, 1.0, 3.0), with(LTE, 1.5, 1.0)];
        let select = |mbps| {
            let found = at(mbps).select(Time::ZERO, &two, SIZE, None).unwrap();
            (two[found.best].choice, found.reason)
        };
        assert_eq!(select(5), (LTE, SelectionReason::FastEnough));
        assert_eq!(select(50), (WIFI, SelectionReason::NoneFastEnough));
    }
}
