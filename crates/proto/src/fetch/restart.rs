//! A fetch that begins again: the received bytes cannot be continued, or the object changed.

use manyways_unit::Time;

use super::object::{ObjectState, RangeSupport, Versions};
use super::path::{DropCause, Path, PathState};
use super::transfer::Phase;
use super::verify::Verification;
use super::{Fetch, FetchFailure, Note, Output, PathError, PathId, Ranges};

impl Fetch {
    /// Whether the fetch has begun again because the object changed.
    pub fn is_renewed(&self) -> bool {
        self.config.resume.is_none() && self.renewals_left == 0
    }

    /// Begins the fetch again because the received bytes cannot be continued. Fails if there are no
    /// restarts left.
    pub(super) fn restart(&mut self, now: Time, error: PathError) {
        if self.restarts >= self.config.max_restarts {
            return self.fail(FetchFailure::CannotContinue(error));
        }
        self.restarts += 1;
        self.reset(now, Some(Note::Restarted));
    }

    pub(super) fn reset(&mut self, now: Time, note: Option<Note>) {
        self.object = ObjectState::Unknown { expected_length: None };
        self.end_doubt(now);
        self.doubt.object = None;
        self.cancel_checks(None);
        self.verification = Verification::default();
        for path in self.paths.values_mut() {
            (path.last_useful_at, path.proved_at) = (None, None);
        }
        if !self.done.is_empty() {
            self.done = Ranges::new();
            // The bytes received until now turned out to be of no use.
            for path in self.paths.values_mut() {
                path.stats.duplicate += std::mem::take(&mut path.stats.useful);
            }
            self.outputs.extend(note.map(Output::Note));
            self.outputs.push_back(Output::Restart);
        }
    }

    /// Begins the fetch again with a new version of the object, once: the object has changed, and
    /// no server has the previous version. Returns whether the fetch begins again.
    pub(super) fn restart_with_new_version(&mut self, now: Time) -> bool {
        if self.renewals_left == 0 {
            return false;
        }
        self.renewals_left -= 1;
        self.revive_other_versions(now);
        self.doubt.on_other_object();
        self.reset(now, Some(Note::Changed));
        self.schedule(now);
        true
    }

    /// Uses the paths again whose servers had another version than that of the previous object.
    pub(super) fn revive_other_versions(&mut self, now: Time) {
        self.versions = Versions::Agree;
        for path in self.paths.values_mut() {
            if path.state == PathState::Dropped(DropCause::OtherVersion) {
                path.failures.count = 0;
                path.state = PathState::Waiting { until: now };
            }
        }
    }

    /// Fetches the object again, once, after [`Output::Done`] and the end of all requests: the
    /// complete file is wrong. Only paths that delivered none of it are used, and none that has the
    /// same object. Returns whether the fetch begins again.
    pub fn fetch_elsewhere(&mut self, now: Time) -> bool {
        let Some((_, object)) = self.description() else { return false };
        let is_usable = |path: &Path| {
            use DropCause::{OtherVersion, Refuted};
            let is_dropped = path.state.is_dropped()
                && !matches!(path.state, PathState::Dropped(OtherVersion | Refuted));
            path.stats.useful == 0 && !is_dropped && self.is_allowed(path)
        };
        let usable = self.paths.iter().filter(|(_, path)| is_usable(path));
        let usable: Vec<PathId> = usable.map(|(id, _)| *id).collect();
        if usable.is_empty() || self.doubt.rejected.is_some() || !self.is_finished() {
            return false;
        }
        self.doubt.on_other_object();
        self.reset(now, Some(Note::WrongFile));
        self.doubt.rejected = Some(object);
        (self.versions, self.ranges) = (Versions::Agree, RangeSupport::Untested);
        self.phase = Phase::Opening;
        (self.last_useful_at, self.last_joined_at) = (now, now);
        for (id, path) in &mut self.paths {
            if !usable.contains(id) {
                path.state = PathState::Dropped(DropCause::Failed);
            } else if path.state != PathState::Down {
                path.failures.count = 0;
                path.state = PathState::Waiting { until: now };
            }
        }
        true
    }
}
