//! How fast a client may be: what its applications send and receive in all, each way.

use std::cell::RefCell;
use std::rc::Rc;

use manyways_sys::clock::Clock;
use manyways_unit::{Rate, Size, Span, Time};

/// What was not used may be caught up with, up to so much time's worth.
const BURST: Span = Span::from_millis(20);
/// A piece takes so much time's worth at most…
const PIECE: Span = Span::from_millis(10);
/// …and is no smaller than this.
const LEAST_PIECE: usize = 4 << 10;

/// A limit that all sessions of a key share; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Limit(Rc<(Clock, RefCell<Meters>)>);

/// From the client to servers, or back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Up = 0,
    Down = 1,
}

impl Limit {
    pub(super) fn new(rate: Rate) -> Self {
        let meters = Meters { rate, up: Time::ZERO, down: Time::ZERO };
        Self(Rc::new((Clock::start(), RefCell::new(meters))))
    }

    /// Another rate begins with nothing owed: what passed at a lower one would take too long.
    pub(super) fn set(&self, rate: Rate) {
        let mut meters = self.0.1.borrow_mut();
        if meters.rate != rate {
            *meters = Meters { rate, up: Time::ZERO, down: Time::ZERO };
        }
    }

    /// How long until more may pass; nothing where it may now.
    pub(super) fn wait(&self, way: Way) -> Option<Span> {
        self.0.1.borrow_mut().wait(self.0.0.now(), way)
    }

    /// How much may pass at once.
    pub(super) fn piece(&self) -> usize {
        self.0.1.borrow().piece()
    }

    /// So much has passed.
    pub(super) fn charge(&self, way: Way, bytes: usize) {
        self.0.1.borrow_mut().charge(self.0.0.now(), way, bytes);
    }

    /// Whether a datagram may pass; it is counted if so.
    pub(super) fn passes(&self, way: Way, bytes: usize) -> bool {
        self.0.1.borrow_mut().passes(self.0.0.now(), way, bytes)
    }
}

/// When more may pass each way: a token bucket, kept as the time at which it is empty (GCRA).
#[derive(Debug)]
struct Meters {
    rate: Rate,
    up: Time,
    down: Time,
}

impl Meters {
    fn wait(&mut self, now: Time, way: Way) -> Option<Span> {
        let wait = self.free_at(way).since(now);
        Some(wait).filter(|wait| !wait.is_zero())
    }

    fn piece(&self) -> usize {
        let bytes = self.rate.size_in(PIECE).as_bytes();
        usize::try_from(bytes).unwrap_or(usize::MAX).max(LEAST_PIECE)
    }

    fn charge(&mut self, now: Time, way: Way, bytes: usize) {
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(BURST);
        let takes = self.rate.time_for(Size::from_bytes(bytes as u64));
        let free_at = self.free_at(way);
        *free_at = (*free_at).max(earliest) + takes;
    }

    fn passes(&mut self, now: Time, way: Way, bytes: usize) -> bool {
        let passes = self.wait(now, way).is_none();
        if passes {
            self.charge(now, way, bytes);
        }
        passes
    }

    fn free_at(&mut self, way: Way) -> &mut Time {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meters(mbps: u64) -> Meters {
        Meters { rate: Rate::from_mbps(mbps), up: Time::ZERO, down: Time::ZERO }
    }

    #[test]
    fn what_passes_is_the_rate_and_a_short_burst() {
        for mbps in [1, 100, 5_000] {
            let mut meters = meters(mbps);
            let begin = Time::ZERO + Span::from_secs(100);
            let (mut now, mut bytes) = (begin, 0);
            // Somebody who always has more.
            while now.since(begin) < Span::from_secs(1) {
                match meters.wait(now, Way::Up) {
                    Some(wait) => now += wait,
                    None => {
                        meters.charge(now, Way::Up, meters.piece());
                        bytes += meters.piece() as u64;
                    }
                }
            }
            let a_second = mbps * 125_000;
            let most = a_second + a_second / 50 + 2 * meters.piece() as u64;
            assert!((a_second..=most).contains(&bytes), "{mbps}: {bytes}");
            assert_eq!(meters.wait(begin, Way::Down), None, "the other way is free");
        }
    }

    #[test]
    fn datagrams_beyond_it_do_not_pass() {
        let mut meters = meters(1);
        let passed = (0..10_000_u64)
            .filter(|ms| meters.passes(Time::ZERO + Span::from_millis(*ms), Way::Down, 1_250));
        // One each 10 ms.
        assert!((998..=1_003).contains(&passed.count()));
    }
}
