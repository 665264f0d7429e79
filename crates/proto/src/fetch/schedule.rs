//! The scheduler: which path fetches which bytes next.
//!
//! [`Scheduler::MpH2`] is Algorithm 1 of MP-H2 (Nikravesh et al., MobiCom 2019, §3.5) for any
//! number of paths; [`super::share`] computes the share of each path.

use manyways_unit::{Span, Time};

use super::object::FirstRequest;
use super::path::PathState;
use super::request::Request;
use super::share::seconds;
use super::{Fetch, PathId, Range, Scheduler};

/// The next request is sent earlier than the estimate by this time. Estimates lag while a queue
/// builds up, and an early request costs nothing.
const PIPELINING_MARGIN: Span = Span::from_millis(10);
/// Assumed round trip of a path without a measurement, for the first request.
const INITIAL_DELAY: Span = Span::from_millis(900);
/// Lower bound of the time by which the answer to the first request is late.
const MIN_LATE_ANSWER: Span = Span::from_millis(100);

impl Fetch {
    /// Connects the paths that are due, and assigns bytes to every free path.
    pub(super) fn schedule(&mut self, now: Time) {
        let due: Vec<PathId> = self
            .paths
            .iter()
            .filter(|(id, path)| {
                matches!(path.state, PathState::Waiting { until } if until <= now)
                    && self.wants_connection(**id, path)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.connect(now, id);
        }
        match self.goal() {
            Some(goal) => {
                for path in self.free_paths() {
                    self.assign(now, path, goal);
                }
            }
            None if self.is_opening() => self.send_first_request(now),
            None if self.object.is_unknown() => self.race_first_request(now),
            None => {}
        }
        self.ask_about_object(now);
    }

    /// When a decision may change without an event.
    pub(super) fn schedule_wakeup(&self) -> Option<Time> {
        let mut idle = self.paths.iter().filter_map(|(id, path)| match path.state {
            PathState::Ready { since, .. }
                if self.is_allowed(path) && self.load_of(*id) < self.max_requests(*id) =>
            {
                Some(since)
            }
            _ => None,
        });
        let now = self.scheduled_at;
        match self.goal() {
            // An idle path waits for another to become unresponsive, or overdue.
            Some(_) => {
                idle.next()?;
                let times = self.unresponsive_times().chain(self.overdue_times(now));
                times.chain(self.silence_ends()).filter(|at| *at > now).min()
            }
            // The first GET waits for an unmetered path.
            None if self.is_opening() => Some(idle.min()? + self.config.head_start),
            None if self.object.is_unknown() => {
                idle.next()?;
                let late = self.requests.values().map(|request| self.is_late_at(request));
                late.chain(self.silence_ends()).filter(|at| *at > now).min()
            }
            None => None,
        }
    }

    /// Whether the first request has not been sent.
    fn is_opening(&self) -> bool {
        self.object.is_unknown() && self.requests.is_empty()
    }

    /// Paths that can take a request, unmetered ones first.
    pub(super) fn free_paths(&self) -> Vec<PathId> {
        let free = self.paths.iter().filter(|(id, path)| {
            path.state.is_ready()
                && self.is_allowed(path)
                && !path.is_draining()
                && !self.is_silent(self.scheduled_at, **id)
                && (path.is_concurrent() || !self.is_checking(**id))
                && self.load_of(**id) < self.max_requests(**id)
        });
        let mut free: Vec<(bool, PathId)> = free.map(|(id, path)| (path.metered, *id)).collect();
        free.sort_unstable();
        free.into_iter().map(|(_, id)| id).collect()
    }

    /// Maximum number of concurrent requests on a path.
    pub(super) fn max_requests(&self, path: PathId) -> usize {
        let is_concurrent = self.paths.get(&path).is_some_and(|path| path.is_concurrent());
        let is_pipelined = self.config.pipelining
            && self.config.scheduler == Scheduler::MpH2
            && !self.object.is_unknown();
        if is_concurrent && is_pipelined { 2 } else { 1 }
    }

    /// Sends the first request, unless this is a metered path and an unmetered one is still
    /// connecting.
    fn send_first_request(&mut self, now: Time) {
        let idle = self.free_paths();
        let Some(&path) = idle.first() else { return };
        // The head start begins at the first connection of any path, so that later connections do
        // not extend it.
        let since = idle.iter().filter_map(|id| match self.paths.get(id)?.state {
            PathState::Ready { since, .. } => Some(since),
            _ => None,
        });
        let since = since.min().unwrap_or(now);
        if self.is_cheaper_path_connecting(path) && now < since + self.config.head_start {
            return;
        }
        // With a limit for metered paths, the first request is bounded by the remaining limit.
        let max = match (self.config.scheduler, self.first_request) {
            (Scheduler::FixedChunk(chunk), FirstRequest::Scheduled) => chunk.as_bytes(),
            (Scheduler::MsPlayer, FirstRequest::Scheduled) => self.next_chunk(path),
            _ => u64::MAX,
        };
        let requested = Range::new(0, self.budget(path).min(max));
        if !requested.is_empty() {
            self.send(now, path, requested, requested.end);
        }
    }

    /// Sends the first request over another path too if no path has answered it in time.
    fn race_first_request(&mut self, now: Time) {
        let is_late = |request: &Request| request.is_plain_get() && self.is_late_at(request) <= now;
        if !self.requests.values().all(is_late) {
            return;
        }
        let mut idle = self.free_paths().into_iter();
        let idle = idle.find(|id| self.load_of(*id) == 0 && self.budget(*id) == u64::MAX);
        if let Some(path) = idle {
            self.send(now, path, Range::new(0, u64::MAX), u64::MAX);
        }
    }

    /// When the answer to a first request is late: two round trips after it was sent.
    pub(super) fn is_late_at(&self, request: &Request) -> Time {
        let delay = request.expected_delay.unwrap_or(INITIAL_DELAY);
        request.sent + delay + delay.max(MIN_LATE_ANSWER)
    }

    /// Whether an unmetered path is connecting, and this one is metered.
    pub(super) fn is_cheaper_path_connecting(&self, path: PathId) -> bool {
        self.paths.get(&path).is_some_and(|path| path.metered)
            && self.paths.values().any(|other| {
                !other.metered && other.state.is_connecting() && self.is_allowed(other)
            })
    }

    /// Assigns bytes to a path that can take a request.
    fn assign(&mut self, now: Time, path: PathId, goal: u64) {
        let budget = self.budget(path);
        if budget == 0 {
            return;
        }
        match self.config.scheduler {
            Scheduler::FixedChunk(chunk) => {
                self.assign_chunk(now, path, goal, chunk.as_bytes().max(1).min(budget), budget);
            }
            Scheduler::MsPlayer => {
                let chunk = self.next_chunk(path).min(budget);
                self.assign_chunk(now, path, goal, chunk, budget);
            }
            Scheduler::EqualSplit => self.assign_equal_part(now, path, goal, budget),
            // With one path no other one connects, and there is nothing to take over.
            Scheduler::MpH2 | Scheduler::Single => self.assign_share(now, path, goal, budget),
        }
    }

    /// Assigns the next unrequested chunk.
    fn assign_chunk(&mut self, now: Time, path: PathId, goal: u64, chunk: u64, budget: u64) {
        if let Some(gap) = self.unrequested_gaps(Range::new(0, goal)).next() {
            let end = gap.end.min(gap.start.saturating_add(chunk));
            self.send(now, path, Range::new(gap.start, end), end);
        } else {
            self.race(now, path, budget);
        }
    }

    /// Assigns an equal part of the remaining object, once per path.
    fn assign_equal_part(&mut self, now: Time, path: PathId, goal: u64, budget: u64) {
        let gap = self.unrequested_gaps(Range::new(0, goal)).next();
        let longest = self.owners().filter(|(_, request)| request.path != path);
        let longest = longest
            .max_by_key(|(_, r)| r.end.saturating_sub(r.next_offset.max(r.requested.start)))
            .map(|(id, r)| (id, r.requested.start, self.first_movable(r), r.end));
        let is_new = self.paths.get(&path).is_some_and(|path| path.stats.requests == 0);
        match (gap, longest) {
            (Some(gap), _) => {
                let end = gap.end.min(gap.start.saturating_add(budget));
                self.send(now, path, Range::new(gap.start, end), end);
            }
            (None, Some((victim, start, movable, end))) if is_new => {
                let all = self.paths.values().filter(|path| path.state.is_alive()).count();
                let others = self.paths.values().filter(|path| path.stats.requests > 0).count();
                // The first path requests everything; each later path leaves it an equal part.
                let rest = (all.saturating_sub(others)).max(1) as u64;
                let share = (end - start) / (rest + 1);
                let from = end.saturating_sub(share.min(budget));
                if from > movable && from < end {
                    self.shorten(now, victim, from);
                    self.send(now, path, Range::new(from, end), end);
                }
            }
            _ => {
                self.race(now, path, budget);
            }
        }
    }

    /// Algorithm 1 of MP-H2: assigns unrequested bytes, or the end of another path's remaining
    /// range.
    fn assign_share(&mut self, now: Time, path: PathId, goal: u64, budget: u64) {
        // Not earlier than one round trip before the last bytes of the path are due (line 4 of the
        // algorithm).
        let current = self.requests_of(path).next();
        let is_arriving = current.map(|(_, request)| request.is_answered() && request.is_owner());
        let ready = match is_arriving {
            Some(is_arriving) => {
                let Some(load) = self.load(now, path) else { return };
                let Some(due) = load.finishes_in().filter(|_| is_arriving) else {
                    return self.race_overdue(now, path, budget);
                };
                let delay = self.response_delay(path).unwrap_or_default();
                if due > seconds(delay + PIPELINING_MARGIN) {
                    return;
                }
                due
            }
            None => 0.0,
        };
        if !self.assign_unrequested(now, path, goal, ready, budget)
            && !self.race(now, path, budget)
            && !self.take_over(now, path, ready, budget)
        {
            self.race_overdue(now, path, budget);
        }
    }
}
