//! Runs a policy on live traffic.
//!
//! A [`Controller`] receives each packet and returns when to send the radio to idle. It keeps two
//! accounts: the energy with its decisions, and the energy with the network's timers alone. If
//! packets are reported without delay and [`poll`](Controller::poll) is called at each
//! [`next_wakeup`](Controller::next_wakeup), its result equals that of a
//! [`Simulation`](super::simulate::Simulation) of the same packets.
//!
//! If the policy delays sessions, the caller reports each delay-tolerant session
//! ([`Controller::begins`]) and keeps a gate for them that is shut while the radio is released
//! ([`Controller::gate`]). Sessions that wait at the gate are released when the delay ends or when
//! other traffic has caused a promotion. The gate then stays open for 1 s, because released
//! sessions take time until their packets are seen.
//!
//! If the decisions are carried out, the times of packets change: packets from the device wait for
//! the promotion, and later packets depend on them. See [`Controller::with_promotions`].

use manyways_unit::{Span, Time};

use super::meter::{Account, Meter};
use super::policy::{NEVER, Policy};
use super::{Direction, Packet, Profile};

/// Time within which a released session sends its first packet, if at all.
const LET_GO: Span = Span::from_secs(1);

/// Decides during operation when a radio goes idle.
#[derive(Clone, Debug)]
pub struct Controller<P> {
    policy: P,
    meter: Meter,
    status_quo: Meter,
    burst_gap: f64,
    /// Seconds from the last packet to the release by the network.
    released: f64,
    /// Minimum interval between fast dormancies.
    every: Span,
    earliest: Time,
    first: Time,
    /// Promotion delay by state; empty without [`Controller::with_promotions`].
    delays: Vec<Span>,
    /// Earliest time at which the last packet was carried, and the wait after it.
    last: Option<(Time, f64)>,
    asleep: Option<Asleep>,
    hold: Hold,
    /// Number of releases of waiting sessions.
    opened: u64,
    false_sleeps: u64,
    overtaken: u64,
}

/// Treatment of delay-tolerant sessions while the radio is released.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Hold {
    /// No session waits; the next one will.
    Next,
    /// Sessions wait until this time.
    Until(Time),
    /// The waiting sessions were released; other sessions also pass until this time.
    Passing(Time),
}

/// State of the gate for delay-tolerant sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gate {
    /// Sessions that begin now must wait.
    pub is_shut: bool,
    /// Number of releases so far. When it grows, the waiting sessions are released, even if the
    /// gate is shut again for new ones.
    pub opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asleep {
    at: Time,
    /// Seconds since the last packet.
    waited: f64,
}

/// Request for fast dormancy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sleep {
    /// Time since the last packet.
    pub idle: Span,
    /// The wait by the policy, in seconds.
    pub wait: f64,
}

/// A promotion caused by a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wake {
    /// Time in idle.
    pub slept: Span,
    /// Whether going idle took at least the energy of staying connected.
    pub is_false: bool,
}

/// Result of a run.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// Energy with the controller's decisions.
    pub account: Account,
    /// Energy with the network's timers alone.
    pub status_quo: Account,
    /// Fast dormancies that took at least the energy of staying connected.
    pub false_sleeps: u64,
    /// Packets from before a fast dormancy that were reported after it.
    pub overtaken: u64,
    /// From the first packet to the last.
    pub lasts: Span,
}

impl<P: Policy> Controller<P> {
    /// Creates a controller. Two fast dormancies are at least `every` apart; an earlier one is
    /// postponed.
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

    /// Accounts for the profile's promotion delays: a packet from the device is reported when it
    /// starts to wait for the promotion. Waits and gaps count from the end of the promotion,
    /// because the energy of that time belongs to the promotion. Otherwise the answer to the packet
    /// would seem late, and the radio could be sent to idle during its promotion.
    pub fn with_promotions(self, profile: &Profile) -> Self {
        let delays = profile.states.iter().map(|state| state.promotion_delay).collect();
        Self { delays, ..self }
    }

