use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::radio::profile;
use crate::radio::{Direction, Machine};

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn ladder(least: u64, most: u64, step: u64, rounds: u32) -> Ladder {
    Ladder { least: ms(least), most: ms(most), step: ms(step), rounds }
}

/// 300 ms, then a promotion of 60 ms; 600 ms later, one of 120 ms.
const PROFILE: &str = r#"
title = "test"
technology = "3g"
[transfer]
send = "1W"
receive = "1W"
source = "none"
[[state]]
name = "high"
power = "1W"
timer = "300ms"
source = "none"
[[state]]
name = "low"
power = "1W"
timer = "600ms"
promotion-delay = "60ms"
source = "none"
[[state]]
name = "idle"
power = "0"
promotion-delay = "120ms"
source = "none"
"#;

/// A device in virtual time: a radio, 10 to 14 ms of delay in each direction, and packets of other
/// programs.
struct World {
    machine: Machine,
    random: Random,
    now: Time,
    packets: u64,
    /// Times of other programs' packets, the latest first.
    others: Vec<Time>,
    /// Share of lost answers.
    loss: f64,
}

impl World {
    fn new(seed: u64) -> Self {
        let profile = profile::parse(PROFILE).unwrap();
        Self {
            machine: Machine::new(&profile),
            random: Random::new(seed),
            now: Time::ZERO,
            packets: 7,
            others: Vec::new(),
            loss: 0.0,
        }
    }

    fn until(&mut self, at: Time) {
        while let Some(other) = self.others.pop_if(|other| *other <= at) {
            self.machine.pass(other, Direction::Up);
            self.packets += 1;
        }
        self.now = at;
    }

    /// Sends a probe and waits for its answer.
    fn probe(&mut self) -> Option<Span> {
        let sent = self.now;
        let passed = self.machine.pass(sent, Direction::Up);
        self.packets += 1;
        let far = passed + ms(20) + Span::from_micros(self.random.up_to(4_000));
        let is_lost = self.random.chance(self.loss);
        let answered =
            if is_lost { sent + ms(3_000) } else { self.machine.pass(far, Direction::Down) };
        self.until(answered);
        self.packets += u64::from(!is_lost);
        (!is_lost).then(|| answered.since(sent))
    }

    /// Runs at most `most` probes of the plan.
    fn run(&mut self, plan: &mut Plan, most: usize) -> Vec<Sample> {
        let mut samples = Vec::new();
        self.probe();
        plan.begin(self.now, self.packets);
        while samples.len() < most {
            match plan.look(self.now, self.packets) {
                Next::Done => break,
                Next::Look(at) => self.until(at),
                Next::Probe => {
                    let sent = self.now;
                    let round_trip = self.probe();
                    samples.extend(plan.probed(sent, round_trip, 2, self.now, self.packets));
                }
            }
        }
        samples
    }
}

fn probes(samples: &[Sample]) -> Vec<Probe> {
    let probe = |sample: &Sample| Probe {
        idle: sample.idle.as_secs_f64(),
        round_trip: sample.round_trip.as_secs_f64(),
    };
    samples.iter().map(probe).collect()
}

#[test]
fn the_timers_of_a_radio_are_found() {
    // The shortest fifth of the gaps ends before the first timer, or after it.
    for most in [1_100, 1_500, 2_500] {
        find(most);
    }
}

fn find(most: u64) {
    let mut plan = Plan::new(&ladder(50, most, 50, 3), 1, &[]).unwrap();
    let count = 3 * most as usize / 50;
    assert_eq!((plan.planned(), plan.left()), (count, ms(count as u64 * (most + 50) / 2)));
    let samples = World::new(1).run(&mut plan, usize::MAX);
    assert_eq!((samples.len(), plan.answered(), plan.left()), (count, count, Span::ZERO));
    assert_eq!((plan.disturbed(), plan.lost(), plan.given_up()), (0, 0, &[][..]));
    for sample in &samples {
        assert!(
            sample.silence >= sample.idle && sample.silence <= sample.idle + ms(1),
            "{sample:?}"
        );
    }
    let found = timers(&probes(&samples)).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    for (found, timer, promotion) in [(&found[0], 0.3, 0.06), (&found[1], 0.9, 0.12)] {
        assert!((found.ends.onset.value - timer).abs() <= 0.05 + 1e-9, "{found:?}");
        assert!((found.ends.completion.value - timer).abs() <= 0.05 + 1e-9, "{found:?}");
        assert!((found.promotion - promotion).abs() < 0.004, "{found:?}");
        assert!((found.round_trip - 0.02 - promotion).abs() < 0.004, "{found:?}");
    }
}

