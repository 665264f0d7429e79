use super::*;
use crate::scenario::{
    CapacitySpec, Condition, Counter, DelaySpec, Direction, Discipline, LinkState, QueueLimit,
};
use manyways_unit::Rate;

const FULL_SCENARIO: &str = r#"
name = "wifi-lte-outage"
about = "Wi-Fi dies silently for three seconds"
seed = 7
cc = "reno"
trace-offset = "1.5s"
[link.wifi]
down = "10mbit"
up = "5mbit"
delay = "14ms"
up-delay = "20ms"
queue = "100p"
[link.lte]
down = "trace:lte.down"
delay = "32ms"
metered = true
mtu = 1400
loss = 0.001
aqm = "codel:target=10ms"
[host.origin]
names = ["www.example.lab", "cdn.lab@wifi"]
serve = ["nginx -c $LAB_DIR/nginx.conf"]
[host.far.extra-delay]
lte = "20ms"
[[event]]
at = "5s"
link = "wifi"
state = "up"
down = "2mbit"
[[event]]
at = "2s"
link = "wifi"
state = "silent"
[[workload]]
name = "fetch"
run = "curl -o /dev/null http://origin.lab/"
[[expect]]
workload = "fetch"
value = "exit"
is = "== 0"
[[expect]]
workload = "fetch"
value = "wifi.down_bytes"
is = ">1e3"
"#;

fn one_trace(file: &str) -> Result<Vec<u8>, String> {
    match file {
        "lte.down" => Ok(b"0\n5\n10\n".to_vec()),
        _ => Err("no such file".to_owned()),
    }
}

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    parse(text, &mut one_trace)
}

#[test]
fn a_whole_scenario_reads() {
    let scenario = read(FULL_SCENARIO).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.seed), ("wifi-lte-outage", 7));
    assert_eq!((scenario.cc.as_str(), scenario.trace_offset), ("reno", Span::from_millis(1500)));
    // wifi before lte: the order of the file, not of the alphabet.
    let [wifi, lte] = &scenario.links[..] else { panic!() };
    assert_eq!((wifi.name.as_str(), lte.name.as_str()), ("wifi", "lte"));
    assert_eq!(wifi.down.capacity, CapacitySpec::Constant(Rate::from_mbps(10)));
    assert_eq!(wifi.down.delay, DelaySpec::Constant(Span::from_millis(14)));
    assert_eq!(wifi.up.delay, DelaySpec::Constant(Span::from_millis(20)));
    assert_eq!(wifi.up.queue.limit, QueueLimit::Packets(100));
    assert!(
        matches!(&lte.down.capacity, CapacitySpec::Trace { source, .. } if source == "lte.down")
    );
    assert_eq!((lte.metered, lte.mtu), (true, 1400));
    assert!(matches!(lte.up.queue.discipline, Discipline::Codel { .. }));
    let [origin, far] = &scenario.hosts[..] else { panic!() };
    assert_eq!(origin.names[1], ("cdn.lab".to_owned(), Some("wifi".to_owned())));
    assert_eq!(far.extra_delay, [("lte".to_owned(), Span::from_millis(20))]);
    let [silent, up] = &scenario.events[..] else { panic!() };
    assert_eq!((silent.at, up.at), (Span::from_secs(2), Span::from_secs(5)));
    assert_eq!(silent.change, [Change::State(LinkState::Silent)]);
    assert_eq!(up.change.len(), 2);
    assert_eq!(scenario.workloads[0].timeout, Span::from_secs(60));
    assert_eq!((scenario.expectations[1].op.as_str(), scenario.expectations[1].bound), (">", 1e3));
}

#[test]
fn little_is_needed() {
    let scenario = read("name = 'a'\n[link.wifi]\n").unwrap();
    assert_eq!((scenario.seed, scenario.cc.as_str()), (1, "cubic"));
    assert_eq!(scenario.links, [LinkSpec::new("wifi")]);
}

