use manyways_unit::Span;

use super::*;

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn link(source: &str, text: Option<&str>) -> LinkSpec {
    let radio = RadioSpec { source: source.to_owned(), text: text.map(str::to_owned) };
    LinkSpec { radio: Some(radio), ..LinkSpec::new("cell") }
}

/// 300 ms, 600 ms, then idle: 120 ms promotion delay.
const PROFILE: &str = r#"
title = "test"
technology = "lte"
[transfer]
send = "1W"
receive = "1W"
source = "none"
[[state]]
name = "active"
power = "1W"
timer = "300ms"
source = "none"
[[state]]
name = "tail"
power = "1W"
timer = "600ms"
source = "none"
[[state]]
name = "idle"
power = "0"
promotion-delay = "120ms"
source = "none"
"#;

fn radio() -> Radio {
    Radio::new(profile_of(&link("x.toml", Some(PROFILE))).unwrap().unwrap())
}

fn counts(radio: &mut Radio, now: Time) -> (String, Vec<u64>) {
    let stats = radio.stats(now, None);
    (stats.state, stats.promotions.iter().map(|(_, count)| *count).collect())
}

#[test]
fn a_profile_is_one_that_is_known_or_a_text() {
    assert_eq!(profile_of(&LinkSpec::new("a")), Ok(None));
    assert!(profile_of(&link("lte", None)).unwrap().is_some());
    assert!(profile_of(&link("x.toml", Some(PROFILE))).unwrap().is_some());
    let error = profile_of(&link("ltee", None)).unwrap_err();
    assert_eq!(error.to_string(), "link `cell`: there is no radio profile `ltee`");
    assert_eq!(error.hint().unwrap(), "did you mean `lte`?");
    let hint = profile_of(&link("wimax", None)).unwrap_err().hint().unwrap();
    assert!(hint.starts_with("use one of 3g-i997, ") && hint.ends_with("./radio.toml"), "{hint}");
    let broken = PROFILE.replace("300ms", "300");
    let error = profile_of(&link("x.toml", Some(&broken))).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("link `cell`: rrc: `x.toml`: line 11"), "{message}");
    assert_eq!(error.link(), "cell");
}

#[test]
fn its_timers_begin_where_the_wires_fell_silent() {
    let mut radio = radio();
    assert_eq!(counts(&mut radio, at(0)), ("idle".to_owned(), vec![0, 0]));
    assert_eq!(radio.on_packet(at(1_000), None, Direction::Up), at(1_120));
    assert!(radio.stats(at(1_119), None).is_promoting);
    // The waiting packets were sent until 1800 ms: the tail begins 300 ms later.
    let busy = Some(at(1_800));
    assert_eq!(radio.stats(at(2_100), busy).state, "active");
    assert_eq!(radio.stats(at(2_101), busy).state, "tail");
    assert_eq!(radio.on_packet(at(2_700), busy, Direction::Down), at(2_700));
    assert_eq!(counts(&mut radio, at(2_700)), ("active".to_owned(), vec![1, 1]));
    let idle = at(2_700) + Span::from_millis(901);
    assert_eq!(radio.on_packet(idle, busy, Direction::Down), idle + Span::from_millis(120));
    assert_eq!(counts(&mut radio, idle + Span::from_millis(120)).1, [1, 2]);
}

#[test]
fn a_radio_sleeps_on_request_and_restarts() {
    let mut radio = radio();
    radio.on_packet(at(0), None, Direction::Up);
    radio.request_dormancy(at(200), Some(at(150)));
    let stats = radio.stats(at(200), None);
    assert_eq!((stats.state.as_str(), stats.dormancies, stats.total_promotions()), ("idle", 1, 1));
    radio.request_dormancy(at(300), None);
    assert_eq!(radio.stats(at(300), None).dormancies, 1, "it sleeps already");
    radio.on_packet(at(400), None, Direction::Up);
    radio.restart();
    let stats = radio.stats(at(401), None);
    assert_eq!((stats.state.as_str(), stats.is_promoting, stats.dormancies), ("idle", false, 1));
}
