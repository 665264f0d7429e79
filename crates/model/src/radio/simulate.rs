//! Simulates a policy on a trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use manyways_unit::quantile::nearest_rank;
use manyways_unit::{Span, Time};

use super::meter::{Account, Meter, Oracle};
use super::policy::{NEVER, Policy};
use super::{Packet, Profile};

/// Gap after which a session counts as new, so that it need not be stored for longer.
const FORGOTTEN: Span = Span::from_secs(900);
/// Number of stored sessions at which old ones are removed for the first time.
const SESSIONS: usize = 1_024;

/// Result of a simulation.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    pub account: Account,
    /// Decisions compared with those of the oracle.
    pub switches: Switches,
    /// Delays of the delay-tolerant sessions.
    pub delays: Delays,
    /// From the first packet to the last.
    pub lasts: Span,
}

/// Gaps between packets, by whether the radio was released in them, and whether the oracle would
/// have released it (§4.6.3 of Deng's thesis).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Switches {
    /// Released by both (N_TP).
    pub right: u64,
    /// Released, but not by the oracle: a false switch (N_FS).
    pub wrong: u64,
    /// Released by neither (N_TN).
    pub stayed: u64,
    /// Released only by the oracle: a missed switch (N_MS).
    pub missed: u64,
}

/// Delays of delay-tolerant sessions; those that were not delayed count too.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Delays {
    /// Delay-tolerant sessions.
    pub count: u64,
    /// Delayed sessions.
    pub held: u64,
    /// Sum of the delays in seconds.
    pub sum: f64,
    /// Number of delayed sessions by delay in hundredths of a second.
    hundredths: Vec<u64>,
}

/// In seconds; longer delays count as this.
const LONGEST_DELAY: f64 = 3_600.0;

impl Switches {
    /// N_FS / (N_FS + N_TN); `None` if the oracle releases in every gap.
    pub fn false_rate(&self) -> Option<f64> {
        share(self.wrong, self.stayed)
    }

    /// N_MS / (N_MS + N_TP); `None` if the oracle never releases.
    pub fn missed_rate(&self) -> Option<f64> {
        share(self.missed, self.right)
    }
}

fn share(part: u64, rest: u64) -> Option<f64> {
    (part + rest > 0).then(|| part as f64 / (part + rest) as f64)
}

impl Delays {
    /// Adds a session with its delay.
    pub fn push(&mut self, delay: Span) {
        self.count += 1;
        let secs = delay.as_secs_f64();
        self.sum += secs;
        if !delay.is_zero() {
            self.held += 1;
            let place = (secs.min(LONGEST_DELAY) * 100.0).round() as usize;
            if self.hundredths.len() <= place {
                self.hundredths.resize(place + 1, 0);
            }
            self.hundredths[place] += 1;
        }
    }

    /// Adds the delays of another trace.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.held += other.held;
        self.sum += other.sum;
        if self.hundredths.len() < other.hundredths.len() {
            self.hundredths.resize(other.hundredths.len(), 0);
        }
        for (sum, count) in self.hundredths.iter_mut().zip(&other.hundredths) {
            *sum += count;
        }
    }

    /// Mean delay of the delayed sessions in seconds; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.held > 0).then(|| self.sum / self.held as f64)
    }

    /// The quantile of the delays of delayed sessions, in seconds with a resolution of 0.01 s.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = nearest_rank(self.held, share);
        let mut seen = 0;
        let place = self.hundredths.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(place as f64 / 100.0)
    }
}

/// The decider of when to go idle.
pub enum Decides<'a> {
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
    decides: Decides<'p>,
    tolerates: &'t dyn Fn(&Packet) -> bool,
    switches: Switches,
    delays: Delays,
    first: Time,
    /// The last packet that passed, and the wait after it.
    last: Option<(Time, f64)>,
    sessions: HashMap<u32, Session>,
    forgets_at: usize,
    /// Gap after which a session counts as new.
    forgets: Span,
    /// End of the current delay, and the delayed packets, each with the start of its session.
    held: Option<(Time, Vec<(Time, Packet)>)>,
    /// Packets of delayed sessions, by their new times.
    coming: BinaryHeap<Reverse<(Time, u64, Packet)>>,
    count: u64,
}

#[derive(Clone, Copy)]
struct Session {
    begins: Time,
    seen: Time,
    /// Shift of all its packets; `None` while the session is delayed.
    later: Option<Span>,
}

