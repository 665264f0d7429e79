//! Evaluation of a policy over time.

use std::collections::HashMap;

use manyways_unit::{Size, Time};

use super::condition::{Condition, Subject};
use super::gauge::Gauge;
use super::leader::Leader;
use super::paths::{PathFacts, Paths, Surroundings};
use super::range::Bytes;
use super::selector::{Flow, Selector};
use super::{Action, Policy, Primary};
use crate::sched::{PathSet, Treatment};

/// Treatment of a flow as decided by a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Through the bond.
    Bond(Treatment),
    /// Directly, without the bond. A flow that is already in the bond stays there.
    Direct,
    /// Refused; a running flow is ended.
    Block,
}

/// A decision and its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict<'e> {
    pub decision: Decision,
    /// Name of the rule. `None` if no rule matched and the default decided.
    pub rule: Option<&'e str>,
}

/// A policy with its state.
///
/// Call [`observe`](Self::observe) when the surroundings change and at
/// [`next_wakeup`](Self::next_wakeup). If it returns true, decide again about all running flows;
/// about one flow also when it reaches [`ask_again_at`](Self::ask_again_at). Measured values count
/// after they have persisted (see `docs/bond-policy.md`), so that decisions do not flap.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) policy: Policy,
    /// As observed.
    told: Surroundings,
    /// As observed, with the `metered` settings of the policy applied.
    surroundings: Surroundings,
    /// All different conditions of the rules.
    pub(super) gauges: Vec<(Condition, Gauge)>,
    leaders: Vec<(Paths, Leader)>,
    /// Indices of the gauges of each rule.
    pub(super) wanted: Vec<Vec<usize>>,
    /// Current decision of each rule; the last one is the default.
    decisions: Vec<Decision>,
}

