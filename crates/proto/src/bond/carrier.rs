//! Transport settings of a carrier: limit of unsent bytes, sampling of the connection state, and
//! keepalives for NAT mappings.

use manyways_unit::{Rate, Span, Time};

/// Transport settings of a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Minimum interval between samples of congestion window, RTT and other state.
    pub sample_interval: Span,
    /// Idle timeout of a QUIC connection at both endpoints.
    pub quic_idle_timeout: Span,
    /// Idle time after which the gateway sends TCP keepalives.
    pub gateway_keepalive: Span,
    /// Interval between keepalives without response.
    pub keepalive_interval: Span,
    /// Number of keepalives without response after which the connection is closed.
    pub keepalive_probes: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: Span::from_micros(300),
            quic_idle_timeout: Span::from_secs(60),
            gateway_keepalive: Span::from_secs(3600),
            keepalive_interval: Span::from_secs(10),
            keepalive_probes: 3,
        }
    }
}

/// Assumed RTT of a carrier without a sample.
pub const INITIAL_RTT: Span = Span::from_millis(100);

/// Time in which the transport sends the permitted unsent bytes.
const UNSENT_TIME: Span = Span::from_millis(5);
/// Minimum of unsent bytes.
const MIN_UNSENT: u64 = 6 << 10;
/// Maximum of unsent bytes.
pub const MAX_UNSENT: u64 = 1 << 20;

/// Limit of unsent bytes in the transport. These bytes can neither change to another path nor let
/// higher priorities pass. The limit ignores small changes, which do not justify a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsentLimit(u64);

impl Default for UnsentLimit {
    fn default() -> Self {
        Self(MIN_UNSENT)
    }
}

impl UnsentLimit {
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Returns a new limit in bytes if `rate` changes it by at least a quarter.
    pub fn observe(&mut self, rate: Rate) -> Option<u64> {
        let wanted = rate.size_in(UNSENT_TIME).as_bytes().clamp(MIN_UNSENT, MAX_UNSENT);
        let differs = wanted > self.0 * 5 / 4 || wanted < self.0 * 3 / 4;
        differs.then(|| {
            self.0 = wanted;
            wanted
        })
    }
}

/// Mean deviation of the RTT for a transport that does not report one (RFC 6298 §2, with a gain of
/// 1/4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RttVariation {
    last: Option<Span>,
    deviation: Span,
}

impl RttVariation {
    /// Processes an RTT and returns the deviation, which is at least an eighth of the RTT.
    pub fn observe(&mut self, rtt: Span) -> Span {
        let before = self.last.replace(rtt).unwrap_or(rtt);
        let change = rtt.saturating_sub(before) + before.saturating_sub(rtt);
        self.deviation = Span::from_nanos((self.deviation.as_nanos() * 3 + change.as_nanos()) / 4);
        self.deviation.max(Span::from_nanos(rtt.as_nanos() / 8))
    }
}

/// Returns whether the next sample of the transport is due.
pub fn is_sample_due(now: Time, last: Option<Time>, config: &Config) -> bool {
    last.is_none_or(|at| now.since(at) >= config.sample_interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_unsent_is_five_milliseconds_within_bounds() {
        let mut limit = UnsentLimit::default();
        assert_eq!(limit.observe(Rate::from_mbps(1)), None, "625 bytes are too few");
        assert_eq!(limit.observe(Rate::from_mbps(80)), Some(50_000));
        assert_eq!(limit.observe(Rate::from_mbps(90)), None, "not worth a call");
        assert_eq!(limit.observe(Rate::from_mbps(65)), None, "nor this");
        assert_eq!(limit.observe(Rate::from_mbps(50)), Some(31_250));
        assert_eq!(limit.observe(Rate::from_mbps(100_000)), Some(MAX_UNSENT));
        assert_eq!(limit.bytes(), MAX_UNSENT);
    }

    #[test]
    fn a_steady_round_trip_varies_by_an_eighth_and_a_jump_by_more() {
        let mut variation = RttVariation::default();
        let ms = Span::from_millis;
        assert_eq!(variation.observe(ms(80)), ms(10));
        assert_eq!(variation.observe(ms(160)), ms(20));
        assert_eq!(variation.observe(ms(80)), ms(35));
        assert_eq!(variation.observe(ms(80)), Span::from_micros(26_250));
    }

    #[test]
    fn a_transport_is_not_asked_all_the_time() {
        let config = Config::default();
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        assert!(is_sample_due(at(0), None, &config));
        assert!(!is_sample_due(at(299), Some(at(0)), &config));
        assert!(is_sample_due(at(300), Some(at(0)), &config));
    }
}
