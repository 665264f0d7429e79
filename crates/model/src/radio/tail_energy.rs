//! Energy of a radio while no packet is sent or received.

use manyways_unit::Span;

use super::{Energy, NEVER, Profile};

/// Energy of a radio over the time since it entered a state, as its inactivity timers demote it
/// through the later states.
///
/// From the first state this is the tail. Together with the energy of the promotion at the end, it
/// is E(t) of S. Deng and H. Balakrishnan (CoNEXT 2012; Deng's thesis, §4.4.1). Their `E_switch` is
/// here the demotion into the released state and the promotion out of it. As in the paper, a state
/// lasts up to and including the end of its timer. Unlike in the paper, the released state can take
/// power (paging), and intermediate states can have promotions.
#[derive(Clone, Debug)]
pub struct TailEnergy {
    steps: Vec<Step>,
    idle_after: Span,
}

/// One state, from the time at which its predecessor's timer ends.
#[derive(Clone, Debug)]
struct Step {
    /// Index in the profile.
    state: usize,
    start: Span,
    /// Joules spent before, the demotion into this state included.
    joules_before: f64,
    /// Joules of the demotion into this state.
    demotion: f64,
    /// Watts outside the on duration.
    power: f64,
    drx: Option<DrxCycle>,
    /// Joules of a promotion out of this state.
    promotion: f64,
    is_idle: bool,
}

/// DRX cycle: seconds between on durations, seconds of an on duration, additional watts during one.
#[derive(Clone, Copy, Debug)]
struct DrxCycle {
    cycle: f64,
    on_duration: f64,
    extra_power: f64,
}

impl Step {
    fn energy(&self, secs: f64) -> f64 {
        let silent = self.power * secs;
        match &self.drx {
            None => silent,
            Some(cycle) => silent + cycle.extra_power * cycle.on_time(secs),
        }
    }
}

impl DrxCycle {
    /// Seconds of on duration within the first `secs` of the state.
    fn on_time(&self, secs: f64) -> f64 {
        let cycles = (secs / self.cycle).floor();
        let rest = (secs - cycles * self.cycle).clamp(0.0, self.cycle);
        cycles * self.on_duration + rest.min(self.on_duration)
    }
}

impl TailEnergy {
    /// The energy from the start of the state at this index of the profile, without the demotion
    /// into it.
    ///
    /// # Panics
    /// On use, if the profile does not have that state.
    pub fn from_state(profile: &Profile, state: usize) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut start = Span::ZERO;
        let mut before = 0.0;
        for (index, state) in profile.states.iter().enumerate().skip(state) {
            let demotion = if steps.is_empty() { 0.0 } else { state.demotion.as_joules() };
            before += demotion;
            let power = state.power.as_watts();
            let drx = state.drx.as_ref().map(|drx| DrxCycle {
                cycle: drx.cycle.as_secs_f64(),
                on_duration: drx.on_duration.as_secs_f64(),
                extra_power: drx.power.as_watts() - power,
            });
            let step = Step {
                state: index,
                start,
                joules_before: before,
                demotion,
                power,
                drx,
                promotion: state.promotion.as_joules(),
                is_idle: state.is_idle,
            };
            let timer = state.timer.unwrap_or(Span::ZERO);
            before += step.energy(timer.as_secs_f64());
            start += timer;
            steps.push(step);
        }
        let idle = steps.iter().find(|step| step.is_idle);
        Self { idle_after: idle.map_or(NEVER, |step| step.start), steps }
    }

    /// The step at the end of a gap: the last one that begins strictly before it, or the first one.
    fn step(&self, gap: Span) -> &Step {
        let behind = self.steps.iter().rev().find(|step| step.start < gap);
        behind.unwrap_or(&self.steps[0])
    }

    /// Index of the state at the end of a gap.
    pub fn state(&self, gap: Span) -> usize {
        self.step(gap).state
    }

    /// Whether the network has released the connection before the end of a gap.
    pub fn is_idle(&self, gap: Span) -> bool {
        self.step(gap).is_idle
    }

    /// Time until the network releases the connection; [`NEVER`] if it never does.
    pub fn idle_after(&self) -> Span {
        self.idle_after
    }

    /// Joules of a gap, without the promotion after it.
    pub fn energy(&self, gap: Span) -> f64 {
        let step = self.step(gap);
        step.joules_before + step.energy((gap - step.start).as_secs_f64())
    }

    /// Joules until the network releases the connection, with the demotion.
    pub fn energy_until_idle(&self) -> f64 {
        self.energy_by_state_until_idle().map(|(_, _, joules, demotion)| joules + demotion).sum()
    }

    /// Joules of the promotion if a packet ends the gap.
    pub fn promotion(&self, gap: Span) -> f64 {
        self.step(gap).promotion
    }

    /// Joules of a gap that a packet ends, promotion included: E(t).
    pub fn cost(&self, gap: Span) -> f64 {
        self.energy(gap) + self.promotion(gap)
    }

    /// Energy of a gap by state: `(state, time in it, joules, joules of the demotion into it)`.
    pub fn energy_by_state(&self, gap: Span) -> impl Iterator<Item = (usize, Span, f64, f64)> {
        let number = self.steps.iter().take_while(|step| step.start < gap).count();
        self.energy_of_steps(gap, number.max(1))
    }

    /// The parts of [`TailEnergy::energy_until_idle`], with no time in the released state.
    pub fn energy_by_state_until_idle(&self) -> impl Iterator<Item = (usize, Span, f64, f64)> {
        let end = self.idle_after();
        self.energy_of_steps(end, self.steps.iter().take_while(|step| step.start <= end).count())
    }

    fn energy_of_steps(
        &self,
        gap: Span,
        count: usize,
    ) -> impl Iterator<Item = (usize, Span, f64, f64)> {
        self.steps.iter().take(count).enumerate().map(move |(number, step)| {
            let end = self.steps.get(number + 1).map_or(gap, |next| next.start.min(gap));
            let duration = end - step.start;
            (step.state, duration, step.energy(duration.as_secs_f64()), step.demotion)
        })
    }
}

