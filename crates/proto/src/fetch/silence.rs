//! Nothing comes: when that is said, and when it is the end.

use manyways_unit::{Span, Time};

use super::transfer::{Fetch, Path, State};
use super::{FaultClass, Note, Output, Range, Reason};

/// When nothing has come for so long, that is said.
const QUIET: Span = Span::from_secs(10);

impl Fetch {
    /// Something came that was needed.
    pub(super) fn hear(&mut self, now: Time) {
        if self.is_quiet(now) {
            // What failed while all were silent was no fault of its own.
            self.paths.values_mut().for_each(|path| path.failures = 0);
        }
        self.came = true;
        self.useful_at = now;
        self.told_quiet = false;
    }

    /// Whether all paths fell silent after something had come.
    pub(super) fn is_quiet(&self, now: Time) -> bool {
        self.came && self.useful_at + self.config.stall <= now
    }

    /// Whether nothing comes because the reader takes nothing.
    pub(super) fn waits_for_reader(&self) -> bool {
        let all = |goal| self.aim() > Some(goal) && self.done.covers(Range::new(0, goal));
        self.config.ahead.is_some()
            && (self.goal().is_some_and(all) || self.requests.values().any(|r| self.is_held(r)))
    }

    /// A path that joined a moment ago has its chance.
    pub(super) fn gives_up_at(&self) -> Time {
        (self.useful_at + self.config.silence).max(self.joined_at + self.config.connect)
    }

    /// When silence is said, and when it is the end.
    pub(super) fn silence_matters_at(&self) -> impl Iterator<Item = Time> {
        let quiet = (!self.told_quiet).then(|| self.useful_at + QUIET);
        let all = Some(self.gives_up_at()).into_iter().chain(quiet);
        let waits = self.waits_for_reader();
        all.filter(move |_| !waits)
    }

    pub(super) fn say_quiet(&mut self, now: Time) {
        let quiet = self.useful_at + QUIET <= now && !self.waits_for_reader();
        if !self.told_quiet && quiet && !self.paths.is_empty() {
            self.told_quiet = true;
            let (lasted, left) = (now.since(self.useful_at), self.gives_up_at().since(now));
            self.outputs.push_back(Output::Note(Note::Quiet { lasted, left }));
        }
    }

    /// Why it is over where nothing came for too long: silence, unless somebody said no.
    pub(super) fn silence(&self, now: Time) -> Reason {
        let silent = |path: &Path| {
            path.fault.as_ref().is_none_or(|fault| {
                matches!(fault.class, FaultClass::Stalled | FaultClass::Dns | FaultClass::Down)
            })
        };
        let mut alive = self.paths.values().filter(|path| path.state != State::Dropped);
        if self.came && alive.all(silent) {
            return Reason::Silence(now.since(self.useful_at));
        }
        self.no_path_left()
    }

    pub(super) fn no_path_left(&self) -> Reason {
        let faults = self.paths.iter();
        let faults = faults.filter_map(|(id, path)| Some((*id, path.fault.clone()?)));
        Reason::NoPathLeft(faults.collect())
    }
}
