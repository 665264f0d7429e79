//! Bursts of packets, and what kind each is.

use std::collections::BTreeMap;

use manyways_unit::{Span, Time};

use super::{BURST_GAP, Packet};

/// A burst that lasts longer than this is a long one.
pub const LONG: Span = Span::from_secs(5);
/// One with at least so many bytes is a large one.
pub const LARGE: u64 = 100_000;
/// What comes more often is not called periodic.
pub const LEAST_PERIOD: f64 = 10.0;
/// Periods of one kind differ by no more than so many seconds.
pub const TOLERANCE: f64 = 1.0;
/// So many periods in a row are needed.
pub const SAMPLES: usize = 3;

/// What kind a burst is: the first of these that fits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// It begins within a second behind something that the user did.
    User,
    /// It has 100 kB or more.
    Large,
    /// The same application has begun one like it again and again, at even distances.
    Periodic,
    /// It lasts for more than five seconds.
    Long,
    /// None of these.
    Other,
}

impl Kind {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::User, Self::Large, Self::Periodic, Self::Long, Self::Other];

    /// In a word.
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

/// Bursts of a kind.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Total {
    /// How many.
    pub bursts: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds from the first packet of each to its last.
    pub secs: f64,
    /// What they took, in whatever the caller counts.
    pub spent: f64,
}

/// An application that begins bursts at even distances.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period {
    /// The mean distance, in seconds.
    pub every: f64,
    /// How many bursts have it.
    pub bursts: u64,
}

/// Finds bursts and says what kind each is, by the rules and limits of AT&T's Video Optimizer: a
/// silence of more than 1.5 s divides bursts. Where its rules do not say: a burst belongs to the
/// application of its first packet; the period of an application is taken between the beginnings of
/// its bursts; a run of periods goes on while each is within a second of the mean of those before.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    /// The one that goes on.
    current: Option<Burst>,
    /// What the user did, and when; the latest behind.
    inputs: Vec<Time>,
    totals: [Total; 5],
    runs: BTreeMap<u16, Run>,
    periods: BTreeMap<u16, Period>,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    app: u16,
    begins: Time,
    ends: Time,
    total: Total,
}

/// Bursts of an application, one behind the other.
#[derive(Clone, Debug, Default)]
struct Run {
    last: Option<Time>,
    /// Periods that go with each other so far: how many, and their sum.
    count: usize,
    sum: f64,
    /// Bursts that are periodic once there are enough of them, each with the kind that it has else.
    waiting: Vec<(Kind, Total)>,
}

impl Bursts {
    /// The user did something at these moments, in their order.
    pub fn new(inputs: Vec<Time>) -> Self {
        Self { inputs, ..Self::default() }
    }

    /// The next packet, and what it took: with the silence before it, if it ends one.
    pub fn next(&mut self, packet: &Packet, before: f64, own: f64) {
        if let Some(burst) = &mut self.current {
            let gap = packet.at.since(burst.ends);
            // A silence is spent for the burst before it.
            burst.total.spent += before;
            if gap <= BURST_GAP {
                burst.ends = burst.ends.max(packet.at);
                burst.total.bytes += u64::from(packet.bytes);
                burst.total.spent += own;
                return;
            }
        }
        self.close();
        let total = Total { bursts: 1, bytes: packet.bytes.into(), secs: 0.0, spent: own };
        self.current = Some(Burst { app: packet.app, begins: packet.at, ends: packet.at, total });
    }

    /// Nothing comes any more; what the last silence took.
    pub fn end(&mut self, spent: f64) {
        if let Some(burst) = &mut self.current {
            burst.total.spent += spent;
        }
        self.close();
        for run in self.runs.values_mut() {
            for (kind, total) in run.waiting.drain(..) {
                self.totals[kind as usize].add(&total);
            }
        }
    }

    /// Bursts of each kind, in the order of [`Kind::ALL`].
    pub fn totals(&self) -> [(Kind, Total); 5] {
        Kind::ALL.map(|kind| (kind, self.totals[kind as usize]))
    }

    /// The applications that begin bursts at even distances.
    pub fn periods(&self) -> &BTreeMap<u16, Period> {
        &self.periods
    }

    fn close(&mut self) {
        let Some(mut burst) = self.current.take() else { return };
        let lasts = burst.ends.since(burst.begins);
        burst.total.secs = lasts.as_secs_f64();
        let kind = match () {
            () if self.is_user(burst.begins) => Kind::User,
            () if burst.total.bytes >= LARGE => Kind::Large,
            () if lasts > LONG => Kind::Long,
            () => Kind::Other,
        };
        self.periodic(&burst, kind);
    }

