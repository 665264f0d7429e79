//! What a user sees when something fails: one sentence, one hint, and the right exit code.

use std::fmt;
use std::process::ExitCode;

/// A failure with the words for it. Make one where the user can act on it; other errors become
/// one through their `Display`, without a hint.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    hint: Option<String>,
    code: u8,
}

#[cfg_attr(not(feature = "get"), allow(dead_code, reason = "used by a part of the commands"))]
impl Failure {
    /// The work failed (exit code 1).
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: without_numbers(&sentence.into()), hint: None, code: 1 }
    }

    /// The request itself makes no sense (exit code 2).
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self::new(sentence).code(2)
    }

    /// What the user can do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Another exit code than those two.
    pub fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The same, and says of what.
    pub fn about(self, subject: &str) -> Self {
        Self { sentence: format!("{subject}: {}", self.sentence), ..self }
    }

    /// Whether the request itself makes no sense.
    pub fn is_usage(&self) -> bool {
        self.code == 2
    }

    /// The hint, where there is one.
    pub fn hinted(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints it to stderr.
    pub fn report(&self) -> ExitCode {
        eprintln!("manyways: {self}");
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(|error| Self::new(format!("{error:#}")))
    }
}

/// The system's errors end in their number, which tells a user nothing that the words do not.
fn without_numbers(sentence: &str) -> String {
    const OPEN: &str = " (os error ";
    let mut parts = sentence.split(OPEN);
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                words.push_str(rest);
            }
            _ => words.extend([OPEN, part]),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_system_errors_are_left_out() {
        let sentence = "cannot read a: no such file (os error 2); cannot write b (os error 13)";
        let words = without_numbers(sentence);
        assert_eq!(words, "cannot read a: no such file; cannot write b");
        assert_eq!(without_numbers("x (os error y) z"), "x (os error y) z");
    }
}
