//! Estimate of a server's initial window.
//!
//! After the first request of a connection, the server may send its initial congestion window.
//! Segments that the server sends before the first ACK reaches it pass the capture point before
//! that ACK plus the minimum remote round-trip time. The method is that of the campus Wi-Fi paper
//! (5.3), but with the round trip of the handshake. A handshake may take longer than later round
//! trips, so timestamps decide if both endpoints have them: a segment that echoes the timestamp of
//! the ACK was sent after it.

use manyways_unit::{Span, Time};

use super::offset::Offset;
use super::stream::{AckOutcome, SegmentOutcome};
use manyways_wire::tcp::Timestamps;

/// A shorter response may be shorter than the window.
const MIN_SEGMENTS: u32 = 20;
/// A gap longer than this fraction of a round trip (1/8) within the initial window shows pacing:
/// the server has not sent the whole window when the ACK arrives.
const PACING_GAP_DIVISOR: u64 = 8;

/// State of the estimate.
#[derive(Clone, Debug, Default)]
pub struct InitialWindow {
    /// Offset of the first response.
    begin: Option<Offset>,
    /// Time of the first ACK of a part of the response.
    acked_at: Option<Time>,
    /// TSval of that ACK, and TSecr of the response's first segment.
    ack_tsval: u32,
    response_tsecr: u32,
    has_tsval: bool,
    has_tsecr: bool,
    /// Bytes that passed before the ACK could release more.
    bytes: u32,
    /// Time of the last of these segments.
    last: Option<Time>,
    longest_gap: Span,
    /// Whether the response continues after these bytes.
    has_more: bool,
    /// Bytes of the whole response.
    response_bytes: u32,
    /// Whether the client sent another request: later bytes are not part of the first response.
    has_next_request: bool,
    /// Whether the request was a TLS handshake message, whose response is short.
    is_tls_handshake: bool,
}

/// Estimate of an initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Size in bytes; a lower bound if `is_valid` is false.
    pub bytes: u64,
    /// Whether the server had more to send, sent it later, and did not pace.
    pub is_valid: bool,
}

impl InitialWindow {
    /// Handles new bytes of the client; `beginning` is their captured part.
    pub(super) fn on_request(&mut self, beginning: &[u8]) {
        match self.begin {
            Some(_) => self.has_next_request = true,
            None => self.is_tls_handshake |= beginning.first() == Some(&0x16),
        }
    }

