//! Estimates when a full congestion window opens again.
//!
//! Data that is given to a transport with a full window waits at this endpoint until the oldest
//! bytes in flight are acknowledged. In a steady flow this happens soon. If the whole window was
//! sent at once, as after a pause, the wait is nearly one round trip. The rate alone cannot
//! distinguish the two cases.

use std::collections::VecDeque;

use manyways_unit::{Size, Span, Time};

use super::carrier::TransportInfo;

/// Bytes of a segment. After a pause, the window is ten segments.
const SEGMENT_SIZE: u64 = 1_448;
/// Maximum number of stored departures. Above it, bytes count as sent with the last stored
/// departure, which is too early.
const MAX_DEPARTURES: usize = 256;

/// Departure times of the bytes in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Time of each departure, and the end of its bytes in the connection's count.
    departures: VecDeque<(Time, u64)>,
    departed: u64,
}

impl Flight {
    /// Processes a new condition and returns the round-trip time of the last newly acknowledged
    /// byte.
    pub(super) fn observe(&mut self, now: Time, info: &TransportInfo) -> Option<Span> {
        self.correct_departures(info.sent);
        self.record_departure(now, info.sent);
        let mut rtt = None;
        while let Some((at, _)) =
            self.departures.front().filter(|(_, end)| *end <= info.acknowledged)
        {
            rtt = Some(now.since(*at));
            self.departures.pop_front();
        }
        if info.bytes_in_flight().is_zero() {
            self.departures.clear();
            self.departed = info.sent;
        }
        rtt
    }

    /// Records `bytes` that the transport got since its last condition: bytes within the window
    /// depart at once. After a pause the window may be only ten segments, which the transport
    /// reports when it sends again.
    pub(super) fn on_submitted(&mut self, now: Time, info: &TransportInfo, bytes: u64) {
        let on_its_way = info.bytes_in_flight() + info.unsent + Size::from_bytes(bytes);
        let sure = match info.bytes_in_flight().is_zero() {
            true => info.congestion_window.min(Size::from_bytes(10 * SEGMENT_SIZE)),
            false => info.congestion_window,
        };
        if on_its_way <= sure && info.sent > 0 {
            self.record_departure(now, info.sent + info.unsent.as_bytes() + bytes);
        }
    }

    /// Corrects departures if fewer bytes have left than expected: small packets fill a window too.
    fn correct_departures(&mut self, end: u64) {
        if end >= self.departed {
            return;
        }
        self.departed = end;
        while let Some((_, last)) = self.departures.back_mut().filter(|(_, last)| *last > end) {
            *last = end;
            let before = self.departures.len().checked_sub(2).map(|at| self.departures[at].1);
            if before.is_none_or(|before| before < end) {
                break;
            }
            self.departures.pop_back();
        }
    }

    fn record_departure(&mut self, now: Time, end: u64) {
        if end <= self.departed {
            return;
        }
        self.departed = end;
        if self.departures.len() < MAX_DEPARTURES {
            self.departures.push_back((now, end));
        } else if let Some((_, last)) = self.departures.back_mut() {
            *last = end;
        }
    }