/// The two options of a device after a packet.
#[derive(Clone, Debug)]
pub struct SleepTradeoff {
    /// With the network's timers.
    pub stay: TailEnergy,
    /// After fast dormancy.
    pub dormancy: TailEnergy,
    /// Joules of the demotion by fast dormancy.
    pub demotion: f64,
}

impl SleepTradeoff {
    pub fn of(profile: &Profile) -> Self {
        Self {
            stay: TailEnergy::from_state(profile, 0),
            dormancy: TailEnergy::from_state(profile, profile.dormant),
            demotion: profile.states[profile.dormant].demotion.as_joules(),
        }
    }

    /// Energy of fast dormancy and the promotion after it: `E_switch`.
    pub fn switch_energy(&self) -> Energy {
        Energy::joules(self.demotion + self.dormancy.promotion(Span::ZERO))
    }

    /// Upper bound in joules of a gap up to the release by the network, including promotions.
    pub fn max_joules(&self) -> f64 {
        let promotions: f64 = self.stay.steps.iter().map(|step| step.promotion).sum();
        self.stay.energy(self.stay.idle_after()) + promotions
    }

    /// Joules of a gap that a packet ends, with fast dormancy after `wait`. There is no fast
    /// dormancy if the packet arrives at or before `wait`, or if the network releases the connection
    /// before.
    pub fn cost(&self, gap: Span, wait: Span) -> f64 {
        match wait < gap && wait < self.stay.idle_after() {
            true => self.stay.energy(wait) + self.demotion + self.dormancy.cost(gap - wait),
            false => self.stay.cost(gap),
        }
    }

    /// Length of a gap above which immediate fast dormancy saves energy: `t_threshold`, the smallest
    /// upper bound of the gaps for which it does not. [`NEVER`] if it never saves energy.
    ///
    /// Both costs are defined piecewise; within a piece, bisection finds the change of their
    /// difference to positive.
    pub fn threshold(&self) -> Span {
        const STEP: Span = Span::from_nanos(1);
        let saves = |gap: Span| self.stay.cost(gap) > self.cost(gap, Span::ZERO);
        // After the last state of both is reached, the difference stays the same.
        let last = |tail: &TailEnergy| tail.steps.last().map_or(Span::ZERO, |step| step.start);
        let end = last(&self.stay).max(last(&self.dormancy)) * 2 + Span::from_secs(1);
        let mut edges: Vec<Span> = vec![Span::ZERO, end];
        edges.extend(self.stay.steps.iter().chain(&self.dormancy.steps).map(|step| step.start));
        edges.sort();
        edges.dedup();
        for pair in edges.windows(2) {
            let (mut low, mut high) = (pair[0], pair[1]);
            if !saves(high) {
                // The smallest gap that saves energy can be the one just above an edge.
                if saves(high + STEP) {
                    return high;
                }
                continue;
            }
            while low + STEP < high {
                let middle = low + Span::from_nanos((high - low).as_nanos() / 2);
                match saves(middle) {
                    true => high = middle,
                    false => low = middle,
                }
            }
            return low;
        }
        NEVER
    }
}

#[cfg(test)]
mod tests;
