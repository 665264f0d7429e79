//! Computes when the wire has carried the next bytes.
//!
//! Work is counted in nano-bits: a rate of `r` bit/s carries exactly `r` of them in a nanosecond. A
//! packet is complete at the first whole nanosecond by which the wire could have carried all bytes
//! of the busy period up to its end. Unused nano-bits of this nanosecond are kept for the next
//! packet, so that rounding errors do not add up: departures are `ceil(cumulative bits / rate)`.

use manyways_trace::scenario::CapacitySpec;
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Size, Span, Time};

const NANO: u128 = 1_000_000_000;

/// Maps time to the position in all traces of one pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceClock {
    origin: Time,
    offset: Span,
}

impl TraceClock {
    /// Creates a clock whose traces are at `offset` when the time is `origin`.
    pub fn new(origin: Time, offset: Span) -> Self {
        Self { origin, offset }
    }

    /// Returns the position in the traces at `time`.
    pub fn position(&self, time: Time) -> Span {
        time.since(self.origin) + self.offset
    }
}

/// Position up to which the capacity is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Capacity offered before this time is used or lost.
    pub at: Time,
    /// Nano-bits offered at `at` that are still usable.
    left: u128,
    /// Opportunities: index of the next one, counted from position zero of the trace over all
    /// periods.
    next: u64,
}

impl Cursor {
    pub const START: Self = Self { at: Time::ZERO, left: 0, next: 0 };
}

/// Returns the nano-bits that one packet needs.
pub(crate) fn nanobits_of(size: Size) -> u128 {
    size.as_bits() * NANO
}

/// The capacity of one direction.
#[derive(Clone, Debug)]
pub(crate) enum Capacity {
    Unlimited,
    Constant(u64),
    Rates(Rates),
    Opportunities(Opportunities),
}

impl Capacity {
    pub fn new(spec: &CapacitySpec) -> Self {
        match spec {
            CapacitySpec::Unlimited => Self::Unlimited,
            CapacitySpec::Constant(rate) => Self::Constant(rate.as_bps()),
            CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => {
                Self::Rates(Rates::new(steps.clone()))
            }
            CapacitySpec::Trace {
                trace: LinkTrace::Opportunities { at, size, period }, ..
            } => Self::Opportunities(Opportunities {
                at: at.clone(),
                nanobits_each: nanobits_of(*size),
                period: *period,
            }),
        }
    }

    /// Returns the start of a busy period that begins at `now`: capacity offered up to and at `now`
    /// is lost. As in Mahimahi, a packet that arrives at the time of an opportunity cannot use it.
    pub fn begin(&self, clock: TraceClock, now: Time) -> Cursor {
        let next = match self {
            Self::Opportunities(opportunities) => opportunities.first_after(clock.position(now)),
            _ => 0,
        };
        Cursor { at: now, left: 0, next }
    }

    /// Returns the time at which the first bit after `from` can move; `None` if never.
    pub fn ready(&self, clock: TraceClock, from: Cursor) -> Option<Time> {
        if from.left > 0 {
            return Some(from.at);
        }
        match self {
            Self::Unlimited => Some(from.at),
            Self::Constant(rate) => (*rate > 0).then_some(from.at),
            Self::Rates(rates) => {
                let position = clock.position(from.at);
                later(from.at, position, rates.first_nonzero(position)?)
            }
            Self::Opportunities(opportunities) => {
                later(from.at, clock.position(from.at), opportunities.position(from.next)?)
            }
        }
    }

    /// Carries `need` nano-bits after `from`. Returns the cursor at which they are carried; `None`
    /// if never.
    pub fn carry(&self, clock: TraceClock, from: Cursor, need: u128) -> Option<Cursor> {
        if need <= from.left {
            return Some(Cursor { left: from.left - need, ..from });
        }
        let need = need - from.left;
        match self {
            Self::Unlimited => Some(Cursor { left: 0, ..from }),
            Self::Constant(rate) => {
                let (span, remaining) = time_for(need, *rate)?;
                let at = from.at.as_nanos().checked_add(span)?;
                Some(Cursor { at: Time::from_nanos(at), left: remaining, next: 0 })
            }
            Self::Rates(rates) => {
                let position = clock.position(from.at);
                let (end, remaining) = rates.carry(position, need)?;
                Some(Cursor { at: later(from.at, position, end)?, left: remaining, next: 0 })
            }
            Self::Opportunities(opportunities) => {
                let uses = need.div_ceil(opportunities.nanobits_each);
                let last = from.next.checked_add(u64::try_from(uses - 1).ok()?)?;
                let end = opportunities.position(last)?;
                Some(Cursor {
                    at: later(from.at, clock.position(from.at), end)?,
                    left: uses * opportunities.nanobits_each - need,
                    next: last.checked_add(1)?,
                })
            }
        }
    }

    /// Returns the nano-bits offered after `from` until `until`, including those left in `from`.
    pub fn offered(&self, clock: TraceClock, from: Cursor, until: Time) -> u128 {
        let more = match self {
            Self::Unlimited => u128::MAX,
            Self::Constant(rate) => u128::from(*rate) * nanos(until.since(from.at)),
            Self::Rates(rates) => rates.offered(clock.position(from.at), until.since(from.at)),
            Self::Opportunities(opportunities) => {
                let next = opportunities.first_after(clock.position(until));
                opportunities
                    .nanobits_each
                    .saturating_mul(u128::from(next.saturating_sub(from.next)))
            }
        };
        more.saturating_add(from.left)
    }

