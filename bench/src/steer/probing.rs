//! Probes of an adaptive monitor, beside probes in a fixed interval: bytes, and the objective that
//! older results lose.
//!
//! A transfer begins every ten seconds, so that the probes in an interval of five seconds are two for
//! each. The results of a probe are those of the table at that second; a result that is older than
//! the decision is what the monitor kept.

use std::collections::BTreeMap;

use manyways_model::select::model::Carriage;
use manyways_model::select::simulate::{Case, Rule};
use manyways_model::select::transfers::{self, Transfer};
use manyways_model::select::{
    Indicator, Indicators, Monitor, ProbeDecision, ProbeLimits, Role, Sizes, Source,
};
use manyways_unit::{Size, Span, Time};
use serde::Serialize;

use super::data::{BURST_BYTES, PROBE_BYTES, Set};
use super::evaluate::{Fold, GOALS, NETWORKS, regrets_with};

/// Seconds between probes of the fixed policy, and between decisions.
const FIXED: f64 = 5.0;
const BETWEEN: f64 = 10.0;
/// The transfer by which a result is judged as predicted or not.
const TYPICAL: Size = Size::from_bytes(100_000);

/// An adaptive policy at the places of a set.
#[derive(Clone, Debug, Serialize)]
pub struct Probing {
    pub set: String,
    /// Whether pings come first, and a burst only if they differ.
    pub in_stages: bool,
    pub threshold: f64,
    /// Bytes of probes / those of whole probes each 5 s.
    pub bytes: f64,
    /// Mean ln regret for Max(S) / that with a whole probe before each decision.
    pub regret: f64,
}

pub fn probing(set: Set, all: &[Transfer], folds: &[Fold]) -> Result<Vec<Probing>, String> {
    let cases = transfers::cases(all);
    let whole = [0.0, 0.3].map(|threshold| (false, threshold));
    let in_stages = [0.1, 0.2, 0.3, 0.4, 0.5, 1.0].map(|threshold| (true, threshold));
    let one = |(in_stages, threshold)| one(set, in_stages, threshold, &cases, folds);
    Ok(whole.into_iter().chain(in_stages).map(one).collect())
}

fn one(set: Set, in_stages: bool, threshold: f64, cases: &[Case], folds: &[Fold]) -> Probing {
    let mut limits = ProbeLimits { threshold, ping_threshold: threshold, ..ProbeLimits::default() };
    if !in_stages {
        limits.blind = Span::from_secs_f64(BETWEEN);
    }
    let (mut bytes, mut decisions) = (0, 0_usize);
    let (mut kept_regret, mut fresh_regret) = (0.0, 0.0);
    for fold in folds {
        let test: Vec<&Case> = cases.iter().filter(|case| case.group == fold.group).collect();
        let mut kept: Vec<Case> = Vec::new();
        let mut places: BTreeMap<&str, BTreeMap<u64, &Case>> = BTreeMap::new();
        for case in &test {
            places.entry(&case.place).or_default().entry(case.second).or_insert(case);
        }
        let mut known: BTreeMap<(&str, u64), [Indicators; 2]> = BTreeMap::new();
        for (place, seconds) in places {
            let mut monitors = [Monitor::new(limits), Monitor::new(limits)];
            for (second, case) in seconds {
                for (role, monitor) in Role::ALL.into_iter().zip(&mut monitors) {
                    decisions += 1;
                    bytes += match in_stages {
                        true => step_in_stages(monitor, role, second, case),
                        false => step(monitor, role, second, case, fold),
                    };
                }
                known.insert(
                    (place, second),
                    monitors.each_ref().map(|one| one.indicators().clone()),
                );
            }
        }
        for case in &test {
            let indicators = known[&(case.place.as_str(), case.second)].clone();
            kept.push(Case { indicators, ..(*case).clone() });
        }
        let (_, goal) = GOALS[0];
        let rule = Rule::Model(&fold.ours);
        let sizes = |case: &Case| Sizes::known(case.size);
        let pairs = kept.iter().zip(test.iter().copied());
        let stale = regrets_with(rule, pairs, sizes, &goal, &NETWORKS);
        let pairs = test.iter().map(|case| (*case, *case));
        let fresh = regrets_with(rule, pairs, sizes, &goal, &NETWORKS);
        kept_regret += stale.mean() * stale.count() as f64;
        fresh_regret += fresh.mean() * fresh.count() as f64;
    }
    Probing {
        set: set.to_string(),
        in_stages,
        threshold,
        bytes: bytes as f64 / (decisions as f64 * BETWEEN / FIXED * PROBE_BYTES as f64),
        regret: kept_regret / fresh_regret,
    }
}

/// Probes by a monitor before one decision; returns their bytes.
fn step(monitor: &mut Monitor, role: Role, second: u64, case: &Case, fold: &Fold) -> u64 {
    let now = Time::from_millis(second * 1_000);
    set(monitor, role, now, case, |one| one.source() == Source::Passive);
    if !monitor.decide(now, true, Size::ZERO, Size::ZERO).is_probe() {
        return 0;
    }
    let seconds = |monitor: &Monitor| {
        let mut both = [Indicators::default(), Indicators::default()];
        both[role as usize] = monitor.indicators().clone();
        let carriage = Carriage::Only(role);
        let features = transfers::features(carriage, TYPICAL, &both);
        fold.ours.predict(carriage, &features).map(|one| one.prediction)
    };
    let before = seconds(monitor);
    set(monitor, role, now, case, |one| one.source() == Source::Active);
    let after = seconds(monitor);
    let is_as_predicted = before
        .zip(after)
        .is_some_and(|(before, after)| (before.low..=before.high).contains(&after.seconds));
    monitor.probed(now, is_as_predicted);
    PROBE_BYTES
}

/// The same in two stages.
fn step_in_stages(monitor: &mut Monitor, role: Role, second: u64, case: &Case) -> u64 {
    let now = Time::from_millis(second * 1_000);
    let is_burst = |one: Indicator| one.name().starts_with("udp");
    set(monitor, role, now, case, |one| one.source() != Source::Own && !is_burst(one));
    match monitor.decide_burst(now, ProbeLimits::default().blind) {
        ProbeDecision::Silent => monitor.silent(now),
        decision if decision.is_probe() => {
            set(monitor, role, now, case, is_burst);
            monitor.probed(now, false);
            return PROBE_BYTES;
        }
        _ => {}
    }
    PROBE_BYTES - BURST_BYTES
}

/// Sets what the table has at a decision.
fn set(
    monitor: &mut Monitor,
    role: Role,
    now: Time,
    case: &Case,
    is_meant: impl Fn(Indicator) -> bool,
) {
    let truth = &case.indicators[role as usize];
    // The monitor itself keeps the rate of the burst before.
    let meant = Indicator::ALL.into_iter().filter(|one| is_meant(*one));
    for indicator in meant.filter(|one| *one != Indicator::UdpRateBefore) {
        monitor.set(now, indicator, truth.value(indicator).unwrap_or(f64::NAN));
    }
}
