//! Explanation of a decision as text.

use std::fmt;

use super::condition::Condition;
use super::engine::{Decision, Engine};
use super::hysteresis::ConditionState;
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
    pub is_waiting: bool,
}

/// Result of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub rule: String,
    /// Line in the policy file.
    pub line: usize,
    pub matched: bool,
    /// The matched properties, or the first property that did not match.
    pub reason: String,
}

impl Engine {
    /// Returns the decision of [`decide`](Self::decide) about `flow` and its reasons.
    pub fn explain(&self, flow: &Flow<'_>) -> Explanation {
        let mut steps = Vec::new();
        let mut first = None;
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let miss = rule.mismatch(flow).or_else(|| self.unmet_condition(index));
            let matched = miss.is_none();
            steps.push(Step {
                rule: rule.name.clone(),
                line: rule.line,
                matched,
                reason: miss.unwrap_or_else(|| self.reasons(index, rule, flow)),
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
            action: action.text(&self.environment),
            steps,
            is_waiting: match verdict.decision {
                Decision::Bond(treatment) => self.is_all_down(treatment.paths),
                _ => false,
            },
        }
    }

    /// Returns the first condition of a rule that does not hold, as text.
    fn unmet_condition(&self, index: usize) -> Option<String> {
        let (condition, gauge) = self.conditions(index).find(|(_, gauge)| !gauge.is_met())?;
        let quantity = condition.quantity;
        let reason = match gauge.value() {
            None => "it is not known".to_owned(),
            Some(value) if gauge.changes_at(&condition.comparison).is_some() => {
                format!(
                    "it is {}, but not for {} yet",
                    quantity.value_text(value),
                    condition.comparison.hysteresis
                )
            }
            Some(value) => format!("it is {}", quantity.value_text(value)),
        };
        Some(format!("`{condition}` does not hold: {reason}"))
    }

    fn conditions(&self, index: usize) -> impl Iterator<Item = &(Condition, ConditionState)> {
        let wanted = self.rule_conditions.get(index).into_iter().flatten();
        wanted.filter_map(|gauge| self.condition_states.get(*gauge))
    }

    /// Returns the conditions of a matched rule with the found values.
    fn reasons(&self, index: usize, rule: &Rule, flow: &Flow<'_>) -> String {
        let fits = rule.included.iter().find(|selector| selector.mismatch(flow).is_none());
        let keys =
            fits.map(|selector| selector.matched_values(flow)).filter(|found| !found.is_empty());
        let conditions = self.conditions(index).map(|(condition, gauge)| {
            let test = &condition.comparison;
            match gauge.value() {
                None => format!("`{condition}` held when it was known last"),
                Some(value) if !test.matches(value) => format!(
                    "`{condition}` holds on: it is {}, and has to get to {} for {}",
                    condition.quantity.value_text(value),
                    condition.quantity.value_text(test.exit_threshold),
                    test.hysteresis,
                ),
                Some(value) => {
                    format!("`{condition}` holds: it is {}", condition.quantity.value_text(value))
                }
            }
        });
        let all: Vec<String> = keys.into_iter().chain(conditions).collect();
        if all.is_empty() { "it has no conditions".to_owned() } else { all.join("; ") }
    }
}

impl Rule {
    /// Returns why the selectors of the rule do not match `flow`, or `None` if they match.
    fn mismatch(&self, flow: &Flow<'_>) -> Option<String> {
        let miss = |selector: &Selector| {
            let key = selector.mismatch(flow)?;
            let patterns = selector.patterns(key);
            Some(match flow.value(key) {
                Some(value) => format!("{key} is {value}, not {patterns}"),
                None => format!("{key} is not known, so not {patterns}"),
            })
        };
        let misses: Option<Vec<String>> = self.included.iter().map(miss).collect();
        if let Some(mut misses) = misses {
            misses.dedup();
            return Some(misses.join("; "));
        }
        let not = self.excluded.iter().find(|selector| selector.mismatch(flow).is_none())?;
        Some(format!("`not` rules it out: {}", not.matched_values(flow)))
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
        if self.is_waiting {
            f.write_str("\nnone of its paths is up: it waits")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.matched { "matches" } else { "does not match" };
        write!(f, "{} (line {}) {sign}: {}", self.rule, self.line, self.reason)
    }
}
