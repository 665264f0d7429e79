//! The parts of a delay along a chain of points.

use manyways_unit::Span;

use super::clock::Clock;
use super::delay::{Sample, Summary};
use super::{Difference, Way};

/// A part of the delay from a server to a wearable, by the paper on wearables (3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Between the server and the phone.
    D1,
    /// In the phone: its receive buffer and its proxy.
    D2AndD3,
    /// In the receive buffer, until the proxy reads.
    D2,
    /// In the proxy, until it hands them on.
    D3,
    /// Between the phone and the wearable.
    D4,
    /// Between two other points.
    Other,
}

/// How good delays are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Both times are of one clock.
    OneClock,
    /// They are of two, whose offset was estimated: all delays of one way may be too long by up to
    /// so much, those of the other way too short by as much.
    Within(Span),
    /// Bytes went one way only, so the clocks' offset is not known: what is said is how much longer
    /// than the shortest one a delay was.
    AboveLeast,
    /// The clocks are not steady: do not rely on it.
    Unsteady,
}

impl Name {
    /// Its name in tables and documents.
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
    /// Its name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneClock => "one-clock",
            Self::Within(_) => "within",
            Self::AboveLeast => "above-least",
            Self::Unsteady => "unsteady",
        }
    }
}

/// What a part adds up to, for all streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which part.
    pub name: Name,
    /// Of bytes that go this way.
    pub way: Way,
    /// The points' numbers, in the chain's order. A log is at its proxy's.
    pub points: [usize; 2],
    /// How good it is.
    pub trust: Trust,
    /// Of all bytes.
    pub all: Summary,
    /// Of those that the point before never saw again; none where it saw all again.
    pub sent_once: Option<Summary>,
}

impl Part {
    /// Whether its times are of two clocks.
    pub fn crosses_clocks(&self) -> bool {
        self.trust != Trust::OneClock
    }
}

/// What a delay is measured with.
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

    /// How long it took by one clock. Without an offset it lacks a constant.
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

    /// What is taken off all delays of these.
    fn least(&self, samples: &[Sample]) -> Difference {
        let least = samples.iter().map(|sample| self.delay(sample)).min();
        least.filter(|_| self.trust() == Trust::AboveLeast).unwrap_or_default()
    }

    /// All delays, and those of bytes that were sent once.
    pub fn summaries(&self, samples: &[Sample]) -> Option<(Summary, Option<Summary>)> {
        let least = self.least(samples);
        let of = |wanted: &dyn Fn(&Sample) -> bool| {
            let wanted = samples.iter().filter(|sample| wanted(sample));
            Summary::of(wanted.map(|s| (self.delay(s).less(least), s.length)).collect())
        };
        Some((of(&|_| true)?, of(&|sample| !sample.was_resent)))
    }
}
