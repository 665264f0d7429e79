//! The paths with room in turn.

use super::{Assignment, PathId, PathView, Scheduler, SendRequest, min_index};

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<PathId>,
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _: &SendRequest, paths: &[PathView]) -> Assignment {
        let turn = |view: &PathView| (Some(view.path) <= self.last, view.path);
        let Some(at) = min_index(paths, |view| view.is_writable, turn) else {
            return Assignment::Wait;
        };
        self.last = Some(paths[at].path);
        Assignment::Send { index: at, ahead: 0 }
    }
}
