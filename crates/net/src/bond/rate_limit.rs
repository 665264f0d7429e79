//! A rate limit on the clock of this host, shared by the sessions of a key.

use std::cell::RefCell;
use std::rc::Rc;

use manyways_proto::bond::rate_limit::{Direction, RateLimit};
use manyways_sys::clock::Clock;
use manyways_unit::{Rate, Span};

/// A limit that all sessions of a key share; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SharedRateLimit(Rc<(Clock, RefCell<RateLimit>)>);

impl SharedRateLimit {
    pub(super) fn new(rate: Rate) -> Self {
        Self(Rc::new((Clock::start(), RefCell::new(RateLimit::new(rate)))))
    }

    pub(super) fn set(&self, rate: Rate) {
        self.0.1.borrow_mut().set(rate);
    }

    pub(super) fn wait_time(&self, direction: Direction) -> Option<Span> {
        self.0.1.borrow().wait_time(self.0.0.now(), direction)
    }

    pub(super) fn max_chunk(&self) -> usize {
        self.0.1.borrow().max_chunk()
    }

    pub(super) fn charge(&self, direction: Direction, bytes: usize) {
        self.0.1.borrow_mut().charge(self.0.0.now(), direction, bytes);
    }

    pub(super) fn admit(&self, direction: Direction, bytes: usize) -> bool {
        self.0.1.borrow_mut().admit(self.0.0.now(), direction, bytes)
    }
}
