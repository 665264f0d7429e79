//! Path sets of a rule, and the properties of paths.

use std::collections::BTreeMap;
use std::fmt;

use manyways_unit::human::{InvalidValue, quoted};
use manyways_unit::{Rate, Size, Span};

use super::glob::Glob;
use crate::sched::{PathId, PathSet};

/// Properties of a path. `None` if unknown.
#[derive(Clone, PartialEq, Debug)]
pub struct PathFacts {
    /// Number within the session.
    pub id: PathId,
    /// Name of the path: `wlan0`, `wifi`, `lte`.
    pub name: String,
    /// Access technology: `wifi`, `cellular`, `ethernet`, …
    pub kind: String,
    /// Whether the path can carry data now.
    pub up: bool,
    /// Whether the system reports the network as metered. A policy can override this.
    pub metered: bool,
    /// Bytes since the last reset of the data plan.
    pub plan_used: Option<Size>,
    /// Estimated capacity, which may exceed the current throughput.
    pub rate: Option<Rate>,
    /// Used fraction of the capacity, from 0 to 1.
    pub load: Option<f64>,
    /// Round-trip time.
    pub rtt: Option<Span>,
    /// Fraction of lost packets, from 0 to 1.
    pub loss: Option<f64>,
}

/// Inputs of a policy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Environment {
    /// All paths of the bond, including those that are down.
    pub paths: Vec<PathFacts>,
    /// Battery charge in percent. `None` without a battery.
    pub battery: Option<u8>,
    /// Whether the battery is charging or there is no battery. `None` if unknown.
    pub charging: Option<bool>,
    /// Names of the paths that are chosen for each goal of auto rules, by [`Goal::name`].
    ///
    /// [`Goal::name`]: super::Goal::name
    pub choices: BTreeMap<String, Vec<String>>,
}

/// A set of paths as words: included paths without excluded ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PathSelector {
    included: Vec<PathPattern>,
    excluded: Vec<PathPattern>,
}

/// One word of a path set.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum PathPattern {
    All,
    Metered,
    Unmetered,
    /// A name or a kind.
    Named(Glob),
}

impl PathFacts {
    /// Creates the properties of a path that is up; all others are unknown.
    pub fn new(id: PathId, name: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: kind.into(),
            up: true,
            metered: false,
            plan_used: None,
            rate: None,
            load: None,
            rtt: None,
            loss: None,
        }
    }
}

impl PathPattern {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        Ok(match text {
            "all" => Self::All,
            "metered" => Self::Metered,
            "unmetered" => Self::Unmetered,
            _ => Self::Named(Glob::ignoring_case(text)?),
        })
    }

    pub(super) fn matches(&self, path: &PathFacts) -> bool {
        match self {
            Self::All => true,
            Self::Metered => path.metered,
            Self::Unmetered => !path.metered,
            Self::Named(glob) => glob.matches(&path.name) || glob.matches(&path.kind),
        }
    }
}

impl PathSelector {
    pub(super) fn all() -> Self {
        Self { included: vec![PathPattern::All], excluded: Vec::new() }
    }

    /// Parses words like `wifi` and `!metered`. Without included paths, all paths except the
    /// excluded ones are meant.
    pub(super) fn parse<'t>(
        words: impl IntoIterator<Item = &'t str>,
    ) -> Result<Self, InvalidValue> {
        let mut paths = Self { included: Vec::new(), excluded: Vec::new() };
        for word in words {
            match word.strip_prefix('!') {
                Some(word) => paths.excluded.push(PathPattern::parse(word)?),
                None => paths.included.push(PathPattern::parse(word)?),
            }
        }
        if paths.included.is_empty() {
            paths.included.push(PathPattern::All);
        }
        Ok(paths)
    }

    pub(super) fn matches(&self, path: &PathFacts) -> bool {
        self.included.iter().any(|word| word.matches(path))
            && !self.excluded.iter().any(|word| word.matches(path))
    }

    /// Returns the path numbers. `all` includes future paths; otherwise the set contains only known
    /// paths.
    pub(super) fn path_set(&self, known: &[PathFacts]) -> PathSet {
        if self.excluded.is_empty() && self.included.contains(&PathPattern::All) {
            return PathSet::ALL;
        }
        known.iter().filter(|path| self.matches(path)).map(|path| path.id).collect()
    }

    /// Returns whether the set is empty on every host.
    pub(super) fn is_always_empty(&self) -> bool {
        let without = |word: &PathPattern| self.excluded.contains(word);
        let everything = |word: &PathPattern| match word {
            PathPattern::All => true,
            PathPattern::Named(glob) => glob.as_str().bytes().all(|byte| byte == b'*'),
            PathPattern::Metered | PathPattern::Unmetered => false,
        };
        self.excluded.iter().any(everything)
            || without(&PathPattern::Metered) && without(&PathPattern::Unmetered)
            || self.included.iter().all(without)
    }

    /// Returns the words that match no path of `known`.
    pub(super) fn unknown_patterns(&self, known: &[PathFacts]) -> impl Iterator<Item = &Glob> {
        self.included
            .iter()
            .chain(&self.excluded)
            .filter(|word| !known.iter().any(|path| word.matches(path)))
            .filter_map(|word| match word {
                PathPattern::Named(glob) => Some(glob),
                _ => None,
            })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Metered => f.write_str("metered"),
            Self::Unmetered => f.write_str("unmetered"),
            Self::Named(glob) => f.write_str(&quoted(glob.as_str())),
        }
    }
}

impl fmt::Display for PathSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = self.included.iter().map(PathPattern::to_string);
        let without = self.excluded.iter().map(|word| format!("!{word}"));
        f.write_str(&with.chain(without).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_by_name_kind_and_cost() {
        let mut lte = PathFacts::new(PathId(2), "wwan0", "cellular");
        lte.metered = true;
        let known = [
            PathFacts::new(PathId(0), "wlan0", "wifi"),
            PathFacts::new(PathId(1), "eth0", "ethernet"),
            lte,
        ];
        let among =
            |words: &[&str]| PathSelector::parse(words.iter().copied()).unwrap().path_set(&known);
        let set = |ids: &[u8]| ids.iter().map(|id| PathId(*id)).collect::<PathSet>();
        assert_eq!(among(&["wlan0"]), set(&[0]));
        assert_eq!(among(&["WiFi", "cellular"]), set(&[0, 2]));
        assert_eq!(among(&["metered"]), set(&[2]));
        assert_eq!(among(&["unmetered", "!eth*"]), set(&[0]));
        assert_eq!(among(&["!cellular"]), set(&[0, 1]));
        assert_eq!(among(&["dsl"]), PathSet::NONE);
        assert_eq!(among(&["all"]), PathSet::ALL);
        let never =
            |words: &[&str]| PathSelector::parse(words.iter().copied()).unwrap().is_always_empty();
        assert!(never(&["!all"]) && never(&["wifi", "!*"]) && never(&["!metered", "!unmetered"]));
        assert!(never(&["wifi", "!wifi"]) && never(&["metered", "!metered"]));
        assert!(!never(&["all"]) && !never(&["!wifi"]) && !never(&["wifi", "lte", "!lte"]));
        assert!(PathSelector::parse(["!"]).is_err() && PathSelector::parse([""]).is_err());
    }
}
