//! The timers of a radio, from round trips after silences.
//!
//! After a silence that was short the radio is still awake, and a packet and its answer take a usual
//! round trip. After a longer one it has been released: it has to be paged and promoted first, and
//! both take longer. So the silence from which on round trips are slow is the timer. Networks do not
//! always let go at one and the same moment: between the first slow round trips and the last fast ones
//! can be seconds, in which 5G is in its inactive state for some, so that both ends are told.
//!
//! The method is the one of RRC inference (F. Qian et al., "Characterizing radio resource allocation
//! for 3G networks", IMC 2010; the probing of Mobilyzer, MobiSys 2015, §4.3.2); the estimate is ours: a
//! likelihood instead of a threshold by eye.

use std::ops::Range;

use manyways_unit::quantile::of_sorted;

/// A silence and the round trip that ended it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Probe {
    /// Seconds without a packet.
    pub idle: f64,
    /// Seconds to the answer.
    pub round_trip: f64,
}

/// A value and the interval that has it with a probability of 95 %, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The most likely value: a silence that was tried.
    pub value: f64,
    /// The longest one before it.
    pub before: f64,
    /// Not below this…
    pub least: f64,
    /// …and not above this.
    pub most: f64,
}

/// When a radio is released.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Released {
    /// From this silence on some round trips are slow.
    pub onset: Estimate,
    /// From this one on all are.
    pub completion: Estimate,
    /// Round trips above this count as slow, in seconds.
    pub limit: f64,
    /// The share of slow ones before, between and after; where there is nothing between, what is after.
    pub slow: [f64; 3],
    /// The shortest usual round trips, in seconds (the second percentile).
    pub awake: f64,
    /// How much longer the shortest ones are after the completion (the second percentile): the
    /// promotion, and whatever of paging nobody is spared. Their mean says nothing of it, as it has half
    /// a paging cycle in it.
    pub promotion: f64,
}

/// Why no timer was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTimer {
    /// Too little to say anything.
    #[error(
        "{0} usable probes are too few: at least {LEAST_PROBES} of {LEAST_STEPS} different silences are needed"
    )]
    TooFew(usize),
    /// Nothing changes.
    #[error("round trips after long silences are no slower than after short ones")]
    NoChange,
}

/// Below this nothing is said.
pub const LEAST_PROBES: usize = 30;
/// Different silences, at least.
pub const LEAST_STEPS: usize = 10;
/// Where there are more, neighbours are taken together: every pair of them is looked at.
const MOST_STEPS: usize = 1_000;
/// The share of the silences, the shortest ones, after which the radio is taken for awake.
const AWAKE_SHARE: f64 = 0.2;
/// The share where that is too many.
const LEAST_AWAKE: f64 = 0.05;
/// A round trip is slow that is so many times as long as all but one in fifty of those.
const SLOWER: f64 = 1.2;
const QUANTILE: f64 = 0.98;
/// Half of the 95th percentile of chi-square with one degree of freedom: how much less likely a
/// parameter may be and still be in the interval.
const DROP: f64 = 1.92;
/// A change that is not so much more likely than none is none.
const SURE: f64 = 10.0;
/// And two moments that are not so much more likely than one are one.
const SURE_OF_TWO: f64 = 6.0;
/// No share is taken for quite certain.
const DOUBT: f64 = 0.5;

/// Probes of one silence, or of some that are next to each other, of which `idle` is the longest.
#[derive(Clone, Copy)]
struct Step {
    idle: f64,
    slow: f64,
    all: f64,
}

/// Finds when a radio is released. Probes of any order; those that are not finite or not positive are
/// left out.
///
/// The share of slow round trips is taken to be one constant before the onset, another until the
/// completion, and a third behind it; onset and completion are those under which what was seen is most
/// likely, and their intervals those of the profile likelihood.
///
/// # Errors
/// Where there is too little, or nothing changes.
pub fn released(probes: &[Probe]) -> Result<Released, NoTimer> {
    let is_usable = |probe: &&Probe| {
        probe.idle.is_finite()
            && probe.idle >= 0.0
            && probe.round_trip.is_finite()
            && probe.round_trip > 0.0
    };
    let mut usable: Vec<Probe> = probes.iter().filter(is_usable).copied().collect();
    usable.sort_by(|one, other| one.idle.total_cmp(&other.idle));
    if usable.len() < LEAST_PROBES {
        return Err(NoTimer::TooFew(usable.len()));
    }
    let count = usable.len() as f64;
    // Where it was asleep behind most of those that are taken for awake, fewer are.
    match within(&usable, (count * AWAKE_SHARE) as usize) {
        Err(NoTimer::NoChange) => within(&usable, (count * LEAST_AWAKE) as usize),
        found => found,
    }
}

