//! Allowed paths of a rule: fixed by the policy, or chosen for each moment by another program.

use std::fmt;
use std::str::FromStr;

use manyways_unit::human::{InvalidValue, quoted};

use super::paths::{Environment, PathFacts, PathSelector};
use crate::sched::PathSet;

/// Goal of the choice of an auto rule's paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Goal {
    /// The shortest completion time, at any cost.
    #[default]
    Fast,
    /// A tradeoff between time and cost.
    Balanced,
    /// The lowest cost.
    Thrifty,
}

impl Goal {
    pub const ALL: [Self; 3] = [Self::Fast, Self::Balanced, Self::Thrifty];

    /// Returns the name in policies and in [`Environment::choices`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Balanced => "balanced",
            Self::Thrifty => "thrifty",
        }
    }
}

impl FromStr for Goal {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let goal = Self::ALL.into_iter().find(|goal| goal.name() == text);
        goal.ok_or_else(|| InvalidValue::new(text, "a goal", "fast, balanced or thrifty"))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The allowed paths of a rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum AllowedPaths {
    Fixed(PathSelector),
    /// Those of [`Environment::choices`] that are up; all paths if there are none.
    Auto(Goal),
}

impl AllowedPaths {
    pub(super) fn all() -> Self {
        Self::Fixed(PathSelector::all())
    }

    pub(super) fn path_set(&self, environment: &Environment) -> PathSet {
        match self {
            Self::Fixed(paths) => paths.path_set(&environment.paths),
            Self::Auto(goal) => match chosen_up(*goal, environment) {
                up if up.is_empty() => PathSet::ALL,
                up => up.into_iter().map(|path| path.id).collect(),
            },
        }
    }

    /// Returns whether the rule can ever use the path.
    pub(super) fn may_include(&self, path: &PathFacts) -> bool {
        match self {
            Self::Fixed(paths) => paths.matches(path),
            Self::Auto(_) => true,
        }
    }

    /// Returns the selector of the policy; `None` for an auto rule.
    pub(super) fn fixed(&self) -> Option<&PathSelector> {
        match self {
            Self::Fixed(paths) => Some(paths),
            Self::Auto(_) => None,
        }
    }

    /// Returns the paths for explanations: `auto (fast): lte`.
    pub(super) fn text(&self, environment: &Environment) -> String {
        let goal = match self {
            Self::Fixed(paths) => return paths.to_string(),
            Self::Auto(goal) => *goal,
        };
        let list = |names: Vec<&String>| {
            names.into_iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
        };
        let up = chosen_up(goal, environment);
        if !up.is_empty() {
            return format!("auto ({goal}): {}", list(up.iter().map(|path| &path.name).collect()));
        }
        let chosen: Vec<&String> = chosen(goal, environment).iter().collect();
        match chosen.is_empty() {
            true => format!("auto ({goal}): all, because no path has been chosen"),
            false => format!("auto ({goal}): all, because no chosen path is up ({})", list(chosen)),
        }
    }
}

fn chosen(goal: Goal, environment: &Environment) -> &[String] {
    environment.choices.get(goal.name()).map_or(&[], Vec::as_slice)
}

fn chosen_up(goal: Goal, environment: &Environment) -> Vec<&PathFacts> {
    let chosen = chosen(goal, environment);
    environment.paths.iter().filter(|path| path.up && chosen.contains(&path.name)).collect()
}
