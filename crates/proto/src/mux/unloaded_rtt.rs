//! Estimates the unloaded RTT of a carrier after its own queue has drained.
//!
//! The smoothed RTT includes the queueing delay of a load until many more packets are acknowledged.
//! This would keep the first bytes after a download off the fastest path. When the load has ended,
//! the carrier therefore sends one ping. The change of the smoothed RTT with the ACK shows the
//! sample. Without this evidence, the smoothed RTT is used.

use manyways_unit::Span;

use super::carrier::TransportInfo;

/// Bytes in flight and unsent above which a carrier is loaded.
const MIN_LOAD: u64 = 16 << 10;
/// Maximum bytes of one acknowledged packet.
const MAX_ACKED_PACKET: u64 = 1_500;
/// Number of samples after which a smoothed RTT depends almost only on them.
const SMOOTHING_SAMPLES: u32 = 32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnloadedRtt {
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// The smoothed RTT of the transport is used.
    #[default]
    Smoothed,
    /// The carrier is loaded.
    Loaded,
    /// The load has ended and a ping was requested.
    PingRequested,
    /// Estimated RTT without load. `left` is the number of samples until the smoothed RTT is used.
    Estimated { rtt: Span, remaining: u32 },
}

impl UnloadedRtt {
    /// Processes a new condition. Returns whether to send a ping.
    pub(super) fn observe(&mut self, before: &TransportInfo, now: &TransportInfo) -> bool {
        if (now.bytes_in_flight() + now.unsent).as_bytes() > MIN_LOAD {
            self.stage = Stage::Loaded;
            return false;
        }
        let fresh = now.acknowledged.saturating_sub(before.acknowledged);
        match self.stage {
            Stage::Loaded if now.bytes_in_flight().is_zero() && now.unsent.is_zero() => {
                self.stage = Stage::PingRequested;
                return true;
            }
            Stage::PingRequested if fresh > 0 && fresh <= MAX_ACKED_PACKET => {
                let rtt = sample(before.rtt, now.rtt);
                self.stage = Stage::Estimated { rtt, remaining: SMOOTHING_SAMPLES };
            }
            // The ACK may cover several packets.
            Stage::PingRequested if fresh > 0 => self.stage = Stage::Smoothed,
            Stage::Estimated { rtt, remaining: left } if fresh > 0 => {
                let sample =
                    if fresh <= MAX_ACKED_PACKET { sample(before.rtt, now.rtt) } else { rtt };
                let rtt = Span::from_nanos((rtt.as_nanos() * 7 + sample.as_nanos()) / 8);
                // The smoothed RTT is close to the estimate, or no longer approaches it.
                let is_over = now.rtt * 8 <= rtt * 9 || sample >= before.rtt || left == 0;
                self.stage = match is_over {
                    true => Stage::Smoothed,
                    false => Stage::Estimated { rtt, remaining: left - 1 },
                };
            }
            _ => {}
        }
        false
    }

    /// Returns the expected RTT of a message.
    pub(super) fn rtt(&self, info: &TransportInfo) -> Span {
        match self.stage {
            Stage::Estimated { rtt, .. } => info.rtt.min(rtt),
            _ => info.rtt,
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
        unloaded_rtt: UnloadedRtt,
        info: TransportInfo,
    }

    impl Transport {
        fn new(rtt: u64) -> Self {
            let condition = TransportInfo::initial(Span::from_millis(rtt));
            Self { unloaded_rtt: UnloadedRtt::default(), info: condition }
        }

        /// Processes a packet with this RTT in ms, with this number of bytes in flight. Returns
        /// whether a ping is requested, and the expected RTT in ms.
        fn observe(&mut self, rtt: u64, in_flight: u64) -> (bool, u64) {
            let before = self.info;
            let sample = Span::from_millis(rtt).as_nanos();
            self.info.rtt = Span::from_nanos((before.rtt.as_nanos() * 7 + sample) / 8);
            self.info.in_flight = Some(Size::from_bytes(in_flight));
            self.info.acknowledged += 100;
            let asks = self.unloaded_rtt.observe(&before, &self.info);
            let expected = self.unloaded_rtt.rtt(&self.info);
            (asks, (expected.as_millis_f64()).round() as u64)
        }

        fn is_loaded(&mut self, rtt: u64) {
            for _ in 0..100 {
                assert!(!self.observe(rtt, 200_000).0);
            }
            let (asks, expected) = self.observe(rtt, 0);
            assert!(asks, "the load is gone");
            assert_eq!(expected, rtt, "there is no evidence yet");
        }
    }

    #[test]
    fn one_packet_after_a_load_is_evidence_that_its_queue_is_gone() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        for _ in 0..30 {
            let (asks, expected) = transport.observe(50, 1_000);
            assert!(!asks && (50..=60).contains(&expected), "{expected}");
        }
        assert_eq!(transport.unloaded_rtt.stage, Stage::Smoothed);
    }

    #[test]
    fn a_path_that_became_bad_under_load_stays_bad() {
        let mut transport = Transport::new(50);
        transport.is_loaded(500);
        for _ in 0..30 {
            assert_eq!(transport.observe(500, 1_000), (false, 500));
        }
    }

    #[test]
    fn one_that_becomes_bad_after_that_evidence_is_bad() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        assert_eq!(transport.observe(50, 0).1, 50);
        assert!(transport.observe(300, 0).1 > 190);
    }

    #[test]
    fn several_packets_at_once_are_no_evidence() {
        let mut transport = Transport::new(50);
        transport.is_loaded(200);
        transport.info.acknowledged += 5_000;
        let before = TransportInfo { acknowledged: 0, ..transport.info };
        transport.info.rtt = Span::from_millis(150);
        transport.unloaded_rtt.observe(&before, &transport.info);
        assert_eq!(transport.unloaded_rtt.rtt(&transport.info), Span::from_millis(150));
    }
}
