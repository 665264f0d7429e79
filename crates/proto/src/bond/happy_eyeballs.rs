//! Connection to a host with several addresses: the next attempt starts before the previous one has
//! ended (Happy Eyeballs, RFC 8305 §5).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use manyways_unit::{Span, Time};

/// Connection attempt delay (recommended value of RFC 8305 §5).
pub const CONNECTION_ATTEMPT_DELAY: Span = Span::from_millis(250);

/// Timing of the attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Connection attempt delay. `None` to try one address after the other.
    pub delay: Option<Span>,
    /// Timeout of one attempt. `None` for no timeout.
    pub attempt_timeout: Option<Span>,
    /// Timeout of all attempts. `None` for no timeout.
    pub timeout: Option<Span>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The attempt to this address failed.
    Failed(SocketAddr),
}

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Connect(SocketAddr),
    /// Stop the attempt to this address.
    Abandon(SocketAddr),
    /// Every address has failed.
    Exhausted,
    /// The timeout of all attempts has expired.
    TimedOut,
}

/// Connection attempts to one host. They end when the shell has a connection, or with
/// [`Output::Exhausted`] or [`Output::TimedOut`].
#[derive(Clone, Debug)]
pub struct HappyEyeballs {
    config: Config,
    deadline: Option<Time>,
    untried: VecDeque<SocketAddr>,
    /// Running attempts and their deadlines.
    attempts: BTreeMap<SocketAddr, Option<Time>>,
    /// Time of the next attempt. `None` before the first one.
    next_at: Option<Time>,
    over: bool,
}

impl HappyEyeballs {
    /// Creates attempts that start at `now` with the first of `addresses`. Duplicates are ignored.
    pub fn new(now: Time, addresses: impl IntoIterator<Item = SocketAddr>, config: Config) -> Self {
        let mut untried = VecDeque::new();
        for address in addresses {
            if !untried.contains(&address) {
                untried.push_back(address);
            }
        }
        Self {
            config,
            deadline: config.timeout.map(|timeout| now + timeout),
            untried,
            attempts: BTreeMap::new(),
            next_at: None,
            over: false,
        }
    }

