//! Choices at unseen and at seen places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;

use manyways_model::select::model::{self, Carriage, DEFAULT, Model};
use manyways_model::select::simulate::{Case, Costs, Policy, Regrets, Rule, best_fixed};
use manyways_model::select::transfers::{self, Transfer};
use manyways_model::select::{Baseline, Goal, Indicator, Role, Sizes};
use manyways_net::steer::train::{Learner, Training};
use manyways_rig::order::hash;
use manyways_rig::sample::median;
use manyways_unit::Time;
use serde::Serialize;

use super::data::Set;

/// The choices of one network.
pub const NETWORKS: [Carriage; 2] = [Carriage::Only(Role::Wifi), Carriage::Only(Role::Lte)];
/// The goals, with their names in the thesis.
pub const GOALS: [(&str, Goal); 2] = [("Max(S)", Goal::FAST), ("Max(S/E)", Goal::BALANCED)];
/// An objective within this share of the best one counts as near.
const NEAR: f64 = 0.05;
/// Splits of the decisions at seen places.
const SPLITS: u64 = 10;
/// Share of the transfers whose size is unknown (the thesis, §3.6.2), in percent.
const UNKNOWN: u64 = 16;

/// Choices of one rule at the places of a set.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub set: String,
    pub goal: &'static str,
    /// Whether both networks at once can be chosen too.
    pub with_both: bool,
    pub rule: String,
    pub cases: usize,
    /// Share of the mean regret of the better fixed network, as chosen in the training.
    pub recovered: f64,
    /// Share of the cases within 5 % of the best objective.
    pub near: f64,
    /// Share of the cases with the best choice.
    pub right: f64,
    /// Mean ln regret.
    pub regret: f64,
}

/// Models of one fold.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The group that the models have not seen.
    pub group: String,
    pub tree: Model,
    pub svr: Model,
    pub ours: Model,
}

/// Right choices at seen places (figure 3-9 of the thesis).
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    pub set: String,
    pub goal: &'static str,
    /// Source of errors, as in the thesis.
    pub source: &'static str,
    pub right: f64,
    pub recovered: f64,
    /// Median relative error of the completion times.
    pub error: f64,
}

/// Energy and prices of the simulations.
pub fn costs() -> Costs {
    Costs::default()
}

/// The default model.
pub fn default_model() -> Result<Model, String> {
    model::parse(DEFAULT.trim_end()).map_err(|error| format!("the default model: {error}"))
}

/// Trains without one group, for each group.
pub fn train_folds(python: &Path, transfers: &[Transfer]) -> Result<Vec<Fold>, String> {
    let groups: BTreeSet<&str> = transfers.iter().map(|one| one.group.as_str()).collect();
    let fold = |group: &str| {
        let own = transfers.iter().filter(|one| one.group != group);
        let table = transfers::training_table(own.clone());
        let of_paper: Vec<Transfer> = own.map(as_in_the_paper).collect();
        let of_paper = transfers::training_table(&of_paper);
        let train = |learner| {
            let mut training = Training::new(python, learner);
            let is_ours = learner == Learner::Boosted;
            training.base = is_ours.then(|| DEFAULT.trim_end().to_owned());
            let table = if is_ours { &table } else { &of_paper };
            let trained = training.train(table).map_err(|error| error.to_string())?;
            Ok::<Model, String>(trained.model)
        };
        let (tree, svr) = (train(Learner::Tree)?, train(Learner::Svr)?);
        Ok(Fold { group: group.to_owned(), tree, svr, ours: train(Learner::Boosted)? })
    };
    let fold = &fold;
    thread::scope(|scope| {
        let running: Vec<_> = groups.iter().map(|group| scope.spawn(move || fold(group))).collect();
        let joined = running.into_iter().map(|one| one.join());
        joined.map(|one| one.unwrap_or_else(|_| Err("a training panicked".to_owned()))).collect()
    })
}

/// The default model for each group, although it has seen it if the set is (c).
pub fn default_folds(transfers: &[Transfer]) -> Result<Vec<Fold>, String> {
    let groups: BTreeSet<&str> = transfers.iter().map(|one| one.group.as_str()).collect();
    let model = default_model()?;
    let fold = |group: &str| {
        let [tree, svr, ours] = [(); 3].map(|()| model.clone());
        Fold { group: group.to_owned(), tree, svr, ours }
    };
    Ok(groups.into_iter().map(fold).collect())
}

/// A transfer with the indicators of table 3.2 only.
fn as_in_the_paper(one: &Transfer) -> Transfer {
    let mut one = one.clone();
    for indicators in &mut one.indicators {
        indicators.set(Time::ZERO, Indicator::UdpRateBefore, f64::NAN);
    }
    one
}

/// All rules at the places that their models have not seen.
pub fn unseen(set: Set, transfers: &[Transfer], folds: &[Fold]) -> Result<Vec<Outcome>, String> {
    let cases = transfers::cases(transfers);
    let default = default_model()?;
    let mut found = Vec::new();
    for (name, goal) in GOALS {
        for with_both in [false, true] {
            let among: &[Carriage] = if with_both { &Carriage::ALL } else { &NETWORKS };
            let mut sums: BTreeMap<String, (usize, Regrets)> = BTreeMap::new();
            let mut fixed = Regrets::default();
            for fold in folds {
                let (test, training): (Vec<&Case>, Vec<&Case>) =
                    cases.iter().partition(|case| case.group == fold.group);
                let best = best_fixed(&training, &goal, &costs(), &NETWORKS);
                let best = best.ok_or("nothing to train with")?;
                fixed.extend(&regrets(Rule::Fixed(best), &test, &goal, among));
                for (place, (rule_name, rule)) in rules(fold, &default).into_iter().enumerate() {
                    let sum = sums.entry(rule_name).or_insert((place, Regrets::default()));
                    sum.1.extend(&regrets(rule, &test, &goal, among));
                }
            }
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_by_key(|(_, (place, _))| *place);
            found.extend(sums.into_iter().map(|(rule, (_, regrets))| Outcome {
                set: set.to_string(),
                goal: name,
                with_both,
                rule,
                cases: regrets.count(),
                recovered: regrets.recovered(&fixed),
                near: regrets.within(NEAR),
                right: regrets.right(),
                regret: regrets.mean(),
            }));
        }
    }
    Ok(found)
}

