//! Policy of a user for traffic: an ordered list of rules. The first matching rule decides.
//!
//! ```toml
//! [paths.lte]
//! metered = true
//! monthly = "10GB"
//!
//! [[rule]]
//! name = "calls"
//! match = { process = ["zoom", "teams*"], protocol = "udp" }
//! when = { wifi.loss = "<2%", battery = ">20%" }
//! use = { scheduler = "single", paths = "wifi", priority = "high" }
//!
//! [default]
//! paths = "unmetered"
//! ```
//!
//! [`Policy::parse`] reads the text; `docs/bond-policy.md` specifies all keys. An [`Engine`] keeps
//! the state of a policy over time: it observes the [`Environment`] and decides about each
//! [`Flow`]. A policy uses names and measurements, and never inspects packets.
//!
//! The permitted paths of a rule are strict: a flow waits while none of them exists, and never uses
//! another path.

mod auto;
mod cgroup;
mod condition;
mod domain;
mod engine;
mod explain;
mod glob;
mod hysteresis;
mod lint;
mod lowest_latency;
mod parse;
mod paths;
mod range;
mod selector;

use std::collections::BTreeSet;

use manyways_unit::Size;

pub use auto::Goal;
pub use engine::{Decision, Engine, Verdict};
pub use explain::{Explanation, Step};
pub use lint::Warning;
pub use parse::{MAX_ERRORS, MAX_PATTERNS, MAX_RULES, MAX_TEXT, PolicyError};
pub use paths::{Environment, PathFacts};
pub use selector::{Flow, Protocol};

use auto::AllowedPaths;
use condition::Condition;
use paths::PathSelector;
use selector::Selector;

use crate::sched::SchedulerKind;

/// Rules in order of evaluation.
///
/// The [`Default`] has no rules: every flow may use every path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    default: Action,
    networks: Vec<Network>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    name: String,
    line: usize,
    /// Alternatives of which a flow must match at least one; not empty.
    included: Vec<Selector>,
    /// Selectors of which a flow must match none.
    excluded: Vec<Selector>,
    conditions: Vec<Condition>,
    action: Action,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    Bond { scheduler: SchedulerKind, paths: AllowedPaths, primary: Option<Primary>, priority: u8 },
    Direct,
    Block,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Primary {
    /// The first of these paths that is up.
    Paths(PathSelector),
    LowestLatency,
}

/// Properties of a network from the policy file: `[paths.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Network {
    /// Name of a path, or its access technology.
    name: String,
    line: usize,
    metered: Option<bool>,
    data_plan: Option<DataPlan>,
}

/// Data plan of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataPlan {
    /// Bytes per month, both directions together.
    pub monthly: Size,
    /// Day of the month on which the plan is reset, from 1 to 28.
    pub reset_day: u8,
}

impl Default for Action {
    fn default() -> Self {
        Self::Bond {
            scheduler: SchedulerKind::default(),
            paths: AllowedPaths::all(),
            primary: None,
            priority: 1,
        }
    }
}

impl Policy {
    /// Returns the names of the rules in order.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// Returns the names of the rules whose flows bypass the bond.
    pub fn direct_rules(&self) -> impl Iterator<Item = &str> {
        let direct = self.rules.iter().filter(|rule| rule.action == Action::Direct);
        direct.map(|rule| rule.name.as_str())
    }

    /// Returns the goals of the auto rules and of the default, each once.
    pub fn goals(&self) -> Vec<Goal> {
        let actions = self.rules.iter().map(|rule| &rule.action).chain([&self.default]);
        let goals = actions.filter_map(|action| match action {
            Action::Bond { paths: AllowedPaths::Auto(goal), .. } => Some(*goal),
            _ => None,
        });
        goals.collect::<BTreeSet<Goal>>().into_iter().collect()
    }

    /// Returns whether a rule depends on the process, user or control group of a flow.
    pub fn needs_process(&self) -> bool {
        self.selectors()
            .any(|one| !one.process.is_empty() || !one.user.is_empty() || !one.cgroup.is_empty())
    }

    /// Returns whether a rule depends on the server name of a flow.
    pub fn needs_domain(&self) -> bool {
        self.selectors().any(|one| !one.domain.is_empty())
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.rules.iter().flat_map(|rule| rule.included.iter().chain(&rule.excluded))
    }

    /// Returns the data plan of the path with this name and kind. Byte counts restart on its reset
    /// day.
    pub fn data_plan(&self, name: &str, kind: &str) -> Option<DataPlan> {
        self.network_property(name, kind, |network| network.data_plan)
    }

    /// Returns whether the path with this name and kind is metered; `None` if the policy does not
    /// state it.
    pub fn metered(&self, name: &str, kind: &str) -> Option<bool> {
        self.network_property(name, kind, |network| network.metered)
    }

    fn is_metered(&self, path: &PathFacts) -> bool {
        self.metered(&path.name, &path.kind).unwrap_or(path.metered)
    }

    /// Returns the property of a path from the entry of its name, or else of its kind.
    fn network_property<T>(
        &self,
        name: &str,
        kind: &str,
        what: impl Fn(&Network) -> Option<T>,
    ) -> Option<T> {
        [name, kind].into_iter().find_map(|word| {
            self.networks
                .iter()
                .filter(|network| network.name.eq_ignore_ascii_case(word))
                .find_map(&what)
        })
    }
}

impl Rule {
    /// Returns whether the selectors of the rule match the flow.
    fn matches(&self, flow: &Flow<'_>) -> bool {
        let fits = |selector: &Selector| selector.mismatch(flow).is_none();
        self.included.iter().any(fits) && !self.excluded.iter().any(fits)
    }
}

impl Action {
    /// Returns the action for explanations: `single over wifi`.
    fn text(&self, environment: &Environment) -> String {
        let (scheduler, paths, primary, priority) = match self {
            Self::Direct => return "direct".to_owned(),
            Self::Block => return "block".to_owned(),
            Self::Bond { scheduler, paths, primary, priority } => {
                (scheduler, paths, primary, priority)
            }
        };
        let mut text = format!("{scheduler} over {}", paths.text(environment));
        match primary {
            None => {}
            Some(Primary::LowestLatency) => text += ", the lowest latency first",
            Some(Primary::Paths(paths)) => text += &format!(", {paths} first"),
        }
        if *priority != 1 {
            text += &format!(", priority {priority}");
        }
        text
    }
}

#[cfg(test)]
mod tests;
