//! Scenarios for the files of `docs/policies`.

use super::*;

const FOUR_APPS: &str = include_str!("../../../../../docs/policies/four-apps.toml");
const LTE_WHEN_SLOW: &str = include_str!("../../../../../docs/policies/lte-when-wifi-is-slow.toml");
const CALLS: &str = include_str!("../../../../../docs/policies/calls.toml");
const NEVER_METERED: &str = include_str!("../../../../../docs/policies/never-metered.toml");
const OVERFLOW: &str = include_str!("../../../../../docs/policies/overflow-to-5g.toml");

const PAGE: &str = include_str!("../../../../../docs/bond-policy.md");

#[test]
fn none_of_them_is_strange() {
    for text in [FOUR_APPS, LTE_WHEN_SLOW, CALLS, NEVER_METERED, OVERFLOW] {
        let warnings = Policy::parse(text).unwrap().lint(&phone_environment().paths);
        assert_eq!(warnings, [], "{text}");
    }
}

#[test]
fn what_the_page_shows_reads() {
    let shown: Vec<&str> = PAGE
        .split("```toml\n")
        .skip(1)
        .filter_map(|after| after.split_once("```").map(|(text, _)| text))
        .collect();
    assert!(shown.len() >= 4, "{}", shown.len());
    for text in shown {
        if let Err(error) = Policy::parse(text) {
            panic!("{error}\n{text}");
        }
    }
}

fn paths(engine: &Engine, flow: &Flow<'_>) -> PathSet {
    stream_policy(engine.decide(flow).decision).paths
}

#[test]
fn four_apps() {
    let mut engine = engine(FOUR_APPS);
    let udp = |process| Flow { process: Some(process), ..Flow::new(Protocol::Udp, 40_000) };
    let call = [udp("skypeforlinux"), web("api.skype.com"), Flow::new(Protocol::Udp, 3479)];
    let messenger = [web("edge-mqtt.facebook.com"), web("www.messenger.com")];
    let single = call
        .iter()
        .map(|flow| (flow, "call"))
        .chain(messenger.iter().map(|flow| (flow, "messenger")));
    for (flow, rule) in single.clone() {
        let verdict = engine.decide(flow);
        assert_eq!(verdict.rule, Some(rule));
        let policy = stream_policy(verdict.decision);
        assert_eq!((policy.scheduler, policy.paths), (SchedulerKind::Single, set([WIFI])));
    }
    let many = [
        (web("rr4---sn-4g5e.googlevideo.com"), "video"),
        (web("www.youtube.com"), "video"),
        (web("r3.sn.gvt1.com"), "app-store"),
        (Flow { user: Some("_apt"), ..web("deb.debian.org") }, "app-store"),
    ];
    for (flow, rule) in &many {
        let verdict = engine.decide(flow);
        assert_eq!(verdict.rule, Some(*rule));
        let policy = stream_policy(verdict.decision);
        assert_eq!((policy.scheduler, policy.paths), (SchedulerKind::BufferAware, PathSet::ALL));
    }
    // All other flows use Wi-Fi and move when it disappears; call and messenger wait.
    let other = stream_policy(engine.decide(&web("example.com")).decision);
    assert_eq!((other.scheduler, other.primary), (SchedulerKind::Single, Some(WIFI)));
    assert!(other.paths.contains(LTE));
    let mut environment = phone_environment();
    environment.paths[0].up = false;
    engine.observe(at(1), &environment);
    for (flow, _) in single {
        assert!(engine.explain(flow).is_waiting);
    }
    assert!(!engine.explain(&web("example.com")).is_waiting);
}

#[test]
fn lte_only_when_wifi_is_slow() {
    let mut engine = engine(LTE_WHEN_SLOW);
    let flow = web("a.example");
    let wifi = |kbps| {
        let mut environment = phone_environment();
        environment.paths[0].rate = Some(Rate::from_kbps(kbps));
        environment
    };
    assert_eq!(paths(&engine, &flow), set([WIFI]));
    // A short dip has no effect.
    engine.observe(at(1_000), &wifi(300));
    engine.observe(at(3_000), &wifi(5_000));
    engine.observe(at(4_500), &wifi(5_000));
    assert_eq!(paths(&engine, &flow), set([WIFI]));
    engine.observe(at(10_000), &wifi(999));
    engine.observe(at(13_000), &wifi(999));
    let slow = stream_policy(engine.decide(&flow).decision);
    assert_eq!((slow.paths, slow.primary), (PathSet::ALL, Some(WIFI)));
    // A little better is not enough.
    engine.observe(at(20_000), &wifi(1_199));
    engine.observe(at(40_000), &wifi(1_199));
    assert_eq!(paths(&engine, &flow), PathSet::ALL);
    engine.observe(at(41_000), &wifi(1_200));
    engine.observe(at(44_000), &wifi(1_200));
    assert_eq!(paths(&engine, &flow), set([WIFI]));
    // A missing path counts as infinitely slow at once.
    let mut environment = wifi(1_200);
    environment.paths[0].up = false;
    engine.observe(at(45_000), &environment);
    assert_eq!(paths(&engine, &flow), PathSet::ALL);
    environment.paths.remove(0);
    engine.observe(at(46_000), &environment);
    assert_eq!(paths(&engine, &flow), PathSet::ALL);
}

