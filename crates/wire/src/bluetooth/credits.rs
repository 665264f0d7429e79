//! Credits: number of packets that a sender may send before the receiver grants more.

use manyways_unit::{Span, Time};

/// Credits of a sender while its stream was open.
///
/// The counts are those of the capturing host. If the peer is the sender, its own counts differ by
/// the delay over the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Number of granted credits, including the initial ones.
    pub granted: u64,
    /// Number of used credits, one for each packet.
    pub spent: u64,
    /// How often the sender had no credits.
    pub stalls: u64,
    /// Total time without credits, whether or not data was waiting.
    pub stalled: Span,
    /// `None` while the sender has credits.
    pub stalled_since: Option<Time>,
}

impl Credits {
    /// Creates the credits of a sender with `granted` initial credits.
    pub(super) fn new(now: Time, granted: u64) -> Self {
        let mut credits =
            Self { granted, spent: 0, stalls: 0, stalled: Span::ZERO, stalled_since: None };
        credits.update_stall(now);
        credits
    }

    pub(super) fn grant(&mut self, now: Time, count: u64) {
        self.granted = self.granted.saturating_add(count);
        if let (true, Some(since)) = (count > 0, self.stalled_since) {
            self.stalled += now.since(since);
            self.stalled_since = None;
        }
    }

    /// Uses one credit. Returns false if there was none, because a grant was not captured.
    pub(super) fn spend(&mut self, now: Time) -> bool {
        if self.spent >= self.granted {
            return false;
        }
        self.spent += 1;
        self.update_stall(now);
        true
    }

    /// Ends the stream, and with it a stall.
    pub(super) fn end(&mut self, now: Time) {
        if let Some(since) = self.stalled_since.take() {
            self.stalled += now.since(since);
        }
    }

    fn update_stall(&mut self, now: Time) {
        if self.spent == self.granted {
            self.stalls += 1;
            self.stalled_since = Some(now);
        }
    }
}
