//! Compares the runs of a policy with the network's timers and the oracle.

use manyways_unit::Span;

use super::simulate::{Outcome, SwitchAccuracy};

/// Sums over the traces of a run, beside the network's timers and the oracle on the same traces.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Sum {
    pub joules: f64,
    pub status_quo: f64,
    pub status_quo_tail: f64,
    pub oracle: f64,
    pub switches: u64,
    pub status_quo_switches: u64,
    pub oracle_switches: u64,
    pub decisions: SwitchAccuracy,
    pub sleeps: u64,
    pub waits: Span,
    pub sessions: u64,
    pub delayed: u64,
    pub delays: Span,
}

/// Ratios are not finite if there is nothing to divide by.
impl Sum {
    /// Adds the outcomes of one trace.
    pub fn add(&mut self, outcome: &Outcome, status_quo: &Outcome, oracle: &Outcome) {
        let account = &outcome.account;
        self.joules += account.total();
        self.status_quo += status_quo.account.total();
        self.status_quo_tail += status_quo.account.tail_energy();
        self.oracle += oracle.account.total();
        self.switches += account.promotion_count;
        self.status_quo_switches += status_quo.account.promotion_count;
        self.oracle_switches += oracle.account.promotion_count;
        let switches = &outcome.switches;
        self.decisions.true_switches += switches.true_switches;
        self.decisions.false_switches += switches.false_switches;
        self.decisions.true_stays += switches.true_stays;
        self.decisions.missed_switches += switches.missed_switches;
        self.sleeps += account.dormancies;
        self.waits += account.wait_time;
        self.sessions += outcome.delays.count;
        self.delayed += outcome.delays.delayed;
        self.delays += outcome.delays.sum;
    }

    /// Saved share of all energy under the network's timers.
    pub fn saved(&self) -> f64 {
        1.0 - self.joules / self.status_quo
    }

    /// Saved share of the energy without transfers.
    pub fn saved_of_tail(&self) -> f64 {
        (self.status_quo - self.joules) / self.status_quo_tail
    }

    /// Share of the oracle's saving.
    pub fn share_of_oracle(&self) -> f64 {
        (self.status_quo - self.joules) / (self.status_quo - self.oracle)
    }

    /// Ratio to the switches under the network's timers.
    pub fn switches(&self) -> f64 {
        self.switches as f64 / self.status_quo_switches as f64
    }

    /// Ratio to the switches of the oracle.
    pub fn switches_of_oracle(&self) -> f64 {
        self.switches as f64 / self.oracle_switches as f64
    }

    /// Saved joules per switch.
    pub fn saved_per_switch(&self) -> f64 {
        (self.status_quo - self.joules) / self.switches.max(1) as f64
    }

    /// N_FS / (N_FS + N_TN).
    pub fn false_switches(&self) -> f64 {
        self.decisions.false_rate().unwrap_or(f64::NAN)
    }

    /// N_MS / (N_MS + N_TP).
    pub fn missed_switches(&self) -> f64 {
        self.decisions.missed_rate().unwrap_or(f64::NAN)
    }

    /// Mean wait before a dormancy in seconds.
    pub fn wait(&self) -> f64 {
        self.waits.as_secs_f64() / self.sleeps as f64
    }

    /// Mean delay of delayed sessions in seconds.
    pub fn delay(&self) -> f64 {
        self.delays.as_secs_f64() / self.delayed as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::policy::StatusQuo;
    use crate::radio::simulate::{Decider, Simulation};
    use crate::radio::{Profile, profiles, workload};

    fn outcome(profile: &Profile, decides: Decider<'_>, seed: u64) -> Outcome {
        let mut run = Simulation::new(profile, decides, &|_| false);
        workload::mixed(seed, Span::from_secs(10_000)).for_each(|one| run.push(one));
        run.finish()
    }

    #[test]
    fn the_baselines_are_their_own_measure() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let (mut timers, mut best) = (Sum::default(), Sum::default());
        for seed in [1, 2] {
            let status_quo = outcome(&profile, Decider::Policy(&mut StatusQuo), seed);
            let oracle = outcome(&profile, Decider::Oracle, seed);
            timers.add(&status_quo, &status_quo, &oracle);
            best.add(&oracle, &status_quo, &oracle);
        }
        assert_eq!((timers.saved(), timers.share_of_oracle(), timers.switches()), (0.0, 0.0, 1.0));
        assert_eq!((best.share_of_oracle(), best.switches_of_oracle()), (1.0, 1.0));
        assert_eq!((best.false_switches(), best.missed_switches()), (0.0, 0.0));
        assert!(best.saved() > 0.1 && best.saved() < best.saved_of_tail());
        assert!(timers.missed_switches() > 0.0);
        assert!(Sum::default().saved().is_nan() && Sum::default().false_switches().is_nan());
    }
}
