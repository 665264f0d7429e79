//! Delays new connections of some policy rules on request of a program that lets a radio sleep
//! meanwhile (MakeActive).
//!
//! One program at a time owns the gate, and closes or opens it. While the gate is closed, new
//! connections of the owner's rules wait. The gate is opened and the owner removed if the owner
//! disconnects, does not read its events, has a rule that no longer exists, or lets a connection
//! wait too long.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use manyways_unit::{Span, Time};

/// Limits of a [`DelayGate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Maximum delay that an owner can request.
    pub max_delay: Span,
    /// Maximum number of waiting connections; each one needs a file descriptor.
    pub max_delayed: usize,
}

impl Default for Config {
    fn default() -> Self {
        // One day, plus the time to release connections after it.
        Self { max_delay: Span::from_secs(86_400 + 60), max_delayed: 1_000 }
    }
}

/// Reason why a program cannot own the gate.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelayError {
    /// Another program owns the gate.
    #[error("another program already delays connections of this client")]
    InUse,
    #[error("the policy of this client has no rule named {name:?}")]
    UnknownRule {
        /// The requested rule.
        name: String,
        rules: Vec<String>,
    },
    #[error("it names no rule")]
    NoRuleNamed,
    /// Negative, infinite, not a number, or too long.
    #[error("{seconds} s is not for how long a connection can wait")]
    InvalidDelay { seconds: f64 },
}

impl DelayError {
    /// Returns a hint for the user. `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownRule { rules, .. } if rules.is_empty() => {
                Some("it has none: --policy of `manyways bond client` gives it some".to_owned())
            }
            Self::UnknownRule { rules, .. } => Some(format!("it has: {}", rules.join(", "))),
            _ => None,
        }
    }
}

/// Number of an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(u64);

/// Number of a waiting connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DelayedId(u64);

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The owner closes the gate: new connections wait. Initially the gate is open.
    Close(OwnerId),
    /// The owner opens the gate: all waiting connections are released.
    Open(OwnerId),
    /// The owner has disconnected.
    Left(OwnerId),
    /// The owner does not read its events.
    Unread(OwnerId),
    /// The application has closed a waiting connection.
    Abandoned(DelayedId),
}

/// An event for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection of one of the owner's rules starts.
    Started {
        /// Whether the connection waits.
        is_delayed: bool,
    },
    /// A waiting connection was released.
    Released {
        /// Time for which it waited.
        waited: Span,
    },
    /// The application has closed a waiting connection.
    Abandoned,
}

/// Reason why an owner loses the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// The policy no longer contains one of the owner's rules.
    RuleGone,
    /// The owner does not read its events.
    Unread,
    /// A connection has waited longer than the owner's maximum delay.
    Late,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RuleGone => "a rule that it names is gone",
            Self::Unread => "it does not read its events",
            Self::Late => "it does not answer",
        })
    }
}

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Event(OwnerId, Event),
    /// Let a connection continue.
    Release(DelayedId),
    /// Inform the owner that it has lost the gate.
    Revoke(OwnerId, LossReason),
}

/// Decides whether new connections wait; see the [module](self).
#[derive(Debug, Default)]
pub struct DelayGate {
    config: Config,
    owner: Option<Owner>,
    next_id: u64,
    delayed: BTreeMap<DelayedId, Delayed>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Owner {
    id: OwnerId,
    rules: BTreeSet<String>,
    max_delay: Span,
    is_closed: bool,
}

#[derive(Debug)]
struct Delayed {
    since: Time,
    until: Time,
}

impl DelayGate {
    /// Creates a gate without an owner.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Assigns the gate to a program for connections of `rules`. Each connection waits at most
    /// `max_delay_seconds`. `known` are the rules of the policy.
    ///
    /// # Errors
    /// If `rules` is empty or contains an unknown rule, the delay is out of range, or another
    /// program owns the gate.
    pub fn acquire(
        &mut self,
        rules: &[String],
        max_delay_seconds: f64,
        known: &[String],
    ) -> Result<OwnerId, DelayError> {
        if let Some(name) = rules.iter().find(|name| !known.contains(name)) {
            let (name, rules) = (name.clone(), known.to_vec());
            return Err(DelayError::UnknownRule { name, rules });
        }
        if rules.is_empty() {
            return Err(DelayError::NoRuleNamed);
        }
        let limit = self.config.max_delay.as_secs_f64();
        // Also false for NaN.
        if !(0.0..=limit).contains(&max_delay_seconds) {
            return Err(DelayError::InvalidDelay { seconds: max_delay_seconds });
        }
        if self.owner.is_some() {
            return Err(DelayError::InUse);
        }
        let id = OwnerId(self.take_id());
        self.owner = Some(Owner {
            id,
            rules: rules.iter().cloned().collect(),
            max_delay: Span::from_secs_f64(max_delay_seconds),
            is_closed: false,
        });
        Ok(id)
    }

