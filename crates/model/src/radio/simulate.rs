//! Simulates a policy on a trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use manyways_unit::quantile::nearest_rank;
use manyways_unit::{Span, Time};

use super::meter::{Account, Meter, Oracle};
use super::policy::{NEVER, Policy};
use super::{Packet, Profile};

/// Gap after which a session counts as new, so that it need not be stored for longer.
const SESSION_TIMEOUT: Span = Span::from_secs(900);
/// Number of stored sessions at which old ones are removed for the first time.
const SESSIONS_BEFORE_CLEANUP: usize = 1_024;

/// Result of a simulation.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    pub account: Account,
    /// Decisions compared with those of the oracle.
    pub switches: SwitchAccuracy,
    /// Delays of the delay-tolerant sessions.
    pub delays: Delays,
    /// From the first packet to the last.
    pub duration: Span,
}

/// Gaps between packets, by whether the radio was released in them, and whether the oracle would
/// have released it (§4.6.3 of Deng's thesis).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SwitchAccuracy {
    /// Released by both (N_TP).
    pub true_switches: u64,
    /// Released, but not by the oracle: a false switch (N_FS).
    pub false_switches: u64,
    /// Released by neither (N_TN).
    pub true_stays: u64,
    /// Released only by the oracle: a missed switch (N_MS).
    pub missed_switches: u64,
}

/// Delays of delay-tolerant sessions; those that were not delayed count too.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Delays {
    /// Delay-tolerant sessions.
    pub count: u64,
    /// Delayed sessions.
    pub delayed: u64,
    pub sum: Span,
    /// Number of delayed sessions by delay in hundredths of a second.
    hundredths: Vec<u64>,
}

/// Longer delays count as this.
const MAX_DELAY: Span = Span::from_secs(3_600);
const HUNDREDTH: Span = Span::from_millis(10);

impl SwitchAccuracy {
    /// N_FS / (N_FS + N_TN); `None` if the oracle releases in every gap.
    pub fn false_rate(&self) -> Option<f64> {
        share(self.false_switches, self.true_stays)
    }

    /// N_MS / (N_MS + N_TP); `None` if the oracle never releases.
    pub fn missed_rate(&self) -> Option<f64> {
        share(self.missed_switches, self.true_switches)
    }
}

fn share(part: u64, rest: u64) -> Option<f64> {
    (part + rest > 0).then(|| part as f64 / (part + rest) as f64)
}

impl Delays {
    /// Adds a session with its delay.
    pub fn push(&mut self, delay: Span) {
        self.count += 1;
        self.sum += delay;
        if !delay.is_zero() {
            self.delayed += 1;
            let delay = delay.min(MAX_DELAY).as_nanos();
            let index =
                (delay + HUNDREDTH.as_nanos() / 2).div_euclid(HUNDREDTH.as_nanos()) as usize;
            if self.hundredths.len() <= index {
                self.hundredths.resize(index + 1, 0);
            }
            self.hundredths[index] += 1;
        }
    }

    /// Adds the delays of another trace.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.delayed += other.delayed;
        self.sum += other.sum;
        if self.hundredths.len() < other.hundredths.len() {
            self.hundredths.resize(other.hundredths.len(), 0);
        }
        for (sum, count) in self.hundredths.iter_mut().zip(&other.hundredths) {
            *sum += count;
        }
    }

    /// Mean delay of the delayed sessions; `None` without any.
    pub fn mean(&self) -> Option<Span> {
        let mean = self.sum.as_secs_f64() / self.delayed as f64;
        (self.delayed > 0).then(|| Span::from_secs_f64(mean))
    }

    /// The quantile of the delays of delayed sessions, with a resolution of 0.01 s.
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let wanted = nearest_rank(self.delayed, share);
        let mut seen = 0;
        let index = self.hundredths.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(HUNDREDTH * index as u64)
    }
}

/// The decider of when to go idle.
pub enum Decider<'a> {
    /// A policy, which knows only the past.
    Policy(&'a mut dyn Policy),
    /// The oracle, which knows the next gap and does not delay sessions.
    Oracle,
}

