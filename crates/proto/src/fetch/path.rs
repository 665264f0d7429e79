//! The paths of a fetch: joining, connecting, failing and leaving.

use manyways_unit::{Span, Time};

use super::msplayer::Chunks;
use super::ping::Pinger;
use super::request::Request;
use super::retry::{Failures, RefusedWait, Retry, backoff};
use super::transfer::Phase;
use super::window::Window;
use super::{
    Fetch, Note, Output, PathError, PathErrorKind, PathId, PathStats, RefusedStart, RequestId,
    Scheduler,
};
use crate::estimate::{PathEstimate, RoundTrip, Throughput};

#[derive(Debug)]
pub(super) struct Path {
    pub(super) state: PathState,
    pub(super) metered: bool,
    pub(super) throughput: Throughput,
    pub(super) chunks: Chunks,
    pub(super) round_trip: RoundTrip,
    /// From the latest answered request to the head of its response.
    pub(super) response_delay: Option<Span>,
    /// When the first response on any connection began.
    pub(super) first_response_at: Option<Time>,
    /// Path estimate of an earlier transfer.
    pub(super) previous: Option<PathEstimate>,
    /// When a response byte last arrived, or when a request was sent on the idle path.
    pub(super) last_activity_at: Time,
    pub(super) window: Window,
    pub(super) pinger: Pinger,
    /// Whether the server refused a second request beside another one.
    pub(super) is_one_at_a_time: bool,
    pub(super) failures: Failures,
    /// How often the interface or the connection was lost.
    pub(super) losses: u32,
    pub(super) error: Option<PathError>,
    /// When the latest attempt begins that follows an answer or a refusal of the server.
    pub(super) retry_at: Time,
    /// The wait that the server asked for, if it was too long.
    pub(super) refused_wait: Option<RefusedWait>,
    pub(super) connected_at: Time,
    /// Round trip of the transport when it connected.
    pub(super) transport_rtt: Option<Span>,
    /// When a useful byte of the version last arrived.
    pub(super) last_useful_at: Option<Time>,
    /// When a response last proved the version.
    pub(super) proved_at: Option<Time>,
    pub(super) stats: PathStats,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    /// Waiting for its backoff; connects at `until`.
    Waiting {
        until: Time,
    },
    Connecting {
        since: Time,
    },
    /// Connected; the path last became idle at `since`.
    Ready {
        since: Time,
        connection: Connection,
    },
    /// Without its interface.
    Down,
    /// No longer used, unless the interface disappears and returns.
    Dropped(DropCause),
}

/// Concurrency of the requests on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Connection {
    /// One request at a time, without flow control per request.
    Sequential,
    /// Several requests at a time, each with flow control.
    Multiplexed,
    /// Multiplexed, but without new requests: the server finishes the remaining one.
    Draining,
}

/// Why a path was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DropCause {
    /// Failed permanently, or too often.
    Failed,
    /// Its server has another version of the object.
    OtherVersion,
    /// Its server refused the first request with this status.
    Refused(u16),
    /// Its response was judged not to be of the object.
    Refuted,
}

impl PathState {
    /// Whether the path is neither down nor dropped.
    pub(super) fn is_alive(self) -> bool {
        !matches!(self, Self::Down | Self::Dropped(_))
    }

    pub(super) fn is_ready(self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    pub(super) fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting { .. })
    }

    pub(super) fn is_dropped(self) -> bool {
        matches!(self, Self::Dropped(_))
    }

    /// The status with which the server refused the first request; `None` if it did not.
    pub(super) fn refusal(self) -> Option<u16> {
        match self {
            Self::Dropped(DropCause::Refused(status)) => Some(status),
            _ => None,
        }
    }
}

impl Path {
    fn new(now: Time, metered: bool, previous: Option<PathEstimate>, window: u64) -> Self {
        Self {
            state: PathState::Waiting { until: now },
            metered,
            throughput: Throughput::default(),
            chunks: Chunks::default(),
            round_trip: RoundTrip::default(),
            response_delay: None,
            first_response_at: None,
            previous,
            last_activity_at: now,
            window: Window::new(now, window),
            pinger: Pinger::new(now),
            is_one_at_a_time: false,
            failures: Failures { count: 0, attributed: 0, since: now },
            losses: 0,
            error: None,
            retry_at: Time::ZERO,
            refused_wait: None,
            connected_at: now,
            transport_rtt: None,
            last_useful_at: None,
            proved_at: None,
            stats: PathStats::default(),
        }
    }

    /// Whether the connection takes several requests at once, each with flow control.
    pub(super) fn is_multiplexed(&self) -> bool {
        matches!(
            self.state,
            PathState::Ready { connection: Connection::Multiplexed | Connection::Draining, .. }
        )
    }

