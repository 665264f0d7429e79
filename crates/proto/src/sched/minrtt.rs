//! The path with room that has the smallest RTT: the first scheduler of MPTCP in the Linux kernel,
//! which MPFlex uses (§5.5).

use super::{Assignment, PathView, Scheduler, SendRequest, min_index};

#[derive(Debug, Default)]
pub(super) struct MinRtt;

impl Scheduler for MinRtt {
    fn choose(&mut self, _: &SendRequest, paths: &[PathView]) -> Assignment {
        match min_index(paths, |view| view.is_writable, |view| view.rtt) {
            Some(at) => Assignment::Send { index: at, ahead: 0 },
            None => Assignment::Wait,
        }
    }
}
