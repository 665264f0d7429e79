//! A radio that goes through its states as time passes, and what packets wait for it.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::profile::{Listens, State};
use super::{Direction, Profile};

/// The radio resource control machine of a [`Profile`], in whatever time it is told.
///
/// In the first state a packet passes at once. In a later one it waits for that state's promotion
/// delay; what comes meanwhile waits with it, and all of it passes in the order in which it came. A
/// packet towards the device finds it asleep where the state listens only now and then: it waits for
/// the next time that the device listens, which is the state's beginning and every cycle from there,
/// and for the promotion after that. A packet from the device waits for no listening, and brings
/// along what does. While a packet waits no timer runs.
///
/// The timers are those of [`Decay`](super::Decay), from the last packet that passed: a state holds
/// up to and including the end of its timer. Time must not go back: an earlier `now` counts as the
/// latest one seen.
///
/// Where this is simpler than radios are: a promotion takes as long as the profile says, every time
/// and to the nanosecond; a demotion takes no time; and the device listens at once where it enters a
/// state that listens.
#[derive(Clone, Debug)]
pub struct Machine {
    states: Vec<State>,
    dormant: usize,
    now: Time,
    /// The place of the state that it is in.
    state: usize,
    /// From when on; in the first state, since the last packet.
    since: Time,
    /// When what waits can pass.
    opens: Option<Time>,
    changes: VecDeque<Change>,
}

/// A state was left for another one, which are told by their places in the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// When: the end of the timer, the moment of the device's wish, or the end of the promotion.
    pub at: Time,
    /// The state before it.
    pub left: usize,
    /// The state behind it; the first one after a promotion.
    pub entered: usize,
}

impl Machine {
    /// Nothing has passed yet: it is in the last state, since [`Time::ZERO`]. The profile has at
    /// least two states, as every profile that was read.
    pub fn new(profile: &Profile) -> Self {
        Self {
            states: profile.states.clone(),
            dormant: profile.dormant,
            now: Time::ZERO,
            state: profile.states.len().saturating_sub(1),
            since: Time::ZERO,
            opens: None,
            changes: VecDeque::new(),
        }
    }

    /// A packet comes, and passes at this moment, which is `now` or later.
    ///
    /// It is the latest one: where the packet waits until the device listens, one that the device
    /// sends itself before that can make it earlier. [`Machine::opens`] tells the present one.
    pub fn pass(&mut self, now: Time, direction: Direction) -> Time {
        self.advance(now);
        let now = self.now;
        if self.is_open() {
            self.since = now;
            return now;
        }
        let state = &self.states[self.state];
        let heard = match (direction, &state.listens) {
            (Direction::Down, Some(listens)) => next_time(listens, self.since, now),
            _ => now,
        };
        let opens = heard + state.promotion_delay;
        let opens = self.opens.map_or(opens, |before| before.min(opens));
        self.opens = Some(opens);
        self.advance(now);
        opens
    }

    /// Data passes until then (a long one takes its time): in the first state, the timers start
    /// there. In any other state nothing can pass, and it does nothing.
    pub fn busy(&mut self, until: Time) {
        // Not by way of the timers, which would not have run.
        if self.is_open() {
            self.since = self.since.max(until);
        }
    }

    /// When what waits can pass; none where nothing waits.
    pub fn opens(&self) -> Option<Time> {
        self.opens
    }

    /// The device wants to be dormant. Says whether it is then: not where the network has let go of
    /// it already, nor where packets wait.
    pub fn sleep(&mut self, now: Time) -> bool {
        self.advance(now);
        let can = self.opens.is_none() && !self.states[self.state].is_released;
        if can {
            self.enter(self.now, self.dormant);
        }
        can
    }

    /// The place of the state that it is in. Until a promotion has ended it is the one before.
    pub fn state(&mut self, now: Time) -> usize {
        self.advance(now);
        self.state
    }

    /// When to call [`Machine::poll`] to learn of the next change.
    pub fn next_wakeup(&self) -> Option<Time> {
        if let Some(change) = self.changes.front() {
            return Some(change.at);
        }
        // A state holds at the very end of its timer.
        let behind = |end: Time| end + Span::from_nanos(1);
        self.opens.or_else(|| self.end().map(behind))
    }

    /// The next change up to `now`, in the order of time. Call it until it returns none.
    pub fn poll(&mut self, now: Time) -> Option<Change> {
        self.advance(now);
        self.changes.pop_front()
    }

    fn is_open(&self) -> bool {
        self.state == 0 && self.opens.is_none()
    }

    /// The end of the timer, where one runs.
    fn end(&self) -> Option<Time> {
        let timer = self.states[self.state].timer?;
        (self.state + 1 < self.states.len()).then(|| self.since + timer)
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        loop {
            match (self.opens, self.end()) {
                (Some(opens), _) if opens <= self.now => {
                    self.opens = None;
                    self.enter(opens, 0);
                }
                (None, Some(end)) if end < self.now => self.enter(end, self.state + 1),
                _ => return,
            }
        }
    }

    fn enter(&mut self, at: Time, state: usize) {
        self.changes.push_back(Change { at, left: self.state, entered: state });
        self.state = state;
        self.since = at;
    }
}

/// When a state that began at `since` listens, from `now` on.
fn next_time(listens: &Listens, since: Time, now: Time) -> Time {
    let cycle = listens.cycle.as_nanos();
    let Some(within) = now.since(since).as_nanos().checked_rem(cycle) else { return now };
    match within < listens.lasts.as_nanos() {
        true => now,
        false => now + Span::from_nanos(cycle - within),
    }
}

#[cfg(test)]
mod tests;
