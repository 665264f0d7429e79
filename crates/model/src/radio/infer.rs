//! Estimates the release time of a radio from round-trip times after gaps.
//!
//! After a short gap the radio is still connected, and a packet and its answer take the usual
//! round-trip time. After a long gap the network has released the connection: paging and a
//! promotion make the round trip longer. The gap length from which round trips are slow is the
//! timer. Some networks do not release at a fixed time: the first slow round trips and the last
//! fast ones can be seconds apart, for example while 5G is in RRC_INACTIVE. So both ends of the
//! transition are estimated.
//!
//! The method is RRC inference (F. Qian et al., "Characterizing radio resource allocation for 3G
//! networks", IMC 2010; the probing of Mobilyzer, MobiSys 2015, §4.3.2). The estimate is ours: a
//! likelihood instead of a threshold set by eye.

use std::ops::Range;

use manyways_unit::quantile::of_sorted;

/// A gap and the round trip after it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Probe {
    /// Gap without packets, in seconds.
    pub gap: f64,
    /// From the probe to its answer, in seconds.
    pub round_trip: f64,
}

/// A gap length in seconds with its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The most likely value, one of the tried gaps.
    pub value: f64,
    /// The next shorter tried gap, or 0.
    pub previous_gap: f64,
    /// Lower bound of the interval.
    pub lower: f64,
    /// Upper bound of the interval.
    pub upper: f64,
}

/// Gap lengths at which the network releases the radio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimerEstimate {
    /// Shortest gap after which some round trips are slow.
    pub onset: Estimate,
    /// Shortest gap from which the share of slow round trips no longer grows.
    pub completion: Estimate,
    /// Round trips above this limit are slow, in seconds.
    pub slow_threshold: f64,
    /// Shares of slow round trips before the onset, between onset and completion, and after; the
    /// last two are equal if onset and completion coincide.
    pub slow_shares: [f64; 3],
    /// Shortest usual round trip while connected, in seconds (2nd percentile).
    pub connected_rtt: f64,
    /// Increase of the shortest round trips after the completion, in seconds (2nd percentile): the
    /// promotion and the part of paging that every packet waits for. A mean would contain half a
    /// paging cycle.
    pub promotion_delay: f64,
}

/// Reason why probes yield no timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InferenceError {
    /// Too few usable probes or too few different gaps.
    #[error(
        "{0} usable probes are too few: at least {MIN_PROBES} of {MIN_STEPS} different gaps are needed"
    )]
    TooFew(usize),
    #[error("round trips after long gaps are not slower than after short ones")]
    NoChange,
}

/// Minimum number of usable probes.
pub const MIN_PROBES: usize = 30;
/// Minimum number of different gaps.
pub const MIN_STEPS: usize = 10;
/// With more steps, neighbours are merged, because every pair of steps is evaluated.
const MAX_STEPS: usize = 1_000;
/// Share of the probes, those with the shortest gaps, after which the radio counts as connected.
const CONNECTED_SHARE: f64 = 0.2;
/// Share that is used if [`CONNECTED_SHARE`] finds no change.
const MIN_CONNECTED_SHARE: f64 = 0.05;
/// A round trip is slow if it exceeds the [`CONNECTED_QUANTILE`] of the connected ones by this
/// factor.
const SLOW_FACTOR: f64 = 1.2;
const CONNECTED_QUANTILE: f64 = 0.98;
/// Half of the 95th percentile of the chi-square distribution with one degree of freedom: maximum
/// decrease of the log-likelihood within the confidence interval.
const MAX_LIKELIHOOD_DROP: f64 = 1.92;
/// Minimum gain of log-likelihood over a model without a change.
const MIN_GAIN: f64 = 10.0;
/// Minimum gain of log-likelihood of a gradual change over a sudden one.
const MIN_GRADUAL_GAIN: f64 = 6.0;
/// Added to both counts of a share, so that no share is 0 or 1.
const PSEUDOCOUNT: f64 = 0.5;

