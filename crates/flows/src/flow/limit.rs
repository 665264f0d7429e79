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
pub enum Limit {
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
    StartUp,
}

/// Time of each limit. The sum is exact up to two years, and each value is exact while none exceeds
/// 4.3 s. Above that, each addition moves some billionths of the largest value from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy {
    /// Compact, because there are two per connection: units of 2^`shift` ns.
    units: [u32; 6],
    shift: u8,
    /// Remainder below a unit, which the next span receives, whatever its limit.
    rest: [u8; 3],
}

/// Maximum shift: a remainder must fit in `rest`.
const COARSEST: u8 = 24;

/// State of the sender when a new segment passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// Whether the sender had sent all its data before this segment.
    pub was_dry: bool,
    /// Whether the receive window was closed since the previous segment.
    pub was_blocked: bool,
    /// Whether the sender is in loss recovery.
    pub is_recovering: bool,
    /// Bytes in flight, including this segment.
    pub in_flight: u32,
    /// Space left in the receive window after this segment, as known to the sender.
    pub left: Option<u64>,
    /// Latest round-trip time, minimum one, and minimum of the part beyond the capture point.
    pub trip: Option<Span>,
    pub least: Option<Span>,
    pub far: Option<Span>,
    pub mss: u32,
}

/// Attributes each gap to a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    limited_by: LimitedBy,
    /// Time of the previous segment, whether it was in loss recovery, and whether the window had no
    /// space for another one.
    before: Option<Time>,
    was_recovering: bool,
    had_no_room: bool,
    /// Time of the peer's first data since then.
    asked: Option<Time>,
    /// Whether the initial growth of the window is over.
    has_grown: bool,
    growth: Growth,
    loss: Option<Loss>,
}

/// Initial growth of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    /// Start of this round trip, and the maximum in flight in it and in the previous one.
    since: Option<Time>,
    most: u32,
    before: u32,
}

/// The latest loss.
#[derive(Clone, Copy, Debug)]
struct Loss {
    had_queue: bool,
}

impl Limit {
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::Think,
        Self::ReceiverWindow,
        Self::Congestion,
        Self::Loss,
        Self::StartUp,
    ];

    /// Returns the name of the table columns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Think => "think",
            Self::ReceiverWindow => "receiver_window",
            Self::Congestion => "congestion",
            Self::Loss => "loss",
            Self::StartUp => "start_up",
        }
    }
}

impl LimitedBy {
    /// Time of one limit.
    pub fn span(&self, limit: Limit) -> Span {
        Span::from_nanos(u64::from(self.units[limit as usize]) << self.shift)
    }

    /// Sum over all limits.
    pub fn all(&self) -> Span {
        let units: u64 = self.units.iter().copied().map(u64::from).sum();
        Span::from_nanos((units << self.shift) + self.rest())
    }

    /// Share of a limit in the sum, 0 to 1; 0 if the sum is zero.
    pub fn share(&self, limit: Limit) -> f64 {
        let all = self.all();
        if all.is_zero() { 0.0 } else { self.span(limit).as_secs_f64() / all.as_secs_f64() }
    }

    /// Adds a time to a limit.
    #[inline]
    pub fn add(&mut self, limit: Limit, span: Span) {
        let mut nanos = span.as_nanos().saturating_add(self.rest());
        loop {
            let units = nanos >> self.shift;
            let before = self.units[limit as usize];
            let sum = u32::try_from(units).ok().and_then(|units| before.checked_add(units));
            if let Some(sum) = sum.or((self.shift == COARSEST).then_some(u32::MAX)) {
                self.units[limit as usize] = sum;
                let [rest @ .., _] = ((nanos - (units << self.shift)) as u32).to_le_bytes();
                self.rest = rest;
                return;
            }
            for units in &mut self.units {
                nanos = nanos.saturating_add(u64::from(*units & 1) << self.shift);
                *units >>= 1;
            }
            self.shift += 1;
        }
    }

    fn rest(&self) -> u64 {
        let [low, middle, high] = self.rest;
        u32::from_le_bytes([low, middle, high, 0]).into()
    }
}

impl Judge {
    pub(super) fn limited_by(&self) -> &LimitedBy {
        &self.limited_by
    }