    /// Adds a packet, soon after it passed and in order of time; an earlier time is replaced by
    /// that of the previous packet. Returns the promotion that the packet caused.
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
            // The packet passed before the dormancy, whose wait therefore counts from this packet.
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

    /// The radio is connected, for any cause.
    fn wakes(&mut self, now: Time) {
        if let Hold::Until(_) = self.hold {
            self.let_go(now);
        }
        if let Hold::Passing(_) = self.hold {
            // Sessions were just released; their packets must not cause another promotion.
            self.earliest = self.earliest.max(now + Span::from_secs_f64(self.burst_gap));
        }
    }

    fn let_go(&mut self, now: Time) {
        self.hold = Hold::Passing(now + LET_GO);
        self.opened += 1;
    }

    /// Whether the radio is released, as far as the packets show.
    fn is_released(&self, now: Time) -> bool {
        let Some((last, _)) = self.last else { return true };
        self.asleep.is_some() || now.since(last).as_secs_f64() > self.released
    }

    /// A delay-tolerant session begins; `waits` if it found the gate shut. Returns the delay if
    /// this session is the first one to wait; the delay applies to later sessions too.
    pub fn begins(&mut self, now: Time, waits: bool) -> Option<Span> {
        let secs = now.as_secs_f64();
        self.policy.begins(secs);
        // A session that found the gate shut may already be released.
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

    /// The gate was removed: its waiting sessions have passed.
    pub fn gate_lost(&mut self) {
        self.hold = Hold::Next;
    }

    /// The state of the gate from now until [`Controller::next_gate`], a packet, a fast dormancy or
    /// a session. With a policy that does not delay sessions the gate is never shut.
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

    /// Time of the next call of [`Controller::gate`] if there is no other event.
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

    /// Whether the radio must go idle now, after all packets until `now` were reported.
    pub fn poll(&mut self, now: Time) -> Option<Sleep> {
        let due = self.next_wakeup().filter(|due| *due <= now)?;
        let (last, wait) = self.last?;
        let idle = now.since(last);
        if idle.as_secs_f64() >= self.released {
            // The poll is late: the network has released the radio.
            self.last = Some((last, NEVER));
            return None;
        }
        // Clocks count nanoseconds: the first one after the wait is on time.
        let is_in_time = now == due && due == behind(last, wait);
        let waited = if is_in_time { wait } else { idle.as_secs_f64() };
        self.asleep = Some(Asleep { at: now, waited });
        self.earliest = now + self.every;
        Some(Sleep { idle, wait })
    }

    /// Time of the next [`Controller::poll`] if there is no packet before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let can_sleep = |wait| self.asleep.is_none() && wait < self.released;
        let (last, wait) = self.last.filter(|(_, wait)| can_sleep(*wait))?;
        let due = behind(last, wait).max(self.earliest);
        (due.since(last).as_secs_f64() < self.released).then_some(due)
    }

    /// Fast dormancy failed: the radio is left to the network's timers until the next packet. If a
    /// packet has passed already, the account is unchanged.
    pub fn refused(&mut self) {
        if self.asleep.take().is_some()
            && let Some((_, wait)) = &mut self.last
        {
            *wait = NEVER;
        }
    }

    /// Ends both accounts at the release of the radio after the last packet; a radio that is
    /// connected stays so until then.
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

/// The first time strictly more than `wait` seconds later.
fn behind(last: Time, wait: f64) -> Time {
    let mut nanos = (wait * 1e9) as u64;
    let mut step = 1;
    // Steps grow, because beyond about 100 days one nanosecond is less than the precision of a
    // number of seconds.
    while nanos < u64::MAX && Span::from_nanos(nanos).as_secs_f64() <= wait {
        nanos = nanos.saturating_add(step);
        step *= 2;
    }
    last + Span::from_nanos(nanos)
}

#[cfg(test)]
mod tests;
