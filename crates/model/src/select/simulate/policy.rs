//! How a choice is made for a transfer of a table.

use manyways_unit::{Size, Span};

use super::{Case, Costs};
use crate::select::baseline::{Baseline, BaselinePolicy, NetworkKind, NetworkView};
use crate::select::features::Role;
use crate::select::history::Sizes;
use crate::select::indicator::{Indicator, Indicators};
use crate::select::model::{Carriage, Model};
use crate::select::objective::{Goal, Prediction};
use crate::select::{Choice, transfers};

/// A rule that selects a choice.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'a> {
    /// Always the same one.
    Fixed(Carriage),
    /// Another system's.
    Baseline(Baseline),
    /// The best one by the closed form.
    ClosedForm,
    /// The best one by a trained model.
    Model(&'a Model),
    /// The best one, known afterwards.
    Oracle,
}

/// A rule with its memory, which is empty again at each place.
#[derive(Clone, Debug)]
pub struct Policy<'a> {
    rule: Rule<'a>,
    place: String,
    memory: Option<BaselinePolicy>,
    /// Second of the last ping, so that several sizes at one decision share it.
    pinged: Option<u64>,
}

impl<'a> Policy<'a> {
    pub fn new(rule: Rule<'a>) -> Self {
        Self { rule, place: String::new(), memory: None, pinged: None }
    }

    /// The choice for a case; the first one of `among` if the rule knows nothing. `sizes`: those
    /// that are possible.
    pub fn choose(
        &mut self,
        case: &Case,
        sizes: &Sizes,
        goal: &Goal,
        costs: &Costs,
        among: &[Carriage],
    ) -> Option<Carriage> {
        let found = match self.rule {
            Rule::Fixed(carriage) => Some(carriage),
            Rule::Oracle => case.best(goal, costs, among).map(|(carriage, _)| carriage),
            Rule::Baseline(baseline) => self.baseline(baseline, case),
            Rule::ClosedForm => best(sizes, goal, costs, among, |carriage, size| {
                let seconds = transfers::closed_form(carriage, size, &case.indicators);
                Some(Prediction::exact(seconds))
            }),
            Rule::Model(model) => best(sizes, goal, costs, among, |carriage, size| {
                let features = transfers::features(carriage, size, &case.indicators);
                Some(model.predict(carriage, &features)?.prediction)
            }),
        };
        found.filter(|one| among.contains(one)).or_else(|| among.first().copied())
    }

    /// Notes that the transfer has ended over this choice.
    pub fn ended(&mut self, case: &Case, taken: Carriage) {
        if let (Some(memory), Some(seconds)) = (&mut self.memory, case.outcomes.get(&taken)) {
            memory.transferred(choice_of(taken), case.size, *seconds);
        }
    }

    fn baseline(&mut self, baseline: Baseline, case: &Case) -> Option<Carriage> {
        if self.place != case.place || self.memory.is_none() {
            self.place.clone_from(&case.place);
            self.memory = Some(BaselinePolicy::new(baseline));
            self.pinged = None;
        }
        let memory = self.memory.as_mut()?;
        if self.pinged != Some(case.second) {
            self.pinged = Some(case.second);
            for (network, indicators) in case.indicators.iter().enumerate() {
                let mean = indicators.value(Indicator::PingMean);
                memory.pinged(network, mean.map(Span::from_secs_f64));
            }
        }
        let view = |(indicators, kind)| NetworkView {
            kind,
            // As Android: a network is validated by a request that is answered.
            is_validated: is_reached(indicators),
            indicators,
        };
        let kinds = [NetworkKind::Wifi, NetworkKind::Cellular];
        let views: Vec<NetworkView<'_>> = case.indicators.iter().zip(kinds).map(view).collect();
        memory.choose(&views).map(carriage_of)
    }
}

/// Whether any probe was answered; true if nothing was probed.
fn is_reached(indicators: &Indicators) -> bool {
    let is_answered = indicators.value(Indicator::PingMean).is_some()
        || indicators.value(Indicator::DnsTime).is_some()
        || indicators.value(Indicator::UdpRate).is_some_and(|rate| rate > 0.0);
    is_answered || indicators.value(Indicator::UdpLoss).is_none()
}

/// The choice with the greatest expected objective.
fn best(
    sizes: &Sizes,
    goal: &Goal,
    costs: &Costs,
    among: &[Carriage],
    predict: impl Fn(Carriage, Size) -> Option<Prediction>,
) -> Option<Carriage> {
    let expected = |carriage: Carriage| {
        let one = |(size, weight): &(Size, f64)| {
            let prediction = predict(carriage, *size)?;
            Some(weight * costs.objective(goal, *size, carriage, prediction))
        };
        sizes.weighted.iter().map(one).sum::<Option<f64>>()
    };
    let known = among.iter().filter_map(|one| Some((*one, expected(*one)?)));
    // The first one of equal ones.
    let rated: Vec<(Carriage, f64)> = known.collect();
    rated.into_iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(carriage, _)| carriage)
}

