//! The choice of a long transfer, what it brings, and for how long it is kept.

use std::collections::VecDeque;

use manyways_unit::{Rate, Size, Span, Time};

use super::Choice;
use super::selector::{DWELL, Kept};

/// A transfer stands still if nothing arrives for this long.
const PAUSE: Span = Span::from_millis(500);
/// Least time between two samples of the bytes that are kept.
const SAMPLE: Span = Span::from_millis(50);
/// Longest dwell.
const LONGEST: Span = Span::from_secs(60);
/// A change pays if it brings this much of the rate before it: it is made only to save as much.
const PAYS: f64 = 1.1;
/// Share of the rate after a change, below which a longer dwell ends.
const FALLEN: f64 = 0.5;

/// Watches a transfer that is decided upon again and again, such as a long download or a stream.
///
/// Where rates alternate faster than a change can follow, each change looks good and is too late. So
/// the dwell doubles, up to a minute, after each change that did not pay: in the dwell after it, less
/// than a tenth more arrived than in the dwell before. A change that pays ends this. If less than a
/// half of what the change had brought arrives, the shortest dwell holds again, because the networks
/// are no longer those that were compared.
#[derive(Clone, Debug)]
pub struct Keeper {
    choice: Choice,
    since: Time,
    /// Bytes of the transfer so far, in the last dwell and at its beginning; not empty.
    samples: VecDeque<(Time, Size)>,
    last_byte: Time,
    dwell: Span,
    /// Rate before the last change, until that is judged.
    before: Option<Rate>,
    /// Rate in the dwell after the last change that was judged.
    after: Rate,
}

impl Keeper {
    /// A transfer that begins now, or goes on after a pause: `total` bytes have arrived before.
    pub fn new(now: Time, choice: Choice, total: Size) -> Self {
        Self {
            choice,
            since: now,
            samples: VecDeque::from([(now, total)]),
            last_byte: now,
            dwell: DWELL,
            before: None,
            after: Rate::ZERO,
        }
    }

    /// Notes the bytes that have arrived since the transfer began.
    pub fn received(&mut self, now: Time, total: Size) {
        let last = self.samples.back().map_or(Size::ZERO, |(_, total)| *total);
        if total < last {
            // A part of the transfer is no longer counted: nothing is known about its rate.
            self.samples.clear();
            self.samples.push_back((now, total));
            self.last_byte = now;
            return;
        }
        if total > last {
            self.last_byte = now;
        }
        // The newest sample may be young, the others are apart.
        let count = self.samples.len();
        if count >= 2 && now < self.samples[count - 2].0 + SAMPLE {
            self.samples.pop_back();
        }
        self.samples.push_back((now, total));
        while self.samples.get(1).is_some_and(|(at, _)| *at + DWELL <= now) {
            self.samples.pop_front();
        }
        self.judge(now);
    }

    /// Notes that another choice carries the transfer from now on.
    pub fn changed(&mut self, now: Time, choice: Choice) {
        self.before = Some(self.rate(now));
        (self.choice, self.since, self.last_byte) = (choice, now, now);
    }

    /// The state for the next decision.
    pub fn kept(&self, now: Time) -> Kept {
        let has_fallen = (self.rate(now).as_bps() as f64) < self.after.as_bps() as f64 * FALLEN;
        Kept {
            choice: self.choice,
            since: self.since,
            stands_still: now >= self.last_byte + PAUSE,
            dwell: if has_fallen { DWELL } else { self.dwell },
        }
    }

    /// The rate of the last dwell.
    fn rate(&self, now: Time) -> Rate {
        let (Some((from, first)), Some((_, last))) = (self.samples.front(), self.samples.back())
        else {
            return Rate::ZERO;
        };
        match now.since(*from) {
            span if span.is_zero() => Rate::ZERO,
            span => Rate::of(*last - *first, span),
        }
    }

