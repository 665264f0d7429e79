//! What a user says of which traffic: an ordered list of rules, of which the first that matches
//! decides.
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
//! [`Policy::parse`] reads the text; `docs/bond-policy.md` says what every key means. An [`Engine`]
//! keeps what a policy needs over time: it is told of its [`Surroundings`] and decides about each
//! [`Flow`]. A policy receives names and measurements; it never looks at packets itself.
//!
//! What a rule says about paths is a promise: a flow whose rule allows paths that are all gone
//! waits, and goes nowhere else.

mod cgroup;
mod condition;
mod domain;
mod engine;
mod explain;
mod gauge;
mod glob;
mod leader;
mod lint;
mod paths;
mod range;
mod read;
mod selector;

use std::fmt;

use manyways_unit::Size;

pub use engine::{Decision, Engine, Verdict};
pub use explain::{Explanation, Step};
pub use lint::Warning;
pub use paths::{PathFacts, Surroundings};
pub use read::{MAX_PATTERNS, MAX_RULES, MAX_TEXT, PolicyError};
pub use selector::{Flow, Protocol};

use condition::Condition;
use paths::Paths;
use selector::Selector;

use crate::sched::Kind;

/// Rules in the order in which they are asked.
///
/// The [`Default`] has none: every flow may use every path.
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
    /// What a flow has to be: any of these. There is at least one…
    only: Vec<Selector>,
    /// …and what it may not be.
    not: Vec<Selector>,
    when: Vec<Condition>,
    action: Action,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    Bond { scheduler: Kind, paths: Paths, primary: Option<Primary>, priority: u8 },
    Direct,
    Block,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Primary {
    /// The first of these that is up.
    Paths(Paths),
    LowestLatency,
}

/// What the user says of a network: `[paths.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Network {
    /// The name of a path, or else its kind.
    name: String,
    line: usize,
    metered: Option<bool>,
    plan: Option<Plan>,
}

/// How much may flow in a month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In both directions together.
    pub monthly: Size,
    /// The day of the month on which counting begins anew, from 1 to 28.
    pub from_day: u8,
}

impl Default for Action {
    fn default() -> Self {
        Self::Bond { scheduler: Kind::default(), paths: Paths::all(), primary: None, priority: 1 }
    }
}

impl Policy {
    /// The names of its rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// Whether a rule asks whose a flow is: its process, user or control group.
    pub fn asks_whose(&self) -> bool {
        self.selectors()
            .any(|one| !one.process.is_empty() || !one.user.is_empty() || !one.cgroup.is_empty())
    }

    /// Whether a rule asks for the name of a flow's server.
    pub fn asks_for_domain(&self) -> bool {
        self.selectors().any(|one| !one.domain.is_empty())
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.rules.iter().flat_map(|rule| rule.only.iter().chain(&rule.not))
    }

    /// The data plan of the path of that name and kind: whoever counts bytes begins anew with it.
    pub fn plan(&self, name: &str, kind: &str) -> Option<Plan> {
        self.of_network(name, kind, |network| network.plan)
    }

    fn is_metered(&self, path: &PathFacts) -> bool {
        self.of_network(&path.name, &path.kind, |network| network.metered).unwrap_or(path.metered)
    }

    /// What is said of the path by its name, or else by its kind.
    fn of_network<T>(
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
    /// Whether the flow is one of those that the rule is about.
    fn is_about(&self, flow: &Flow<'_>) -> bool {
        let fits = |selector: &Selector| selector.miss(flow).is_none();
        self.only.iter().any(fits) && !self.not.iter().any(fits)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Block => f.write_str("block"),
            Self::Bond { scheduler, paths, primary, priority } => {
                write!(f, "{scheduler} over {paths}")?;
                match primary {
                    None => {}
                    Some(Primary::LowestLatency) => f.write_str(", the lowest latency first")?,
                    Some(Primary::Paths(paths)) => write!(f, ", {paths} first")?,
                }
                if *priority == 1 { Ok(()) } else { write!(f, ", priority {priority}") }
            }
        }
    }
}

#[cfg(test)]
mod tests;
