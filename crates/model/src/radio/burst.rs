//! Bursts of packets and their classification.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::{BURST_GAP, Packet};

/// Longer bursts are [`Kind::Long`].
pub const LONG_BURST: Span = Span::from_secs(5);
/// Bytes from which a burst is [`Kind::Large`].
pub const LARGE_BURST_BYTES: u64 = 100_000;
/// Shorter periods do not count as periodic.
pub const MIN_PERIOD: Span = Span::from_secs(10);
/// Maximum difference between a period and the mean of the previous ones.
pub const PERIOD_TOLERANCE: Span = Span::from_secs(1);
/// Consecutive periods that are needed for [`Kind::Periodic`].
pub const MIN_PERIODS: usize = 3;

/// Kind of a burst; the first matching rule in this order decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Starts within 1 s after an input of the user.
    User,
    /// At least [`LARGE_BURST_BYTES`] bytes.
    Large,
    /// One of a series of bursts of the same application at equal intervals.
    Periodic,
    /// Lasts longer than [`LONG_BURST`].
    Long,
    Other,
}

impl Kind {
    /// In the order of the rules.
    pub const ALL: [Self; 5] = [Self::User, Self::Large, Self::Periodic, Self::Long, Self::Other];

    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Large => "large",
            Self::Periodic => "periodic",
            Self::Long => "long",
            Self::Other => "other",
        }
    }
}

/// Sums over the bursts of one kind.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Total {
    pub bursts: u64,
    pub bytes: u64,
    /// Sum of the times from the first to the last packet of each burst.
    pub time: Span,
    /// Cost in the unit that the caller passes to [`Bursts::push`].
    pub cost: f64,
}

/// Period of an application whose bursts start at equal intervals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period {
    /// Mean interval.
    pub interval: Span,
    /// Number of bursts at this interval.
    pub bursts: u64,
}

/// Splits a trace into bursts and classifies them by the rules and limits of AT&T's Video
/// Optimizer: a gap of more than 1.5 s separates bursts. Choices that its rules leave open: a burst
/// belongs to the application of its first packet; periods are measured between the starts of
/// bursts; a run of periods continues while each period is within [`PERIOD_TOLERANCE`] of the mean
/// of the previous ones.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    /// The burst that is not yet closed.
    current: Option<Burst>,
    /// Times of user inputs, ascending.
    inputs: Vec<Time>,
    totals: [Total; 5],
    series: BTreeMap<u16, BurstSeries>,
    periods: BTreeMap<u16, Period>,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    app: u16,
    start: Time,
    end: Time,
    total: Total,
}

/// Consecutive bursts of an application.
#[derive(Clone, Debug, Default)]
struct BurstSeries {
    last: Option<Time>,
    /// Number and sum of the consistent periods so far.
    count: usize,
    sum: Span,
    /// Bursts that become periodic after [`MIN_PERIODS`] periods, each with its kind by the other
    /// rules.
    undecided: Vec<(Kind, Total)>,
}

impl Bursts {
    /// Creates a classifier; `inputs` are the times of user inputs, ascending.
    pub fn new(inputs: Vec<Time>) -> Self {
        Self { inputs, ..Self::default() }
    }

    /// Adds a packet. `own` is the cost of the packet, `before` the cost of the gap before it if
    /// that gap ends a burst.
    pub fn push(&mut self, packet: &Packet, before: f64, own: f64) {
        if let Some(burst) = &mut self.current {
            let gap = packet.at.since(burst.end);
            // The cost of a gap belongs to the burst before it.
            burst.total.cost += before;
            if gap <= BURST_GAP {
                burst.end = burst.end.max(packet.at);
                burst.total.bytes += u64::from(packet.bytes);
                burst.total.cost += own;
                return;
            }
        }
        self.close_burst();
        let total = Total { bursts: 1, bytes: packet.bytes.into(), time: Span::ZERO, cost: own };
        self.current = Some(Burst { app: packet.app, start: packet.at, end: packet.at, total });
    }

    /// Ends the trace; `spent` is the cost of the last tail.
    pub fn finish(&mut self, spent: f64) {
        if let Some(burst) = &mut self.current {
            burst.total.cost += spent;
        }
        self.close_burst();
        for run in self.series.values_mut() {
            for (kind, total) in run.undecided.drain(..) {
                self.totals[kind as usize].add(&total);
            }
        }
    }

    /// Sums by kind, in the order of [`Kind::ALL`].
    pub fn totals(&self) -> [(Kind, Total); 5] {
        Kind::ALL.map(|kind| (kind, self.totals[kind as usize]))
    }

    /// Periods by application number.
    pub fn periods(&self) -> &BTreeMap<u16, Period> {
        &self.periods
    }

    fn close_burst(&mut self) {
        let Some(mut burst) = self.current.take() else { return };
        let duration = burst.end.since(burst.start);
        burst.total.time = duration;
        let kind = match () {
            () if self.is_user(burst.start) => Kind::User,
            () if burst.total.bytes >= LARGE_BURST_BYTES => Kind::Large,
            () if duration > LONG_BURST => Kind::Long,
            () => Kind::Other,
        };
        self.count_burst(&burst, kind);
    }

    fn is_user(&self, start: Time) -> bool {
        const BEHIND: Span = Span::from_secs(1);
        let before = self.inputs.partition_point(|input| *input <= start);
        let last = before.checked_sub(1).and_then(|index| self.inputs.get(index));
        last.is_some_and(|input| start.since(*input) <= BEHIND)
    }

