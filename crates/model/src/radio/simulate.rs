//! Runs a policy over a trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use manyways_unit::quantile::nearest_rank;
use manyways_unit::{Span, Time};

use super::meter::{Account, Meter, Oracle};
use super::policy::{NEVER, Policy};
use super::{Packet, Profile};

/// A session of which nothing passed for so long is a new one when something does: nobody has to
/// remember it for longer.
const FORGOTTEN: Span = Span::from_secs(900);
/// Sessions that are remembered before it is looked for the first time what can be forgotten.
const SESSIONS: usize = 1_024;

/// What a policy did.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// What the radio took.
    pub account: Account,
    /// How often it did what who knows what comes would have done.
    pub switches: Switches,
    /// How long sessions that could wait were held back.
    pub delays: Delays,
    /// From the first packet to the last.
    pub lasts: Span,
}

/// Gaps between packets, by whether the radio was released in them, and whether it would have been by
/// who knows what comes (§4.6.3 of Deng's thesis).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Switches {
    /// Released, and rightly so.
    pub right: u64,
    /// Released, and it should not have been.
    pub wrong: u64,
    /// Not released, and rightly so.
    pub stayed: u64,
    /// Not released, and it should have been.
    pub missed: u64,
}

/// How long sessions were held back: of those that could wait, also those that were not.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Delays {
    /// Sessions.
    pub count: u64,
    /// Those that were held back.
    pub held: u64,
    /// Seconds of all together.
    pub sum: f64,
    /// Of those that were held back, how many by the number of hundredths of a second.
    hundredths: Vec<u64>,
}

/// Delays above this are counted as this.
const LONGEST_DELAY: f64 = 3_600.0;

impl Switches {
    /// N_FS / (N_FS + N_TN); none where it should have been released in every gap.
    pub fn false_rate(&self) -> Option<f64> {
        share(self.wrong, self.stayed)
    }

    /// N_MS / (N_MS + N_TP); none where it should not have been released in any.
    pub fn missed_rate(&self) -> Option<f64> {
        share(self.missed, self.right)
    }
}

fn share(part: u64, rest: u64) -> Option<f64> {
    (part + rest > 0).then(|| part as f64 / (part + rest) as f64)
}

impl Delays {
    /// One session more, which was held back for so long.
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

    /// Those of another trace as well.
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

    /// Mean of those that were held back, in seconds.
    pub fn mean(&self) -> Option<f64> {
        (self.held > 0).then(|| self.sum / self.held as f64)
    }

    /// The delay, in seconds to a hundredth, that so large a share of those that were held back does not
    /// exceed.
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

/// Who decides.
pub enum Decides<'a> {
    /// Somebody who knows only what was.
    Policy(&'a mut dyn Policy),
    /// Somebody who knows what comes, and delays nothing.
    Oracle,
}

/// A run: packets in, an [`Outcome`] out.
///
/// Packets are where they are, whatever the radio does; only where a policy holds a session back, all
/// packets of that session come so much later. A session can be held back if `tolerates` says so of its
/// first packet, and only while the radio is released; when something else wakes the radio, all that
/// was held back passes at once.
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
    /// A session of which nothing passed for longer is a new one when something does.
    forgets: Span,
    /// Until when something is held back, and what, each with when its session began.
    held: Option<(Time, Vec<(Time, Packet)>)>,
    /// Packets of sessions that were held back, by when they pass now.
    coming: BinaryHeap<Reverse<(Time, u64, Packet)>>,
    count: u64,
}

#[derive(Clone, Copy)]
struct Session {
    begins: Time,
    seen: Time,
    /// So much later than they are all its packets pass; none while it is held back.
    later: Option<Span>,
}

impl<'p, 't> Simulation<'p, 't> {
    /// Nothing has passed yet.
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

    /// Sessions end with a shorter silence: what comes behind it on the same flow may be held back again.
    pub fn ending_sessions(mut self, silence: Span) -> Self {
        self.forgets = silence;
        self
    }

    /// The next packet of the trace. One that is earlier than its predecessor is taken for as late.
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

    /// The trace is over.
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

    /// It passes now.
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

    /// It passes now, later, or when what is held back passes.
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

    /// A session begins.
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

    /// What is held back goes on its way.
    fn wake(&mut self, now: Time) {
        let Some((_, held)) = self.held.take() else { return };
        // A flow may have begun several sessions meanwhile.
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

    /// All that passes until then.
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
