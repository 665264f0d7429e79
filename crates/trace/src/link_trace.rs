//! Recorded or generated capacity and delay of a link over time.

use manyways_unit::{Rate, Size, Span};

/// Reasons why steps or opportunities are not a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTrace {
    /// The trace has no entries.
    #[error("a trace needs at least one entry")]
    Empty,
    /// The period is zero, so that the trace could not advance.
    #[error("a trace must last longer than zero")]
    ZeroPeriod,
    /// The first step is not at zero.
    #[error("the first step of a trace must be at time zero")]
    LateStart,
    /// Entry `0` (counted from zero) is out of order.
    #[error("entry {} of the trace is not later than the previous one", .0 + 1)]
    Order(usize),
    /// Entry `0` (counted from zero) lies outside the period.
    #[error("entry {} of the trace lies beyond its period", .0 + 1)]
    BeyondPeriod(usize),
    /// An opportunity of zero bytes.
    #[error("an opportunity must carry at least one byte")]
    ZeroSize,
}

/// A value that changes in steps, over a period that repeats.
///
/// `steps` is never empty, starts at [`Span::ZERO`], is strictly increasing in time and ends
/// before `period`, which is more than zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps<T> {
    steps: Vec<(Span, T)>,
    period: Span,
}

/// The capacity of one direction of a link over time; repeats after its period.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkTrace {
    /// Mahimahi's model: at each of these times (non-decreasing; several may be equal) the link can
    /// deliver up to `size` bytes; unused bytes are lost.
    Opportunities {
        /// Times since the start of the period, all at most `period`, at least one.
        at: Vec<Span>,
        /// Bytes per opportunity (Mahimahi: 1504).
        size: Size,
        /// Time after which the trace repeats; more than zero.
        period: Span,
    },
    /// A rate that changes in steps.
    Rates(Steps<Rate>),
}

impl<T> Steps<T> {
    /// Creates steps from `(time since the start, value)`: the first at zero, each later than the
    /// previous one, all before `period`.
    pub fn new(steps: Vec<(Span, T)>, period: Span) -> Result<Self, InvalidTrace> {
        let first = steps.first().ok_or(InvalidTrace::Empty)?.0;
        if !first.is_zero() {
            return Err(InvalidTrace::LateStart);
        }
        if period.is_zero() {
            return Err(InvalidTrace::ZeroPeriod);
        }
        if let Some(i) = steps.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
            return Err(InvalidTrace::Order(i + 1));
        }
        if let Some(i) = steps.iter().position(|step| step.0 >= period) {
            return Err(InvalidTrace::BeyondPeriod(i));
        }
        Ok(Self { steps, period })
    }

    /// Returns the value at `since` after the start of the trace, which repeats after the period.
    pub fn at(&self, since: Span) -> &T {
        let within = Span::from_nanos(since.as_nanos() % self.period.as_nanos());
        let after = self.steps.partition_point(|step| step.0 <= within);
        // `new` ensures that the first step is at zero, so that `after` is at least 1.
        &self.steps[after.saturating_sub(1)].1
    }

    /// Returns all steps of one period.
    pub fn steps(&self) -> &[(Span, T)] {
        &self.steps
    }

    /// Returns the time after which the steps repeat.
    pub fn period(&self) -> Span {
        self.period
    }

    /// Iterates over the values of one period with the duration of each.
    pub fn with_durations(&self) -> impl Iterator<Item = (Span, &T)> {
        let ends = self.steps.iter().skip(1).map(|step| step.0).chain([self.period]);
        self.steps.iter().zip(ends).map(|((start, value), end)| (end - *start, value))
    }
}

