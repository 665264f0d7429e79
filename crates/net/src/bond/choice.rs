//! Choice of the paths of auto rules by another program.

use manyways_proto::policy::Goal;
use serde::{Deserialize, Serialize};

use super::enforcer::PolicyEnforcer;
use super::event::BondEvent;

/// Maximum number of paths in a choice: as many as a session can have.
const MAX_PATHS: usize = 64;
/// Maximum length of a path's name in bytes.
const MAX_NAME: usize = 255;

/// A request to choose the paths of auto rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChoiceRequest {
    /// Goal of the rules: `fast`, `balanced` or `thrifty`.
    pub goal: String,
    /// Names of the chosen paths, also of paths that do not exist yet. Without names, the rules
    /// no longer have a choice, and use all paths.
    pub paths: Vec<String>,
}

/// A choice that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// No rule can have this goal.
    #[error("{0:?} is not a goal")]
    UnknownGoal(String),
    /// The choice has more paths than a session.
    #[error("a choice has at most {MAX_PATHS} paths")]
    TooManyPaths,
    /// The name of a path is empty or too long.
    #[error("the name of a path has 1 to {MAX_NAME} bytes")]
    InvalidName,
}

impl ChoiceError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownGoal(_) => Some("the goals are fast, balanced and thrifty".to_owned()),
            Self::TooManyPaths | Self::InvalidName => None,
        }
    }
}

impl PolicyEnforcer {
    /// Returns the goals of the policy's auto rules.
    pub fn goals(&self) -> Vec<Goal> {
        self.table().policy().goals()
    }

    /// Chooses the paths of the auto rules with this goal. Running flows move at once. The choice
    /// lasts until the next one, and also applies to rules of later policies.
    ///
    /// # Errors
    /// If the goal or the name of a path is invalid. The previous choice then remains.
    pub fn choose(&self, goal: &str, paths: Vec<String>) -> Result<(), ChoiceError> {
        let goal: Goal = goal.parse().map_err(|_| ChoiceError::UnknownGoal(goal.to_owned()))?;
        check(&paths)?;
        if self.set_choice(goal, paths.clone()) {
            self.record_event(|| BondEvent::BondChoice { goal: goal.to_string(), paths });
            self.apply_choices();
        }
        Ok(())
    }
}

fn check(paths: &[String]) -> Result<(), ChoiceError> {
    if paths.len() > MAX_PATHS {
        return Err(ChoiceError::TooManyPaths);
    }
    match paths.iter().all(|name| (1..=MAX_NAME).contains(&name.len())) {
        true => Ok(()),
        false => Err(ChoiceError::InvalidName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_has_limits() {
        let names = |count: usize, length: usize| vec!["x".repeat(length); count];
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&names(MAX_PATHS, MAX_NAME)), Ok(()));
        assert_eq!(check(&names(MAX_PATHS + 1, 1)), Err(ChoiceError::TooManyPaths));
        assert_eq!(check(&names(1, 0)), Err(ChoiceError::InvalidName));
        assert_eq!(check(&names(1, MAX_NAME + 1)), Err(ChoiceError::InvalidName));
    }
}
