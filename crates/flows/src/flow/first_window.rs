//! Estimate of a server's initial window.
//!
//! After the first request of a connection, the server may send its initial congestion window.
//! Segments that the server sends before the first ACK reaches it pass the capture point before
//! that ACK plus the minimum remote round-trip time. The method is that of the campus Wi-Fi paper
//! (5.3), but with the round trip of the handshake. A handshake may take longer than later round
//! trips, so timestamps decide if both endpoints have them: a segment that echoes the timestamp of
//! the ACK was sent after it.

use manyways_unit::{Span, Time};

use super::place::Place;
use super::stream::{Acked, Seen};
use manyways_wire::tcp::Stamps;

/// A shorter response may be shorter than the window.
const LEAST_SEGMENTS: u32 = 20;
/// A gap longer than this fraction of a round trip (1/8) within the initial window shows pacing:
/// the server has not sent the whole window when the ACK arrives.
const PACED: u64 = 8;

/// State of the estimate.
#[derive(Clone, Debug, Default)]
pub struct FirstWindow {
    /// Offset of the first response.
    begin: Option<Place>,
    /// Time of the first ACK of a part of the response.
    acked: Option<Time>,
    /// TSval of that ACK, and TSecr of the response's first segment.
    stamp: u32,
    echo: u32,
    has_stamp: bool,
    has_echo: bool,
    /// Bytes that passed before the ACK could release more.
    bytes: u32,
    /// Time of the last of these segments.
    last: Option<Time>,
    longest_gap: Span,
    /// Whether the response continues after these bytes.
    has_more: bool,
    /// Bytes of the whole response.
    all: u32,
    /// Whether the client sent another request: later bytes are not part of the first response.
    is_over: bool,
    /// Whether the request was a TLS handshake message, whose response is short.
    is_greeting: bool,
}

/// Estimate of an initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Size in bytes; a lower bound if `is_valid` is false.
    pub bytes: u64,
    /// Whether the server had more to send, sent it later, and did not pace.
    pub is_valid: bool,
}

impl FirstWindow {
    /// Handles new bytes of the client; `beginning` is their captured part.
    pub(super) fn asked(&mut self, beginning: &[u8]) {
        match self.begin {
            Some(_) => self.is_over = true,
            None => self.is_greeting |= beginning.first() == Some(&0x16),
        }
    }

    /// Handles new bytes of the server. `far` is the minimum round-trip time between the capture
    /// point and the server.
    pub(super) fn answered(
        &mut self,
        now: Time,
        seen: &Seen,
        far: Option<Span>,
        stamps: Option<Stamps>,
        is_asked: bool,
    ) {
        if self.is_over || !is_asked {
            return;
        }
        let echo = stamps.map(|stamps| stamps.echo);
        if self.begin.is_none() {
            (self.echo, self.has_echo) = (echo.unwrap_or(0), echo.is_some());
        }
        let begin = self.begin.get_or_insert(Place::new(seen.begin)).get();
        let bytes = seen.end - seen.begin.max(begin).min(seen.end);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.all = self.all.saturating_add(bytes);
        let tells = self.has_stamp && self.has_echo && is_after(self.stamp, self.echo);
        let is_first = match (self.acked, far) {
            (None, _) => true,
            (Some(_), _) if tells => echo.is_none_or(|echo| is_after(self.stamp, echo)),
            (Some(acked), Some(far)) => now.since(acked) < far,
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
    pub(super) fn acked(&mut self, now: Time, acked: &Acked, stamps: Option<Stamps>) {
        let is_of_it = self.begin.is_some_and(|begin| acked.to > begin.get());
        if is_of_it && acked.bytes > 0 && self.acked.is_none() {
            self.acked = Some(now);
            (self.stamp, self.has_stamp) = (stamps.map_or(0, |s| s.value), stamps.is_some());
        }
    }

    /// Returns the estimate, for segments of up to `mss` bytes and a round-trip time of `trip`.
    /// `None` without a response.
    pub fn estimate(&self, mss: u32, trip: Option<Span>) -> Option<Estimate> {
        self.begin?;
        let is_long = self.all.div_ceil(mss.max(1)) >= LEAST_SEGMENTS;
        let is_burst =
            trip.is_some_and(|trip| self.longest_gap.as_nanos() <= trip.as_nanos() / PACED);
        let is_valid = is_long && is_burst && self.has_more && !self.is_greeting;
        Some(Estimate { bytes: self.bytes.into(), is_valid })
    }
}

fn is_after(stamp: u32, other: u32) -> bool {
    (stamp.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;
    const TRIP: Option<Span> = Some(Span::from_millis(40));

    /// A server that sends one segment per millisecond: the initial window from 100 ms on, and the
    /// rest after an ACK at 110 ms.
    fn answers(question: &[u8], first: u64, later: u64, gap: u64) -> Option<Estimate> {
        let mut window = FirstWindow::default();
        let seen = |number: u64| Seen {
            is_new: true,
            begin: number * 1_000,
            end: (number + 1) * 1_000,
            ..Seen::default()
        };
        let far = Some(Span::from_millis(30));
        let acked = Acked { bytes: 1_000, to: 1_000, ..Acked::default() };
        window.asked(question);
        for number in 0..first {
            let at = 100 + gap * number;
            if at > 110 {
                window.acked(Time::from_millis(110), &acked, None);
            }
            window.answered(Time::from_millis(at), &seen(number), far, None, true);
        }
        window.acked(Time::from_millis(110), &acked, None);
        for number in first..first + later {
            window.answered(Time::from_millis(140 + number), &seen(number), far, None, true);
        }
        window.estimate(MSS, TRIP)
    }

    #[test]
    fn what_comes_before_the_acknowledgement_can_be_there_is_the_first_window() {
        for first in [4, 10, 32] {
            let estimate = answers(b"GET", first, 30, 1).unwrap();
            assert_eq!(estimate, Estimate { bytes: first * 1_000, is_valid: true });
        }
        assert_eq!(FirstWindow::default().estimate(MSS, TRIP), None);
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
        let mut window = FirstWindow::default();
        let far = Some(Span::from_millis(42));
        let seen = |n: u64| Seen {
            is_new: true,
            begin: n * 1_000,
            end: (n + 1) * 1_000,
            ..Seen::default()
        };
        let stamps = |value, echo| Some(Stamps { value, echo });
        window.asked(b"GET");
        for number in 0..10 {
            window.answered(Time::from_millis(107), &seen(number), far, stamps(5, 700), true);
        }
        let acked = Acked { bytes: 1_000, to: 1_000, ..Acked::default() };
        window.acked(Time::from_millis(110), &acked, stamps(740, 5));
        window.answered(Time::from_millis(111), &seen(10), far, stamps(5, 700), true);
        for number in 11..40 {
            window.answered(Time::from_millis(150), &seen(number), far, stamps(45, 740), true);
        }
        assert_eq!(window.estimate(MSS, TRIP), Some(Estimate { bytes: 11_000, is_valid: true }));
    }
}