impl Engine {
    /// Creates an engine without observations: no rule with conditions matches.
    pub fn new(policy: Policy) -> Self {
        let mut gauges: Vec<(Condition, Gauge)> = Vec::new();
        let mut leaders: Vec<(Paths, Leader)> = Vec::new();
        let mut places: HashMap<Condition, usize> = HashMap::new();
        let mut wanted = Vec::with_capacity(policy.rules.len());
        for rule in &policy.rules {
            let place = |condition: &Condition| {
                *places.entry(condition.clone()).or_insert_with(|| {
                    gauges.push((condition.clone(), Gauge::default()));
                    gauges.len() - 1
                })
            };
            wanted.push(rule.when.iter().map(place).collect());
        }
        let actions = policy.rules.iter().map(|rule| &rule.action).chain([&policy.default]);
        let led = actions.filter_map(|action| match action {
            Action::Bond { primary: Some(Primary::LowestLatency), paths, .. } => Some(paths),
            _ => None,
        });
        for paths in led {
            if !leaders.iter().any(|(known, _)| known == paths) {
                leaders.push((paths.clone(), Leader::default()));
            }
        }
        let mut engine = Self {
            policy,
            told: Surroundings::default(),
            surroundings: Surroundings::default(),
            gauges,
            leaders,
            wanted,
            decisions: Vec::new(),
        };
        engine.decisions = engine.decisions();
        engine
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Processes the surroundings at `now`. Returns whether decisions may differ from the previous
    /// ones.
    pub fn observe(&mut self, now: Time, surroundings: &Surroundings) -> bool {
        self.told = surroundings.clone();
        self.update(now)
    }

    /// Replaces the policy and keeps the state of conditions that both policies have. Returns
    /// whether decisions may differ from the previous ones.
    pub fn replace(&mut self, now: Time, policy: Policy) -> bool {
        let mut next = Self::new(policy);
        let gauges: HashMap<&Condition, Gauge> =
            self.gauges.iter().map(|(condition, gauge)| (condition, *gauge)).collect();
        for (condition, gauge) in &mut next.gauges {
            *gauge = gauges.get(condition).copied().unwrap_or_default();
        }
        for (paths, leader) in &mut next.leaders {
            let known = self.leaders.iter().find(|(known, _)| known == paths);
            *leader = known.map(|(_, leader)| *leader).unwrap_or_default();
        }
        next.told = std::mem::take(&mut self.told);
        let differs = next.policy != self.policy;
        if !differs {
            next.decisions = std::mem::take(&mut self.decisions);
        }
        *self = next;
        self.update(now) || differs
    }

    fn update(&mut self, now: Time) -> bool {
        self.surroundings = self.told.clone();
        for path in &mut self.surroundings.paths {
            path.metered = self.policy.is_metered(path);
        }
        let known = &self.surroundings.paths;
        for (paths, leader) in &mut self.leaders {
            leader.observe(now, paths, known);
        }
        let left = |path: &PathFacts| {
            let plan = self.policy.plan(&path.name, &path.kind)?;
            Some(plan.monthly.saturating_sub(path.used?))
        };
        let mut differs = false;
        for (condition, gauge) in &mut self.gauges {
            let leader = match &condition.subject {
                Subject::LowestLatency(paths) => leader_of(&self.leaders, paths),
                _ => None,
            };
            let reading = condition.reading(&self.surroundings, leader, &left);
            let before = gauge.holds();
            gauge.observe(now, &condition.test, reading);
            differs |= gauge.holds() != before;
        }
        let decisions = self.decisions();
        differs |= decisions != self.decisions;
        self.decisions = decisions;
        differs
    }

    fn decisions(&self) -> Vec<Decision> {
        let rules = self.policy.rules.iter().map(|rule| &rule.action);
        rules.chain([&self.policy.default]).map(|action| self.carry_out(action)).collect()
    }

    fn carry_out(&self, action: &Action) -> Decision {
        let (scheduler, paths, primary, priority) = match action {
            Action::Direct => return Decision::Direct,
            Action::Block => return Decision::Block,
            Action::Bond { scheduler, paths, primary, priority } => {
                (*scheduler, paths, primary, *priority)
            }
        };
        let known = &self.surroundings.paths;
        let set = paths.among(known);
        let primary = match primary {
            None => None,
            Some(Primary::LowestLatency) => leader_of(&self.leaders, paths).and_then(Leader::path),
            Some(Primary::Paths(primary)) => {
                let mut fit = known.iter().filter(|path| set.has(path.id) && primary.fits(path));
                let first = fit.clone().next();
                fit.find(|path| path.up).or(first).map(|path| path.id)
            }
        };
        Decision::Bond(Treatment { scheduler, paths: set, primary, priority })
    }

    /// Decides about `flow`.
    pub fn decide(&self, flow: &Flow<'_>) -> Verdict<'_> {
        let first = (0..self.policy.rules.len()).find(|index| self.matches(*index, flow));
        self.verdict(first)
    }

    /// Returns the decision of the rule at `index`, or of the default for `None`.
    pub(super) fn verdict(&self, index: Option<usize>) -> Verdict<'_> {
        let place = index.unwrap_or(self.policy.rules.len());
        Verdict {
            // The default always exists; without it, traffic must not pass.
            decision: self.decisions.get(place).copied().unwrap_or(Decision::Block),
            rule: index
                .and_then(|index| self.policy.rules.get(index))
                .map(|rule| rule.name.as_str()),
        }
    }

    fn matches(&self, index: usize, flow: &Flow<'_>) -> bool {
        self.policy.rules.get(index).is_some_and(|rule| rule.is_about(flow)) && self.applies(index)
    }

    /// Returns whether the conditions of a rule hold.
    fn applies(&self, index: usize) -> bool {
        let wanted = self.wanted.get(index).map_or(&[][..], Vec::as_slice);
        wanted.iter().all(|gauge| self.gauges.get(*gauge).is_some_and(|(_, gauge)| gauge.holds()))
    }

    /// Returns the size at which the decision about `flow` may change if nothing else does. `None`
    /// if the decision does not depend on the size.
    pub fn ask_again_at(&self, flow: &Flow<'_>) -> Option<Size> {
        let mut next: Option<Size> = None;
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let fits = |one: &&Selector| one.fits_but_for_bytes(flow);
            if self.applies(index) && rule.only.iter().any(|one| fits(&one)) {
                let selectors = rule.only.iter().chain(&rule.not).filter(fits);
                let edges = selectors.flat_map(|one| &one.bytes).flat_map(Bytes::edges);
                next = edges.filter(|edge| *edge > flow.bytes).chain(next).min();
                if rule.is_about(flow) {
                    break;
                }
            }
        }
        next
    }

    /// Returns when to call [`observe`](Self::observe) again even if nothing changes, because a
    /// value will have persisted long enough.
    pub fn next_wakeup(&self) -> Option<Time> {
        let gauges = self.gauges.iter().filter_map(|(one, gauge)| gauge.turns_at(&one.test));
        gauges.chain(self.leaders.iter().filter_map(|(_, leader)| leader.turns_at())).min()
    }

    /// Returns whether none of `paths` is up.
    pub(super) fn is_nowhere(&self, paths: PathSet) -> bool {
        !self.surroundings.paths.iter().any(|path| path.up && paths.has(path.id))
    }
}

fn leader_of<'l>(leaders: &'l [(Paths, Leader)], paths: &Paths) -> Option<&'l Leader> {
    leaders.iter().find(|(known, _)| known == paths).map(|(_, leader)| leader)
}
