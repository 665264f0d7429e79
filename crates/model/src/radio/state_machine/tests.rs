use proptest::prelude::*;

use super::*;
use crate::radio::profile::{Technology, Transfer};
use crate::radio::{Energy, Power, TailEnergy};

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn state(timer: Option<u64>, promotion_delay: u64, is_released: bool) -> State {
    State {
        name: String::new(),
        power: Power::default(),
        drx: None,
        timer: timer.map(Span::from_millis),
        demotion: Energy::default(),
        promotion: Energy::default(),
        promotion_delay: Span::from_millis(promotion_delay),
        is_idle: is_released,
        source: String::new(),
    }
}

fn listening(cycle: u64, duration: u64, state: State) -> State {
    let (cycle, duration) = (Span::from_millis(cycle), Span::from_millis(duration));
    State { drx: Some(Drx { cycle, on_duration: duration, power: Power::default() }), ..state }
}

fn profile(states: Vec<State>, dormant: usize) -> Profile {
    Profile {
        title: String::new(),
        technology: Technology::Lte,
        transfer: Transfer {
            send: Power::default(),
            receive: Power::default(),
            send_per_mbit: Energy::default(),
            receive_per_mbit: Energy::default(),
            burst_gap: Span::from_millis(500),
            source: String::new(),
        },
        states,
        dormant,
    }
}

/// 300 ms, then 900 ms with DRX every 40 ms, then idle: promotion of 120 ms, paging once a second.
fn radio() -> Profile {
    let drx = listening(40, 10, state(Some(900), 0, false));
    let idle = listening(1_000, 100, state(None, 120, true));
    profile(vec![state(Some(300), 0, false), drx, idle], 2)
}

fn changes(machine: &mut StateMachine, now: Time) -> Vec<(Time, usize, usize)> {
    std::iter::from_fn(|| machine.poll(now)).map(|one| (one.at, one.previous, one.state)).collect()
}

#[test]
fn the_first_packet_promotes_and_a_gap_demotes() {
    let mut machine = StateMachine::new(&radio());
    assert_eq!((machine.state(ms(5_000)), machine.next_wakeup()), (2, None));
    assert_eq!(machine.pass(ms(5_000), Direction::Up), ms(5_120));
    assert_eq!((machine.state(ms(5_119)), machine.promotion_end()), (2, Some(ms(5_120))));
    assert_eq!(machine.next_wakeup(), Some(ms(5_120)));
    // Packets that arrive meanwhile wait until the same time.
    assert_eq!(machine.pass(ms(5_119), Direction::Up), ms(5_120));
    assert_eq!(machine.pass(ms(5_119), Direction::Down), ms(5_120));
    assert_eq!((machine.state(ms(5_120)), machine.promotion_end()), (0, None));
    assert_eq!(changes(&mut machine, ms(5_120)), [(ms(5_120), 2, 0)]);
    // Each packet restarts the timers; at the exact end of a timer the state still holds.
    assert_eq!(machine.pass(ms(5_300), Direction::Down), ms(5_300));
    assert_eq!(machine.state(ms(5_600)), 0);
    let behind = ms(5_600) + Span::from_nanos(1);
    assert_eq!(machine.next_wakeup(), Some(behind));
    assert_eq!(machine.state(behind), 1);
    assert_eq!(machine.state(ms(6_500)), 1);
    assert_eq!(machine.state(ms(6_501)), 2);
    assert_eq!(changes(&mut machine, ms(9_000)), [(ms(5_600), 0, 1), (ms(6_500), 1, 2)]);
    assert_eq!(machine.next_wakeup(), None);
}

#[test]
fn packets_to_the_device_wait_for_an_on_duration() {
    let mut machine = StateMachine::new(&radio());
    machine.pass(ms(0), Direction::Up);
    // Connected since 120 ms, DRX since 420 ms with 10 ms every 40 ms.
    let mut asleep = machine.clone();
    assert_eq!(asleep.clone().pass(ms(429), Direction::Down), ms(429));
    assert_eq!(asleep.clone().pass(ms(430), Direction::Down), ms(460));
    assert_eq!(asleep.clone().pass(ms(460), Direction::Down), ms(460));
    assert_eq!(asleep.clone().pass(ms(430), Direction::Up), ms(430));
    // Released at 1320 ms, paging every second.
    assert_eq!(asleep.pass(ms(1_500), Direction::Down), ms(2_440));
    // A packet from the device does not wait for paging and ends the wait of others.
    assert_eq!(asleep.pass(ms(1_600), Direction::Up), ms(1_720));
    assert_eq!(asleep.promotion_end(), Some(ms(1_720)));
    assert_eq!(changes(&mut asleep, ms(1_720)).last(), Some(&(ms(1_720), 2, 0)));
    assert_eq!(machine.pass(ms(1_330), Direction::Down), ms(1_450));
}

