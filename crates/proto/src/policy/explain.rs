//! Explanation of a decision as text.

use std::fmt;

use super::condition::Condition;
use super::engine::{Decision, Engine};
use super::gauge::Gauge;
use super::selector::{Flow, Selector};
use super::{Action, Rule};

/// A decision and its reasons. `Display` prints a few lines of text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    pub decision: Decision,
    /// Name of the deciding rule. `None` for the default.
    pub rule: Option<String>,
    /// The decision as text: `single over wifi`.
    pub action: String,
    /// Evaluated rules in order. The last one matched, unless the default decided.
    pub steps: Vec<Step>,
    /// Whether the flow waits, because none of its paths is up.
    pub waits: bool,
}

/// Result of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub rule: String,
    /// Line in the policy file.
    pub line: usize,
    pub matched: bool,
    /// The matched properties, or the first property that did not match.
    pub why: String,
}

impl Engine {
    /// Returns the decision of [`decide`](Self::decide) about `flow` and its reasons.
    pub fn explain(&self, flow: &Flow<'_>) -> Explanation {
        let mut steps = Vec::new();
        let mut first = None;
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let miss = rule.miss(flow).or_else(|| self.unfulfilled(index));
            let matched = miss.is_none();
            steps.push(Step {
                rule: rule.name.clone(),
                line: rule.line,
                matched,
                why: miss.unwrap_or_else(|| self.reasons(index, rule, flow)),
            });
            if matched {
                first = Some((index, rule));
                break;
            }
        }
        let verdict = self.verdict(first.map(|(index, _)| index));
        let action: &Action = first.map_or(&self.policy.default, |(_, rule)| &rule.action);
        Explanation {
            decision: verdict.decision,
            rule: verdict.rule.map(str::to_owned),
            action: action.to_string(),
            steps,
            waits: match verdict.decision {
                Decision::Bond(treatment) => self.is_nowhere(treatment.paths),
                _ => false,
            },
        }
    }

    /// Returns the first condition of a rule that does not hold, as text.
    fn unfulfilled(&self, index: usize) -> Option<String> {
        let (condition, gauge) = self.conditions(index).find(|(_, gauge)| !gauge.holds())?;
        let quantity = condition.quantity;
        let why = match gauge.value() {
            None => "it is not known".to_owned(),
            Some(value) if gauge.turns_at(&condition.test).is_some() => {
                format!("it is {}, but not for {} yet", quantity.show(value), condition.test.hold)
            }
            Some(value) => format!("it is {}", quantity.show(value)),
        };
        Some(format!("`{condition}` does not hold: {why}"))
    }

    fn conditions(&self, index: usize) -> impl Iterator<Item = &(Condition, Gauge)> {
        let wanted = self.wanted.get(index).into_iter().flatten();
        wanted.filter_map(|gauge| self.gauges.get(*gauge))
    }

    /// Returns the conditions of a matched rule with the found values.
    fn reasons(&self, index: usize, rule: &Rule, flow: &Flow<'_>) -> String {
        let fits = rule.only.iter().find(|selector| selector.miss(flow).is_none());
        let keys = fits.map(|selector| selector.found(flow)).filter(|found| !found.is_empty());
        let conditions = self.conditions(index).map(|(condition, gauge)| {
            let test = &condition.test;
            match gauge.value() {
                None => format!("`{condition}` held when it was known last"),
                Some(value) if !test.fits(value) => format!(
                    "`{condition}` holds on: it is {}, and has to get to {} for {}",
                    condition.quantity.show(value),
                    condition.quantity.show(test.leave),
                    test.hold,
                ),
                Some(value) => {
                    format!("`{condition}` holds: it is {}", condition.quantity.show(value))
                }
            }
        });
        let all: Vec<String> = keys.into_iter().chain(conditions).collect();
        if all.is_empty() { "it has no conditions".to_owned() } else { all.join("; ") }
    }
}

impl Rule {
    /// Returns why the selectors of the rule do not match `flow`, or `None` if they match.
    fn miss(&self, flow: &Flow<'_>) -> Option<String> {
        let miss = |selector: &Selector| {
            let key = selector.miss(flow)?;
            let patterns = selector.patterns(key);
            Some(match flow.value(key) {
                Some(value) => format!("{key} is {value}, not {patterns}"),
                None => format!("{key} is not known, so not {patterns}"),
            })
        };
        let misses: Option<Vec<String>> = self.only.iter().map(miss).collect();
        if let Some(mut misses) = misses {
            misses.dedup();
            return Some(misses.join("; "));
        }
        let not = self.not.iter().find(|selector| selector.miss(flow).is_none())?;
        Some(format!("`not` rules it out: {}", not.found(flow)))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        match self.rule {
            Some(_) => write!(f, "so: {}", self.action)?,
            None => write!(f, "no rule matches, so the default: {}", self.action)?,
        }
        if self.waits {
            f.write_str("\nnone of its paths is up: it waits")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.matched { "matches" } else { "does not match" };
        write!(f, "{} (line {}) {sign}: {}", self.rule, self.line, self.why)
    }
}
