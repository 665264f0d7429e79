use super::*;
use crate::radio::profile;
use crate::radio::span;

/// Two timers, as in the study; E_switch is 1.1 J.
fn two_timers() -> Profile {
    profile::parse(
        r#"
        title = "test"
        technology = "3g"
        [transfer]
        send = "2W"
        receive = "1W"
        source = "none"
        [[state]]
        name = "high"
        power = "916mW"
        timer = "6.2s"
        source = "none"
        [[state]]
        name = "low"
        power = "659mW"
        timer = "10.4s"
        source = "none"
        [[state]]
        name = "idle"
        power = "0"
        demotion = "400mJ"
        promotion = "700mJ"
        source = "none"
        "#,
    )
    .unwrap()
}

/// A state with DRX, and two promotions.
fn listening() -> Profile {
    profile::parse(
        r#"
        title = "test"
        technology = "lte"
        [transfer]
        send = "2W"
        receive = "1W"
        source = "none"
        [[state]]
        name = "on"
        power = "1W"
        timer = "100ms"
        source = "none"
        [[state]]
        name = "drx"
        power = "500mW"
        listen-every = "40ms"
        listen-for = "10ms"
        listen-power = "1.5W"
        timer = "1s"
        promotion = "50mJ"
        source = "none"
        [[state]]
        name = "idle"
        power = "0"
        listen-every = "1s"
        listen-for = "100ms"
        listen-power = "600mW"
        demotion = "10mJ"
        promotion = "300mJ"
        source = "none"
        "#,
    )
    .unwrap()
}

fn is_close(seen: f64, wanted: f64) {
    assert!((seen - wanted).abs() < 1e-9, "{seen} and not {wanted}");
}

#[test]
fn the_tail_is_the_one_of_the_study() {
    let tail = TailEnergy::from_state(&two_timers(), 0);
    is_close(tail.cost(span(0.0)), 0.0);
    is_close(tail.cost(span(1.2)), 1.2 * 0.916);
    is_close(tail.cost(span(6.2)), 6.2 * 0.916);
    is_close(tail.cost(span(10.0)), 6.2 * 0.916 + 3.8 * 0.659);
    // At the end of both timers the radio is still connected; immediately after, it is released.
    is_close(tail.cost(span(16.6)), 6.2 * 0.916 + 10.4 * 0.659);
    let all = 6.2 * 0.916 + 10.4 * 0.659 + 1.1;
    is_close(tail.cost(span(16.600_000_1)), all);
    is_close(tail.cost(span(1e6)), all);
    is_close(tail.idle_after().as_secs_f64(), 16.6);
    assert!(!tail.is_idle(span(16.6)) && tail.is_idle(span(16.7)));
}

#[test]
fn a_ping_every_fifteen_seconds_can_save_nine_tenths_of_the_tail() {
    // The closed form for AT&T: 1 - 1.1 / (6.2 * 0.916 + 8.8 * 0.659).
    let tradeoff = SleepTradeoff::of(&two_timers());
    let saved = 1.0 - tradeoff.cost(span(15.0), span(0.0)) / tradeoff.cost(span(15.0), NEVER);
    is_close(saved, 1.0 - 1.1 / (6.2 * 0.916 + 8.8 * 0.659));
    assert!((saved - 0.904).abs() < 5e-4);
}

#[test]
fn a_state_listens_at_the_beginning_of_every_cycle() {
    let tail = TailEnergy::from_state(&listening(), 0);
    let start = 0.1;
    // Half of the on duration; all of it; part of the cycle; two cycles and a part.
    for (secs, energy) in [
        (0.005, 0.005 * 1.5),
        (0.010, 0.010 * 1.5),
        (0.030, 0.010 * 1.5 + 0.020 * 0.5),
        (0.085, 2.0 * (0.010 * 1.5 + 0.030 * 0.5) + 0.005 * 1.5),
    ] {
        is_close(tail.energy(span(start + secs)), start + energy);
        is_close(tail.cost(span(start + secs)), start + energy + 0.05);
    }
    // In idle, paging once a second.
    let awake = 0.1 + 25.0 * (0.010 * 1.5 + 0.030 * 0.5);
    is_close(tail.energy(span(1.1 + 2.05)), awake + 0.01 + 2.0 * 0.06 + 0.05 * 0.6);
    is_close(tail.promotion(span(1.1 + 2.05)), 0.3);
}

#[test]
fn parts_add_up_to_the_whole() {
    for profile in [two_timers(), listening()] {
        let tail = TailEnergy::from_state(&profile, 0);
        for secs in [0.0, 0.05, 0.1, 0.35, 1.1, 1.2, 6.2, 9.0, 16.6, 100.0] {
            let parts: Vec<_> = tail.energy_by_state(span(secs)).collect();
            let duration: Span = parts.iter().map(|part| part.1).sum();
            let spent: f64 = parts.iter().map(|part| part.2 + part.3).sum();
            is_close(duration.as_secs_f64(), secs);
            is_close(spent, tail.energy(span(secs)));
            assert_eq!(parts.last().map(|part| part.0), Some(tail.state(span(secs))));
        }
    }
}

#[test]
fn dormancy_saves_energy_above_the_threshold() {
    let tradeoff = SleepTradeoff::of(&two_timers());
    is_close(tradeoff.threshold().as_secs_f64(), 1.1 / 0.916);
    for profile in [two_timers(), listening()] {
        let tradeoff = SleepTradeoff::of(&profile);
        let threshold = tradeoff.threshold();
        for share in [0.1, 0.5, 0.99] {
            let secs = share * threshold.as_secs_f64();
            assert!(
                tradeoff.cost(span(secs), span(0.0)) >= tradeoff.stay.cost(span(secs)),
                "{secs}"
            );
        }
        for times in [1.01, 2.0, 10.0] {
            let secs = times * threshold.as_secs_f64();
            assert!(
                tradeoff.cost(span(secs), span(0.0)) < tradeoff.stay.cost(span(secs)),
                "{secs}"
            );
        }
    }
}

#[test]
fn dormancy_costs_the_wait_and_the_switch() {
    let tradeoff = SleepTradeoff::of(&two_timers());
    is_close(tradeoff.cost(span(10.0), span(2.0)), 2.0 * 0.916 + 1.1);
    // Fast dormancy happens strictly after the wait, and not after the release by the network.
    is_close(tradeoff.cost(span(2.0), span(2.0)), 2.0 * 0.916);
    is_close(tradeoff.cost(span(30.0), span(16.6)), tradeoff.stay.cost(span(30.0)));
    is_close(tradeoff.cost(span(30.0), span(20.0)), tradeoff.stay.cost(span(30.0)));
}
