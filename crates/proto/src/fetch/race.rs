//! Races: an idle path also requests the bytes of a path that has become unresponsive.

use manyways_unit::{Span, Time};

use super::request::Claim;
use super::{Fetch, PathId, Range};

/// Response delays without a byte after which a path is unresponsive.
const UNRESPONSIVE_DELAYS: u64 = 4;
/// Lower bound of the timeout for an unresponsive path.
const MIN_UNRESPONSIVE_TIMEOUT: Span = Span::from_millis(400);
/// The timeout for a path that has never responded.
const UNRESPONSIVE_TIMEOUT_UNMEASURED: Span = Span::from_secs(1);

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
        let range = Range::new(request.next_offset, request.end);
        if range.len() > budget {
            return false;
        }
        if let Some(request) = self.requests.get_mut(&victim) {
            request.claim = Claim::Raced;
        }
        self.send(now, path, range, range.end);
        true
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
    fn unresponsive_timeout(&self, id: PathId) -> Span {
        match self.response_delay(id) {
            Some(delay) => MIN_UNRESPONSIVE_TIMEOUT.max(delay * UNRESPONSIVE_DELAYS),
            None => UNRESPONSIVE_TIMEOUT_UNMEASURED,
        }
    }
}
