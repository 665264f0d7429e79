//! Options that have no effect beside others.

use crate::failure::Failure;

/// The hint where an option is simply too much.
pub const LEAVE: &str = "leave it out";

/// Refuses the first combination that is given: whether it is, a sentence and a hint.
pub fn refuse(combinations: &[(bool, &str, &str)]) -> Result<(), Failure> {
    match combinations.iter().find(|(is_given, ..)| *is_given) {
        Some((_, sentence, hint)) => Err(Failure::usage(*sentence).hint(*hint)),
        None => Ok(()),
    }
}
