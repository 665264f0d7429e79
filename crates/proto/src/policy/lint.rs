//! Warnings about valid policies that are probably mistakes.

use std::fmt;

use manyways_unit::Size;
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use super::auto::AllowedPaths;
use super::condition::{Quantity, Subject};
use super::glob::Glob;
use super::paths::{PathFacts, PathSelector};
use super::selector::Selector;
use super::{Action, Policy, Primary, Rule};

/// A valid part of a policy that is probably a mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Line of the rule or path, from 1; 0 for the default.
    pub line: usize,
    /// Text of the warning.
    pub message: String,
    /// Hint for the user. `None` if there is none.
    pub hint: Option<String>,
}

impl Policy {
    /// Returns warnings in the order of the file. `known` are the paths of this host; if empty,
    /// unknown paths cause no warning.
    pub fn lint(&self, known: &[PathFacts]) -> Vec<Warning> {
        let known: Vec<PathFacts> = known
            .iter()
            .map(|path| PathFacts { metered: self.is_metered(path), ..path.clone() })
            .collect();
        let mut warnings = self.unreachable_rules();
        if !known.is_empty() {
            self.unknown_paths(&known, &mut warnings);
        }
        self.missing_data_plans(&known, &mut warnings);
        warnings.extend(self.empty_path_sets());
        for rule in &self.rules {
            warnings.extend(excluded_primary(rule, &known));
            warnings.extend(process_with_folder(rule));
            warnings.extend(direct_with_size(rule));
        }
        warnings.sort_by_key(|warning| warning.line);
        warnings
    }

    /// Finds rules that never match because of an earlier rule.
    fn unreachable_rules(&self) -> Vec<Warning> {
        let hidden = self.rules.iter().enumerate().filter_map(|(index, rule)| {
            let before = self.rules.iter().take(index).find(|before| before.covers(rule))?;
            Some(Warning {
                line: rule.line,
                message: format!(
                    "the rule `{}` never decides: `{}` (line {}) takes all that it matches",
                    rule.name, before.name, before.line
                ),
                hint: Some("the first rule that matches decides: move the narrower one up".into()),
            })
        });
        hidden.collect()
    }

    /// Finds path lists that exclude all of their paths.
    fn empty_path_sets(&self) -> Vec<Warning> {
        let paths = |action: &Action| match action {
            Action::Bond { paths, .. } => Some(paths.clone()),
            _ => None,
        };
        let default = paths(&self.default);
        let is_none = |paths: &Option<AllowedPaths>| {
            paths.as_ref().and_then(AllowedPaths::fixed).is_some_and(PathSelector::is_always_empty)
        };
        let rules = self.rules.iter().map(|rule| (rule, paths(&rule.action)));
        // Paths that a rule inherits from the default are reported for the default.
        let own = rules.filter(|(_, paths)| is_none(paths) && *paths != default);
        let lines = own.map(|(rule, _)| (rule.line, format!("the rule `{}`", rule.name)));
        let first = is_none(&default).then(|| (0, "it".to_owned()));
        let warning = |(line, who)| Warning {
            line,
            message: format!("{who} allows no path, ever: its flows wait and never go anywhere"),
            hint: Some(
                "name the remaining paths, like paths = \"!cellular\"; block = true refuses flows"
                    .into(),
            ),
        };
        first.into_iter().chain(lines).map(warning).collect()
    }

    fn unknown_paths(&self, known: &[PathFacts], warnings: &mut Vec<Warning>) {
        let mut stranger = |line, name: &str| {
            let names = known.iter().flat_map(|path| [path.name.as_str(), path.kind.as_str()]);
            warnings.push(Warning {
                line,
                message: format!("no path here is named or of the kind `{name}`"),
                hint: nearest(name, names.clone())
                    .map(|near| format!("did you mean `{near}`?"))
                    .or_else(|| {
                        let mut names: Vec<&str> = names.collect();
                        names.sort_unstable();
                        names.dedup();
                        Some(format!("there is {}", names.join(", ")))
                    }),
            });
        };
        for network in &self.networks {
            let is_there = |path: &PathFacts| {
                [&path.name, &path.kind].iter().any(|word| network.name.eq_ignore_ascii_case(word))
            };
            if !known.iter().any(is_there) {
                stranger(network.line, &network.name);
            }
        }
        let default = (0, &self.default, &[][..]);
        let rules = self.rules.iter().map(|rule| (rule.line, &rule.action, &rule.conditions[..]));
        for (line, action, when) in rules.chain([default]) {
            let primary = match action {
                Action::Bond { primary: Some(Primary::Paths(primary)), .. } => Some(primary),
                _ => None,
            };
            let allowed = match action {
                Action::Bond { paths, .. } => paths.fixed(),
                _ => None,
            };
            let asked = when.iter().filter_map(|condition| match &condition.subject {
                Subject::Paths(paths) => Some(paths),
                _ => None,
            });
            let mut said: Vec<&Glob> = Vec::new();
            for paths in allowed.into_iter().chain(primary).chain(asked) {
                for word in paths.unknown_patterns(known) {
                    if !said.contains(&word) {
                        said.push(word);
                        stranger(line, word.as_str());
                    }
                }
            }
        }
    }

