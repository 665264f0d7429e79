//! Runs a policy on live traffic.
//!
//! A [`Controller`] receives each packet and returns when to send the radio to idle. It keeps two
//! accounts: the energy with its decisions, and the energy with the network's timers alone. If
//! packets are reported without delay and [`poll`](Controller::poll) is called at each
//! [`next_wakeup`](Controller::next_wakeup), its result equals that of a
//! [`Simulation`](super::simulate::Simulation) of the same packets.
//!
//! If the policy delays sessions, the caller reports each delay-tolerant session
//! ([`Controller::on_session`]) and keeps a gate for them that is shut while the radio is released
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
const FIRST_PACKET_TIMEOUT: Span = Span::from_secs(1);

/// Decides during operation when a radio goes idle.
#[derive(Clone, Debug)]
pub struct Controller<P> {
    policy: P,
    meter: Meter,
    status_quo: Meter,
    burst_gap: Span,
    /// Time from the last packet to the release by the network.
    idle_after: Span,
    /// Minimum interval between fast dormancies.
    min_interval: Span,
    earliest_dormancy: Time,
    first: Time,
    /// Promotion delay by state; empty without [`Controller::with_promotions`].
    promotion_delays: Vec<Span>,
    /// Earliest time at which the last packet was carried, and the wait after it.
    last: Option<(Time, Span)>,
    dormancy: Option<Dormancy>,
    gate_phase: GatePhase,
    /// Number of releases of waiting sessions.
    gate_releases: u64,
    false_switches: u64,
    late_packets: u64,
}

/// Treatment of delay-tolerant sessions while the radio is released.
#[derive(Clone, Copy, PartialEq, Debug)]
enum GatePhase {
    /// No session waits; the next one will.
    Armed,
    /// Sessions wait until this time.
    Delaying(Time),
    /// The waiting sessions were released; other sessions also pass until this time.
    Releasing(Time),
}

/// State of the gate for delay-tolerant sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateState {
    /// Sessions that begin now must wait.
    pub is_closed: bool,
    /// Number of releases so far. When it grows, the waiting sessions are released, even if the
    /// gate is shut again for new ones.
    pub releases: u64,
}

#[derive(Clone, Copy, Debug)]
struct Dormancy {
    start: Time,
    /// Time since the last packet.
    gap: Span,
}

/// Request for fast dormancy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DormancyRequest {
    /// Time since the last packet.
    pub gap: Span,
    /// The wait by the policy.
    pub wait: Span,
}

/// A promotion caused by a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Promotion {
    /// Time in idle.
    pub idle_time: Span,
    /// Whether going idle took at least the energy of staying connected.
    pub is_false_switch: bool,
}

/// Result of a run.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// Energy with the controller's decisions.
    pub account: Account,
    /// Energy with the network's timers alone.
    pub status_quo: Account,
    /// Fast dormancies that took at least the energy of staying connected.
    pub false_switches: u64,
    /// Packets from before a fast dormancy that were reported after it.
    pub late_packets: u64,
    /// From the first packet to the last.
    pub duration: Span,
}

impl<P: Policy> Controller<P> {
    /// Creates a controller. Two fast dormancies are at least `interval` apart; an earlier one is
    /// postponed.
    pub fn new(profile: &Profile, policy: P, interval: Span) -> Self {
        let meter = Meter::new(profile);
        Self {
            policy,
            burst_gap: profile.transfer.burst_gap,
            idle_after: meter.tradeoff().stay.idle_after(),
            status_quo: meter.clone(),
            meter,
            min_interval: interval,
            earliest_dormancy: Time::ZERO,
            first: Time::ZERO,
            promotion_delays: Vec::new(),
            last: None,
            dormancy: None,
            gate_phase: GatePhase::Armed,
            gate_releases: 0,
            false_switches: 0,
            late_packets: 0,
        }
    }

