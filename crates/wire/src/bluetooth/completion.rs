//! How long packets are with the controller: from the host until the other end has acknowledged
//! them, which the controller says when it has room again (vol 4, part E, 4.1.1).

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

/// So many packets may be with a controller; of more, the oldest are forgotten. Controllers have
/// room for some ten.
pub const OUTSTANDING: usize = 256;
/// Where packets went to the controller before or beside what was captured, nobody knows which of
/// them are completed first. After so long without any, none of those can be left.
pub const QUIET: Span = Span::from_secs(2);

/// Packets that are with the controller.
#[derive(Clone, Debug)]
pub(super) struct Outstanding<T> {
    sent: VecDeque<(Time, T)>,
    /// All packets that are there were captured.
    is_complete: bool,
    /// When the last one came or went.
    last: Time,
}

impl<T> Outstanding<T> {
    pub(super) fn new(now: Time, is_complete: bool) -> Self {
        Self { sent: VecDeque::new(), is_complete, last: now }
    }

    /// The host sends one.
    pub(super) fn push(&mut self, now: Time, of: T) {
        if self.sent.is_empty() && now.since(self.last) >= QUIET {
            self.is_complete = true;
        }
        self.sent.push_back((now, of));
        if self.sent.len() > OUTSTANDING {
            self.sent.pop_front();
            self.is_complete = false;
        }
        self.last = now;
    }

    /// So many are completed: says how long each took, where that is known.
    pub(super) fn complete(&mut self, now: Time, count: u16, mut each: impl FnMut(Span, T)) {
        for _ in 0..count {
            let Some((at, of)) = self.sent.pop_front() else {
                self.is_complete = false;
                break;
            };
            if self.is_complete {
                each(now.since(at), of);
            }
        }
        self.last = now;
    }

    /// Some may have passed without being captured.
    pub(super) fn misses(&mut self, now: Time) {
        self.sent.clear();
        self.is_complete = false;
        self.last = now;
    }
}
