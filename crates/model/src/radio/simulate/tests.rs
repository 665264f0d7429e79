use crate::radio::span;
use proptest::prelude::*;

use super::*;
use crate::radio::policy::{CombinedPolicy, LearnedDelay, MakeIdle, StatusQuo, Timer};
use crate::radio::{Direction, SleepTradeoff, profiles, workload};

fn profile(name: &str) -> Profile {
    profiles::named(name).unwrap().unwrap()
}

fn packet(millis: u64, session: u32) -> Packet {
    Packet { at: Time::from_millis(millis), direction: Direction::Up, bytes: 100, app: 0, session }
}

fn run(
    profile: &Profile,
    decides: Decider<'_>,
    tolerates: &dyn Fn(&Packet) -> bool,
    packets: impl IntoIterator<Item = Packet>,
) -> Outcome {
    let mut simulation = Simulation::new(profile, decides, tolerates);
    packets.into_iter().for_each(|packet| simulation.push(packet));
    simulation.finish()
}

/// A policy that records the times of packets.
struct RecordingPolicy<P> {
    policy: P,
    passed: Vec<(u64, u32)>,
}

impl<P: Policy> Policy for RecordingPolicy<P> {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        self.passed.push((packet.at.as_nanos() / 1_000_000, packet.session));
        self.policy.observe(packet, gap)
    }

    fn delays_sessions(&self) -> bool {
        self.policy.delays_sessions()
    }

    fn on_session(&mut self, now: Time) {
        self.policy.on_session(now);
    }

    fn session_delay(&mut self, now: Time) -> Span {
        self.policy.session_delay(now)
    }
}

/// Delays every delay-tolerant session by 3 s and goes idle after 1 s.
fn delaying() -> RecordingPolicy<CombinedPolicy<Timer, Span>> {
    let policy = CombinedPolicy { idle: Timer { wait: span(1.0) }, delay: span(3.0) };
    RecordingPolicy { policy, passed: Vec::new() }
}

const ALL: fn(&Packet) -> bool = |_| true;

#[test]
fn sessions_wait_for_each_other_while_the_radio_sleeps() {
    let mut policy = delaying();
    let packets = [
        // Delayed by 3 s, together with later packets of the session…
        packet(0, 1),
        packet(400, 1),
        // …and with another session that starts within the delay.
        packet(2_000, 2),
        // The radio is connected then: this session passes at once, between delayed ones.
        packet(3_100, 3),
        packet(3_300, 3),
    ];
    let outcome = run(&profile("att-hspa"), Decider::Policy(&mut policy), &ALL, packets);
    assert_eq!(policy.passed, [(3_000, 1), (3_000, 2), (3_100, 3), (3_300, 3), (3_400, 1)]);
    assert_eq!((outcome.delays.count, outcome.delays.delayed), (3, 2));
    assert_eq!(outcome.delays.mean(), Some(span(2.0)));
    assert_eq!(outcome.delays.quantile(0.5), Some(span(1.0)));
    assert_eq!(outcome.delays.quantile(0.95), Some(span(3.0)));
    assert_eq!(outcome.account.promotion_count, 1);
}

#[test]
fn other_sessions_pass_at_once_and_release_delayed_ones() {
    let mut policy = delaying();
    let packets = [packet(0, 1), packet(1_000, 2), packet(1_500, 1), packet(9_000, 2)];
    let tolerates = |packet: &Packet| packet.session == 1;
    let outcome = run(&profile("att-hspa"), Decider::Policy(&mut policy), &tolerates, packets);
    // Session 1 was delayed by 1 s and keeps that shift.
    assert_eq!(policy.passed, [(1_000, 2), (1_000, 1), (2_500, 1), (9_000, 2)]);
    assert_eq!((outcome.delays.count, outcome.delays.mean()), (1, Some(span(1.0))));
}

#[test]
fn a_session_that_has_begun_is_not_held_back_again() {
    let mut policy = delaying();
    // The radio goes idle between them.
    let packets = [packet(0, 1), packet(20_000, 1)];
    run(&profile("att-hspa"), Decider::Policy(&mut policy), &ALL, packets);
    assert_eq!(policy.passed, [(3_000, 1), (23_000, 1)]);
}

/// A persistent connection with a heartbeat every 10 s: each heartbeat is delayed as a session, and
/// all of them pass together with the first.
#[test]
fn a_delayed_flow_can_start_several_sessions() {
    let policy = CombinedPolicy { idle: StatusQuo, delay: span(60.0) };
    let mut notes = RecordingPolicy { policy, passed: Vec::new() };
    let profile = profile("att-hspa");
    let beats = [0, 10_000, 20_000, 70_000].map(|millis| packet(millis, 7));
    let mut simulation = Simulation::new(&profile, Decider::Policy(&mut notes), &ALL)
        .with_session_timeout(Span::from_millis(1_500));
    beats.into_iter().for_each(|packet| simulation.push(packet));
    let outcome = simulation.finish();
    assert_eq!((outcome.delays.count, outcome.delays.delayed), (4, 3));
    assert_eq!(outcome.delays.sum, span(60.0 + 50.0 + 40.0));
    assert_eq!(notes.passed, [(60_000, 7), (60_000, 7), (60_000, 7), (70_000, 7)]);
}

