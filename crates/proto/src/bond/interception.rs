//! When to renew, change, repair or expire the kernel rules that redirect traffic to a client.
//!
//! The rules expire unless they are renewed, so that applications keep their connectivity after a
//! crash of the client. In each turn, the shell observes the host ([`Output::Observe`]).
//! [`RuleKeeper`] then returns actions one after the other.

use manyways_unit::{Prefix, Span, Time};

/// Address families over which a gateway has connectivity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressFamilies {
    pub v4: bool,
    pub v6: bool,
}

/// Timing of a [`RuleKeeper`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Interval between renewals.
    pub renew_interval: Span,
    /// Time after which rules expire without renewal.
    pub rule_lifetime: Span,
    /// Turns without a path to the gateway after which the rules are not renewed.
    pub max_rounds_without_path: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            renew_interval: Span::from_secs(2),
            rule_lifetime: Span::from_secs(8),
            max_rounds_without_path: 4,
        }
    }
}

/// Inputs of the rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleState {
    /// Address families of the gateway. While `None`, all intercepted traffic is refused.
    pub families: Option<AddressFamilies>,
    /// Destinations that are not intercepted.
    pub excluded: Vec<Prefix>,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The gateway has reported its address families for the first time.
    FamiliesKnown,
    /// Response to [`Output::Observe`].
    Observed {
        /// Address families of the gateway. `None` if not reported.
        families: Option<AddressFamilies>,
        /// Destinations that are not intercepted. `None` if they cannot be determined.
        excluded: Option<Vec<Prefix>>,
        /// Whether a path to the gateway works.
        is_connected: bool,
    },
    /// The last action succeeded.
    Done,
    /// The repair has restored a rule.
    Repaired,
    /// The last action failed.
    Failed,
}

/// An action for the shell. The shell responds to each one with an [`Input`] before the next poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Observe the host.
    Observe,
    /// Replace the rules.
    Replace(RuleState),
    /// Change the excluded destinations.
    SetExcluded(RuleState),
    /// Restore rules that another program has changed.
    Repair,
    /// Renew the rules.
    Renew,
    /// Treat the rules like those of a stopped client.
    Pause {
        /// Whether the rules were renewed in the previous turn.
        is_first: bool,
    },
}

/// Maintains installed rules.
#[derive(Debug)]
pub struct RuleKeeper {
    config: Config,
    state: RuleState,
    round_at: Time,
    step: Step,
    is_connected: bool,
    rounds_without_path: u32,
}

/// Next or running step of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Idle until the next turn.
    Idle,
    Observing,
    Change(Output),
    Changing(RuleState),
    Repair,
    Repairing,
    /// The field is whether the repair has restored a rule.
    Finish(bool),
    Finishing,
}

impl RuleKeeper {
    /// Creates a keeper of rules that were installed at `now` with this state.
    pub fn new(now: Time, config: Config, state: RuleState) -> Self {
        Self {
            config,
            state,
            round_at: now + config.renew_interval,
            step: Step::Idle,
            is_connected: true,
            rounds_without_path: 0,
        }
    }

    /// Returns the state of the installed rules.
    pub fn state(&self) -> &RuleState {
        &self.state
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.step = match (std::mem::replace(&mut self.step, Step::Idle), input) {
            (step, Input::FamiliesKnown) => {
                self.round_at = self.round_at.min(now);
                step
            }
            (Step::Observing, Input::Observed { families, excluded, is_connected }) => {
                self.is_connected = is_connected;
                let next = RuleState {
                    families: families.or(self.state.families),
                    excluded: excluded.unwrap_or_else(|| self.state.excluded.clone()),
                };
                if next.families != self.state.families {
                    Step::Change(Output::Replace(next))
                } else if next.excluded != self.state.excluded {
                    Step::Change(Output::SetExcluded(next))
                } else {
                    Step::Repair
                }
            }
            (Step::Changing(next), input) => {
                if input == Input::Done {
                    self.state = next;
                }
                Step::Repair
            }
            (Step::Repairing, input) => Step::Finish(input == Input::Repaired),
            (Step::Finishing, _) => Step::Idle,
            (step, _) => step,
        };
    }

