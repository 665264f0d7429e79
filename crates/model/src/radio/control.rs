//! Runs a policy while packets pass.
//!
//! A [`Controller`] is told each packet and says when to send the radio to sleep. It keeps two
//! accounts, of what the radio takes that way and of what it would have taken with the network's timers
//! alone. With packets that are told at once and a [`poll`](Controller::poll) at each
//! [`next_wakeup`](Controller::next_wakeup) it does what a [`Simulation`](super::simulate::Simulation)
//! of the same packets does.
//!
//! Where its policy holds sessions back, who runs it tells it of those that can wait
//! ([`Controller::begins`]) and keeps a gate for them, which is shut while the radio is released
//! ([`Controller::gate`]). What waits there passes when the hold is over or something else has woken the
//! radio, and for a second after that the gate stays open: what has passed needs a moment until it is
//! seen.
//!
//! Where its decisions are followed, packets are not where they would have been without them: what the
//! device sends waits for the radio to come back, and so does all that follows from it. See
//! [`Controller::with_promotions`].

use manyways_unit::{Span, Time};

use super::meter::{Account, Meter};
use super::policy::{NEVER, Policy};
use super::{Direction, Packet, Profile};

/// What was let go has sent its first packet after this, or sends none.
const LET_GO: Span = Span::from_secs(1);

/// Decides when a radio sleeps, as it happens.
#[derive(Clone, Debug)]
pub struct Controller<P> {
    policy: P,
    meter: Meter,
    status_quo: Meter,
    burst_gap: f64,
    /// When the network lets go of the radio: seconds behind the last packet.
    released: f64,
    /// From one sleep to the next, at least.
    every: Span,
    earliest: Time,
    first: Time,
    /// How long a packet that is sent waits for the radio, by the state that it finds; empty where
    /// that is not looked at.
    delays: Vec<Span>,
    /// The last packet, when it was carried at the earliest, and the wait after it.
    last: Option<(Time, f64)>,
    asleep: Option<Asleep>,
    hold: Hold,
    /// How often what waited was let go.
    opened: u64,
    false_sleeps: u64,
    overtaken: u64,
}

/// What becomes of sessions that can wait while the radio is released.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Hold {
    /// None waits: the next one does.
    Next,
    /// Some wait until then.
    Until(Time),
    /// They were let go, and until then others pass as well.
    Passing(Time),
}

/// What is to become of sessions that can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gate {
    /// Those that begin now are to wait.
    pub is_shut: bool,
    /// How often those that wait were to be let go: when this grows they are, also where the gate is
    /// shut again for others.
    pub opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asleep {
    at: Time,
    /// Seconds behind the last packet.
    waited: f64,
}

/// The radio is to sleep now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sleep {
    /// For so long nothing has passed.
    pub idle: Span,
    /// After so many seconds the policy wanted it.
    pub wait: f64,
}

/// A packet has brought the radio back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wake {
    /// For so long it had slept.
    pub slept: Span,
    /// This took no less than staying awake would have.
    pub is_false: bool,
}

/// What a controller did.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// What the radio took.
    pub account: Account,
    /// What it would have taken with the network's timers alone.
    pub status_quo: Account,
    /// Sleeps that took no less than staying awake would have.
    pub false_sleeps: u64,
    /// Packets of before a sleep that were told only after it.
    pub overtaken: u64,
    /// From the first packet to the last.
    pub lasts: Span,
}

impl<P: Policy> Controller<P> {
    /// Nothing has passed yet. From one sleep to the next there will be at least `every`: one that
    /// comes too soon is put off until then.
    pub fn new(profile: &Profile, policy: P, every: Span) -> Self {
        let meter = Meter::new(profile);
        Self {
            policy,
            burst_gap: profile.transfer.burst_gap.as_secs_f64(),
            released: meter.choice().stay.released(),
            status_quo: meter.clone(),
            meter,
            every,
            earliest: Time::ZERO,
            first: Time::ZERO,
            delays: Vec::new(),
            last: None,
            asleep: None,
            hold: Hold::Next,
            opened: 0,
            false_sleeps: 0,
            overtaken: 0,
        }
    }