#[test]
fn an_event_can_wait_for_a_counter() {
    let parse = |event: &str| {
        let text = format!(
            "name = 'a'\n[link.w]\n[link.l]\n[[event]]\n{event}\nlink = 'w'\nstate = 'paused'\n"
        );
        parse(&text, &mut |_| Err(String::new()))
    };
    let event = |text: &str| parse(text).unwrap().events.remove(0);
    let when = |least| Condition { link: "l".into(), counter: Counter::UpBytes, least };
    let seen = event("when = 'l.up_bytes >= 2KB'");
    assert_eq!((seen.when, seen.at), (Some(when(2_000)), Span::ZERO));
    assert_eq!(seen.change, [Change::State(LinkState::Paused)]);
    let seen = event("when = 'l.up_bytes >= 5'\nat = '1s'");
    assert_eq!((seen.when, seen.at), (Some(when(5)), Span::from_secs(1)));
    let seen = event("when = 'l.up_bytes >= 5'\nuntil = 'l.up_bytes >= 9'");
    assert_eq!((seen.when, seen.until), (Some(when(5)), Some(when(9))));
    for (text, message) in [
        ("at = '1s'\nuntil = 'x.up_bytes >= 1'", "6:9 there is no link `x`"),
        ("when = 'l.up_bytes'", "5:8 "),
        ("when = 'x.up_bytes >= 1'", "5:8 there is no link `x`"),
        ("when = 'l.promotions >= 1'", "5:8 link `l` has no radio"),
    ] {
        let error = parse(text).unwrap_err();
        let said = format!("{}:{} {}", error.line, error.column, error.message);
        assert!(said.starts_with(message), "{said}");
    }
}

#[test]
fn an_event_for_one_direction_overrides_the_common_one() {
    let text =
        "name = 'a'\n[link.w]\n[[event]]\nat = '1s'\nlink = 'w'\nup-delay = '9ms'\ndelay = '1ms'\n";
    let scenario = read(text).unwrap();
    let ways: Vec<_> = scenario.events[0].change.iter().map(|change| change.direction()).collect();
    assert_eq!(ways, [Some(Direction::Both), Some(Direction::Up)]);
}

/// Each row: replaced text, new text, expected position and message, expected hint.
#[test]
fn every_error_points_at_its_place() {
    let rows = [
        ("seed = 7", "sed = 7", "4:1 the scenario has no `sed`", Some("did you mean `seed`?")),
        (
            "seed = 7",
            "seed = -7",
            "4:8 seed: a whole number that is not negative was expected",
            None,
        ),
        (
            "seed = 7",
            "seed = \"7\"",
            "4:8 seed: a whole number that is not negative was expected, not a string",
            None,
        ),
        ("name = \"wifi-lte-outage\"", "", "1:1 the scenario needs `name`", None),
        (
            "\"reno\"",
            "\"re no\"",
            "5:6 cc: `re no` cannot name a congestion control",
            Some("the usual ones are cubic, reno and bbr"),
        ),
        (
            "queue = \"100p\"",
            "quue = \"100p\"",
            "12:1 a link has no `quue`",
            Some("did you mean `queue`?"),
        ),
        (
            "\"100p\"",
            "\"100\"",
            "12:9 queue: `100` is not a queue; write a time like 150ms, a size like 64KB, packets like 100p, or unlimited",
            None,
        ),
        (
            "[link.lte]",
            "[link.LTE]",
            "13:7 `LTE` cannot name a link: at most ten small letters, digits and hyphens, with a letter, and no hyphen first",
            None,
        ),
        ("trace:lte.down", "trace:lte.up", "14:8 down: cannot read `lte.up`: no such file", None),
        (
            "mtu = 1400",
            "mtu = 70000",
            "17:7 mtu: `70000` is not an MTU; write a number of bytes from 1280 to 65535",
            None,
        ),
        (
            "cdn.lab@wifi",
            "cdn.lab@wify",
            "21:29 there is no link `wify`",
            Some("did you mean `wifi`?"),
        ),
        (
            "www.example.lab",
            "www..lab",
            "21:10 `www..lab` is not a host name",
            Some("write a name like www.example.lab, or cdn.lab@wifi for one link"),
        ),
        (
            "lte = \"20ms\"",
            "lta = \"20ms\"",
            "24:1 there is no link `lta`",
            Some("did you mean `lte`?"),
        ),
        (
            "lte = \"20ms\"",
            "lte = 20",
            "24:7 lte: a string in quotes was expected, not a number",
            None,
        ),
        (
            "mtu = 1400",
            "shares = \"home\"",
            "17:10 link `lte` cannot share an air: its name makes it neither Wi-Fi nor Bluetooth",
            Some(
                "use a name like wifi2 or bt0, or leave `shares` out: other networks have other frequencies",
            ),
        ),
        ("state = \"silent\"", "mtu = 1500", "33:1 `mtu` cannot change while the link runs", None),
        (
            "state = \"silent\"",
            "",
            "30:1 the event changes nothing",
            Some("add a change, like state = \"silent\" or down = \"2mbit\""),
        ),
        (
            "state = \"silent\"",
            "stat = \"silent\"",
            "33:1 an event has no `stat`",
            Some("did you mean `state`?"),
        ),
        (
            "at = \"2s\"",
            "",
            "30:1 the event has no time",
            Some("add at = \"2s\", or when = \"wifi.down_bytes >= 300KB\""),
        ),
        (
            "at = \"2s\"",
            "at = \"2\"",
            "31:6 at: `2` is not a time; write it like 14ms, 1.5s, 100us, 2min or 0s",
            None,
        ),
        (
            "value = \"exit\"",
            "value = \"exot\"",
            "39:9 there is no value `exot`",
            Some("did you mean `exit`?"),
        ),
        (
            "\"== 0\"",
            "\"= 0\"",
            "40:6 is: `= 0` is not a comparison",
            Some("write <, <=, ==, >= or > and a number, like \"<= 2.5\""),
        ),
        (
            "\"== 0\"",
            "\"== inf\"",
            "40:6 is: `== inf` is not a comparison",
            Some("write <, <=, ==, >= or > and a number, like \"<= 2.5\""),
        ),
    ];
    for (from, to, expected, hint) in rows {
        assert!(FULL_SCENARIO.contains(from), "{from}");
        let error = read(&FULL_SCENARIO.replacen(from, to, 1)).unwrap_err();
        let seen = format!("{}:{} {}", error.line, error.column, error.message);
        assert_eq!((seen.as_str(), error.hint.as_deref()), (expected, hint), "{from} -> {to}");
    }
}

