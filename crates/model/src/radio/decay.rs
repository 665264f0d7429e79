//! What a radio takes when nothing passes.

use manyways_unit::Span;

use super::{Energy, Profile};

/// What a radio takes from the moment at which it is in some state, as it goes on to the ones behind
/// it by their timers.
///
/// From the first state this is the tail. With what the packet at its end takes to bring the radio
/// back, it is the E(t) of S. Deng and H. Balakrishnan (CoNEXT 2012; Deng's thesis, §4.4.1), whose
/// `E_switch` is here the demotion into the released state and the promotion out of it. Like there, a
/// state holds up to and including the end of its timer; other than there, the released state may
/// take power (paging), and states between may take a promotion too.
#[derive(Clone, Debug)]
pub struct Decay {
    steps: Vec<Step>,
}

/// From some time on, a state.
#[derive(Clone, Debug)]
struct Step {
    /// Its place in the profile.
    state: usize,
    /// Seconds.
    begins: f64,
    /// Joules until then, its demotion included.
    before: f64,
    /// Joules to enter it from the state before.
    demotion: f64,
    /// Watts where it does not listen.
    power: f64,
    listens: Option<Cycle>,
    /// Joules to be brought back out of it.
    promotion: f64,
    is_released: bool,
}

/// Seconds, seconds, and the watts above those of not listening.
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
    /// For how long it has listened.
    fn listening(&self, secs: f64) -> f64 {
        let cycles = (secs / self.every).floor();
        let rest = (secs - cycles * self.every).clamp(0.0, self.every);
        cycles * self.lasts + rest.min(self.lasts)
    }
}

impl Decay {
    /// From the state at that place of a profile on, at its beginning; what it took to enter it is
    /// not in it. The profile has to have that state.
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

    /// The step of a moment: the last one that has begun before it.
    fn step(&self, secs: f64) -> &Step {
        let behind = self.steps.iter().rev().find(|step| step.begins < secs);
        behind.unwrap_or(&self.steps[0])
    }

    /// The place of the state that it is in after so many seconds.
    pub fn state(&self, secs: f64) -> usize {
        self.step(secs).state
    }

    /// Whether the network has let go of it by then.
    pub fn is_released(&self, secs: f64) -> bool {
        self.step(secs).is_released
    }

    /// When the network lets go of it, in seconds.
    pub fn released(&self) -> f64 {
        let released = self.steps.iter().find(|step| step.is_released);
        released.map_or(f64::INFINITY, |step| step.begins)
    }

    /// Joules for so many seconds of silence.
    pub fn energy(&self, secs: f64) -> f64 {
        let step = self.step(secs);
        step.before + step.energy((secs - step.begins).max(0.0))
    }

    /// Joules that a packet takes then to bring it back.
    pub fn promotion(&self, secs: f64) -> f64 {
        self.step(secs).promotion
    }

    /// Joules for so many seconds of silence that a packet ends: E(t).
    pub fn cost(&self, secs: f64) -> f64 {
        self.energy(secs) + self.promotion(secs)
    }

    /// The seconds and joules in each state of a silence of so many seconds, the demotion into it
    /// apart: `(state, seconds, joules, demotion)`.
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

/// What a device decides between, after a packet.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The timers of the network.
    pub stay: Decay,
    /// What follows once it has gone to sleep by itself.
    pub sleep: Decay,
    /// Joules to go to sleep.
    pub demotion: f64,
}

impl Choice {
    /// That of a profile.
    pub fn of(profile: &Profile) -> Self {
        Self {
            stay: Decay::from(profile, 0),
            sleep: Decay::from(profile, profile.dormant),
            demotion: profile.states[profile.dormant].demotion.as_joules(),
        }
    }

    /// Joules to go to sleep and be brought back: `E_switch`.
    pub fn switch(&self) -> Energy {
        Energy::joules(self.demotion + self.sleep.promotion(0.0))
    }

    /// More joules than any silence takes until the network has let go of the device, and the packet
    /// that ends it.
    pub fn most(&self) -> f64 {
        let promotions: f64 = self.stay.steps.iter().map(|step| step.promotion).sum();
        self.stay.energy(self.stay.released()) + promotions
    }

    /// Joules for a silence of so many seconds that a packet ends, where the device goes to sleep
    /// after `wait`, unless the network has sent it to sleep by then or the packet comes no later.
    pub fn cost(&self, secs: f64, wait: f64) -> f64 {
        match wait < secs && wait < self.stay.released() {
            true => self.stay.energy(wait) + self.demotion + self.sleep.cost(secs - wait),
            false => self.stay.cost(secs),
        }
    }

    /// The silence from which on it is worth to sleep at once: `t_threshold`, the least upper bound of
    /// those for which it is not; infinite where it never is.
    ///
    /// Both costs are piecewise: within a piece the difference is found by halving.
    pub fn threshold(&self) -> f64 {
        let gain = |secs: f64| self.stay.cost(secs) - self.cost(secs, 0.0);
        // Nothing changes any more once both are in their last state.
        let last = |decay: &Decay| decay.steps.last().map_or(0.0, |step| step.begins);
        let end = 2.0 * last(&self.stay).max(last(&self.sleep)) + 1.0;
        let mut edges: Vec<f64> = vec![0.0, end];
        edges.extend(self.stay.steps.iter().chain(&self.sleep.steps).map(|step| step.begins));
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        for pair in edges.windows(2) {
            let (mut low, mut high) = (pair[0], pair[1]);
            if gain(high) <= 0.0 {
                // What begins just behind an edge may be worth it at once.
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
