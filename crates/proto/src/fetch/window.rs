//! Size of the flow-control windows of a path's streams.

use std::collections::VecDeque;
use std::mem;

use manyways_unit::{Rate, Size, Span, Time};

use super::{CutMethod, Fetch, Output, PathId};

/// Initial window of a stream on an unknown path: the bytes that slow start sends in the first
/// three round trips. The window begins small because credit cannot be withdrawn.
const INITIAL_WINDOW: u64 = 96 << 10;
/// Minimum window, for slow paths.
const MIN_WINDOW: u64 = 64 << 10;
/// Maximum window, also used for streams that need not be cut.
const MAX_WINDOW: u64 = 8 << 20;
/// Minimum round. The bytes of a path in this time may always be in flight, because programs on a
/// busy host do not respond within microseconds.
const MIN_ROUND: Span = Span::from_millis(10);
/// A TLS record is usable only when it is complete. Therefore up to one more record is in flight
/// than the application sees.
const TLS_RECORD: u64 = 16 << 10;
/// A window may limit the rate if a round has more than 7/12 of it. The client grants credit in
/// eighths of a window, and h2 announces the last third of the granted credit late.
const LIMITING_SHARE: (u64, u64) = (12, 7);
/// Addition to the window for credit that is announced late.
const LATE_CREDIT_PERCENT: u64 = 125;
/// Number of rounds for which a window must be too large before it shrinks.
const SHRINK_ROUNDS: usize = 3;
/// Growth of a round over the previous one that shows slow start.
const DOUBLING_PERCENT: u64 = 185;

/// The flow-control windows of a path, and the measurements that set it.
#[derive(Debug)]
pub(super) struct Window {
    /// Of each stream, in bytes.
    pub(super) size: u64,
    /// Of the connection, in bytes.
    pub(super) connection: u64,
    /// Of each stream before its last change: the server learns of a change half a round trip later,
    /// and its bytes need another half.
    effective: u64,
    /// Start of the current round, and the bytes received since then.
    round: (Time, u64),
    /// Bytes of each recent round.
    recent_rounds: VecDeque<u64>,
    growth: Growth,
}

/// Whether the bytes per round still grow as in slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    SlowStart,
    Settled,
}

impl Window {
    pub(super) fn new(now: Time, size: u64) -> Self {
        Self {
            size,
            connection: connection_window(size),
            effective: size,
            round: (now, 0),
            recent_rounds: VecDeque::new(),
            growth: Growth::SlowStart,
        }
    }

    /// Sets the windows of a new connection.
    pub(super) fn set_initial(&mut self, size: u64) {
        self.size = size;
        self.connection = connection_window(size);
        self.effective = size;
    }

    /// Begins the measurements of a new connection, which already uses this window size.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Self::new(now, self.size);
    }

    /// Begins a round at a response after a pause.
    pub(super) fn begin_round(&mut self, now: Time) {
        self.round = (now, 0);
    }

    /// Bytes that the next round trip will bring if the connection is in slow start; `None` if it is
    /// not.
    pub(super) fn slow_start_window(&self) -> Option<u64> {
        let raw = |round: &u64| round.saturating_sub(TLS_RECORD);
        let mut rounds = self.recent_rounds.iter().rev().map(raw);
        let doubles = |last: u64, before: u64| last * 100 >= before * DOUBLING_PERCENT;
        let last = rounds.next().filter(|last| *last > 0);
        match (self.growth, last, rounds.next()) {
            (Growth::SlowStart, Some(last), Some(before)) if doubles(last, before) => {
                Some(2 * last)
            }
            (Growth::SlowStart, Some(last), None) => Some(2 * last),
            _ => None,
        }
    }

    /// Ends the round if it has lasted one round trip. Returns the window size that suits its
    /// bytes.
    fn close_round(&mut self, now: Time, rtt: Span, piece: u64) -> Option<u64> {
        let elapsed = now.since(self.round.0);
        if elapsed < rtt {
            self.round.1 += piece;
            return None;
        }
        if self.round.1 == 0 {
            self.round = (now, piece);
            return None;
        }
        let effective = mem::replace(&mut self.effective, self.size);
        let came = Rate::of(Size::from_bytes(self.round.1), elapsed).size_in(rtt).as_bytes();
        let mut came = came + TLS_RECORD;
        let before = self.recent_rounds.back().copied().unwrap_or(0);
        let earlier = self.recent_rounds.iter().nth_back(1).copied().unwrap_or(0);
        if before * 3 < earlier * 2 && came > before {
            // Bytes that waited for a retransmission arrive together with it and do not show the
            // rate.
            came = came.midpoint(before);
        }
        self.round = (now, piece);
        self.recent_rounds.push_back(came);
        if self.recent_rounds.len() > SHRINK_ROUNDS {
            self.recent_rounds.pop_front();
        }
        let max = self.recent_rounds.iter().copied().max().unwrap_or(came);
        let raw = |round: u64| round.saturating_sub(TLS_RECORD);
        let (window, limit) = LIMITING_SHARE;
        let is_limiting = raw(came) * window > effective * limit;
        if came * 4 <= before * 5 && !is_limiting {
            self.growth = Growth::Settled;
        }
        let growth = match before.max(earlier) {
            // A round that the window limits hides the growth.
            _ if is_limiting => 200,
            0 => 100,
            // A round may have one record more than the previous one by chance.
            highest => (raw(raw(came)) * 100 / raw(highest).max(1)).clamp(100, 200),
        };
        // The bytes of the next round are already on their way, and the window applies to those of
        // the round after it.
        let wanted = came * (growth * growth * LATE_CREDIT_PERCENT / 100).max(20_000) / 10_000;
        Some(if wanted > self.size {
            wanted
        } else if max * 9 < self.size * 4 && self.recent_rounds.len() == SHRINK_ROUNDS {
            2 * max
        } else {
            self.size
        })
    }
}

