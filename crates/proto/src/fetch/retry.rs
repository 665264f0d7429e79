//! Attempts after failures: when a path tries again, and when it is given up.
//!
//! A path that has failed waits for its backoff, which doubles with each further failure without a
//! useful byte. It is longer if the server refuses connections or answers that it serves no request
//! now (503, 429, …); a `Retry-After` of the server replaces it. Meanwhile the other paths are used.
//! The number of attempts and their time are limited.

use manyways_unit::{Span, Time};

use super::path::{Path, PathState};
use super::transfer::Phase;
use super::{Config, Fetch, Note, Output, PathError, PathErrorKind, PathId, RefusedStart};

/// The backoff doubles at most this many times.
const MAX_DOUBLINGS: u32 = 3;
/// First backoff for a server that accepts no requests, in [`Config::first_backoff`]: with its
/// default one second, as with curl.
const SERVER_BACKOFFS: u64 = 4;
/// Shortest wait of which the user is informed.
const MIN_REPORTED_WAIT: Span = Span::from_millis(500);

/// Failures of a path since its last useful byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failures {
    pub(super) count: u32,
    /// Number of them that are attributed to the path or its server, and not to silence on all
    /// paths.
    pub(super) attributed: u32,
    /// Time of the first of them.
    pub(super) since: Time,
}

/// Decision about the next attempt after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retry {
    /// The path tries again at this time.
    At(Time),
    /// The path has used all its attempts, or their time.
    Never,
    /// The server asks for a wait that is longer than the attempts may take.
    WaitTooLong(RefusedWait),
}

/// A wait that a server asks for and that is too long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RefusedWait {
    /// Time of all attempts with this wait.
    pub(super) total: Span,
    pub(super) wait: Span,
}

/// Whether a server that answers with this status may serve the same request later.
pub(super) fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

impl Retry {
    /// Decides about the latest failure. `retry_after` is the wait that the server asks for.
    pub(super) fn after(
        now: Time,
        config: &Config,
        failures: Failures,
        error: &PathError,
        retry_after: Option<Span>,
    ) -> Self {
        if failures.attributed >= config.max_attempts {
            return Self::Never;
        }
        let backoff = backoff(config, failures, error);
        let until = now + retry_after.map_or(backoff, |wait| wait.max(config.first_backoff));
        let total = until.since(failures.since);
        match retry_after {
            _ if total <= config.max_retry_time => Self::At(until),
            Some(wait) => Self::WaitTooLong(RefusedWait { total, wait }),
            None => Self::Never,
        }
    }
}

/// The wait before the next attempt.
pub(super) fn backoff(config: &Config, failures: Failures, error: &PathError) -> Span {
    let first = if error.kind.is_refusal() { SERVER_BACKOFFS } else { 1 };
    config.first_backoff * (first << failures.count.saturating_sub(1).min(MAX_DOUBLINGS))
}

impl Fetch {
    /// Number of attempts that paths began after a failure.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Notes the status with which a concurrent request was answered. Returns whether the server
    /// limits the concurrent requests of an address: the others continue.
    pub(super) fn limits_concurrency(&mut self, id: PathId, status: u16) -> bool {
        let is_refused = matches!(status, 429 | 503);
        if let Some(path) = self.paths.get_mut(&id) {
            path.is_one_at_a_time |= is_refused;
        }
        if is_refused {
            // They would be the one request, and the bytes would wait.
            self.cancel_checks(Some(id));
        }
        is_refused
    }

    /// Informs the user of a wait during which no path requests anything.
    pub(super) fn report_retry(&mut self, now: Time) {
        let Some((until, path)) = self.next_retry() else { return };
        let wait = until.since(now);
        if until <= self.reported_retry || wait < MIN_REPORTED_WAIT {
            return;
        }
        let Some(error) = path.error.clone() else { return };
        let (attempt, max) = (path.failures.attributed, self.config.max_attempts.saturating_sub(1));
        self.reported_retry = until;
        self.outputs.push_back(Output::Note(Note::Retrying { error, wait, attempt, max }));
    }

    /// The path that tries again first, and when; `None` if any attempt is under way. Silent paths are
    /// ignored.
    fn next_retry(&self) -> Option<(Time, &Path)> {
        if !self.requests.is_empty() {
            return None;
        }
        let mut next: Option<(Time, &Path)> = None;
        for (id, path) in &self.paths {
            if !path.state.is_alive() || !self.wants_connection(*id, path) {
                continue;
            }
            let is_silent = path.error.as_ref().is_some_and(|error| error.kind.is_silence());
            match path.state {
                PathState::Waiting { until } if path.failures.count > 0 => {
                    if !is_silent && next.is_none_or(|(first, _)| until < first) {
                        next = Some((until, path));
                    }
                }
                _ if path.failures.count > 0 && is_silent => {}
                // An attempt is under way.
                _ => return None,
            }
        }
        next
    }

    /// Whether the server has refused the first connection of every path: nothing indicates that a
    /// later one would succeed.
    pub(super) fn is_refused_at_start(&self) -> bool {
        let has_answered = self.paths.values().any(|path| path.first_response_at.is_some());
        let may_retry = self.config.refused_start == RefusedStart::Retry;
        if self.phase != Phase::Opening || has_answered || may_retry {
            return false;
        }
        let usable = self.paths.values();
        let usable = usable.filter(|path| path.state.is_alive() && self.is_allowed(path));
        let is_refused = |path: &Path| {
            matches!(path.state, PathState::Waiting { .. })
                && path.error.as_ref().is_some_and(|error| error.kind == PathErrorKind::Refused)
        };
        let (refused, others): (Vec<&Path>, Vec<&Path>) = usable.partition(|path| is_refused(path));
        !refused.is_empty() && others.is_empty()
    }
}
