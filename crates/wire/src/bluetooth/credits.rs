//! Credits: how many packets a sender may still send before the receiver allows more.

use manyways_unit::{Span, Time};

/// What became of a sender's credits while its stream was open.
///
/// It is as the host knew it: what the other end sends is behind its own knowledge by the way
/// through the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// How many it got, those at the beginning included.
    pub granted: u64,
    /// How many it used: one for each packet.
    pub spent: u64,
    /// How often it had none.
    pub stalls: u64,
    /// How long it had none altogether, whether or not it had something to send.
    pub stalled: Span,
    /// Since when it has none.
    pub stalled_since: Option<Time>,
}

impl Credits {
    /// A sender that may begin with so many.
    pub(super) fn new(now: Time, granted: u64) -> Self {
        let mut credits =
            Self { granted, spent: 0, stalls: 0, stalled: Span::ZERO, stalled_since: None };
        credits.look(now);
        credits
    }

    /// It gets more.
    pub(super) fn grant(&mut self, now: Time, count: u64) {
        self.granted = self.granted.saturating_add(count);
        if let (true, Some(since)) = (count > 0, self.stalled_since) {
            self.stalled += now.since(since);
            self.stalled_since = None;
        }
    }

    /// It uses one. False when it had none: then some grant was not captured.
    pub(super) fn spend(&mut self, now: Time) -> bool {
        if self.spent >= self.granted {
            return false;
        }
        self.spent += 1;
        self.look(now);
        true
    }

    /// Its stream is over.
    pub(super) fn end(&mut self, now: Time) {
        if let Some(since) = self.stalled_since.take() {
            self.stalled += now.since(since);
        }
    }

    fn look(&mut self, now: Time) {
        if self.spent == self.granted {
            self.stalls += 1;
            self.stalled_since = Some(now);
        }
    }
}
