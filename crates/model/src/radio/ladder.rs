//! Active inference of a radio's timers: which gaps to probe, and when.
//!
//! A [`Ladder`] is a list of gap lengths, ascending, each of which is probed several times.
//! [`Plan`] returns the next step at the time that the caller passes: wait, or send the probe that
//! ends the gap. Each round contains every gap length once, in random order, so that a slow drift
//! of the network does not look like a timer and an interrupted run covers all lengths. Only
//! undisturbed gaps count, because packets of other programs keep the radio connected (Mobilyzer,
//! MobiSys 2015, §4.3.2). If the interface's packet counter changes during a gap, the gap starts
//! again.
//!
//! [`timers`] estimates the timers from the results.

use std::collections::VecDeque;

use manyways_unit::{Random, Span, Time};

use super::infer::{NoTimer, Probe, Released, released};

/// Gap lengths from `least` to `most` in steps of `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ladder {
    pub least: Span,
    /// Upper bound; the longest gap can be shorter by less than `step`.
    pub most: Span,
    pub step: Span,
    /// Probes of each length.
    pub rounds: u32,
}

/// Reason why a probing plan is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadLadder {
    /// No gap length, or zero rounds.
    #[error("there is no gap to probe")]
    Empty,
    /// More than [`MOST_PROBES`] probes.
    #[error("the plan has more than {MOST_PROBES} probes")]
    TooMany,
}

pub const MOST_PROBES: u64 = 100_000;
/// Restarts of a disturbed gap before another one is tried.
const RESTARTS: u32 = 10;
/// Attempts of a gap in its round before the gap is given up.
const TURNS: u32 = 3;
/// Interval between reads of the packet counter, and so the precision of a disturbance's time.
pub const LOOK: Span = Span::from_millis(10);
/// Minimum time after an answer in which packets count as the probe's own, such as the end of its
/// connection or a repeated answer.
const OWN: Span = Span::from_millis(100);
/// Round trips above this can contain retransmissions by the kernel.
const REPEATED: Span = Span::from_millis(900);

impl Ladder {
    /// From 0.5 to 20 s in steps of 0.5 s, 5 rounds: about 35 minutes.
    pub const USUAL: Self = Self {
        least: Span::from_millis(500),
        most: Span::from_secs(20),
        step: Span::from_millis(500),
        rounds: 5,
    };

    /// Gap lengths of one round, one of zero included.
    fn count(&self) -> Result<u64, BadLadder> {
        if self.rounds == 0 || self.most < self.least || self.most.is_zero() {
            return Err(BadLadder::Empty);
        }
        let beyond = self.most.saturating_sub(self.least).as_nanos();
        let count = match beyond.checked_div(self.step.as_nanos()) {
            Some(steps) => steps.saturating_add(1),
            None if beyond == 0 => 1,
            None => return Err(BadLadder::Empty),
        };
        match count.saturating_mul(u64::from(self.rounds)) > MOST_PROBES {
            true => Err(BadLadder::TooMany),
            false => Ok(count),
        }
    }
}

/// The next step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send nothing and call [`Plan::look`] again at this time.
    Look(Time),
    Probe,
    /// All probes are done or given up.
    Done,
}

/// A probe after an undisturbed gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The planned gap.
    pub idle: Span,
    /// The actual gap; slightly longer than planned.
    pub silence: Span,
    /// From the probe to its answer.
    pub round_trip: Span,
    /// Disturbed attempts before.
    pub restarts: u32,
}

/// One gap length in one round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    round: u32,
    idle: Span,
    /// Failed attempts.
    failed: u32,
}

/// The remaining probes of a ladder.
#[derive(Clone, Debug)]
pub struct Plan {
    turns: VecDeque<Turn>,
    planned: usize,
    answered: usize,
    given_up: Vec<Span>,
    disturbed: u64,
    lost: u64,
    /// Time of the last packet.
    silent: Time,
    packets: u64,
    /// Packets until then count as the last probe's own.
    own: Time,
    restarts: u32,
}

impl Plan {
    /// Creates a plan without the gaps in `done`, which an earlier run completed in any order.
    ///
    /// # Errors
    /// Fails if the ladder has no gap or more than [`MOST_PROBES`] probes.
    pub fn new(ladder: &Ladder, seed: u64, done: &[Span]) -> Result<Self, BadLadder> {
        let count = ladder.count()?;
        let rungs = || (0..count).map(|rung| ladder.least + ladder.step * rung);
        let mut done = done.to_vec();
        let mut turns = VecDeque::new();
        let mut planned = 0;
        let mut answered = 0;
        for round in 0..ladder.rounds {
            let mut order: Vec<Span> = rungs().filter(|idle| !idle.is_zero()).collect();
            planned += order.len();
            let mut random = Random::stream(seed, u64::from(round));
            for place in (1..order.len()).rev() {
                order.swap(place, random.up_to(place as u64) as usize);
            }
            for idle in order {
                match done.iter().position(|one| *one == idle) {
                    Some(place) => {
                        done.swap_remove(place);
                        answered += 1;
                    }
                    None => turns.push_back(Turn { round, idle, failed: 0 }),
                }
            }
        }
        if planned == 0 {
            return Err(BadLadder::Empty);
        }
        Ok(Self {
            turns,
            planned,
            answered,
            given_up: Vec::new(),
            disturbed: 0,
            lost: 0,
            silent: Time::ZERO,
            packets: 0,
            own: Time::ZERO,
            restarts: 0,
        })
    }