    /// Returns whether a program owns the gate.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Close(id) => {
                if let Some(owner) = self.owner.as_mut().filter(|owner| owner.id == id) {
                    owner.is_closed = true;
                }
            }
            Input::Open(id) => {
                if let Some(owner) = self.owner.as_mut().filter(|owner| owner.id == id) {
                    owner.is_closed = false;
                    self.release_all(now);
                }
            }
            Input::Left(id) => drop(self.remove_owner(now, id)),
            Input::Unread(id) => self.revoke(now, id, LossReason::Unread),
            Input::Abandoned(id) => {
                if self.delayed.remove(&id).is_some() {
                    self.report(Event::Abandoned);
                }
            }
        }
    }

    /// Processes a new connection of a rule. Returns its number if it waits until
    /// [`Output::Release`].
    pub fn on_connection(&mut self, now: Time, rule: Option<&str>) -> Option<DelayedId> {
        let owner = self.owner.as_ref()?;
        rule.filter(|rule| owner.rules.contains(*rule))?;
        let is_delayed = owner.is_closed && self.delayed.len() < self.config.max_delayed;
        let until = now + owner.max_delay;
        self.report(Event::Started { is_delayed });
        is_delayed.then(|| {
            let id = DelayedId(self.take_id());
            self.delayed.insert(id, Delayed { since: now, until });
            id
        })
    }

    /// Updates the rules of the policy. An owner with other rules loses the gate.
    pub fn retain_rules(&mut self, now: Time, rules: &[String]) {
        let gone = self
            .owner
            .as_ref()
            .filter(|owner| owner.rules.iter().any(|rule| !rules.contains(rule)));
        if let Some(id) = gone.map(|owner| owner.id) {
            self.revoke(now, id, LossReason::RuleGone);
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.next_wakeup().is_some_and(|at| at <= now)
            && let Some(id) = self.owner.as_ref().map(|owner| owner.id)
        {
            self.revoke(now, id, LossReason::Late);
        }
        self.outputs.pop_front()
    }

    /// Returns the time of the next [`DelayGate::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        // All connections of an owner have the same maximum delay, so the oldest is due first.
        self.delayed.first_key_value().map(|(_, delayed)| delayed.until)
    }

    fn revoke(&mut self, now: Time, id: OwnerId, reason: LossReason) {
        if self.remove_owner(now, id) {
            self.outputs.push_back(Output::Revoke(id, reason));
        }
    }

    /// Removes the owner if it has this number, and releases all waiting connections.
    fn remove_owner(&mut self, now: Time, id: OwnerId) -> bool {
        let owns = self.owner.as_ref().is_some_and(|owner| owner.id == id);
        if owns {
            self.release_all(now);
            self.owner = None;
        }
        owns
    }

    fn release_all(&mut self, now: Time) {
        for (id, delayed) in std::mem::take(&mut self.delayed) {
            self.outputs.push_back(Output::Release(id));
            self.report(Event::Released { waited: now.since(delayed.since) });
        }
    }

    fn report(&mut self, event: Event) {
        let owner = self.owner.as_ref();
        self.outputs.extend(owner.map(|owner| Output::Event(owner.id, event)));
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn names(rules: &[&str]) -> Vec<String> {
        rules.iter().map(|rule| (*rule).to_owned()).collect()
    }

    /// A closed gate for connections of the rule `bulk`.
    fn closed(max_delay_seconds: f64) -> (DelayGate, OwnerId) {
        let mut gate = DelayGate::default();
        let bulk = names(&["bulk"]);
        let owner = gate.acquire(&bulk, max_delay_seconds, &bulk).unwrap();
        gate.handle(at(0), Input::Close(owner));
        (gate, owner)
    }

    fn all(gate: &mut DelayGate, millis: u64) -> Vec<Output> {
        std::iter::from_fn(|| gate.poll(at(millis))).collect()
    }

    #[test]
    fn connections_of_its_rules_wait_while_it_is_closed() {
        let mut gate = DelayGate::default();
        assert_eq!(gate.on_connection(at(0), Some("bulk")), None, "nobody owns it");
        let owner = gate.acquire(&names(&["bulk"]), 60.0, &names(&["bulk", "calls"])).unwrap();
        let started = |is_delayed| Output::Event(owner, Event::Started { is_delayed });
        assert_eq!(gate.on_connection(at(0), Some("bulk")), None, "it is open at first");
        assert_eq!(all(&mut gate, 0), [started(false)]);
        gate.handle(at(1), Input::Close(owner));
        assert_eq!(gate.on_connection(at(1), Some("calls")), None);
        assert_eq!(gate.on_connection(at(1), None), None);
        let waiting = [2, 3].map(|now| gate.on_connection(at(now), Some("bulk")).unwrap());
        assert_eq!(all(&mut gate, 3), [started(true), started(true)]);
        gate.handle(at(10), Input::Open(owner));
        gate.handle(at(10), Input::Close(owner));
        let released = |waited| Event::Released { waited: Span::from_millis(waited) };
        assert_eq!(
            all(&mut gate, 10),
            [
                Output::Release(waiting[0]),
                Output::Event(owner, released(8)),
                Output::Release(waiting[1]),
                Output::Event(owner, released(7)),
            ],
            "closed again before anything could be seen of it"
        );
        assert!(gate.on_connection(at(11), Some("bulk")).is_some());
    }

    #[test]
    fn no_connection_waits_for_longer_than_the_owner_said() {
        let (mut gate, owner) = closed(2.5);
        let first = gate.on_connection(at(100), Some("bulk")).unwrap();
        let second = gate.on_connection(at(900), Some("bulk")).unwrap();
        all(&mut gate, 900);
        assert_eq!(gate.next_wakeup(), Some(at(2_600)));
        assert_eq!(all(&mut gate, 2_599), []);
        let outputs = all(&mut gate, 2_600);
        for wanted in [
            Output::Release(first),
            Output::Release(second),
            Output::Revoke(owner, LossReason::Late),
        ] {
            assert!(outputs.contains(&wanted), "{outputs:?}");
        }
        assert_eq!(gate.on_connection(at(2_601), Some("bulk")), None);
        assert!(!gate.is_owned() && gate.next_wakeup().is_none());
    }

    #[test]
    fn an_owner_that_leaves_or_does_not_read_delays_nothing() {
        for (input, revoked) in
            [(Input::Left as fn(OwnerId) -> Input, None), (Input::Unread, Some(LossReason::Unread))]
        {
            let (mut gate, owner) = closed(60.0);
            let bulk = names(&["bulk"]);
            let waiting = gate.on_connection(at(0), Some("bulk")).unwrap();
            assert_eq!(gate.acquire(&bulk, 1.0, &bulk), Err(DelayError::InUse));
            gate.handle(at(5), input(owner));
            let outputs = all(&mut gate, 5);
            assert!(outputs.contains(&Output::Release(waiting)), "{outputs:?}");
            let revoke = revoked.map(|reason| Output::Revoke(owner, reason));
            assert!(revoke.is_none_or(|revoke| outputs.contains(&revoke)), "{outputs:?}");
            // The next owner does not lose the gate with the first one.
            let next = gate.acquire(&bulk, 1.0, &bulk).unwrap();
            gate.handle(at(6), input(owner));
            gate.handle(at(6), Input::Open(owner));
            assert!(gate.is_owned());
            gate.handle(at(6), Input::Left(next));
            assert!(!gate.is_owned());
        }
    }

    #[test]
    fn a_rule_that_is_gone_delays_nothing() {
        let (mut gate, owner) = closed(60.0);
        let waiting = gate.on_connection(at(0), Some("bulk")).unwrap();
        all(&mut gate, 0);
        gate.retain_rules(at(1), &names(&["calls", "bulk"]));
        assert_eq!(all(&mut gate, 1), []);
        gate.retain_rules(at(2), &names(&["calls"]));
        let outputs = all(&mut gate, 2);
        assert_eq!(outputs.first(), Some(&Output::Release(waiting)));
        assert_eq!(outputs.last(), Some(&Output::Revoke(owner, LossReason::RuleGone)));
    }

    #[test]
    fn an_application_may_give_up() {
        let (mut gate, owner) = closed(60.0);
        let waiting = gate.on_connection(at(0), Some("bulk")).unwrap();
        all(&mut gate, 0);
        gate.handle(at(3), Input::Abandoned(waiting));
        assert_eq!(all(&mut gate, 3), [Output::Event(owner, Event::Abandoned)]);
        gate.handle(at(4), Input::Abandoned(waiting));
        assert_eq!(all(&mut gate, 4), []);
    }

    #[test]
    fn only_so_many_wait() {
        let (mut gate, _) = closed(60.0);
        let waiting: Vec<DelayedId> =
            (0..1_000).map(|_| gate.on_connection(at(0), Some("bulk")).unwrap()).collect();
        assert_eq!(gate.on_connection(at(0), Some("bulk")), None);
        gate.handle(at(1), Input::Abandoned(waiting[5]));
        assert!(gate.on_connection(at(1), Some("bulk")).is_some());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bulk = names(&["bulk"]);
        let fault = |rules: &[&str], seconds| {
            DelayGate::default().acquire(&names(rules), seconds, &bulk).unwrap_err()
        };
        assert_eq!(fault(&[], 1.0), DelayError::NoRuleNamed);
        assert!(matches!(fault(&["calls"], 1.0), DelayError::UnknownRule { .. }));
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 90_000.0, 1e300] {
            let error = fault(&["bulk"], seconds);
            assert!(matches!(error, DelayError::InvalidDelay { .. }), "{seconds}");
        }
    }

    proptest! {
        /// For any behaviour of an owner, each waiting connection is released once or abandoned, in
        /// time.
        #[test]
        fn every_connection_is_released_in_time(
            events in prop::collection::vec((0_u64..2_000, 0_u8..6, 0_usize..8), 1..100),
        ) {
            let (mut gate, mut owner) = closed(2.5);
            let bulk = names(&["bulk"]);
            let mut waiting: BTreeMap<DelayedId, Time> = BTreeMap::new();
            let mut now = at(0);
            for (pause, event, which) in events {
                let then = now + Span::from_millis(pause);
                loop {
                    while let Some(output) = gate.poll(now) {
                        if let Output::Release(id) = output {
                            let since = waiting.remove(&id);
                            let waited = since.map(|at| now.since(at));
                            prop_assert!(waited <= Some(Span::from_millis(2_500)));
                            prop_assert!(waited.is_some());
                        }
                    }
                    prop_assert!(gate.next_wakeup().is_none_or(|at| at > now));
                    prop_assert!(gate.is_owned() || waiting.is_empty());
                    match gate.next_wakeup().filter(|at| *at <= then) {
                        Some(wakeup) => now = wakeup,
                        None => break,
                    }
                }
                now = then;
                match event {
                    0 | 1 => {
                        if let Some(id) = gate.on_connection(now, Some("bulk")) {
                            waiting.insert(id, now);
                        }
                    }
                    2 => gate.handle(now, Input::Close(owner)),
                    3 => gate.handle(now, Input::Open(owner)),
                    4 => {
                        gate.handle(now, Input::Left(owner));
                        owner = gate.acquire(&bulk, 2.5, &bulk).unwrap();
                    }
                    _ => {
                        if let Some(id) = waiting.keys().nth(which).copied() {
                            waiting.remove(&id);
                            gate.handle(now, Input::Abandoned(id));
                        }
                    }
                }
            }
        }
    }
}
