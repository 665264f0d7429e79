//! Energy of a radio while no packet is sent or received.

use manyways_unit::Span;

use super::{Energy, Profile};

/// Energy of a radio over the time since it entered a state, as its inactivity timers demote it
/// through the later states.
///
/// From the first state this is the tail. Together with the energy of the promotion at the end, it
/// is E(t) of S. Deng and H. Balakrishnan (CoNEXT 2012; Deng's thesis, §4.4.1). Their `E_switch` is
/// here the demotion into the released state and the promotion out of it. As in the paper, a state
/// lasts up to and including the end of its timer. Unlike in the paper, the released state can take
/// power (paging), and intermediate states can have promotions.
#[derive(Clone, Debug)]
pub struct Decay {
    steps: Vec<Step>,
}

/// One state, from the time at which its predecessor's timer ends.
#[derive(Clone, Debug)]
struct Step {
    /// Index in the profile.
    state: usize,
    begins: f64,
    /// Joules spent before, the demotion into this state included.
    before: f64,
    /// Joules of the demotion into this state.
    demotion: f64,
    /// Watts outside the on duration.
    power: f64,
    listens: Option<Cycle>,
    /// Joules of a promotion out of this state.
    promotion: f64,
    is_released: bool,
}

/// DRX cycle: seconds between on durations, seconds of an on duration, additional watts during one.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    every: f64,
    lasts: f64,
    more: f64,
}

impl Step {
    fn energy(&self, secs: f64) -> f64 {
        let silent = self.power * secs;
        match &self.listens {
            None => silent,
            Some(cycle) => silent + cycle.more * cycle.listening(secs),
        }
    }
}

impl Cycle {
    /// Seconds of on duration within the first `secs` of the state.
    fn listening(&self, secs: f64) -> f64 {
        let cycles = (secs / self.every).floor();
        let rest = (secs - cycles * self.every).clamp(0.0, self.every);
        cycles * self.lasts + rest.min(self.lasts)
    }
}

impl Decay {
    /// The decay from the start of the state at this index of the profile, without the demotion
    /// into it.
    ///
    /// # Panics
    /// On use, if the profile does not have that state.
    pub fn from(profile: &Profile, state: usize) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut begins = 0.0;
        let mut before = 0.0;
        for (place, state) in profile.states.iter().enumerate().skip(state) {
            let demotion = if steps.is_empty() { 0.0 } else { state.demotion.as_joules() };
            before += demotion;
            let power = state.power.as_watts();
            let listens = state.listens.as_ref().map(|listens| Cycle {
                every: listens.cycle.as_secs_f64(),
                lasts: listens.lasts.as_secs_f64(),
                more: listens.power.as_watts() - power,
            });
            let step = Step {
                state: place,
                begins,
                before,
                demotion,
                power,
                listens,
                promotion: state.promotion.as_joules(),
                is_released: state.is_released,
            };
            let timer = state.timer.unwrap_or(Span::ZERO).as_secs_f64();
            before += step.energy(timer);
            begins += timer;
            steps.push(step);
        }
        Self { steps }
    }

    /// The step at a time: the last one that begins strictly before `secs`, or the first one.
    fn step(&self, secs: f64) -> &Step {
        let behind = self.steps.iter().rev().find(|step| step.begins < secs);
        behind.unwrap_or(&self.steps[0])
    }

    /// Index of the state after `secs` seconds.
    pub fn state(&self, secs: f64) -> usize {
        self.step(secs).state
    }

    /// Whether the network has released the connection before that time.
    pub fn is_released(&self, secs: f64) -> bool {
        self.step(secs).is_released
    }

    /// Seconds until the network releases the connection; infinite if it never does.
    pub fn released(&self) -> f64 {
        let released = self.steps.iter().find(|step| step.is_released);
        released.map_or(f64::INFINITY, |step| step.begins)
    }

    /// Joules of a gap of `secs` seconds, without the promotion after it.
    pub fn energy(&self, secs: f64) -> f64 {
        let step = self.step(secs);
        step.before + step.energy((secs - step.begins).max(0.0))
    }

    /// Joules of the promotion if a packet ends the gap after `secs` seconds.
    pub fn promotion(&self, secs: f64) -> f64 {
        self.step(secs).promotion
    }

    /// Joules of a gap that a packet ends after `secs` seconds, promotion included: E(t).
    pub fn cost(&self, secs: f64) -> f64 {
        self.energy(secs) + self.promotion(secs)
    }

    /// Energy of a gap by state: `(state, seconds, joules, joules of the demotion into it)`.
    pub fn parts(&self, secs: f64) -> impl Iterator<Item = (usize, f64, f64, f64)> {
        let steps = self.steps.iter().enumerate();
        steps.take_while(move |(number, step)| *number == 0 || step.begins < secs).map(
            move |(number, step)| {
                let next = self.steps.get(number + 1);
                let end = next.map_or(secs, |next| next.begins.min(secs));
                let lasts = (end - step.begins).max(0.0);
                let spent = step.energy(lasts);
                (step.state, lasts, spent, step.demotion)
            },
        )
    }
}

