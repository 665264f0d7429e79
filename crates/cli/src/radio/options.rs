//! Refuses options without effect.

use crate::failure::Failure;

/// Hint for an option that has no effect.
pub const LEAVE: &str = "leave out the option";

/// Fails on the first combination that is given: whether it is given, error, hint.
pub fn refuse(combinations: &[(bool, &str, &str)]) -> Result<(), Failure> {
    match combinations.iter().find(|(is_given, ..)| *is_given) {
        Some((_, sentence, hint)) => Err(Failure::usage(*sentence).hint(*hint)),
        None => Ok(()),
    }
}
