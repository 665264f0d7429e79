//! Packets that leave an interface, and none that come back.

use manyways_unit::{Span, Time};

/// Time without a received byte, and packets that were sent in it, after which a network stands still.
/// A TCP connection sends a lost packet again after 0.2, 0.6 and 1.4 s.
const SILENCE: Span = Span::from_secs(2);
const UNANSWERED: u64 = 3;
/// Bytes in two polls in a row that show that a network works again: a single frame is a neighbour's.
const LIVELY: u64 = 2;

/// Judges by counters whether packets of an interface are answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallMeter {
    /// Received bytes and sent packets of the last poll.
    last: Option<(u64, u64)>,
    received_at: Time,
    /// Packets that were sent since a byte was received.
    unanswered: u64,
    /// Polls in a row with received bytes.
    lively: u64,
}

impl StallMeter {
    pub(super) fn new(now: Time) -> Self {
        Self { last: None, received_at: now, unanswered: 0, lively: 0 }
    }

    /// Returns the bytes that were received since the last poll.
    pub(super) fn on_counters(&mut self, now: Time, received: u64, sent_packets: u64) -> u64 {
        let Some((received_before, sent_before)) = self.last.replace((received, sent_packets))
        else {
            return 0;
        };
        // A counter that decreases belongs to another interface of the same name.
        let passed = received.saturating_sub(received_before);
        if passed > 0 || received < received_before {
            (self.received_at, self.unanswered) = (now, 0);
            self.lively += 1;
        } else {
            self.unanswered += sent_packets.saturating_sub(sent_before);
            self.lively = 0;
        }
        passed
    }

    /// Whether packets were sent for a while and nothing was received.
    pub(super) fn is_still(&self, now: Time) -> bool {
        self.unanswered >= UNANSWERED && now.since(self.received_at) >= SILENCE
    }

    pub(super) fn is_lively(&self) -> bool {
        self.lively >= LIVELY
    }

    /// Notes that the network has answered.
    pub(super) fn reset(&mut self, now: Time) {
        (self.received_at, self.unanswered) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_an_answer_show_a_network_that_stands_still() {
        let at = Time::from_millis;
        let mut meter = StallMeter::new(at(0));
        for (millis, received, sent) in [(0, 100, 1), (500, 200, 2), (1_000, 200, 4)] {
            meter.on_counters(at(millis), received, sent);
        }
        assert!(!meter.is_still(at(2_400)), "too few packets, too early");
        meter.on_counters(at(2_500), 200, 5);
        assert!(meter.is_still(at(2_500)));
        assert_eq!(meter.on_counters(at(3_000), 260, 6), 60);
        assert!(!meter.is_still(at(9_000)) && !meter.is_lively());
        meter.on_counters(at(3_500), 300, 6);
        assert!(meter.is_lively());
    }

    #[test]
    fn an_idle_network_does_not_stand_still() {
        let mut meter = StallMeter::new(Time::ZERO);
        for second in 0..60 {
            meter.on_counters(Time::from_millis(second * 1_000), 100, 7);
        }
        assert!(!meter.is_still(Time::from_millis(60_000)));
        // Another interface has this name now.
        meter.on_counters(Time::from_millis(61_000), 0, 90);
        assert!(!meter.is_still(Time::from_millis(61_000)));
    }
}