impl LinkTrace {
    /// Creates a trace of delivery opportunities of `size` bytes each, at times that do not
    /// decrease and are at most `period`.
    pub fn opportunities(at: Vec<Span>, size: Size, period: Span) -> Result<Self, InvalidTrace> {
        let last = *at.last().ok_or(InvalidTrace::Empty)?;
        if period.is_zero() {
            return Err(InvalidTrace::ZeroPeriod);
        }
        if size.is_zero() {
            return Err(InvalidTrace::ZeroSize);
        }
        if let Some(i) = at.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(InvalidTrace::Order(i + 1));
        }
        if last > period {
            return Err(InvalidTrace::BeyondPeriod(at.partition_point(|at| *at <= period)));
        }
        Ok(Self::Opportunities { at, size, period })
    }

    /// Returns the time after which the trace repeats.
    pub fn period(&self) -> Span {
        match self {
            Self::Opportunities { period, .. } => *period,
            Self::Rates(steps) => steps.period(),
        }
    }

    /// Returns the maximum bytes that one period carries, rounded down.
    pub fn size_per_period(&self) -> Size {
        match self {
            Self::Opportunities { at, size, .. } => {
                Size::from_bytes(size.as_bytes().saturating_mul(at.len() as u64))
            }
            Self::Rates(steps) => {
                // The nano-bits of one period exceed 128 bits only beyond every real rate.
                let nano_bits = steps.with_durations().fold(0_u128, |sum, (span, rate)| {
                    sum.saturating_add(u128::from(rate.as_bps()) * u128::from(span.as_nanos()))
                });
                Size::from_bytes(u64::try_from(nano_bits / 8_000_000_000).unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the mean rate of a period, rounded down to bit/s.
    pub fn mean_rate(&self) -> Rate {
        match self {
            Self::Opportunities { .. } => Rate::of(self.size_per_period(), self.period()),
            Self::Rates(steps) => {
                let nano_bits = steps.with_durations().fold(0_u128, |sum, (span, rate)| {
                    sum.saturating_add(u128::from(rate.as_bps()) * u128::from(span.as_nanos()))
                });
                let mean = nano_bits / u128::from(steps.period().as_nanos());
                Rate::from_bps(u64::try_from(mean).unwrap_or(u64::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn steps_hold_until_the_next_one_and_repeat() {
        let steps = Steps::new(vec![(ms(0), 'a'), (ms(10), 'b'), (ms(30), 'c')], ms(40)).unwrap();
        let seen: String =
            [0, 9, 10, 29, 30, 39, 40, 50, 79, 80].map(|at| *steps.at(ms(at))).iter().collect();
        assert_eq!(seen, "aabbccabca");
        let holds: Vec<_> = steps.with_durations().map(|(span, value)| (span, *value)).collect();
        assert_eq!(holds, [(ms(10), 'a'), (ms(20), 'b'), (ms(10), 'c')]);
    }

    #[test]
    fn steps_that_make_no_trace_are_refused() {
        let steps = |at: &[u64], period| {
            Steps::new(at.iter().map(|at| (ms(*at), ())).collect(), ms(period)).unwrap_err()
        };
        assert_eq!(steps(&[], 1), InvalidTrace::Empty);
        assert_eq!(steps(&[1], 2), InvalidTrace::LateStart);
        assert_eq!(steps(&[0], 0), InvalidTrace::ZeroPeriod);
        assert_eq!(steps(&[0, 5, 5], 9), InvalidTrace::Order(2));
        assert_eq!(steps(&[0, 5], 5), InvalidTrace::BeyondPeriod(1));
    }

    #[test]
    fn an_opportunity_at_the_period_belongs_to_it() {
        let size = Size::from_bytes(1504);
        let trace = |at: &[u64], period| {
            LinkTrace::opportunities(at.iter().map(|at| ms(*at)).collect(), size, ms(period))
        };
        let three = trace(&[0, 4, 8], 8).unwrap();
        assert_eq!(three.period(), ms(8));
        // 3 × 1504 × 8 bits in 8 ms.
        assert_eq!(three.mean_rate(), Rate::from_bps(4_512_000));
        assert_eq!(trace(&[], 8), Err(InvalidTrace::Empty));
        assert_eq!(trace(&[0, 0], 0), Err(InvalidTrace::ZeroPeriod));
        assert_eq!(trace(&[0, 5, 4], 8), Err(InvalidTrace::Order(2)));
        assert_eq!(trace(&[0, 5, 9, 9], 8), Err(InvalidTrace::BeyondPeriod(2)));
    }

    #[test]
    fn the_mean_rate_weighs_each_rate_by_how_long_it_holds() {
        let steps =
            Steps::new(vec![(ms(0), Rate::from_mbps(10)), (ms(100), Rate::ZERO)], ms(400)).unwrap();
        let trace = LinkTrace::Rates(steps);
        assert_eq!(trace.mean_rate(), Rate::from_kbps(2_500));
        assert_eq!(trace.size_per_period(), Size::from_bytes(125_000));
    }
}
