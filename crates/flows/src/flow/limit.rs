//! What keeps a sender from sending faster.
//!
//! The time between one new segment and the next belongs to what the sender waited for in it: data
//! from its application, room in the receiver's window, or its own congestion window; of the last,
//! whether that was young and growing, small because packets were lost, or as large as the path and
//! its queue allow. It is what T-RAT (Zhang et al., SIGCOMM 2002) asks, but asked of each gap: a
//! flow may be limited by one thing after the other.

use manyways_unit::{Span, Time};

/// Something that limits a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// There was nothing to send, and nobody had asked for anything.
    Application,
    /// It was asked, and had nothing to send yet.
    Think,
    /// The receiver's window was full.
    ReceiverWindow,
    /// The path was full: what was sent stood in a queue.
    Congestion,
    /// Packets were lost though there was no queue.
    Loss,
    /// The congestion window was still growing from its first size, or an answer was on its way.
    StartUp,
}

/// How long each of them did. The sum of all is exact up to two years, and so is each of them while
/// none is longer than 4.3 s. Of longer ones each addition moves some billionths of the longest
/// from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy {
    /// There are two for each connection, so that they are small: in units of 2^`shift` ns.
    units: [u32; 6],
    shift: u8,
    /// What is left of a unit, which the next span gets, whosever it was.
    rest: [u8; 3],
}

/// A unit is no more than what is left of one has room for.
const COARSEST: u8 = 24;

/// What is known when a new segment passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// The sender had sent all that it had before this one.
    pub was_dry: bool,
    /// The receiver's window was closed since the one before.
    pub was_blocked: bool,
    /// It repairs a loss.
    pub is_recovering: bool,
    /// So many bytes are on their way with it.
    pub in_flight: u32,
    /// So many bytes the receiver's window still has room for with it, as the sender knew it.
    pub left: Option<u64>,
    /// The latest round trip, the shortest one, and the shortest one of the far half.
    pub trip: Option<Span>,
    pub least: Option<Span>,
    pub far: Option<Span>,
    pub mss: u32,
}

/// Says of each gap what it belongs to.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    limited_by: LimitedBy,
    /// When the segment before passed, whether it repaired a loss, and whether the receiver had no
    /// room for another one then.
    before: Option<Time>,
    was_recovering: bool,
    had_no_room: bool,
    /// When the other end said something since then.
    asked: Option<Time>,
    /// The first growth of the window is over.
    has_grown: bool,
    growth: Growth,
    loss: Option<Loss>,
}

/// How the window grows at first.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    /// When this round trip began, and the most in flight in it and in the one before.
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
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::Think,
        Self::ReceiverWindow,
        Self::Congestion,
        Self::Loss,
        Self::StartUp,
    ];

    /// Its name, as in tables.
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
    /// How long.
    pub fn span(&self, limit: Limit) -> Span {
        Span::from_nanos(u64::from(self.units[limit as usize]) << self.shift)
    }

    /// All of it.
    pub fn all(&self) -> Span {
        let units: u64 = self.units.iter().copied().map(u64::from).sum();
        Span::from_nanos((units << self.shift) + self.rest())
    }

    /// Its share of all, zero where nothing was limited.
    pub fn share(&self, limit: Limit) -> f64 {
        let all = self.all();
        if all.is_zero() { 0.0 } else { self.span(limit).as_secs_f64() / all.as_secs_f64() }
    }

    /// So much longer.
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

    /// The connection stands, and nothing was sent in it yet.
    pub(super) fn begins(&mut self, now: Time) {
        self.before = self.before.or(Some(now));
    }

    /// The other end sent something that may be a question.
    pub(super) fn asked(&mut self, now: Time) {
        self.asked = Some(now);
    }

    /// The sender noticed a loss.
    pub(super) fn lost(&mut self, trip: Option<Span>, least: Option<Span>) {
        self.has_grown = true;
        self.loss = Some(Loss { had_queue: has_queue(trip, least) });
    }

    /// New bytes pass.
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
        // The question went to the sender, and the answer came back: nobody thought then.
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
    /// A segment passes. It is over when a round trip brings less than a quarter more than the one
    /// before, where a round trip is known.
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

/// A round trip that takes a quarter longer than the shortest one, and 5 ms, was in a queue.
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