    /// Returns the next action, or `None` if an action is running or nothing is to be done at
    /// `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        let (step, output) = match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle if self.round_at <= now => {
                self.round_at = now + self.config.renew_interval;
                (Step::Observing, Some(Output::Observe))
            }
            Step::Change(output) => {
                let next = match &output {
                    Output::Replace(next) | Output::SetExcluded(next) => next.clone(),
                    _ => self.state.clone(),
                };
                (Step::Changing(next), Some(output))
            }
            Step::Repair => (Step::Repairing, Some(Output::Repair)),
            Step::Finish(was_repaired) => match self.finish_round(was_repaired) {
                Some(output) => (Step::Finishing, Some(output)),
                None => (Step::Idle, None),
            },
            step => (step, None),
        };
        self.step = step;
        output
    }

    fn finish_round(&mut self, was_repaired: bool) -> Option<Output> {
        let max = self.config.max_rounds_without_path;
        self.rounds_without_path = match self.is_connected {
            true => 0,
            false => self.rounds_without_path.saturating_add(1),
        };
        if self.rounds_without_path < max {
            return Some(Output::Renew);
        }
        let is_first = self.rounds_without_path == max;
        // A repair also renews the restored rules.
        (is_first || was_repaired).then_some(Output::Pause { is_first })
    }

    /// Returns the time of the next [`RuleKeeper::poll`] if no input arrives before. `None` while
    /// an action is running.
    pub fn next_wakeup(&self) -> Option<Time> {
        (self.step == Step::Idle).then_some(self.round_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: AddressFamilies = AddressFamilies { v4: true, v6: true };

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn state(families: Option<AddressFamilies>, excluded: &[&str]) -> RuleState {
        let excluded = excluded.iter().map(|prefix| prefix.parse().unwrap()).collect();
        RuleState { families, excluded }
    }

    struct Simulation {
        keeper: RuleKeeper,
        now: u64,
        host: RuleState,
        is_connected: bool,
        /// Another program changes the rules in each turn.
        is_disturbed: bool,
        fails: bool,
    }

    impl Simulation {
        fn new() -> Self {
            let host = state(Some(BOTH), &["10.0.0.0/8"]);
            let keeper = RuleKeeper::new(at(0), Config::default(), host.clone());
            let (is_connected, is_disturbed, fails) = (true, false, false);
            Self { keeper, now: 0, host, is_connected, is_disturbed, fails }
        }

        /// The actions until the end of the next turn.
        fn round(&mut self) -> Vec<Output> {
            let wakeup = self.keeper.next_wakeup().unwrap();
            assert!(wakeup > at(self.now));
            self.now = wakeup.as_nanos() / 1_000_000_000;
            self.work()
        }

        fn work(&mut self) -> Vec<Output> {
            let mut outputs = Vec::new();
            while let Some(output) = self.keeper.poll(at(self.now)) {
                assert_eq!(self.keeper.poll(at(self.now)), None, "one after the other");
                let input = match &output {
                    Output::Observe => Input::Observed {
                        families: self.host.families,
                        excluded: Some(self.host.excluded.clone()),
                        is_connected: self.is_connected,
                    },
                    Output::Repair if self.is_disturbed => Input::Repaired,
                    _ if self.fails => Input::Failed,
                    _ => Input::Done,
                };
                outputs.push(output);
                self.keeper.handle(at(self.now), input);
            }
            outputs
        }
    }

    const QUIET: [Output; 3] = [Output::Observe, Output::Repair, Output::Renew];

    #[test]
    fn rules_are_renewed_every_two_seconds_while_a_path_leads_to_the_gateway() {
        let mut simulation = Simulation::new();
        for turn in 1..=10 {
            assert_eq!(simulation.round(), QUIET);
            assert_eq!(simulation.now, 2 * turn);
        }
    }

    #[test]
    fn without_a_path_they_expire_after_some_turns_and_return_with_one() {
        let mut simulation = Simulation::new();
        simulation.is_connected = false;
        for _ in 0..3 {
            assert_eq!(simulation.round(), QUIET);
        }
        assert_eq!(simulation.round()[2..], [Output::Pause { is_first: true }]);
        assert_eq!(simulation.round(), QUIET[..2]);
        simulation.is_disturbed = true;
        assert_eq!(
            simulation.round()[2..],
            [Output::Pause { is_first: false }],
            "they were put back"
        );
        simulation.is_disturbed = false;
        simulation.is_connected = true;
        assert_eq!(simulation.round(), QUIET);
        simulation.is_connected = false;
        assert_eq!(simulation.round(), QUIET, "it counts from the beginning");
    }

    #[test]
    fn what_changes_is_changed_and_tried_again_where_that_failed() {
        let mut simulation = Simulation::new();
        simulation.host = state(Some(AddressFamilies { v4: true, v6: false }), &["10.0.0.0/8"]);
        simulation.fails = true;
        for _ in 0..2 {
            assert_eq!(simulation.round()[1], Output::Replace(simulation.host.clone()));
            assert_ne!(*simulation.keeper.state(), simulation.host);
        }
        simulation.fails = false;
        assert_eq!(simulation.round().len(), 4);
        assert_eq!(*simulation.keeper.state(), simulation.host);
        assert_eq!(simulation.round(), QUIET);
        simulation.host.excluded = state(None, &["172.16.0.0/12"]).excluded;
        assert_eq!(simulation.round()[1], Output::SetExcluded(simulation.host.clone()));
        // A gateway that no longer reports its families does not change them.
        simulation.host.families = None;
        assert_eq!(simulation.round(), QUIET);
    }

    #[test]
    fn the_first_answer_of_the_gateway_begins_a_turn_at_once() {
        let mut simulation = Simulation::new();
        simulation.keeper = RuleKeeper::new(at(0), Config::default(), state(None, &["10.0.0.0/8"]));
        simulation.now = 1;
        assert_eq!(simulation.work(), []);
        simulation.keeper.handle(at(1), Input::FamiliesKnown);
        assert_eq!(simulation.work()[1], Output::Replace(simulation.host.clone()));
        assert_eq!(simulation.keeper.next_wakeup(), Some(at(3)));
    }
}