/// Returns the window of a connection without withheld credit, for this window of its streams. When
/// one stream replaces another, the rest of the previous one is still in flight; two full windows
/// would overrun the queue.
fn connection_window(stream: u64) -> u64 {
    stream + stream / 2
}

impl Fetch {
    /// The window of a path's streams before the first measurement. It does not depend on stored
    /// estimates: a wrong one would limit slow start.
    pub(super) fn initial_window(&self) -> u64 {
        if self.limits_credit() { INITIAL_WINDOW } else { MAX_WINDOW }
    }

    /// Whether streams get only the necessary credit, so that they can be cut exactly.
    pub(super) fn limits_credit(&self) -> bool {
        // A path without its interface may return, and credit cannot be withdrawn.
        let paths = self.paths.values().filter(|path| !path.state.is_dropped()).count();
        self.config.cut_method == CutMethod::Window
            && !self.config.scheduler.is_by_chunks()
            && (paths > 1 || self.config.stop_after.is_some() || self.config.read_ahead.is_some())
    }

    /// Adapts the window of a path to its received bytes: twice the bytes of a round trip, and up to
    /// five times while these still grow as in slow start. A larger window only fills queues,
    /// increases the RTT, and leaves more bytes in flight when a request is cut.
    pub(super) fn adjust_window(&mut self, now: Time, id: PathId, length: u64) {
        let is_limited = self.limits_credit();
        let Some(path) = self.paths.get_mut(&id) else { return };
        let rtt = path.round_trip.min_rtt().or(path.response_delay).unwrap_or_default();
        let is_multiplexed = path.is_multiplexed();
        let old = path.window.size;
        let Some(wanted) = path.window.close_round(now, rtt.max(MIN_ROUND), length) else {
            return;
        };
        if !is_multiplexed {
            return;
        }
        let wanted = if is_limited { wanted.clamp(MIN_WINDOW, MAX_WINDOW) } else { MAX_WINDOW };
        let is_close = wanted < old + old / 8 && wanted + old / 8 > old;
        if is_close || !self.fits_requests(id, old, wanted) {
            return;
        }
        if let Some(path) = self.paths.get_mut(&id) {
            path.window.size = wanted;
        }
        for request in self.requests.values_mut().filter(|request| request.path == id) {
            request.granted = (request.granted + wanted).saturating_sub(old);
        }
        self.outputs.push_back(Output::Window { path: id, bytes: wanted });
    }

    /// Adds the withheld credit of a connection's streams to its window. A byte uses the window of the
    /// connection until its credit is granted again, and a request whose end is near gets no more
    /// credit. Two such requests would use up the window, and a server that serves them by turns could
    /// finish neither.
    pub(super) fn adjust_connection_windows(&mut self) {
        for (id, path) in &mut self.paths {
            if !path.is_multiplexed() {
                continue;
            }
            let size = path.window.size;
            let requests = self.requests.values().filter(|request| request.path == *id);
            let withheld = requests.map(|request| {
                size.saturating_sub(request.granted.saturating_sub(request.next_offset))
            });
            let wanted = connection_window(size) + withheld.sum::<u64>();
            // Small changes would cost many frames.
            if wanted.abs_diff(path.window.connection) >= size / 4 {
                path.window.connection = wanted;
                self.outputs.push_back(Output::ConnectionWindow { path: *id, bytes: wanted });
            }
        }
    }

    /// Whether a change of the window gives no request of the path credit past its end. The window
    /// is one setting for all streams of a path.
    fn fits_requests(&self, path: PathId, old: u64, wanted: u64) -> bool {
        let by_reset = self.config.cut_method == CutMethod::Reset;
        self.requests.values().filter(|request| request.path == path).all(|request| {
            let is_uncut = by_reset || request.end >= request.requested.end;
            if wanted > old {
                let limit = if is_uncut { u64::MAX } else { request.end };
                request.granted + (wanted - old) <= limit.min(self.horizon)
            } else {
                // The server may use its credit before it learns of the change.
                is_uncut
            }
        })
    }
}
