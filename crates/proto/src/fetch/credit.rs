//! Flow-control credit: how far a server may send. Credit is withheld to end a response at the
//! intended byte, and while the reader lags behind.

use manyways_unit::{Span, Time};

use super::request::Request;
use super::{CutMethod, Fetch, Output, PathId, RequestId};

/// Some servers (lighttpd) send no part of a body while their credit is smaller than this.
const MIN_USED_CREDIT: u64 = 2_048;
/// Response delays without a byte after which a server counts as one of these.
const UNUSED_DELAYS: u64 = 2;
/// Lower bound of this time.
const MIN_UNUSED_TIME: Span = Span::from_millis(50);

impl Fetch {
    /// Grants a request its credit: one window past the received bytes, and no byte past its end.
    pub(super) fn grant(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(path) = self.paths.get(&request.path) else { return };
        if !path.is_multiplexed() {
            // All credit, so that the end of the body is also read.
            let is_all = self.horizon >= request.requested.end;
            let target = if is_all { u64::MAX } else { self.horizon };
            if let more @ 1.. = target.saturating_sub(request.granted) {
                request.granted = target;
                self.outputs.push_back(Output::Credit { request: id, bytes: more });
            }
            return;
        }
        let window = path.window.size;
        let limit = match self.config.cut_method {
            CutMethod::Window => request.end,
            CutMethod::Reset => request.requested.end,
        };
        let limit = limit.min(self.horizon);
        let target = request.next_offset.saturating_add(window).min(limit);
        let more = target.saturating_sub(request.granted);
        let rest = limit.saturating_sub(target);
        // Many small credits would cost many small frames. A small remainder would be granted only
        // after nearly all bytes before it have arrived.
        let leaves_sliver = rest > 0 && rest < window / 3;
        let is_low = request.granted.saturating_sub(request.next_offset) < window / 4;
        let is_small = rest > 0 && more < window / 8;
        if more == 0 || !is_low && (leaves_sliver || is_small) {
            return;
        }
        request.granted = target;
        self.outputs.push_back(Output::Credit { request: id, bytes: more });
    }

    /// Enlarges small remainders of credit that servers do not use.
    pub(super) fn enlarge_unused_credit(&mut self, now: Time) {
        let unused = self.requests.iter();
        let unused = unused
            .filter(|(_, request)| self.unused_credit_at(request).is_some_and(|at| at <= now));
        let unused: Vec<RequestId> = unused.map(|(id, _)| *id).collect();
        for id in unused {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let granted = request.next_offset + MIN_USED_CREDIT;
            let bytes = granted.saturating_sub(request.granted);
            request.granted = granted;
            self.outputs.push_back(Output::Credit { request: id, bytes });
        }
    }

    /// When the last credit of a request counts as unused; `None` if it is large enough for every
    /// server, or if the body ends with it.
    pub(super) fn unused_credit_at(&self, request: &Request) -> Option<Time> {
        let path = self.paths.get(&request.path)?;
        let credit = request.granted.saturating_sub(request.next_offset);
        let is_small = (1..MIN_USED_CREDIT).contains(&credit)
            && request.granted >= request.end
            && request.granted < request.requested.end;
        if !is_small || request.remaining() == 0 || !request.is_answered() || !path.is_multiplexed()
        {
            return None;
        }
        let delay = path.round_trip.mean().or(path.response_delay).unwrap_or_default();
        Some(request.received_at + MIN_UNUSED_TIME.max(delay * UNUSED_DELAYS))
    }

    /// Smallest credit that is worth granting separately, see [`Fetch::grant`].
    pub(super) fn min_credit(&self, id: PathId) -> u64 {
        let path = self.paths.get(&id).filter(|path| path.is_multiplexed());
        path.map_or(0, |path| path.window.size / 3)
    }

    /// Whether a request of the path can be ended early without a new connection or duplicate
    /// bytes.
    pub(super) fn can_cut_freely(&self, path: PathId) -> bool {
        self.config.cut_method == CutMethod::Window
            && self.paths.get(&path).is_some_and(|path| path.is_multiplexed())
    }

    /// Moves the end of a request down to `end`.
    pub(super) fn shorten(&mut self, now: Time, id: RequestId, end: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.end = end;
        self.outputs.push_back(Output::Cut { request: id, end });
        self.set_due(now, id);
        self.advance(now, id);
    }

    /// Announces that the end of a request has moved up, and grants the credit.
    pub(super) fn extend(&mut self, now: Time, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        self.outputs.push_back(Output::Cut { request: id, end: request.end });
        self.set_due(now, id);
        self.grant(id);
    }

    /// Notes that the reader has taken every byte before `upto`.
    pub(super) fn on_consumed(&mut self, now: Time, upto: u64) {
        let Some(ahead) = self.config.ahead_of(upto) else { return };
        // The horizon moves in large steps because small ones lead to small requests. It moves at
        // once if the reader has taken all that exists.
        let next = upto.saturating_add(ahead);
        let is_dry = upto >= self.done.end();
        if next <= self.horizon || !is_dry && next - self.horizon < ahead / 4 {
            return;
        }
        let requests = self.requests.iter();
        let requests = requests.map(|(id, request)| (*id, self.is_reader_blocked(request)));
        let requests: Vec<(RequestId, bool)> = requests.collect();
        self.horizon = next;
        // The reader caused the wait, not the network.
        self.last_useful_at = now;
        for (id, was_blocked) in requests {
            let path = self.requests.get(&id).filter(|_| was_blocked).map(|request| request.path);
            if let Some(path) = path.and_then(|path| self.paths.get_mut(&path)) {
                path.last_activity_at = now;
                path.window.begin_round(now);
            }
            self.grant(id);
            self.advance(now, id);
        }
    }

    /// Whether a request waits for the reader instead of the server.
    pub(super) fn is_reader_blocked(&self, request: &Request) -> bool {
        request.is_answered()
            && request.next_offset >= self.horizon
            && request.next_offset < request.requested.end
    }
}