    fn is_user(&self, begins: Time) -> bool {
        const BEHIND: Span = Span::from_secs(1);
        let before = self.inputs.partition_point(|input| *input <= begins);
        let last = before.checked_sub(1).and_then(|place| self.inputs.get(place));
        last.is_some_and(|input| begins.since(*input) <= BEHIND)
    }

    /// Counts it, now or when it is known whether it is periodic.
    fn periodic(&mut self, burst: &Burst, kind: Kind) {
        let run = self.runs.entry(burst.app).or_default();
        let period = run.last.map(|last| burst.begins.since(last).as_secs_f64());
        run.last = Some(burst.begins);
        let fits = period.is_some_and(|period| {
            let mean = run.sum / run.count.max(1) as f64;
            period >= LEAST_PERIOD && (run.count == 0 || (period - mean).abs() <= TOLERANCE)
        });
        if !fits {
            // What does not go with those before may be the first of another kind.
            let before = period.filter(|period| *period >= LEAST_PERIOD);
            let kept = usize::from(before.is_some()).min(run.waiting.len());
            let over = run.waiting.len() - kept;
            for (kind, total) in run.waiting.drain(..over) {
                self.totals[kind as usize].add(&total);
            }
            (run.count, run.sum) = (usize::from(before.is_some()), before.unwrap_or_default());
            run.waiting.push((kind, burst.total));
            return;
        }
        run.count += 1;
        run.sum += period.unwrap_or_default();
        run.waiting.push((kind, burst.total));
        if run.count < SAMPLES {
            return;
        }
        let known = self.periods.entry(burst.app).or_insert(Period { every: 0.0, bursts: 0 });
        let new = run.waiting.len() as u64;
        let mean = run.sum / run.count as f64;
        known.every =
            (known.every * known.bursts as f64 + mean * new as f64) / (known.bursts + new) as f64;
        known.bursts += new;
        for (kind, total) in run.waiting.drain(..) {
            self.totals[kind.min(Kind::Periodic) as usize].add(&total);
        }
    }
}

impl Total {
    fn add(&mut self, other: &Self) {
        self.bursts += other.bursts;
        self.bytes += other.bytes;
        self.secs += other.secs;
        self.spent += other.spent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::Direction;

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
            bursts.next(&packet, 10.0, 1.0);
        }
        bursts.end(10.0);
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
            // Long: packets without a silence, for six seconds.
            (20.0, 10, 0),
            (21.5, 10, 0),
            (23.0, 10, 0),
            (24.5, 10, 0),
            (26.0, 10, 0),
            // Behind an input.
            (50.9, 10, 0),
            // Too late for it.
            (53.0, 10, 0),
        ];
        let bursts = bursts(&packets, &[50.0]);
        assert_eq!(counts(&bursts), [1, 1, 0, 1, 1]);
        let totals = bursts.totals();
        assert_eq!(totals[1].1.bytes, 100_000);
        assert!((totals[3].1.secs - 6.0).abs() < 1e-9);
        // A burst has the silences within it and the one behind it.
        assert_eq!(totals[1].1.spent, 2.0 + 20.0);
        assert_eq!(totals[4].1.spent, 1.0 + 10.0);
        let spent: f64 = totals.iter().map(|(_, total)| total.spent).sum();
        assert_eq!(spent, 9.0 + 90.0);
    }

    #[test]
    fn what_comes_at_even_distances_is_periodic_from_the_first_on() {
        let beats = |times: &[f64]| -> Vec<_> { times.iter().map(|at| (*at, 100, 1)).collect() };
        // Three periods of 30 s, more or less.
        let found = bursts(&beats(&[0.0, 30.0, 60.5, 90.0]), &[]);
        assert_eq!(counts(&found), [0, 0, 4, 0, 0]);
        assert!((found.periods()[&1].every - 30.0).abs() < 1e-9);
        // The first distance is another one.
        assert_eq!(counts(&bursts(&beats(&[0.0, 60.0, 90.0, 120.0, 150.0]), &[])), [0, 0, 4, 0, 1]);
        // Two of them are too few.
        assert_eq!(counts(&bursts(&beats(&[0.0, 30.0, 60.0]), &[])), [0, 0, 0, 0, 3]);
        // Too often, and too uneven.
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