#[test]
fn a_round_has_every_silence_and_another_order() {
    let order = |seed| {
        let mut plan = Plan::new(&ladder(100, 2_000, 100, 2), seed, &[]).unwrap();
        let samples = World::new(1).run(&mut plan, usize::MAX);
        samples.iter().map(|sample| sample.idle).collect::<Vec<Span>>()
    };
    let both = order(3);
    for round in both.chunks(20) {
        let mut sorted = round.to_vec();
        sorted.sort();
        assert_eq!(sorted, (1..=20).map(|tenth| ms(tenth * 100)).collect::<Vec<Span>>());
        assert_ne!(round, sorted, "by chance");
    }
    assert_ne!(both[..20], both[20..]);
    assert_eq!(both, order(3), "the same seed");
    assert_ne!(both, order(4));
}

#[test]
fn packets_of_others_begin_a_silence_anew() {
    let mut plan = Plan::new(&ladder(400, 400, 0, 3), 1, &[]).unwrap();
    let mut world = World::new(1);
    // The first promotion is caused at 140 ms; the gap is disturbed at 300 and 660 ms.
    world.others = vec![Time::from_millis(660), Time::from_millis(300)];
    let samples = world.run(&mut plan, usize::MAX);
    assert_eq!(samples.iter().map(|sample| sample.restarts).collect::<Vec<u32>>(), [2, 0, 0]);
    assert_eq!((plan.disturbed(), plan.lost()), (2, 0));
    assert!(world.now >= Time::from_millis(660 + 3 * 400), "{:?}", world.now);
    for sample in samples {
        assert!(sample.round_trip > ms(79), "it found the radio where a silence leaves it");
    }
}

#[test]
fn a_packet_that_wakes_the_radio_for_the_probe_spoils_it() {
    let mut plan = Plan::new(&ladder(400, 400, 0, 1), 1, &[]).unwrap();
    plan.begin(Time::ZERO, 10);
    let at = Time::from_millis;
    assert_eq!(plan.look(at(400), 10), Next::Probe);
    // Three more packets, of which two belong to the probe.
    assert_eq!(plan.probed(at(400), Some(ms(50)), 2, at(450), 13), None);
    assert_eq!(plan.disturbed(), 1);
    assert_eq!(plan.look(at(850), 13), Next::Probe);
    // A longer round trip can contain retransmissions by the kernel.
    let sample = plan.probed(at(850), Some(ms(1_300)), 2, at(2_150), 17).unwrap();
    assert_eq!((sample.silence, sample.restarts), (ms(400), 1));
    assert_eq!(plan.look(at(2_151), 18), Next::Done);
}

#[test]
fn the_probes_own_late_packets_disturb_nobody() {
    let mut plan = Plan::new(&ladder(400, 400, 0, 1), 1, &[]).unwrap();
    let at = Time::from_millis;
    plan.begin(at(0), 10);
    assert_eq!(plan.look(at(50), 11), Next::Look(at(60)));
    assert_eq!(plan.disturbed(), 0);
    // The gap starts with these packets.
    assert_eq!(plan.look(at(449), 11), Next::Look(at(450)));
    assert_eq!(plan.look(at(440), 12), Next::Look(at(450)));
    assert_eq!(plan.disturbed(), 1);
}

#[test]
fn disturbed_gaps_are_postponed_and_then_given_up() {
    let mut plan = Plan::new(&ladder(100, 1_000, 900, 1), 1, &[]).unwrap();
    let mut world = World::new(1);
    // Another program sends every 0.5 s.
    world.others = (0..10_000).rev().map(|half| Time::from_millis(half * 500)).collect();
    let samples = world.run(&mut plan, usize::MAX);
    assert_eq!(samples.iter().map(|sample| sample.idle).collect::<Vec<Span>>(), [ms(100)]);
    assert_eq!(plan.given_up(), [ms(1_000)]);
    assert!(plan.disturbed() >= 3 * 11, "{}", plan.disturbed());
}

