//! How much a server may send: the windows of streams, and credit withheld so that an answer ends
//! where it should.

use manyways_unit::{Rate, Size, Span, Time};

use super::transfer::{Fetch, Request};
use super::{Output, PathId, RangeEnd, RequestId, Scheduler};
use crate::estimate::Conditions;

/// The window of a stream on a path of which nothing is known: what slow start sends in its first
/// three round trips. Credit that is out cannot be taken back, so it begins small.
const FIRST_WINDOW: u64 = 96 << 10;
/// No window is smaller, as slow as the path may be.
const LEAST_WINDOW: u64 = 64 << 10;
/// The largest window, and that of a stream that nobody needs to cut.
const MOST_WINDOW: u64 = 8 << 20;
/// What a path can bring in this time may be under way whatever its round trip is: programs on a
/// busy host do not answer within microseconds.
const LEAST_ROUND: Span = Span::from_millis(10);
/// Nothing of a TLS record can be used before all of it is there, so that much more is under way
/// than is seen.
const TLS_RECORD: u64 = 16 << 10;
/// A window shrinks when it was too large for so many rounds.
const ROUNDS: usize = 3;

impl Fetch {
    /// The window of a path's streams before anything came over it.
    pub(super) fn first_window(&self, known: Option<Conditions>) -> u64 {
        if !self.limits_credit() {
            return MOST_WINDOW;
        }
        let known =
            known.map(|known| 2 * known.rate.size_in(known.rtt.max(LEAST_ROUND)).as_bytes());
        known.map_or(FIRST_WINDOW, |known| known.clamp(LEAST_WINDOW, MOST_WINDOW))
    }

    /// Whether streams get no more credit than they need, so that they can be cut exactly.
    pub(super) fn limits_credit(&self) -> bool {
        let paths = self.paths.values().filter(|path| path.state.is_alive()).count();
        self.config.range_end == RangeEnd::Window
            && !matches!(self.config.scheduler, Scheduler::FixedChunk(_))
            && (paths > 1 || self.config.stop_after.is_some() || self.config.ahead.is_some())
    }

    /// Gives a request the credit that it may have: a window ahead of what has come, and nothing
    /// past its end.
    pub(super) fn grant(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(path) = self.paths.get(&request.path) else { return };
        if !path.multiplexed {
            // All, so that its end is read too.
            let all = self.horizon >= request.wire.end;
            let target = if all { u64::MAX } else { self.horizon };
            if let more @ 1.. = target.saturating_sub(request.granted) {
                request.granted = target;
                self.outputs.push_back(Output::Credit { request: id, bytes: more });
            }
            return;
        }
        let ahead = request.pos.saturating_add(path.window);
        let limit = match self.config.range_end {
            RangeEnd::Window => request.end,
            RangeEnd::Reset => request.wire.end,
        };
        let limit = limit.min(self.horizon);
        let target = ahead.min(limit);
        let more = target.saturating_sub(request.granted);
        let rest = limit.saturating_sub(target);
        // Many small credits make many small frames, and a last sliver would wait until nearly
        // all before it has come.
        let sliver = rest > 0 && rest < path.window / 3;
        let low = request.granted.saturating_sub(request.pos) < path.window / 4;
        if more == 0 || !low && (sliver || (rest > 0 && more < path.window / 4)) {
            return;
        }
        request.granted = target;
        self.outputs.push_back(Output::Credit { request: id, bytes: more });
    }

    /// Less credit than this at once is late.
    pub(super) fn least_credit(&self, id: PathId) -> u64 {
        let path = self.paths.get(&id).filter(|path| path.multiplexed);
        path.map_or(0, |path| path.window / 3)
    }

    /// A request is to end sooner than it was.
    pub(super) fn shorten(&mut self, now: Time, id: RequestId, end: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.end = end;
        self.outputs.push_back(Output::RangeEnd { request: id, end });
        self.advance(now, id);
    }

    /// A request is to go on past where it was to end.
    pub(super) fn prolonged(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        self.outputs.push_back(Output::RangeEnd { request: id, end: request.end });
        self.grant(id);
    }

