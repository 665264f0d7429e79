//! Probes of a carrier that has received little.
//!
//! Where large packets to this endpoint are lost, an endpoint that only waits for data never finds
//! out: all that it sent is acknowledged. While the client uses a carrier that has not received the
//! bytes of several packets, it therefore sends a ping when the carrier is idle. TCP delivers in
//! order, so the pong stays behind the lost data.

use manyways_unit::{Span, Time};

/// Received bytes after which large packets are known to arrive.
const PROVEN: u64 = 4_000;
/// Idle time before the first ping; each further one waits twice as long.
const FIRST_PAUSE: Span = Span::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Probe {
    received: u64,
    /// When the last ping was sent.
    sent_at: Option<Time>,
    /// Whether nothing was received since then.
    is_unanswered: bool,
}

impl Probe {
    /// Records a received message with its payload in bytes.
    pub(super) fn on_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        self.is_unanswered = false;
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        (self.sent_at, self.is_unanswered) = (Some(now), true);
    }

    /// Returns when the next ping is due on a carrier that is idle since `idle_since`. `None` if
    /// none is needed or one is under way.
    pub(super) fn due_at(&self, idle_since: Time) -> Option<Time> {
        let is_needed = self.received < PROVEN && !self.is_unanswered;
        let waited = self.sent_at.map_or(Span::ZERO, |at| at.since(idle_since));
        is_needed.then(|| idle_since + FIRST_PAUSE.max(waited * 2))
    }

    /// Returns when the ping was sent that has no answer yet.
    pub(super) fn unanswered_since(&self) -> Option<Time> {
        self.sent_at.filter(|_| self.is_unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn pings_get_rarer_while_a_carrier_is_idle() {
        let mut probe = Probe::default();
        assert_eq!(probe.due_at(at(100)), Some(at(600)));
        probe.on_sent(at(600));
        assert_eq!((probe.due_at(at(100)), probe.unanswered_since()), (None, Some(at(600))));
        probe.on_received(0);
        assert_eq!((probe.due_at(at(100)), probe.unanswered_since()), (Some(at(1_100)), None));
        probe.on_sent(at(1_100));
        probe.on_received(0);
        assert_eq!(probe.due_at(at(100)), Some(at(2_100)));
        assert_eq!(probe.due_at(at(5_000)), Some(at(5_500)), "it was used meanwhile");
    }

    #[test]
    fn a_carrier_that_has_received_large_packets_needs_no_ping() {
        let mut probe = Probe::default();
        probe.on_received(3_999);
        assert_eq!(probe.due_at(at(0)), Some(at(500)));
        probe.on_received(1);
        assert_eq!(probe.due_at(at(0)), None);
    }
}
