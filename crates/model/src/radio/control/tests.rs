use crate::radio::span;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use proptest::prelude::*;

use super::*;
use crate::radio::policy::{
    CombinedPolicy, ContextPolicy, LearnedDelay, MakeIdle, StatusQuo, Timer,
};
use crate::radio::simulate::{Decider, Delays, Simulation};
use crate::radio::{Direction, SleepTradeoff, profiles, workload};

fn profile(name: &str) -> Profile {
    profiles::named(name).unwrap().unwrap()
}

fn packet(nanos: u64) -> Packet {
    let direction = if nanos.is_multiple_of(3) { Direction::Down } else { Direction::Up };
    let bytes = 40 + (nanos % 1_400) as u32;
    Packet { at: Time::from_nanos(nanos), direction, bytes, app: 0, session: 0 }
}

fn millis(millis: u64) -> Packet {
    packet(millis * 1_000_000)
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// Constructors of the compared policies.
type Make = fn(&Profile) -> Box<dyn Policy>;
const POLICIES: [Make; 6] = [
    |_| Box::new(StatusQuo),
    |_| Box::new(Timer { wait: span(0.0) }),
    |_| Box::new(Timer { wait: span(0.3) }),
    |profile| Box::new(Timer { wait: SleepTradeoff::of(profile).threshold() }),
    |profile| Box::new(MakeIdle::new(SleepTradeoff::of(profile), 5)),
    |profile| Box::new(ContextPolicy::new(SleepTradeoff::of(profile))),
];

fn simulated(profile: &Profile, policy: &mut dyn Policy, packets: &[Packet]) -> Account {
    let mut simulation = Simulation::new(profile, Decider::Policy(policy), &|_| false);
    packets.iter().for_each(|packet| simulation.push(*packet));
    simulation.finish().account
}

/// Reports each packet as it passes, and polls at each requested time.
fn controlled<P: Policy>(mut controller: Controller<P>, packets: &[Packet]) -> Outcome {
    let until = |controller: &mut Controller<P>, end: Time| {
        while let Some(due) = controller.next_wakeup().filter(|due| *due <= end) {
            let sleep = controller.poll(due).expect("it was asked for");
            assert!(sleep.gap.as_secs_f64() > sleep.wait.as_secs_f64());
        }
    };
    for packet in packets {
        until(&mut controller, packet.at);
        controller.on_packet(packet);
    }
    until(&mut controller, Time::MAX);
    controller.finish()
}

/// Gaps of all lengths, including exact ends of waits and timers.
fn gaps() -> impl Strategy<Value = Vec<Packet>> {
    let exact = prop::sample::select(vec![0_u64, 300, 500, 1_200, 3_085, 6_200, 16_600]);
    let gap = prop_oneof![
        0_u64..2_000_000,
        0_u64..2_000_000_000,
        0_u64..40_000_000_000,
        (exact, 0_u64..3).prop_map(|(millis, more)| (millis * 1_000_000 + more).saturating_sub(1)),
    ];
    prop::collection::vec(gap, 1..120).prop_map(|gaps| {
        let times = gaps.iter().scan(0, |at, gap| {
            *at += gap;
            Some(*at)
        });
        times.map(packet).collect()
    })
}

proptest! {
    /// Equal to the last bit, because the same values are added in the same order.
    #[test]
    fn a_controller_equals_a_simulation(packets in gaps(), names in 0..4_usize) {
        let profile = profile(["att-hspa", "verizon-lte", "lte", "tmobile-3g"][names]);
        for make in POLICIES {
            let controller = Controller::new(&profile, make(&profile), Span::ZERO);
            let outcome = controlled(controller, &packets);
            let expected = simulated(&profile, &mut make(&profile), &packets);
            prop_assert_eq!(&outcome.account, &expected);
            prop_assert_eq!(outcome.late_packets, 0);
            prop_assert!(outcome.false_switches <= outcome.account.dormancies);
            let expected = simulated(&profile, &mut StatusQuo, &packets);
            prop_assert_eq!(&outcome.status_quo, &expected);
        }
    }

    /// Polls that are late by a constant time lengthen each wait by that time.
    #[test]
    fn a_late_poll_lengthens_the_wait(packets in gaps(), late in 1_u64..400) {
        let profile = profile("att-hspa");
        let late = Span::from_millis(late);
        let wait = Span::from_millis(700);
        let mut controller =
            Controller::new(&profile, Timer { wait }, Span::ZERO);
        let until = |controller: &mut Controller<Timer>, end: Time| {
            while let Some(due) = controller.next_wakeup().filter(|due| *due + late <= end) {
                controller.poll(due + late);
            }
        };
        for packet in &packets {
            until(&mut controller, packet.at);
            controller.on_packet(packet);
        }
        until(&mut controller, Time::MAX);
        let outcome = controller.finish();
        let mut timer = Timer { wait: (wait + late) };
        let expected = simulated(&profile, &mut timer, &packets);
        prop_assert_eq!(outcome.account.dormancies, expected.dormancies);
        prop_assert!((outcome.account.total() - expected.total()).abs() < 1e-6);
    }

    /// With any polls: never within the wait or after the release, and never twice in a row or too
    /// soon.
    #[test]
    fn dormancy_is_never_too_soon_or_after_the_release(
        steps in prop::collection::vec((0_u64..9_000, any::<bool>()), 1..200),
        wait in 0_u64..9_000,
        every in 0_u64..5_000,
    ) {
        let profile = profile("verizon-lte");
        let released = SleepTradeoff::of(&profile).stay.idle_after();
        let (wait, interval) = (Span::from_millis(wait), Span::from_millis(every));
        let mut controller = Controller::new(&profile, Timer { wait }, interval);
        let (mut now, mut last, mut asleep) = (Time::ZERO, None::<Time>, None::<Time>);
        let (mut sleeps, mut slept) = (0, None::<Time>);
        for (step, is_packet) in steps {
            now += Span::from_millis(step);
            if is_packet {
                // A packet at the time of the dormancy may have passed before it.
                let woken = asleep.take_if(|asleep| now > *asleep).is_some();
                prop_assert_eq!(controller.on_packet(&packet(now.as_nanos())).is_some(), woken);
                last = Some(now);
            } else if let Some(sleep) = controller.poll(now) {
                let idle = now.since(last.unwrap());
                prop_assert_eq!(sleep.gap, idle);
                prop_assert!(idle > wait && idle.as_secs_f64() < released.as_secs_f64());
                prop_assert!(asleep.is_none() && slept.is_none_or(|slept| now.since(slept) >= interval));
                (asleep, slept) = (Some(now), Some(now));
                sleeps += 1;
            }
        }
        prop_assert_eq!(controller.finish().account.dormancies, sleeps);
    }
}

#[test]
fn a_day_comes_to_the_same() {
    let packets: Vec<Packet> = workload::mixed(1, Span::from_secs(86_400)).collect();
    let profile = profile("verizon-lte");
    for make in POLICIES {
        let controller = Controller::new(&profile, make(&profile), Span::ZERO);
        let outcome = controlled(controller, &packets);
        assert_eq!(outcome.account, simulated(&profile, &mut make(&profile), &packets));
    }
}

#[test]
fn a_dormancy_that_saves_no_energy_is_false() {
    // The threshold is 1.2 s; fast dormancy follows each packet at once.
    let profile = profile("att-hspa");
    let mut controller = Controller::new(&profile, Timer { wait: span(0.0) }, Span::ZERO);
    controller.on_packet(&millis(0));
    let mut told = Vec::new();
    for next in [400, 1_400, 3_400] {
        let sleep = controller.poll(controller.next_wakeup().unwrap()).unwrap();
        assert_eq!((sleep.gap, sleep.wait), (Span::from_nanos(1), Span::ZERO));
        told.push(controller.on_packet(&millis(next)).unwrap().is_false_switch);
    }
    // Twice below the threshold, once above it.
    assert_eq!(told, [true, true, false]);
    assert_eq!(controller.finish().false_switches, 2);
}

#[test]
fn to_sleep_within_a_transfer_is_false() {
    // In either state the gap takes the energy of a transfer.
    let mut profile = profile("att-hspa");
    profile.transfer.burst_gap = Span::from_secs(9);
    let mut controller = Controller::new(&profile, Timer { wait: span(0.0) }, Span::ZERO);
    controller.on_packet(&millis(0));
    controller.poll(at(1));
    assert!(controller.on_packet(&millis(8_000)).unwrap().is_false_switch);
}

#[test]
fn a_sleep_that_comes_too_soon_is_put_off() {
    let profile = profile("att-hspa");
    let mut controller = Controller::new(&profile, Timer { wait: span(0.5) }, Span::from_secs(4));
    controller.on_packet(&millis(0));
    assert!(controller.poll(at(501)).is_some());
    controller.on_packet(&millis(1_000));
    assert_eq!(controller.next_wakeup(), Some(at(4_501)));
    assert!(controller.poll(at(1_600)).is_none());
    let sleep = controller.poll(at(4_501)).unwrap();
    assert_eq!((sleep.gap, sleep.wait), (Span::from_millis(3_501), span(0.5)));
    let waits = controller.finish().account.wait_time;
    assert_eq!(waits, span(0.501 + 3.501));
}

#[test]
fn a_released_radio_is_not_sent_to_idle() {
    // The timers end 16.6 s after the last packet.
    let profile = profile("att-hspa");
    let mut controller = Controller::new(&profile, Timer { wait: span(0.5) }, Span::from_secs(60));
    controller.on_packet(&millis(0));
    assert!(controller.poll(at(16_700)).is_none());
    assert_eq!(controller.next_wakeup(), None);
    assert!(controller.poll(at(16_800)).is_none());
    controller.on_packet(&millis(20_000));
    assert!(controller.poll(at(21_000)).is_some());
    // The next dormancy would be too soon until after the release.
    controller.on_packet(&millis(22_000));
    assert_eq!(controller.next_wakeup(), None);
    assert_eq!(controller.finish().account.dormancies, 1);
}

#[test]
fn a_wait_that_never_ends_is_left_to_the_network() {
    let mut profile = profile("wifi");
    // This network never releases the radio.
    profile.states.iter_mut().for_each(|state| state.is_idle = false);
    let mut controller = Controller::new(&profile, Timer { wait: NEVER }, Span::ZERO);
    controller.on_packet(&millis(0));
    assert_eq!(controller.next_wakeup(), None);
    assert_eq!(controller.poll(Time::MAX), None);
}

/// Heartbeats every 15 s, each answered 80 ms after the radio has carried it.
#[test]
fn a_promotion_is_not_interrupted_by_dormancy() {
    let profile = profile("att-hspa");
    let delay = profile.states[profile.dormant].promotion_delay;
    assert!(delay > Span::from_secs(1), "otherwise the test has no effect");
    let up = |at| Packet { at, direction: Direction::Up, ..millis(0) };
    let down = |at| Packet { at, direction: Direction::Down, ..millis(0) };
    let policy = || MakeIdle::new(SleepTradeoff::of(&profile), 10);
    let open = Controller::new(&profile, policy(), Span::ZERO);
    let mut sleeps = Vec::new();
    for mut controller in [open.clone(), open.with_promotions(&profile)] {
        let mut asleep = true;
        let until = |controller: &mut Controller<MakeIdle>, asleep: &mut bool, end| {
            while let Some(due) = controller.next_wakeup().filter(|due| *due <= end) {
                *asleep |= controller.poll(due).is_some();
            }
        };
        for beat in 0..40 {
            let sent = at(15_000 * beat);
            until(&mut controller, &mut asleep, sent);
            controller.on_packet(&up(sent));
            let carried = if asleep { sent + delay } else { sent };
            asleep = false;
            let answered = carried + Span::from_millis(80);
            until(&mut controller, &mut asleep, answered);
            controller.on_packet(&down(answered));
            asleep = false;
        }
        sleeps.push(controller.finish().account.dormancies);
    }
    // After learning one dormancy per heartbeat, and two if the promotion delay counts as a gap.
    assert!(sleeps[0] > 60, "{sleeps:?}");
    assert!((30..=40).contains(&sleeps[1]), "{sleeps:?}");
}

#[test]
fn only_sent_packets_wait_for_a_promotion() {
    let profile = profile("3g-i997");
    let [high, low, idle] = &profile.states[..] else { panic!("it has three states") };
    let wait = 0.25;
    let mut controller =
        Controller::new(&profile, Timer { wait: span(wait) }, Span::ZERO).with_promotions(&profile);
    let wakes = |controller: &Controller<Timer>, from: Time, delay: Span| {
        let due = from + delay + Span::from_millis(250) + Span::from_nanos(1);
        assert_eq!(controller.next_wakeup(), Some(due));
    };
    let up = |millis| Packet { at: at(millis), direction: Direction::Up, ..packet(0) };
    let down = |millis| Packet { at: at(millis), direction: Direction::Down, ..packet(0) };
    controller.on_packet(&up(0));
    wakes(&controller, at(0), idle.promotion_delay);
    // The packet arrives while the promotion is in progress by the profile: its gap is zero, not
    // negative.
    controller.on_packet(&down(100));
    wakes(&controller, at(0), idle.promotion_delay);
    controller.on_packet(&up(9_000));
    wakes(&controller, at(9_000), low.promotion_delay);
    assert!(high.promotion_delay.is_zero());
    controller.poll(at(20_000));
    controller.on_packet(&down(60_000));
    wakes(&controller, at(60_000), Span::ZERO);
    controller.poll(at(60_400)).expect("it sleeps");
    controller.on_packet(&up(61_000));
    wakes(&controller, at(61_000), profile.states[profile.dormant].promotion_delay);
}

#[test]
fn a_packet_reported_after_a_dormancy_counts_before_it() {
    let profile = profile("att-hspa");
    let mut controller = Controller::new(&profile, Timer { wait: span(0.5) }, Span::ZERO);
    controller.on_packet(&millis(0));
    assert!(controller.poll(at(600)).is_some());
    assert_eq!(controller.on_packet(&millis(550)), None);
    assert_eq!(controller.next_wakeup(), None, "it sleeps");
    let wake = controller.on_packet(&millis(5_600)).unwrap();
    assert_eq!(wake, Promotion { idle_time: Span::from_secs(5), is_false_switch: false });
    let outcome = controller.finish();
    assert_eq!((outcome.late_packets, outcome.account.dormancies), (1, 1));
    assert!(outcome.account.wait_time == span(0.05));
    assert_eq!(outcome.duration, Span::from_millis(5_600));
}

#[test]
fn a_sleep_that_was_refused_was_none() {
    let profile = profile("att-hspa");
    let mut controller = Controller::new(&profile, Timer { wait: span(0.5) }, Span::ZERO);
    controller.on_dormancy_failure();
    controller.on_packet(&millis(0));
    assert!(controller.poll(at(600)).is_some());
    controller.on_dormancy_failure();
    assert_eq!(controller.next_wakeup(), None, "not again before the next packet");
    assert_eq!(controller.on_packet(&millis(5_000)), None);
    assert!(controller.poll(at(5_600)).is_some());
    assert_eq!(controller.finish().account.dormancies, 1);
}

#[test]
fn nothing_passed_and_nothing_was_taken() {
    let controller = Controller::new(&profile("lte"), StatusQuo, Span::ZERO);
    assert_eq!(controller.next_wakeup(), None);
    let outcome = controller.finish();
    assert_eq!((outcome.account.total(), outcome.status_quo.total()), (0.0, 0.0));
}

#[test]
fn a_wait_ends_with_the_first_nanosecond_behind_it() {
    let origin = at(7_000);
    for nanos in [0, 1, 299_999_999, 300_000_000, 4_500_000_000, 86_400_000_000_001] {
        let wait = Span::from_nanos(nanos);
        assert_eq!(first_time_after(origin, wait), origin + Span::from_nanos(nanos + 1), "{nanos}");
    }
    assert_eq!(first_time_after(Time::ZERO, NEVER), Time::MAX);
    assert!(first_time_after(Time::ZERO, span(1e9)).since(Time::ZERO) > span(1e9));
}

/// Keeper of the gate: delays the packets of sessions that wait.
struct Keeper<P> {
    controller: Controller<P>,
    releases: u64,
    is_closed: bool,
    /// Start of each session, and the delay of its packets; `None` while it waits.
    sessions: BTreeMap<u32, (Time, Option<Span>)>,
    waiting: Vec<Packet>,
    upcoming: BinaryHeap<Reverse<(Time, usize, Packet)>>,
    delays: Delays,
}

impl<P: Policy> Keeper<P> {
    fn new(controller: Controller<P>) -> Self {
        Self {
            controller,
            releases: 0,
            is_closed: false,
            sessions: BTreeMap::new(),
            waiting: Vec::new(),
            upcoming: BinaryHeap::new(),
            delays: Delays::default(),
        }
    }

    fn apply_gate(&mut self, now: Time) {
        let gate = self.controller.gate(now);
        self.is_closed = gate.is_closed;
        if gate.releases == self.releases {
            return;
        }
        self.releases = gate.releases;
        for (start, later) in self.sessions.values_mut().filter(|(_, later)| later.is_none()) {
            *later = Some(now.since(*start));
            self.delays.push(now.since(*start));
        }
        for packet in std::mem::take(&mut self.waiting) {
            self.push_delayed(packet);
        }
    }

    /// Adds the packet with the delay of its session.
    fn push_delayed(&mut self, packet: Packet) {
        let later = self.sessions[&packet.session].1.expect("it has passed");
        let at = packet.at + later;
        self.upcoming.push(Reverse((at, self.upcoming.len(), Packet { at, ..packet })));
    }

    fn advance(&mut self, end: Time, now: Time) {
        let mut now = now;
        loop {
            let due = self.controller.next_wakeup().unwrap_or(Time::MAX);
            let gate = self.controller.next_gate_change(now).unwrap_or(Time::MAX);
            let next = self.upcoming.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
            let first = due.min(gate).min(next);
            if first > end || first == Time::MAX {
                return;
            }
            now = first;
            if first == gate {
                self.apply_gate(now);
            } else if first == due {
                self.controller.poll(now).expect("it was asked for");
                self.apply_gate(now);
            } else if let Some(Reverse((_, _, packet))) = self.upcoming.pop() {
                self.controller.on_packet(&packet);
                self.apply_gate(now);
            }
        }
    }

    fn push(&mut self, packet: Packet, before: Time) {
        let now = packet.at;
        self.advance(now, before);
        if !self.sessions.contains_key(&packet.session) {
            let tolerates = packet.app == 1;
            if tolerates {
                self.controller.on_session(now, self.is_closed);
                self.apply_gate(now);
            }
            let waits = tolerates && self.is_closed;
            self.sessions.insert(packet.session, (now, (!waits).then_some(Span::ZERO)));
            if tolerates && !waits {
                self.delays.push(Span::ZERO);
            }
        }
        match self.sessions[&packet.session].1 {
            None => self.waiting.push(packet),
            Some(later) if later.is_zero() => {
                self.controller.on_packet(&packet);
                self.apply_gate(now);
            }
            Some(_) => self.push_delayed(packet),
        }
    }
}

proptest! {
    /// If the delay is long enough for released sessions to pass before the next dormancy.
    #[test]
    fn a_controller_delays_the_sessions_that_a_simulation_does(
        sessions in prop::collection::vec((1_u64..60_000, any::<bool>(), 1_u64..4), 1..60),
        learns in any::<bool>(),
        sleeps in any::<bool>(),
    ) {
        let profile = profile("att-hspa");
        let make = || -> Box<dyn Policy> {
            let idle = Timer { wait: if sleeps { span(1.3) } else { NEVER } };
            match learns {
                true => Box::new(CombinedPolicy { idle, delay: LearnedDelay::new(10, 0.008) }),
                false => Box::new(CombinedPolicy { idle, delay: span(7.5) }),
            }
        };
        // Odd times, so that no two events coincide.
        let mut packets = Vec::new();
        let mut start = Time::ZERO;
        for (index, (gap, waits, count)) in sessions.into_iter().enumerate() {
            start += Span::from_nanos(gap * 1_000_000 + 7_919 * index as u64);
            for more in 0..count {
                let at = start + Span::from_nanos(more * 813_000_331);
                packets.push(Packet { at, app: waits.into(), session: index as u32, ..millis(1) });
            }
        }
        packets.sort_by_key(|packet| packet.at);
        let mut policy = make();
        let mut simulation = Simulation::new(
            &profile,
            Decider::Policy(&mut *policy),
            &|packet| packet.app == 1,
        );
        let mut keeper = Keeper::new(Controller::new(&profile, make(), Span::ZERO));
        keeper.apply_gate(Time::ZERO);
        let mut before = Time::ZERO;
        for packet in &packets {
            simulation.push(*packet);
            keeper.push(*packet, before);
            before = packet.at;
        }
        keeper.advance(Time::MAX, before);
        let expected = simulation.finish();
        prop_assert_eq!(&keeper.delays, &expected.delays);
        let account = keeper.controller.finish().account;
        prop_assert_eq!(account.promotion_count, expected.account.promotion_count);
        prop_assert!((account.total() - expected.account.total()).abs() < 1e-6);
    }
}

fn delaying(wait: Span, hold: f64) -> Controller<CombinedPolicy<Timer, Span>> {
    let policy = CombinedPolicy { idle: Timer { wait }, delay: span(hold) };
    Controller::new(&profile("att-hspa"), policy, Span::ZERO)
}

#[test]
fn the_gate_is_shut_while_the_radio_is_released() {
    let shut = |controller: &mut Controller<_>, millis| controller.gate(at(millis)).is_closed;
    let mut controller = delaying(span(0.5), 5.0);
    assert!(shut(&mut controller, 0), "there was no promotion yet");
    assert_eq!(controller.next_gate_change(at(0)), None);
    controller.on_packet(&millis(100));
    assert!(!shut(&mut controller, 100));
    // By fast dormancy, or by the network's timers.
    let mut left = delaying(NEVER, 5.0);
    left.on_packet(&millis(100));
    assert_eq!(left.next_gate_change(at(100)), Some(at(16_700) + Span::from_nanos(1)));
    assert!(!shut(&mut left, 16_700) && shut(&mut left, 16_701));
    assert_eq!(left.next_gate_change(at(16_701)), None);
    controller.poll(at(601)).expect("it sleeps");
    assert!(shut(&mut controller, 601));
    // The fast dormancy failed.
    controller.on_dormancy_failure();
    assert!(!shut(&mut controller, 700));
    let mut nothing = Controller::new(&profile("att-hspa"), StatusQuo, Span::ZERO);
    assert!(!nothing.gate(at(0)).is_closed && nothing.next_gate_change(at(0)).is_none());
}

#[test]
fn waiting_sessions_pass_after_the_delay_and_later_ones_wait() {
    let mut controller = delaying(span(0.5), 5.0);
    assert_eq!(controller.on_session(at(1_000), true), Some(Span::from_secs(5)));
    assert_eq!(controller.on_session(at(3_000), true), None, "it waits for the same");
    assert_eq!(controller.next_gate_change(at(3_000)), Some(at(6_000)));
    assert_eq!(controller.gate(at(5_999)), GateState { is_closed: true, releases: 0 });
    assert_eq!(controller.gate(at(6_000)), GateState { is_closed: false, releases: 1 });
    // A report from before the release that arrives late.
    assert_eq!(controller.on_session(at(6_001), true), None);
    // The released sessions count as passed, because none of their packets was seen.
    assert_eq!(controller.next_gate_change(at(6_100)), Some(at(7_000)));
    assert_eq!(controller.gate(at(7_000)), GateState { is_closed: true, releases: 1 });
    assert_eq!(controller.on_session(at(7_500), true), Some(Span::from_secs(5)));
}

#[test]
fn sessions_that_do_not_wait_start_no_delay() {
    let mut controller = delaying(span(0.5), 5.0);
    assert_eq!(controller.on_session(at(500), false), None, "it has found the gate open");
    assert_eq!(controller.next_gate_change(at(500)), None);
    // The session found the gate shut, but an unreported packet had caused a promotion.
    controller.on_packet(&millis(900));
    assert_eq!(controller.on_session(at(1_000), true), None);
    assert!(!controller.gate(at(1_000)).is_closed);
}

#[test]
fn a_delay_ends_with_the_gate() {
    let mut controller = delaying(span(0.5), 5.0);
    controller.on_session(at(1_000), true);
    controller.on_gate_removed();
    assert_eq!(controller.next_gate_change(at(2_000)), None);
    assert_eq!(controller.on_session(at(4_000), true), Some(Span::from_secs(5)), "from now on");
}

#[test]
fn waiting_sessions_pass_after_a_failed_dormancy() {
    let mut controller = delaying(span(0.5), 5.0);
    controller.on_packet(&millis(0));
    controller.poll(at(600)).expect("it sleeps");
    assert_eq!(controller.on_session(at(700), true), Some(Span::from_secs(5)));
    controller.on_dormancy_failure();
    assert_eq!(controller.gate(at(800)), GateState { is_closed: false, releases: 1 });
}

#[test]
fn waiting_sessions_pass_with_a_promotion() {
    let mut controller = delaying(span(0.1), 5.0);
    controller.on_session(at(1_000), true);
    controller.on_packet(&millis(2_000));
    assert_eq!(controller.gate(at(2_000)), GateState { is_closed: false, releases: 1 });
    // The dormancy would be 100 ms later, but released sessions are on their way.
    assert_eq!(controller.next_wakeup(), Some(at(2_500)));
    controller.on_packet(&millis(2_050));
    controller.poll(at(2_560)).expect("it sleeps");
    assert!(!controller.gate(at(2_600)).is_closed);
    assert_eq!(controller.gate(at(3_000)), GateState { is_closed: true, releases: 1 });
    // Fast dormancy at once: released sessions pass although the gate is shut again.
    let mut controller = delaying(Span::ZERO, 5.0);
    controller.on_packet(&millis(0));
    controller.poll(at(1)).expect("it sleeps");
    controller.on_session(at(1_000), true);
    controller.on_packet(&millis(2_000));
    assert_eq!(controller.gate(at(9_000)).releases, 1);
}

#[test]
fn a_packet_of_before_the_sleep_lets_nothing_go() {
    let mut controller = delaying(span(0.5), 5.0);
    controller.on_packet(&millis(0));
    controller.poll(at(600)).expect("it sleeps");
    controller.on_session(at(700), true);
    assert_eq!(controller.on_packet(&millis(550)), None);
    assert_eq!(controller.gate(at(800)), GateState { is_closed: true, releases: 0 });
}

#[test]
fn sessions_with_a_delay_of_zero_pass() {
    let mut controller = delaying(span(0.5), 0.0);
    assert_eq!(controller.on_session(at(1_000), true), None);
    assert_eq!(controller.gate(at(1_000)), GateState { is_closed: false, releases: 1 });
}
