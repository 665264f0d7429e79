//! One path: the primary path, or the first in the client's order if the primary path does not
//! exist.

use super::{Choice, Job, Scheduler, View, least};

#[derive(Debug, Default)]
pub(super) struct Single;

impl Scheduler for Single {
    fn choose(&mut self, job: &Job, paths: &[View]) -> Choice {
        let order = |view: &View| (Some(view.path) != job.primary, view.path);
        match least(paths, |_| true, order) {
            Some(at) if paths[at].has_room => Choice::Send { at, ahead: 0 },
            _ => Choice::Wait,
        }
    }
}