/// Probes of one gap length, or of neighbouring lengths of which `gap` is the longest.
#[derive(Clone, Copy)]
struct Step {
    gap: f64,
    slow: f64,
    total: f64,
}

/// Estimates when the network releases the radio. The probes can have any order; values that are
/// not finite, negative gaps and round trips that are not positive are ignored.
///
/// The model has three constant shares of slow round trips: before the onset, up to the completion,
/// and after it. Onset and completion are the maximum-likelihood estimates, with intervals from the
/// profile likelihood.
///
/// # Errors
/// Fails if there are too few probes or no change is found.
pub fn estimate_timer(probes: &[Probe]) -> Result<TimerEstimate, InferenceError> {
    let is_usable = |probe: &&Probe| {
        probe.gap.is_finite()
            && probe.gap >= 0.0
            && probe.round_trip.is_finite()
            && probe.round_trip > 0.0
    };
    let mut usable: Vec<Probe> = probes.iter().filter(is_usable).copied().collect();
    usable.sort_by(|one, other| one.gap.total_cmp(&other.gap));
    if usable.len() < MIN_PROBES {
        return Err(InferenceError::TooFew(usable.len()));
    }
    let count = usable.len() as f64;
    // If most of the probes that should be connected were after a release, a smaller share is used.
    match estimate_connected(&usable, (count * CONNECTED_SHARE) as usize) {
        Err(InferenceError::NoChange) => {
            estimate_connected(&usable, (count * MIN_CONNECTED_SHARE) as usize)
        }
        found => found,
    }
}

/// The estimate for usable probes, sorted by gap; the first `awake` ones count as connected.
fn estimate_connected(usable: &[Probe], awake: usize) -> Result<TimerEstimate, InferenceError> {
    let count = usable.len();
    let awake = &usable[..awake.clamp(MIN_STEPS, count)];
    let mut usual: Vec<f64> = awake.iter().map(|probe| probe.round_trip).collect();
    usual.sort_by(f64::total_cmp);
    let limit = SLOW_FACTOR * of_sorted(&usual, CONNECTED_QUANTILE).unwrap_or_default();
    let steps = steps(usable, limit);
    if steps.len() < MIN_STEPS {
        return Err(InferenceError::TooFew(count));
    }
    let size = steps.len().div_ceil(MAX_STEPS);
    let (fit, steps) = match size {
        1 => (Fit::of(&steps), steps),
        _ => {
            // A coarse estimate first, then a fine one around the change.
            let rough =
                Fit::of(&merge_steps(&steps, size, 0..0)).ok_or(InferenceError::NoChange)?;
            let from = rough.onset.1.saturating_sub(1) * size;
            let to = (rough.completion.2 + 1) * size;
            let fine = if to - from <= MAX_STEPS { from..to } else { 0..0 };
            let steps = merge_steps(&steps, size, fine);
            (Fit::of(&steps), steps)
        }
    };
    let fit = fit.ok_or(InferenceError::NoChange)?;
    let at = |place: usize| steps.get(place).map_or(f64::INFINITY, |step| step.gap);
    // The timer lies between a gap and the next shorter one.
    let before = |place: usize| steps.get(place.wrapping_sub(1)).map_or(0.0, |step| step.gap);
    let estimate = |(value, min, max): (usize, usize, usize)| Estimate {
        value: at(value),
        previous_gap: before(value),
        lower: before(min),
        upper: at(max),
    };
    let completion = estimate(fit.completion);
    let asleep = usable.iter().filter(|probe| probe.gap >= completion.value);
    let mut slow: Vec<f64> = asleep.map(|probe| probe.round_trip).collect();
    slow.sort_by(f64::total_cmp);
    let awake = of_sorted(&usual, 1.0 - CONNECTED_QUANTILE).unwrap_or_default();
    Ok(TimerEstimate {
        onset: estimate(fit.onset),
        completion,
        slow_threshold: limit,
        slow_shares: fit.slow_shares,
        connected_rtt: awake,
        promotion_delay: (of_sorted(&slow, 1.0 - CONNECTED_QUANTILE).unwrap_or_default() - awake)
            .max(0.0),
    })
}

