//! Races: an idle path also requests the bytes of a path that has become unresponsive or overdue.
//!
//! A path can lose its last burst, or become slower, when few bytes remain: it is neither silent for
//! long, nor can its bytes be taken over, because the server already has the credit for them. If
//! the expected end, or the expected next bytes, are late by half the time that an idle path needs
//! for the remaining bytes, the idle path requests them. This bounds the additional time by that of
//! the race (as in the ski rental problem), and the duplicate bytes by those that remained. A path
//! may race against two requests at once.

use manyways_unit::{Span, Time};

use super::request::{Claim, Request};
use super::share::seconds;
use super::{Fetch, PathId, Range, RequestId};

/// Response delays without a byte after which a path is unresponsive.
const UNRESPONSIVE_DELAYS: u64 = 4;
/// Lower bound of the timeout for an unresponsive path.
const MIN_UNRESPONSIVE_TIMEOUT: Span = Span::from_millis(400);
/// Lower bound of the time by which an overdue request is late.
const MIN_OVERDUE_TIME: Span = Span::from_millis(30);
/// Bytes that an application may receive at once.
const TLS_RECORD: u64 = 16 << 10;
/// Losses of a path after which it is unsteady, until it has been connected for [`STEADY_TIME`].
const UNSTEADY_LOSSES: u32 = 2;
const STEADY_TIME: Span = Span::from_secs(5);
/// Minimum length of a piece that an unsteady path fetches at a time.
const MIN_UNSTEADY_PIECE: u64 = 64 << 10;
/// The timeout for a path that has never responded.
const INITIAL_UNRESPONSIVE_TIMEOUT: Span = Span::from_secs(1);

impl Fetch {
    /// Also requests the remaining range of an unresponsive path; the first copy counts. Returns
    /// whether a request was sent.
    pub(super) fn race(&mut self, now: Time, path: PathId, budget: u64) -> bool {
        if self.load_of(path) > 0 {
            return false;
        }
        let slowest = self
            .owners()
            .filter(|(_, request)| request.path != path && request.remaining() > 0)
            .filter(|(_, request)| self.is_unresponsive(now, request.path))
            .max_by_key(|(_, request)| request.remaining());
        let Some((victim, request)) = slowest else { return false };
        if request.remaining() > budget {
            return false;
        }
        self.race_against(now, path, victim)
    }

    /// Requests the missing bytes of another request. Returns whether there are any.
    fn race_against(&mut self, now: Time, path: PathId, victim: RequestId) -> bool {
        let Some(request) = self.requests.get_mut(&victim) else { return false };
        let range = Range::new(request.next_offset, request.end);
        let Some(first_missing) = self.done.gaps(range).next() else { return false };
        request.claim = Claim::Raced;
        let range = Range::new(first_missing.start, range.end);
        self.send(now, path, range, range.end);
        true
    }

    /// Also requests the remaining range of an overdue request.
    pub(super) fn race_overdue(&mut self, now: Time, path: PathId, budget: u64) {
        // A path against which another one races is late itself.
        let is_late = self.requests_of(path).any(|(_, request)| request.claim == Claim::Raced);
        if is_late || self.load_of(path) >= self.max_requests(path) {
            return;
        }
        let overdue = self.owners().filter(|(_, request)| {
            request.remaining() <= budget
                && self.overdue_at(now, request, path).is_some_and(|at| at <= now)
        });
        let longest = overdue.max_by_key(|(_, request)| request.remaining());
        if let Some(victim) = longest.map(|(id, _)| id) {
            self.race_against(now, path, victim);
        }
    }

    /// When requests become overdue for the first of the idle paths.
    pub(super) fn overdue_times(&self, now: Time) -> impl Iterator<Item = Time> {
        let idle = self.paths.iter().filter(|(id, path)| {
            path.state.is_ready()
                && self.is_allowed(path)
                && self.load_of(**id) < self.max_requests(**id)
        });
        idle.flat_map(move |(id, _)| {
            self.owners().filter_map(move |(_, request)| self.overdue_at(now, request, *id))
        })
    }

    /// When `racer` should race against a request; `None` if it should not.
    fn overdue_at(&self, now: Time, request: &Request, racer: PathId) -> Option<Time> {
        if request.path == racer || request.remaining() == 0 {
            return None;
        }
        let race = self.fetch_time(now, racer, request.remaining())?;
        let late = Span::from_secs_f64(race / 2.0).max(MIN_OVERDUE_TIME);
        let next = self.next_bytes_at(now, request)?;
        Some(request.due.map_or(next, |due| due.min(next)) + late)
    }