    /// Accounts for the profile's promotion delays: a packet from the device is reported when it
    /// starts to wait for the promotion. Waits and gaps count from the end of the promotion,
    /// because the energy of that time belongs to the promotion. Otherwise the answer to the packet
    /// would seem late, and the radio could be sent to idle during its promotion.
    pub fn with_promotions(self, profile: &Profile) -> Self {
        let delays = profile.states.iter().map(|state| state.promotion_delay).collect();
        Self { promotion_delays: delays, ..self }
    }

    /// Adds a packet, soon after it passed and in order of time; an earlier time is replaced by
    /// that of the previous packet. Returns the promotion that the packet caused.
    pub fn on_packet(&mut self, packet: &Packet) -> Option<Promotion> {
        let Some((last, _)) = self.last else {
            self.first = packet.at;
            self.meter.push_first(packet);
            self.status_quo.push_first(packet);
            let delay = self.promotion_delay(packet, self.promotion_delays.len().saturating_sub(1));
            self.last = Some((packet.at + delay, self.policy.observe(packet, None)));
            self.on_connected(packet.at);
            return None;
        };
        let gap = packet.at.since(last);
        let (slept, late) = match self.dormancy.take() {
            Some(asleep) if asleep.gap < gap => (Some(asleep), None),
            late => (None, late),
        };
        self.meter.push(packet, gap, slept.map_or(NEVER, |asleep| asleep.gap));
        self.status_quo.push(packet, gap, NEVER);
        let tradeoff = self.meter.tradeoff();
        let state = match slept {
            Some(asleep) => tradeoff.dormancy.state(gap - asleep.gap),
            None => tradeoff.stay.state(gap),
        };
        let at = last.max(packet.at) + self.promotion_delay(packet, state);
        self.last = Some((at, self.policy.observe(packet, Some(gap))));
        if let Some(asleep) = late {
            // The packet passed before the dormancy, whose wait therefore counts from this packet.
            self.late_packets += 1;
            let waited = asleep.start.since(at);
            self.dormancy = Some(Dormancy { gap: waited, ..asleep });
        }
        if self.dormancy.is_none() {
            self.on_connected(packet.at);
        }
        let asleep = slept?;
        let tradeoff = self.meter.tradeoff();
        let is_false =
            gap <= self.burst_gap || tradeoff.cost(gap, asleep.gap) >= tradeoff.stay.cost(gap);
        self.false_switches += u64::from(is_false);
        Some(Promotion { idle_time: packet.at.since(asleep.start), is_false_switch: is_false })
    }

    /// The radio is connected, for any cause.
    fn on_connected(&mut self, now: Time) {
        if let GatePhase::Delaying(_) = self.gate_phase {
            self.release_sessions(now);
        }
        if let GatePhase::Releasing(_) = self.gate_phase {
            // Sessions were just released; their packets must not cause another promotion.
            self.earliest_dormancy = self.earliest_dormancy.max(now + self.burst_gap);
        }
    }

    fn release_sessions(&mut self, now: Time) {
        self.gate_phase = GatePhase::Releasing(now + FIRST_PACKET_TIMEOUT);
        self.gate_releases += 1;
    }

    /// Whether the radio is released, as far as the packets show.
    fn is_idle(&self, now: Time) -> bool {
        let Some((last, _)) = self.last else { return true };
        self.dormancy.is_some() || now.since(last) > self.idle_after
    }

    /// A delay-tolerant session begins; `waits` if it found the gate shut. Returns the delay if
    /// this session is the first one to wait; the delay applies to later sessions too.
    pub fn on_session(&mut self, now: Time, waits: bool) -> Option<Span> {
        self.policy.on_session(now);
        // A session that found the gate shut may already be released.
        if !waits || self.gate_phase != GatePhase::Armed || !self.is_idle(now) {
            return None;
        }
        let delay = self.policy.session_delay(now);
        if delay.is_zero() {
            self.release_sessions(now);
            return None;
        }
        self.gate_phase = GatePhase::Delaying(now + delay);
        Some(delay)
    }