    /// Returns the time until `ahead` bytes, all unsent bytes, have left. Bytes beyond the window
    /// leave when earlier bytes are acknowledged, one RTT after the departure of these.
    pub(super) fn window_delay(
        &self,
        now: Time,
        info: &TransportInfo,
        rtt: Span,
        ahead: u64,
    ) -> Span {
        let window = info.congestion_window.as_bytes();
        let excess = (info.bytes_in_flight().as_bytes() + ahead).saturating_sub(window);
        let needed = if info.slow_start { excess.div_ceil(2) } else { excess };
        if needed == 0 {
            return Span::ZERO;
        }
        let needed = info.acknowledged + needed;
        let at = self.departures.partition_point(|(_, end)| *end < needed);
        let last = self.departures.get(at).or(self.departures.back());
        last.map_or(Span::ZERO, |(at, _)| (*at + rtt).since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(70);

    /// A transport with a window of ten packets.
    struct Transport {
        flight: Flight,
        info: TransportInfo,
        submitted: u64,
    }

    impl Transport {
        fn new() -> Self {
            let condition = TransportInfo::initial(RTT);
            let mut transport = Self { flight: Flight::default(), info: condition, submitted: 0 };
            transport.report(0, 0, 0);
            transport
        }

        /// Gives `packets` to the transport.
        fn submit(&mut self, at: u64, packets: u64) {
            self.submitted += packets * SEGMENT_SIZE;
            self.flight.on_submitted(
                Time::ZERO + Span::from_millis(at),
                &self.info,
                self.submitted,
            );
        }

        /// Reports the acknowledged packets in total, and the packets in flight.
        fn report(&mut self, at: u64, acknowledged: u64, in_flight: u64) {
            // One packet for the handshake.
            self.info.acknowledged = (1 + acknowledged) * SEGMENT_SIZE;
            self.info.in_flight = Some(Size::from_bytes(in_flight * SEGMENT_SIZE));
            self.info.sent = (1 + acknowledged + in_flight) * SEGMENT_SIZE;
            self.submitted = 0;
            self.flight.observe(Time::ZERO + Span::from_millis(at), &self.info);
        }

        fn window_delay(&self, at: u64) -> Span {
            self.flight.window_delay(
                Time::ZERO + Span::from_millis(at),
                &self.info,
                RTT,
                self.submitted + SEGMENT_SIZE,
            )
        }
    }

    #[test]
    fn a_window_that_was_filled_at_once_stays_full_for_a_round_trip() {
        let mut transport = Transport::new();
        transport.submit(0, 10);
        transport.report(10, 0, 10);
        assert_eq!(transport.window_delay(10), Span::from_millis(60));
        // More data waits, and changes nothing.
        transport.submit(20, 4);
        assert_eq!(transport.window_delay(30), Span::from_millis(40));
        assert_eq!(transport.window_delay(100), Span::ZERO);
    }

    #[test]
    fn a_window_of_small_packets_is_full_with_fewer_bytes() {
        let mut transport = Transport::new();
        for _ in 0..8 {
            transport.submit(0, 1);
        }
        // Seven full packets fill a window of ten packets.
        transport.report(0, 0, 7);
        transport.info.in_flight = Some(Size::from_bytes(10 * SEGMENT_SIZE));
        assert_eq!(transport.flight.departures.len(), 7);
        transport.report(50, 7, 4);
        transport.info.in_flight = Some(Size::from_bytes(10 * SEGMENT_SIZE));
        assert_eq!(transport.window_delay(50), RTT, "none of the first flight is left");
    }

    #[test]
    fn one_that_is_not_full_takes_what_comes() {
        let mut transport = Transport::new();
        transport.submit(0, 9);
        transport.report(10, 0, 9);
        assert_eq!(transport.window_delay(10), Span::ZERO);
    }

    #[test]
    fn one_that_opens_packet_by_packet_opens_with_the_next() {
        let mut transport = Transport::new();
        for packet in 0..10 {
            transport.submit(7 * packet, 1);
            transport.report(7 * packet, 0, packet + 1);
        }
        for packet in 1..50 {
            let now = 63 + 7 * packet;
            transport.report(now, packet, 10);
            // Departures have a distance of 7 ms.
            assert_eq!(transport.window_delay(now), Span::from_millis(7), "{packet}");
        }
    }

    #[test]
    fn what_does_not_fit_in_what_opens_first_waits_for_the_next() {
        let mut transport = Transport::new();
        transport.report(0, 0, 4);
        transport.report(30, 0, 10);
        transport.info.slow_start = false;
        transport.submitted = 3 * SEGMENT_SIZE;
        assert_eq!(transport.window_delay(40), Span::from_millis(30), "four packets leave at 70");
        transport.submitted = 4 * SEGMENT_SIZE;
        assert_eq!(transport.window_delay(40), Span::from_millis(60), "a fifth goes at 100");
        transport.info.slow_start = true;
        assert_eq!(transport.window_delay(40), Span::from_millis(30), "each lets two go");
    }

    #[test]
    fn many_departures_are_few_to_keep() {
        let mut transport = Transport::new();
        transport.info.congestion_window = Size::from_bytes(1_000 * SEGMENT_SIZE);
        for packet in 0..1_000 {
            transport.report(packet / 100, 0, packet + 1);
        }
        assert_eq!(transport.flight.departures.len(), MAX_DEPARTURES);
        // Departures above the limit count as sent with the last stored one.
        transport.report(75, 999, 1_000);
        assert!(transport.window_delay(75) <= RTT);
        transport.report(80, 1_999, 0);
        assert_eq!(transport.window_delay(80), Span::ZERO);
    }
}
