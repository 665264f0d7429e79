//! Requests of low priority that a browser delays in favour of others, as Chromium 156 does.
//!
//! Sources: Chromium's `ResourceLoadScheduler` (while the parser is in the head) and
//! `ResourceScheduler` (requests to origins of HTTP/1.1), and recorded loads for medium priority.

use std::collections::BTreeSet;

use super::super::load::Priority;

/// While the parser is in the head, a request of low priority starts only if fewer requests than this
/// run, and one of medium priority if fewer of that priority do.
const MAX_RUNNING_IN_HEAD: usize = 2;
/// In the head, running requests of medium and low priority together.
const MAX_RUNNING_TO_MEDIUM: usize = 3;
/// Running requests of low priority, at any time.
const MAX_RUNNING_OF_LOW: usize = 10;

pub(super) struct Delays {
    in_head: bool,
    /// Numbers of running requests, by their priority.
    running: [usize; Priority::VeryHigh as usize + 1],
    delayed: BTreeSet<(Priority, usize)>,
}

impl Delays {
    pub fn new(in_head: bool) -> Self {
        Self { in_head, running: Default::default(), delayed: BTreeSet::new() }
    }

    pub fn may_start(&self, priority: Priority) -> bool {
        let running = |up_to: Priority| self.running[..=up_to as usize].iter().sum::<usize>();
        let fits = match priority {
            _ if !self.in_head || priority > Priority::Medium => true,
            Priority::Medium => {
                self.running[Priority::Medium as usize] < MAX_RUNNING_IN_HEAD
                    && running(Priority::Medium) < MAX_RUNNING_TO_MEDIUM
            }
            _ => running(Priority::VeryHigh) < MAX_RUNNING_IN_HEAD,
        };
        fits && (priority > Priority::Low || running(Priority::Low) < MAX_RUNNING_OF_LOW)
    }

    pub fn delay(&mut self, priority: Priority, request: usize) {
        self.delayed.insert((priority, request));
    }

    pub fn start(&mut self, priority: Priority) {
        self.running[priority as usize] += 1;
    }

    pub fn end(&mut self, priority: Priority) {
        let running = &mut self.running[priority as usize];
        *running = running.saturating_sub(1);
    }

    pub fn leave_head(&mut self) {
        self.in_head = false;
    }

    /// Takes a request out; whether it was delayed.
    pub fn remove(&mut self, priority: Priority, request: usize) -> bool {
        self.delayed.remove(&(priority, request))
    }

    /// Takes out the next request that may start now: by priority, then by number.
    pub fn next(&mut self) -> Option<usize> {
        for priority in [Priority::Medium, Priority::Low, Priority::VeryLow] {
            let first = self.delayed.range((priority, 0)..=(priority, usize::MAX)).next().copied();
            if let Some(first) = first.filter(|_| self.may_start(priority)) {
                self.delayed.remove(&first);
                return Some(first.1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_priority_waits_in_the_head_and_behind_ten_others() {
        let mut delays = Delays::new(true);
        delays.start(Priority::VeryHigh);
        assert!(delays.may_start(Priority::Low));
        delays.start(Priority::High);
        assert!(!delays.may_start(Priority::Low) && delays.may_start(Priority::Medium));
        assert!(delays.may_start(Priority::High));
        delays.delay(Priority::Low, 7);
        delays.delay(Priority::Low, 3);
        assert_eq!(delays.next(), None);
        delays.leave_head();
        for _ in 0..9 {
            delays.start(Priority::Low);
        }
        assert_eq!(delays.next(), Some(3));
        delays.start(Priority::Low);
        assert_eq!(delays.next(), None);
        delays.end(Priority::Low);
        assert_eq!((delays.next(), delays.next()), (Some(7), None));
    }
}
