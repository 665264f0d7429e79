//! Sender limits of a connection.
//!
//! The time between one new segment and the next is attributed to the event that the sender waited
//! for: data from its application, space in the receive window, or its own congestion window. The
//! congestion window is in initial growth, small after losses, or as large as the path and its
//! queue permit. The limits are those of T-RAT (Zhang et al., SIGCOMM 2002), but per gap: the limit
//! of a flow may change over time.

use manyways_unit::{Span, Time};

/// A limit of a sender's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SenderLimit {
    /// No data to send, and no request of the peer.
    Application,
    /// A request of the peer, but no data to send yet.
    Think,
    ReceiverWindow,
    /// The path is at capacity: sent data waits in a queue.
    Congestion,
    /// Packet loss without a queue.
    Loss,
    /// Initial growth of the congestion window, or a response in flight.
    SlowStart,
}

/// Time of each limit. The sum is exact up to two years, and each value is exact while none exceeds
/// 4.3 s. Above that, each addition moves some billionths of the largest value from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy {
    /// Compact, because there are two per connection: units of 2^`shift` ns.
    units: [u32; 6],
    shift: u8,
    /// Remainder below a unit, which the next span receives, whatever its limit.
    remainder: [u8; 3],
}

/// Maximum shift: a remainder must fit in `rest`.
const MAX_SHIFT: u8 = 24;

/// State of the sender when a new segment passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    /// Whether the sender had sent all its data before this segment.
    pub was_app_limited: bool,
    /// Whether the receive window was closed since the previous segment.
    pub was_blocked: bool,
    /// Whether the sender is in loss recovery.
    pub is_recovering: bool,
    /// Bytes in flight, including this segment.
    pub in_flight: u32,
    /// Space left in the receive window after this segment, as known to the sender.
    pub window_left: Option<u64>,
    /// Latest round-trip time, minimum one, and minimum of the part beyond the capture point.
    pub latest_rtt: Option<Span>,
    pub min_rtt: Option<Span>,
    pub min_sender_rtt: Option<Span>,
    pub mss: u32,
}

/// Attributes each gap to a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitClassifier {
    limited_by: LimitedBy,
    /// Time of the previous segment, whether it was in loss recovery, and whether the window had no
    /// space for another one.
    last_segment: Option<Time>,
    was_recovering: bool,
    was_window_full: bool,
    /// Time of the peer's first data since then.
    requested_at: Option<Time>,
    /// Whether the initial growth of the window is over.
    left_slow_start: bool,
    growth: WindowGrowth,
    loss: Option<Loss>,
}

/// Initial growth of the window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowGrowth {
    /// Start of this round trip, and the maximum in flight in it and in the previous one.
    round_start: Option<Time>,
    max_in_flight: u32,
    previous_max: u32,
}

/// The latest loss.
#[derive(Clone, Copy, Debug)]
struct Loss {
    had_queue: bool,
}

impl SenderLimit {
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::Think,
        Self::ReceiverWindow,
        Self::Congestion,
        Self::Loss,
        Self::SlowStart,
    ];

    /// Returns the name of the table columns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Think => "think",
            Self::ReceiverWindow => "receiver_window",
            Self::Congestion => "congestion",
            Self::Loss => "loss",
            Self::SlowStart => "slow_start",
        }
    }
}

impl LimitedBy {
    /// Time of one limit.
    pub fn span(&self, limit: SenderLimit) -> Span {
        Span::from_nanos(u64::from(self.units[limit as usize]) << self.shift)
    }

    /// Sum over all limits.
    pub fn total(&self) -> Span {
        let units: u64 = self.units.iter().copied().map(u64::from).sum();
        Span::from_nanos((units << self.shift) + self.remainder())
    }

    /// Share of a limit in the sum, 0 to 1; 0 if the sum is zero.
    pub fn share(&self, limit: SenderLimit) -> f64 {
        let all = self.total();
        if all.is_zero() { 0.0 } else { self.span(limit).as_secs_f64() / all.as_secs_f64() }
    }

    /// Adds a time to a limit.
    #[inline]
    pub fn add(&mut self, limit: SenderLimit, span: Span) {
        let mut nanos = span.as_nanos().saturating_add(self.remainder());
        loop {
            let units = nanos >> self.shift;
            let before = self.units[limit as usize];
            let sum = u32::try_from(units).ok().and_then(|units| before.checked_add(units));
            if let Some(sum) = sum.or((self.shift == MAX_SHIFT).then_some(u32::MAX)) {
                self.units[limit as usize] = sum;
                let [rest @ .., _] = ((nanos - (units << self.shift)) as u32).to_le_bytes();
                self.remainder = rest;
                return;
            }
            for units in &mut self.units {
                nanos = nanos.saturating_add(u64::from(*units & 1) << self.shift);
                *units >>= 1;
            }
            self.shift += 1;
        }
    }

    fn remainder(&self) -> u64 {
        let [low, middle, high] = self.remainder;
        u32::from_le_bytes([low, middle, high, 0]).into()
    }
}

impl LimitClassifier {
    pub(super) fn limited_by(&self) -> &LimitedBy {
        &self.limited_by
    }

