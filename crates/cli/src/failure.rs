//! What a user sees when something fails: one sentence, one hint, and the right exit code.

use std::fmt;
use std::process::ExitCode;

/// A failure with the words for it. Make one where the user can act on it; other errors become
/// one through their `Display`, without a hint.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    hint: Option<String>,
    usage: bool,
}

impl Failure {
    /// The work failed (exit code 1).
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: None, usage: false }
    }

    /// The request itself makes no sense (exit code 2).
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { usage: true, ..Self::new(sentence) }
    }

    /// What the user can do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Prints it to stderr.
    pub fn report(&self) -> ExitCode {
        eprintln!("manyways: {self}");
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
        ExitCode::from(if self.usage { 2 } else { 1 })
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
