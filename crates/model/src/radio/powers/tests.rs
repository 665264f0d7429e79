use manyways_unit::Random;

use super::*;
use crate::radio::{profiles, workload};

/// Samples of a monitor without noise: the mean power of a radio in each step of `step` nanoseconds
/// from `origin` on, at the middle of the step.
fn monitor(profile: &Profile, packets: &[Packet], step: u64, origin: u64) -> Vec<(Time, f64)> {
    let mut joules: Vec<f64> = Vec::new();
    let mut timeline = Timeline::new(profile);
    let mut add = |segment: Segment| {
        let [from, to] =
            [segment.start, segment.end].map(|time| time.as_nanos().saturating_sub(origin));
        let last = if to > from { (to - 1) / step } else { from / step };
        if joules.len() <= last as usize {
            joules.resize(last as usize + 1, 0.0);
        }
        for index in from / step..=last {
            let part = ((index + 1) * step).min(to).saturating_sub((index * step).max(from));
            let share = if to > from { part as f64 / (to - from) as f64 } else { 1.0 };
            joules[index as usize] += segment.joules * share;
        }
    };
    packets.iter().for_each(|packet| timeline.push(packet, &mut add));
    timeline.finish(&mut add);
    let sample = |(index, joules): (u64, &f64)| {
        let at = Time::from_nanos(origin + index * step + step / 2);
        (at, joules / Span::from_nanos(step).as_secs_f64())
    };
    (0..).zip(&joules).map(sample).collect()
}

fn fit(profile: &Profile, packets: &[Packet], samples: &[(Time, f64)], window: Span) -> PowerFit {
    let mut monitor = Monitor::new(window);
    samples.iter().for_each(|(at, watts)| monitor.sample(*at, *watts));
    let mut fit = PowerFit::new(profile, monitor).unwrap();
    packets.iter().for_each(|packet| fit.push_packet(packet));
    fit
}

/// Whether the rows of a design determine each column, by elimination: the reduced row echelon form
/// has a row with only that column.
fn determined(fit: &PowerFit) -> Vec<bool> {
    let columns = fit.quantities.len();
    let (system, _) = fit.shifted[0].clone().system(columns, fit.first_packet.unwrap().as_nanos());
    let rows: Vec<&[f64]> = system.design.chunks_exact(columns).collect();
    let length = |column: usize| rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
    let lengths: Vec<f64> = (0..columns).map(length).collect();
    // Enough random sums of rows have the same row space.
    let mut random = Random::new(3);
    let mut mixed = vec![vec![0.0; columns]; 2 * columns];
    for row in &rows {
        let cells = row.iter().zip(&lengths).enumerate().filter(|(_, (cell, _))| **cell != 0.0);
        let cells: Vec<(usize, f64)> =
            cells.map(|(index, (cell, length))| (index, cell / length)).collect();
        for sum in &mut mixed {
            let weight = random.uniform() - 0.5;
            cells.iter().for_each(|(index, cell)| sum[*index] += weight * cell);
        }
    }
    let (mut pivots, mut next) = (Vec::new(), 0);
    let mut free: Vec<usize> = (0..columns).collect();
    while next < mixed.len() {
        let cells =
            (next..mixed.len()).flat_map(|row| free.iter().map(move |column| (row, *column)));
        let size = |(row, column): &(usize, usize)| mixed[*row][*column].abs();
        let best = cells.max_by(|one, other| size(one).total_cmp(&size(other)));
        let Some((row, column)) = best.filter(|best| size(best) > 1e-5) else { break };
        mixed.swap(next, row);
        let pivot = mixed[next].clone();
        for (_, row) in mixed.iter_mut().enumerate().filter(|(index, _)| *index != next) {
            let share = row[column] / pivot[column];
            row.iter_mut().zip(&pivot).for_each(|(cell, other)| *cell -= share * other);
        }
        free.retain(|one| *one != column);
        pivots.push((next, column));
        next += 1;
    }
    let is_alone = |(row, column): &(usize, usize)| {
        free.iter().all(|other| (mixed[*row][*other] / mixed[*row][*column]).abs() < 1e-3)
    };
    let alone = pivots.iter().filter(|pivot| is_alone(pivot));
    let alone: Vec<usize> = alone.map(|(_, column)| *column).collect();
    (0..columns).map(|column| alone.contains(&column)).collect()
}