fn rules<'a>(fold: &'a Fold, default: &'a Model) -> Vec<(String, Rule<'a>)> {
    let baselines = Baseline::all().map(|one| (one.to_string(), Rule::Baseline(one)));
    let ours = [
        ("paper, tree", Rule::Model(&fold.tree)),
        ("paper, svr", Rule::Model(&fold.svr)),
        ("closed form", Rule::ClosedForm),
        ("default model", Rule::Model(default)),
        ("ours", Rule::Model(&fold.ours)),
        ("oracle", Rule::Oracle),
    ];
    baselines.chain(ours.map(|(name, rule)| (name.to_owned(), rule))).collect()
}

/// Regrets of a rule that knows the sizes.
fn regrets(rule: Rule<'_>, cases: &[&Case], goal: &Goal, among: &[Carriage]) -> Regrets {
    let known = |case: &Case| Sizes::known(case.size);
    regrets_with(rule, cases.iter().map(|case| (*case, *case)), known, goal, among)
}

/// Regrets of a rule that sees the first case of a pair, and meets the second one.
pub fn regrets_with<'a>(
    rule: Rule<'_>,
    cases: impl Iterator<Item = (&'a Case, &'a Case)>,
    sizes: impl Fn(&Case) -> Sizes,
    goal: &Goal,
    among: &[Carriage],
) -> Regrets {
    let (mut policy, costs) = (Policy::new(rule), costs());
    let mut regrets = Regrets::default();
    for (seen, met) in cases {
        if let Some(taken) = policy.choose(seen, &sizes(met), goal, &costs, among) {
            regrets.add(met, goal, &costs, among, taken);
            policy.ended(met, taken);
        }
    }
    regrets
}

/// Decisions at places that the training has seen, at other times.
pub fn seen(set: Set, transfers: &[Transfer], python: &Path) -> Result<Vec<Seen>, String> {
    let split = |place: &str, second: u64| hash(&format!("{place} {second}")) % SPLITS;
    let mut found: BTreeMap<(usize, usize), (Regrets, Regrets)> = BTreeMap::new();
    let mut errors = Vec::new();
    let cases = transfers::cases(transfers);
    for number in 0..SPLITS {
        let is_test = |place: &str, second: u64| split(place, second) == number;
        let training = transfers.iter().filter(|one| !is_test(&one.place, one.second));
        let mut trainer = Training::new(python, Learner::Boosted);
        trainer.base = Some(DEFAULT.trim_end().to_owned());
        trainer.is_fast = true;
        let trained = trainer.train(&transfers::training_table(training));
        let model = trained.map_err(|error| error.to_string())?.model;
        let test: Vec<&Case> =
            cases.iter().filter(|case| is_test(&case.place, case.second)).collect();
        let training: Vec<&Case> =
            cases.iter().filter(|case| !is_test(&case.place, case.second)).collect();
        errors.extend(test.iter().flat_map(|case| relative_errors(&model, case)));
        for (goal_index, (_, goal)) in GOALS.iter().enumerate() {
            let fixed = best_fixed(&training, goal, &costs(), &NETWORKS);
            let fixed = fixed.ok_or("nothing to train with")?;
            let of_fixed = regrets(Rule::Fixed(fixed), &test, goal, &Carriage::ALL);
            let pairs = || test.iter().map(|case| (*case, *case));
            let known = |case: &Case| Sizes::known(case.size);
            let unknown = |case: &Case| {
                let Case { place, second, size, .. } = case;
                let drawn = hash(&format!("{place} {second} {size:?}")) % 100;
                if drawn < UNKNOWN { Sizes::unknown(false) } else { Sizes::known(*size) }
            };
            let rule = Rule::Model(&model);
            let of = [
                regrets_with(rule, pairs(), known, goal, &Carriage::ALL),
                regrets_with(rule, pairs(), unknown, goal, &Carriage::ALL),
            ];
            for (source, regrets) in of.iter().enumerate() {
                let sum = found.entry((goal_index, source)).or_default();
                sum.0.extend(regrets);
                sum.1.extend(&of_fixed);
            }
        }
    }
    let error = median(errors).unwrap_or_default();
    let seen = |((goal, source), (regrets, fixed)): ((usize, usize), (Regrets, Regrets))| Seen {
        set: set.to_string(),
        goal: GOALS[goal].0,
        source: ["Active", "Active + 3 KB"][source],
        right: regrets.right(),
        recovered: regrets.recovered(&fixed),
        error,
    };
    Ok(found.into_iter().map(seen).collect())
}

/// Relative errors of the completion times of one network.
pub fn relative_errors<'a>(model: &'a Model, case: &'a Case) -> impl Iterator<Item = f64> + 'a {
    NETWORKS.into_iter().filter_map(move |carriage| {
        let features = transfers::features(carriage, case.size, &case.indicators);
        let predicted = model.predict(carriage, &features)?.prediction.seconds;
        let took = case.outcomes.get(&carriage)?;
        Some((predicted / took - 1.0).abs())
    })
}