#[test]
fn invalid_toml_is_refused_at_its_position() {
    let error = read("name = \"a\"\n[link.wifi\n").unwrap_err();
    assert_eq!((error.line, error.column), (2, 11), "{error}");
    let error = read("name = 'a'\n[link.w]\nup = '1mbit'\nup = '1mbit'\n").unwrap_err();
    assert_eq!(error.line, 4, "{error}");
    let error = read("name = 'a'").unwrap_err();
    assert_eq!(error.message, "the scenario has no link");
    assert!(read(&format!("a = {}", "[".repeat(100_000))).is_err());
    assert!(read(&" ".repeat(MAX_TEXT + 1)).is_err());
    let many: String = (0..17).map(|i| format!("[link.w{i}]\n")).collect();
    let error = read(&format!("name = 'a'\n{many}")).unwrap_err();
    assert_eq!((error.line, error.message.as_str()), (18, "a scenario has at most 16 links"));
}

#[test]
fn a_link_has_a_radio_that_events_send_to_sleep() {
    let text = "name = 'a'\n[link.w]\n[link.c]\ndelay = '1ms'\nrrc = 'lte'\n\
                [[event]]\nat = '1s'\nlink = 'c'\nrrc = 'dormant'\n\
                [[workload]]\nname = 'x'\nrun = 'true'\n\
                [[expect]]\nworkload = 'x'\nvalue = 'c.promotions'\nis = '<= 3'\n";
    let scenario = read(text).unwrap();
    let radio = scenario.links[1].radio.as_ref().unwrap();
    assert_eq!((radio.source.as_str(), &radio.text), ("lte", &None));
    assert_eq!(scenario.events[0].change, [Change::Dormant]);
    assert_eq!(radio_position(text, "c"), Some((5, 7)));
    assert_eq!((radio_position(text, "w"), radio_position("[", "c")), (None, None));
    let wrong = |from: &str, to: &str| {
        let error = read(&text.replace(from, to)).unwrap_err();
        (error.line, error.message)
    };
    let (line, message) = wrong("link = 'c'", "link = 'w'");
    assert_eq!((line, message.as_str()), (9, "link `w` has no radio"));
    let (line, message) = wrong("rrc = 'lte'", "rrc = 'dormant'");
    assert_eq!((line, message.as_str()), (5, "a link cannot start with `rrc=dormant`"));
    let (line, message) = wrong("rrc = 'dormant'", "rrc = 'lte'");
    assert_eq!((line, message.as_str()), (9, "`rrc` cannot change while the link runs"));
    let (line, _) = wrong("'c.promotions'", "'w.promotions'");
    assert_eq!(line, 15);
}