    /// Processes an event that happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input) {
        let Input::Failed(address) = input;
        if self.attempts.remove(&address).is_some() {
            self.next_at = Some(now);
        }
    }

    /// Returns the next action, or `None` if nothing is to be done at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.over {
            return None;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.over = true;
            return Some(Output::TimedOut);
        }
        let late = |until: &Option<Time>| until.is_some_and(|until| until <= now);
        let late = self.attempts.iter().find(|(_, until)| late(until)).map(|(at, _)| *at);
        if let Some(address) = late {
            self.handle(now, Input::Failed(address));
            return Some(Output::Abandon(address));
        }
        let is_due = match self.next_at {
            None => self.attempts.is_empty(),
            Some(at) => at <= now,
        };
        if let Some(address) = self.untried.pop_front_if(|_| is_due) {
            let until = self.config.attempt_timeout.map(|timeout| now + timeout);
            self.attempts.insert(address, until);
            self.next_at = self.config.delay.map(|delay| now + delay);
            return Some(Output::Connect(address));
        }
        if self.untried.is_empty() && self.attempts.is_empty() {
            self.over = true;
            return Some(Output::Exhausted);
        }
        None
    }

    /// Returns the time of the next [`HappyEyeballs::poll`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        let next = self.next_at.filter(|_| !self.untried.is_empty());
        let late = self.attempts.values().flatten().copied();
        next.into_iter().chain(self.deadline).chain(late).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RACE: Config = Config {
        delay: Some(CONNECTION_ATTEMPT_DELAY),
        attempt_timeout: None,
        timeout: Some(Span::from_secs(15)),
    };
    const IN_TURN: Config =
        Config { delay: None, attempt_timeout: Some(Span::from_secs(3)), timeout: None };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 443))
    }

    fn all(attempts: &mut HappyEyeballs, now: u64) -> Vec<Output> {
        std::iter::from_fn(|| attempts.poll(at(now))).collect()
    }

    #[test]
    fn the_next_address_is_tried_after_the_delay_or_when_one_has_failed() {
        let mut race = HappyEyeballs::new(at(0), [1, 2, 3].map(address), RACE);
        assert_eq!(all(&mut race, 0), [Output::Connect(address(1))]);
        assert_eq!(race.next_wakeup(), Some(at(250)));
        assert_eq!(all(&mut race, 249), []);
        assert_eq!(all(&mut race, 250), [Output::Connect(address(2))]);
        race.handle(at(300), Input::Failed(address(1)));
        assert_eq!(all(&mut race, 300), [Output::Connect(address(3))]);
        race.handle(at(400), Input::Failed(address(2)));
        assert_eq!(all(&mut race, 400), []);
        race.handle(at(500), Input::Failed(address(3)));
        assert_eq!(all(&mut race, 500), [Output::Exhausted]);
        assert_eq!((race.next_wakeup(), race.poll(at(60_000))), (None, None));
    }

    #[test]
    fn all_is_over_when_the_time_is() {
        let mut race = HappyEyeballs::new(at(0), [address(1)], RACE);
        assert_eq!(all(&mut race, 0), [Output::Connect(address(1))]);
        assert_eq!(race.next_wakeup(), Some(at(15_000)));
        assert_eq!(all(&mut race, 15_000), [Output::TimedOut]);
    }

    #[test]
    fn without_a_delay_one_address_follows_the_other() {
        let mut turns = HappyEyeballs::new(at(0), [1, 2].map(address), IN_TURN);
        assert_eq!(all(&mut turns, 0), [Output::Connect(address(1))]);
        assert_eq!(all(&mut turns, 2_999), []);
        let next = [Output::Abandon(address(1)), Output::Connect(address(2))];
        assert_eq!(all(&mut turns, 3_000), next);
        turns.handle(at(3_001), Input::Failed(address(1)));
        assert_eq!(all(&mut turns, 3_001), [], "that one was abandoned already");
        turns.handle(at(3_002), Input::Failed(address(2)));
        assert_eq!(all(&mut turns, 3_002), [Output::Exhausted]);
    }

    #[test]
    fn no_address_at_all_is_the_end() {
        assert_eq!(all(&mut HappyEyeballs::new(at(0), [], RACE), 0), [Output::Exhausted]);
    }

    proptest! {
        /// Each address is tried once, the end is reported once, and until then there is a wakeup
        /// in the future or a running attempt.
        #[test]
        fn every_address_is_tried_once_and_then_it_ends(
            count in 0_u8..6,
            delay in prop::option::of(1_u64..500),
            attempt_timeout in prop::option::of(1_u64..2_000),
            timeout in prop::option::of(1_u64..5_000),
            fails in prop::collection::vec((0_u64..700, 0_u8..6), 0..20),
        ) {
            let span = |millis: Option<u64>| millis.map(Span::from_millis);
            let config = Config {
                delay: span(delay),
                attempt_timeout: span(attempt_timeout),
                timeout: span(timeout),
            };
            let mut race = HappyEyeballs::new(at(0), (0..count).map(address), config);
            let (mut now, mut tried, mut under_way, mut ends) = (at(0), 0, Vec::new(), 0);
            let mut fails = fails.into_iter();
            loop {
                while let Some(output) = race.poll(now) {
                    prop_assert_eq!(ends, 0, "{:?} after the end", output);
                    match output {
                        Output::Connect(address) => {
                            tried += 1;
                            under_way.push(address);
                        }
                        Output::Abandon(address) => {
                            prop_assert!(under_way.contains(&address));
                            under_way.retain(|other| *other != address);
                        }
                        Output::Exhausted => {
                            prop_assert!(under_way.is_empty() && tried == count);
                            ends += 1;
                        }
                        Output::TimedOut => ends += 1,
                    }
                }
                prop_assert!(tried <= count);
                let wakeup = race.next_wakeup();
                prop_assert!(wakeup.is_none_or(|wakeup| wakeup > now));
                prop_assert!(ends == 1 || wakeup.is_some() || !under_way.is_empty());
                let event = fails.next().map(|(pause, last)| (now + Span::from_millis(pause), last));
                now = match (event, wakeup) {
                    (Some((then, _)), Some(wakeup)) if wakeup < then => wakeup,
                    (Some((then, last)), _) => {
                        race.handle(then, Input::Failed(address(last)));
                        under_way.retain(|other| *other != address(last));
                        then
                    }
                    (None, Some(wakeup)) => wakeup,
                    (None, None) => break,
                };
            }
        }
    }
}