    /// Lets the window of a path follow what it brings: twice what comes in a round trip, and more
    /// while that still grows as in slow start. What is too much only waits in a queue, makes every
    /// round trip longer, and comes too late to be cut.
    pub(super) fn size_window(&mut self, now: Time, id: PathId, length: u64) {
        let limited = self.limits_credit();
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.round.1 += length;
        let rtt = path.round_trip.least().or(path.delay).unwrap_or_default().max(LEAST_ROUND);
        let elapsed = now.since(path.round.0);
        if !path.multiplexed || elapsed < rtt {
            return;
        }
        let came = Rate::of(Size::from_bytes(path.round.1), elapsed).size_in(rtt).as_bytes();
        let mut came = came + TLS_RECORD;
        let before = path.rounds.back().copied().unwrap_or(0);
        let earlier = path.rounds.iter().nth_back(1).copied().unwrap_or(0);
        if before * 3 < earlier * 2 && came > before {
            // What waited for a lost packet comes at once with it, and is no rate.
            came = came.midpoint(before);
        }
        // What was measured before this round knows nothing of the queue that it has built.
        let flat = path.round_trip.is_flat() && path.measured_at >= path.round.0;
        path.round = (now, 0);
        path.rounds.push_back(came);
        if path.rounds.len() > ROUNDS {
            path.rounds.pop_front();
        }
        let old = path.window;
        let most = path.rounds.iter().copied().max().unwrap_or(came);
        path.settled |= came * 4 <= before * 5 && came * 5 <= old * 3;
        let wanted = if !limited {
            MOST_WINDOW
        } else if !path.settled && came * 4 > before * 5 {
            // While no queue builds up, or each round brings twice what the last did, the link is
            // not full, and nothing speaks against letting slow start have its way.
            let raw = |round: u64| round.saturating_sub(TLS_RECORD);
            let doubles = before > 0 && raw(came) * 100 >= raw(before) * 185;
            old.max(if doubles || flat { 4 * came } else { came * 5 / 2 })
        } else if came * 5 > old * 3 {
            // The window may be what holds it back.
            2 * came
        } else if most * 9 < old * 4 && path.rounds.len() == ROUNDS {
            2 * most
        } else {
            old
        };
        let wanted = wanted.clamp(LEAST_WINDOW, MOST_WINDOW);
        if wanted < old + old / 8 && wanted + old / 8 > old {
            return;
        }
        // It is one setting for all streams; none that was cut may get credit past its end.
        let reset = self.config.range_end == RangeEnd::Reset;
        let fits = |request: &Request| {
            let open = reset || request.end >= request.wire.end;
            if wanted > old {
                let limit = if open { u64::MAX } else { request.end };
                request.granted + (wanted - old) <= limit.min(self.horizon)
            } else {
                // What is out already may come before the server hears of it.
                open
            }
        };
        if !self.requests.values().filter(|request| request.path == id).all(fits) {
            return;
        }
        path.window = wanted;
        for request in self.requests.values_mut().filter(|request| request.path == id) {
            request.granted = (request.granted + wanted).saturating_sub(old);
        }
        self.outputs.push_back(Output::Window { path: id, bytes: wanted });
    }

    /// Whoever takes the bytes is so far.
    pub(super) fn taken(&mut self, now: Time, upto: u64) {
        let Some(ahead) = self.config.ahead else { return };
        // In large steps, or requests would be small; all at once where nothing is left to take.
        let next = upto.saturating_add(ahead);
        let dry = upto >= self.done.end();
        if next <= self.horizon || !dry && next - self.horizon < ahead / 4 {
            return;
        }
        let held: Vec<RequestId> =
            self.requests.iter().filter(|(_, r)| self.is_held(r)).map(|(id, _)| *id).collect();
        self.horizon = next;
        // It was not the network that kept everybody waiting.
        self.useful_at = now;
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            if let Some(path) = self.requests.get(&id).map(|request| request.path)
                && let Some(path) = self.paths.get_mut(&path)
                && held.contains(&id)
            {
                path.heard = now;
            }
            self.grant(id);
            self.advance(now, id);
        }
    }

    /// Whether a request waits for bytes to be taken, and not for the server.
    pub(super) fn is_held(&self, request: &Request) -> bool {
        request.answered && request.pos >= self.horizon && request.pos < request.wire.end
    }
}
