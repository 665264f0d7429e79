//! The same bytes at several capture points: which stream here is which there, how long bytes took
//! from point to point, and how far the points' clocks are apart.
//!
//! A [`Track`] is one direction of a stream at one point; [`Follow`] makes those of a capture, and
//! [`orient()`] finds out which way along the chain they go. [`pairing::pair`] finds the same bytes in
//! the tracks of two points: by the numbers of TCP where both saw the same connection, or else by
//! what the bytes are, as a proxy on the way puts them into other segments or under other framing.
//! [`Clock`] is told of the times at both and estimates what parts the clocks. A [`Log`] says when
//! bytes passed points that no capture sees. [`Report`] has all of it for a chain of points, as the
//! paper on wearables takes a delay apart (3.3.2).
//!
//! Every time is that at which bytes passed a point first. Where they were lost behind it, the time
//! of the repair is part of their delay; [`Sample::was_resent`] tells where that is known.

mod anchor;
pub mod clock;
mod content;
pub mod delay;
pub mod follow;
mod hull;
pub mod log;
mod orient;
pub mod pairing;
mod part;
pub mod report;
mod row;
mod sequence;
#[cfg(test)]
mod tests;
pub mod track;

use std::fmt;

use manyways_unit::{Span, Time};

pub use clock::{Clock, Ppm};
pub use delay::{Sample, Summary};
pub use follow::{Follow, Followed};
pub use log::{Log, LogError};
pub use orient::orient;
pub use pairing::{How, Match, Pairing, Same};
pub use part::{Name, Part, Trust};
pub use report::{Pair, Place, Point, Report};
pub use row::Delay;
pub use track::{Carries, Origin, Track};

/// Which way along the chain of points a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the first point to the last.
    Along,
    /// From the last to the first.
    Against,
}

impl Way {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Along, Self::Against];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Along => Self::Against,
            Self::Against => Self::Along,
        }
    }
}

/// A time less another one, which may be of another clock: it can be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference(i64);

impl Difference {
    /// That many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From `first` to `second`; what does not fit is the most that does.
    pub const fn between(first: Time, second: Time) -> Self {
        let span = second.as_nanos() as i128 - first.as_nanos() as i128;
        // Half the room, so that two of them can be added.
        const MOST: i128 = (i64::MAX / 2) as i128;
        Self(if span > MOST {
            MOST as i64
        } else if span < -MOST {
            -MOST as i64
        } else {
            span as i64
        })
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long it is, whatever its sign.
    pub const fn size(self) -> Span {
        Span::from_nanos(self.0.unsigned_abs())
    }

    /// The sum; it saturates.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left without `other`; it saturates.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", self.size())
    }
}