impl<'p, 't> Simulation<'p, 't> {
    /// `tolerates` returns whether the session of a packet is delay-tolerant.
    pub fn new(
        profile: &Profile,
        decides: Decides<'p>,
        tolerates: &'t dyn Fn(&Packet) -> bool,
    ) -> Self {
        Self {
            meter: Meter::new(profile),
            oracle: Oracle::new(profile),
            decides,
            tolerates,
            switches: Switches::default(),
            delays: Delays::default(),
            first: Time::ZERO,
            last: None,
            sessions: HashMap::new(),
            forgets_at: SESSIONS,
            forgets: FORGOTTEN,
            held: None,
            coming: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Ends sessions after a shorter gap: packets after it on the same flow can be delayed again.
    pub fn ending_sessions(mut self, silence: Span) -> Self {
        self.forgets = silence;
        self
    }

    /// Adds a packet of the trace; a time before the previous packet's is replaced by that one.
    pub fn push(&mut self, packet: Packet) {
        let is_holding = match &self.decides {
            Decides::Policy(policy) => policy.holds(),
            Decides::Oracle => false,
        };
        match is_holding {
            true => self.queue(packet),
            false => self.pass(packet),
        }
    }

    /// Ends the trace and returns the result.
    pub fn finish(mut self) -> Outcome {
        self.advance(Time::MAX);
        let lasts = self.last.map_or(Span::ZERO, |(last, _)| last.since(self.first));
        if let Some((_, wait)) = self.last {
            let wait = match self.decides {
                Decides::Policy(_) => wait,
                Decides::Oracle => foresees(&self.oracle, None),
            };
            self.meter.end(wait);
        }
        Outcome {
            account: self.meter.account().clone(),
            switches: self.switches,
            delays: self.delays,
            lasts,
        }
    }

    /// The packet passes now.
    fn pass(&mut self, packet: Packet) {
        let gap = self.last.map(|(last, _)| packet.at.since(last).as_secs_f64());
        match (self.last, gap) {
            (Some((_, wait)), Some(gap)) => {
                let best = self.oracle.sleeps(Some(gap));
                let wait = match self.decides {
                    Decides::Policy(_) => wait,
                    Decides::Oracle => foresees(&self.oracle, Some(gap)),
                };
                let is_released = self.meter.next(&packet, gap, wait);
                let counter = match (is_released, best) {
                    (true, true) => &mut self.switches.right,
                    (true, false) => &mut self.switches.wrong,
                    (false, false) => &mut self.switches.stayed,
                    (false, true) => &mut self.switches.missed,
                };
                *counter += 1;
            }
            _ => {
                self.first = packet.at;
                self.meter.begin(&packet);
            }
        }
        let wait = match &mut self.decides {
            Decides::Policy(policy) => policy.observe(&packet, gap),
            Decides::Oracle => NEVER,
        };
        let at = self.last.map_or(packet.at, |(last, _)| last.max(packet.at));
        self.last = Some((at, wait));
    }

    /// The packet passes now, later by the shift of its session, or at the end of the current
    /// delay.
    fn queue(&mut self, packet: Packet) {
        let now = packet.at;
        self.advance(now);
        let known = self.sessions.get_mut(&packet.session);
        let known = known.filter(|session| now.since(session.seen) <= self.forgets);
        let session = match known {
            Some(session) => {
                session.seen = now;
                *session
            }
            None => self.begin(&packet),
        };
        match (session.later, &mut self.held) {
            (None, Some((_, held))) => held.push((session.begins, packet)),
            (Some(later), _) if later.is_zero() => {
                self.pass(packet);
                self.wake(now);
            }
            (later, _) => self.delay(packet, later.unwrap_or_default()),
        }
    }

    /// Starts a session.
    fn begin(&mut self, packet: &Packet) -> Session {
        let now = packet.at;
        let mut session = Session { begins: now, seen: now, later: Some(Span::ZERO) };
        if (self.tolerates)(packet) {
            let is_released = self.is_released(now);
            if let Decides::Policy(policy) = &mut self.decides {
                policy.begins(now.as_secs_f64());
                if is_released && self.held.is_none() {
                    let hold = Span::from_secs_f64(policy.hold(now.as_secs_f64()));
                    self.held = (!hold.is_zero()).then(|| (now + hold, Vec::new()));
                }
            }
            match is_released && self.held.is_some() {
                true => session.later = None,
                false => self.delays.push(Span::ZERO),
            }
        }
        if self.sessions.len() >= self.forgets_at {
            let forgets = self.forgets;
            self.sessions
                .retain(|_, session| session.later.is_none() || now.since(session.seen) <= forgets);
            self.forgets_at = (2 * self.sessions.len()).max(SESSIONS);
        }
        self.sessions.insert(packet.session, session);
        session
    }

    fn is_released(&self, now: Time) -> bool {
        let Some((last, wait)) = self.last else { return true };
        now.since(last).as_secs_f64() > wait.min(self.meter.choice().stay.released())
    }

    fn delay(&mut self, packet: Packet, later: Span) {
        let at = packet.at + later;
        self.coming.push(Reverse((at, self.count, Packet { at, ..packet })));
        self.count += 1;
    }

    /// Releases the delayed sessions.
    fn wake(&mut self, now: Time) {
        let Some((_, held)) = self.held.take() else { return };
        // A flow may have started several sessions meanwhile.
        let mut told = HashSet::new();
        for (begins, packet) in held {
            let later = now.since(begins);
            if told.insert((packet.session, begins)) {
                self.delays.push(later);
            }
            let session = self.sessions.get_mut(&packet.session);
            if let Some(session) = session.filter(|session| session.begins == begins) {
                session.later = Some(later);
            }
            self.delay(packet, later);
        }
    }

    /// Passes all packets up to `until`.
    fn advance(&mut self, until: Time) {
        loop {
            let opens = self.held.as_ref().map_or(Time::MAX, |(opens, _)| *opens);
            let next = self.coming.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
            if opens.min(next) > until || opens == next && opens == Time::MAX {
                return;
            }
            if opens <= next {
                self.wake(opens);
            } else if let Some(Reverse((at, _, packet))) = self.coming.pop() {
                self.pass(packet);
                self.wake(at);
            }
        }
    }
}

fn foresees(oracle: &Oracle, gap: Option<f64>) -> f64 {
    if oracle.sleeps(gap) { 0.0 } else { NEVER }
}

#[cfg(test)]
mod tests;
