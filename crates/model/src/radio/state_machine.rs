//! Emulation of a radio's RRC states, and of the delay that they cause.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::profile::{Drx, State};
use super::{Direction, Profile};

/// The RRC state machine of a [`Profile`], in virtual time.
///
/// In the first state a packet passes at once. In a later state a packet waits for the promotion
/// delay of that state; packets that arrive meanwhile wait too, and all pass in order of arrival. A
/// packet to the device waits in a state with DRX or paging for the next on duration. The on
/// durations start when the state is entered and after each cycle from there. The promotion
/// follows. A packet from the device does not wait for an on duration and ends the wait of packets
/// to the device. No timer runs while a packet waits.
///
/// The timers are those of [`TailEnergy`](super::TailEnergy), from the last packet that passed: a
/// state lasts up to and including the end of its timer. A `now` before the latest one is replaced
/// by the latest one.
///
/// Simplifications: a promotion takes exactly the delay of the profile, a demotion takes no time,
/// and a state with DRX starts with an on duration.
#[derive(Clone, Debug)]
pub struct StateMachine {
    states: Vec<State>,
    dormant: usize,
    now: Time,
    /// Index of the current state.
    state: usize,
    /// Start of the current state; in the first state, time of the last packet.
    since: Time,
    /// End of the promotion for which packets wait.
    promotion_end: Option<Time>,
    changes: VecDeque<StateChange>,
}

/// A change of the state; the fields are indices in the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateChange {
    /// End of the timer, time of [`StateMachine::request_dormancy`], or end of the promotion.
    pub at: Time,
    pub previous: usize,
    /// The new state; 0 after a promotion.
    pub state: usize,
}

impl StateMachine {
    /// Creates a machine in the last state, since [`Time::ZERO`]. The profile has at least two
    /// states, as every parsed profile does.
    pub fn new(profile: &Profile) -> Self {
        Self {
            states: profile.states.clone(),
            dormant: profile.dormant,
            now: Time::ZERO,
            state: profile.states.len().saturating_sub(1),
            since: Time::ZERO,
            promotion_end: None,
            changes: VecDeque::new(),
        }
    }

    /// Adds a packet and returns the time at which it passes, `now` or later.
    ///
    /// The returned time is an upper bound: while the packet waits for an on duration, a packet
    /// from the device can start the promotion earlier. [`StateMachine::promotion_end`] returns the
    /// current time.
    pub fn pass(&mut self, now: Time, direction: Direction) -> Time {
        self.advance(now);
        let now = self.now;
        if self.is_connected() {
            self.since = now;
            return now;
        }
        let state = &self.states[self.state];
        let heard = match (direction, &state.drx) {
            (Direction::Down, Some(listens)) => next_on_duration(listens, self.since, now),
            _ => now,
        };
        let opens = heard + state.promotion_delay;
        let opens = self.promotion_end.map_or(opens, |before| before.min(opens));
        self.promotion_end = Some(opens);
        self.advance(now);
        opens
    }

    /// Extends a transfer to `until`: the timers of the first state start there. No effect in
    /// another state.
    pub fn extend_transfer(&mut self, until: Time) {
        // [`StateMachine::advance`] would let the timers run during the transfer.
        if self.is_connected() {
            self.since = self.since.max(until);
        }
    }

    /// Time at which the waiting packets pass; `None` if none waits.
    pub fn promotion_end(&self) -> Option<Time> {
        self.promotion_end
    }

    /// Fast dormancy. Returns `false` if the network has released the connection already or if
    /// packets wait.
    pub fn request_dormancy(&mut self, now: Time) -> bool {
        self.advance(now);
        let can = self.promotion_end.is_none() && !self.states[self.state].is_idle;
        if can {
            self.enter(self.now, self.dormant);
        }
        can
    }

    /// Index of the current state. During a promotion this is the previous state.
    pub fn state(&mut self, now: Time) -> usize {
        self.advance(now);
        self.state
    }

    /// Time of the next call of [`StateMachine::poll`].
    pub fn next_wakeup(&self) -> Option<Time> {
        if let Some(change) = self.changes.front() {
            return Some(change.at);
        }
        // A state lasts up to and including the end of its timer.
        let behind = |end: Time| end + Span::from_nanos(1);
        self.promotion_end.or_else(|| self.timer_end().map(behind))
    }

    /// The next change up to `now`, in order of time; to be called until it returns `None`.
    pub fn poll(&mut self, now: Time) -> Option<StateChange> {
        self.advance(now);
        self.changes.pop_front()
    }

    fn is_connected(&self) -> bool {
        self.state == 0 && self.promotion_end.is_none()
    }

    /// `None` if the state has no timer or is the last one.
    fn timer_end(&self) -> Option<Time> {
        let timer = self.states[self.state].timer?;
        (self.state + 1 < self.states.len()).then(|| self.since + timer)
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        loop {
            match (self.promotion_end, self.timer_end()) {
                (Some(opens), _) if opens <= self.now => {
                    self.promotion_end = None;
                    self.enter(opens, 0);
                }
                (None, Some(end)) if end < self.now => self.enter(end, self.state + 1),
                _ => return,
            }
        }
    }

    fn enter(&mut self, at: Time, state: usize) {
        self.changes.push_back(StateChange { at, previous: self.state, state });
        self.state = state;
        self.since = at;
    }
}

/// Next time from `now` on within an on duration, for a state entered at `since`.
fn next_on_duration(listens: &Drx, since: Time, now: Time) -> Time {
    let cycle = listens.cycle.as_nanos();
    let Some(within) = now.since(since).as_nanos().checked_rem(cycle) else { return now };
    match within < listens.on_duration.as_nanos() {
        true => now,
        false => now + Span::from_nanos(cycle - within),
    }
}

#[cfg(test)]
mod tests;
