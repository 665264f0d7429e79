use crate::radio::span;
use manyways_unit::Time;
use proptest::prelude::*;

use super::*;
use crate::radio::{Direction, profiles};

fn choice(name: &str) -> SleepTradeoff {
    SleepTradeoff::of(&profiles::named(name).unwrap().unwrap())
}

fn packet() -> Packet {
    Packet { at: Time::ZERO, direction: Direction::Up, bytes: 100, app: 0, session: 0 }
}

fn after(policy: &mut MakeIdle, gaps: &[f64]) -> Span {
    let mut wait = policy.observe(&packet(), None);
    for gap in gaps {
        wait = policy.observe(&packet(), Some(span(*gap)));
    }
    wait
}

/// C(w) by its definition, gap by gap.
fn cost(tradeoff: &SleepTradeoff, gaps: &[Span], wait: Span) -> f64 {
    let switch = tradeoff.switch_energy().as_joules();
    let wait = wait.min(tradeoff.stay.idle_after());
    let of = |gap: Span| {
        let awake = tradeoff.stay.energy(gap.min(wait));
        if gap > wait { awake + switch } else { awake }
    };
    gaps.iter().map(|gap| of(*gap)).sum()
}

#[test]
fn the_network_decides_before_enough_gaps() {
    let mut policy = MakeIdle::new(choice("att-hspa"), 10);
    assert_eq!(after(&mut policy, &[30.0; 9]), NEVER);
    assert_eq!(policy.observe(&packet(), Some(span(30.0))), span(0.0));
}

#[test]
fn short_gaps_are_waited_for_and_long_ones_are_not() {
    // Repeatedly nine packets with short gaps, then one long gap.
    let round = [0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 60.0];
    let mut policy = MakeIdle::new(choice("att-hspa"), 20);
    assert_eq!(after(&mut policy, &round.repeat(4)), span(0.2));
    // Only long gaps: no wait is worth its energy.
    assert_eq!(after(&mut policy, &[60.0; 20]), Span::ZERO);
    // Only short gaps: every wait is worth its energy. Going idle after the longest one costs as
    // much as never, and is the smaller wait.
    assert_eq!(after(&mut policy, &[1.0; 20]), span(1.0));
}

#[test]
fn old_gaps_are_forgotten() {
    let mut policy = MakeIdle::new(choice("att-hspa"), 5);
    after(&mut policy, &[60.0; 100]);
    assert_eq!(after(&mut policy, &[0.3; 5]), span(0.3));
    assert!(
        policy.sorted_gaps.iter().all(|gap| *gap == span(0.3)) && policy.sorted_gaps.len() == 5
    );
}

proptest! {
    /// The chosen wait is the smallest minimiser of C among 0, the gaps below T, and T.
    #[test]
    fn the_wait_is_the_smallest_minimiser(
        gaps in prop::collection::vec(
            prop_oneof![Just(0.0), Just(0.25), 0.0..1.0, 0.0..10.0, 0.0..60.0], 12..40),
        n in 1_usize..12,
        name in prop::sample::select(vec!["att-hspa", "tmobile-3g", "verizon-lte"]),
    ) {
        let tradeoff = choice(name);
        let mut policy = MakeIdle::new(tradeoff.clone(), n);
        let wait = after(&mut policy, &gaps);
        let last: Vec<Span> = gaps[gaps.len() - n..].iter().map(|gap| span(*gap)).collect();
        let tail = tradeoff.stay.idle_after();
        let mut candidates: Vec<Span> = last.iter().copied().filter(|gap| *gap < tail).collect();
        candidates.extend([Span::ZERO, NEVER]);
        let of = |wait: Span| cost(&tradeoff, &last, wait);
        let min = candidates.iter().map(|wait| of(*wait)).fold(f64::INFINITY, f64::min);
        prop_assert!((of(wait) - min).abs() < 1e-9);
    }
}