    /// Returns the rate that converts a queue limit in time to bytes; `None` if unlimited.
    pub fn mean_rate(spec: &CapacitySpec) -> Option<Rate> {
        match spec {
            CapacitySpec::Unlimited => None,
            CapacitySpec::Constant(rate) => Some(*rate),
            CapacitySpec::Trace { trace, .. } => Some(trace.mean_rate()),
        }
    }
}

fn nanos(span: Span) -> u128 {
    u128::from(span.as_nanos())
}

/// Returns the time of `position`, if `at` is the time of the earlier `base`. `None` on overflow.
fn later(at: Time, base: Span, position: Span) -> Option<Time> {
    at.as_nanos().checked_add((position - base).as_nanos()).map(Time::from_nanos)
}

/// Returns the whole nanoseconds until `need` is carried, and the unused nano-bits of the last one.
fn time_for(need: u128, rate: u64) -> Option<(u64, u128)> {
    if rate == 0 {
        return None;
    }
    // Most packets fit in 64 bits, where a division costs a third.
    if let Ok(need) = u64::try_from(need) {
        let (whole, rest) = (need / rate, need % rate);
        return Some(if rest == 0 { (whole, 0) } else { (whole + 1, u128::from(rate - rest)) });
    }
    let span = need.div_ceil(u128::from(rate));
    Some((u64::try_from(span).ok()?, span * u128::from(rate) - need))
}

/// Rates in steps, repeated.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    steps: Steps<Rate>,
    /// Nano-bits of one period.
    per_period: u128,
}

impl Rates {
    fn new(steps: Steps<Rate>) -> Self {
        let per_period = steps.with_durations().fold(0_u128, |sum, (span, rate)| {
            sum.saturating_add(u128::from(rate.as_bps()) * nanos(span))
        });
        Self { steps, per_period }
    }

    /// Iterates endlessly over the steps from `position`: `(rate, end of the step)`.
    fn from(&self, position: Span) -> impl Iterator<Item = (u64, Span)> {
        let period = self.steps.period().as_nanos();
        let all = self.steps.steps();
        let within = Span::from_nanos(position.as_nanos() % period);
        let mut lap = position.as_nanos() - within.as_nanos();
        let mut index = all.partition_point(|step| step.0 <= within) - 1;
        std::iter::from_fn(move || {
            let rate = all[index].1.as_bps();
            let end = all.get(index + 1).map_or(period, |step| step.0.as_nanos());
            let end = lap.saturating_add(end);
            index += 1;
            if index == all.len() {
                index = 0;
                lap = lap.saturating_add(period);
            }
            Some((rate, Span::from_nanos(end)))
        })
    }

    /// Returns the first position from `position` at which the rate is above zero; `None` if it
    /// never is.
    fn first_nonzero(&self, position: Span) -> Option<Span> {
        if self.per_period == 0 {
            return None;
        }
        let mut start = position;
        for (rate, end) in self.from(position) {
            if rate > 0 {
                return Some(start);
            }
            if end == Span::MAX {
                return None;
            }
            start = end;
        }
        None
    }

    /// Returns the position at which `need` (more than zero) is carried, and the unused nano-bits
    /// of the last nanosecond.
    fn carry(&self, position: Span, mut need: u128) -> Option<(Span, u128)> {
        if self.per_period == 0 {
            return None;
        }
        // Every whole period carries the same amount, wherever it starts.
        let periods = u64::try_from((need - 1) / self.per_period).ok()?;
        need -= u128::from(periods) * self.per_period;
        let skipped = self.steps.period().as_nanos().checked_mul(periods)?;
        let mut start = position.as_nanos().checked_add(skipped)?;
        for (rate, end) in self.from(Span::from_nanos(start)) {
            let end = end.as_nanos();
            let offered = u128::from(rate) * u128::from(end - start);
            if need <= offered {
                let (span, remaining) = time_for(need, rate)?;
                return Some((Span::from_nanos(start + span), remaining));
            }
            if end == u64::MAX {
                return None;
            }
            need -= offered;
            start = end;
        }
        None
    }

    /// Returns the nano-bits offered in `span` from `position`.
    fn offered(&self, position: Span, span: Span) -> u128 {
        let period = self.steps.period();
        let periods = span.as_nanos() / period.as_nanos();
        let mut sum = self.per_period.saturating_mul(u128::from(periods));
        let mut start = position + period * periods;
        let stop = position + span;
        for (rate, end) in self.from(start) {
            let end = end.min(stop);
            sum = sum.saturating_add(u128::from(rate) * nanos(end - start));
            if end >= stop {
                break;
            }
            start = end;
        }
        sum
    }
}

/// Mahimahi's delivery opportunities, repeated.
#[derive(Clone, Debug)]
pub(crate) struct Opportunities {
    at: Vec<Span>,
    /// Nano-bits of each opportunity.
    nanobits_each: u128,
    period: Span,
}

impl Opportunities {
    /// Returns the position of opportunity `n`, counted from position zero of the trace. `None` on
    /// overflow.
    fn position(&self, n: u64) -> Option<Span> {
        let len = self.at.len() as u64;
        let lap = self.period.as_nanos().checked_mul(n / len)?;
        lap.checked_add(self.at[(n % len) as usize].as_nanos()).map(Span::from_nanos)
    }

    /// Returns the index of the first opportunity later than `position`.
    fn first_after(&self, position: Span) -> u64 {
        let lap = position.as_nanos() / self.period.as_nanos();
        let within = Span::from_nanos(position.as_nanos() % self.period.as_nanos());
        let before = self.at.partition_point(|at| *at <= within);
        lap.saturating_mul(self.at.len() as u64).saturating_add(before as u64)
    }
}

#[cfg(test)]
mod tests;
