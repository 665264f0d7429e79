use manyways_unit::{Rate, Size};
use proptest::prelude::*;

use super::mpc::{Best, RobustMpc, Search};
use super::*;
use crate::qoe::film::Segment;

/// Segments of two seconds, whose sizes are those of the bitrates.
fn film(kbps: &[u64], segments: usize) -> Film {
    let rungs: Vec<Rate> = kbps.iter().map(|rate| Rate::from_kbps(*rate)).collect();
    let duration = Span::from_secs(2);
    let sizes = rungs.iter().map(|rate| Some(rate.size_in(duration))).collect();
    Film::new(rungs, vec![Segment { duration, sizes }; segments]).unwrap()
}

fn view(film: &Film, level: f64, throughput: f64, last: usize) -> View<'_> {
    let network = Some(NetworkEstimate { throughput, latency: 0.05 });
    View { film, segment: 5, level, network, last: Some(last) }
}

#[test]
fn a_rule_is_known_by_its_name() {
    for rule in RuleName::ADAPTIVE.into_iter().chain([RuleName::Fixed(3)]) {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    let error = "fastest".parse::<RuleName>().unwrap_err().to_string();
    assert!(error.contains("robust-mpc") && error.contains("fixed:RUNG"), "{error}");
    assert!("fixed:x".parse::<RuleName>().is_err());
}

#[test]
fn cba_takes_the_highest_bitrate_that_the_throughput_carries() {
    let film = film(&[500, 1_000, 2_000], 20);
    let rung = |throughput| cba::Cba.decide(&view(&film, 9.0, throughput, 0)).rung;
    assert_eq!([0.4e6, 0.99e6, 1e6, 1.9e6, 2e6, 9e6].map(rung), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn the_throughput_rule_has_a_margin_and_spares_a_low_buffer() {
    let film = film(&[500, 1_000, 2_000], 20);
    let rung = |throughput, level| {
        throughput::Throughput::default().decide(&view(&film, level, throughput, 0)).rung
    };
    assert_eq!(rung(2.1e6, 20.0), 1, "90 % of the throughput is not enough");
    assert_eq!(rung(2.4e6, 20.0), 2);
    assert_eq!(rung(2.4e6, 1.0), 1, "the segment would not arrive before the buffer is empty");
    assert_eq!(rung(2.4e6, 0.0), 0);
}

#[test]
fn the_throughput_rule_abandons_what_would_take_too_long() {
    let film = film(&[500, 1_000, 2_000], 20);
    let mut rule = throughput::Throughput::default();
    let progress =
        |elapsed, received| Progress { rung: 2, size: 4e6, received, elapsed, first_byte: 0.1 };
    let view = view(&film, 9.0, 2.4e6, 2);
    assert_eq!(rule.abandon(&view, &progress(0.4, 1e3)), None, "too young to judge");
    assert_eq!(rule.abandon(&view, &progress(1.1, 2e6)), None, "fast enough");
    assert_eq!(rule.abandon(&view, &progress(1.1, 0.7e6)), Some(0));
    assert_eq!(
        rule.abandon(&view, &progress(5.1, 3.9e6)),
        None,
        "less is left than to begin again"
    );
}

#[test]
fn bba_follows_the_buffer_from_the_reservoir_to_the_cushion() {
    let film = film(&[500, 1_000, 2_000, 4_000], 200);
    let mut rule = bba::Bba::new(30.0);
    let mut at = |level: f64, last: usize| rule.decide(&view(&film, level, 0.0, last)).rung;
    assert_eq!(at(1.9, 3), 0, "within the reservoir");
    assert_eq!(at(27.0, 0), 3, "above the cushion");
    // The map permits 500 kbit/s at 2 s, and 4,000 at 27 s.
    assert_eq!(at(10.0, 1), 1, "1,620 kbit/s: not yet the next one");
    assert_eq!(at(13.0, 1), 2, "2,040 kbit/s");
    assert_eq!(at(10.0, 2), 2, "not yet as low as the one below");
    assert_eq!(at(5.0, 2), 1, "920 kbit/s");
}

#[test]
fn bba_begins_at_the_throughput_until_the_buffer_falls() {
    let film = film(&[500, 1_000, 2_000, 4_000], 200);
    let mut rule = bba::Bba::new(30.0);
    let mut at = |level: f64| rule.decide(&view(&film, level, 2.5e6, 2)).rung;
    assert_eq!([at(2.0), at(3.0), at(2.5), at(3.0)], [2, 2, 1, 1]);
}

#[test]
fn bba_keeps_a_longer_reservoir_for_larger_segments() {
    let constant = film(&[500, 4_000], 200);
    let mut segments = constant.segments().to_vec();
    for segment in &mut segments[10..20] {
        segment.sizes[0] = Some(Size::from_bytes(250_000));
    }
    let varying = Film::new(constant.rungs().to_vec(), segments).unwrap();
    let at = |film: &Film| bba::Bba::new(60.0).decide(&view(film, 20.0, 0.0, 1)).rung;
    assert_eq!((at(&constant), at(&varying)), (1, 0));
}

#[test]
fn bola_takes_higher_bitrates_with_more_in_the_buffer() {
    let film = film(&[500, 1_000, 2_000, 4_000], 200);
    let mut rule = bola::Bola::new(&film, 25.0);
    let rungs = [2.0, 12.0, 16.0, 24.0].map(|level| {
        let view = View { segment: 100, ..view(&film, level, 9e6, 0) };
        rule.decide(&view).rung
    });
    assert!(rungs.is_sorted(), "{rungs:?}");
    assert_eq!((rungs[0], rungs[3]), (0, 3));
}

#[test]
fn bola_e_begins_at_the_throughput_without_a_full_buffer() {
    let film = film(&[500, 1_000, 2_000, 4_000], 200);
    let mut rule = bola_e::BolaE::new(&film, 25.0);
    let view = View { segment: 1, ..view(&film, 2.0, 2.5e6, 0) };
    assert_eq!(rule.decide(&view).rung, 2);
    let mut plain = bola::Bola::new(&film, 25.0);
    assert_eq!(plain.decide(&view).rung, 0);
}

#[test]
fn a_film_with_one_rung_leaves_no_choice() {
    let film = film(&[700], 9);
    for name in RuleName::ADAPTIVE {
        let mut rule = name.create(&film, Span::from_secs(30));
        for level in [0.0, 5.0, 29.0] {
            let decision = rule.decide(&view(&film, level, 5e6, 0));
            assert_eq!(decision.rung, 0, "{name}");
            assert!(decision.wait.is_finite(), "{name}");
        }
    }
}

#[test]
fn robust_mpc_trusts_a_throughput_less_the_more_it_errs() {
    let film = film(&[500, 1_000, 2_000, 4_000], 200);
    let rung = |throughputs: &[f64]| {
        let mut rule = RobustMpc::new(30.0);
        for throughput in throughputs {
            let view = view(&film, 4.0, 1.0, 2);
            rule.decide(&view);
            let ended = Ended {
                rung: 2,
                received: 2.0 * throughput,
                elapsed: 2.0,
                first_byte: 0.1,
                abandoned_for: None,
            };
            rule.on_ended(&view, &ended);
        }
        rule.decide(&view(&film, 4.0, 1.0, 2)).rung
    };
    let steady = rung(&[4.4e6; 6]);
    let erring = rung(&[2.8e6, 11e6, 2.8e6, 11e6, 2.8e6, 11e6]);
    assert!(erring < steady, "{erring} {steady}");
}

/// The best of all sequences.
fn exhaustive(search: &Search<'_>, horizon: usize) -> Best {
    let film = search.view.film;
    let count = film.rungs().len();
    let mut best = Best { rung: 0, worth: f64::NEG_INFINITY };
    for code in 0..count.pow(horizon as u32) {
        let (mut level, mut last, mut worth) = (search.view.level, search.view.last, 0.0);
        for step in 0..horizon {
            let rung = code / count.pow((horizon - 1 - step) as u32) % count;
            let quality = |rung: usize| film.bitrate(rung) / 1e6;
            let time = film.bits(search.view.segment + step, rung) / search.throughput;
            let stall = (time - level).max(0.0);
            level = ((level - time).max(0.0) + 2.0).min(search.max_buffer);
            worth += quality(rung) - quality(film.highest()) * stall;
            worth -= last.map_or(0.0, |last| (quality(rung) - quality(last)).abs());
            last = Some(rung);
        }
        if worth > best.worth + 1e-9 {
            best = Best { rung: code / count.pow((horizon - 1) as u32), worth };
        }
    }
    best
}

proptest! {
    #[test]
    fn the_search_of_mpc_is_as_good_as_all_sequences(
        level in 0.0_f64..30.0, throughput in 0.2e6_f64..6e6, last in 0_usize..4, left in 1_usize..8,
    ) {
        let film = film(&[500, 1_000, 2_000, 4_000], 5 + left);
        let view = view(&film, level, 1.0, last);
        let search = Search { view: &view, throughput, max_buffer: 30.0 };
        let (found, truth) = (search.best(), exhaustive(&search, left.min(5)));
        prop_assert!((found.worth - truth.worth).abs() < 1e-6, "{found:?} {truth:?}");
    }

    #[test]
    fn every_rule_selects_a_rung_of_the_film(
        level in 0.0_f64..40.0, throughput in 1e3_f64..1e9, last in 0_usize..4, segment in 0_usize..30,
        latency in 0.0_f64..3.0,
    ) {
        let film = film(&[500, 1_000, 2_000, 4_000], 30);
        let network = Some(NetworkEstimate { throughput, latency });
        let view = View { film: &film, segment, level, network, last: Some(last) };
        for name in RuleName::ADAPTIVE {
            let mut rule = name.create(&film, Span::from_secs(30));
            for _ in 0..3 {
                let decision = rule.decide(&view);
                prop_assert!(decision.rung < 4, "{name}: {decision:?}");
                prop_assert!((0.0..100.0).contains(&decision.wait), "{name}: {decision:?}");
            }
            let progress =
                Progress { rung: last, size: 2e6, received: 1e5, elapsed: 1.0, first_byte: latency.min(0.9) };
            if let Some(rung) = rule.abandon(&view, &progress) {
                prop_assert!(rung < last, "{name} abandons {last} for {rung}");
            }
        }
    }
}
