//! Error output for the user: one sentence, one hint, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// A failure as a message. Commands create one if the user can act on it. Other errors are
/// converted by their `Display`, without a hint.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Lines below the message.
    details: Vec<String>,
    hint: Option<String>,
    code: u8,
}

#[cfg_attr(not(feature = "get"), allow(dead_code, reason = "used by a part of the commands"))]
impl Failure {
    /// A failure of the operation (exit code 1).
    pub fn new(message: impl Into<String>) -> Self {
        let message = without_errno(&message.into());
        Self { message, details: Vec::new(), hint: None, code: 1 }
    }

    /// An invalid command line or input (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(message).code(2)
    }

    /// Returns a usage error with its hint.
    pub fn refuse<T, E: From<Self>>(
        sentence: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, E> {
        Err(Self::usage(sentence).hint(hint).into())
    }

    /// Sets the step that may solve the failure.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets the step that may solve the failure, if there is one.
    pub fn maybe_hint(self, hint: Option<impl Into<String>>) -> Self {
        Self { hint: hint.map(Into::into), ..self }
    }

    /// Sets lines below the message, such as the errors of a file.
    #[cfg_attr(
        not(any(feature = "bond", feature = "flows")),
        allow(dead_code, reason = "used by policies and filters")
    )]
    pub fn details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// Sets another exit code.
    pub fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Puts a subject before the message.
    pub fn with_subject(self, subject: &str) -> Self {
        Self { message: format!("{subject}: {}", self.message), ..self }
    }

    /// Whether the failure is a usage error (exit code 2).
    pub fn is_usage(&self) -> bool {
        self.code == 2
    }

    /// Prints the lines below the message, and the hint.
    pub fn report_rest(&self) {
        self.rest().for_each(|line| eprintln!("{line}"));
    }

    fn rest(&self) -> impl Iterator<Item = String> {
        let hint = self.hint.iter().map(|hint| format!("hint: {hint}"));
        self.details.iter().cloned().chain(hint)
    }

    /// The lines that [`Self::report`] prints. A line end within one of them would be escaped.
    #[cfg(test)]
    pub fn lines(&self) -> Vec<String> {
        std::iter::once(format!("manyways: {self}"))
            .chain(self.rest())
            .map(|line| manyways_unit::human::printable(&line).into_owned())
            .collect()
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints the failure to stderr and returns its exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("manyways: {self}");
        self.report_rest();
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(|error| Self::new(format!("{error:#}")))
    }
}

/// Removes the numbers of system errors, which add no information for the user.
fn without_errno(message: &str) -> String {
    const OPEN: &str = " (os error ";
    let mut parts = message.split(OPEN);
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
        let message = "cannot read a: no such file (os error 2); cannot write b (os error 13)";
        let words = without_errno(message);
        assert_eq!(words, "cannot read a: no such file; cannot write b");
        assert_eq!(without_errno("x (os error y) z"), "x (os error y) z");
    }
}