    /// Handles new bytes of the server. `sender_rtt` is the minimum round-trip time between the
    /// capture point and the server.
    pub(super) fn on_response(
        &mut self,
        now: Time,
        outcome: &SegmentOutcome,
        sender_rtt: Option<Span>,
        timestamps: Option<Timestamps>,
        is_asked: bool,
    ) {
        if self.has_next_request || !is_asked {
            return;
        }
        let echo = timestamps.map(|timestamps| timestamps.tsecr);
        if self.begin.is_none() {
            (self.response_tsecr, self.has_tsecr) = (echo.unwrap_or(0), echo.is_some());
        }
        let begin = self.begin.get_or_insert(Offset::new(outcome.begin)).get();
        let bytes = outcome.end - outcome.begin.max(begin).min(outcome.end);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.response_bytes = self.response_bytes.saturating_add(bytes);
        let tells =
            self.has_tsval && self.has_tsecr && is_after(self.ack_tsval, self.response_tsecr);
        let is_first = match (self.acked_at, sender_rtt) {
            (None, _) => true,
            (Some(_), _) if tells => echo.is_none_or(|echo| is_after(self.ack_tsval, echo)),
            (Some(acked), Some(sender_rtt)) => now.since(acked) < sender_rtt,
            // The arrival time of the ACK is unknown.
            (Some(_), None) => false,
        };
        if !is_first || self.has_more {
            self.has_more = true;
            return;
        }
        if let Some(last) = self.last {
            self.longest_gap = self.longest_gap.max(now.since(last));
        }
        self.last = Some(now);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Handles an ACK of the client.
    pub(super) fn on_ack(&mut self, now: Time, acked: &AckOutcome, timestamps: Option<Timestamps>) {
        let is_of_it = self.begin.is_some_and(|begin| acked.acked_to > begin.get());
        if is_of_it && acked.bytes > 0 && self.acked_at.is_none() {
            self.acked_at = Some(now);
            (self.ack_tsval, self.has_tsval) =
                (timestamps.map_or(0, |s| s.tsval), timestamps.is_some());
        }
    }

    /// Returns the estimate, for segments of up to `mss` bytes and a round-trip time of `rtt`.
    /// `None` without a response.
    pub fn estimate(&self, mss: u32, rtt: Option<Span>) -> Option<Estimate> {
        self.begin?;
        let is_long = self.response_bytes.div_ceil(mss.max(1)) >= MIN_SEGMENTS;
        let is_burst = rtt
            .is_some_and(|rtt| self.longest_gap.as_nanos() <= rtt.as_nanos() / PACING_GAP_DIVISOR);
        let is_valid = is_long && is_burst && self.has_more && !self.is_tls_handshake;
        Some(Estimate { bytes: self.bytes.into(), is_valid })
    }
}

fn is_after(tsval: u32, other: u32) -> bool {
    (tsval.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;
    const TRIP: Option<Span> = Some(Span::from_millis(40));

    /// A server that sends one segment per millisecond: the initial window from 100 ms on, and the
    /// rest after an ACK at 110 ms.
    fn answers(question: &[u8], first: u64, later: u64, gap: u64) -> Option<Estimate> {
        let mut window = InitialWindow::default();
        let seen = |number: u64| SegmentOutcome {
            is_new: true,
            begin: number * 1_000,
            end: (number + 1) * 1_000,
            ..SegmentOutcome::default()
        };
        let sender_rtt = Some(Span::from_millis(30));
        let acked = AckOutcome { bytes: 1_000, acked_to: 1_000, ..AckOutcome::default() };
        window.on_request(question);
        for number in 0..first {
            let at = 100 + gap * number;
            if at > 110 {
                window.on_ack(Time::from_millis(110), &acked, None);
            }
            window.on_response(Time::from_millis(at), &seen(number), sender_rtt, None, true);
        }
        window.on_ack(Time::from_millis(110), &acked, None);
        for number in first..first + later {
            window.on_response(
                Time::from_millis(140 + number),
                &seen(number),
                sender_rtt,
                None,
                true,
            );
        }
        window.estimate(MSS, TRIP)
    }

    #[test]
    fn what_comes_before_the_acknowledgement_can_be_there_is_the_first_window() {
        for first in [4, 10, 32] {
            let estimate = answers(b"GET", first, 30, 1).unwrap();
            assert_eq!(estimate, Estimate { bytes: first * 1_000, is_valid: true });
        }
        assert_eq!(InitialWindow::default().estimate(MSS, TRIP), None);
    }

    #[test]
    fn what_may_have_been_more_is_no_estimate() {
        let is_valid = |estimate: Option<Estimate>| estimate.unwrap().is_valid;
        assert!(!is_valid(answers(b"GET", 10, 9, 1)), "it is short");
        assert!(!is_valid(answers(b"GET", 30, 0, 1)), "nothing follows");
        assert!(!is_valid(answers(b"\x16\x03\x01", 10, 30, 1)), "it greets");
        assert!(!is_valid(answers(b"GET", 4, 30, 6)), "it is paced");
    }

    /// The handshake took 42 ms, later round trips 40 ms: by time alone, two segments that the ACK
    /// released would count as part of the initial window.
    #[test]
    fn stamps_tell_what_an_acknowledgement_released() {
        let mut window = InitialWindow::default();
        let sender_rtt = Some(Span::from_millis(42));
        let seen = |n: u64| SegmentOutcome {
            is_new: true,
            begin: n * 1_000,
            end: (n + 1) * 1_000,
            ..SegmentOutcome::default()
        };
        let stamps = |value, echo| Some(Timestamps { tsval: value, tsecr: echo });
        window.on_request(b"GET");
        for number in 0..10 {
            window.on_response(
                Time::from_millis(107),
                &seen(number),
                sender_rtt,
                stamps(5, 700),
                true,
            );
        }
        let acked = AckOutcome { bytes: 1_000, acked_to: 1_000, ..AckOutcome::default() };
        window.on_ack(Time::from_millis(110), &acked, stamps(740, 5));
        window.on_response(Time::from_millis(111), &seen(10), sender_rtt, stamps(5, 700), true);
        for number in 11..40 {
            window.on_response(
                Time::from_millis(150),
                &seen(number),
                sender_rtt,
                stamps(45, 740),
                true,
            );
        }
        assert_eq!(window.estimate(MSS, TRIP), Some(Estimate { bytes: 11_000, is_valid: true }));
    }
}
