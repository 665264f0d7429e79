//! Estimates when a full congestion window opens again.
//!
//! Data that is given to a transport with a full window waits at this endpoint until the oldest
//! bytes in flight are acknowledged. In a steady flow this happens soon. If the whole window was
//! sent at once, as after a pause, the wait is nearly one round trip. The rate alone cannot
//! distinguish the two cases.

use std::collections::VecDeque;

use manyways_unit::{Size, Span, Time};

use super::carrier::Condition;

/// Bytes of a segment. After a pause, the window is ten segments.
const PACKET: u64 = 1_448;
/// Maximum number of stored departures. Above it, bytes count as sent with the last stored
/// departure, which is too early.
const MOST_KEPT: usize = 256;

/// Departure times of the bytes in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Time of each departure, and the end of its bytes in the connection's count.
    departures: VecDeque<(Time, u64)>,
    left: u64,
}

impl Flight {
    /// Processes a new condition and returns the round-trip time of the last newly acknowledged
    /// byte.
    pub(super) fn observe(&mut self, now: Time, condition: &Condition) -> Option<Span> {
        self.take_back(condition.departed);
        self.depart(now, condition.departed);
        let mut trip = None;
        while let Some((at, _)) =
            self.departures.front().filter(|(_, end)| *end <= condition.acknowledged)
        {
            trip = Some(now.since(*at));
            self.departures.pop_front();
        }
        if condition.flying().is_zero() {
            self.departures.clear();
            self.left = condition.departed;
        }
        trip
    }

    /// Records `bytes` that the transport got since its last condition: bytes within the window
    /// depart at once. After a pause the window may be only ten segments, which the transport
    /// reports when it sends again.
    pub(super) fn feed(&mut self, now: Time, condition: &Condition, bytes: u64) {
        let on_its_way = condition.flying() + condition.unsent + Size::from_bytes(bytes);
        let sure = match condition.flying().is_zero() {
            true => condition.window.min(Size::from_bytes(10 * PACKET)),
            false => condition.window,
        };
        if on_its_way <= sure && condition.departed > 0 {
            self.depart(now, condition.departed + condition.unsent.as_bytes() + bytes);
        }
    }

    /// Corrects departures if fewer bytes have left than expected: small packets fill a window too.
    fn take_back(&mut self, end: u64) {
        if end >= self.left {
            return;
        }
        self.left = end;
        while let Some((_, last)) = self.departures.back_mut().filter(|(_, last)| *last > end) {
            *last = end;
            let before = self.departures.len().checked_sub(2).map(|at| self.departures[at].1);
            if before.is_none_or(|before| before < end) {
                break;
            }
            self.departures.pop_back();
        }
    }

    fn depart(&mut self, now: Time, end: u64) {
        if end <= self.left {
            return;
        }
        self.left = end;
        if self.departures.len() < MOST_KEPT {
            self.departures.push_back((now, end));
        } else if let Some((_, last)) = self.departures.back_mut() {
            *last = end;
        }
    }

    /// Returns the time until `ahead` bytes, all unsent bytes, have left. Bytes beyond the window
    /// leave when earlier bytes are acknowledged, one RTT after the departure of these.
    pub(super) fn opens_in(&self, now: Time, condition: &Condition, rtt: Span, ahead: u64) -> Span {
        let window = condition.window.as_bytes();
        let excess = (condition.flying().as_bytes() + ahead).saturating_sub(window);
        let needed = if condition.slow_start { excess.div_ceil(2) } else { excess };
        if needed == 0 {
            return Span::ZERO;
        }
        let needed = condition.acknowledged + needed;
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
        condition: Condition,
        fed: u64,
    }

    impl Transport {
        fn new() -> Self {
            let condition = Condition::fresh(RTT);
            let mut transport = Self { flight: Flight::default(), condition, fed: 0 };
            transport.says(0, 0, 0);
            transport
        }

        /// Gives `packets` to the transport.
        fn feed(&mut self, at: u64, packets: u64) {
            self.fed += packets * PACKET;
            self.flight.feed(Time::ZERO + Span::from_millis(at), &self.condition, self.fed);
        }

