//! The objective: speed, energy and money of a transfer in one number.

use manyways_unit::{Rate, Size};

use super::energy::TransferEnergy;
use crate::normal::normal;

/// Standard deviations from the middle of a normal distribution to the end of its middle 80 %.
const END_OF_80: f64 = 1.281_551_6;
/// m₀: what a byte costs on a network without a price, in the unit of the prices. Without
/// it, the objective of such a network would be infinite. It is a tenth of the price of a metered
/// network whose price is not stated.
const MIN_PRICE: f64 = 0.1;

/// The exponents of the objective O = S^α / (E^β · M^γ) (equation 3.5 of the thesis), with
/// S = bytes / seconds, E = joules / bytes and M = price of a byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// α
    pub speed: f64,
    /// β
    pub energy: f64,
    /// γ
    pub money: f64,
    /// Instead of the greatest objective: the cheapest choice that is fast enough.
    pub at_least: Option<Rate>,
}

/// Where the device gets its energy from.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum Supply {
    #[default]
    Unknown,
    Mains,
    /// With this charge, from 0 to 1.
    Battery(f64),
}

/// A completion time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The median, and the interval that contains 80 %.
    pub seconds: f64,
    pub low: f64,
    pub high: f64,
}

/// The parts of an objective.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// S in bytes a second.
    pub speed: f64,
    /// E in joules a byte.
    pub energy: f64,
    /// M, with m₀.
    pub money: f64,
    /// ln O.
    pub objective: f64,
    /// Standard deviation of ln O.
    pub deviation: f64,
}

impl Goal {
    /// The shortest completion time: Max(S).
    pub const FAST: Self = Self { speed: 1.0, energy: 0.0, money: 0.0, at_least: None };
    /// Completion time and energy: Max(S/E).
    pub const BALANCED: Self = Self { speed: 1.0, energy: 1.0, money: 0.0, at_least: None };
    /// Completion time, energy and money.
    pub const THRIFTY: Self = Self { speed: 1.0, energy: 1.0, money: 1.0, at_least: None };

    const NAMES: [(&'static str, Self); 3] =
        [("fast", Self::FAST), ("balanced", Self::BALANCED), ("thrifty", Self::THRIFTY)];

    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(own, _)| *own == name).map(|(_, goal)| *goal)
    }

    /// Energy counts up to twice as much as the battery empties, and not at all on mains.
    pub fn supplied_by(self, supply: Supply) -> Self {
        let factor = match supply {
            Supply::Unknown => 1.0,
            Supply::Mains => 0.0,
            Supply::Battery(charge) => 2.0 - charge.clamp(0.0, 1.0),
        };
        Self { energy: self.energy * factor, ..self }
    }

    /// Money counts more if the plan is used faster than its month passes; both are shares.
    pub fn with_plan(self, used: f64, elapsed: f64) -> Self {
        let pace = (used / elapsed.max(1.0 / 31.0)).clamp(1.0, 10.0);
        Self { money: self.money * pace, ..self }
    }

    /// Rates a transfer of `size`. `price` is that of a byte: 1 on a metered network, 0 on others,
    /// or any price in the same unit.
    pub fn terms(
        &self,
        prediction: Prediction,
        size: Size,
        energy: TransferEnergy,
        price: f64,
    ) -> Terms {
        let bytes = size.as_bytes().max(1) as f64;
        let money = price + MIN_PRICE;
        let at = |seconds: f64| {
            let seconds = seconds.max(1e-9);
            let (speed, energy) = (bytes / seconds, energy.joules(size, seconds) / bytes);
            let log = |value: f64, exponent: f64| match exponent == 0.0 {
                true => 0.0,
                false => value.max(f64::MIN_POSITIVE).ln() * exponent,
            };
            let objective =
                log(speed, self.speed) - log(energy, self.energy) - log(money, self.money);
            (speed, energy, objective)
        };
        let (speed, energy, objective) = at(prediction.seconds);
        let width = at(prediction.low).2 - at(prediction.high).2;
        Terms { speed, energy, money, objective, deviation: width.abs() / (2.0 * END_OF_80) }
    }
}

impl Prediction {
    /// Without an interval.
    pub fn exact(seconds: f64) -> Self {
        Self { seconds, low: seconds, high: seconds }
    }
}

impl Terms {
    /// The probability that this objective is greater than another one, if both logarithms are
    /// normal and independent.
    pub fn probability_over(&self, other: &Self) -> f64 {
        let deviation = self.deviation.hypot(other.deviation).max(1e-9);
        normal((self.objective - other.objective) / deviation)
    }
}

