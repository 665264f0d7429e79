//! Evaluation of a policy over time.

use std::collections::HashMap;

use manyways_unit::{Size, Time};

use super::auto::AllowedPaths;
use super::condition::{Condition, Subject};
use super::hysteresis::ConditionState;
use super::lowest_latency::LowestLatencyPath;
use super::paths::{Environment, PathFacts};
use super::range::ByteRange;
use super::selector::{Flow, Selector};
use super::{Action, Policy, Primary};
use crate::sched::{PathSet, StreamPolicy};

/// Treatment of a flow as decided by a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Through the bond.
    Bond(StreamPolicy),
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
/// Call [`observe`](Self::observe) when the environment changes and at
/// [`next_wakeup`](Self::next_wakeup). If it returns true, decide again about all running flows;
/// about one flow also when it reaches [`reevaluate_at`](Self::reevaluate_at). Measured values
/// count after they have persisted (see `docs/bond-policy.md`), so that decisions do not flap.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) policy: Policy,
    /// As observed.
    observed: Environment,
    /// As observed, with the `metered` settings of the policy applied.
    pub(super) environment: Environment,
    /// All different conditions of the rules.
    pub(super) condition_states: Vec<(Condition, ConditionState)>,
    lowest_latency_paths: Vec<(AllowedPaths, LowestLatencyPath)>,
    /// Indices of the gauges of each rule.
    pub(super) rule_conditions: Vec<Vec<usize>>,
    /// Current decision of each rule; the last one is the default.
    decisions: Vec<Decision>,
}