/// A simulation: consumes packets and returns an [`Outcome`].
///
/// The times of packets do not depend on the radio, except that all packets of a delayed session
/// are shifted by its delay. A session can be delayed if `tolerates` is true for its first packet
/// and the radio is released. When other traffic causes a promotion, all delayed sessions pass at
/// once.
pub struct Simulation<'p, 't> {
    meter: Meter,
    oracle: Oracle,
    decider: Decider<'p>,
    is_delay_tolerant: &'t dyn Fn(&Packet) -> bool,
    switches: SwitchAccuracy,
    delays: Delays,
    first: Time,
    /// The last packet that passed, and the wait after it.
    last: Option<(Time, Span)>,
    sessions: HashMap<u32, Session>,
    cleanup_at: usize,
    /// Gap after which a session counts as new.
    session_timeout: Span,
    /// End of the current delay, and the delayed packets, each with the start of its session.
    delayed: Option<(Time, Vec<(Time, Packet)>)>,
    /// Packets of delayed sessions, by their new times.
    upcoming: BinaryHeap<Reverse<(Time, u64, Packet)>>,
    count: u64,
}

#[derive(Clone, Copy)]
struct Session {
    start: Time,
    last_packet: Time,
    /// Shift of all its packets; `None` while the session is delayed.
    shift: Option<Span>,
}

