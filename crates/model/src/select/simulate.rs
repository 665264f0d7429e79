//! Policies on a table of transfers whose completion times are known for every choice.
//!
//! Regret is ln(O of the best choice / O of the taken one). A policy *recovers* the share of the mean
//! regret that the better of the two fixed networks has, chosen on the places of the training.

mod policy;

use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span};

pub use self::policy::{Policy, Rule};
use super::energy::TransferEnergy;
use super::features::Role;
use super::indicator::Indicators;
use super::model::Carriage;
use super::objective::{Goal, Prediction};

/// By how much a choice that is too slow is below all others.
const SLOW: f64 = 1e-3;

/// A transfer, and what it would have taken over each choice.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub place: String,
    /// Cases of one group are in the training or in the test, never in both.
    pub group: String,
    /// When the network was chosen, in seconds.
    pub second: u64,
    pub size: Size,
    /// Of Wi-Fi and LTE ([`Role`]), before the transfer.
    pub indicators: [Indicators; 2],
    /// Seconds.
    pub outcomes: BTreeMap<Carriage, f64>,
}

/// Energy and price of the networks in a simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    pub wifi: TransferEnergy,
    pub lte: TransferEnergy,
    /// Price of a byte over LTE; Wi-Fi has none.
    pub lte_price: f64,
}

/// The regrets of a policy.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Regrets(Vec<f64>);

/// Those of the thesis: watts of downloads from table 3.4, and LTE's tail of 11.576 s at 1.060 W (Huang
/// et al., MobiSys 2012, which the thesis names as source).
impl Default for Costs {
    fn default() -> Self {
        Self {
            wifi: TransferEnergy::constant(0.428, 0.0),
            lte: TransferEnergy::constant(1.674, 11.576 * 1.060),
            lte_price: 1.0,
        }
    }
}

impl Costs {
    fn energy(&self, carriage: Carriage) -> TransferEnergy {
        match carriage {
            Carriage::Only(Role::Wifi) => self.wifi,
            Carriage::Only(Role::Lte) => self.lte,
            Carriage::Both(_) => self.wifi.with(self.lte),
        }
    }

    fn price(&self, carriage: Carriage) -> f64 {
        match carriage {
            Carriage::Only(Role::Wifi) => 0.0,
            Carriage::Only(Role::Lte) => self.lte_price,
            Carriage::Both(_) => self.lte_price / 2.0,
        }
    }

    /// Joules of a transfer that takes this long.
    pub fn joules(&self, carriage: Carriage, size: Size, seconds: f64) -> f64 {
        self.energy(carriage).joules(size, seconds)
    }

    /// ln O of a transfer over a choice.
    ///
    /// With [`Goal::at_least`] it is that of the price if the choice is fast enough. A slower choice is
    /// below the dearest one, by the logarithm of the missing speed.
    pub fn objective(
        &self,
        goal: &Goal,
        size: Size,
        carriage: Carriage,
        prediction: Prediction,
    ) -> f64 {
        let rate = |price: f64| goal.terms(prediction, size, self.energy(carriage), price);
        let terms = rate(self.price(carriage));
        let Some(at_least) = goal.at_least else { return terms.objective };
        let span = Span::from_secs_f64(prediction.high).max(Span::from_nanos(1));
        if Rate::of(size, span) >= at_least {
            // Energy decides between equal prices, as in a `Selector`.
            return -terms.money.ln() - terms.energy * 1e-9;
        }
        let dearest = rate(self.lte_price.max(0.0)).money.ln();
        let missing = terms.speed * 8.0 / at_least.as_bps().max(1) as f64;
        // A median that is fast enough is not, where its interval is too wide.
        missing.min(1.0).ln() - dearest - SLOW
    }
}

impl Case {
    /// ln O of a choice; `None` if its outcome is not known.
    pub fn objective(&self, goal: &Goal, costs: &Costs, carriage: Carriage) -> Option<f64> {
        let prediction = Prediction::exact(*self.outcomes.get(&carriage)?);
        Some(costs.objective(goal, self.size, carriage, prediction))
    }

