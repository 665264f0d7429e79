//! Packets that leave an interface, and none that come back.

use manyways_unit::{Span, Time};

/// Time without a received byte, and packets that were sent in it, after which a network stands still.
/// A TCP connection sends a lost packet again after 0.2, 0.6 and 1.4 s.
const SILENCE: Span = Span::from_secs(2);
const UNANSWERED: u64 = 3;
/// Bytes in two polls in a row that show that a network works again: a single frame is a neighbour's.
const LIVELY: u64 = 2;
/// Fewer bytes between two polls may be those of neighbours, not answers.
const NOISE: u64 = 1_000;
/// Packets that were sent longer ago than this do not wait for an answer.
const FORGOTTEN: Span = Span::from_secs(5);

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
    /// Packets that were sent while only noise was received, since the first one; and the last one.
    doubted: u64,
    doubted_since: Time,
    sent_at: Time,
    /// When more than noise was received.
    carried_at: Option<Time>,
}

impl StallMeter {
    pub(super) fn new(now: Time) -> Self {
        Self {
            last: None,
            received_at: now,
            unanswered: 0,
            lively: 0,
            doubted: 0,
            doubted_since: now,
            sent_at: now,
            carried_at: None,
        }
    }

    /// Returns the bytes that were received since the last poll.
    pub(super) fn on_counters(&mut self, now: Time, received: u64, sent_packets: u64) -> u64 {
        let Some((received_before, sent_before)) = self.last.replace((received, sent_packets))
        else {
            return 0;
        };
        // A counter that decreases belongs to another interface of the same name.
        let passed = received.saturating_sub(received_before);
        let sent = sent_packets.saturating_sub(sent_before);
        if passed >= NOISE || now.since(self.sent_at) > FORGOTTEN {
            (self.doubted, self.doubted_since) = (0, now);
        }
        if passed >= NOISE {
            self.carried_at = Some(now);
        }
        if sent > 0 {
            self.sent_at = now;
            self.doubted += sent;
        }
        if passed > 0 || received < received_before {
            (self.received_at, self.unanswered) = (now, 0);
            self.lively += 1;
        } else {
            self.unanswered += sent;
            self.lively = 0;
        }
        passed
    }

    /// Whether packets were sent for a while and nothing was received.
    pub(super) fn is_still(&self, now: Time) -> bool {
        self.unanswered >= UNANSWERED && now.since(self.received_at) >= SILENCE
    }

    /// Whether packets were sent for a while and little was received: answers, or the noise of
    /// neighbours on a network without a way to the internet.
    pub(super) fn is_doubtful(&self, now: Time) -> bool {
        self.doubted >= UNANSWERED && now.since(self.doubted_since) >= SILENCE
    }

    /// Whether more than noise was received in this span.
    pub(super) fn has_carried(&self, now: Time, span: Span) -> bool {
        self.carried_at.is_some_and(|at| now.since(at) < span)
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
