//! Parts of a delay along a chain of points.

use manyways_unit::Span;

use super::clock::ClockAlignment;
use super::delay::{Sample, Summary};
use super::{ChainDirection, Difference};

/// Part of the delay from a server to a wearable, as in the paper on wearables (3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartName {
    /// Between the server and the phone.
    D1,
    /// In the phone: receive buffer and proxy.
    D2AndD3,
    /// In the receive buffer, until the proxy reads.
    D2,
    /// In the proxy, until it writes.
    D3,
    /// Between the phone and the wearable.
    D4,
    /// Between two other points.
    Other,
}

/// Accuracy of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// Both times are of one clock.
    OneClock,
    /// The times are of two clocks with an estimated offset: the delays of one direction may be too
    /// long by up to this value, and those of the other direction too short by the same value.
    ErrorBound(Span),
    /// Bytes passed in only one direction, so the clock offset is unknown: delays are relative to
    /// the shortest one.
    RelativeToMin,
    /// The clocks are not steady: delays are unreliable.
    Unsteady,
}

impl PartName {
    /// Returns the value in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::D1 => "d1",
            Self::D2AndD3 => "d2+d3",
            Self::D2 => "d2",
            Self::D3 => "d3",
            Self::D4 => "d4",
            Self::Other => "other",
        }
    }
}

impl Accuracy {
    /// Returns the value in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneClock => "one-clock",
            Self::ErrorBound(_) => "within",
            Self::RelativeToMin => "above-minimum",
            Self::Unsteady => "unsteady",
        }
    }
}

/// Delay of one part, over all streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: PartName,
    /// Direction of the bytes.
    pub direction: ChainDirection,
    /// Indices of the points in the chain. A log has the index of its proxy.
    pub points: [usize; 2],
    pub accuracy: Accuracy,
    /// Over all bytes.
    pub all: Summary,
    /// Over bytes that the earlier point did not capture again. `None` if there are none.
    pub sent_once: Option<Summary>,
}

impl Part {
    /// Whether the times are of two clocks.
    pub fn crosses_clocks(&self) -> bool {
        self.accuracy != Accuracy::OneClock
    }
}

/// Converts samples to delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayConverter<'a> {
    pub direction: ChainDirection,
    pub clock: Option<&'a ClockAlignment>,
}

impl DelayConverter<'_> {
    pub fn accuracy(&self) -> Accuracy {
        match self.clock {
            None => Accuracy::OneClock,
            Some(clock) if !clock.is_steady => Accuracy::Unsteady,
            Some(clock) => clock.max_error.map_or(Accuracy::RelativeToMin, Accuracy::ErrorBound),
        }
    }

    /// Returns the delay by one clock; without a clock offset, up to a constant.
    pub fn delay(&self, sample: &Sample) -> Difference {
        let ahead = self.clock.map_or(Difference::default(), |clock| {
            clock.offset_at(sample.first).unwrap_or_else(|| clock.offset_change(sample.first))
        });
        let along = sample.difference().less(ahead);
        match self.direction {
            ChainDirection::Forward => along,
            ChainDirection::Reverse => Difference::default().less(along),
        }
    }

    /// Returns the constant that is subtracted from all these delays.
    fn min_difference(&self, samples: &[Sample]) -> Difference {
        let least = samples.iter().map(|sample| self.delay(sample)).min();
        least.filter(|_| self.accuracy() == Accuracy::RelativeToMin).unwrap_or_default()
    }

    /// Returns the statistics of all delays, and of bytes without retransmission.
    pub fn summaries(&self, samples: &[Sample]) -> Option<(Summary, Option<Summary>)> {
        let min = self.min_difference(samples);
        let of = |wanted: &dyn Fn(&Sample) -> bool| {
            let wanted = samples.iter().filter(|sample| wanted(sample));
            Summary::of(wanted.map(|s| (self.delay(s).less(min), s.length)).collect())
        };
        Some((of(&|_| true)?, of(&|sample| !sample.was_retransmitted)))
    }
}