    /// The gate was removed: its waiting sessions have passed.
    pub fn on_gate_removed(&mut self) {
        self.gate_phase = GatePhase::Armed;
    }

    /// The state of the gate from now until [`Controller::next_gate_change`], a packet, a fast
    /// dormancy or a session. With a policy that does not delay sessions the gate is never shut.
    pub fn gate(&mut self, now: Time) -> GateState {
        let is_released = self.is_idle(now);
        match self.gate_phase {
            GatePhase::Delaying(until) if now >= until || !is_released => {
                self.release_sessions(now)
            }
            GatePhase::Releasing(until) if now >= until => self.gate_phase = GatePhase::Armed,
            _ => {}
        }
        let is_passing = matches!(self.gate_phase, GatePhase::Releasing(_));
        GateState {
            is_closed: self.policy.delays_sessions() && is_released && !is_passing,
            releases: self.gate_releases,
        }
    }

    /// Time of the next call of [`Controller::gate`] if there is no other event.
    pub fn next_gate_change(&self, now: Time) -> Option<Time> {
        match (self.gate_phase, self.last) {
            (GatePhase::Delaying(until) | GatePhase::Releasing(until), _) => Some(until),
            (GatePhase::Armed, Some((last, _)))
                if self.policy.delays_sessions() && !self.is_idle(now) =>
            {
                (self.idle_after < NEVER).then(|| first_time_after(last, self.idle_after))
            }
            _ => None,
        }
    }

    fn promotion_delay(&self, packet: &Packet, state: usize) -> Span {
        let delay = self.promotion_delays.get(state).filter(|_| packet.direction == Direction::Up);
        delay.copied().unwrap_or(Span::ZERO)
    }

    /// Whether the radio must go idle now, after all packets until `now` were reported.
    pub fn poll(&mut self, now: Time) -> Option<DormancyRequest> {
        let due = self.next_wakeup().filter(|due| *due <= now)?;
        let (last, wait) = self.last?;
        let idle = now.since(last);
        if idle >= self.idle_after {
            // The poll is late: the network has released the radio.
            self.last = Some((last, NEVER));
            return None;
        }
        // The first nanosecond after the wait is on time.
        let is_in_time = now == due && due == first_time_after(last, wait);
        let waited = if is_in_time { wait } else { idle };
        self.dormancy = Some(Dormancy { start: now, gap: waited });
        self.earliest_dormancy = now + self.min_interval;
        Some(DormancyRequest { gap: idle, wait })
    }

    /// Time of the next [`Controller::poll`] if there is no packet before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let can_sleep = |wait| self.dormancy.is_none() && wait < self.idle_after;
        let (last, wait) = self.last.filter(|(_, wait)| can_sleep(*wait))?;
        let due = first_time_after(last, wait).max(self.earliest_dormancy);
        (due.since(last) < self.idle_after).then_some(due)
    }

    /// Fast dormancy failed: the radio is left to the network's timers until the next packet. If a
    /// packet has passed already, the account is unchanged.
    pub fn on_dormancy_failure(&mut self) {
        if self.dormancy.take().is_some()
            && let Some((_, wait)) = &mut self.last
        {
            *wait = NEVER;
        }
    }

    /// Ends both accounts at the release of the radio after the last packet; a radio that is
    /// connected stays so until then.
    pub fn finish(mut self) -> Outcome {
        let duration = self.last.map_or(Span::ZERO, |(last, _)| last.since(self.first));
        if self.last.is_some() {
            self.meter.finish(self.dormancy.map_or(NEVER, |asleep| asleep.gap));
            self.status_quo.finish(NEVER);
        }
        Outcome {
            account: self.meter.account().clone(),
            status_quo: self.status_quo.account().clone(),
            false_switches: self.false_switches,
            late_packets: self.late_packets,
            duration,
        }
    }
}

/// The first time strictly more than `wait` later.
fn first_time_after(last: Time, wait: Span) -> Time {
    last + wait + Span::from_nanos(1)
}

#[cfg(test)]
mod tests;
