//! Alignment of captures from several capture points: matches the streams of the points, measures
//! the delay of bytes from point to point, and estimates the offset of the points' clocks.
//!
//! A [`Track`] is one direction of a stream at one point; [`TrackExtractor`] extracts the tracks of
//! a capture, and [`orient()`] determines their direction along the chain of points.
//! A [`Pairing`] has the same bytes in the tracks of two points: by TCP sequence numbers if
//! both points captured the same connection, otherwise by content, because a proxy between the
//! points changes the segmentation or framing of the bytes. [`ClockAlignment`] estimates clock
//! offset and drift from the times at both points. A [`ProxyLog`] contains the times at which bytes
//! passed points without a capture. [`Report`] combines these for a chain of points and divides a
//! delay into parts, as the paper on wearables does (3.3.2).
//!
//! Each time is the time at which bytes first passed a point. If they were lost after the point,
//! their delay includes the time of the retransmission; [`Delay::was_retransmitted`] is set if this
//! is known.

mod anchor;
mod clock;
mod content;
mod delay;
mod extract;
mod hull;
mod log;
mod orient;
mod pairing;
mod part;
mod report;
mod row;
mod sequence;
#[cfg(test)]
mod tests;
mod track;

use std::fmt;

use manyways_unit::{Span, Time};

pub use clock::{ClockAlignment, Ppm};
pub use delay::{Sample, Summary};
pub use extract::{CaptureTracks, TrackExtractor};
pub use log::{LogError, LogErrorKind, MAX_LINE_LEN, MAX_LINES, MAX_STREAMS, ProxyLog};
pub use orient::orient;
pub use pairing::{CommonRange, MAX_AMBIGUOUS, MAX_TRACKS, Match, MatchEvidence, Pairing};
pub use part::{Accuracy, Part, PartName};
pub use report::{Pair, PairedStream, Point, PointLocation, Report};
pub use row::Delay;
pub use track::{SequenceSource, Track, TrackContent};

/// Direction of a stream along the chain of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainDirection {
    /// From the first point to the last.
    Forward,
    /// From the last to the first.
    Reverse,
}

impl ChainDirection {
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Reverse];

    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// Difference of two times, which may be of different clocks; can be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference(i64);

impl Difference {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns `second - first`, limited to half the range of `i64`.
    pub const fn between(first: Time, second: Time) -> Self {
        let span = second.as_nanos() as i128 - first.as_nanos() as i128;
        // Half the range, so that the sum of two differences fits.
        const MOST: i128 = (i64::MAX / 2) as i128;
        Self(if span > MOST {
            MOST as i64
        } else if span < -MOST {
            -MOST as i64
        } else {
            span as i64
        })
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the absolute value.
    pub const fn abs(self) -> Span {
        Span::from_nanos(self.0.unsigned_abs())
    }

    /// Returns the saturating sum.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the saturating difference.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", self.abs())
    }
}