    /// Counts the burst at once, or after it is known whether it is periodic.
    fn count_burst(&mut self, burst: &Burst, kind: Kind) {
        let run = self.series.entry(burst.app).or_default();
        let period = run.last.map(|last| burst.start.since(last));
        run.last = Some(burst.start);
        let fits = period.is_some_and(|period| {
            let mean = run.mean();
            let difference = (period - mean).max(mean - period);
            period >= MIN_PERIOD && (run.count == 0 || difference <= PERIOD_TOLERANCE)
        });
        if !fits {
            // A period that does not match the previous ones may start another run.
            let before = period.filter(|period| *period >= MIN_PERIOD);
            let kept = usize::from(before.is_some()).min(run.undecided.len());
            let over = run.undecided.len() - kept;
            for (kind, total) in run.undecided.drain(..over) {
                self.totals[kind as usize].add(&total);
            }
            (run.count, run.sum) = (usize::from(before.is_some()), before.unwrap_or_default());
            run.undecided.push((kind, burst.total));
            return;
        }
        run.count += 1;
        run.sum += period.unwrap_or_default();
        run.undecided.push((kind, burst.total));
        if run.count < MIN_PERIODS {
            return;
        }
        let known =
            self.periods.entry(burst.app).or_insert(Period { interval: Span::ZERO, bursts: 0 });
        let new = run.undecided.len() as u64;
        let sum = known.interval * known.bursts + run.mean() * new;
        known.interval = Span::from_nanos(sum.as_nanos() / (known.bursts + new));
        known.bursts += new;
        for (kind, total) in run.undecided.drain(..) {
            self.totals[kind.min(Kind::Periodic) as usize].add(&total);
        }
    }
}

impl BurstSeries {
    fn mean(&self) -> Span {
        Span::from_nanos(self.sum.as_nanos() / self.count.max(1) as u64)
    }
}

impl Total {
    fn add(&mut self, other: &Self) {
        self.bursts += other.bursts;
        self.bytes += other.bytes;
        self.time += other.time;
        self.cost += other.cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::Direction;
    use crate::radio::span;

    fn bursts(packets: &[(f64, u32, u16)], inputs: &[f64]) -> Bursts {
        let time = |secs: f64| Time::from_nanos((secs * 1e9) as u64);
        let mut bursts = Bursts::new(inputs.iter().map(|at| time(*at)).collect());
        for (at, bytes, app) in packets {
            let packet = Packet {
                at: time(*at),
                direction: Direction::Up,
                bytes: *bytes,
                app: *app,
                session: 0,
            };
            bursts.push(&packet, 10.0, 1.0);
        }
        bursts.finish(10.0);
        bursts
    }

    fn counts(bursts: &Bursts) -> [u64; 5] {
        bursts.totals().map(|(_, total)| total.bursts)
    }

    #[test]
    fn each_rule_names_its_kind() {
        let packets = [
            // Large: two packets within 1.5 s.
            (0.0, 60_000, 0),
            (1.5, 40_000, 0),
            // Long: 6 s without a gap of more than 1.5 s.
            (20.0, 10, 0),
            (21.5, 10, 0),
            (23.0, 10, 0),
            (24.5, 10, 0),
            (26.0, 10, 0),
            // Within 1 s after an input.
            (50.9, 10, 0),
            // More than 1 s after the input.
            (53.0, 10, 0),
        ];
        let bursts = bursts(&packets, &[50.0]);
        assert_eq!(counts(&bursts), [1, 1, 0, 1, 1]);
        let totals = bursts.totals();
        assert_eq!(totals[1].1.bytes, 100_000);
        assert!(totals[3].1.time == span(6.0));
        // A burst includes the costs of its inner gaps and of the gap after it.
        assert_eq!(totals[1].1.cost, 2.0 + 20.0);
        assert_eq!(totals[4].1.cost, 1.0 + 10.0);
        let spent: f64 = totals.iter().map(|(_, total)| total.cost).sum();
        assert_eq!(spent, 9.0 + 90.0);
    }

    #[test]
    fn bursts_at_equal_intervals_are_periodic() {
        let beats = |times: &[f64]| -> Vec<_> { times.iter().map(|at| (*at, 100, 1)).collect() };
        // Three periods of about 30 s.
        let found = bursts(&beats(&[0.0, 30.0, 60.5, 90.0]), &[]);
        assert_eq!(counts(&found), [0, 0, 4, 0, 0]);
        assert!(found.periods()[&1].interval == span(30.0));
        // The first interval does not match the others.
        assert_eq!(counts(&bursts(&beats(&[0.0, 60.0, 90.0, 120.0, 150.0]), &[])), [0, 0, 4, 0, 1]);
        // Two periods are too few.
        assert_eq!(counts(&bursts(&beats(&[0.0, 30.0, 60.0]), &[])), [0, 0, 0, 0, 3]);
        // The first series is too frequent, the second too irregular.
        assert_eq!(counts(&bursts(&beats(&[0.0, 9.0, 18.0, 27.0, 36.0]), &[])), [0, 0, 0, 0, 5]);
        let uneven = beats(&[0.0, 30.0, 61.5, 90.0, 121.5]);
        assert_eq!(counts(&bursts(&uneven, &[])), [0, 0, 0, 0, 5]);
    }

    #[test]
    fn another_application_does_not_break_a_run() {
        let mut packets: Vec<_> = (0..5).map(|beat| (f64::from(beat) * 20.0, 100, 1)).collect();
        packets.push((47.0, 100, 2));
        packets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let found = bursts(&packets, &[]);
        assert_eq!(counts(&found), [0, 0, 5, 0, 1]);
        assert_eq!(found.periods().len(), 1);
    }
}