#[test]
fn sessions_are_forgotten_when_nothing_passes_for_long() {
    let mut policy = delaying();
    let packets = (0..5_000).map(|session| packet(session * 2_000_000, session as u32));
    let mut simulation = Simulation::new(&profile("att-hspa"), Decider::Policy(&mut policy), &ALL);
    for packet in packets {
        simulation.push(packet);
        assert!(simulation.sessions.len() <= SESSIONS_BEFORE_CLEANUP);
    }
    assert_eq!(simulation.finish().delays.delayed, 5_000);
}

#[test]
fn switches_are_compared_with_the_oracle() {
    // Gaps of 0.3, 1, 2 and 30 s; the threshold is 1.2 s, the timer 0.5 s.
    let times = [0, 300, 1_300, 3_300, 33_300];
    let packets = || times.iter().map(|at| packet(*at, 0));
    let mut timer = Timer { wait: span(0.5) };
    let outcome = run(&profile("att-hspa"), Decider::Policy(&mut timer), &ALL, packets());
    let switches =
        SwitchAccuracy { true_switches: 2, false_switches: 1, true_stays: 1, missed_switches: 0 };
    assert_eq!(outcome.switches, switches);
    assert_eq!((switches.false_rate(), switches.missed_rate()), (Some(0.5), Some(0.0)));
    let outcome = run(&profile("att-hspa"), Decider::Policy(&mut StatusQuo), &ALL, packets());
    assert_eq!(
        outcome.switches,
        SwitchAccuracy { true_switches: 1, false_switches: 0, true_stays: 2, missed_switches: 1 }
    );
    let outcome = run(&profile("att-hspa"), Decider::Oracle, &ALL, packets());
    assert_eq!(
        outcome.switches,
        SwitchAccuracy { true_switches: 2, false_switches: 0, true_stays: 2, missed_switches: 0 }
    );
    assert_eq!(outcome.duration, Span::from_millis(33_300));
}

#[test]
fn an_empty_trace_takes_nothing() {
    let outcome = run(&profile("lte"), Decider::Oracle, &ALL, []);
    assert_eq!((outcome.account.total(), outcome.duration), (0.0, Span::ZERO));
}

proptest! {
    /// Sessions that are not delay-tolerant are never delayed, and every packet passes once.
    #[test]
    fn sessions_without_tolerance_are_not_delayed(
        all in prop::collection::vec((0_u64..60_000, 0_u32..12), 1..80), n in 1_usize..12,
    ) {
        let mut packets: Vec<Packet> =
            all.iter().map(|(millis, session)| packet(*millis, *session)).collect();
        packets.sort();
        let profile = profile("verizon-lte");
        let policy = CombinedPolicy {
            idle: MakeIdle::new(SleepTradeoff::of(&profile), 3),
            delay: LearnedDelay::new(n, 0.008),
        };
        let mut policy = RecordingPolicy { policy, passed: Vec::new() };
        // Sessions with even numbers are not delay-tolerant.
        let tolerates = |packet: &Packet| packet.session % 2 == 1;
        run(&profile, Decider::Policy(&mut policy), &tolerates, packets.iter().copied());
        prop_assert!(policy.passed.is_sorted_by_key(|(at, _)| *at));
        for session in 0..12 {
            let of = |all: &[(u64, u32)]| -> Vec<u64> {
                all.iter().filter(|one| one.1 == session).map(|one| one.0).collect()
            };
            let sent = of(&packets.iter().map(|packet| {
                (packet.at.as_nanos() / 1_000_000, packet.session)
            }).collect::<Vec<_>>());
            let passed = of(&policy.passed);
            prop_assert_eq!(sent.len(), passed.len());
            for (sent, passed) in sent.iter().zip(&passed) {
                let late = passed - sent;
                let max = if session % 2 == 0 { 0 } else { 1_000 * n as u64 };
                prop_assert!(late <= max, "{} of {}", late, max);
            }
        }
    }
}

/// Runs on a generated trace and checks only that all packets pass; the benchmark measures the
/// quality of policies.
#[test]
fn a_day_goes_through() {
    let profile = profile("att-hspa");
    let mut policy = MakeIdle::new(SleepTradeoff::of(&profile), 100);
    let packets: Vec<Packet> = workload::mixed(1, Span::from_secs(86_400)).collect();
    let count = packets.len() as u64;
    let outcome = run(&profile, Decider::Policy(&mut policy), &ALL, packets);
    assert_eq!(outcome.account.packets, count);
}
