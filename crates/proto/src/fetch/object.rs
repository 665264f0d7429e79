//! Known properties of the object, and whether bytes of several responses may be combined.

use super::{Note, Object};

#[derive(Debug)]
pub(super) enum ObjectState {
    /// No response has described the object.
    Unknown {
        /// The length that the caller expects; `None` once a response contradicted it.
        expected_length: Option<u64>,
    },
    /// Bytes of several responses may be combined.
    Ranged(Object),
    /// Only one response can deliver the object.
    WholeOnly {
        object: Object,
        /// Why no other response can be combined with it.
        reason: WholeOnly,
    },
}

/// Why only one response can deliver an object, so that only one path is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WholeOnly {
    /// The server does not support range requests.
    NoRanges,
    /// The object has no usable validator.
    NoValidator,
    /// The length is unknown.
    NoLength,
    /// The body has a `Content-Encoding`.
    Encoded,
    /// A proxy has changed the body (status 203).
    Transformed,
}

/// Range support that the responses have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RangeSupport {
    Untested,
    /// A range request was answered with that range.
    Works,
    /// A range request was answered with the whole object.
    Ignored,
    /// Both: the servers of different paths differ.
    Mixed,
}

/// Whether all responses describe the same version of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Versions {
    Agree,
    /// A response described a version other than the one that is fetched.
    Differ,
}

/// Extent of the first request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirstRequest {
    /// The range that the scheduler assigns to one request.
    Scheduled,
    /// The whole object, because a part was of no use.
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

    /// Returns the length that the caller expects, and removes it.
    pub(super) fn take_expected_length(&mut self) -> Option<u64> {
        match self {
            Self::Unknown { expected_length } => expected_length.take(),
            _ => None,
        }
    }

    /// Restricts a known object to one response.
    pub(super) fn restrict(&mut self, why: WholeOnly) {
        if let Some(object) = self.known().cloned() {
            *self = Self::WholeOnly { object, reason: why };
        }
    }
}

impl From<WholeOnly> for Note {
    fn from(reason: WholeOnly) -> Self {
        match reason {
            WholeOnly::NoRanges => Self::NoRanges,
            WholeOnly::NoValidator => Self::NoValidator,
            WholeOnly::NoLength => Self::NoLength,
            WholeOnly::Encoded => Self::Encoded,
            WholeOnly::Transformed => Self::Transformed,
        }
    }
}

impl RangeSupport {
    /// Notes that a range request was answered with that range.
    pub(super) fn on_partial_response(&mut self) {
        *self = match self {
            Self::Untested | Self::Works => Self::Works,
            Self::Ignored | Self::Mixed => Self::Mixed,
        };
    }

    /// Notes that a range request was answered with the whole object.
    pub(super) fn on_whole_response(&mut self) {
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