#[test]
fn lost_probes_come_again() {
    let mut plan = Plan::new(&ladder(50, 500, 50, 4), 1, &[]).unwrap();
    let mut world = World::new(5);
    world.loss = 0.2;
    let samples = world.run(&mut plan, usize::MAX);
    assert!(plan.lost() >= 3, "{}", plan.lost());
    assert_eq!(samples.len() + plan.given_up().len(), 40);
}

#[test]
fn a_lost_probe_comes_again_in_its_round() {
    let mut plan = Plan::new(&ladder(50, 500, 50, 2), 1, &[]).unwrap();
    let mut world = World::new(1);
    plan.begin(world.now, world.packets);
    let first = plan.idle();
    plan.probed(Time::ZERO, None, 1, Time::ZERO, world.packets + 1);
    assert_ne!(plan.idle(), first);
    let round: Vec<Span> = world.run(&mut plan, 10).iter().map(|sample| sample.idle).collect();
    assert_eq!(round.last().copied(), first);
}

#[test]
fn completed_gaps_are_not_probed_again() {
    let ladder = ladder(50, 1_000, 50, 3);
    let mut world = World::new(1);
    let mut first = Plan::new(&ladder, 1, &[]).unwrap();
    let mut samples = world.run(&mut first, 31);
    let mut done: Vec<Span> = samples.iter().map(|sample| sample.idle).collect();
    // A gap of another ladder is ignored.
    done.push(ms(7));
    let mut second = Plan::new(&ladder, 1, &done).unwrap();
    assert_eq!((second.planned(), second.answered(), second.left()), (60, 31, first.left()));
    assert_eq!(second.idle(), first.idle(), "the plan continues");
    samples.extend(world.run(&mut second, usize::MAX));
    let mut counts: HashMap<Span, u32> = HashMap::new();
    for sample in &samples {
        *counts.entry(sample.idle).or_default() += 1;
    }
    assert!(counts.len() == 20 && counts.values().all(|count| *count == 3), "{counts:?}");
    assert_eq!(
        Plan::new(&ladder, 1, &[]).unwrap().look(Time::ZERO, 0),
        Next::Look(Time::ZERO + LOOK)
    );
}

#[test]
fn a_ladder_without_rungs_or_with_too_many_is_none() {
    let none = |ladder| Plan::new(&ladder, 1, &[]).unwrap_err();
    for empty in [ladder(2, 1, 1, 1), ladder(1, 2, 1, 0), ladder(0, 0, 0, 1), ladder(1, 2, 0, 1)] {
        assert_eq!(none(empty), BadLadder::Empty, "{empty:?}");
    }
    assert_eq!(none(ladder(1, 1_000_000, 1, 1)), BadLadder::TooMany);
    assert_eq!(none(Ladder { rounds: u32::MAX, ..Ladder::USUAL }), BadLadder::TooMany);
    assert_eq!(
        Plan::new(&ladder(0, 10, 5, 1), 1, &[]).unwrap().planned(),
        2,
        "a gap of zero is not probed"
    );
    assert_eq!(Plan::new(&Ladder::USUAL, 1, &[]).unwrap().planned(), 200);
}

proptest! {
    #[test]
    fn every_silence_is_done_or_given_up(
        seed in any::<u64>(),
        rungs in 1..12_u64,
        rounds in 1..4_u32,
        loss in 0.0..0.6_f64,
        others in prop::collection::vec(1..400_000_u64, 0..60),
    ) {
        let mut plan = Plan::new(&ladder(40, 40 * rungs, 40, rounds), seed, &[]).unwrap();
        let mut world = World::new(seed);
        world.loss = loss;
        let mut others: Vec<Time> = others.into_iter().map(Time::from_millis).collect();
        others.sort_by(|one, other| other.cmp(one));
        world.others = others;
        let samples = world.run(&mut plan, usize::MAX);
        prop_assert_eq!(samples.len() + plan.given_up().len(), plan.planned());
        prop_assert_eq!(samples.len(), plan.answered());
        prop_assert!(samples.iter().all(|sample| sample.silence >= sample.idle));
    }
}