    /// When the path of a request is expected to bring its next bytes; `None` if that is unknown.
    fn next_bytes_at(&self, now: Time, request: &Request) -> Option<Time> {
        let path = self.paths.get(&request.path)?;
        if !request.is_answered() {
            let delay = request.expected_delay?.max(path.response_delay.unwrap_or_default());
            return Some(path.last_activity_at.max(request.sent + delay));
        }
        let record = TLS_RECORD.min(request.remaining()) as f64;
        let rate = self.rate(now, request.path);
        let gap = rate.map_or(MIN_OVERDUE_TIME, |rate| Span::from_secs_f64(record / rate));
        Some(path.last_activity_at + gap)
    }

    /// The longest piece that an unsteady path should fetch at a time: as many bytes as it could have
    /// brought since it connected. `None` for a steady path.
    ///
    /// A path that was lost several times will be lost again. What it would leave undone is
    /// therefore not taken from the other path: it races against its end.
    pub(super) fn max_unsteady_piece(&self, now: Time, id: PathId) -> Option<u64> {
        let path = self.paths.get(&id)?;
        let age = now.since(path.connected_at);
        let is_unsteady = path.losses >= UNSTEADY_LOSSES && age < STEADY_TIME;
        let bytes = self.rate(now, id).unwrap_or_default() * seconds(age);
        is_unsteady.then_some(MIN_UNSTEADY_PIECE.max(bytes as u64))
    }

    /// Requests the end of a range that remains assigned to another request.
    pub(super) fn race_from_end(&mut self, now: Time, path: PathId, piece: Range) {
        let id = RequestId(self.next_request);
        self.send(now, path, piece, piece.end);
        if let Some(request) = self.requests.get_mut(&id) {
            request.claim = Claim::Raced;
        }
    }

    /// The end of the bytes of an owner that no other path is fetching from the end.
    pub(super) fn unraced_end(&self, owner: &Request) -> u64 {
        let mut end = owner.end;
        loop {
            let piece = self.requests.values().find(|request| {
                request.claim == Claim::Raced
                    && request.requested.end == end
                    && request.requested.start > owner.next_offset
                    && request.requested.start < end
            });
            let Some(piece) = piece else { return end };
            end = piece.requested.start;
        }
    }

    /// Takes from the owners the ends of their ranges that have arrived over another path, for example
    /// because another request raced from the end.
    pub(super) fn give_up_ends(&mut self, now: Time) {
        let ends = self.owners().filter_map(|(id, request)| {
            let missing = self.done.gaps(Range::new(request.next_offset, request.end)).last()?;
            (missing.end < request.end).then_some((id, missing.end))
        });
        let ends: Vec<(RequestId, u64)> = ends.collect();
        for (owner, end) in ends {
            self.shorten(now, owner, end);
        }
    }

    /// Sets when the assigned bytes of a request are due.
    pub(super) fn set_due(&mut self, now: Time, id: RequestId) {
        let Some(path) = self.requests.get(&id).map(|request| request.path) else { return };
        let finish = self.load(now, path).and_then(|load| load.finishes_in());
        let finish = finish.filter(|finish| finish.is_finite());
        if let Some(request) = self.requests.get_mut(&id) {
            request.due = finish.map(|finish| now + Span::from_secs_f64(finish));
        }
    }

    /// When paths become unresponsive, for each owner among the requests.
    pub(super) fn unresponsive_times(&self) -> impl Iterator<Item = Time> {
        self.owners().filter_map(|(_, request)| {
            let path = self.paths.get(&request.path)?;
            Some(path.last_activity_at + self.unresponsive_timeout(request.path))
        })
    }

    pub(super) fn is_unresponsive(&self, now: Time, id: PathId) -> bool {
        self.paths
            .get(&id)
            .is_some_and(|path| now >= path.last_activity_at + self.unresponsive_timeout(id))
    }

    /// Time without bytes after which a path with requests is unresponsive.
    pub(super) fn unresponsive_timeout(&self, id: PathId) -> Span {
        let path = self.paths.get(&id);
        let measured = path.and_then(|path| {
            let previous = path.previous.map(|previous| previous.rtt);
            self.round_trip(id).or(path.response_delay).or(previous)
        });
        match measured {
            Some(delay) => MIN_UNRESPONSIVE_TIMEOUT.max(delay * UNRESPONSIVE_DELAYS),
            None => INITIAL_UNRESPONSIVE_TIMEOUT,
        }
    }
}
