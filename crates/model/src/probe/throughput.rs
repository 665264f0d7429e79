//! The throughput of a bulk transfer, without its slow start, and when it is known well enough.
//!
//! The bytes are counted in slots. The initial slots are left out by the marginal standard error
//! rule (MSER; K. White, Simulation 69(6), 1997): of all starts in the first half, the one for which
//! the variance of the remaining slots, divided by their number, is least. The error of the mean is
//! that of the means of [`BATCH`] consecutive slots, because neighbouring slots depend on each other.

use manyways_unit::{Rate, Size, Span, Time};

/// Length of a slot.
pub const SLOT: Span = Span::from_millis(100);
/// Slots of a batch.
pub const BATCH: usize = 5;
/// Relative error of a stable estimate: half the width of its interval of 95 %.
pub const MAX_ERROR: f64 = 0.03;
/// Largest relative difference between the two halves of a stable estimate.
const MAX_TREND: f64 = 0.03;
/// Fewest batches of a stable estimate.
const MIN_BATCHES: usize = 3;

/// Bytes of a transfer over time.
#[derive(Clone, Debug)]
pub struct Throughput {
    started: Time,
    /// Arrival of the first bytes.
    first: Option<Time>,
    /// Bytes of each slot. The last one is not over.
    slots: Vec<u64>,
}

/// A throughput and its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThroughputEstimate {
    pub rate: Rate,
    /// Part of the transfer that is left out at its beginning.
    pub ramp: Span,
    /// Part of the transfer that the rate is of.
    pub duration: Span,
    /// Half the width of the interval of 95 %, as a share of the rate; `None` with fewer than two
    /// batches.
    pub error: Option<f64>,
    /// Whether the estimate is good enough to end the transfer.
    pub is_stable: bool,
}

impl Throughput {
    /// A transfer that starts `now`.
    pub fn new(now: Time) -> Self {
        Self { started: now, first: None, slots: Vec::new() }
    }

    /// Counts bytes that have arrived. Times do not decrease.
    pub fn add(&mut self, now: Time, bytes: Size) {
        self.advance(now);
        if !bytes.is_zero() {
            self.first.get_or_insert(now);
        }
        if let Some(slot) = self.slots.last_mut() {
            *slot = slot.saturating_add(bytes.as_bytes());
        }
    }

    /// Begins all slots until `now`.
    fn advance(&mut self, now: Time) {
        let index = now.since(self.started).as_nanos() / SLOT.as_nanos();
        let count = usize::try_from(index).unwrap_or(usize::MAX).min(MAX_SLOTS - 1) + 1;
        if count > self.slots.len() {
            self.slots.resize(count, 0);
        }
    }

    /// From the start to the arrival of the first bytes.
    pub fn first_byte(&self) -> Option<Span> {
        self.first.map(|first| first.since(self.started))
    }

    /// Bytes of each slot that is over.
    pub fn slots(&self) -> &[u64] {
        self.slots.split_last().map_or(&[], |(_, over)| over)
    }

    /// The estimate from the slots that are over; `None` before the first one.
    pub fn estimate(&mut self, now: Time) -> Option<ThroughputEstimate> {
        self.advance(now);
        let slots: Vec<f64> = self.slots().iter().map(|bytes| *bytes as f64).collect();
        let start = truncation(&slots);
        let steady = slots.get(start..).filter(|steady| !steady.is_empty())?;
        let mean = mean(steady);
        let error = error(steady).filter(|_| mean > 0.0).map(|error| error / mean);
        let (first, second) = steady.split_at(steady.len() / 2);
        let is_level = (self::mean(second) - self::mean(first)).abs() <= MAX_TREND * mean;
        // If the best start is the last that is tried, the rate may still grow.
        let is_over = start < slots.len() / 2;
        let is_enough = steady.len() / BATCH >= MIN_BATCHES;
        let is_stable =
            is_over && is_enough && is_level && error.is_some_and(|error| error <= MAX_ERROR);
        let per_second = mean * 8.0 / SLOT.as_secs_f64();
        Some(ThroughputEstimate {
            rate: Rate::from_bps(per_second as u64),
            ramp: SLOT * start as u64,
            duration: SLOT * steady.len() as u64,
            error,
            is_stable,
        })
    }
}

/// Of a transfer; an hour and a half.
const MAX_SLOTS: usize = 54_000;

