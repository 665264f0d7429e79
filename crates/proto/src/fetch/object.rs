//! What a fetch knows of its object: what it is, and whether bytes of several responses may be
//! combined.

use super::{Note, Object};

/// What is known of the object.
#[derive(Debug)]
pub(super) enum ObjectState {
    /// No response has described the object.
    Unknown {
        /// The length that the caller expects; `None` once a response contradicted it.
        expected_length: Option<u64>,
    },
    /// Bytes of several responses may be combined.
    Ranged(Object),
    /// Only one response can bring the object.
    WholeOnly {
        object: Object,
        /// Why no other response can be added.
        why: WholeOnly,
    },
}

/// Why only one response can bring an object, so that only one path is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WholeOnly {
    /// The server does not support range requests.
    NoRanges,
    /// Nothing identifies the version of the object.
    NoValidator,
    /// The length is unknown.
    NoLength,
    /// The body has a `Content-Encoding`.
    Encoded,
}

/// What the responses to range requests have shown of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeSupport {
    Untested,
    /// A range request was answered with that range.
    Works,
    /// A range request was answered with the whole object.
    Ignored,
    /// Both: servers of different paths differ.
    Mixed,
}

/// Whether the responses were of one version of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Versions {
    Agree,
    /// A response was of another version than the one that is being fetched.
    Differ,
}

/// What the first request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirstRequest {
    /// As much as the scheduler gives out at once.
    Scheduled,
    /// The whole object: a part was of no use.
    Whole,
}

impl ObjectState {
    /// The object, once a response (or an earlier run) has described it.
    pub(super) fn known(&self) -> Option<&Object> {
        match self {
            Self::Unknown { .. } => None,
            Self::Ranged(object) | Self::WholeOnly { object, .. } => Some(object),
        }
    }

    pub(super) fn known_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Unknown { .. } => None,
            Self::Ranged(object) | Self::WholeOnly { object, .. } => Some(object),
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    pub(super) fn is_ranged(&self) -> bool {
        matches!(self, Self::Ranged(_))
    }

    pub(super) fn is_whole_only(&self) -> bool {
        matches!(self, Self::WholeOnly { .. })
    }

    /// The length that the caller expects, which no longer counts afterwards.
    pub(super) fn take_expected_length(&mut self) -> Option<u64> {
        match self {
            Self::Unknown { expected_length } => expected_length.take(),
            _ => None,
        }
    }

    /// From now on only one response can bring a known object.
    pub(super) fn restrict(&mut self, why: WholeOnly) {
        if let Some(object) = self.known().cloned() {
            *self = Self::WholeOnly { object, why };
        }
    }
}

impl From<WholeOnly> for Note {
    fn from(why: WholeOnly) -> Self {
        match why {
            WholeOnly::NoRanges => Self::NoRanges,
            WholeOnly::NoValidator => Self::NoValidator,
            WholeOnly::NoLength => Self::NoLength,
            WholeOnly::Encoded => Self::Encoded,
        }
    }
}

impl RangeSupport {
    /// A range request was answered with that range.
    pub(super) fn saw_part(&mut self) {
        *self = match self {
            Self::Untested | Self::Works => Self::Works,
            Self::Ignored | Self::Mixed => Self::Mixed,
        };
    }

    /// A range request was answered with the whole object.
    pub(super) fn saw_whole(&mut self) {
        *self = match self {
            Self::Untested | Self::Ignored => Self::Ignored,
            Self::Works | Self::Mixed => Self::Mixed,
        };
    }

    /// Whether a range request ever worked.
    pub(super) fn works(self) -> bool {
        matches!(self, Self::Works | Self::Mixed)
    }

    /// Whether a range request was ever ignored.
    pub(super) fn is_ignored(self) -> bool {
        matches!(self, Self::Ignored | Self::Mixed)
    }
}
