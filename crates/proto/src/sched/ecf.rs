//! Earliest completion first: Lim, Nahum, Towsley, Gibbens, "ECF: An MPTCP Path Scheduler to Manage
//! Heterogeneous Paths", CoNEXT 2017, algorithm 1.
//!
//! ECF instead of BLEST: both skip a slow path that would delay the stream. BLEST assumes a shared
//! send window that blocks, but here the window of a stream is far larger than the data in flight
//! on its paths. ECF minimizes the completion time, which is independent of that window.
//!
//! Deviation: the backlog is that of all streams, because all of them would use the fast path.

use super::{Assignment, PathView, Scheduler, SendRequest, min_index};

/// Hysteresis β of the decision to wait, in quarters.
const BETA_QUARTERS: u128 = 1;

#[derive(Debug, Default)]
pub(super) struct Ecf {
    is_waiting: bool,
}

impl Scheduler for Ecf {
    fn choose(&mut self, request: &SendRequest, paths: &[PathView]) -> Assignment {
        let Some(fast) = min_index(paths, |_| true, |view| view.rtt) else {
            return Assignment::Wait;
        };
        if paths[fast].is_writable {
            return Assignment::Send { index: fast, ahead: 0 };
        }
        let Some(slow) = min_index(paths, |view| view.is_writable, |view| view.rtt) else {
            return Assignment::Wait;
        };
        if self.should_wait(request, &paths[fast], &paths[slow]) {
            return Assignment::Wait;
        }
        Assignment::Send { index: slow, ahead: 0 }
    }
}

impl Ecf {
    fn should_wait(&mut self, request: &SendRequest, fast: &PathView, slow: &PathView) -> bool {
        let backlog = u128::from(request.total.as_bytes());
        let rtt = |view: &PathView| u128::from(view.rtt.as_nanos());
        let window = |view: &PathView| u128::from(view.congestion_window.as_bytes().max(1));
        let deviation = u128::from(fast.rtt_var.max(slow.rtt_var).as_nanos());
        // Rounds of the fast path for the backlog, and one round for the bytes in flight.
        let by_fast = rtt(fast) + rtt(fast) * backlog / window(fast);
        let by_slow = rtt(slow) + deviation;
        let margin = if self.is_waiting { by_slow * BETA_QUARTERS / 4 } else { 0 };
        if by_fast >= by_slow + margin {
            self.is_waiting = false;
            return false;
        }
        // Unless the slow path needs so few rounds that it completes in time.
        if rtt(slow) * backlog / window(slow) >= 2 * rtt(fast) + deviation {
            self.is_waiting = true;
            return true;
        }
        false
    }
}
