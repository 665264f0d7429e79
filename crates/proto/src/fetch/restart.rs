//! A fetch that begins again: the received bytes cannot be continued, or the object changed.

use manyways_unit::Time;

use super::object::{ObjectState, Versions};
use super::path::{DropCause, PathState};
use super::verify::Verification;
use super::{Fetch, FetchFailure, Note, Output, PathError, Ranges};

impl Fetch {
    /// Whether the fetch has begun again because the object changed.
    pub fn is_renewed(&self) -> bool {
        self.config.resume.is_none() && self.renewals_left == 0
    }

    /// Begins the fetch again because the received bytes cannot be continued. Fails if there are no
    /// restarts left.
    pub(super) fn restart(&mut self, error: PathError) {
        if self.restarts >= self.config.max_restarts {
            return self.fail(FetchFailure::CannotContinue(error));
        }
        self.restarts += 1;
        self.reset(Note::Restarted);
    }

    fn reset(&mut self, note: Note) {
        self.object = ObjectState::Unknown { expected_length: None };
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
            self.outputs.push_back(Output::Note(note));
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
        self.versions = Versions::Agree;
        for path in self.paths.values_mut() {
            if path.state == PathState::Dropped(DropCause::OtherVersion) {
                path.failures.count = 0;
                path.state = PathState::Waiting { until: now };
            }
        }
        self.reset(Note::Changed);
        self.schedule(now);
        true
    }
}
