//! Answers and their reasons.

use std::fmt;

use super::reading::Place;
use super::shape::Class;

/// The recorded exchange for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A recorded request is equal, except perhaps in fields of the head.
    Hit(Hit),
    /// A recorded request is similar enough.
    Approximate {
        hit: Hit,
        /// Share of the weight that is equal: from the threshold to 1.
        score: f64,
        differences: Vec<Difference>,
    },
    /// No recorded request answers it.
    Miss {
        /// The most similar recorded request of the host.
        nearest: Option<Candidate>,
    },
}

/// A recorded exchange, and how its response becomes the response to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// That of the recorded request.
    pub id: usize,
    /// The request is HEAD, the recorded one GET: send no body.
    pub is_head: bool,
    /// The request has a field Range, the recorded response is the whole: cut it (RFC 9110, 14.2).
    pub is_range: bool,
    /// The request has a condition, the recorded one has none: evaluate it against the fields of the
    /// recorded response (RFC 9110, 13).
    pub is_conditional: bool,
}

/// A recorded request that was compared with a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    pub id: usize,
    /// Share of the weight that is equal: 0 to 1.
    pub score: f64,
    /// Whether it is excluded, whatever its score.
    pub is_excluded: bool,
    pub differences: Vec<Difference>,
}

/// A difference of a request from a recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    pub place: Place,
    /// Name of a key or field, key path of JSON, or number of a segment.
    pub key: String,
    /// `None` if the recorded request does not have it. Long values are cut.
    pub recorded: Option<String>,
    /// `None` if the request does not have it.
    pub asked: Option<String>,
    pub class: Class,
}

/// Why a request is answered as it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The answer if no request came before.
    pub answer: Answer,
    /// The best first, at most sixteen.
    pub candidates: Vec<Candidate>,
    /// Scores below it are misses.
    pub threshold: f64,
}

impl Answer {
    /// Returns the recorded exchange; `None` for a miss.
    pub fn hit(&self) -> Option<Hit> {
        match self {
            Self::Hit(hit) | Self::Approximate { hit, .. } => Some(*hit),
            Self::Miss { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "segment of the path",
            Self::Query => "query key",
            Self::Form => "form field",
            Self::Json => "JSON value",
            Self::Body => "body:",
            Self::Field => "field",
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.place, self.key)?;
        match (&self.recorded, &self.asked) {
            (Some(recorded), Some(asked)) => {
                write!(f, "`{recorded}` was recorded, `{asked}` is asked")?
            }
            (Some(recorded), None) => write!(f, "`{recorded}` was recorded, the request lacks it")?,
            (None, Some(asked)) => write!(f, "`{asked}` is asked, the recorded request lacks it")?,
            (None, None) => f.write_str("differs")?,
        }
        f.write_str(match self.class {
            Class::Identity => " (names an object)",
            Class::Volatile => " (differs in each run)",
            Class::Token => " (looks random)",
            Class::Number | Class::Word => "",
        })
    }
}