fn carriage_of(choice: Choice) -> Carriage {
    let role = |network: usize| if network == 0 { Role::Wifi } else { Role::Lte };
    match choice {
        Choice::Only(network) => Carriage::Only(role(network)),
        Choice::Both(first, _) => Carriage::Both(role(first)),
    }
}

fn choice_of(carriage: Carriage) -> Choice {
    match carriage {
        Carriage::Only(role) => Choice::Only(role as usize),
        Carriage::Both(first) => Choice::Both(first as usize, 1 - first as usize),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use manyways_unit::Time;

    use super::*;
    use crate::select::energy::TransferEnergy;

    const WIFI: Carriage = Carriage::Only(Role::Wifi);
    const LTE: Carriage = Carriage::Only(Role::Lte);

    /// Round trips in milliseconds and rates of both networks.
    fn case(second: u64, networks: [(f64, f64); 2], outcomes: [f64; 2]) -> Case {
        let mut indicators = [Indicators::default(), Indicators::default()];
        for (one, (millis, mbps)) in indicators.iter_mut().zip(networks) {
            one.set(Time::ZERO, Indicator::UdpRate, mbps);
            one.set(Time::ZERO, Indicator::UdpLoss, if mbps > 0.0 { 0.0 } else { 1.0 });
            if mbps > 0.0 {
                one.set(Time::ZERO, Indicator::PingMean, millis / 1e3);
            }
        }
        let outcomes = BTreeMap::from([(WIFI, outcomes[0]), (LTE, outcomes[1])]);
        let (place, group) = ("p".to_owned(), "g".to_owned());
        Case { place, group, second, size: Size::from_bytes(10_000), indicators, outcomes }
    }

    fn take(policy: &mut Policy<'_>, case: &Case, size: u64) -> Carriage {
        let wifi = TransferEnergy::constant(0.428, 0.0);
        let costs = Costs { wifi, lte: TransferEnergy::constant(1.674, 12.3), lte_price: 1.0 };
        let sizes = Sizes::known(Size::from_bytes(size));
        let taken = policy.choose(case, &sizes, &Goal::FAST, &costs, &[WIFI, LTE]).unwrap();
        policy.ended(case, taken);
        taken
    }

    #[test]
    fn the_closed_form_weighs_round_trip_and_rate_by_the_size() {
        let one = case(10, [(10.0, 5.0), (60.0, 50.0)], [1.0, 1.0]);
        let mut policy = Policy::new(Rule::ClosedForm);
        let taken = [3_000, 10_000_000].map(|size| take(&mut policy, &one, size));
        assert_eq!(taken, [WIFI, LTE]);
    }

    #[test]
    fn a_baseline_remembers_within_a_place_only() {
        let mut policy = Policy::new(Rule::Baseline(Baseline::RecentBest));
        let slow = case(10, [(10.0, 5.0), (60.0, 50.0)], [2.0, 1.0]);
        let taken: Vec<Carriage> = (0..3).map(|_| take(&mut policy, &slow, 1_000)).collect();
        assert_eq!(taken, [WIFI, LTE, LTE]);
        let elsewhere = Case { place: "q".to_owned(), ..slow };
        assert_eq!(take(&mut policy, &elsewhere, 1_000), WIFI);
    }

    #[test]
    fn a_network_that_answers_nothing_is_left_by_android_at_once_and_by_mwan3_after_three_pings() {
        let dead = |second| case(second, [(10.0, 0.0), (60.0, 50.0)], [9.0, 1.0]);
        let mut android = Policy::new(Rule::Baseline(Baseline::Android));
        assert_eq!(take(&mut android, &dead(10), 1_000), LTE);
        let mut mwan3 = Policy::new(Rule::Baseline(Baseline::Mwan3));
        // Two sizes at one decision are one ping.
        let taken = [10, 10, 20, 30].map(|second| take(&mut mwan3, &dead(second), 1_000));
        assert_eq!(taken, [WIFI, WIFI, WIFI, LTE]);
    }

    #[test]
    fn the_oracle_takes_the_shortest() {
        let one = case(10, [(10.0, 5.0), (60.0, 50.0)], [2.0, 1.0]);
        assert_eq!(take(&mut Policy::new(Rule::Oracle), &one, 1_000), LTE);
        assert_eq!(take(&mut Policy::new(Rule::Fixed(WIFI)), &one, 1_000), WIFI);
    }
}