        /// Reports the acknowledged packets in total, and the packets in flight.
        fn says(&mut self, at: u64, acknowledged: u64, in_flight: u64) {
            // One packet for the handshake.
            self.condition.acknowledged = (1 + acknowledged) * PACKET;
            self.condition.in_flight = Some(Size::from_bytes(in_flight * PACKET));
            self.condition.departed = (1 + acknowledged + in_flight) * PACKET;
            self.fed = 0;
            self.flight.observe(Time::ZERO + Span::from_millis(at), &self.condition);
        }

        fn opens_in(&self, at: u64) -> Span {
            self.flight.opens_in(
                Time::ZERO + Span::from_millis(at),
                &self.condition,
                RTT,
                self.fed + PACKET,
            )
        }
    }

    #[test]
    fn a_window_that_was_filled_at_once_stays_full_for_a_round_trip() {
        let mut transport = Transport::new();
        transport.feed(0, 10);
        transport.says(10, 0, 10);
        assert_eq!(transport.opens_in(10), Span::from_millis(60));
        // More data waits, and changes nothing.
        transport.feed(20, 4);
        assert_eq!(transport.opens_in(30), Span::from_millis(40));
        assert_eq!(transport.opens_in(100), Span::ZERO);
    }

    #[test]
    fn a_window_of_small_packets_is_full_with_fewer_bytes() {
        let mut transport = Transport::new();
        for _ in 0..8 {
            transport.feed(0, 1);
        }
        // Seven full packets fill a window of ten packets.
        transport.says(0, 0, 7);
        transport.condition.in_flight = Some(Size::from_bytes(10 * PACKET));
        assert_eq!(transport.flight.departures.len(), 7);
        transport.says(50, 7, 4);
        transport.condition.in_flight = Some(Size::from_bytes(10 * PACKET));
        assert_eq!(transport.opens_in(50), RTT, "none of the first flight is left");
    }

    #[test]
    fn one_that_is_not_full_takes_what_comes() {
        let mut transport = Transport::new();
        transport.feed(0, 9);
        transport.says(10, 0, 9);
        assert_eq!(transport.opens_in(10), Span::ZERO);
    }

    #[test]
    fn one_that_opens_packet_by_packet_opens_with_the_next() {
        let mut transport = Transport::new();
        for packet in 0..10 {
            transport.feed(7 * packet, 1);
            transport.says(7 * packet, 0, packet + 1);
        }
        for packet in 1..50 {
            let now = 63 + 7 * packet;
            transport.says(now, packet, 10);
            // Departures have a distance of 7 ms.
            assert_eq!(transport.opens_in(now), Span::from_millis(7), "{packet}");
        }
    }

    #[test]
    fn what_does_not_fit_in_what_opens_first_waits_for_the_next() {
        let mut transport = Transport::new();
        transport.says(0, 0, 4);
        transport.says(30, 0, 10);
        transport.condition.slow_start = false;
        transport.fed = 3 * PACKET;
        assert_eq!(transport.opens_in(40), Span::from_millis(30), "four packets leave at 70");
        transport.fed = 4 * PACKET;
        assert_eq!(transport.opens_in(40), Span::from_millis(60), "a fifth goes at 100");
        transport.condition.slow_start = true;
        assert_eq!(transport.opens_in(40), Span::from_millis(30), "each lets two go");
    }

    #[test]
    fn many_departures_are_few_to_keep() {
        let mut transport = Transport::new();
        transport.condition.window = Size::from_bytes(1_000 * PACKET);
        for packet in 0..1_000 {
            transport.says(packet / 100, 0, packet + 1);
        }
        assert_eq!(transport.flight.departures.len(), MOST_KEPT);
        // Departures above the limit count as sent with the last stored one.
        transport.says(75, 999, 1_000);
        assert!(transport.opens_in(75) <= RTT);
        transport.says(80, 1_999, 0);
        assert_eq!(transport.opens_in(80), Span::ZERO);
    }
}
