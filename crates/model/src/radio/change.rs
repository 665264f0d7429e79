//! Shifted and removed sessions of an application, for what-if questions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use manyways_unit::{Span, Time};

use super::{BURST_GAP, Packet};

/// A change to the sessions of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Delays each session to the next multiple of this interval, counted from the first packet of
    /// the trace.
    Batch(Span),
    /// Starts all sessions that begin within this time after a first one together with that first
    /// one.
    Prefetch(Span),
    /// Removes the sessions.
    Drop,
}

/// Effect of a change on the sessions.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ChangeEffect {
    /// Sessions that the change applies to.
    pub sessions: u64,
    /// Sessions that were shifted or removed.
    pub changed: u64,
    /// Sum of all shifts.
    pub shift: Span,
    /// Largest shift.
    pub max_shift: Span,
}

/// Applies a change to a trace; input and output are in order of time. All packets of a session are
/// shifted by the same time.
///
/// A session ends after a gap of more than 1.5 s, even if its flow continues: each heartbeat of a
/// persistent connection is one session. Memory grows with the time of the change and the number of
/// active sessions.
#[derive(Clone, Debug)]
pub struct TraceEditor {
    change: Change,
    first: Option<Time>,
    /// Prefetch only: start of the last session that was not shifted.
    batch_start: Option<Time>,
    sessions: HashMap<u32, SessionShift>,
    cleanup_at: usize,
    waiting: BinaryHeap<Reverse<(Time, u64, Packet)>>,
    count: u64,
    effect: ChangeEffect,
}

#[derive(Clone, Copy, Debug)]
struct SessionShift {
    last_packet: Time,
    /// Original and new start.
    original_start: Time,
    new_start: Time,
}

const SESSIONS_BEFORE_CLEANUP: usize = 1_024;

impl TraceEditor {
    pub fn new(change: Change) -> Self {
        Self {
            change,
            first: None,
            batch_start: None,
            sessions: HashMap::new(),
            cleanup_at: SESSIONS_BEFORE_CLEANUP,
            waiting: BinaryHeap::new(),
            count: 0,
            effect: ChangeEffect::default(),
        }
    }

    /// Adds a packet; `changes` is true if its application is changed. Passes each packet whose new
    /// position is final to `each`.
    pub fn push(&mut self, packet: Packet, changes: bool, mut each: impl FnMut(Packet)) {
        let now = packet.at;
        let first = *self.first.get_or_insert(now);
        let at = if changes { self.shifted_time(&packet, first) } else { Some(now) };
        if let Some(at) = at {
            self.waiting.push(Reverse((at, self.count, Packet { at, ..packet })));
            self.count += 1;
        }
        // A later packet cannot get a time before this one.
        let ahead = if let Change::Prefetch(ahead) = self.change { ahead } else { Span::ZERO };
        let safe = Time::from_nanos(now.as_nanos().saturating_sub(ahead.as_nanos()));
        while let Some(Reverse((at, ..))) = self.waiting.peek()
            && *at <= safe
            && let Some(Reverse((_, _, packet))) = self.waiting.pop()
        {
            each(packet);
        }
    }

    /// Ends the trace and passes the remaining packets to `each`.
    pub fn finish(&mut self, mut each: impl FnMut(Packet)) {
        while let Some(Reverse((_, _, packet))) = self.waiting.pop() {
            each(packet);
        }
    }

    pub fn effect(&self) -> ChangeEffect {
        self.effect
    }

    /// New time of the packet; `None` if it is removed.
    fn shifted_time(&mut self, packet: &Packet, first: Time) -> Option<Time> {
        let now = packet.at;
        if self.sessions.len() >= self.cleanup_at {
            self.sessions.retain(|_, shift| now.since(shift.last_packet) <= BURST_GAP);
            self.cleanup_at = (2 * self.sessions.len()).max(SESSIONS_BEFORE_CLEANUP);
        }
        let known = self.sessions.get_mut(&packet.session);
        let shift = match known.filter(|shift| now.since(shift.last_packet) <= BURST_GAP) {
            Some(shift) => {
                shift.last_packet = now;
                *shift
            }
            None => {
                let is = self.session_start(now, first);
                let shift = SessionShift { last_packet: now, original_start: now, new_start: is };
                self.sessions.insert(packet.session, shift);
                shift
            }
        };
        if self.change == Change::Drop {
            return None;
        }
        Some(shift.new_start + now.since(shift.original_start))
    }

