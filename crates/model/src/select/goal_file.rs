//! Files of goals (TOML).

use manyways_unit::Rate;
use manyways_unit::toml::{Entry, Table, TomlError, line_and_column, parse_document};

use super::objective::Goal;

/// Greatest exponent. The thesis goes to 5 (figure 3-7).
const MAX_EXPONENT: f64 = 10.0;
const EXPONENTS: [&str; 3] = ["speed", "energy", "money"];
const AT_LEAST: &str = "at-least";

/// A fault in a file of a goal, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct GoalError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl Goal {
    /// Maximum number of bytes of a file.
    pub const MAX_TEXT: usize = 4 << 10;

    /// Parses a file with the exponents `speed`, `energy` and `money` (from 0 to 10, 0 without the
    /// key), or with `at-least = "5mbit"` alone: the cheapest choice that is so fast.
    ///
    /// # Errors
    /// Returns the first fault and its place.
    pub fn parse(text: &str) -> Result<Self, GoalError> {
        let read = match text.len() > Self::MAX_TEXT {
            true => Err(TomlError::new(0, format!("a goal has at most {} bytes", Self::MAX_TEXT))),
            false => parse_document(text, "the goal", read),
        };
        read.map_err(|error| {
            let (line, column) = line_and_column(text, error.offset);
            GoalError { line, column, message: error.message, hint: error.hint }
        })
    }
}

fn read(root: Table<'_>) -> Result<Goal, TomlError> {
    let root = root.check_keys(&[&EXPONENTS[..], &[AT_LEAST]].concat())?;
    if let Some(entry) = root.entry(AT_LEAST) {
        if let Some(other) = root.entries.iter().find(|one| one.key != AT_LEAST) {
            let message = format!("`{}` has no effect beside `{AT_LEAST}`", other.key);
            return Err(TomlError::new(other.key_offset, message).with_hint("keep one of them"));
        }
        let hint = "write it like at-least = \"5mbit\"";
        let rate: Rate = entry.parse().map_err(|error| error.with_hint(hint))?;
        if rate.is_zero() {
            return Err(entry.error("a rate above zero was expected").with_hint(hint));
        }
        return Ok(Goal { at_least: Some(rate), ..Goal::FAST });
    }
    let mut exponents = [0.0; 3];
    for (value, key) in exponents.iter_mut().zip(EXPONENTS) {
        *value = root.entry(key).map_or(Ok(0.0), exponent)?;
    }
    let [speed, energy, money] = exponents;
    if exponents.iter().all(|one| *one == 0.0) {
        let message = "the goal has no exponent above zero";
        let hint = "write speed = 1, or at-least = \"5mbit\"";
        return Err(TomlError::new(root.offset, message).with_hint(hint));
    }
    Ok(Goal { speed, energy, money, at_least: None })
}

fn exponent(entry: Entry<'_>) -> Result<f64, TomlError> {
    let wrong = || {
        entry
            .error(format!("a number from 0 to {MAX_EXPONENT} was expected"))
            .with_hint(format!("write it like {} = 0.5", entry.key))
    };
    let value = entry.scalar_text().map_err(|_| wrong())?.parse().ok();
    value.filter(|value| (0.0..=MAX_EXPONENT).contains(value)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_exponents_or_a_rate() {
        let goal = Goal::parse("speed = 1\nenergy = 0.5 # a half\n").unwrap();
        assert_eq!(goal, Goal { energy: 0.5, ..Goal::FAST });
        assert_eq!(Goal::parse("money = 2").unwrap().speed, 0.0);
        let goal = Goal::parse("at-least = \"5mbit\"").unwrap();
        assert_eq!(goal.at_least, Some(Rate::from_mbps(5)));
    }

    #[test]
    fn a_fault_has_its_place() {
        let error = |text: &str| Goal::parse(text).unwrap_err().to_string();
        let range = "a number from 0 to 10 was expected";
        assert_eq!(error("\nspeed = -1"), format!("line 2, column 9: speed: {range}"));
        assert_eq!(error("speed = nan"), format!("line 1, column 9: speed: {range}"));
        assert_eq!(error(""), "line 1, column 1: the goal has no exponent above zero");
        let both = "at-least = \"5mbit\"\nspeed = 1";
        assert_eq!(error(both), "line 2, column 1: `speed` has no effect beside `at-least`");
        assert!(error("at-least = 5").contains("a string in quotes was expected"));
        assert!(error("at-least = \"0mbit\"").contains("above zero"));
        assert!(error(&"#".repeat(5_000)).contains("at most 4096 bytes"));
        let hint = Goal::parse("sped = 1").unwrap_err().hint.unwrap();
        assert_eq!(hint, "did you mean `speed`?");
    }
}
