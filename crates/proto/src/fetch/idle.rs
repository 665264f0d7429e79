//! A fetch that receives nothing: when the user is informed, and when the fetch fails.

use manyways_unit::{Span, Time};

use super::path::Path;
use super::transfer::{IdleNotice, Phase};
use super::{Fetch, FetchFailure, Note, Output, PathErrorKind, Range};

/// Time without useful bytes after which the user is informed.
const IDLE_NOTICE_TIMEOUT: Span = Span::from_secs(10);

impl Fetch {
    /// Notes that useful bytes arrived.
    pub(super) fn on_useful_bytes(&mut self, now: Time) {
        if self.is_idle(now) {
            // Silence while all paths were idle is not attributed to a path.
            let paths = self.paths.values_mut();
            let is_silent = |path: &Path| path.error.as_ref().is_some_and(|e| e.kind.is_silence());
            paths.filter(|path| is_silent(path)).for_each(|path| path.failures.count = 0);
        }
        self.phase = Phase::Receiving;
        self.last_useful_at = now;
        self.idle_notice = IdleNotice::Pending;
    }

    /// Whether bytes had arrived and then all paths became idle.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.phase == Phase::Receiving && self.last_useful_at + self.config.stall_timeout <= now
    }

    /// Whether nothing arrives because the reader takes no bytes.
    pub(super) fn waits_for_reader(&self) -> bool {
        let is_there =
            |goal| self.final_goal() > Some(goal) && self.done.covers(Range::new(0, goal));
        self.config.read_ahead.is_some()
            && (self.goal().is_some_and(is_there)
                || self.requests.values().any(|request| self.is_reader_blocked(request)))
    }

    /// When the fetch last received a useful byte, or when the last attempt begins that follows an
    /// answer of a server.
    fn idle_since(&self) -> Time {
        self.paths.values().map(|path| path.retry_at).fold(self.last_useful_at, Time::max)
    }

    /// When an idle fetch fails. A path that has just joined gets the time to connect.
    pub(super) fn idle_deadline(&self) -> Time {
        (self.idle_since() + self.config.idle_timeout)
            .max(self.last_joined_at + self.config.connect_timeout)
    }

    /// When the user is to be informed of an idle fetch, and when the fetch fails.
    pub(super) fn idle_wakeups(&self) -> impl Iterator<Item = Time> {
        let notice = (self.idle_notice == IdleNotice::Pending)
            .then(|| self.idle_since() + IDLE_NOTICE_TIMEOUT);
        let is_waiting = self.waits_for_reader();
        let all = Some(self.idle_deadline()).into_iter().chain(notice);
        all.filter(move |_| !is_waiting)
    }

    pub(super) fn report_idle(&mut self, now: Time) {
        let is_due = self.idle_since() + IDLE_NOTICE_TIMEOUT <= now && !self.waits_for_reader();
        if self.idle_notice == IdleNotice::Pending && is_due && !self.paths.is_empty() {
            self.idle_notice = IdleNotice::Given;
            let lasted = now.since(self.last_useful_at);
            let left = self.idle_deadline().since(now);
            let usable = self.paths.iter();
            let usable = usable.filter(|(_, p)| !p.state.is_dropped() && self.is_allowed(p));
            let paths = usable.map(|(id, _)| *id).collect();
            let note = Note::Idle { elapsed: lasted, remaining: left, paths };
            self.outputs.push_back(Output::Note(note));
        }
    }

    /// Why an idle fetch fails: by its timeout, unless a path failed for another reason.
    pub(super) fn idle_failure(&self, now: Time) -> FetchFailure {
        let is_silent = |path: &Path| {
            path.error.as_ref().is_none_or(|fault| {
                use PathErrorKind::{Dns, LinkDown, NoSuchName, Stalled};
                matches!(fault.kind, Stalled | Dns | NoSuchName | LinkDown)
            })
        };
        let mut alive = self.paths.values().filter(|path| !path.state.is_dropped());
        if self.phase == Phase::Receiving && alive.all(is_silent) {
            return FetchFailure::IdleTimeout(now.since(self.last_useful_at));
        }
        self.no_path_left()
    }

    pub(super) fn no_path_left(&self) -> FetchFailure {
        let faults = self.paths.iter();
        let faults = faults.filter_map(|(id, path)| Some((*id, path.error.clone()?)));
        FetchFailure::NoPathLeft(faults.collect())
    }
}
