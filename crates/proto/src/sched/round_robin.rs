//! The paths with room in turn.

use super::{Choice, Job, PathId, Scheduler, View, least};

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<PathId>,
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _: &Job, paths: &[View]) -> Choice {
        let turn = |view: &View| (Some(view.path) <= self.last, view.path);
        let Some(at) = least(paths, |view| view.has_room, turn) else { return Choice::Wait };
        self.last = Some(paths[at].path);
        Choice::Send { at, ahead: 0 }
    }
}