    /// Starts the measurement at the end of the handshake.
    pub(super) fn begins(&mut self, now: Time) {
        self.before = self.before.or(Some(now));
    }

    /// Handles data of the peer, which may be a request.
    pub(super) fn asked(&mut self, now: Time) {
        self.asked = Some(now);
    }

    /// Handles a loss that the sender noticed.
    pub(super) fn lost(&mut self, trip: Option<Span>, least: Option<Span>) {
        self.has_grown = true;
        self.loss = Some(Loss { had_queue: has_queue(trip, least) });
    }

    /// Handles new bytes of the sender.
    pub(super) fn sent(&mut self, now: Time, moment: Moment) {
        if let Some(before) = self.before {
            self.judge(now, before, &moment);
        }
        let trip = moment.trip.filter(|_| !self.has_grown);
        self.has_grown |= self.growth.is_over(now, trip, moment.in_flight);
        self.before = Some(now);
        self.was_recovering = moment.is_recovering;
        self.had_no_room = moment.left.is_some_and(|left| left < moment.mss.into());
        self.asked = None;
    }

    fn judge(&mut self, now: Time, before: Time, moment: &Moment) {
        let gap = now.since(before);
        if !moment.was_dry {
            let limit = self.by_network(moment);
            self.limited_by.add(limit, gap);
            return;
        }
        let Some(asked) = self.asked else {
            self.limited_by.add(Limit::Application, gap);
            return;
        };
        self.limited_by.add(Limit::Application, asked.since(before));
        // The travel times of request and response are not think time.
        let waited = now.since(asked);
        let way = moment.far.unwrap_or_default().min(waited);
        self.limited_by.add(Limit::StartUp, way);
        self.limited_by.add(Limit::Think, waited.saturating_sub(way));
    }

    fn by_network(&self, moment: &Moment) -> Limit {
        let is_queued = has_queue(moment.trip, moment.least);
        if self.was_recovering || moment.is_recovering {
            return match self.loss {
                Some(Loss { had_queue: true }) => Limit::Congestion,
                _ => Limit::Loss,
            };
        }
        if self.had_no_room || moment.was_blocked {
            return Limit::ReceiverWindow;
        }
        match (is_queued, self.has_grown, self.loss) {
            (_, false, _) => Limit::StartUp,
            (false, true, Some(Loss { had_queue: false })) => Limit::Loss,
            _ => Limit::Congestion,
        }
    }
}

impl Growth {
    /// Handles a segment. Returns true if the last round trip carried less than 25 % more than the
    /// previous one. Requires a known round-trip time.
    fn is_over(&mut self, now: Time, trip: Option<Span>, in_flight: u32) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_next = trip.is_some_and(|trip| now.since(since) >= trip);
        let is_over =
            is_next && self.before > 0 && self.most < self.before.saturating_add(self.before / 4);
        if is_next {
            (self.before, self.most, self.since) = (self.most, 0, Some(now));
        }
        self.most = self.most.max(in_flight);
        is_over
    }
}

/// Whether the round-trip time exceeds the minimum by at least 25 % and by at least 5 ms, which
/// shows a queue.
fn has_queue(trip: Option<Span>, least: Option<Span>) -> bool {
    trip.zip(least).is_some_and(|(trip, least)| {
        let more = Span::from_nanos(least.as_nanos() / 4).max(Span::from_millis(5));
        trip > least + more
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
                limited_by.add(Limit::ALL[limit], Span::from_nanos(nanos));
                spans_of[limit] += nanos;
            }
            let all: u64 = spans_of.iter().sum();
            prop_assert_eq!(limited_by.all(), Span::from_nanos(all));
            let error = if all < 1 << 32 { 0 } else { 200 * (all >> 31) };
            for (limit, nanos) in Limit::ALL.into_iter().zip(spans_of) {
                prop_assert!(limited_by.span(limit).as_nanos().abs_diff(nanos) <= error);
            }
        }
    }

    #[test]
    fn what_is_endless_is_no_more_than_two_years() {
        let mut limited_by = LimitedBy::default();
        limited_by.add(Limit::Think, Span::MAX);
        limited_by.add(Limit::Think, Span::MAX);
        let year = Span::from_secs(365 * 86_400);
        assert!(limited_by.span(Limit::Think) > year + year);
        assert!(limited_by.share(Limit::Think) > 0.999);
    }
}
