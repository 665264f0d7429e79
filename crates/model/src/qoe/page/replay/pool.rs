//! Connections to an origin, as Chromium 156 keeps them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::load::Priority;

/// Connections of HTTP/1.1 to an origin.
const MAX_CONNECTIONS: usize = 6;

/// Connections of one origin. A request takes an idle connection. Without one, another is opened
/// if there may be one more, and the request is sent on whichever comes first: that, or one that
/// another request leaves.
#[derive(Default)]
pub(super) struct Pool {
    multiplexed: bool,
    spare: usize,
    opening: usize,
    open: usize,
    /// The request that left each idle connection, the last one last.
    idle: Vec<Option<usize>>,
    /// By priority, then by order.
    waiting: BTreeSet<(Reverse<Priority>, usize, usize)>,
    order: usize,
}

pub(super) enum Step {
    /// Send on a connection that was left by a request, or never used.
    Send(Option<usize>),
    /// Wait, and open a connection.
    Open,
    Wait,
}

impl Pool {
    /// A pool to which a number of idle connections come, at once or with the first opened one.
    pub fn new(multiplexed: bool, spare: usize, at_once: bool) -> Self {
        let mut pool = Self { multiplexed, spare, ..Self::default() };
        if at_once {
            pool.add_spare();
        }
        pool
    }

    fn add_spare(&mut self) {
        self.open += self.spare;
        self.idle.extend(std::iter::repeat_n(None, self.spare));
        self.spare = 0;
    }

    pub fn request(&mut self, request: usize, priority: Priority) -> Step {
        if self.multiplexed && self.open > 0 {
            return Step::Send(None);
        }
        if let Some(left) = self.idle.pop() {
            return Step::Send(left);
        }
        self.order += 1;
        self.waiting.insert((Reverse(priority), self.order, request));
        let limit = if self.multiplexed { 1 } else { MAX_CONNECTIONS };
        // A connection that is being opened serves one of those who wait already.
        if self.open + self.opening < limit {
            self.opening += 1;
            return Step::Open;
        }
        Step::Wait
    }

    /// A connection has been opened. Returns requests that are sent now.
    pub fn opened(&mut self) -> Vec<usize> {
        self.opening = self.opening.saturating_sub(1);
        self.open += 1;
        self.add_spare();
        if self.multiplexed {
            return std::mem::take(&mut self.waiting)
                .into_iter()
                .map(|(_, _, request)| request)
                .collect();
        }
        self.free(None).into_iter().collect()
    }

    /// A connection is free, left by a request. Returns a request that is sent now.
    pub fn free(&mut self, left: Option<usize>) -> Option<usize> {
        if self.multiplexed {
            return None;
        }
        let next = self.waiting.pop_first();
        if next.is_none() {
            self.idle.push(left);
        }
        next.map(|(_, _, request)| request)
    }
}