impl<'p, 't> Simulation<'p, 't> {
    /// `tolerates` returns whether the session of a packet is delay-tolerant.
    pub fn new(
        profile: &Profile,
        decides: Decider<'p>,
        tolerates: &'t dyn Fn(&Packet) -> bool,
    ) -> Self {
        Self {
            meter: Meter::new(profile),
            oracle: Oracle::new(profile),
            decider: decides,
            is_delay_tolerant: tolerates,
            switches: SwitchAccuracy::default(),
            delays: Delays::default(),
            first: Time::ZERO,
            last: None,
            sessions: HashMap::new(),
            cleanup_at: SESSIONS_BEFORE_CLEANUP,
            session_timeout: SESSION_TIMEOUT,
            delayed: None,
            upcoming: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Ends sessions after a shorter gap: packets after it on the same flow can be delayed again.
    pub fn with_session_timeout(mut self, silence: Span) -> Self {
        self.session_timeout = silence;
        self
    }

    /// Adds a packet of the trace; a time before the previous packet's is replaced by that one.
    pub fn push(&mut self, packet: Packet) {
        let is_holding = match &self.decider {
            Decider::Policy(policy) => policy.delays_sessions(),
            Decider::Oracle => false,
        };
        match is_holding {
            true => self.pass_shifted(packet),
            false => self.pass(packet),
        }
    }

    /// Ends the trace and returns the result.
    pub fn finish(mut self) -> Outcome {
        self.advance(Time::MAX);
        let duration = self.last.map_or(Span::ZERO, |(last, _)| last.since(self.first));
        if let Some((_, wait)) = self.last {
            let wait = match self.decider {
                Decider::Policy(_) => wait,
                Decider::Oracle => oracle_wait(&self.oracle, None),
            };
            self.meter.finish(wait);
        }
        Outcome {
            account: self.meter.account().clone(),
            switches: self.switches,
            delays: self.delays,
            duration,
        }
    }

    /// The packet passes now.
    fn pass(&mut self, packet: Packet) {
        let gap = self.last.map(|(last, _)| packet.at.since(last));
        match (self.last, gap) {
            (Some((_, wait)), Some(gap)) => {
                let best = self.oracle.goes_idle(Some(gap));
                let wait = match self.decider {
                    Decider::Policy(_) => wait,
                    Decider::Oracle => oracle_wait(&self.oracle, Some(gap)),
                };
                let is_released = self.meter.push(&packet, gap, wait);
                let counter = match (is_released, best) {
                    (true, true) => &mut self.switches.true_switches,
                    (true, false) => &mut self.switches.false_switches,
                    (false, false) => &mut self.switches.true_stays,
                    (false, true) => &mut self.switches.missed_switches,
                };
                *counter += 1;
            }
            _ => {
                self.first = packet.at;
                self.meter.push_first(&packet);
            }
        }
        let wait = match &mut self.decider {
            Decider::Policy(policy) => policy.observe(&packet, gap),
            Decider::Oracle => NEVER,
        };
        let at = self.last.map_or(packet.at, |(last, _)| last.max(packet.at));
        self.last = Some((at, wait));
    }

    /// The packet passes now, later by the shift of its session, or at the end of the current
    /// delay.
    fn pass_shifted(&mut self, packet: Packet) {
        let now = packet.at;
        self.advance(now);
        let known = self.sessions.get_mut(&packet.session);
        let known = known.filter(|session| now.since(session.last_packet) <= self.session_timeout);
        let session = match known {
            Some(session) => {
                session.last_packet = now;
                *session
            }
            None => self.start_session(&packet),
        };
        match (session.shift, &mut self.delayed) {
            (None, Some((_, held))) => held.push((session.start, packet)),
            (Some(later), _) if later.is_zero() => {
                self.pass(packet);
                self.release_sessions(now);
            }
            (later, _) => self.delay(packet, later.unwrap_or_default()),
        }
    }

    /// Starts a session.
    fn start_session(&mut self, packet: &Packet) -> Session {
        let now = packet.at;
        let mut session = Session { start: now, last_packet: now, shift: Some(Span::ZERO) };
        if (self.is_delay_tolerant)(packet) {
            let is_released = self.is_idle(now);
            if let Decider::Policy(policy) = &mut self.decider {
                policy.on_session(now);
                if is_released && self.delayed.is_none() {
                    let delay = policy.session_delay(now);
                    self.delayed = (!delay.is_zero()).then(|| (now + delay, Vec::new()));
                }
            }
            match is_released && self.delayed.is_some() {
                true => session.shift = None,
                false => self.delays.push(Span::ZERO),
            }
        }
        if self.sessions.len() >= self.cleanup_at {
            let forgets = self.session_timeout;
            self.sessions.retain(|_, session| {
                session.shift.is_none() || now.since(session.last_packet) <= forgets
            });
            self.cleanup_at = (2 * self.sessions.len()).max(SESSIONS_BEFORE_CLEANUP);
        }
        self.sessions.insert(packet.session, session);
        session
    }

    fn is_idle(&self, now: Time) -> bool {
        let Some((last, wait)) = self.last else { return true };
        now.since(last) > wait.min(self.meter.tradeoff().stay.idle_after())
    }

    fn delay(&mut self, packet: Packet, later: Span) {
        let at = packet.at + later;
        self.upcoming.push(Reverse((at, self.count, Packet { at, ..packet })));
        self.count += 1;
    }

    /// Releases the delayed sessions.
    fn release_sessions(&mut self, now: Time) {
        let Some((_, held)) = self.delayed.take() else { return };
        // A flow may have started several sessions meanwhile.
        let mut told = HashSet::new();
        for (start, packet) in held {
            let later = now.since(start);
            if told.insert((packet.session, start)) {
                self.delays.push(later);
            }
            let session = self.sessions.get_mut(&packet.session);
            if let Some(session) = session.filter(|session| session.start == start) {
                session.shift = Some(later);
            }
            self.delay(packet, later);
        }
    }

    /// Passes all packets up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let opens = self.delayed.as_ref().map_or(Time::MAX, |(opens, _)| *opens);
            let next = self.upcoming.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
            if opens.min(next) > until || opens == next && opens == Time::MAX {
                return;
            }
            if opens <= next {
                self.release_sessions(opens);
            } else if let Some(Reverse((at, _, packet))) = self.upcoming.pop() {
                self.pass(packet);
                self.release_sessions(at);
            }
        }
    }
}

fn oracle_wait(oracle: &Oracle, gap: Option<Span>) -> Span {
    if oracle.goes_idle(gap) { Span::ZERO } else { NEVER }
}

#[cfg(test)]
mod tests;
