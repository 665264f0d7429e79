//! State, inputs, outputs and end of a fetch.

use std::collections::{BTreeMap, VecDeque};

use manyways_unit::{Span, Time};

use super::budget::LimitNotice;
use super::doubt::Doubt;
use super::object::{FirstRequest, ObjectState, RangeSupport, Versions};
use super::path::{Path, PathState};
use super::request::Request;
use super::retry::RefusedWait;
use super::verify::Verification;
use super::{
    Config, FetchFailure, Head, Input, Object, Output, PathId, PathStats, Range, Ranges, RequestId,
    WholeOnly,
};

/// The download of one object. See the module's documentation.
#[derive(Debug)]
pub struct Fetch {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) paths: BTreeMap<PathId, Path>,
    pub(super) requests: BTreeMap<RequestId, Request>,
    pub(super) object: ObjectState,
    pub(super) ranges: RangeSupport,
    pub(super) versions: Versions,
    pub(super) doubt: Doubt,
    pub(super) first_request: FirstRequest,
    /// The reader permits no requests from this offset on.
    pub(super) horizon: u64,
    pub(super) done: Ranges,
    pub(super) outputs: VecDeque<Output>,
    pub(super) next_request: u64,
    pub(super) verification: Verification,
    /// Number of the first request, and when it was sent, also after a restart.
    pub(super) first_sent: u64,
    pub(super) first_sent_at: Time,
    /// Number of restarts because the fetch could not be continued.
    pub(super) restarts: u32,
    /// Number of restarts still permitted because the object changed.
    pub(super) renewals_left: u32,
    /// When a useful byte last arrived, or when the fetch began.
    pub(super) last_useful_at: Time,
    /// Time that the server takes for a response; `None` before the first estimate.
    pub(super) server_time: Option<Span>,
    /// When a path last joined or returned.
    pub(super) last_joined_at: Time,
    pub(super) idle_notice: IdleNotice,
    /// Number of attempts after a failure.
    pub(super) retries: u64,
    /// The attempt of which the user was informed last.
    pub(super) reported_retry: Time,
    pub(super) limit_notice: LimitNotice,
    /// Time of the latest poll that made decisions.
    pub(super) scheduled_at: Time,
}

/// Progress of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No useful byte has arrived.
    Opening,
    Receiving,
    /// [`Output::Done`] or [`Output::Failed`] is queued or returned.
    Finished,
}

/// Whether the user was informed of the idle fetch since the last useful byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IdleNotice {
    Pending,
    Given,
}

impl Fetch {
    /// Creates a fetch without paths; [`Input::PathUp`] adds them.
    pub fn new(config: Config) -> Self {
        let mut outputs = VecDeque::new();
        let expected_length = config.length.filter(|length| *length > 0);
        let (object, done, renewals_left) = match config.resume.clone() {
            Some((object, done)) => {
                outputs.push_back(Output::LengthKnown(object.length));
                (ObjectState::Ranged(object), done, 0)
            }
            None => (ObjectState::Unknown { expected_length }, Ranges::new(), 1),
        };
        Self {
            horizon: config.ahead_of(0).unwrap_or(u64::MAX),
            config,
            phase: Phase::Opening,
            paths: BTreeMap::new(),
            requests: BTreeMap::new(),
            object,
            ranges: RangeSupport::Untested,
            versions: Versions::Agree,
            doubt: Doubt::default(),
            first_request: FirstRequest::Scheduled,
            done,
            outputs,
            next_request: 0,
            verification: Verification::default(),
            first_sent: 0,
            first_sent_at: Time::ZERO,
            restarts: 0,
            renewals_left,
            last_useful_at: Time::ZERO,
            server_time: None,
            last_joined_at: Time::ZERO,
            idle_notice: IdleNotice::Pending,
            retries: 0,
            reported_retry: Time::ZERO,
            limit_notice: LimitNotice::Pending,
            scheduled_at: Time::ZERO,
        }
    }