/// The objective of a distribution of sizes: the expected logarithm, so that units do not matter.
pub fn expected(terms: &[(f64, Terms)]) -> Terms {
    let mean =
        |value: fn(&Terms) -> f64| terms.iter().map(|(weight, one)| weight * value(one)).sum();
    Terms {
        speed: mean(|one| one.speed),
        energy: mean(|one| one.energy),
        money: mean(|one| one.money),
        objective: mean(|one| one.objective),
        deviation: mean(|one| one.deviation),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEGABYTE: Size = Size::from_bytes(1_000_000);

    fn energy() -> TransferEnergy {
        TransferEnergy::constant(1.674, 5.0)
    }

    #[test]
    fn the_objective_is_that_of_the_thesis() {
        let terms =
            |goal: Goal, price| goal.terms(Prediction::exact(2.0), MEGABYTE, energy(), price);
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        near(terms(Goal::FAST, 0.0).objective, 500_000_f64.ln());
        let per_byte: f64 = (2.0 * 1.674 + 5.0) / 1e6;
        near(terms(Goal::BALANCED, 0.0).objective, (500_000.0 / per_byte).ln());
        let thrifty = [0.0, 1.0].map(|price| terms(Goal::THRIFTY, price).objective);
        near(thrifty[0] - thrifty[1], 11_f64.ln());
    }

    #[test]
    fn the_state_of_the_device_changes_the_exponents() {
        let energy = |supply| Goal::BALANCED.supplied_by(supply).energy;
        assert_eq!(energy(Supply::Unknown), 1.0);
        assert_eq!((energy(Supply::Battery(1.0)), energy(Supply::Battery(0.0))), (1.0, 2.0));
        assert_eq!(energy(Supply::Mains), 0.0);
        let money = |used, elapsed| Goal::THRIFTY.with_plan(used, elapsed).money;
        assert_eq!((money(0.2, 0.5), money(0.75, 0.25), money(0.0, 0.0)), (1.0, 3.0, 1.0));
    }

    #[test]
    fn intervals_decide_how_sure_a_choice_is() {
        let terms = |low, seconds, high| {
            Goal::FAST.terms(Prediction { seconds, low, high }, MEGABYTE, energy(), 0.0)
        };
        let (fast, slow) = (terms(1.0, 2.0, 4.0), terms(2.0, 4.0, 8.0));
        let probability = fast.probability_over(&slow);
        // ln 2 over √2 times ln 2 / 1.28.
        assert!((probability - normal(END_OF_80 / 2_f64.sqrt())).abs() < 1e-9);
        assert!((slow.probability_over(&fast) + probability - 1.0).abs() < 1e-6);
        let sure = terms(2.0, 2.0, 2.0).probability_over(&terms(2.1, 2.1, 2.1));
        assert!(sure > 0.999);
    }

    proptest! {
        #[test]
        fn the_best_choice_is_free_of_units(
            choices in prop::collection::vec((0.01_f64..100.0, 0.1_f64..5.0, 0.0_f64..3.0), 2..5),
            exponents in (0.0_f64..3.0, 0.0_f64..3.0, 0.0_f64..3.0),
            factor in 0.001_f64..1000.0,
        ) {
            // A joule that is another number of joules changes no order.
            let (speed, energy, money) = exponents;
            let goal = Goal { speed, energy, money, at_least: None };
            let rated = |factor: f64| -> Vec<f64> {
                let terms = |(seconds, watts, price): &(f64, f64, f64)| {
                    let energy = TransferEnergy::constant(watts * factor, factor);
                    goal.terms(Prediction::exact(*seconds), MEGABYTE, energy, *price).objective
                };
                choices.iter().map(terms).collect()
            };
            let (one, other) = (rated(1.0), rated(factor));
            for (a, b) in one.iter().zip(&other) {
                let shift = one[0] - other[0];
                prop_assert!((a - b - shift).abs() < 1e-6, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn absurd_states_and_predictions_leave_finite_numbers() {
        let energy = |charge| Goal::BALANCED.supplied_by(Supply::Battery(charge)).energy;
        assert_eq!((energy(7.0), energy(-7.0)), (1.0, 2.0));
        let money = |used, elapsed| Goal::THRIFTY.with_plan(used, elapsed).money;
        assert_eq!((money(9.0, 0.1), money(1.0, 0.1)), (10.0, 10.0));
        assert!((money(0.1, 0.0) - 3.1).abs() < 1e-9, "the first day counts as a day");
        for seconds in [0.0, f64::INFINITY] {
            let terms =
                Goal::FAST.terms(Prediction::exact(seconds), Size::ZERO, self::energy(), 0.0);
            assert!(terms.objective.is_finite() && !terms.deviation.is_nan(), "{terms:?}");
            assert!((terms.probability_over(&terms) - 0.5).abs() < 1e-6);
        }
    }

    #[test]
    fn terms_of_several_sizes_are_weighted() {
        let one = |value: f64| Terms {
            speed: value,
            energy: value * 2.0,
            money: value * 3.0,
            objective: value * 4.0,
            deviation: value * 5.0,
        };
        assert_eq!(expected(&[(0.75, one(1.0)), (0.25, one(5.0))]), one(2.0));
    }
}
