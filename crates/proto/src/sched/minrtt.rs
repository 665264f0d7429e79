//! The path with room that has the smallest RTT: the first scheduler of MPTCP in the Linux kernel,
//! which MPFlex uses (§5.5).

use super::{Choice, Job, Scheduler, View, least};

#[derive(Debug, Default)]
pub(super) struct MinRtt;

impl Scheduler for MinRtt {
    fn choose(&mut self, _: &Job, paths: &[View]) -> Choice {
        match least(paths, |view| view.has_room, |view| view.rtt) {
            Some(at) => Choice::Send { at, ahead: 0 },
            None => Choice::Wait,
        }
    }
}