/// Transfers of many packets, with different intervals and lengths.
fn bulk(direction: Direction, interval: u64) -> Vec<Packet> {
    let mut packets = Vec::new();
    for transfer in 0..20_u64 {
        // Each transfer starts at another part of a window.
        let start = transfer * 37_000_000_000 + transfer * transfer * 7_654_321;
        for number in 0..40 * (transfer % 7 + 1) {
            let at = Time::from_nanos(start + number * interval * (1 + transfer % 3));
            let bytes = 1_500 - 100 * (number % 5) as u32;
            packets.push(Packet { at, direction, bytes, app: 0, session: transfer as u32 });
        }
    }
    packets
}

fn heartbeats(secs: u64) -> Vec<Packet> {
    workload::heartbeats(Span::from_secs(secs), 100, Span::from_secs(900)).collect()
}

fn app(name: &str, seed: u64, duration: Span) -> Vec<Packet> {
    let app = workload::apps::APPS.iter().find(|one| one.name == name).unwrap();
    workload::alone(app, seed, duration).collect()
}

/// Half an hour of a user's day, from noon.
fn day() -> Vec<Packet> {
    let noon = Time::from_millis(12 * 3_600_000);
    let all = workload::mixed(4, Span::from_secs(12 * 3_600 + 1_800));
    all.skip_while(|packet| packet.at < noon).collect()
}

fn traces() -> Vec<(&'static str, Vec<Packet>)> {
    let duration = Span::from_secs(900);
    vec![
        ("heartbeats", heartbeats(30)),
        ("im", app("im", 7, duration)),
        ("news", app("news", 2, duration)),
        ("social", app("social", 4, duration)),
        ("bulk up", bulk(Direction::Up, 3_000_000)),
        ("bulk down", bulk(Direction::Down, 1_200_000)),
        ("mixed day", day()),
    ]
}

/// Asserts that every quantity that the rows determine is found with its value, and no other one.
/// Returns the number of determined quantities.
fn assert_determined(
    what: &str,
    profile: &Profile,
    packets: &[Packet],
    samples: &[(Time, f64)],
    window: Span,
) -> usize {
    let fit = fit(profile, packets, samples, window);
    let determined = determined(&fit);
    let powers = fit.finish().unwrap_or_else(|error| panic!("{what}: {error}"));
    for ((quantity, finding), is_determined) in powers.findings.iter().zip(determined) {
        let own = profile.quantity_value(*quantity);
        let found = powers.determined(*quantity);
        assert_eq!(found.is_some(), is_determined, "{what}: {quantity:?} {finding:?}");
        let is_near =
            |found: FittedValue| (found.whole_cycles() - own).abs() <= (0.01 * own).max(1e-6);
        assert!(found.is_none_or(is_near), "{what}: {quantity:?} {finding:?} and not {own}");
    }
    powers.findings.iter().filter(|(quantity, _)| powers.determined(*quantity).is_some()).count()
}

#[test]
fn every_determined_quantity_is_found_in_every_profile() {
    for (trace, packets) in traces() {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            // From the first packet on, or from a time before.
            let begin = packets[0].at.as_nanos();
            let mut told = 0;
            for (step, window, origin) in [
                (100, 1_000, begin),
                (100, 100, begin.saturating_sub(123_456_789)),
                (10, 1_000, begin),
            ] {
                let what = format!("{trace} on {name}, {step} ms, windows of {window} ms");
                let samples = monitor(&profile, &packets, step * 1_000_000, origin);
                told += assert_determined(
                    &what,
                    &profile,
                    &packets,
                    &samples,
                    Span::from_millis(window),
                );
            }
            assert!(told > 0, "{trace} on {name}");
        }
    }
}

#[test]
fn a_fast_monitor_determines_every_quantity() {
    let duration = Span::from_secs(180);
    let short = |packets: Vec<Packet>| -> Vec<Packet> {
        let end = packets[0].at + duration;
        packets.into_iter().take_while(|packet| packet.at < end).collect()
    };
    for (trace, packets) in [
        ("heartbeats", short(heartbeats(30))),
        ("social", short(app("social", 4, duration))),
        ("bulk up", short(bulk(Direction::Up, 3_000_000))),
    ] {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            let samples = monitor(&profile, &packets, 1_000_000, packets[0].at.as_nanos());
            for window in [50, 1_000] {
                let what = format!("{trace} on {name}, 1 ms, windows of {window} ms");
                assert_determined(&what, &profile, &packets, &samples, Span::from_millis(window));
            }
        }
    }
}