fn steps(sorted: &[Probe], limit: f64) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for probe in sorted {
        let is_slow = f64::from(u8::from(probe.round_trip > limit));
        match steps.last_mut() {
            Some(step) if step.gap == probe.gap => {
                step.slow += is_slow;
                step.total += 1.0;
            }
            _ => steps.push(Step { gap: probe.gap, slow: is_slow, total: 1.0 }),
        }
    }
    steps
}

/// Merges groups of `size` steps, except those in `fine`, which starts at a group boundary.
fn merge_steps(steps: &[Step], size: usize, fine: Range<usize>) -> Vec<Step> {
    let together = |part: &[Step]| Step {
        gap: part.last().map_or(0.0, |step| step.gap),
        slow: part.iter().map(|step| step.slow).sum(),
        total: part.iter().map(|step| step.total).sum(),
    };
    let parts = steps.chunks(size).enumerate();
    parts
        .flat_map(|(index, part)| match fine.contains(&(index * size)) {
            true => part.to_vec(),
            false => vec![together(part)],
        })
        .collect()
}

/// Indices of steps: the most likely one, and the first and last of the confidence interval.
struct Fit {
    onset: (usize, usize, usize),
    completion: (usize, usize, usize),
    slow_shares: [f64; 3],
}

impl Fit {
    fn of(steps: &[Step]) -> Option<Self> {
        // Sums of slow and of all probes before each step.
        let mut sums = vec![(0.0, 0.0)];
        for step in steps {
            let (slow, all) = sums[sums.len() - 1];
            sums.push((slow + step.slow, all + step.total));
        }
        let share = |from: usize, to: usize| {
            let (slow, all) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            (slow + PSEUDOCOUNT) / (all + 2.0 * PSEUDOCOUNT)
        };
        let likely = |from: usize, to: usize| {
            let (slow, all) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            let share = share(from, to);
            slow * share.ln() + (all - slow) * (1.0 - share).ln()
        };
        let count = steps.len();
        // Log-likelihood of a sudden change at each step.
        let mut sudden = vec![f64::NEG_INFINITY; count];
        // Best log-likelihood of a gradual change, by its first and by its last step.
        let mut onsets = sudden.clone();
        let mut completions = sudden.clone();
        for (onset, completion) in
            (1..count).flat_map(|from| (from..count).map(move |to| (from, to)))
        {
            let end = likely(0, onset) + likely(completion, count);
            let [low, middle, high] =
                [share(0, onset), share(onset, completion), share(completion, count)];
            if onset == completion && low < high {
                sudden[onset] = end;
            } else if low < middle && middle < high {
                let all = end + likely(onset, completion);
                onsets[onset] = onsets[onset].max(all);
                completions[completion] = completions[completion].max(all);
            }
        }
        let (at_once, gradual) = (interval(&sudden), interval(&onsets));
        if at_once.1.max(gradual.1) < likely(0, count) + MIN_GAIN {
            return None;
        }
        let (onset, completion) = match gradual.1 > at_once.1 + MIN_GRADUAL_GAIN {
            true => (gradual.0, interval(&completions).0),
            false => (at_once.0, at_once.0),
        };
        let after = share(completion.0, count);
        let between = match onset.0 < completion.0 {
            true => share(onset.0, completion.0),
            false => after,
        };
        let slow = [share(0, onset.0), between, after];
        Some(Self { onset, completion, slow_shares: slow })
    }
}

/// The most likely step with the first and last one of its confidence interval, and its
/// log-likelihood.
fn interval(all: &[f64]) -> ((usize, usize, usize), f64) {
    let max = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let value = all.iter().position(|likely| *likely == max).unwrap_or(0);
    let is_in = |likely: &f64| *likely >= max - MAX_LIKELIHOOD_DROP;
    let min = all.iter().position(is_in).unwrap_or(value);
    let last = all.iter().rposition(is_in).unwrap_or(value);
    ((value, min, last), max)
}

#[cfg(test)]
mod tests;