/// The two options of a device after a packet.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The decay by the network's timers.
    pub stay: Decay,
    /// The decay after fast dormancy.
    pub sleep: Decay,
    /// Joules of the demotion by fast dormancy.
    pub demotion: f64,
}

impl Choice {
    pub fn of(profile: &Profile) -> Self {
        Self {
            stay: Decay::from(profile, 0),
            sleep: Decay::from(profile, profile.dormant),
            demotion: profile.states[profile.dormant].demotion.as_joules(),
        }
    }

    /// Energy of fast dormancy and the promotion after it: `E_switch`.
    pub fn switch(&self) -> Energy {
        Energy::joules(self.demotion + self.sleep.promotion(0.0))
    }

    /// Upper bound in joules of a gap up to the release by the network, including promotions.
    pub fn most(&self) -> f64 {
        let promotions: f64 = self.stay.steps.iter().map(|step| step.promotion).sum();
        self.stay.energy(self.stay.released()) + promotions
    }

    /// Joules of a gap of `secs` seconds that a packet ends, with fast dormancy after `wait`
    /// seconds. There is no fast dormancy if the packet arrives at or before `wait`, or if the
    /// network releases the connection before.
    pub fn cost(&self, secs: f64, wait: f64) -> f64 {
        match wait < secs && wait < self.stay.released() {
            true => self.stay.energy(wait) + self.demotion + self.sleep.cost(secs - wait),
            false => self.stay.cost(secs),
        }
    }

    /// Gap length in seconds above which immediate fast dormancy saves energy: `t_threshold`, the
    /// smallest upper bound of the gaps for which it does not. Infinite if it never saves energy.
    ///
    /// Both costs are defined piecewise; within a piece, bisection finds the change of their
    /// difference to positive.
    pub fn threshold(&self) -> f64 {
        let gain = |secs: f64| self.stay.cost(secs) - self.cost(secs, 0.0);
        // After the last state of both is reached, the difference stays the same.
        let last = |decay: &Decay| decay.steps.last().map_or(0.0, |step| step.begins);
        let end = 2.0 * last(&self.stay).max(last(&self.sleep)) + 1.0;
        let mut edges: Vec<f64> = vec![0.0, end];
        edges.extend(self.stay.steps.iter().chain(&self.sleep.steps).map(|step| step.begins));
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        for pair in edges.windows(2) {
            let (mut low, mut high) = (pair[0], pair[1]);
            if gain(high) <= 0.0 {
                // The smallest gap that saves energy can be the one just above an edge.
                if gain(high.next_up()) > 0.0 {
                    return high;
                }
                continue;
            }
            while low.next_up() < high {
                let middle = low + (high - low) / 2.0;
                match gain(middle) > 0.0 {
                    true => high = middle,
                    false => low = middle,
                }
            }
            return low;
        }
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests;
