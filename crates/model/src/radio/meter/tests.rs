use crate::radio::span;
use manyways_unit::Time;
use proptest::prelude::*;

use super::*;
use crate::radio::policy::{MakeIdle, NEVER, Policy, StatusQuo, Timer};
use crate::radio::profiles;

fn two_timers() -> Profile {
    profiles::named("att-hspa").unwrap().unwrap()
}

fn packet(direction: Direction, bytes: u32) -> Packet {
    Packet { at: Time::ZERO, direction, bytes, app: 0, session: 0 }
}

fn is_close(seen: f64, wanted: f64) {
    assert!((seen - wanted).abs() < 1e-9, "{seen} and not {wanted}");
}

/// Energy of a trace under a policy, with packets by their gaps and one at the start.
fn spend(profile: &Profile, gaps: &[(f64, Direction)], policy: &mut dyn Policy) -> Account {
    let mut meter = Meter::new(profile);
    let first = packet(Direction::Up, 100);
    meter.push_first(&first);
    let mut wait = policy.observe(&first, None);
    for (gap, direction) in gaps {
        let packet = packet(*direction, 100);
        meter.push(&packet, span(*gap), wait);
        wait = policy.observe(&packet, Some(span(*gap)));
    }
    meter.finish(wait);
    meter.account().clone()
}

fn oracle(profile: &Profile, gaps: &[(f64, Direction)]) -> Account {
    let mut meter = Meter::new(profile);
    let oracle = Oracle::new(profile);
    let wait = |gap| if oracle.goes_idle(gap) { Span::ZERO } else { NEVER };
    meter.push_first(&packet(Direction::Up, 100));
    for (gap, direction) in gaps {
        meter.push(&packet(*direction, 100), span(*gap), wait(Some(span(*gap))));
    }
    meter.finish(wait(None));
    meter.account().clone()
}

#[test]
fn a_trace_by_hand() {
    use Direction::{Down, Up};
    // A request; an answer after 0.4 s; another after 5 s in the first state; one after 10 s in the
    // second; one after 30 s in idle.
    let gaps = [(0.4, Down), (5.0, Up), (10.0, Down), (30.0, Up)];
    let account = spend(&two_timers(), &gaps, &mut StatusQuo);
    is_close(account.transfer_energy[0], 0.0);
    is_close(account.transfer_energy[1], 0.4 * 1.212);
    let tail = 6.2 * 0.916 + 10.4 * 0.659;
    let awake = 5.0 * 0.916 + (6.2 * 0.916 + 3.8 * 0.659) + 2.0 * tail;
    is_close(account.state_energy.iter().sum(), awake);
    is_close(account.demotion_energy, 2.0 * 0.55);
    is_close(account.promotion_energy, 2.0 * 0.55);
    is_close(account.total(), 0.4 * 1.212 + awake + 2.0 * 1.1);
    is_close(account.tail_energy(), awake + 2.0 * 1.1);
    assert_eq!((account.promotion_count, account.dormancies, account.packets), (2, 0, 5));
    assert_eq!(account.bytes, [300, 200]);
    is_close(
        account.state_time.iter().copied().sum::<Span>().as_secs_f64(),
        5.0 + 10.0 + 30.0 + 16.6,
    );
}

#[test]
fn a_timer_by_hand() {
    use Direction::{Down, Up};
    let gaps = [(0.4, Down), (5.0, Up), (3.0, Down)];
    let account = spend(&two_timers(), &gaps, &mut Timer { wait: span(4.5) });
    let awake = (4.5 + 3.0 + 4.5) * 0.916;
    is_close(account.total(), 0.4 * 1.212 + awake + 2.0 * 1.1);
    assert_eq!((account.promotion_count, account.dormancies), (2, 2));
    is_close(account.wait_time.as_secs_f64(), 9.0);
}

#[test]
fn dormancy_in_a_transfer_costs_the_switch_too() {
    let account = spend(&two_timers(), &[(0.4, Direction::Down)], &mut Timer { wait: span(0.1) });
    is_close(account.total(), 0.4 * 1.212 + 0.1 * 0.916 + 2.0 * 1.1);
    assert_eq!(account.promotion_count, 2);
}

#[test]
fn the_energy_of_bits_does_not_depend_on_the_gap() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let mut meter = Meter::new(&profile);
    meter.push_first(&packet(Direction::Up, 1_000));
    meter.push(&packet(Direction::Down, 1_500), span(0.2), NEVER);
    is_close(meter.account().transfer_energy[0], 8_000.0 * 0.43839e-6);
    is_close(meter.account().transfer_energy[1], 12_000.0 * 0.05197e-6 + 0.2 * 1.2);
}