    fn judge(&mut self, now: Time) {
        let Some(before) = self.before.filter(|_| now >= self.since + DWELL) else { return };
        self.before = None;
        self.after = self.rate(now);
        let has_paid = self.after.as_bps() as f64 > before.as_bps() as f64 * PAYS;
        self.dwell = if has_paid { DWELL } else { (self.dwell * 2).min(LONGEST) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHOICES: [Choice; 2] = [Choice::Only(0), Choice::Only(1)];

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// A transfer that is on the network 0 before the time 0, with samples each 10 ms.
    struct Transfer {
        keeper: Keeper,
        millis: u64,
        total: u64,
    }

    impl Transfer {
        fn new() -> Self {
            Self { keeper: Keeper::new(at(0), CHOICES[0], Size::ZERO), millis: 0, total: 0 }
        }

        /// Receives this many bytes each millisecond.
        fn receive(&mut self, millis: u64, rate: u64) -> Kept {
            for _ in 0..millis / 10 {
                self.millis += 10;
                self.total += 10 * rate;
                self.keeper.received(at(self.millis), Size::from_bytes(self.total));
            }
            self.keeper.kept(at(self.millis))
        }

        fn change(&mut self, choice: usize) {
            self.keeper.changed(at(self.millis), CHOICES[choice]);
        }
    }

    #[test]
    fn a_change_that_does_not_pay_doubles_the_dwell_and_one_that_pays_ends_that() {
        let mut transfer = Transfer::new();
        assert_eq!(transfer.receive(3_000, 100).dwell, DWELL);
        let mut dwells = Vec::new();
        for change in 1..8 {
            transfer.change(change % 2);
            assert_eq!(transfer.receive(1_990, 100).since, at(transfer.millis - 1_990));
            dwells.push(transfer.receive(10, 100).dwell.as_nanos() / 1_000_000_000);
        }
        assert_eq!(dwells, [4, 8, 16, 32, 60, 60, 60]);
        transfer.change(0);
        assert_eq!(transfer.receive(1_990, 150).dwell, LONGEST);
        assert_eq!(transfer.receive(10, 150).dwell, DWELL);
    }

    #[test]
    fn bytes_before_a_pause_or_of_another_bond_are_no_rate() {
        let mut keeper = Keeper::new(at(0), CHOICES[0], Size::from_bytes(1_000_000_000));
        let mut total = 1_000_000_000;
        let mut receive = |keeper: &mut Keeper, millis: std::ops::Range<u64>, rate: u64| {
            for now in millis.step_by(10) {
                total += 10 * rate;
                keeper.received(at(now), Size::from_bytes(total));
            }
        };
        receive(&mut keeper, 0..1_000, 100);
        keeper.changed(at(1_000), CHOICES[1]);
        receive(&mut keeper, 1_000..3_100, 150);
        assert_eq!(keeper.kept(at(3_100)).dwell, DWELL, "the change paid");
        // One of two bonds has ended.
        keeper.received(at(3_200), Size::from_bytes(5_000));
        assert!(!keeper.kept(at(3_600)).stands_still);
        keeper.received(at(3_700), Size::from_bytes(80_000));
        assert_eq!(
            keeper.rate(at(3_700)),
            Rate::of(Size::from_bytes(75_000), Span::from_millis(500))
        );
    }

    #[test]
    fn a_long_dwell_ends_when_the_rate_falls() {
        let mut transfer = Transfer::new();
        transfer.receive(2_000, 100);
        transfer.change(1);
        assert_eq!(transfer.receive(3_000, 100).dwell, DWELL * 2);
        assert_eq!(transfer.receive(900, 0).dwell, DWELL * 2);
        assert_eq!(transfer.receive(200, 0).dwell, DWELL);
        assert_eq!(transfer.receive(2_000, 100).dwell, DWELL * 2);
    }

    #[test]
    fn nothing_for_half_a_second_is_a_standstill() {
        let mut transfer = Transfer::new();
        assert!(!transfer.receive(1_000, 1).stands_still);
        assert!(!transfer.receive(490, 0).stands_still);
        assert!(transfer.receive(10, 0).stands_still);
        transfer.change(1);
        let kept = transfer.receive(490, 0);
        assert!(!kept.stands_still && kept.choice == CHOICES[1]);
        assert!(transfer.receive(10, 0).stands_still);
    }

    proptest! {
        #[test]
        fn samples_are_few_and_times_may_be_any(
            steps in prop::collection::vec((0_u64..700, 0_u64..1_000_000, any::<bool>()), 1..300),
        ) {
            let mut keeper = Keeper::new(at(5), CHOICES[0], Size::ZERO);
            let mut now = 0;
            for (passed, total, changes) in steps {
                // Also times before the last one, and totals that shrink.
                now = (now + passed).saturating_sub(100);
                keeper.received(at(now), Size::from_bytes(total));
                if changes {
                    keeper.changed(at(now), CHOICES[1]);
                }
                let kept = keeper.kept(at(now));
                prop_assert!((DWELL..=LONGEST).contains(&kept.dwell));
                prop_assert!(keeper.samples.len() <= 60);
            }
        }
    }
}