#[test]
fn no_timer_runs_while_a_packet_waits() {
    // Released 10 ms after the start of DRX with a cycle of 1 s.
    let drx = listening(1_000, 5, state(Some(10), 0, false));
    let machine = profile(vec![state(Some(100), 0, false), drx, state(None, 500, true)], 2);
    let mut machine = StateMachine::new(&machine);
    machine.pass(ms(0), Direction::Up);
    assert_eq!(machine.pass(ms(607), Direction::Down), ms(1_600));
    assert_eq!(machine.state(ms(1_599)), 1);
    assert_eq!(machine.state(ms(1_600)), 0);
}

#[test]
fn a_long_transfer_keeps_the_first_state_to_its_end() {
    let mut machine = StateMachine::new(&radio());
    machine.pass(ms(0), Direction::Up);
    assert_eq!(machine.pass(ms(200), Direction::Down), ms(200));
    machine.extend_transfer(ms(1_000));
    assert_eq!(machine.state(ms(1_300)), 0);
    assert_eq!(machine.state(ms(1_301)), 1);
    // No packet passes in another state, or while one waits.
    machine.extend_transfer(ms(1_301));
    assert_eq!(machine.state(ms(1_302)), 1);
}

#[test]
fn the_device_can_ask_for_sleep() {
    let mut machine = StateMachine::new(&radio());
    assert!(!machine.request_dormancy(ms(0)), "it is released");
    machine.pass(ms(0), Direction::Up);
    assert!(!machine.request_dormancy(ms(100)), "a packet waits");
    assert!(machine.request_dormancy(ms(200)));
    assert_eq!(machine.state(ms(200)), 2);
    assert_eq!(changes(&mut machine, ms(200)), [(ms(120), 2, 0), (ms(200), 0, 2)]);
    let mut listening = StateMachine::new(&radio());
    listening.pass(ms(0), Direction::Up);
    listening.pass(ms(430), Direction::Down);
    assert!(!listening.request_dormancy(ms(440)), "a packet waits until it listens");
    // Paging starts at that time.
    assert_eq!(machine.pass(ms(250), Direction::Down), ms(370));
    assert!(machine.request_dormancy(ms(900)), "from any state that is not released");
}

/// Profiles of 2 to 5 states, some with DRX; times in milliseconds.
fn profiles() -> impl Strategy<Value = Profile> {
    let one = (0..500_u64, 0..300_u64, proptest::option::of((1..400_u64, 0..400_u64)));
    let all = prop::collection::vec(one, 2..6);
    (all, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |(parts, released, dormant)| {
            let last = parts.len() - 1;
            let released = 1 + released.index(last);
            let states = parts.into_iter().enumerate().map(|(index, (timer, delay, listens))| {
                let plain = state((index < last).then_some(timer), delay, index >= released);
                match listens {
                    Some((cycle, lasts)) => listening(cycle, lasts.min(cycle), plain),
                    None => plain,
                }
            });
            let dormant = released + dormant.index(last + 1 - released);
            profile(states.collect(), dormant)
        },
    )
}

fn directions() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Up), Just(Direction::Down)]
}

/// Half a millisecond away from every timer, so that rounding does not matter.
fn off(millis: u64) -> Span {
    Span::from_micros(millis * 1_000 + 500)
}

/// States and seconds of a gap, from the changes that a machine reports.
fn silence(
    changes: &[(Time, usize, usize)],
    first: usize,
    begin: Time,
    end: Time,
) -> Vec<(usize, f64)> {
    let mut parts = Vec::new();
    let (mut at, mut state) = (begin, first);
    for (left, _, entered) in changes {
        parts.push((state, left.since(at).as_secs_f64()));
        (at, state) = (*left, *entered);
    }
    parts.push((state, end.since(at).as_secs_f64()));
    parts
}

