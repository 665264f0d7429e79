//! One path: the primary path, or the first in the client's order if the primary path does not
//! exist.

use super::{Assignment, PathView, Scheduler, SendRequest, min_index};

#[derive(Debug, Default)]
pub(super) struct Single;

impl Scheduler for Single {
    fn choose(&mut self, request: &SendRequest, paths: &[PathView]) -> Assignment {
        let order = |view: &PathView| (Some(view.path) != request.primary, view.path);
        match min_index(paths, |_| true, order) {
            Some(at) if paths[at].is_writable => Assignment::Send { index: at, ahead: 0 },
            _ => Assignment::Wait,
        }
    }
}
