//! Which silences to keep, and when, to learn the timers of a radio: active inference.
//!
//! A [`Ladder`] is a list of silences, from short to long, that are probed several times. [`Plan`]
//! says what to do next, in whatever time it is told: keep still, or send the probe that ends the
//! silence. In each round every silence comes once, in an order by chance, so that a network that
//! becomes slower with time is not taken for a timer, and what was measured when somebody stops it
//! covers all silences. Only a silence that nothing disturbs counts (Mobilyzer, MobiSys 2015, §4.3.2:
//! packets of others would have kept the radio awake): when the interface's counter of packets moves,
//! the silence begins anew, since what passed has woken the radio as a probe would have.
//!
//! [`timers`] says what comes of it.

use std::collections::VecDeque;

use manyways_unit::{Random, Span, Time};

use super::infer::{NoTimer, Probe, Released, released};

/// Silences from `least` to `most`, `step` apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ladder {
    /// The shortest one.
    pub least: Span,
    /// None is longer.
    pub most: Span,
    /// From one to the next.
    pub step: Span,
    /// How often each is probed.
    pub rounds: u32,
}

/// Why a ladder makes no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadLadder {
    /// No silence at all, or no round.
    #[error("there is no silence to probe")]
    Empty,
    /// More than can be meant.
    #[error("these are more than {MOST_PROBES} probes")]
    TooMany,
}

/// The most probes of a plan.
pub const MOST_PROBES: u64 = 100_000;
/// How often a silence is begun anew before another one has its turn.
const RESTARTS: u32 = 10;
/// How often a silence has its turn in its round before it is given up.
const TURNS: u32 = 3;
/// How often the counters are looked at: a disturbance is known this exactly.
pub const LOOK: Span = Span::from_millis(10);
/// For at least so long after an answer, packets are still the probe's own (the end of a connection,
/// an answer that was repeated).
const OWN: Span = Span::from_millis(100);
/// A round trip of so long can have packets that a sender repeated.
const REPEATED: Span = Span::from_millis(900);

impl Ladder {
    /// From 0.5 to 20 s in steps of 0.5 s, five times: about 35 minutes.
    pub const USUAL: Self = Self {
        least: Span::from_millis(500),
        most: Span::from_secs(20),
        step: Span::from_millis(500),
        rounds: 5,
    };

    /// How many silences one round has; fewer than none cannot be told.
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

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send nothing, and look again at this moment.
    Look(Time),
    /// Send a probe, now.
    Probe,
    /// Nothing is left to do.
    Done,
}

/// A probe that ended a silence which nothing disturbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The silence that was wanted.
    pub idle: Span,
    /// The one that was kept; a little longer.
    pub silence: Span,
    /// Until the answer.
    pub round_trip: Span,
    /// How often the silence was begun anew before.
    pub restarts: u32,
}

/// One silence in one round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    round: u32,
    idle: Span,
    /// How often it had its turn in vain.
    failed: u32,
}

/// What is left to do of a ladder.
#[derive(Clone, Debug)]
pub struct Plan {
    turns: VecDeque<Turn>,
    planned: usize,
    answered: usize,
    given_up: Vec<Span>,
    disturbed: u64,
    lost: u64,
    /// When the last packet passed.
    silent: Time,
    packets: u64,
    /// What passes until then is the last probe's.
    own: Time,
    restarts: u32,
}

impl Plan {
    /// What is to be done of a ladder when those silences are done, in whatever order they were.
    ///
    /// # Errors
    /// Where the ladder has no rung, or too many.
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

    /// A packet of our own has passed just now, and its answer: the first silence begins. `packets`
    /// is the interface's counter, both directions together.
    pub fn begin(&mut self, now: Time, packets: u64) {
        self.silent = now;
        self.packets = packets;
        self.own = now + OWN;
        self.restarts = 0;
    }

    /// Says what to do now, as the interface's counter stands at `packets`.
    pub fn look(&mut self, now: Time, packets: u64) -> Next {
        if packets != self.packets {
            self.packets = packets;
            self.silent = now;
            // Late packets of our own begin it anew as well, but disturb nobody.
            if now > self.own {
                self.restart();
            }
        }
        let Some(turn) = self.turns.front() else { return Next::Done };
        let left = turn.idle.saturating_sub(now.since(self.silent));
        if left.is_zero() { Next::Probe } else { Next::Look(now + left.min(LOOK)) }
    }

    /// The probe that [`Plan::look`] asked for was sent at `sent` and is answered at `now`, or given
    /// up for lost. It took so many packets of its own, and the counter stands at `packets`. Gives
    /// what was measured, if nothing disturbed it.
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
        // Others' packets may have woken the radio for ours.
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

    /// Another silence has its turn. This one comes again at the end of the round.
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

    /// The silence that is being kept; none when nothing is left.
    pub fn idle(&self) -> Option<Span> {
        self.turns.front().map(|turn| turn.idle)
    }

    /// All probes of the ladder.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Those that are done, those before this plan included.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// The silences that are left, all together: the time that it takes, but for the answers.
    pub fn left(&self) -> Span {
        self.turns.iter().map(|turn| turn.idle).sum()
    }

    /// Silences that others' packets broke.
    pub fn disturbed(&self) -> u64 {
        self.disturbed
    }

    /// Probes that were not answered.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Silences that were tried too often.
    pub fn given_up(&self) -> &[Span] {
        &self.given_up
    }
}

/// One of a radio's timers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timer {
    /// When it ends, against what is before it.
    pub ends: Released,
    /// The shortest usual round trips behind it, in seconds (the second percentile).
    pub round_trip: f64,
    /// How much longer these are than those behind the shortest silences of all: what it takes at least
    /// to be brought back.
    pub promotion: f64,
}

/// The timers of a radio with any number of states, the shortest silence first: what [`released`] finds,
/// and what it finds again before and behind that.
///
/// # Errors
/// As [`released`], where not even one is found.
pub fn timers(probes: &[Probe]) -> Result<Vec<Timer>, NoTimer> {
    let mut all = vec![released(probes)?];
    // Each time fewer probes are looked at, so that it ends.
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