fn is_same(seen: &[(usize, f64)], wanted: impl Iterator<Item = (usize, f64)>) -> bool {
    let wanted: Vec<(usize, f64)> = wanted.collect();
    let is_near = |(one, other): (&(usize, f64), &(usize, f64))| {
        one.0 == other.0 && (one.1 - other.1).abs() < 1e-9
    };
    seen.len() == wanted.len() && seen.iter().zip(&wanted).all(is_near)
}

proptest! {
    #[test]
    fn states_between_two_packets_are_those_of_tail_energy(
        profile in profiles(),
        packets in prop::collection::vec((0..3_000_u64, directions()), 1..20),
    ) {
        let tail = TailEnergy::from_state(&profile, 0);
        let mut machine = StateMachine::new(&profile);
        let mut passed = machine.pass(ms(1_000), Direction::Up);
        changes(&mut machine, passed);
        for (gap, direction) in packets {
            let next = passed + off(gap);
            let gap = next.since(passed);
            prop_assert_eq!(machine.state(next), tail.state(gap));
            let seen = silence(&changes(&mut machine, next), 0, passed, next);
            let parts = tail.energy_by_state(gap).map(|(state, time, _, _)| (state, time.as_secs_f64()));
            prop_assert!(is_same(&seen, parts), "{seen:?}");
            passed = machine.pass(next, direction);
            changes(&mut machine, passed);
            prop_assert_eq!(machine.state(passed), 0);
        }
    }

    #[test]
    fn states_after_fast_dormancy_are_those_of_tail_energy(
        profile in profiles(),
        wait in 0..3_000_u64,
        more in 0..3_000_u64,
    ) {
        let tail = TailEnergy::from_state(&profile, profile.dormant);
        let released = TailEnergy::from_state(&profile, 0).idle_after();
        let mut machine = StateMachine::new(&profile);
        let passed = machine.pass(ms(1_000), Direction::Up);
        let asked = passed + off(wait);
        let end = asked + off(more);
        let can = off(wait) < released;
        prop_assert_eq!(machine.request_dormancy(asked), can);
        if can {
            changes(&mut machine, asked);
            let seen = silence(&changes(&mut machine, end), profile.dormant, asked, end);
            let parts = tail.energy_by_state(off(more));
            prop_assert!(is_same(&seen, parts.map(|(state, time, _, _)| (state, time.as_secs_f64()))));
        }
    }

    #[test]
    fn packets_keep_their_order_and_wait_no_longer_than_they_were_told(
        profile in profiles(),
        packets in prop::collection::vec((0..700_u64, directions()), 1..40),
    ) {
        let mut machine = StateMachine::new(&profile);
        let mut now = Time::ZERO;
        let mut last = [Time::ZERO; 2];
        // Arrival time, direction, and announced time of passing.
        let mut waiting: Vec<(Time, Direction, Time)> = Vec::new();
        let mut passes = |at: Time, (came, direction, told): (Time, Direction, Time)| {
            let last = &mut last[usize::from(direction == Direction::Down)];
            let is_fine = came <= at && at <= told && *last <= at;
            *last = at;
            is_fine
        };
        for (gap, direction) in packets {
            let next = now + off(gap);
            if let Some(opens) = machine.promotion_end().filter(|opens| *opens <= next) {
                prop_assert!(waiting.drain(..).all(|one| passes(opens, one)));
            }
            now = next;
            let state = machine.state(now);
            let at = machine.pass(now, direction);
            let delay = profile.states[state].promotion_delay;
            let cycle = profile.states[state].drx.map_or(Span::ZERO, |one| one.cycle);
            prop_assert!(at <= now + delay + cycle);
            prop_assert!(direction == Direction::Down || at <= now + delay);
            match machine.promotion_end() {
                Some(opens) => {
                    prop_assert_eq!(opens, at);
                    waiting.push((now, direction, at));
                }
                // A packet from the device that needs no promotion ends the wait of others.
                None => {
                    prop_assert!(waiting.drain(..).all(|one| passes(now, one)));
                    prop_assert!(at == now && passes(at, (now, direction, at)));
                }
            }
        }
        if let Some(opens) = machine.promotion_end() {
            prop_assert!(waiting.drain(..).all(|one| passes(opens, one)));
        }
        prop_assert!(waiting.is_empty());
    }
}