    /// Lets for the time that the radio takes to come back, by its profile: a packet that the device
    /// sends is seen when it begins to wait for that. Waits and gaps count from the end of it, as what
    /// it takes is in the energy of the promotion already. Otherwise the answer to a packet that has
    /// woken the radio would seem to be late, and the radio might be sent to sleep while it wakes up.
    pub fn with_promotions(self, profile: &Profile) -> Self {
        let delays = profile.states.iter().map(|state| state.promotion_delay).collect();
        Self { delays, ..self }
    }

    /// A packet has passed: they are told in their order, each soon after it has, one that is earlier
    /// than its predecessor is taken for as late. Says whether it has brought the radio back.
    pub fn packet(&mut self, packet: &Packet) -> Option<Wake> {
        let Some((last, _)) = self.last else {
            self.first = packet.at;
            self.meter.begin(packet);
            self.status_quo.begin(packet);
            let delay = self.delay(packet, self.delays.len().saturating_sub(1));
            self.last = Some((packet.at + delay, self.policy.observe(packet, None)));
            self.wakes(packet.at);
            return None;
        };
        let span = packet.at.since(last);
        let gap = span.as_secs_f64();
        let (slept, late) = match self.asleep.take() {
            Some(asleep) if asleep.waited < gap => (Some(asleep), None),
            late => (None, late),
        };
        self.meter.next(packet, gap, slept.map_or(NEVER, |asleep| asleep.waited));
        self.status_quo.next(packet, gap, NEVER);
        let choice = self.meter.choice();
        let state = match slept {
            Some(asleep) => choice.sleep.state(gap - asleep.waited),
            None => choice.stay.state(gap),
        };
        let at = last.max(packet.at) + self.delay(packet, state);
        self.last = Some((at, self.policy.observe(packet, Some(gap))));
        if let Some(asleep) = late {
            // It passed before the radio slept, which was for longer behind the packet before it.
            self.overtaken += 1;
            let waited = asleep.at.since(at).as_secs_f64();
            self.asleep = Some(Asleep { waited, ..asleep });
        }
        if self.asleep.is_none() {
            self.wakes(packet.at);
        }
        let asleep = slept?;
        let choice = self.meter.choice();
        let is_false =
            gap <= self.burst_gap || choice.cost(gap, asleep.waited) >= choice.stay.cost(gap);
        self.false_sleeps += u64::from(is_false);
        Some(Wake { slept: packet.at.since(asleep.at), is_false })
    }

    /// The radio is awake, whoever has woken it.
    fn wakes(&mut self, now: Time) {
        if let Hold::Until(_) = self.hold {
            self.let_go(now);
        }
        if let Hold::Passing(_) = self.hold {
            // What was let go is on its way, and is not to wake it once more.
            self.earliest = self.earliest.max(now + Span::from_secs_f64(self.burst_gap));
        }
    }

    fn let_go(&mut self, now: Time) {
        self.hold = Hold::Passing(now + LET_GO);
        self.opened += 1;
    }

    /// Whether the radio is released, as far as is known.
    fn is_released(&self, now: Time) -> bool {
        let Some((last, _)) = self.last else { return true };
        self.asleep.is_some() || now.since(last).as_secs_f64() > self.released
    }

    /// A session that can wait begins; `waits` where it found the gate shut. Where it is the first that
    /// does: for how long it and those that come until then are to wait.
    pub fn begins(&mut self, now: Time, waits: bool) -> Option<Span> {
        let secs = now.as_secs_f64();
        self.policy.begins(secs);
        // What found the gate shut may have been let go before this was told.
        if !waits || self.hold != Hold::Next || !self.is_released(now) {
            return None;
        }
        let hold = Span::from_secs_f64(self.policy.hold(secs));
        if hold.is_zero() {
            self.let_go(now);
            return None;
        }
        self.hold = Hold::Until(now + hold);
        Some(hold)
    }

    /// Nobody holds sessions back any more: what waited has passed.
    pub fn gate_lost(&mut self) {
        self.hold = Hold::Next;
    }