    /// Finds conditions on the remaining bytes of a data plan that is not configured.
    fn missing_data_plans(&self, known: &[PathFacts], warnings: &mut Vec<Warning>) {
        for rule in &self.rules {
            for condition in
                rule.conditions.iter().filter(|one| one.quantity == Quantity::Remaining)
            {
                let is_meant = |path: &PathFacts| match &condition.subject {
                    Subject::Paths(paths) => paths.matches(path),
                    Subject::LowestLatency(paths) => paths.may_include(path),
                    Subject::Device => false,
                };
                let mut meant = known.iter().filter(|path| is_meant(path)).peekable();
                let counted = match meant.peek() {
                    Some(_) => meant.any(|path| self.data_plan(&path.name, &path.kind).is_some()),
                    None => self.networks.iter().any(|network| network.data_plan.is_some()),
                };
                let path = known.iter().find(|path| is_meant(path));
                let path = path.map_or("NAME", |path| &path.name);
                if !counted {
                    warnings.push(Warning {
                        line: rule.line,
                        message: format!("`{condition}` never holds: its path has no data plan"),
                        hint: Some(format!(
                            "say how much there is, like monthly = \"10GB\" under [paths.{path}]"
                        )),
                    });
                }
            }
        }
    }
}

fn excluded_primary(rule: &Rule, known: &[PathFacts]) -> Option<Warning> {
    let Action::Bond { paths, primary: Some(Primary::Paths(primary)), .. } = &rule.action else {
        return None;
    };
    let mut meant = known.iter().filter(|path| primary.matches(path)).peekable();
    meant.peek()?;
    (!meant.any(|path| paths.may_include(path))).then(|| Warning {
        line: rule.line,
        message: format!("the primary path {primary} is not among the paths of `{}`", rule.name),
        hint: Some("add it to `paths`, or leave `primary` out".into()),
    })
}

/// Finds process patterns with a folder. Processes are matched by file name only.
fn process_with_folder(rule: &Rule) -> Option<Warning> {
    let mut processes = rule.selectors().flat_map(|one| &one.process);
    let process = processes.find(|process| process.as_str().contains('/'))?.as_str();
    let file = process.rsplit('/').next().unwrap_or_default();
    Some(Warning {
        line: rule.line,
        message: format!(
            "the process `{}` of `{}` fits no program: their file names are compared, without \
             folders",
            quoted(process),
            rule.name
        ),
        hint: Some(match file.trim_matches('*') {
            "" => "write the program's file name, like firefox or teams*".into(),
            _ => format!("write `{}`", quoted(file)),
        }),
    })
}

/// Finds `direct` rules with a size. Direct routing is decided before the first byte.
fn direct_with_size(rule: &Rule) -> Option<Warning> {
    if rule.action != Action::Direct {
        return None;
    }
    let at_first = |one: &Selector| one.bytes.iter().any(|bytes| bytes.contains(Size::ZERO));
    let later = |one: &&Selector| !one.bytes.is_empty() && !at_first(one);
    let sentence =
        if rule.included.iter().any(|one| later(&one)) || rule.excluded.iter().any(at_first) {
            format!(
                "the rule `{}` comes too late: what the bond carries by then stays there",
                rule.name
            )
        } else if rule.selectors().any(|one| !one.bytes.is_empty()) {
            format!(
                "`bytes` ends nothing in the rule `{}`: a connection that goes past the bond stays \
             there",
                rule.name
            )
        } else {
            return None;
        };
    let hint = "leave `bytes` out: `direct` holds from the first byte on, or not at all";
    Some(Warning { line: rule.line, message: sentence, hint: Some(hint.into()) })
}

impl Rule {
    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.included.iter().chain(&self.excluded)
    }

    /// Returns whether this rule matches everything that the later rule `other` matches.
    fn covers(&self, other: &Self) -> bool {
        self.conditions.iter().all(|condition| other.conditions.contains(condition))
            && all_covered(&self.included, &other.included)
            && all_covered(&other.excluded, &self.excluded)
    }
}

/// Returns whether each selector of `theirs` is covered by a selector of `mine`.
fn all_covered(mine: &[Selector], theirs: &[Selector]) -> bool {
    theirs.iter().all(|b| mine.iter().any(|a| a.covers(b)))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "the default: {}", self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}