    /// Starts the measurement at the end of the handshake.
    pub(super) fn start(&mut self, now: Time) {
        self.last_segment = self.last_segment.or(Some(now));
    }

    /// Handles data of the peer, which may be a request.
    pub(super) fn on_request(&mut self, now: Time) {
        self.requested_at = Some(now);
    }

    /// Handles a loss that the sender noticed.
    pub(super) fn on_loss(&mut self, rtt: Option<Span>, min: Option<Span>) {
        self.left_slow_start = true;
        self.loss = Some(Loss { had_queue: has_queue(rtt, min) });
    }

    /// Handles new bytes of the sender.
    pub(super) fn on_segment(&mut self, now: Time, snapshot: Snapshot) {
        if let Some(before) = self.last_segment {
            self.classify(now, before, &snapshot);
        }
        let rtt = snapshot.latest_rtt.filter(|_| !self.left_slow_start);
        self.left_slow_start |= self.growth.on_segment(now, rtt, snapshot.in_flight);
        self.last_segment = Some(now);
        self.was_recovering = snapshot.is_recovering;
        self.was_window_full =
            snapshot.window_left.is_some_and(|remaining| remaining < snapshot.mss.into());
        self.requested_at = None;
    }

    fn classify(&mut self, now: Time, before: Time, snapshot: &Snapshot) {
        let gap = now.since(before);
        if !snapshot.was_app_limited {
            let limit = self.network_limit(snapshot);
            self.limited_by.add(limit, gap);
            return;
        }
        let Some(asked) = self.requested_at else {
            self.limited_by.add(SenderLimit::Application, gap);
            return;
        };
        self.limited_by.add(SenderLimit::Application, asked.since(before));
        // The travel times of request and response are not think time.
        let waited = now.since(asked);
        let way = snapshot.min_sender_rtt.unwrap_or_default().min(waited);
        self.limited_by.add(SenderLimit::SlowStart, way);
        self.limited_by.add(SenderLimit::Think, waited.saturating_sub(way));
    }

    fn network_limit(&self, snapshot: &Snapshot) -> SenderLimit {
        let is_queued = has_queue(snapshot.latest_rtt, snapshot.min_rtt);
        if self.was_recovering || snapshot.is_recovering {
            return match self.loss {
                Some(Loss { had_queue: true }) => SenderLimit::Congestion,
                _ => SenderLimit::Loss,
            };
        }
        if self.was_window_full || snapshot.was_blocked {
            return SenderLimit::ReceiverWindow;
        }
        match (is_queued, self.left_slow_start, self.loss) {
            (_, false, _) => SenderLimit::SlowStart,
            (false, true, Some(Loss { had_queue: false })) => SenderLimit::Loss,
            _ => SenderLimit::Congestion,
        }
    }
}

impl WindowGrowth {
    /// Handles a segment. Returns true if the last round trip carried less than 25 % more than the
    /// previous one. Requires a known round-trip time.
    fn on_segment(&mut self, now: Time, rtt: Option<Span>, in_flight: u32) -> bool {
        let since = *self.round_start.get_or_insert(now);
        let is_next = rtt.is_some_and(|rtt| now.since(since) >= rtt);
        let is_over = is_next
            && self.previous_max > 0
            && self.max_in_flight < self.previous_max.saturating_add(self.previous_max / 4);
        if is_next {
            (self.previous_max, self.max_in_flight, self.round_start) =
                (self.max_in_flight, 0, Some(now));
        }
        self.max_in_flight = self.max_in_flight.max(in_flight);
        is_over
    }
}

/// Whether the round-trip time exceeds the minimum by at least 25 % and by at least 5 ms, which
/// shows a queue.
fn has_queue(rtt: Option<Span>, min: Option<Span>) -> bool {
    rtt.zip(min).is_some_and(|(rtt, min)| {
        let more = Span::from_nanos(min.as_nanos() / 4).max(Span::from_millis(5));
        rtt > min + more
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_of_any_length_is_lost(
            spans in prop::collection::vec((0_usize..6, 0_u64..1 << 40, 0_u32..40), 0..200),
        ) {
            let (mut limited_by, mut spans_of) = (LimitedBy::default(), [0_u64; 6]);
            for (limit, nanos, less) in spans {
                let nanos = nanos >> less;
                limited_by.add(SenderLimit::ALL[limit], Span::from_nanos(nanos));
                spans_of[limit] += nanos;
            }
            let all: u64 = spans_of.iter().sum();
            prop_assert_eq!(limited_by.total(), Span::from_nanos(all));
            let error = if all < 1 << 32 { 0 } else { 200 * (all >> 31) };
            for (limit, nanos) in SenderLimit::ALL.into_iter().zip(spans_of) {
                prop_assert!(limited_by.span(limit).as_nanos().abs_diff(nanos) <= error);
            }
        }
    }

    #[test]
    fn what_is_endless_is_no_more_than_two_years() {
        let mut limited_by = LimitedBy::default();
        limited_by.add(SenderLimit::Think, Span::MAX);
        limited_by.add(SenderLimit::Think, Span::MAX);
        let year = Span::from_secs(365 * 86_400);
        assert!(limited_by.span(SenderLimit::Think) > year + year);
        assert!(limited_by.share(SenderLimit::Think) > 0.999);
    }
}