    /// Starts the first gap, after an own packet and its answer. `packets` is the interface's
    /// counter, both directions together.
    pub fn begin(&mut self, now: Time, packets: u64) {
        self.silent = now;
        self.packets = packets;
        self.own = now + OWN;
        self.restarts = 0;
    }

    /// Returns the next step; `packets` is the interface's counter at `now`.
    pub fn look(&mut self, now: Time, packets: u64) -> Next {
        if packets != self.packets {
            self.packets = packets;
            self.silent = now;
            // Late packets of the own probe also restart the gap, but are not a disturbance.
            if now > self.own {
                self.restart();
            }
        }
        let Some(turn) = self.turns.front() else { return Next::Done };
        let left = turn.idle.saturating_sub(now.since(self.silent));
        if left.is_zero() { Next::Probe } else { Next::Look(now + left.min(LOOK)) }
    }

    /// Reports the probe that [`Plan::look`] requested: sent at `sent`, answered or given up at
    /// `now` (`round_trip` is `None`). The probe itself took `own` packets, and the interface's
    /// counter is at `packets`. Returns `None` if the probe was lost or other packets passed
    /// meanwhile.
    pub fn probed(
        &mut self,
        sent: Time,
        round_trip: Option<Span>,
        own: u64,
        now: Time,
        packets: u64,
    ) -> Option<Sample> {
        let turn = self.turns.front().copied()?;
        let silence = sent.since(self.silent);
        let extra = packets.saturating_sub(self.packets).saturating_sub(own);
        self.silent = now;
        self.packets = packets;
        self.own = now + round_trip.unwrap_or(OWN).max(OWN);
        let Some(round_trip) = round_trip else {
            self.lost += 1;
            self.fail();
            return None;
        };
        // Packets of other programs may have caused the promotion.
        if extra > 0 && round_trip < REPEATED {
            self.restart();
            return None;
        }
        self.turns.pop_front();
        self.answered += 1;
        let restarts = std::mem::take(&mut self.restarts);
        Some(Sample { idle: turn.idle, silence, round_trip, restarts })
    }

    fn restart(&mut self) {
        self.disturbed += 1;
        self.restarts += 1;
        if self.restarts > RESTARTS {
            self.fail();
        }
    }

    /// Continues with another gap. This one is tried again at the end of the round.
    fn fail(&mut self) {
        self.restarts = 0;
        let Some(mut turn) = self.turns.pop_front() else { return };
        turn.failed += 1;
        if turn.failed >= TURNS {
            self.given_up.push(turn.idle);
            return;
        }
        let later = self.turns.iter().position(|other| other.round > turn.round);
        self.turns.insert(later.unwrap_or(self.turns.len()), turn);
    }

    /// The current gap; `None` if none is left.
    pub fn idle(&self) -> Option<Span> {
        self.turns.front().map(|turn| turn.idle)
    }

    /// Probes of the whole ladder.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Answered probes, including those of earlier runs.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// Sum of the remaining gaps: the remaining time without the round trips.
    pub fn left(&self) -> Span {
        self.turns.iter().map(|turn| turn.idle).sum()
    }

    /// Gaps disturbed by packets of other programs.
    pub fn disturbed(&self) -> u64 {
        self.disturbed
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Gaps that failed in all attempts of a round.
    pub fn given_up(&self) -> &[Span] {
        &self.given_up
    }
}

/// An inactivity timer inferred from probes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timer {
    /// The end of the timer, estimated against the probes before it.
    pub ends: Released,
    /// Shortest usual round trip after the timer, in seconds (2nd percentile).
    pub round_trip: f64,
    /// Increase over the round trips after the shortest gaps, in seconds: a lower bound of the
    /// promotion delay.
    pub promotion: f64,
}

/// All timers, the shortest first: the result of [`released`], applied again to the probes before
/// and after each timer found.
///
/// # Errors
/// Fails as [`released`] does if not one timer is found.
pub fn timers(probes: &[Probe]) -> Result<Vec<Timer>, NoTimer> {
    let mut all = vec![released(probes)?];
    // Each part contains fewer probes, so the loop ends.
    let mut parts: Vec<(f64, f64)> =
        vec![(0.0, all[0].onset.value), (all[0].completion.value, f64::INFINITY)];
    while let Some((from, to)) = parts.pop() {
        let within = |probe: &&Probe| from <= probe.idle && probe.idle < to;
        let part: Vec<Probe> = probes.iter().filter(within).copied().collect();
        if let Ok(found) = released(&part) {
            parts.extend([(from, found.onset.value), (found.completion.value, to)]);
            all.push(found);
        }
    }
    all.sort_by(|one, other| one.onset.value.total_cmp(&other.onset.value));
    let usual = all[0].awake;
    let timer = |ends: Released| {
        let round_trip = ends.awake + ends.promotion;
        Timer { ends, round_trip, promotion: (round_trip - usual).max(0.0) }
    };
    Ok(all.into_iter().map(timer).collect())
}

#[cfg(test)]
mod tests;