    /// New start of a session that starts at `now`.
    fn session_start(&mut self, now: Time, first: Time) -> Time {
        let is = match self.change {
            Change::Batch(every) => {
                let (since, interval) = (now.since(first).as_nanos(), every.as_nanos().max(1));
                first + Span::from_nanos(since.div_ceil(interval).saturating_mul(interval))
            }
            Change::Prefetch(ahead) => match self.batch_start {
                Some(opened) if now.since(opened) <= ahead => opened,
                _ => {
                    self.batch_start = Some(now);
                    now
                }
            },
            Change::Drop => now,
        };
        let by = is.since(now).max(now.since(is));
        self.effect.sessions += 1;
        if !by.is_zero() || self.change == Change::Drop {
            self.effect.changed += 1;
            self.effect.shift += by;
            self.effect.max_shift = self.effect.max_shift.max(by);
        }
        is
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::radio::Direction;

    fn packet(millis: u64, app: u16, session: u32) -> Packet {
        let at = Time::from_millis(millis);
        Packet { at, direction: Direction::Up, bytes: 100, app, session }
    }

    fn run(change: Change, packets: &[Packet]) -> (Vec<(u64, u16)>, ChangeEffect) {
        let mut changed = TraceEditor::new(change);
        let mut out = Vec::new();
        for packet in packets {
            changed.push(*packet, packet.app == 1, |packet| out.push(packet));
        }
        changed.finish(|packet| out.push(packet));
        let out = out.iter().map(|packet| (packet.at.as_nanos() / 1_000_000, packet.app));
        (out.collect(), changed.effect())
    }

    fn trace() -> Vec<Packet> {
        vec![
            packet(1_000, 0, 1),
            packet(5_000, 1, 2),
            packet(5_200, 1, 2),
            packet(8_000, 0, 3),
            packet(9_000, 1, 4),
            packet(30_000, 1, 5),
        ]
    }

    #[test]
    fn a_batch_waits_for_its_time() {
        // Multiples of 10 s since the first packet.
        let (out, moved) = run(Change::Batch(Span::from_secs(10)), &trace());
        let expected = [(1_000, 0), (8_000, 0), (11_000, 1), (11_000, 1), (11_200, 1), (31_000, 1)];
        assert_eq!(out, expected);
        assert_eq!((moved.sessions, moved.changed), (3, 3));
        assert!(moved.shift == Span::from_secs(9) && moved.max_shift == Span::from_secs(6));
    }

    #[test]
    fn a_prefetch_starts_sessions_that_would_begin_soon() {
        let (out, moved) = run(Change::Prefetch(Span::from_secs(10)), &trace());
        let expected = [(1_000, 0), (5_000, 1), (5_000, 1), (5_200, 1), (8_000, 0), (30_000, 1)];
        assert_eq!(out, expected);
        assert_eq!((moved.sessions, moved.changed, moved.max_shift), (3, 1, Span::from_secs(4)));
    }

    /// A persistent connection sends a heartbeat every 10 s; each one is a session.
    #[test]
    fn a_gap_ends_a_session() {
        let beats: Vec<Packet> = (0..7).map(|beat| packet(10_000 * beat, 1, 9)).collect();
        let (out, moved) = run(Change::Batch(Span::from_secs(30)), &beats);
        let times: Vec<u64> = out.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 30_000, 30_000, 30_000, 60_000, 60_000, 60_000]);
        assert_eq!((moved.sessions, moved.changed), (7, 4));
    }

    #[test]
    fn dropped_sessions_are_removed() {
        let (out, moved) = run(Change::Drop, &trace());
        assert_eq!(out, [(1_000, 0), (8_000, 0)]);
        assert_eq!((moved.sessions, moved.changed), (3, 3));
    }

    proptest! {
        /// No packet is lost, the output is in order, and the packets of other applications keep
        /// their times.
        #[test]
        fn a_change_moves_only_its_sessions(
            gaps in prop::collection::vec((0_u64..20_000, 0_u16..2, 0_u32..20), 1..200),
            secs in 1_u64..60,
            is_batch: bool,
        ) {
            let mut now = 0;
            let packets: Vec<Packet> = gaps
                .iter()
                .map(|(gap, app, session)| {
                    now += gap;
                    packet(now, *app, *session * 2 + u32::from(*app))
                })
                .collect();
            let span = Span::from_secs(secs);
            let change = if is_batch { Change::Batch(span) } else { Change::Prefetch(span) };
            let (out, moved) = run(change, &packets);
            prop_assert_eq!(out.len(), packets.len());
            prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
            let of = |app| out.iter().filter(move |(_, one)| *one == app).map(|(at, _)| *at);
            let stay = packets.iter().filter(|packet| packet.app == 0);
            let stay: Vec<u64> = stay.map(|packet| packet.at.as_nanos() / 1_000_000).collect();
            prop_assert_eq!(of(0).collect::<Vec<_>>(), stay);
            prop_assert!(moved.max_shift <= Span::from_secs(secs));
        }
    }
}
