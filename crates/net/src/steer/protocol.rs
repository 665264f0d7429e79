//! Requests to a running `manyways steer run`, over its control socket.

use manyways_model::select::{Goal, GoalError};
use serde::{Deserialize, Serialize};

use super::document::{SteerPreference, SteerStatus, SteerWhy};
use super::state::MAX_PREFERENCE;
use crate::control::{Request, Response, Service};

/// The control socket of this user's `steer run`.
pub const SERVICE: Service = Service::only("steer", "`manyways steer run`");

/// Length of a name in a request, at most.
const MAX_NAME: usize = 255;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SteerRequest {
    /// The networks and the choices.
    Status,
    /// The choice for a transfer, with its reasons.
    Why(TransferQuery),
    /// The choice for a transfer that begins now.
    Advise(TransferQuery),
    /// Notes a transfer that has ended, for the sizes of later ones.
    Ended(EndedTransfer),
    /// Prefers a network for a while.
    Prefer(PreferRequest),
}

/// A transfer, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransferQuery {
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub app: Option<String>,
    /// Bytes, if they are known.
    #[serde(default)]
    pub size: Option<u64>,
    /// To the host, not from it.
    #[serde(default)]
    pub up: bool,
    /// `fast`, `balanced` or `thrifty`; by default the goal of the process.
    #[serde(default)]
    pub goal: Option<String>,
    /// The text of a file of a goal, in place of its name.
    #[serde(default)]
    pub goal_file: Option<String>,
    /// Whether two networks at once can carry the transfer.
    #[serde(default)]
    pub both: bool,
    /// The networks that an earlier answer advised, while the transfer goes on: they stay unless others
    /// are better by enough.
    #[serde(default)]
    pub followed: Vec<String>,
}

impl TransferQuery {
    /// The goal of the request; `None` if that of the process applies.
    ///
    /// # Errors
    /// The text of the file is wrong.
    pub fn stated_goal(&self) -> Result<Option<Goal>, GoalError> {
        match &self.goal_file {
            Some(text) => Goal::parse(text).map(Some),
            None => Ok(self.goal.as_deref().and_then(Goal::named)),
        }
    }
}

/// A transfer that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedTransfer {
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub app: Option<String>,
    pub size: u64,
    #[serde(default)]
    pub up: bool,
}

/// Prefers a network, or ends a preference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreferRequest {
    /// Name or kind of the network; `None` ends the preference.
    #[serde(default)]
    pub network: Option<String>,
    /// Ignored at the end of a preference.
    #[serde(default)]
    pub seconds: f64,
    /// Only for this application.
    #[serde(default)]
    pub app: Option<String>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SteerResponse {
    Status(Box<SteerStatus>),
    Why(Box<SteerWhy>),
    /// The networks for the transfer, the first one first; empty if none can be used.
    Advice {
        networks: Vec<String>,
    },
    Noted,
    Preferred(SteerPreference),
    Refused {
        /// The reason, as one sentence.
        message: String,
        hint: Option<String>,
    },
}

impl Request for SteerRequest {
    type Response = SteerResponse;
}

impl Response for SteerResponse {
    fn refused(message: String, hint: Option<String>) -> Self {
        Self::Refused { message, hint }
    }
}

impl SteerRequest {
    /// Checks names and numbers.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub fn check(&self) -> Result<(), SteerResponse> {
        let refused = |message: &str, hint: &str| {
            Err(SteerResponse::refused(message.to_owned(), Some(hint.to_owned())))
        };
        let names: [Option<&String>; 3] = match self {
            Self::Status => [None; 3],
            Self::Why(query) | Self::Advise(query) => {
                [query.host.as_ref(), query.app.as_ref(), query.goal.as_ref()]
            }
            Self::Ended(ended) => [ended.host.as_ref(), ended.app.as_ref(), None],
            Self::Prefer(prefer) => [prefer.network.as_ref(), prefer.app.as_ref(), None],
        };
        let followed: &[String] = match self {
            Self::Why(query) | Self::Advise(query) => &query.followed,
            _ => &[],
        };
        let names = names.into_iter().flatten().chain(followed);
        if names.into_iter().any(|name| !(1..=MAX_NAME).contains(&name.len())) {
            return refused("a name is empty or too long", "a name has 1 to 255 bytes");
        }
        match self {
            Self::Why(TransferQuery { goal: Some(goal), .. })
            | Self::Advise(TransferQuery { goal: Some(goal), .. })
                if Goal::named(goal).is_none() =>
            {
                refused("this goal is unknown", "the goals are fast, balanced and thrifty")
            }
            Self::Why(query) | Self::Advise(query) if query.goal_file.is_some() => {
                match query.stated_goal() {
                    _ if query.goal.is_some() => {
                        refused("there are two goals", "state a name, or the text of a file")
                    }
                    Err(error) => Err(SteerResponse::refused(
                        format!("the goal is wrong: {error}"),
                        error.hint,
                    )),
                    Ok(_) => Ok(()),
                }
            }
            Self::Prefer(prefer)
                if prefer.network.is_some()
                    && !(prefer.seconds > 0.0 && prefer.seconds <= MAX_PREFERENCE as f64) =>
            {
                refused(
                    "this time is too short or too long",
                    "prefer a network for more than no time, and at most a year",
                )
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let request: SteerRequest =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.check().map_err(|response| match response {
            SteerResponse::Refused { message, .. } => message,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_request_has_limits() {
        for right in [
            r#""status""#,
            r#"{"why":{"host":"example.org","size":3000}}"#,
            r#"{"advise":{"goal":"thrifty","both":true,"followed":["lte","wifi"]}}"#,
            r#"{"why":{"goal_file":"speed = 1\nmoney = 0.5"}}"#,
            r#"{"ended":{"size":18446744073709551615}}"#,
            r#"{"prefer":{"network":"lte","seconds":600}}"#,
            r#"{"prefer":{"app":"zoom"}}"#,
        ] {
            assert_eq!(checked(right), Ok(()), "{right}");
        }
        for (wrong, words) in [
            (r#"{"why":{"goal":"best"}}"#, "this goal is unknown"),
            (r#"{"why":{"goal_file":"sped = 1"}}"#, "the goal is wrong: line 1, column 1: "),
            (r#"{"why":{"goal":"fast","goal_file":"speed = 1"}}"#, "there are two goals"),
            (r#"{"why":{"host":""}}"#, "a name is empty or too long"),
            (r#"{"advise":{"followed":[""]}}"#, "a name is empty or too long"),
            (r#"{"prefer":{"network":"lte","seconds":0}}"#, "too short or too long"),
            (r#"{"prefer":{"network":"lte","seconds":1e300}}"#, "too short or too long"),
            (r#"{"ended":{"size":-1}}"#, "invalid value"),
            (r#"{"stop":{}}"#, "unknown variant"),
        ] {
            assert!(checked(wrong).unwrap_err().contains(words), "{wrong}");
        }
    }
}