/// A packet every 30 s: promotions, bits and demotions always occur together.
#[test]
fn heartbeats_determine_only_states_with_duration() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let packets = heartbeats(30);
    let samples = monitor(&profile, &packets, 100_000_000, 0);
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    let finding = |wanted: Quantity| {
        let found = powers.findings.iter().find(|(quantity, _)| *quantity == wanted);
        &found.unwrap().1
    };
    let together = [
        Quantity::PerMbit(Direction::Up),
        Quantity::State(0),
        Quantity::State(1),
        Quantity::Promotion(3),
    ];
    for one in together {
        let others: Vec<Quantity> = together.into_iter().filter(|other| *other != one).collect();
        assert_eq!(*finding(one), Finding::Indistinguishable(others));
    }
    for never in [Quantity::Transfer(Direction::Up), Quantity::PerMbit(Direction::Down)] {
        assert_eq!(*finding(never), Finding::Unobserved);
    }
    let found = powers.determined(Quantity::State(2)).unwrap();
    assert!((found.value - 1.091).abs() < 1e-9);
}

/// Mean power of each state over the time that a trace spends in it.
fn means_in_trace(profile: &Profile, packets: &[Packet]) -> Vec<f64> {
    let mut stays = vec![(0.0, 0.0); profile.states.len()];
    let mut timeline = Timeline::new(profile);
    for packet in packets {
        timeline.push(packet, |segment| {
            if let Phase::State(state) = segment.phase {
                stays[state].0 += segment.joules;
                stays[state].1 += segment.end.since(segment.start).as_secs_f64();
            }
        });
    }
    stays.iter().map(|(joules, secs): &(f64, f64)| joules / secs).collect()
}

/// Each stay in idle begins with an on duration, so its mean power is above that of whole cycles.
/// With a clock that is half a sample early, the demotion is negative; it must not lower the power
/// of the state after it.
#[test]
fn powers_are_what_the_monitor_measured() {
    let (mut all, mut far) = (0, 0);
    for name in ["lte", "5g-sa", "5g-nsa", "att-hspa", "tmobile-3g"] {
        let profile = profiles::named(name).unwrap().unwrap();
        for (secs, early, noise, seed) in [17, 30, 45, 60]
            .into_iter()
            .flat_map(|secs| [0, 20, 50].map(|early| (secs, early, 0.0, 0)))
            .chain((1..6).flat_map(|seed| [0, 50].map(|early| (30, early, 0.05, seed))))
        {
            let packets: Vec<Packet> =
                workload::heartbeats(Span::from_secs(secs), 100, Span::from_secs(3_600)).collect();
            let mut random = Random::new(seed);
            let mut samples = monitor(&profile, &packets, 100_000_000, 0);
            for (at, watts) in &mut samples {
                *at = Time::from_nanos(at.as_nanos() - early * 1_000_000);
                *watts += noise * 12_f64.sqrt() * (random.uniform() - 0.5);
            }
            let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
            for (state, truth) in means_in_trace(&profile, &packets).into_iter().enumerate() {
                let Some(found) = powers.determined(Quantity::State(state)) else { continue };
                let off = (found.value - truth).abs();
                let what = format!("{name}, {secs} s, {early} ms, {noise} W: state {state}");
                assert!(
                    noise > 0.0
                        || early > 0 && found.error > 0.02 * truth
                        || off <= 0.01 * truth + 1e-4,
                    "{what}: {found:?}, {truth}"
                );
                assert!(off <= 4.0 * found.error + 1e-4, "{what}: {found:?}, {truth}");
                all += 1;
                far += usize::from(off > 2.0 * found.error + 1e-4);
            }
        }
    }
    assert!(all > 100 && far * 20 <= all, "{far} of {all}");
}