    /// Applies an event. Inputs of ended requests are ignored; after the end only [`Input::Late`]
    /// counts.
    pub fn handle(&mut self, now: Time, input: Input) {
        if self.is_finished() && !matches!(input, Input::Late { .. }) {
            return;
        }
        match input {
            Input::Late { path, length } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.stats.duplicate += length;
                    path.stats.overshoot += length;
                }
            }
            Input::PathUp { path, metered, known } => self.path_up(now, path, metered, known),
            Input::PathDown { path } => self.path_down(now, path),
            Input::Connected { path, multiplexed, rtt } => {
                self.on_connected(now, path, multiplexed, rtt);
            }
            Input::ConnectFailed { path, error: fault } => self.on_connect_failed(now, path, fault),
            Input::Pong { path } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.on_pong(now);
                }
            }
            Input::TransportRtt { path, rtt } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.on_transport_rtt(now, rtt);
                }
            }
            Input::PingFailed { path } => {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.on_ping_failed();
                }
            }
            Input::Head { request, head } => self.on_any_head(now, request, head),
            Input::Finished { request } if self.is_check(request) => {
                self.outputs.push_back(Output::Ended { request });
                self.on_check_end(request);
            }
            Input::Failed { request, .. } if self.is_check(request) => self.on_check_end(request),
            // The byte of a check is of no use.
            Input::Bytes { request, .. } if self.is_check(request) => {}
            Input::Bytes { request, length } => self.on_bytes(now, request, length),
            Input::Consumed { end: upto } => self.on_consumed(now, upto),
            Input::Finished { request } => self.on_finished(now, request),
            Input::Failed { request, error: fault } => self.on_request_failed(now, request, fault),
        }
    }

    fn on_any_head(&mut self, now: Time, request: RequestId, head: Head) {
        let Some(head) = self.on_object_head(now, request, head) else { return };
        if self.is_check(request) {
            self.on_check_head(now, request, &head);
        } else {
            self.on_head(now, request, &head);
        }
    }

    /// Returns the next action; `None` if there is none before [`Fetch::next_wakeup`] or the next
    /// input. [`Output::Done`] or [`Output::Failed`] is the last output.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.outputs.is_empty() && !self.is_finished() {
            self.scheduled_at = now;
            self.report_idle(now);
            self.report_limit();
            self.apply_timeouts(now);
            self.settle_doubt(now);
            if !self.is_finished() {
                self.schedule(now);
                self.check_ahead(now);
                self.ping(now);
                self.enlarge_unused_credit(now);
                self.adjust_connection_windows();
                self.check_completion(now);
            }
            if !self.is_finished() {
                self.report_retry(now);
            }
        }
        let output = self.outputs.pop_front();
        if matches!(output, Some(Output::Done | Output::Failed(_))) {
            // Pending actions for paths have no purpose after the end.
            self.outputs.clear();
        }
        output.map(|output| self.for_object(output))
    }

    /// When to poll again without an input; `None` after the end.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.is_finished() {
            return None;
        }
        let paths = self.paths.iter().filter_map(|(id, path)| match path.state {
            PathState::Waiting { until } => self.wants_connection(*id, path).then_some(until),
            PathState::Connecting { since } => Some(since + self.config.connect_timeout),
            _ => None,
        });
        let requests = self.requests.values().filter(|request| !self.is_reader_blocked(request));
        let requests = requests.map(|request| self.stall_deadline(request));
        let unused = self.requests.values();
        let unused = unused.filter_map(|request| self.unused_credit_at(request));
        // A decision that did not change when it was due waits for an input.
        let decision = self.schedule_wakeup().filter(|at| *at > self.scheduled_at);
        let pings = self.paths.iter().filter_map(|(id, path)| self.next_ping_at(*id, path));
        let pings = pings.filter(|at| *at > self.scheduled_at);
        let idle = self.idle_wakeups();
        let others = [self.verification_wakeup(), self.doubt.until].into_iter().flatten();
        paths
            .chain(requests)
            .chain(unused)
            .chain(decision)
            .chain(pings)
            .chain(idle)
            .chain(others)
            .min()
    }

    /// Whether a request is under way. Bytes of any other request are [`Input::Late`].
    pub fn is_under_way(&self, request: RequestId) -> bool {
        self.requests.contains_key(&request) || self.is_check(request)
    }

    /// `None` until a response or an earlier run has described the object.
    pub fn object(&self) -> Option<&Object> {
        self.object.known()
    }

    /// Why only one response can deliver the object; `None` if several can be combined, or if the
    /// object is unknown.
    pub fn whole_only(&self) -> Option<WholeOnly> {
        match &self.object {
            ObjectState::WholeOnly { reason: why, .. } => Some(*why),
            _ => None,
        }
    }

    /// The received bytes: those of an earlier run, and every [`Output::Write`] until now.
    pub fn done(&self) -> &Ranges {
        &self.done
    }

    /// Whether a later run can continue the download: the version is known, and the server is not
    /// known to ignore range requests.
    pub fn is_resumable(&self) -> bool {
        self.object.is_ranged() && !self.is_doubtful()
    }

    /// Whether a server answered a range request with the whole object.
    pub fn ignores_ranges(&self) -> bool {
        self.ranges.is_ignored()
    }

    /// Counters and estimates of a path; zeros if the path never joined.
    pub fn stats(&self, now: Time, path: PathId) -> PathStats {
        self.paths.get(&path).map_or_else(PathStats::default, |path| PathStats {
            rate: path.throughput.rate(now),
            rtt: path.round_trip.mean().or(path.response_delay),
            ..path.stats
        })
    }

    /// Expected time from a request to the head of its response, estimated when the request was
    /// sent.
    pub fn expected_delay(&self, request: RequestId) -> Option<Span> {
        self.requests.get(&request)?.expected_delay
    }

    /// `None` before the first measurement.
    pub fn last_round_trip(&self, path: PathId) -> Option<Span> {
        self.paths.get(&path)?.round_trip.last()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Offset up to which bytes may be requested now; `None` while the length is unknown or bytes
    /// of several responses cannot be combined.
    pub(super) fn goal(&self) -> Option<u64> {
        Some(self.final_goal()?.min(self.horizon))
    }

    /// Offset at which the fetch will be complete; `None` as in [`Fetch::goal`].
    pub(super) fn final_goal(&self) -> Option<u64> {
        let length = match &self.object {
            ObjectState::Ranged(object) => object.length?,
            ObjectState::WholeOnly { .. } => return None,
            ObjectState::Unknown { expected_length } => (*expected_length)?,
        };
        Some(length.min(self.config.stop_after.unwrap_or(u64::MAX)))
    }

    pub(super) fn fail(&mut self, reason: FetchFailure) {
        self.finish(Output::Failed(reason));
    }

    fn finish(&mut self, end: Output) {
        for (id, _) in std::mem::take(&mut self.requests) {
            self.outputs.push_back(Output::Cancel { request: id });
        }
        self.cancel_checks(None);
        self.outputs.push_back(end);
        self.phase = Phase::Finished;
    }

    /// Ends the fetch if all bytes have arrived, or if no path can fetch the rest.
    fn check_completion(&mut self, now: Time) {
        if self.is_finished() {
            // One of the previous decisions may have ended the fetch.
            return;
        }
        if self.is_complete() {
            // The answer of another path may show that the bytes are not those of the object.
            if !self.is_doubtful() && self.verify(now) {
                self.finish(Output::Done);
            }
            return;
        }
        let has_path = self.paths.values().any(|path| !path.state.is_dropped());
        if let Some(goal) = self.goal().filter(|goal| has_path && self.final_goal() > Some(*goal))
            && self.done.covers(Range::new(0, goal))
        {
            // The fetch continues when the reader has taken more bytes.
            return;
        }
        if self.idle_deadline() <= now && !self.waits_for_reader() {
            return self.fail(self.idle_failure(now));
        }
        // A path is free after the answer to a question, but cannot help with a whole object.
        let is_whole = self.object.is_whole_only();
        let mut requests = self.requests.values();
        let is_active = requests.any(|request| !is_whole || !request.is_question());
        if is_active || !is_whole && self.may_get_requests() && !self.is_refused_at_start() {
            return;
        }
        let reason = self.failure();
        if reason == FetchFailure::Changed && self.restart_with_new_version(now) {
            return;
        }
        self.fail(reason);
    }

    /// Whether all bytes have arrived.
    pub(super) fn is_complete(&self) -> bool {
        let length = self.object.known().and_then(|object| object.length);
        length.is_some_and(|length| {
            self.done.covers(Range::new(0, self.final_goal().unwrap_or(length)))
        })
    }

    /// Whether any path may still take a request.
    fn may_get_requests(&self) -> bool {
        // A server that refused the object will not accept when another path returns.
        let may_return = self.phase == Phase::Receiving
            || self.paths.values().all(|path| !path.state.is_dropped());
        self.paths.iter().any(|(id, path)| match path.state {
            PathState::Waiting { .. } | PathState::Connecting { .. } => {
                self.wants_connection(*id, path)
            }
            PathState::Down => may_return && self.wants_connection(*id, path),
            _ => false,
        })
    }

    /// The reason why no path can continue.
    fn failure(&self) -> FetchFailure {
        let refusal = self.paths.values().find_map(|path| path.state.refusal());
        let mut states = self.paths.values().map(|path| path.state);
        if let Some(status) = refusal
            && states.clone().all(|state| !state.is_dropped() || state.refusal() == refusal)
        {
            let wait = self.paths.values().filter_map(|path| path.refused_wait).min();
            wait.map_or(FetchFailure::Status(status), |RefusedWait { total, wait }| {
                FetchFailure::RetryTooLate { status, wait, total }
            })
        } else if self.is_refused_at_start() {
            self.no_path_left()
        } else if states.any(PathState::is_alive) {
            FetchFailure::MeteredLimitReached
        } else if self.versions == Versions::Differ {
            FetchFailure::Changed
        } else {
            self.no_path_left()
        }
    }
}
