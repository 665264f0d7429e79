//! Choice of the paths of auto rules by another program.

use manyways_proto::bond::choice::ChoiceError;
use manyways_proto::policy::Goal;
use serde::{Deserialize, Serialize};

use super::enforcer::PolicyEnforcer;

/// A request to choose the paths of auto rules.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChoiceRequest {
    /// Goal of the rules: `fast`, `balanced` or `thrifty`.
    pub goal: String,
    /// Names of the chosen paths, also of paths that do not exist yet. Without names, the rules
    /// no longer have a choice, and use all paths.
    pub paths: Vec<String>,
    /// Time after which the choice ends without another request for this goal, in seconds; at most
    /// 86 400. `None`: the choice lasts until the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<f64>,
}

impl PolicyEnforcer {
    /// Returns the goals of the policy's auto rules.
    pub fn goals(&self) -> Vec<Goal> {
        self.table().policy().goals()
    }

    /// Chooses the paths of the auto rules with this goal. Running flows move at once. The choice
    /// lasts until the next one or the end of its lease, and also applies to rules of later
    /// policies.
    ///
    /// # Errors
    /// If the goal, the name of a path or the lease is invalid. The previous choice then remains.
    pub fn choose(&self, request: ChoiceRequest) -> Result<(), ChoiceError> {
        let ChoiceRequest { goal, paths, lease_seconds } = request;
        self.with_choices(|now, choices| choices.choose(now, &goal, paths, lease_seconds))
    }
}