/// Noise and clock errors do not cause a deviation larger than the reported error.
#[test]
fn errors_are_as_large_as_noise_and_clocks_make_them() {
    for (what, white, drift, late) in [
        ("white noise", 0.5, 0.0, 0),
        ("noise that lasts", 0.05, 0.99, 0),
        ("a clock that is late", 0.0, 0.0, 40),
    ] {
        let (mut all, mut far) = (0, 0);
        for (trace, packets) in traces() {
            for name in ["lte", "att-hspa", "5g-sa", "wifi"] {
                let profile = profiles::named(name).unwrap().unwrap();
                let mut random = Random::new(5);
                let mut noise = 0.0;
                let mut samples = monitor(&profile, &packets, 100_000_000, 0);
                for (at, watts) in &mut samples {
                    noise = drift * noise + white * 12_f64.sqrt() * (random.uniform() - 0.5);
                    *watts += noise;
                    *at += Span::from_millis(late);
                }
                let window = Span::from_secs(1);
                let powers = fit(&profile, &packets, &samples, window).finish().unwrap();
                for (quantity, finding) in &powers.findings {
                    let Finding::Determined(found) = finding else { continue };
                    let off = (found.value - profile.value_in_trace(&powers, *quantity)).abs();
                    all += 1;
                    far += usize::from(off > 2.0 * found.error + 1e-6);
                    assert!(
                        off <= 4.0 * found.error + 1e-6,
                        "{what}, {trace} on {name}: {quantity:?} {found:?}"
                    );
                }
            }
        }
        assert!(far * 20 <= all, "{what}: {far} of {all}");
    }
}

/// Noise leaves large errors in two nearly equal columns.
#[test]
fn nearly_equal_columns_are_vague() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let packets = app("im", 7, Span::from_secs(3_600));
    let mut samples = monitor(&profile, &packets, 100_000_000, 0);
    let mut random = Random::new(1);
    samples.iter_mut().for_each(|(_, watts)| *watts += 0.2 * (random.uniform() - 0.5));
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    let is_vague =
        |quantity| powers.determined(quantity).is_some() && profile.is_vague(&powers, quantity);
    for direction in [Direction::Up, Direction::Down] {
        assert!(is_vague(Quantity::PerMbit(direction)), "{powers:#?}");
    }
    assert!(is_vague(Quantity::State(1)) && !is_vague(Quantity::State(2)), "{powers:#?}");
    let after = profile.clone().with_powers(&powers, "a monitor").profile;
    assert_eq!(after.transfer.send_per_mbit, profile.transfer.send_per_mbit);
}

#[test]
fn a_clock_that_is_half_a_sample_off_is_noticed() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let packets = app("im", 7, Span::from_secs(3_600));
    let samples = monitor(&profile, &packets, 100_000_000, 0);
    for (millis, offset) in [(0, None), (50, Some(53.0))] {
        // With the times of the samples' starts.
        let early = |(at, watts): &(Time, f64)| {
            (Time::from_nanos(at.as_nanos() - millis * 1_000_000), *watts)
        };
        let samples: Vec<(Time, f64)> = samples.iter().map(early).collect();
        let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
        let found = powers.offset.map(|offset| (offset * 1e3).round());
        assert_eq!(found, offset, "{millis}");
    }
}

/// A window has at least one sample, even if a shorter one is requested.
#[test]
fn windows_are_no_shorter_than_samples() {
    let profile = profiles::named("att-hspa").unwrap().unwrap();
    let packets = day();
    let samples = monitor(&profile, &packets, 1_000_000_000, 0);
    let powers = fit(&profile, &packets, &samples, Span::from_millis(100)).finish().unwrap();
    assert_eq!((powers.window, powers.sample_interval), (Span::from_secs(1), Span::from_secs(1)));
    for index in 0..3 {
        let quantity = Quantity::State(index);
        let found = powers.determined(quantity).unwrap();
        assert!(
            (found.value - profile.quantity_value(quantity)).abs() < 1e-6,
            "{index}: {found:?}"
        );
    }
}

/// A promotion can last into the next window, although the fit assigns it to one window.
#[test]
fn a_promotion_that_lasts_has_an_error() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let promotion = Quantity::Promotion(3);
    let mut without = profile.clone();
    without.states[3].promotion = Energy::ZERO;
    let packets = app("social", 4, Span::from_secs(3_600));
    let mut samples = monitor(&without, &packets, 100_000_000, 0);
    let mut timeline = Timeline::new(&profile);
    for packet in &packets {
        timeline.push(packet, |segment| {
            let Phase::Promotion(_) = segment.phase else { return };
            // Over 260 ms after the packet.
            for part in 0..26 {
                let at = segment.start.as_nanos() + part * 10_000_000;
                samples[(at / 100_000_000) as usize].1 += segment.joules / 26.0 / 0.1;
            }
        });
    }
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    let found = powers.determined(promotion).unwrap();
    let off = (found.value - profile.quantity_value(promotion)).abs();
    assert!(off > 0.02 && off < 3.0 * found.error, "{found:?}");
}