    /// Whether the path may have several requests at once.
    pub(super) fn is_concurrent(&self) -> bool {
        self.is_multiplexed() && !self.is_one_at_a_time
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, PathState::Ready { connection: Connection::Draining, .. })
    }

    /// Response bytes received over the path, including duplicates.
    pub(super) fn received(&self) -> u64 {
        self.stats.useful + self.stats.duplicate
    }
}

impl Fetch {
    pub(super) fn path_up(
        &mut self,
        now: Time,
        id: PathId,
        metered: bool,
        previous: Option<PathEstimate>,
    ) {
        if self.paths.is_empty() {
            self.last_useful_at = now;
        }
        let window = self.initial_window();
        let path = match self.paths.entry(id) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.last_joined_at = now;
                entry.insert(Path::new(now, metered, previous, window));
                return;
            }
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        path.metered = metered;
        path.previous = previous.or(path.previous);
        if !path.state.is_alive() {
            self.last_joined_at = now;
            path.state = PathState::Waiting { until: now };
            path.failures.count = 0;
            self.doubt.on_path_returned(id);
        }
    }

    /// Marks a path as down. A dropped path stays dropped until [`Fetch::path_up`].
    pub(super) fn path_down(&mut self, now: Time, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !path.state.is_alive() {
            return;
        }
        let error = PathError::transient(PathErrorKind::LinkDown, "its link is down");
        path.losses += u32::from(path.state.is_ready());
        path.state = PathState::Down;
        path.retry_at = Time::ZERO;
        path.error = Some(error.clone());
        self.release_requests(now, id, error);
        self.outputs.push_back(Output::Disconnect { path: id });
    }

    pub(super) fn connect(&mut self, now: Time, id: PathId) {
        let window = self.initial_window();
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.state = PathState::Connecting { since: now };
        path.window.set_initial(window);
        let connection_window = path.window.connection;
        self.retries += u64::from(path.failures.count > 0);
        self.outputs.push_back(Output::Connect { path: id, window, connection_window });
    }

    pub(super) fn on_connected(
        &mut self,
        now: Time,
        id: PathId,
        multiplexed: bool,
        rtt: Option<Span>,
    ) {
        // Each early end would cost a connection.
        if !multiplexed && self.config.first_read_ahead.take().is_some() {
            self.horizon = self.horizon.max(self.config.read_ahead.unwrap_or(u64::MAX));
        }
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !path.state.is_connecting() {
            return;
        }
        let connection = if multiplexed { Connection::Multiplexed } else { Connection::Sequential };
        path.state = PathState::Ready { since: now, connection };
        path.connected_at = now;
        path.transport_rtt = rtt;
        path.pinger.restart();
        path.window.restart(now);
    }

    pub(super) fn on_connect_failed(&mut self, now: Time, id: PathId, error: PathError) {
        if self.paths.get(&id).is_some_and(|path| path.state.is_connecting()) {
            self.fail_path(now, id, error);
        }
    }

    /// Releases a path's requests, and schedules its next attempt or drops it.
    pub(super) fn fail_path(&mut self, now: Time, id: PathId, error: PathError) {
        self.fail_path_with(now, id, error, DropCause::Failed);
    }

    /// As [`Fetch::fail_path`]; `cause` is the reason if the path is dropped.
    pub(super) fn fail_path_with(
        &mut self,
        now: Time,
        id: PathId,
        fault: PathError,
        cause: DropCause,
    ) {
        self.fail_path_until(now, id, fault, cause, None);
    }

    /// As [`Fetch::fail_path_with`]; `retry_after` is the wait that the server asks for.
    pub(super) fn fail_path_until(
        &mut self,
        now: Time,
        id: PathId,
        mut fault: PathError,
        cause: DropCause,
        retry_after: Option<Span>,
    ) {
        let is_receiving = self.phase == Phase::Receiving;
        let may_wait = is_receiving || self.config.refused_start == RefusedStart::Retry;
        let last_of_others = self.paths.iter().filter(|(other, _)| **other != id);
        let last_of_others = last_of_others.filter_map(|(_, path)| path.last_useful_at).max();
        let Some(path) = self.paths.get_mut(&id) else { return };
        if !path.state.is_alive() {
            return;
        }
        // Not a failure of the path: the next connection to this server is not multiplexed. Servers to
        // which it redirects may recur.
        let has_just_failed = path.error.as_ref().is_some_and(|error| error.kind == fault.kind);
        if fault.kind == PathErrorKind::Http1Required && path.is_multiplexed() && !has_just_failed {
            path.state = PathState::Waiting { until: now };
            path.error = Some(fault.clone());
            return self.release_requests(now, id, fault);
        }
        if path.failures.count == 0 {
            path.failures = Failures { count: 0, attributed: 0, since: now };
        }
        path.failures.count += 1;
        path.losses += u32::from(path.state.is_ready() && fault.kind.is_loss());
        let others_work = last_of_others.is_some_and(|last| last >= path.failures.since);
        // If nothing is reached, and no other path has delivered bytes meanwhile, the failures are not
        // attributed to this path: the idle timeout ends the fetch.
        let is_excused = is_receiving && fault.kind.is_silence() && !others_work;
        path.failures.attributed += u32::from(!is_excused);
        // The name of a server that is down may be missing too.
        let may_return = fault.kind == PathErrorKind::NoSuchName && may_wait && !others_work;
        let retry = match (fault.is_retryable || may_return, is_excused) {
            (false, _) => Retry::Never,
            (true, true) => Retry::At(now + backoff(&self.config, path.failures, &fault)),
            (true, false) => Retry::after(now, &self.config, path.failures, &fault, retry_after),
        };
        path.refused_wait = match retry {
            Retry::WaitTooLong(refused) => Some(refused),
            Retry::At(_) | Retry::Never => None,
        };
        path.state = match retry {
            Retry::At(until) => PathState::Waiting { until },
            Retry::Never | Retry::WaitTooLong(_) => PathState::Dropped(cause),
        };
        match retry {
            // A server that answers is not silent.
            Retry::At(until) if !fault.kind.is_silence() => {
                path.retry_at = until;
            }
            Retry::WaitTooLong(RefusedWait { wait, .. }) => {
                fault.message.push_str(&format!(" and asks to wait for {wait}"));
            }
            _ => {}
        }
        path.error = Some(fault.clone());
        // A refusal is reported when the object exists after all.
        if path.state.is_dropped() && path.state.refusal().is_none() {
            self.outputs.push_back(Output::Disconnect { path: id });
            // If this was the last path, the failure of the fetch names its fault.
            if self.paths.values().any(|path| !path.state.is_dropped()) {
                let fault = fault.clone();
                self.outputs.push_back(Output::Note(Note::Dropped { path: id, error: fault }));
            }
        }
        self.release_requests(now, id, fault);
    }

    /// Cancels the requests of a path and thereby frees their bytes for other paths.
    fn release_requests(&mut self, now: Time, id: PathId, error: PathError) {
        let lost: Vec<RequestId> = self.requests_of(id).map(|(id, _)| id).collect();
        for request in lost {
            self.requests.remove(&request);
            self.outputs.push_back(Output::Cancel { request });
        }
        self.cancel_checks(Some(id));
        if let Some(path) = self.paths.get_mut(&id) {
            path.throughput.pause();
        }
        // No other response can continue the bytes of an object without a usable version.
        let is_cut_off = self.requests.values().all(Request::is_question) && !self.is_complete();
        if is_cut_off && self.object.is_whole_only() {
            self.restart(now, error);
        }
    }

    /// Updates a path that has one request less: the path is idle, or its draining connection
    /// closes.
    pub(super) fn on_request_gone(&mut self, now: Time, id: PathId) {
        let is_busy = self.load_of(id) > 0;
        let Some(path) = self.paths.get_mut(&id) else { return };
        if is_busy {
            // The next bytes belong to the other request.
            return;
        }
        path.throughput.pause();
        let PathState::Ready { connection, .. } = path.state else { return };
        if connection == Connection::Draining {
            path.state = PathState::Waiting { until: now };
            self.outputs.push_back(Output::Disconnect { path: id });
        } else {
            path.state = PathState::Ready { since: now, connection };
        }
    }

    /// Marks the connection as draining: the server takes no new requests, but answers the existing
    /// ones.
    pub(super) fn drain(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id)
            && let PathState::Ready { connection, .. } = &mut path.state
        {
            *connection = Connection::Draining;
        }
    }

    /// Whether a path that is not connected should connect.
    pub(super) fn wants_connection(&self, id: PathId, path: &Path) -> bool {
        let is_preferred = || {
            let mut alive = self.paths.iter().filter(|(_, path)| path.state.is_alive());
            alive.all(|(other, path)| {
                (path.metered, *other) >= (self.paths.get(&id).is_some_and(|p| p.metered), id)
            })
        };
        (!self.object.is_whole_only() || self.is_doubtful())
            && self.is_allowed(path)
            && (self.config.scheduler != Scheduler::Single || is_preferred())
    }
}
