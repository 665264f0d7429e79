//! Refuses options without effect.

use crate::failure::Failure;

/// Hint for an option that has no effect.
pub const NO_EFFECT_HINT: &str = "leave out the option";

/// Fails on the first combination that is given: whether it is given, error, hint.
pub fn check_combinations(combinations: &[(bool, &str, &str)]) -> Result<(), Failure> {
    match combinations.iter().find(|(is_given, ..)| *is_given) {
        Some((_, sentence, hint)) => Err(Failure::usage(*sentence).hint(*hint)),
        None => Ok(()),
    }
}
