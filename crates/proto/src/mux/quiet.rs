//! Estimates the unloaded RTT of a carrier after its own queue has drained.
//!
//! The smoothed RTT includes the queueing delay of a load until many more packets are acknowledged.
//! This would keep the first bytes after a download off the fastest path. When the load has ended,
//! the carrier therefore sends one ping. The change of the smoothed RTT with the ACK shows the
//! sample. Without this evidence, the smoothed RTT is used.

use manyways_unit::Span;

use super::carrier::Condition;

/// Bytes in flight and unsent above which a carrier is loaded.
const LOAD: u64 = 16 << 10;
/// Maximum bytes of one acknowledged packet.
const PACKET: u64 = 1_500;
/// Number of samples after which a smoothed RTT depends almost only on them.
const SAMPLES: u32 = 32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet {
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// The smoothed RTT of the transport is used.
    #[default]
    Good,
    /// The carrier is loaded.
    Loaded,
    /// The load has ended and a ping was requested.
    Asked,
    /// Estimated RTT without load. `left` is the number of samples until the smoothed RTT is used.
    Known { rtt: Span, left: u32 },
}

impl Quiet {
    /// Processes a new condition. Returns whether to send a ping.
    pub(super) fn observe(&mut self, before: &Condition, now: &Condition) -> bool {
        if (now.flying() + now.unsent).as_bytes() > LOAD {
            self.stage = Stage::Loaded;
            return false;
        }
        let fresh = now.acknowledged.saturating_sub(before.acknowledged);
        match self.stage {
            Stage::Loaded if now.flying().is_zero() && now.unsent.is_zero() => {
                self.stage = Stage::Asked;
                return true;
            }
            Stage::Asked if fresh > 0 && fresh <= PACKET => {
                let rtt = sample(before.rtt, now.rtt);
                self.stage = Stage::Known { rtt, left: SAMPLES };
            }
            // The ACK may cover several packets.
            Stage::Asked if fresh > 0 => self.stage = Stage::Good,
            Stage::Known { rtt, left } if fresh > 0 => {
                let sample = if fresh <= PACKET { sample(before.rtt, now.rtt) } else { rtt };
                let rtt = Span::from_nanos((rtt.as_nanos() * 7 + sample.as_nanos()) / 8);
                // The smoothed RTT is close to the estimate, or no longer approaches it.
                let is_over = now.rtt * 8 <= rtt * 9 || sample >= before.rtt || left == 0;
                self.stage = match is_over {
                    true => Stage::Good,
                    false => Stage::Known { rtt, left: left - 1 },
                };
            }
            _ => {}
        }
        false
    }

    /// Returns the expected RTT of a message.
    pub(super) fn round_trip(&self, condition: &Condition) -> Span {
        match self.stage {
            Stage::Known { rtt, .. } => condition.rtt.min(rtt),
            _ => condition.rtt,
        }
    }
}

/// Returns the sample that caused this change of a smoothed RTT, with the weight 1/8 (RFC 6298 §2).
fn sample(before: Span, now: Span) -> Span {
    (now * 8).saturating_sub(before * 7)
}

#[cfg(test)]
mod tests {
    use manyways_unit::Size;

    use super::*;

    /// A transport with one acknowledged packet at a time.
    struct Transport {
        quiet: Quiet,
        condition: Condition,
    }

    impl Transport {
        fn new(rtt: u64) -> Self {
            let condition = Condition::fresh(Span::from_millis(rtt));
            Self { quiet: Quiet::default(), condition }
        }

        /// Processes a packet with this RTT in ms, with this number of bytes in flight. Returns
        /// whether a ping is requested, and the expected RTT in ms.
        fn sees(&mut self, rtt: u64, in_flight: u64) -> (bool, u64) {
            let before = self.condition;
            let sample = Span::from_millis(rtt).as_nanos();
            self.condition.rtt = Span::from_nanos((before.rtt.as_nanos() * 7 + sample) / 8);
            self.condition.in_flight = Some(Size::from_bytes(in_flight));
            self.condition.acknowledged += 100;
            let asks = self.quiet.observe(&before, &self.condition);
            let expected = self.quiet.round_trip(&self.condition);
            (asks, (expected.as_millis_f64()).round() as u64)
        }

        fn is_loaded(&mut self, rtt: u64) {
            for _ in 0..100 {
                assert!(!self.sees(rtt, 200_000).0);
            }
            let (asks, expected) = self.sees(rtt, 0);
            assert!(asks, "the load is gone");
            assert_eq!(expected, rtt, "there is no evidence yet");
        }
    }

    #[test]
    fn one_packet_after_a_load_is_evidence_that_its_queue_is_gone() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        for _ in 0..30 {
            let (asks, expected) = transport.sees(50, 1_000);
            assert!(!asks && (50..=60).contains(&expected), "{expected}");
        }
        assert_eq!(transport.quiet.stage, Stage::Good);
    }

    #[test]
    fn a_path_that_became_bad_under_load_stays_bad() {
        let mut transport = Transport::new(50);
        transport.is_loaded(500);
        for _ in 0..30 {
            assert_eq!(transport.sees(500, 1_000), (false, 500));
        }
    }

    #[test]
    fn one_that_becomes_bad_after_that_evidence_is_bad() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        assert_eq!(transport.sees(50, 0).1, 50);
        assert!(transport.sees(300, 0).1 > 190);
    }

    #[test]
    fn several_packets_at_once_are_no_evidence() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        transport.condition.acknowledged += 5_000;
        let before = Condition { acknowledged: 0, ..transport.condition };
        transport.condition.rtt = Span::from_millis(150);
        transport.quiet.observe(&before, &transport.condition);
        assert_eq!(transport.quiet.round_trip(&transport.condition), Span::from_millis(150));
    }
}