impl Engine {
    /// Creates an engine without observations: no rule with conditions matches.
    pub fn new(policy: Policy) -> Self {
        let mut gauges: Vec<(Condition, ConditionState)> = Vec::new();
        let mut leaders: Vec<(AllowedPaths, LowestLatencyPath)> = Vec::new();
        let mut places: HashMap<Condition, usize> = HashMap::new();
        let mut wanted = Vec::with_capacity(policy.rules.len());
        for rule in &policy.rules {
            let place = |condition: &Condition| {
                *places.entry(condition.clone()).or_insert_with(|| {
                    gauges.push((condition.clone(), ConditionState::default()));
                    gauges.len() - 1
                })
            };
            wanted.push(rule.conditions.iter().map(place).collect());
        }
        let actions = policy.rules.iter().map(|rule| &rule.action).chain([&policy.default]);
        let led = actions.filter_map(|action| match action {
            Action::Bond { primary: Some(Primary::LowestLatency), paths, .. } => Some(paths),
            _ => None,
        });
        for paths in led {
            if !leaders.iter().any(|(known, _)| known == paths) {
                leaders.push((paths.clone(), LowestLatencyPath::default()));
            }
        }
        let mut engine = Self {
            policy,
            observed: Environment::default(),
            environment: Environment::default(),
            condition_states: gauges,
            lowest_latency_paths: leaders,
            rule_conditions: wanted,
            decisions: Vec::new(),
        };
        engine.decisions = engine.decisions();
        engine
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Processes the environment at `now`. Returns whether decisions may differ from the previous
    /// ones.
    pub fn observe(&mut self, now: Time, environment: &Environment) -> bool {
        self.observed = environment.clone();
        self.update(now)
    }

    /// Replaces the policy and keeps the state of conditions that both policies have. Returns
    /// whether decisions may differ from the previous ones.
    pub fn replace(&mut self, now: Time, policy: Policy) -> bool {
        let mut next = Self::new(policy);
        let gauges: HashMap<&Condition, ConditionState> =
            self.condition_states.iter().map(|(condition, gauge)| (condition, *gauge)).collect();
        for (condition, gauge) in &mut next.condition_states {
            *gauge = gauges.get(condition).copied().unwrap_or_default();
        }
        for (paths, lowest_latency) in &mut next.lowest_latency_paths {
            let known = self.lowest_latency_paths.iter().find(|(known, _)| known == paths);
            *lowest_latency = known.map(|(_, lowest_latency)| *lowest_latency).unwrap_or_default();
        }
        next.observed = std::mem::take(&mut self.observed);
        let differs = next.policy != self.policy;
        if !differs {
            next.decisions = std::mem::take(&mut self.decisions);
        }
        *self = next;
        self.update(now) || differs
    }

    fn update(&mut self, now: Time) -> bool {
        self.environment = self.observed.clone();
        for path in &mut self.environment.paths {
            path.metered = self.policy.is_metered(path);
        }
        let known = &self.environment.paths;
        for (paths, lowest_latency) in &mut self.lowest_latency_paths {
            lowest_latency.observe(now, paths.path_set(&self.environment), known);
        }
        let left = |path: &PathFacts| {
            let plan = self.policy.data_plan(&path.name, &path.kind)?;
            Some(plan.monthly.saturating_sub(path.plan_used?))
        };
        let mut differs = false;
        for (condition, gauge) in &mut self.condition_states {
            let lowest_latency = match &condition.subject {
                Subject::LowestLatency(paths) => {
                    lowest_latency_path(&self.lowest_latency_paths, paths)
                }
                _ => None,
            };
            let observation = condition.observation(&self.environment, lowest_latency, &left);
            let before = gauge.is_met();
            gauge.observe(now, &condition.comparison, observation);
            differs |= gauge.is_met() != before;
        }
        let decisions = self.decisions();
        differs |= decisions != self.decisions;
        self.decisions = decisions;
        differs
    }

    fn decisions(&self) -> Vec<Decision> {
        let rules = self.policy.rules.iter().map(|rule| &rule.action);
        rules.chain([&self.policy.default]).map(|action| self.execute(action)).collect()
    }

    fn execute(&self, action: &Action) -> Decision {
        let (scheduler, paths, primary, priority) = match action {
            Action::Direct => return Decision::Direct,
            Action::Block => return Decision::Block,
            Action::Bond { scheduler, paths, primary, priority } => {
                (*scheduler, paths, primary, *priority)
            }
        };
        let known = &self.environment.paths;
        let set = paths.path_set(&self.environment);
        let primary = match primary {
            None => None,
            Some(Primary::LowestLatency) => lowest_latency_path(&self.lowest_latency_paths, paths)
                .and_then(LowestLatencyPath::path),
            Some(Primary::Paths(primary)) => {
                let mut fit =
                    known.iter().filter(|path| set.contains(path.id) && primary.matches(path));
                let first = fit.clone().next();
                fit.find(|path| path.up).or(first).map(|path| path.id)
            }
        };
        Decision::Bond(StreamPolicy { scheduler, paths: set, primary, priority })
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
        self.policy.rules.get(index).is_some_and(|rule| rule.matches(flow)) && self.applies(index)
    }

    /// Returns whether the conditions of a rule hold.
    fn applies(&self, index: usize) -> bool {
        let wanted = self.rule_conditions.get(index).map_or(&[][..], Vec::as_slice);
        wanted
            .iter()
            .all(|gauge| self.condition_states.get(*gauge).is_some_and(|(_, gauge)| gauge.is_met()))
    }

    /// Returns the size at which the decision about `flow` may change if nothing else does. `None`
    /// if the decision does not depend on the size.
    pub fn reevaluate_at(&self, flow: &Flow<'_>) -> Option<Size> {
        let mut next: Option<Size> = None;
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let fits = |one: &&Selector| one.matches_except_bytes(flow);
            if self.applies(index) && rule.included.iter().any(|one| fits(&one)) {
                let selectors = rule.included.iter().chain(&rule.excluded).filter(fits);
                let edges = selectors.flat_map(|one| &one.bytes).flat_map(ByteRange::thresholds);
                next = edges.filter(|edge| *edge > flow.bytes).chain(next).min();
                if rule.matches(flow) {
                    break;
                }
            }
        }
        next
    }

    /// Returns when to call [`observe`](Self::observe) again even if nothing changes, because a
    /// value will have persisted long enough.
    pub fn next_wakeup(&self) -> Option<Time> {
        let gauges = self
            .condition_states
            .iter()
            .filter_map(|(one, gauge)| gauge.changes_at(&one.comparison));
        gauges
            .chain(
                self.lowest_latency_paths
                    .iter()
                    .filter_map(|(_, lowest_latency)| lowest_latency.changes_at()),
            )
            .min()
    }

    /// Returns whether none of `paths` is up.
    pub(super) fn is_all_down(&self, paths: PathSet) -> bool {
        !self.environment.paths.iter().any(|path| path.up && paths.contains(path.id))
    }
}

fn lowest_latency_path<'l>(
    leaders: &'l [(AllowedPaths, LowestLatencyPath)],
    paths: &AllowedPaths,
) -> Option<&'l LowestLatencyPath> {
    leaders.iter().find(|(known, _)| known == paths).map(|(_, lowest_latency)| lowest_latency)
}
