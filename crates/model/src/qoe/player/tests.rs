use manyways_unit::Rate;
use proptest::prelude::*;

use super::*;
use crate::qoe::film::Segment;
use crate::qoe::simulate::{Network, Period, play};

fn film(kbps: &[u64], seconds: u64, segments: usize) -> Film {
    let rungs: Vec<Rate> = kbps.iter().map(|rate| Rate::from_kbps(*rate)).collect();
    let duration = Span::from_secs(seconds);
    let sizes = rungs.iter().map(|rate| Some(rate.size_in(duration))).collect();
    Film::new(rungs, vec![Segment { duration, sizes }; segments]).unwrap()
}

fn seconds(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// Fetches the next segment, which arrives at `at`.
fn arrive(player: &mut Player, at: Time) {
    player.handle(at, Input::Complete(Size::from_bytes(1_000)));
}

#[test]
fn playback_starts_and_continues_at_its_levels() {
    let config = Config {
        rule: RuleName::Fixed(0),
        start_level: Span::from_secs(4),
        restart_level: Span::from_secs(6),
        ..Config::default()
    };
    let mut player = Player::new(Time::ZERO, film(&[500], 2, 5), config);
    assert_eq!(player.poll(Time::ZERO), Some(Output::Fetch { segment: 0, rung: 0 }));
    arrive(&mut player, seconds(1.0));
    player.poll(seconds(1.0));
    assert_eq!(player.session(seconds(1.5)).startup, None);
    arrive(&mut player, seconds(2.0));
    assert_eq!(player.session(seconds(2.0)).startup, Some(Span::from_secs(2)));
    player.poll(seconds(2.0));
    // The buffer is empty at 6 s; one segment at 8 s is not enough.
    arrive(&mut player, seconds(8.0));
    player.poll(seconds(8.0));
    arrive(&mut player, seconds(9.0));
    player.poll(seconds(9.0));
    let stalled = player.session(seconds(9.5));
    assert_eq!(stalled.stalls.len(), 1);
    assert_eq!(stalled.stalls[0].at, seconds(6.0));
    assert_eq!(stalled.stalls[0].position, Span::from_secs(4));
    assert_eq!(stalled.stalled(), Span::from_secs_f64(3.5));
    assert_eq!(player.plays_without_network_until(), None);
    // The film has no more than this.
    arrive(&mut player, seconds(10.0));
    assert_eq!(player.poll(seconds(10.0)), None);
    assert_eq!(player.next_wakeup(), Some(seconds(16.0)));
    assert_eq!(player.plays_without_network_until(), Some(seconds(16.0)));
    assert_eq!(player.poll(seconds(16.0)), Some(Output::Finished(Ending::Played)));
    let session = player.session(seconds(99.0));
    assert_eq!(session.ended, seconds(16.0));
    assert_eq!(session.stalled(), Span::from_secs(4));
    assert_eq!(session.played, Span::from_secs(10));
}

#[test]
fn a_full_buffer_waits_until_the_next_segment_fits() {
    let config = Config { max_buffer: Span::from_secs(8), ..Config::default() };
    let film = film(&[500], 2, 20);
    let fast = Network::constant(Rate::from_mbps(100), Span::ZERO).unwrap();
    let (session, _) = play(&film, &config, &fast);
    assert!(session.segments.iter().all(|one| one.level <= Span::from_secs(6)));
    assert_eq!(session.pauses.len(), 16, "each segment after the first four");
    assert_eq!(session.stalls, []);
}

#[test]
fn load_control_pauses_until_the_buffer_is_at_its_lower_level() {
    let config = Config {
        max_buffer: Span::from_secs(20),
        resume_level: Some(Span::from_secs(8)),
        ..Config::default()
    };
    let film = film(&[500], 2, 40);
    let fast = Network::constant(Rate::from_mbps(100), Span::ZERO).unwrap();
    let (session, _) = play(&film, &config, &fast);
    assert!(session.pauses.len() <= 5, "{}", session.pauses.len());
    let longest = session.pauses.iter().map(|pause| pause.duration).max();
    assert!(longest >= Some(Span::from_secs(10)), "{longest:?}");
}

#[test]
fn an_abandoned_segment_is_fetched_at_a_lower_rung() {
    let film = film(&[500, 4_000], 4, 40);
    let config = Config { rule: RuleName::Throughput, ..Config::default() };
    let period = |seconds, kbps| Period {
        duration: Span::from_secs(seconds),
        rate: Rate::from_kbps(kbps),
        latency: Span::from_millis(20),
    };
    let falling = Network::new([period(19, 8_000), period(500, 600)]).unwrap();
    let (session, ending) = play(&film, &config, &falling);
    assert_eq!(ending, Ending::Played);
    let abandoned = session.abandoned.first().unwrap();
    assert_eq!((abandoned.rung, session.segments[abandoned.segment].rung), (1, 0));
    assert!(session.wasted() >= abandoned.received);
    let never = Config { abandoning: Abandoning::Never, ..config };
    let (session, _) = play(&film, &never, &falling);
    assert_eq!(session.abandoned, []);
}

#[test]
fn a_segment_that_fails_is_tried_again_and_at_last_at_the_lowest_rung() {
    let film = film(&[500, 4_000], 2, 9);
    let config = Config { rule: RuleName::Fixed(1), ..Config::default() };
    let mut player = Player::new(Time::ZERO, film, config);
    player.poll(Time::ZERO);
    arrive(&mut player, seconds(0.1));
    let mut rungs = Vec::new();
    let mut at = seconds(0.1);
    let ending = loop {
        match player.poll(at) {
            Some(Output::Fetch { segment: 1, rung }) => {
                rungs.push((rung, at));
                player.handle(at, Input::Failed);
            }
            Some(Output::Finished(ending)) => break ending,
            Some(other) => panic!("{other:?}"),
            None => at = player.next_wakeup().unwrap(),
        }
    };
    let times = [0.1, 0.6, 1.6, 3.6].map(seconds);
    assert_eq!(rungs, [(1, times[0]), (1, times[1]), (1, times[2]), (0, times[3])]);
    assert_eq!(ending, Ending::Failed { segment: 1 });
    let session = player.session(at);
    assert_eq!((session.played, session.failures), (Span::from_secs(2), 4));
}

#[test]
fn a_first_segment_that_never_comes_is_an_end_without_a_picture() {
    let mut player = Player::new(Time::ZERO, film(&[500], 2, 9), Config::default());
    let mut at = Time::ZERO;
    loop {
        match player.poll(at) {
            Some(Output::Finished(ending)) => {
                assert_eq!(ending, Ending::Failed { segment: 0 });
                break;
            }
            Some(_) => player.handle(at, Input::Failed),
            None => at = player.next_wakeup().unwrap(),
        }
    }
    assert_eq!(player.session(at).startup, None);
}

#[test]
fn events_of_no_download_are_ignored() {
    let mut player = Player::new(Time::ZERO, film(&[500], 2, 2), Config::default());
    arrive(&mut player, Time::ZERO);
    player.handle(Time::ZERO, Input::Failed);
    assert_eq!(player.poll(Time::ZERO), Some(Output::Fetch { segment: 0, rung: 0 }));
    assert_eq!(player.session(Time::ZERO).segments, []);
}

#[test]
fn a_long_segment_fits_into_a_short_buffer() {
    let config = Config { max_buffer: Span::from_secs(1), ..Config::default() };
    let film = film(&[500], 10, 5);
    let network = Network::constant(Rate::from_mbps(2), Span::from_millis(10)).unwrap();
    let (session, ending) = play(&film, &config, &network);
    assert_eq!(ending, Ending::Played);
    assert_eq!(session.played, Span::from_secs(50));
}

fn rules() -> impl Strategy<Value = RuleName> {
    proptest::sample::select(RuleName::ADAPTIVE.to_vec())
}

fn networks() -> impl Strategy<Value = Network> {
    let period =
        (1_u64..8_000, 0_u64..9_000, 0_u64..800).prop_map(|(millis, kbps, latency)| Period {
            duration: Span::from_millis(millis),
            rate: Rate::from_kbps(kbps),
            latency: Span::from_millis(latency),
        });
    let some = proptest::collection::vec(period, 1..20);
    some.prop_filter_map("it carries nothing", |periods| Network::new(periods).ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn times_add_up_and_nothing_is_played_that_is_not_there(
        rule in rules(), network in networks(), segments in 1_usize..40, length in 1_u64..7,
        max_buffer in 4_u64..60, resume in proptest::option::of(0_u64..40), start in 0_u64..20,
        restart in 0_u64..20,
        abandoning in proptest::sample::select(vec![
            Abandoning::Never, Abandoning::Binding, Abandoning::Free,
        ]),
    ) {
        let film = film(&[300, 900, 2_000, 4_500], length, segments);
        let config = Config {
            rule,
            averaging: Averaging::default(),
            max_buffer: Span::from_secs(max_buffer),
            resume_level: resume.map(Span::from_secs),
            start_level: Span::from_secs(start),
            restart_level: Span::from_secs(restart),
            abandoning,
        };
        let (session, ending) = play(&film, &config, &network);
        prop_assert_eq!(ending, Ending::Played);
        prop_assert_eq!(session.segments.len(), segments);
        prop_assert_eq!(session.played, film.duration());
        let startup = session.startup.unwrap();
        prop_assert_eq!(session.duration(), startup + session.played + session.stalled());
        let mut before = Time::ZERO;
        for one in &session.segments {
            prop_assert!(before <= one.requested);
            prop_assert!(one.requested <= one.first_byte && one.first_byte <= one.complete);
            before = one.complete;
        }
        // A stall begins when all that was there has been played.
        let length = Span::from_secs(length);
        for stall in &session.stalls {
            let complete = session.segments.iter().filter(|one| one.complete <= stall.at).count();
            prop_assert_eq!(stall.position, length * complete as u64);
        }
        for one in &session.abandoned {
            prop_assert!(one.segment < segments);
        }
    }

    #[test]
    fn late_polls_and_odd_events_break_nothing(
        rule in rules(), seed in any::<u64>(),
    ) {
        let mut random = manyways_unit::Random::new(seed);
        let mut at = Time::ZERO;
        let config = Config { rule, max_buffer: Span::from_secs(10), ..Config::default() };
        let mut player = Player::new(at, film(&[300, 900, 4_500], 2, 12), config);
        for _ in 0..400 {
            at += Span::from_millis(random.next_u64() % 900);
            match random.next_u64() % 6 {
                0 => player.handle(at, Input::FirstByte { size: None }),
                1 => player.handle(at, Input::Received(Size::from_bytes(random.next_u64() % 90_000))),
                2 => player.handle(at, Input::Complete(Size::from_bytes(random.next_u64() % 90_000))),
                3 if random.chance(0.25) => player.handle(at, Input::Failed),
                _ => {
                    if let Some(Output::Fetch { segment, rung }) = player.poll(at) {
                        prop_assert!(segment < 12 && rung < 3);
                    }
                }
            }
            let session = player.session(at);
            let fetched = Span::from_secs(2) * session.segments.len() as u64;
            prop_assert!(session.played <= fetched);
            prop_assert_eq!(player.level(at), fetched.saturating_sub(session.played));
            if let Some(startup) = session.startup {
                prop_assert_eq!(session.duration(), startup + session.played + session.stalled());
            }
        }
    }
}