/// The number of initial values to leave out, by the marginal standard error rule.
fn truncation(values: &[f64]) -> usize {
    // From the end, so that each start takes one step.
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for (index, value) in values.iter().enumerate().rev() {
        sum += value;
        squares += value * value;
        let count = (values.len() - index) as f64;
        if index > values.len() / 2 {
            continue;
        }
        let deviations = (squares - sum * sum / count).max(0.0);
        let marginal = deviations / (count * count);
        // Of equal starts the earliest one counts.
        if marginal <= best.0 {
            best = (marginal, index);
        }
    }
    best.1
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half the width of the interval of 95 % of the mean, from the means of whole batches at the end.
fn error(values: &[f64]) -> Option<f64> {
    let whole = values.len() / BATCH * BATCH;
    let batches: Vec<f64> = values[values.len() - whole..].chunks(BATCH).map(mean).collect();
    let freedom = batches.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let middle = mean(&batches);
    let squares: f64 = batches.iter().map(|batch| (batch - middle).powi(2)).sum();
    let deviation = (squares / freedom as f64 / batches.len() as f64).sqrt();
    Some(student(freedom) * deviation)
}

/// The 97.5 % quantile of Student's t distribution.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => TABLE[freedom - 1],
        // Within 0.2 % for more than ten.
        _ => 1.96 + 2.4 / freedom as f64 + 2.9 / (freedom * freedom) as f64,
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Random;
    use proptest::prelude::*;

    use super::*;

    /// A transfer with these bytes in each millisecond, and the time at its end.
    fn transfer(bytes: impl IntoIterator<Item = f64>) -> (Throughput, Time) {
        let mut throughput = Throughput::new(Time::ZERO);
        let mut now = Time::ZERO;
        for bytes in bytes {
            throughput.add(now, Size::from_bytes(bytes as u64));
            now += Span::from_millis(1);
        }
        (throughput, now)
    }

    /// Slow start with a round trip of 100 ms from 14,480 bytes to 20 Mbit/s.
    fn slow_start(millis: u32) -> f64 {
        (14_480.0 * 2_f64.powi((millis / 100) as i32) / 100.0).min(2_500.0)
    }

    #[test]
    fn slow_start_does_not_count() {
        let (mut throughput, end) = transfer((0..3_000).map(slow_start));
        let found = throughput.estimate(end).unwrap();
        assert!((found.rate.as_mbps_f64() - 20.0).abs() < 0.1, "{found:?}");
        assert_eq!(found.ramp, Span::from_millis(500), "{found:?}");
        assert!(found.is_stable && found.error < Some(0.01), "{found:?}");
    }

    #[test]
    fn a_rate_that_grows_is_not_stable() {
        for end in (200..1_900).step_by(100) {
            let (mut throughput, end) =
                transfer((0..end).map(|millis| 2_500.0 * f64::from(millis) / 2_000.0));
            let found = throughput.estimate(end).unwrap();
            assert!(!found.is_stable, "{end:?} {found:?}");
        }
        assert_eq!(Throughput::new(Time::ZERO).estimate(Time::from_millis(99)), None);
    }

    #[test]
    fn silence_is_a_rate_of_zero_and_never_stable() {
        let mut throughput = Throughput::new(Time::from_millis(70));
        let found = throughput.estimate(Time::from_millis(10_070)).unwrap();
        assert_eq!((found.rate, found.error, found.is_stable), (Rate::ZERO, None, false));
        throughput.add(Time::from_millis(10_080), Size::ZERO);
        assert_eq!(throughput.first_byte(), None);
        throughput.add(Time::from_millis(10_090), Size::from_bytes(1));
        throughput.add(Time::from_millis(10_100), Size::from_bytes(1));
        assert_eq!(throughput.first_byte(), Some(Span::from_millis(10_020)));
    }

    #[test]
    fn a_stable_estimate_of_a_noisy_rate_is_right_nineteen_times_of_twenty() {
        let mut random = Random::new(7);
        let (mut right, mut stable) = (0, 0);
        for _ in 0..400 {
            let noisy = |_| 2_500.0 * (0.7 + 0.6 * random.uniform());
            let (mut throughput, end) = transfer((0..2_500).map(noisy));
            let found = throughput.estimate(end).unwrap();
            stable += usize::from(found.is_stable);
            let error = (found.rate.as_mbps_f64() / 20.0 - 1.0).abs();
            right += usize::from(found.error.is_some_and(|bound| error <= bound));
        }
        // The choice of the start makes the interval a little too narrow.
        assert!(right >= 340 && stable >= 380, "{right} right, {stable} stable");
    }

    proptest! {
        #[test]
        fn an_estimate_lies_between_the_least_and_the_greatest_slot(
            bytes in proptest::collection::vec(0_u64..1 << 40, 1..200),
        ) {
            let mut throughput = Throughput::new(Time::ZERO);
            for (index, bytes) in bytes.iter().enumerate() {
                throughput.add(Time::ZERO + SLOT * index as u64, Size::from_bytes(*bytes));
            }
            let end = Time::ZERO + SLOT * bytes.len() as u64;
            let found = throughput.estimate(end).unwrap();
            let rate = |bytes: Option<&u64>| Rate::of(Size::from_bytes(*bytes.unwrap()), SLOT);
            let (least, greatest) = (rate(bytes.iter().min()), rate(bytes.iter().max()));
            prop_assert!(found.rate.as_bps() + 8 >= least.as_bps());
            prop_assert!(found.rate.as_bps() <= greatest.as_bps() + 8);
            prop_assert_eq!(found.ramp + found.duration, end.since(Time::ZERO));
        }
    }
}
