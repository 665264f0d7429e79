//! Choices of the paths of auto rules by another program.
//!
//! A choice lasts until the next one for the same goal. With a lease it also ends when the lease has
//! passed since the last request for the goal, so that the rules do not follow a program that no
//! longer runs.

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::{Span, Time};

use crate::policy::Goal;

/// Maximum number of paths in a choice: as many as a session can have.
const MAX_PATHS: usize = 64;
/// Maximum length of a path's name in bytes.
const MAX_NAME: usize = 255;
/// Maximum lease in seconds: one day.
const MAX_LEASE: f64 = 86_400.0;

/// A choice that is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
    /// Not positive, not a number, or too long.
    #[error("{seconds} s is not a lease")]
    InvalidLease { seconds: f64 },
}

impl ChoiceError {
    /// Returns a hint for the user. `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownGoal(_) => Some("the goals are fast, balanced and thrifty".to_owned()),
            Self::InvalidLease { .. } => {
                Some(format!("a lease is longer than 0 s, and at most {MAX_LEASE} s"))
            }
            Self::TooManyPaths | Self::InvalidName => None,
        }
    }
}

/// The choice for a goal differs from the previous one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub goal: Goal,
    /// Names of the chosen paths; empty if the choice has ended.
    pub paths: Vec<String>,
}

/// The current choices; see the [module](self).
#[derive(Debug, Default)]
pub struct Choices {
    current: BTreeMap<Goal, Choice>,
    changes: VecDeque<Change>,
}

#[derive(Debug)]
struct Choice {
    paths: Vec<String>,
    /// End of the lease.
    end: Option<Time>,
}

impl Choices {
    /// Chooses paths for the rules with a goal; without paths, ends their choice. The same paths
    /// again only replace the lease.
    ///
    /// # Errors
    /// If the goal, a name or the lease is invalid. The previous choice then remains, with its
    /// lease.
    pub fn choose(
        &mut self,
        now: Time,
        goal: &str,
        paths: Vec<String>,
        lease_seconds: Option<f64>,
    ) -> Result<(), ChoiceError> {
        let goal: Goal = goal.parse().map_err(|_| ChoiceError::UnknownGoal(goal.to_owned()))?;
        check_paths(&paths)?;
        let lease = lease_seconds.map(parse_lease).transpose()?;
        // The outcome depends on the times of requests, not on when the shell polls.
        self.end_leases(now);
        let previous = self.current.remove(&goal).map(|choice| choice.paths).unwrap_or_default();
        if !paths.is_empty() {
            let end = lease.map(|lease| now + lease);
            self.current.insert(goal, Choice { paths: paths.clone(), end });
        }
        if paths != previous {
            self.changes.push_back(Change { goal, paths });
        }
        Ok(())
    }

    /// Returns the next change.
    pub fn poll(&mut self, now: Time) -> Option<Change> {
        self.end_leases(now);
        self.changes.pop_front()
    }

    /// Returns the time at which the next lease ends.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.current.values().filter_map(|choice| choice.end).min()
    }

    /// Returns the chosen paths, as [`Environment::choices`] at the last change.
    ///
    /// [`Environment::choices`]: crate::policy::Environment::choices
    pub fn paths(&self) -> BTreeMap<String, Vec<String>> {
        let current = self.current.iter();
        current.map(|(goal, choice)| (goal.name().to_owned(), choice.paths.clone())).collect()
    }

    fn end_leases(&mut self, now: Time) {
        let is_over = |_: &Goal, choice: &mut Choice| choice.end.is_some_and(|end| end <= now);
        let ended = self.current.extract_if(.., is_over);
        self.changes.extend(ended.map(|(goal, _)| Change { goal, paths: Vec::new() }));
    }
}

fn check_paths(paths: &[String]) -> Result<(), ChoiceError> {
    if paths.len() > MAX_PATHS {
        return Err(ChoiceError::TooManyPaths);
    }
    match paths.iter().all(|name| (1..=MAX_NAME).contains(&name.len())) {
        true => Ok(()),
        false => Err(ChoiceError::InvalidName),
    }
}

fn parse_lease(seconds: f64) -> Result<Span, ChoiceError> {
    match seconds > 0.0 && seconds <= MAX_LEASE {
        true => Ok(Span::from_secs_f64(seconds)),
        false => Err(ChoiceError::InvalidLease { seconds }),
    }
}

#[cfg(test)]
mod tests;