/// The same for usable probes in the order of their silences, behind the first of which it was awake.
fn within(usable: &[Probe], awake: usize) -> Result<Released, NoTimer> {
    let count = usable.len();
    let awake = &usable[..awake.clamp(LEAST_STEPS, count)];
    let mut usual: Vec<f64> = awake.iter().map(|probe| probe.round_trip).collect();
    usual.sort_by(f64::total_cmp);
    let limit = SLOWER * of_sorted(&usual, QUANTILE).unwrap_or_default();
    let steps = steps(usable, limit);
    if steps.len() < LEAST_STEPS {
        return Err(NoTimer::TooFew(count));
    }
    let size = steps.len().div_ceil(MOST_STEPS);
    let (fit, steps) = match size {
        1 => (Fit::of(&steps), steps),
        _ => {
            // First roughly, and then again where it changes.
            let rough = Fit::of(&coarse(&steps, size, 0..0)).ok_or(NoTimer::NoChange)?;
            let from = rough.onset.1.saturating_sub(1) * size;
            let to = (rough.completion.2 + 1) * size;
            let fine = if to - from <= MOST_STEPS { from..to } else { 0..0 };
            let steps = coarse(&steps, size, fine);
            (Fit::of(&steps), steps)
        }
    };
    let fit = fit.ok_or(NoTimer::NoChange)?;
    let at = |place: usize| steps.get(place).map_or(f64::INFINITY, |step| step.idle);
    // The timer is between a silence and the one before it.
    let before = |place: usize| steps.get(place.wrapping_sub(1)).map_or(0.0, |step| step.idle);
    let estimate = |(value, least, most): (usize, usize, usize)| Estimate {
        value: at(value),
        before: before(value),
        least: before(least),
        most: at(most),
    };
    let completion = estimate(fit.completion);
    let asleep = usable.iter().filter(|probe| probe.idle >= completion.value);
    let mut slow: Vec<f64> = asleep.map(|probe| probe.round_trip).collect();
    slow.sort_by(f64::total_cmp);
    let awake = of_sorted(&usual, 1.0 - QUANTILE).unwrap_or_default();
    Ok(Released {
        onset: estimate(fit.onset),
        completion,
        limit,
        slow: fit.slow,
        awake,
        promotion: (of_sorted(&slow, 1.0 - QUANTILE).unwrap_or_default() - awake).max(0.0),
    })
}

fn steps(sorted: &[Probe], limit: f64) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for probe in sorted {
        let is_slow = f64::from(u8::from(probe.round_trip > limit));
        match steps.last_mut() {
            Some(step) if step.idle == probe.idle => {
                step.slow += is_slow;
                step.all += 1.0;
            }
            _ => steps.push(Step { idle: probe.idle, slow: is_slow, all: 1.0 }),
        }
    }
    steps
}

/// So many each together, but for those in `fine`, which begins where some that are together do.
fn coarse(steps: &[Step], size: usize, fine: Range<usize>) -> Vec<Step> {
    let together = |part: &[Step]| Step {
        idle: part.last().map_or(0.0, |step| step.idle),
        slow: part.iter().map(|step| step.slow).sum(),
        all: part.iter().map(|step| step.all).sum(),
    };
    let parts = steps.chunks(size).enumerate();
    parts
        .flat_map(|(place, part)| match fine.contains(&(place * size)) {
            true => part.to_vec(),
            false => vec![together(part)],
        })
        .collect()
}

/// Places of steps: the most likely one, and the first and last in the interval.
struct Fit {
    onset: (usize, usize, usize),
    completion: (usize, usize, usize),
    slow: [f64; 3],
}

impl Fit {
    fn of(steps: &[Step]) -> Option<Self> {
        // Slow ones and all, up to each place.
        let mut sums = vec![(0.0, 0.0)];
        for step in steps {
            let (slow, all) = sums[sums.len() - 1];
            sums.push((slow + step.slow, all + step.all));
        }
        let share = |from: usize, to: usize| {
            let (slow, all) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            (slow + DOUBT) / (all + 2.0 * DOUBT)
        };
        let likely = |from: usize, to: usize| {
            let (slow, all) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            let share = share(from, to);
            slow * share.ln() + (all - slow) * (1.0 - share).ln()
        };
        let count = steps.len();
        // At one moment, by place.
        let mut sudden = vec![f64::NEG_INFINITY; count];
        // Between two, by the place of either.
        let mut onsets = sudden.clone();
        let mut completions = sudden.clone();
        for (onset, completion) in
            (1..count).flat_map(|from| (from..count).map(move |to| (from, to)))
        {
            let ends = likely(0, onset) + likely(completion, count);
            let [low, middle, high] =
                [share(0, onset), share(onset, completion), share(completion, count)];
            if onset == completion && low < high {
                sudden[onset] = ends;
            } else if low < middle && middle < high {
                let all = ends + likely(onset, completion);
                onsets[onset] = onsets[onset].max(all);
                completions[completion] = completions[completion].max(all);
            }
        }
        let (at_once, gradual) = (interval(&sudden), interval(&onsets));
        if at_once.1.max(gradual.1) < likely(0, count) + SURE {
            return None;
        }
        let (onset, completion) = match gradual.1 > at_once.1 + SURE_OF_TWO {
            true => (gradual.0, interval(&completions).0),
            false => (at_once.0, at_once.0),
        };
        let after = share(completion.0, count);
        let between = match onset.0 < completion.0 {
            true => share(onset.0, completion.0),
            false => after,
        };
        let slow = [share(0, onset.0), between, after];
        Some(Self { onset, completion, slow })
    }
}

/// The likeliest place, with the first and the last that are likely enough; and how likely it is.
fn interval(all: &[f64]) -> ((usize, usize, usize), f64) {
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let value = all.iter().position(|likely| *likely == most).unwrap_or(0);
    let is_in = |likely: &f64| *likely >= most - DROP;
    let least = all.iter().position(is_in).unwrap_or(value);
    let last = all.iter().rposition(is_in).unwrap_or(value);
    ((value, least, last), most)
}

#[cfg(test)]
mod tests;