#[test]
fn no_number_is_negative() {
    let profile = profiles::named("att-hspa").unwrap().unwrap();
    let packets = day();
    let mut samples = monitor(&profile, &packets, 100_000_000, 0);
    let honest = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    assert!(honest.findings.iter().all(|(quantity, _)| {
        honest.determined(*quantity).is_none_or(|fitted| !fitted.is_bounded())
    }));
    // As if a promotion released energy.
    let mut timeline = Timeline::new(&profile);
    for packet in &packets {
        timeline.push(packet, |segment| {
            if let Phase::Promotion(_) = segment.phase {
                samples[(segment.start.as_nanos() / 100_000_000) as usize].1 -= 8.0;
            }
        });
    }
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    for (quantity, finding) in &powers.findings {
        let Finding::Determined(found) = finding else { continue };
        assert!(found.value >= 0.0 && found.unbounded <= found.value, "{quantity:?} {found:?}");
    }
    let found = powers.determined(Quantity::Promotion(2)).unwrap();
    assert!(found.value == 0.0 && (found.unbounded + 0.25).abs() < 0.01, "{found:?}");
}

#[test]
fn the_rest_of_the_device_is_in_all_powers() {
    let profile = profiles::named("5g-sa").unwrap().unwrap();
    let packets = app("news", 2, Span::from_secs(3_600));
    let mut samples = monitor(&profile, &packets, 100_000_000, 0);
    samples.iter_mut().for_each(|(_, watts)| *watts += 0.8);
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    for (quantity, finding) in &powers.findings {
        let Finding::Determined(found) = finding else { continue };
        let rest = match quantity {
            Quantity::Transfer(_) | Quantity::State(_) => 0.8,
            _ => 0.0,
        };
        assert!(
            (found.whole_cycles() - rest - profile.quantity_value(*quantity)).abs() < 1e-6,
            "{quantity:?}"
        );
    }
    let rest = profile.rest_of_device(&powers).unwrap();
    assert!((rest - 0.8).abs() < 1e-6, "{rest}");
    let after = profile.clone().with_powers(&powers, "a monitor").profile;
    let state = |profile: &Profile| profile.states[0].power.as_watts();
    assert!((state(&after) - state(&profile)).abs() < 1e-5, "{after:?}");
}

/// Windows of any length in a long gap are complete.
#[test]
fn windows_are_lost_to_no_rounding() {
    let profile = profiles::named("att-hspa").unwrap().unwrap();
    for millis in [100, 300, 700, 1_000] {
        let packets: Vec<Packet> =
            workload::heartbeats(Span::from_secs(3_000), 1, Span::from_secs(3_000)).collect();
        let samples = monitor(&profile, &packets, millis * 1_000_000, 0);
        let [lane, ..] = fit(&profile, &packets, &samples, Span::from_millis(millis)).shifted;
        // The first window contains the first packet.
        assert_eq!(lane.system(COLUMNS, 0).1.len() as u64, 3_000_000 / millis - 1, "{millis}");
    }
}

/// Columns of that test's profile.
const COLUMNS: usize = 9;

#[test]
fn absent_quantities_are_not_determined() {
    let profile = profiles::named("att-hspa").unwrap().unwrap();
    // Always connected: the later states do not occur.
    let packets: Vec<Packet> =
        workload::heartbeats(Span::from_secs(2), 100, Span::from_secs(600)).collect();
    let samples: Vec<(Time, f64)> =
        (0..5_900).map(|tenth| (Time::from_millis(tenth * 100), 0.9)).collect();
    let powers = fit(&profile, &packets, &samples, Span::from_secs(1)).finish().unwrap();
    for (quantity, finding) in &powers.findings {
        match quantity {
            Quantity::State(0) | Quantity::PerMbit(Direction::Up) => {}
            _ => assert_eq!(*finding, Finding::Unobserved, "{quantity:?}"),
        }
    }
    assert_eq!(powers.explained_variance, 0.0, "nothing varies");
}

#[test]
fn too_few_windows_are_an_error() {
    let profile = profiles::named("lte").unwrap().unwrap();
    let mut monitor = Monitor::new(Span::from_secs(1));
    monitor.sample(Time::ZERO, 1.0);
    let fit = PowerFit::new(&profile, monitor).unwrap();
    assert_eq!(fit.finish(), Err(PowerFitError::TooFew(0)));
}
