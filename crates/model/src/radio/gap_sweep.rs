//! Active inference of a radio's timers: which gaps to probe, and when.
//!
//! A [`GapSweep`] is a list of gap lengths, ascending, each of which is probed several times.
//! [`ProbeSchedule`] returns the next step at the time that the caller passes: wait, or send the
//! probe that ends the gap. Each round contains every gap length once, in random order, so that a
//! slow drift of the network does not look like a timer and an interrupted run covers all lengths.
//! Only undisturbed gaps count, because packets of other programs keep the radio connected
//! (Mobilyzer, MobiSys 2015, §4.3.2). If the interface's packet counter changes during a gap, the
//! gap starts again.
//!
//! [`infer_timers`] estimates the infer_timers from the results.

use std::collections::VecDeque;

use manyways_unit::{Random, Span, Time};

use super::infer::{InferenceError, Probe, TimerEstimate, estimate_timer};

/// Gap lengths from `least` to `most` in steps of `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapSweep {
    pub min: Span,
    /// Upper bound; the longest gap can be shorter by less than `step`.
    pub max: Span,
    pub step: Span,
    /// Probes of each length.
    pub rounds: u32,
}

/// Reason why a probing plan is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// No gap length, or zero rounds.
    #[error("there is no gap to probe")]
    Empty,
    /// More than [`MAX_PROBES`] probes.
    #[error("the plan has more than {MAX_PROBES} probes")]
    TooMany,
}

pub const MAX_PROBES: u64 = 100_000;
/// Restarts of a disturbed gap before another one is tried.
const MAX_RESTARTS: u32 = 10;
/// Attempts of a gap in its round before the gap is given up.
const MAX_ATTEMPTS: u32 = 3;
/// Interval between reads of the packet counter, and so the precision of a disturbance's time.
pub const COUNTER_INTERVAL: Span = Span::from_millis(10);
/// Minimum time after an answer in which packets count as the probe's own, such as the end of its
/// connection or a repeated answer.
const OWN_TRAFFIC_TIME: Span = Span::from_millis(100);
/// Round trips above this can contain retransmissions by the kernel.
const RETRANSMISSION_THRESHOLD: Span = Span::from_millis(900);

impl GapSweep {
    /// From 0.5 to 20 s in steps of 0.5 s, 5 rounds: about 35 minutes.
    pub const DEFAULT: Self = Self {
        min: Span::from_millis(500),
        max: Span::from_secs(20),
        step: Span::from_millis(500),
        rounds: 5,
    };

    /// Gap lengths of one round, one of zero included.
    fn count(&self) -> Result<u64, SweepError> {
        if self.rounds == 0 || self.max < self.min || self.max.is_zero() {
            return Err(SweepError::Empty);
        }
        let beyond = self.max.saturating_sub(self.min).as_nanos();
        let count = match beyond.checked_div(self.step.as_nanos()) {
            Some(steps) => steps.saturating_add(1),
            None if beyond == 0 => 1,
            None => return Err(SweepError::Empty),
        };
        match count.saturating_mul(u64::from(self.rounds)) > MAX_PROBES {
            true => Err(SweepError::TooMany),
            false => Ok(count),
        }
    }
}

/// The next step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send nothing and call [`ProbeSchedule::next_action`] again at this time.
    Wait(Time),
    Probe,
    /// All probes are done or given up.
    Done,
}

/// A probe after an undisturbed gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapSample {
    /// The planned gap.
    pub planned_gap: Span,
    /// The actual gap; slightly longer than planned.
    pub gap: Span,
    /// From the probe to its answer.
    pub round_trip: Span,
    /// Disturbed attempts before.
    pub restarts: u32,
}

/// One gap length in one round.
#[derive(Clone, Copy, Debug)]
struct PlannedGap {
    round: u32,
    gap: Span,
    /// Failed attempts.
    failed: u32,
}

/// The remaining probes of a gap sweep.
#[derive(Clone, Debug)]
pub struct ProbeSchedule {
    pending: VecDeque<PlannedGap>,
    planned: usize,
    answered: usize,
    abandoned: Vec<Span>,
    disturbed: u64,
    lost: u64,
    /// Time of the last packet.
    last_packet: Time,
    packets: u64,
    /// Packets until then count as the last probe's own.
    own_until: Time,
    restarts: u32,
}

impl ProbeSchedule {
    /// Creates a plan without the gaps in `done`, which an earlier run completed in any order.
    ///
    /// # Errors
    /// Fails if the sweep has no gap or more than [`MAX_PROBES`] probes.
    pub fn new(sweep: &GapSweep, seed: u64, done: &[Span]) -> Result<Self, SweepError> {
        let count = sweep.count()?;
        let rungs = || (0..count).map(|rung| sweep.min + sweep.step * rung);
        let mut done = done.to_vec();
        let mut turns = VecDeque::new();
        let mut planned = 0;
        let mut answered = 0;
        for round in 0..sweep.rounds {
            let mut order: Vec<Span> = rungs().filter(|idle| !idle.is_zero()).collect();
            planned += order.len();
            let mut random = Random::for_purpose(seed, u64::from(round));
            for index in (1..order.len()).rev() {
                order.swap(index, random.up_to(index as u64) as usize);
            }
            for idle in order {
                match done.iter().position(|one| *one == idle) {
                    Some(index) => {
                        done.swap_remove(index);
                        answered += 1;
                    }
                    None => turns.push_back(PlannedGap { round, gap: idle, failed: 0 }),
                }
            }
        }
        if planned == 0 {
            return Err(SweepError::Empty);
        }
        Ok(Self {
            pending: turns,
            planned,
            answered,
            abandoned: Vec::new(),
            disturbed: 0,
            lost: 0,
            last_packet: Time::ZERO,
            packets: 0,
            own_until: Time::ZERO,
            restarts: 0,
        })
    }