    /// What is to become of sessions that can wait, from now until [`Controller::next_gate`], a packet,
    /// a sleep or a session. The gate of a policy that holds nothing back is never shut.
    pub fn gate(&mut self, now: Time) -> Gate {
        let is_released = self.is_released(now);
        match self.hold {
            Hold::Until(until) if now >= until || !is_released => self.let_go(now),
            Hold::Passing(until) if now >= until => self.hold = Hold::Next,
            _ => {}
        }
        let is_passing = matches!(self.hold, Hold::Passing(_));
        Gate { is_shut: self.policy.holds() && is_released && !is_passing, opened: self.opened }
    }

    /// When to look at the gate again, if nothing happens until then.
    pub fn next_gate(&self, now: Time) -> Option<Time> {
        match (self.hold, self.last) {
            (Hold::Until(until) | Hold::Passing(until), _) => Some(until),
            (Hold::Next, Some((last, _))) if self.policy.holds() && !self.is_released(now) => {
                self.released.is_finite().then(|| behind(last, self.released))
            }
            _ => None,
        }
    }

    fn delay(&self, packet: &Packet, state: usize) -> Span {
        let delay = self.delays.get(state).filter(|_| packet.direction == Direction::Up);
        delay.copied().unwrap_or(Span::ZERO)
    }

    /// Whether the radio is to sleep now, where every packet until now was told.
    pub fn poll(&mut self, now: Time) -> Option<Sleep> {
        let due = self.next_wakeup().filter(|due| *due <= now)?;
        let (last, wait) = self.last?;
        let idle = now.since(last);
        if idle.as_secs_f64() >= self.released {
            // Asked too late: the network has let go of it.
            self.last = Some((last, NEVER));
            return None;
        }
        // A clock ticks in nanoseconds: the first behind the wait is just in time.
        let is_in_time = now == due && due == behind(last, wait);
        let waited = if is_in_time { wait } else { idle.as_secs_f64() };
        self.asleep = Some(Asleep { at: now, waited });
        self.earliest = now + self.every;
        Some(Sleep { idle, wait })
    }

    /// When to poll, if no packet comes until then.
    pub fn next_wakeup(&self) -> Option<Time> {
        let can_sleep = |wait| self.asleep.is_none() && wait < self.released;
        let (last, wait) = self.last.filter(|(_, wait)| can_sleep(*wait))?;
        let due = behind(last, wait).max(self.earliest);
        (due.since(last).as_secs_f64() < self.released).then_some(due)
    }

    /// The radio could not be sent to sleep after all: it is left to the network until the next packet.
    /// Where one has passed already, the account keeps what it has.
    pub fn refused(&mut self) {
        if self.asleep.take().is_some()
            && let Some((_, wait)) = &mut self.last
        {
            *wait = NEVER;
        }
    }

    /// It is over. Both accounts end when the radio is released behind the last packet, whenever that
    /// is; one that is awake stays so until then.
    pub fn finish(mut self) -> Outcome {
        let lasts = self.last.map_or(Span::ZERO, |(last, _)| last.since(self.first));
        if self.last.is_some() {
            self.meter.end(self.asleep.map_or(NEVER, |asleep| asleep.waited));
            self.status_quo.end(NEVER);
        }
        Outcome {
            account: self.meter.account().clone(),
            status_quo: self.status_quo.account().clone(),
            false_sleeps: self.false_sleeps,
            overtaken: self.overtaken,
            lasts,
        }
    }
}

/// The first moment that is strictly more than so many seconds later.
fn behind(last: Time, wait: f64) -> Time {
    let mut nanos = (wait * 1e9) as u64;
    let mut step = 1;
    // Steps grow, as beyond a hundred days a nanosecond makes no difference to a number of seconds.
    while nanos < u64::MAX && Span::from_nanos(nanos).as_secs_f64() <= wait {
        nanos = nanos.saturating_add(step);
        step *= 2;
    }
    last + Span::from_nanos(nanos)
}

#[cfg(test)]
mod tests;