    /// The best of some choices: the oracle.
    pub fn best(&self, goal: &Goal, costs: &Costs, among: &[Carriage]) -> Option<(Carriage, f64)> {
        let known = among.iter().filter_map(|one| Some((*one, self.objective(goal, costs, *one)?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Regrets {
    /// Adds the regret of a choice among some. A choice without a known outcome is not counted.
    pub fn add(
        &mut self,
        case: &Case,
        goal: &Goal,
        costs: &Costs,
        among: &[Carriage],
        taken: Carriage,
    ) {
        let best = case.best(goal, costs, among);
        if let Some(((_, best), taken)) = best.zip(case.objective(goal, costs, taken)) {
            self.0.push((best - taken).max(0.0));
        }
    }

    /// Adds those of other cases.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Those at these indices, which exist.
    #[must_use]
    pub fn of(&self, indices: &[usize]) -> Self {
        Self(indices.iter().filter_map(|index| self.0.get(*index).copied()).collect())
    }

    /// In the order in which they were added.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Mean; 0 without cases.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// Share of the cases in which the objective is within `share` of the best one.
    pub fn within(&self, share: f64) -> f64 {
        let limit = -(1.0 - share).ln() + 1e-12;
        self.0.iter().filter(|regret| **regret <= limit).count() as f64 / self.0.len().max(1) as f64
    }

    /// Share of the cases in which the best choice was taken.
    pub fn right(&self) -> f64 {
        self.within(0.0)
    }

    /// The share of the mean regret of a fixed choice that this policy does not have.
    pub fn recovered(&self, fixed: &Self) -> f64 {
        1.0 - self.mean() / fixed.mean().max(1e-12)
    }
}

/// The fixed choice with the smallest mean regret in the training.
pub fn best_fixed(
    cases: &[&Case],
    goal: &Goal,
    costs: &Costs,
    among: &[Carriage],
) -> Option<Carriage> {
    let mean = |fixed: Carriage| {
        let mut regrets = Regrets::default();
        cases.iter().for_each(|case| regrets.add(case, goal, costs, among, fixed));
        regrets.mean()
    };
    among.iter().copied().min_by(|a, b| mean(*a).total_cmp(&mean(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: Carriage = Carriage::Only(Role::Wifi);
    const LTE: Carriage = Carriage::Only(Role::Lte);
    const BOTH: [Carriage; 2] = [WIFI, LTE];

    fn case(wifi: f64, lte: f64) -> Case {
        let outcomes = BTreeMap::from([(WIFI, wifi), (LTE, lte)]);
        Case {
            place: "p".to_owned(),
            group: "a".to_owned(),
            second: 10,
            size: Size::from_bytes(1_000_000),
            indicators: Default::default(),
            outcomes,
        }
    }

    fn costs() -> Costs {
        let wifi = TransferEnergy::constant(0.428, 0.0);
        Costs { wifi, lte: TransferEnergy::constant(1.674, 0.0), lte_price: 1.0 }
    }

    fn regrets(goal: Goal, cases: &[Case], choose: impl Fn(&Case) -> Carriage) -> Regrets {
        let mut regrets = Regrets::default();
        for case in cases {
            regrets.add(case, &goal, &costs(), &BOTH, choose(case));
        }
        regrets
    }

    #[test]
    fn regret_is_the_logarithm_of_the_lost_objective() {
        let cases = [case(1.0, 2.0), case(1.0, 2.0), case(4.0, 2.0)];
        let wifi = regrets(Goal::FAST, &cases, |_| WIFI);
        assert!((wifi.mean() - 2_f64.ln() / 3.0).abs() < 1e-9);
        let lte = regrets(Goal::FAST, &cases, |_| LTE);
        assert!((lte.mean() - 2.0 * 2_f64.ln() / 3.0).abs() < 1e-9);
        let references: Vec<&Case> = cases.iter().collect();
        assert_eq!(best_fixed(&references, &Goal::FAST, &costs(), &BOTH), Some(WIFI));
        let oracle =
            regrets(Goal::FAST, &cases, |case| case.best(&Goal::FAST, &costs(), &BOTH).unwrap().0);
        assert_eq!((oracle.mean(), oracle.recovered(&wifi), oracle.right()), (0.0, 1.0, 1.0));
        assert!((lte.recovered(&wifi) + 1.0).abs() < 1e-9);
    }

    #[test]
    fn energy_makes_another_choice_best() {
        // LTE takes a half of the time and twice the energy a byte.
        let slow = case(2.0, 1.0);
        let best = |goal| slow.best(&goal, &costs(), &BOTH).unwrap().0;
        assert_eq!((best(Goal::FAST), best(Goal::BALANCED), best(Goal::THRIFTY)), (LTE, LTE, WIFI));
    }

    #[test]
    fn the_cheapest_choice_that_is_fast_enough_is_best() {
        let best = |at_least: u64, wifi, lte| {
            let goal = Goal { at_least: Some(Rate::from_mbps(at_least)), ..Goal::FAST };
            case(wifi, lte).best(&goal, &costs(), &BOTH).unwrap().0
        };
        // A megabyte in 2 s is 4 Mbit/s, and in 1 s it is 8 Mbit/s.
        assert_eq!((best(4, 2.0, 1.0), best(5, 2.0, 1.0), best(20, 2.0, 1.0)), (WIFI, LTE, LTE));
        assert_eq!(best(20, 1.0, 2.0), WIFI);
        let goal = Goal { at_least: Some(Rate::from_mbps(8)), ..Goal::FAST };
        let of = |carriage, seconds, high| {
            let prediction = Prediction { seconds, low: seconds, high };
            costs().objective(&goal, Size::from_bytes(1_000_000), carriage, prediction)
        };
        assert!(of(LTE, 1.0, 1.0) > of(WIFI, 1.0, 2.0));
    }

    #[test]
    fn a_small_loss_counts_as_within() {
        let cases = [case(1.0, 1.04), case(1.0, 1.1)];
        let lte = regrets(Goal::FAST, &cases, |_| LTE);
        assert_eq!((lte.within(0.05), lte.right(), lte.count()), (0.5, 0.0, 2));
    }
}