#[test]
fn the_energy_of_pings_equals_the_closed_form() {
    for name in ["att-hspa", "tmobile-3g", "verizon-3g", "verizon-lte"] {
        let profile = profiles::named(name).unwrap().unwrap();
        let [first, rest @ ..] = &profile.states[..] else { unreachable!() };
        let (t1, p1) = (first.timer.unwrap().as_secs_f64(), first.power.as_watts());
        let second = (rest.len() > 1).then(|| &rest[0]);
        let (t2, p2) = second.map_or((0.0, 0.0), |state| {
            (state.timer.unwrap().as_secs_f64(), state.power.as_watts())
        });
        let switch = SleepTradeoff::of(&profile).switch_energy().as_joules();
        for secs in 5..=60 {
            let secs = f64::from(secs);
            let count = 100;
            let gaps = vec![(secs, Direction::Up); count];
            let one = if secs <= t1 {
                secs * p1
            } else if secs <= t1 + t2 {
                t1 * p1 + (secs - t1) * p2
            } else {
                t1 * p1 + t2 * p2 + switch
            };
            let all = |one: f64, last: f64| one * count as f64 + last + switch;
            let status = spend(&profile, &gaps, &mut StatusQuo);
            let wanted = all(one, t1 * p1 + t2 * p2);
            assert!((status.total() / wanted - 1.0).abs() < 1e-9, "{name} {secs}");
            let best = oracle(&profile, &gaps);
            let wanted = all(one.min(switch), 0.0);
            assert!((best.total() / wanted - 1.0).abs() < 1e-9, "{name} {secs}");
        }
    }
}

fn gaps() -> impl Strategy<Value = Vec<(f64, Direction)>> {
    let gap = prop_oneof![0.0..0.6, 0.3..4.0, 2.0..40.0];
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    prop::collection::vec((gap, direction), 0..120)
}

fn paper() -> impl Strategy<Value = Profile> {
    prop::sample::select(vec!["att-hspa", "tmobile-3g", "verizon-3g", "verizon-lte"])
        .prop_map(|name| profiles::named(name).unwrap().unwrap())
}

proptest! {
    /// With open-loop times and two timers, no policy without delays takes less.
    #[test]
    fn no_policy_beats_the_oracle(
        gaps in gaps(), profile in paper(), wait in 0.0..20.0, n in 1_usize..30,
    ) {
        let best = oracle(&profile, &gaps).total();
        let tradeoff = SleepTradeoff::of(&profile);
        for policy in [
            &mut StatusQuo as &mut dyn Policy,
            &mut Timer { wait: span(wait) },
            &mut Timer { wait: tradeoff.threshold() },
            &mut MakeIdle::new(tradeoff.clone(), n),
        ] {
            prop_assert!(best <= spend(&profile, &gaps, policy).total() + 1e-9);
        }
    }

    /// Two traces with a long gap between them take the sum of their energies.
    #[test]
    fn traces_split_at_a_long_gap_add_up(
        one in gaps(), other in gaps(), profile in paper(), wait in 0.0..20.0,
    ) {
        let mut joined = one.clone();
        joined.push((1_000.0, Direction::Up));
        joined.extend(&other);
        let spent = |gaps: &[_]| spend(&profile, gaps, &mut Timer { wait: span(wait) });
        let (one, other, both) = (spent(&one), spent(&other), spent(&joined));
        prop_assert!((one.total() + other.total() - both.total()).abs() < 1e-6);
        prop_assert_eq!(one.promotion_count + other.promotion_count, both.promotion_count);
    }

    /// For the same schedule, more power never means less energy.
    #[test]
    fn more_power_is_not_less_energy(
        gaps in gaps(), profile in paper(), more in 0.0..1.0, wait in 0.0..20.0,
    ) {
        let before = spend(&profile, &gaps, &mut Timer { wait: span(wait) }).total();
        prop_assert!(before >= 0.0);
        for index in 0..profile.states.len() {
            let mut hotter = profile.clone();
            let watts = hotter.states[index].power.as_watts() + more;
            hotter.states[index].power = crate::radio::Power::watts(watts);
            let after = spend(&hotter, &gaps, &mut Timer { wait: span(wait) }).total();
            prop_assert!(after >= before - 1e-9);
        }
    }
}