#[test]
fn calls_on_the_lowest_latency_and_redundant_when_lossy() {
    let mut engine = engine(CALLS);
    let zoom = Flow { process: Some("zoom"), ..Flow::new(Protocol::Udp, 8801) };
    let meet = Flow { process: Some("chrome"), ..Flow::new(Protocol::Udp, 19305) };
    let of = |engine: &Engine, flow: &Flow<'_>| {
        let policy = stream_policy(engine.decide(flow).decision);
        (policy.scheduler, policy.primary)
    };
    let mut environment = phone_environment();
    for flow in [zoom, meet] {
        assert_eq!(of(&engine, &flow), (SchedulerKind::Single, Some(WIFI)));
    }
    assert_eq!(engine.decide(&web("zoom.us")).rule, None);
    // Loss on an unused path has no effect.
    environment.paths[1].loss = Some(0.3);
    engine.observe(at(1_000), &environment);
    engine.observe(at(9_000), &environment);
    assert_eq!(of(&engine, &zoom), (SchedulerKind::Single, Some(WIFI)));
    environment.paths[1].loss = Some(0.0);
    environment.paths[0].loss = Some(0.02);
    engine.observe(at(10_000), &environment);
    engine.observe(at(11_000), &environment);
    assert_eq!(of(&engine, &zoom), (SchedulerKind::Redundant, Some(WIFI)));
    environment.paths[0].loss = Some(0.009);
    engine.observe(at(12_000), &environment);
    engine.observe(at(20_000), &environment);
    assert_eq!(of(&engine, &zoom).0, SchedulerKind::Redundant, "within the margin");
    environment.paths[0].loss = Some(0.0);
    engine.observe(at(21_000), &environment);
    engine.observe(at(22_000), &environment);
    assert_eq!(of(&engine, &zoom).0, SchedulerKind::Single);
    // Wi-Fi gets crowded, and LTE is clearly quicker for three seconds.
    environment.paths[0].rtt = Some(Span::from_millis(200));
    engine.observe(at(30_000), &environment);
    assert_eq!(engine.next_wakeup(), Some(at(33_000)));
    assert_eq!(of(&engine, &zoom), (SchedulerKind::Single, Some(WIFI)));
    assert!(engine.observe(at(33_000), &environment));
    assert_eq!(of(&engine, &zoom), (SchedulerKind::Single, Some(LTE)));
}

#[test]
fn never_on_a_metered_path() {
    let mut engine = engine(NEVER_METERED);
    let flow = web("a.example");
    assert_eq!(paths(&engine, &flow), set([WIFI]));
    let mut environment = phone_environment();
    environment.paths[0].up = false;
    engine.observe(at(1), &environment);
    assert!(engine.explain(&flow).is_waiting && !paths(&engine, &flow).contains(LTE));
    // Wi-Fi comes back as a phone's hotspot.
    environment.paths[0].up = true;
    environment.paths[0].metered = true;
    assert!(engine.observe(at(2), &environment));
    assert_eq!(paths(&engine, &flow), PathSet::NONE);
    assert!(engine.explain(&flow).is_waiting);
}

#[test]
fn overflow_to_5g() {
    let mut engine = engine(OVERFLOW);
    let small = web("a.example");
    let bulk = Flow { bytes: Size::from_bytes(5_000_000), ..small };
    let mut environment = phone_environment();
    assert_eq!(paths(&engine, &bulk), set([WIFI]));
    environment.paths[0].load = Some(0.95);
    engine.observe(at(1_000), &environment);
    engine.observe(at(4_000), &environment);
    assert_eq!(engine.decide(&bulk).rule, Some("wifi is full"));
    assert_eq!(paths(&engine, &bulk), PathSet::ALL);
    assert_eq!(paths(&engine, &small), set([WIFI]));
    assert_eq!(engine.reevaluate_at(&small), Some(Size::from_bytes(1_000_001)));
    // The plan is nearly used up.
    environment.paths[1].plan_used = Some(Size::from_bytes(45_000_000_000));
    engine.observe(at(5_000), &environment);
    assert_eq!(paths(&engine, &bulk), set([WIFI]));
    assert_eq!(engine.reevaluate_at(&small), None);
    // Not full, but slow.
    environment = phone_environment();
    environment.paths[0].rate = Some(Rate::from_mbps(5));
    engine.observe(at(10_000), &environment);
    engine.observe(at(13_000), &environment);
    assert_eq!(engine.decide(&bulk).rule, Some("wifi is slow"));
    // Wi-Fi is gone: all flows move at once, and back only after the hold time.
    environment = phone_environment();
    environment.paths[0].up = false;
    engine.observe(at(20_000), &environment);
    assert_eq!(paths(&engine, &small), PathSet::ALL);
    environment.paths[0].up = true;
    engine.observe(at(21_000), &environment);
    assert_eq!(engine.decide(&small).rule, Some("no wifi"));
    engine.observe(at(24_000), &environment);
    assert_eq!(paths(&engine, &small), set([WIFI]));
}
