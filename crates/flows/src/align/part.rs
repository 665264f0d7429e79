//! Parts of a delay along a chain of points.

use manyways_unit::Span;

use super::clock::Clock;
use super::delay::{Sample, Summary};
use super::{Difference, Way};

/// Part of the delay from a server to a wearable, as in the paper on wearables (3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
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
pub enum Trust {
    /// Both times are of one clock.
    OneClock,
    /// The times are of two clocks with an estimated offset: the delays of one direction may be too
    /// long by up to this value, and those of the other direction too short by the same value.
    Within(Span),
    /// Bytes passed in only one direction, so the clock offset is unknown: delays are relative to
    /// the shortest one.
    AboveLeast,
    /// The clocks are not steady: delays are unreliable.
    Unsteady,
}

impl Name {
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

impl Trust {
    /// Returns the value in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneClock => "one-clock",
            Self::Within(_) => "within",
            Self::AboveLeast => "above-least",
            Self::Unsteady => "unsteady",
        }
    }
}

/// Delay of one part, over all streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: Name,
    /// Direction of the bytes.
    pub way: Way,
    /// Indices of the points in the chain. A log has the index of its proxy.
    pub points: [usize; 2],
    pub trust: Trust,
    /// Over all bytes.
    pub all: Summary,
    /// Over bytes that the earlier point did not capture again. `None` if there are none.
    pub sent_once: Option<Summary>,
}

impl Part {
    /// Whether the times are of two clocks.
    pub fn crosses_clocks(&self) -> bool {
        self.trust != Trust::OneClock
    }
}

/// Converts samples to delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure<'a> {
    pub way: Way,
    pub clock: Option<&'a Clock>,
}

impl Measure<'_> {
    pub fn trust(&self) -> Trust {
        match self.clock {
            None => Trust::OneClock,
            Some(clock) if !clock.is_steady => Trust::Unsteady,
            Some(clock) => clock.bound.map_or(Trust::AboveLeast, Trust::Within),
        }
    }

    /// Returns the delay by one clock; without a clock offset, up to a constant.
    pub fn delay(&self, sample: &Sample) -> Difference {
        let ahead = self.clock.map_or(Difference::default(), |clock| {
            clock.lead(sample.first).unwrap_or_else(|| clock.drifted(sample.first))
        });
        let along = sample.difference().less(ahead);
        match self.way {
            Way::Along => along,
            Way::Against => Difference::default().less(along),
        }
    }

    /// Returns the constant that is subtracted from all these delays.
    fn least(&self, samples: &[Sample]) -> Difference {
        let least = samples.iter().map(|sample| self.delay(sample)).min();
        least.filter(|_| self.trust() == Trust::AboveLeast).unwrap_or_default()
    }

    /// Returns the statistics of all delays, and of bytes without retransmission.
    pub fn summaries(&self, samples: &[Sample]) -> Option<(Summary, Option<Summary>)> {
        let least = self.least(samples);
        let of = |wanted: &dyn Fn(&Sample) -> bool| {
            let wanted = samples.iter().filter(|sample| wanted(sample));
            Summary::of(wanted.map(|s| (self.delay(s).less(least), s.length)).collect())
        };
        Some((of(&|_| true)?, of(&|sample| !sample.was_resent)))
    }
}
