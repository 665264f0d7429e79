use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::radio::profile;
use crate::radio::{Direction, StateMachine};

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn ladder(min: u64, most: u64, step: u64, rounds: u32) -> GapSweep {
    GapSweep { min: ms(min), max: ms(most), step: ms(step), rounds }
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
struct SimulatedDevice {
    machine: StateMachine,
    random: Random,
    now: Time,
    packets: u64,
    /// Times of other programs' packets, the latest first.
    foreign_packets: Vec<Time>,
    /// Share of lost answers.
    loss: f64,
}

impl SimulatedDevice {
    fn new(seed: u64) -> Self {
        let profile = profile::parse(PROFILE).unwrap();
        Self {
            machine: StateMachine::new(&profile),
            random: Random::new(seed),
            now: Time::ZERO,
            packets: 7,
            foreign_packets: Vec::new(),
            loss: 0.0,
        }
    }

    fn advance(&mut self, at: Time) {
        while let Some(other) = self.foreign_packets.pop_if(|other| *other <= at) {
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
        self.advance(answered);
        self.packets += u64::from(!is_lost);
        (!is_lost).then(|| answered.since(sent))
    }

    /// Runs at most `max` probes of the plan.
    fn run(&mut self, plan: &mut ProbeSchedule, max: usize) -> Vec<GapSample> {
        let mut samples = Vec::new();
        self.probe();
        plan.start(self.now, self.packets);
        while samples.len() < max {
            match plan.next_action(self.now, self.packets) {
                Action::Done => break,
                Action::Wait(at) => self.advance(at),
                Action::Probe => {
                    let sent = self.now;
                    let round_trip = self.probe();
                    samples.extend(plan.on_probe_result(
                        sent,
                        round_trip,
                        2,
                        self.now,
                        self.packets,
                    ));
                }
            }
        }
        samples
    }
}

fn probes(samples: &[GapSample]) -> Vec<Probe> {
    let probe = |sample: &GapSample| Probe {
        gap: sample.planned_gap.as_secs_f64(),
        round_trip: sample.round_trip.as_secs_f64(),
    };
    samples.iter().map(probe).collect()
}

#[test]
fn the_timers_of_a_radio_are_found() {
    // The shortest fifth of the gaps ends before the first timer, or after it.
    for max in [1_100, 1_500, 2_500] {
        find_timers(max);
    }
}

fn find_timers(max: u64) {
    let mut plan = ProbeSchedule::new(&ladder(50, max, 50, 3), 1, &[]).unwrap();
    let count = 3 * max as usize / 50;
    assert_eq!((plan.planned(), plan.remaining()), (count, ms(count as u64 * (max + 50) / 2)));
    let samples = SimulatedDevice::new(1).run(&mut plan, usize::MAX);
    assert_eq!((samples.len(), plan.answered(), plan.remaining()), (count, count, Span::ZERO));
    assert_eq!((plan.disturbed(), plan.lost(), plan.abandoned()), (0, 0, &[][..]));
    for sample in &samples {
        assert!(
            sample.gap >= sample.planned_gap && sample.gap <= sample.planned_gap + ms(1),
            "{sample:?}"
        );
    }
    let found = infer_timers(&probes(&samples)).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    for (found, timer, promotion) in [(&found[0], 0.3, 0.06), (&found[1], 0.9, 0.12)] {
        assert!((found.expiry.onset.value - timer).abs() <= 0.05 + 1e-9, "{found:?}");
        assert!((found.expiry.completion.value - timer).abs() <= 0.05 + 1e-9, "{found:?}");
        assert!((found.promotion_delay - promotion).abs() < 0.004, "{found:?}");
        assert!((found.round_trip - 0.02 - promotion).abs() < 0.004, "{found:?}");
    }
}

#[test]
fn a_round_has_every_silence_and_another_order() {
    let order = |seed| {
        let mut plan = ProbeSchedule::new(&ladder(100, 2_000, 100, 2), seed, &[]).unwrap();
        let samples = SimulatedDevice::new(1).run(&mut plan, usize::MAX);
        samples.iter().map(|sample| sample.planned_gap).collect::<Vec<Span>>()
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
    let mut plan = ProbeSchedule::new(&ladder(400, 400, 0, 3), 1, &[]).unwrap();
    let mut device = SimulatedDevice::new(1);
    // The first promotion is caused at 140 ms; the gap is disturbed at 300 and 660 ms.
    device.foreign_packets = vec![Time::from_millis(660), Time::from_millis(300)];
    let samples = device.run(&mut plan, usize::MAX);
    assert_eq!(samples.iter().map(|sample| sample.restarts).collect::<Vec<u32>>(), [2, 0, 0]);
    assert_eq!((plan.disturbed(), plan.lost()), (2, 0));
    assert!(device.now >= Time::from_millis(660 + 3 * 400), "{:?}", device.now);
    for sample in samples {
        assert!(sample.round_trip > ms(79), "it found the radio where a silence leaves it");
    }
}

#[test]
fn a_packet_that_wakes_the_radio_for_the_probe_spoils_it() {
    let mut plan = ProbeSchedule::new(&ladder(400, 400, 0, 1), 1, &[]).unwrap();
    plan.start(Time::ZERO, 10);
    let at = Time::from_millis;
    assert_eq!(plan.next_action(at(400), 10), Action::Probe);
    // Three more packets, of which two belong to the probe.
    assert_eq!(plan.on_probe_result(at(400), Some(ms(50)), 2, at(450), 13), None);
    assert_eq!(plan.disturbed(), 1);
    assert_eq!(plan.next_action(at(850), 13), Action::Probe);
    // A longer round trip can contain retransmissions by the kernel.
    let sample = plan.on_probe_result(at(850), Some(ms(1_300)), 2, at(2_150), 17).unwrap();
    assert_eq!((sample.gap, sample.restarts), (ms(400), 1));
    assert_eq!(plan.next_action(at(2_151), 18), Action::Done);
}

#[test]
fn the_probes_own_late_packets_disturb_nobody() {
    let mut plan = ProbeSchedule::new(&ladder(400, 400, 0, 1), 1, &[]).unwrap();
    let at = Time::from_millis;
    plan.start(at(0), 10);
    assert_eq!(plan.next_action(at(50), 11), Action::Wait(at(60)));
    assert_eq!(plan.disturbed(), 0);
    // The gap starts with these packets.
    assert_eq!(plan.next_action(at(449), 11), Action::Wait(at(450)));
    assert_eq!(plan.next_action(at(440), 12), Action::Wait(at(450)));
    assert_eq!(plan.disturbed(), 1);
}

#[test]
fn disturbed_gaps_are_postponed_and_then_given_up() {
    let mut plan = ProbeSchedule::new(&ladder(100, 1_000, 900, 1), 1, &[]).unwrap();
    let mut device = SimulatedDevice::new(1);
    // Another program sends every 0.5 s.
    device.foreign_packets = (0..10_000).rev().map(|half| Time::from_millis(half * 500)).collect();
    let samples = device.run(&mut plan, usize::MAX);
    assert_eq!(samples.iter().map(|sample| sample.planned_gap).collect::<Vec<Span>>(), [ms(100)]);
    assert_eq!(plan.abandoned(), [ms(1_000)]);
    assert!(plan.disturbed() >= 3 * 11, "{}", plan.disturbed());
}

#[test]
fn lost_probes_come_again() {
    let mut plan = ProbeSchedule::new(&ladder(50, 500, 50, 4), 1, &[]).unwrap();
    let mut device = SimulatedDevice::new(5);
    device.loss = 0.2;
    let samples = device.run(&mut plan, usize::MAX);
    assert!(plan.lost() >= 3, "{}", plan.lost());
    assert_eq!(samples.len() + plan.abandoned().len(), 40);
}

#[test]
fn a_lost_probe_comes_again_in_its_round() {
    let mut plan = ProbeSchedule::new(&ladder(50, 500, 50, 2), 1, &[]).unwrap();
    let mut device = SimulatedDevice::new(1);
    plan.start(device.now, device.packets);
    let first = plan.current_gap();
    plan.on_probe_result(Time::ZERO, None, 1, Time::ZERO, device.packets + 1);
    assert_ne!(plan.current_gap(), first);
    let round: Vec<Span> =
        device.run(&mut plan, 10).iter().map(|sample| sample.planned_gap).collect();
    assert_eq!(round.last().copied(), first);
}

#[test]
fn completed_gaps_are_not_probed_again() {
    let sweep = ladder(50, 1_000, 50, 3);
    let mut device = SimulatedDevice::new(1);
    let mut first = ProbeSchedule::new(&sweep, 1, &[]).unwrap();
    let mut samples = device.run(&mut first, 31);
    let mut done: Vec<Span> = samples.iter().map(|sample| sample.planned_gap).collect();
    // A gap of another sweep is ignored.
    done.push(ms(7));
    let mut second = ProbeSchedule::new(&sweep, 1, &done).unwrap();
    assert_eq!(
        (second.planned(), second.answered(), second.remaining()),
        (60, 31, first.remaining())
    );
    assert_eq!(second.current_gap(), first.current_gap(), "the plan continues");
    samples.extend(device.run(&mut second, usize::MAX));
    let mut counts: HashMap<Span, u32> = HashMap::new();
    for sample in &samples {
        *counts.entry(sample.planned_gap).or_default() += 1;
    }
    assert!(counts.len() == 20 && counts.values().all(|count| *count == 3), "{counts:?}");
    assert_eq!(
        ProbeSchedule::new(&sweep, 1, &[]).unwrap().next_action(Time::ZERO, 0),
        Action::Wait(Time::ZERO + COUNTER_INTERVAL)
    );
}

#[test]
fn a_ladder_without_rungs_or_with_too_many_is_none() {
    let none = |sweep| ProbeSchedule::new(&sweep, 1, &[]).unwrap_err();
    for empty in [ladder(2, 1, 1, 1), ladder(1, 2, 1, 0), ladder(0, 0, 0, 1), ladder(1, 2, 0, 1)] {
        assert_eq!(none(empty), SweepError::Empty, "{empty:?}");
    }
    assert_eq!(none(ladder(1, 1_000_000, 1, 1)), SweepError::TooMany);
    assert_eq!(none(GapSweep { rounds: u32::MAX, ..GapSweep::DEFAULT }), SweepError::TooMany);
    assert_eq!(
        ProbeSchedule::new(&ladder(0, 10, 5, 1), 1, &[]).unwrap().planned(),
        2,
        "a gap of zero is not probed"
    );
    assert_eq!(ProbeSchedule::new(&GapSweep::DEFAULT, 1, &[]).unwrap().planned(), 200);
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
        let mut plan = ProbeSchedule::new(&ladder(40, 40 * rungs, 40, rounds), seed, &[]).unwrap();
        let mut device = SimulatedDevice::new(seed);
        device.loss = loss;
        let mut others: Vec<Time> = others.into_iter().map(Time::from_millis).collect();
        others.sort_by(|one, other| other.cmp(one));
        device.foreign_packets = others;
        let samples = device.run(&mut plan, usize::MAX);
        prop_assert_eq!(samples.len() + plan.abandoned().len(), plan.planned());
        prop_assert_eq!(samples.len(), plan.answered());
        prop_assert!(samples.iter().all(|sample| sample.gap >= sample.planned_gap));
    }
}