    /// Starts the first gap, after an own packet and its answer. `packets` is the interface's
    /// counter, both directions together.
    pub fn start(&mut self, now: Time, packets: u64) {
        self.last_packet = now;
        self.packets = packets;
        self.own_until = now + OWN_TRAFFIC_TIME;
        self.restarts = 0;
    }

    /// Returns the next step; `packets` is the interface's counter at `now`.
    pub fn next_action(&mut self, now: Time, packets: u64) -> Action {
        if packets != self.packets {
            self.packets = packets;
            self.last_packet = now;
            // Late packets of the own probe also restart the gap, but are not a disturbance.
            if now > self.own_until {
                self.restart_gap();
            }
        }
        let Some(gap) = self.pending.front() else { return Action::Done };
        let remaining = gap.gap.saturating_sub(now.since(self.last_packet));
        if remaining.is_zero() {
            Action::Probe
        } else {
            Action::Wait(now + remaining.min(COUNTER_INTERVAL))
        }
    }

    /// Reports the probe that [`ProbeSchedule::next_action`] requested: sent at `sent`, answered or
    /// given up at `now` (`round_trip` is `None`). The probe itself took `own` packets, and the
    /// interface's counter is at `packets`. Returns `None` if the probe was lost or other packets
    /// passed meanwhile.
    pub fn on_probe_result(
        &mut self,
        sent: Time,
        round_trip: Option<Span>,
        own: u64,
        now: Time,
        packets: u64,
    ) -> Option<GapSample> {
        let turn = self.pending.front().copied()?;
        let silence = sent.since(self.last_packet);
        let extra = packets.saturating_sub(self.packets).saturating_sub(own);
        self.last_packet = now;
        self.packets = packets;
        self.own_until = now + round_trip.unwrap_or(OWN_TRAFFIC_TIME).max(OWN_TRAFFIC_TIME);
        let Some(round_trip) = round_trip else {
            self.lost += 1;
            self.postpone_gap();
            return None;
        };
        // Packets of other programs may have caused the promotion.
        if extra > 0 && round_trip < RETRANSMISSION_THRESHOLD {
            self.restart_gap();
            return None;
        }
        self.pending.pop_front();
        self.answered += 1;
        let restarts = std::mem::take(&mut self.restarts);
        Some(GapSample { planned_gap: turn.gap, gap: silence, round_trip, restarts })
    }

    fn restart_gap(&mut self) {
        self.disturbed += 1;
        self.restarts += 1;
        if self.restarts > MAX_RESTARTS {
            self.postpone_gap();
        }
    }

    /// Continues with another gap. This one is tried again at the end of the round.
    fn postpone_gap(&mut self) {
        self.restarts = 0;
        let Some(mut gap) = self.pending.pop_front() else { return };
        gap.failed += 1;
        if gap.failed >= MAX_ATTEMPTS {
            self.abandoned.push(gap.gap);
            return;
        }
        let later = self.pending.iter().position(|other| other.round > gap.round);
        self.pending.insert(later.unwrap_or(self.pending.len()), gap);
    }

    /// The current gap; `None` if none is left.
    pub fn current_gap(&self) -> Option<Span> {
        self.pending.front().map(|gap| gap.gap)
    }

    /// Probes of the whole sweep.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Answered probes, including those of earlier runs.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// Sum of the remaining gaps: the remaining time without the round trips.
    pub fn remaining(&self) -> Span {
        self.pending.iter().map(|gap| gap.gap).sum()
    }

    /// Gaps disturbed by packets of other programs.
    pub fn disturbed(&self) -> u64 {
        self.disturbed
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Gaps that failed in all attempts of a round.
    pub fn abandoned(&self) -> &[Span] {
        &self.abandoned
    }
}

/// An inactivity timer inferred from probes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InferredTimer {
    /// The end of the timer, estimated against the probes before it.
    pub expiry: TimerEstimate,
    /// Shortest usual round trip after the timer, in seconds (2nd percentile).
    pub round_trip: f64,
    /// Increase over the round trips after the shortest gaps, in seconds: a lower bound of the
    /// promotion delay.
    pub promotion_delay: f64,
}

/// All timers, the shortest first: the result of [`estimate_timer`], applied again to the probes
/// before and after each timer found.
///
/// # Errors
/// Fails as [`estimate_timer`] does if not one timer is found.
pub fn infer_timers(probes: &[Probe]) -> Result<Vec<InferredTimer>, InferenceError> {
    let mut all = vec![estimate_timer(probes)?];
    // Each part contains fewer probes, so the loop ends.
    let mut parts: Vec<(f64, f64)> =
        vec![(0.0, all[0].onset.value), (all[0].completion.value, f64::INFINITY)];
    while let Some((from, to)) = parts.pop() {
        let within = |probe: &&Probe| from <= probe.gap && probe.gap < to;
        let part: Vec<Probe> = probes.iter().filter(within).copied().collect();
        if let Ok(found) = estimate_timer(&part) {
            parts.extend([(from, found.onset.value), (found.completion.value, to)]);
            all.push(found);
        }
    }
    all.sort_by(|one, other| one.onset.value.total_cmp(&other.onset.value));
    let usual = all[0].connected_rtt;
    let timer = |ends: TimerEstimate| {
        let round_trip = ends.connected_rtt + ends.promotion_delay;
        InferredTimer { expiry: ends, round_trip, promotion_delay: (round_trip - usual).max(0.0) }
    };
    Ok(all.into_iter().map(timer).collect())
}

#[cfg(test)]
mod tests;
