use proptest::prelude::*;

use super::*;
use crate::LinkTrace;
use crate::scenario::{DirectionSpec, QueueSpec};

fn files(file: &str) -> Result<Vec<u8>, String> {
    match file {
        "lte.down" | r"down, \ and up\," => Ok(b"0\n5\n10\n".to_vec()),
        "delays" => Ok(b"0 40\n1 60\n".to_vec()),
        "prose" | "my/radio" | "radio.toml" => Ok(b"hello\n".to_vec()),
        "walk, then stand.csv" | "a:b" => Ok(b"time,rssi,cqi\n0,-61,\n1.5,-74.5,9\n".to_vec()),
        "broken.toml" => Ok(b"\xff".to_vec()),
        _ => Err("no such file".to_owned()),
    }
}

fn link(text: &str) -> LinkSpec {
    LinkSpec::parse(text, &mut files).unwrap()
}

fn parse_error(text: &str) -> LinkError {
    LinkSpec::parse(text, &mut files).unwrap_err()
}

#[test]
fn a_plain_link() {
    let wifi = link("wifi:down=10mbit,up=5mbit,delay=14ms,queue=150ms");
    let direction = |mbps| DirectionSpec {
        capacity: CapacitySpec::Constant(Rate::from_mbps(mbps)),
        delay: DelaySpec::Constant(Span::from_millis(14)),
        ..DirectionSpec::default()
    };
    assert_eq!(wifi, LinkSpec { down: direction(10), up: direction(5), ..LinkSpec::new("wifi") });
    assert_eq!(link("eth0"), LinkSpec::new("eth0"));
    assert_eq!(link("eth0:"), LinkSpec::new("eth0"));
}

#[test]
fn a_link_belongs_to_a_device_or_joins_two() {
    let ends = |text: &str| {
        let link = link(text);
        (link.device.unwrap_or_default(), link.peer.unwrap_or_default())
    };
    assert_eq!(ends("wifi"), (String::new(), String::new()));
    assert_eq!(ends("lte:device=phone-2"), ("phone-2".to_owned(), String::new()));
    assert_eq!(ends("lan:between=laptop:phone"), ("laptop".to_owned(), "phone".to_owned()));
    for wrong in ["device=", "device=Phone", "device=2nd", "between=laptop", "between=a:a"] {
        let error = parse_error(&format!("lan:{wrong}"));
        assert!(matches!(error, LinkError::Value { .. }), "{wrong}: {error}");
    }
    for both in ["device=a,between=a:b", "between=a:b,device=a"] {
        let error = parse_error(&format!("lan:{both}"));
        assert_eq!(error, LinkError::TwoDevices("lan".to_owned()));
    }
    assert_eq!(changes(["device=a"], &mut files), Err(LinkError::FixedKey("device")));
}

#[test]
fn wifi_and_bluetooth_share_an_air() {
    for name in ["wifi2", "wlan0", "bt", "bluetooth"] {
        assert_eq!(link(&format!("{name}:shares=home-2")).air.as_deref(), Some("home-2"));
        assert_eq!(link(&format!("{name}:shares=none")).air, None);
    }
    for name in ["lte", "wwan0", "lan"] {
        let error = parse_error(&format!("{name}:shares=home"));
        assert_eq!(error, LinkError::NoAir(name.to_owned()));
        assert!(error.hint().unwrap().contains("wifi2 or bt0"));
        assert_eq!(link(&format!("{name}:shares=none")).air, None);
    }
    for wrong in ["", "Home", "2", "my air", "a:b"] {
        let error = parse_error(&format!("wifi:shares={wrong}"));
        assert!(error.to_string().contains("is not an air"), "{wrong}: {error}");
    }
    assert_eq!(changes(["shares=home"], &mut files), Err(LinkError::FixedKey("shares")));
}

#[test]
fn devices_are_those_that_links_name() {
    let of = |texts: &[&str]| {
        let links: Vec<LinkSpec> = texts.iter().map(|text| link(text)).collect();
        let devices = crate::scenario::devices(&[], &links);
        devices.into_iter().map(|device| device.name).collect::<Vec<_>>()
    };
    assert_eq!(of(&["wifi", "lte"]), ["device"]);
    assert_eq!(of(&["lte:device=phone", "wifi"]), ["device", "phone"]);
    let named = ["wifi:device=laptop", "lte:device=phone", "lan:between=laptop:phone"];
    assert_eq!(of(&named), ["laptop", "phone"]);
}

#[test]
fn a_condition_names_a_counter_of_a_link() {
    let parse = |text: &str| condition(text).unwrap();
    let bytes = |least| Condition { link: "wifi".into(), counter: Counter::DownBytes, least };
    assert_eq!(parse("wifi.down_bytes >= 300000"), bytes(300_000));
    assert_eq!(parse("wifi.down_bytes>=300KB"), bytes(300_000));
    for counter in Counter::ALL {
        let text = format!("lte.{} >= 7", counter.name());
        let expected = Condition { link: "lte".into(), counter, least: 7 };
        assert_eq!((parse(&text), expected.to_string()), (expected.clone(), text.clone()));
    }
    for wrong in [
        "",
        "wifi.down_bytes",
        "wifi.down_bytes > 3",
        "down_bytes >= 3",
        "wifi.bytes >= 3",
        "WIFI.down_bytes >= 3",
    ] {
        let error = condition(wrong).unwrap_err().to_string();
        assert!(error.contains("wifi.down_bytes >= 300KB"), "{wrong}: {error}");
    }
    for (counter, value, kind) in [
        ("down_bytes", "0", "size"),
        ("down_bytes", "-3", "size"),
        ("up_bytes", "3 parsecs", "size"),
        ("down_bytes", "99999999999999999999", "size"),
        ("promotions", "3KB", "number"),
    ] {
        let error = condition(&format!("wifi.{counter} >= {value}")).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{value}` is not a {kind} above 0; write ")),
            "{error}"
        );
    }
    let links = [link("lte"), link("wifi")];
    assert_eq!(bytes(1).index(&links), Ok(1));
    let missing = bytes(1).index(&links[..1]).unwrap_err();
    assert_eq!(missing.to_string(), "there is no link `wifi`");
    assert_eq!(missing.hint().as_deref(), Some("the links are lte"));
    let radio = parse("lte.promotions >= 1").index(&links);
    assert_eq!(radio, Err(LinkError::NoRadio("lte".into())));
}

#[test]
fn a_change_has_an_inverse() {
    let before = link("wifi:down=10mbit,up=5mbit,down-delay=3ms,up-delay=4ms,loss=1%,queue=64KB");
    for words in [
        "state=silent",
        "down=1mbit",
        "up=unlimited",
        "delay=9ms",
        "up-delay=9ms",
        "jitter=1ms",
        "down-loss=2%",
        "reorder=yes",
        "queue=9p",
        "aqm=codel",
        "signal=trace:a:b",
    ] {
        let [change] = &changes([words], &mut files).unwrap()[..] else { panic!("{words}") };
        let mut changed = before.clone();
        changed.apply(change);
        assert_ne!(changed, before, "{words}");
        let inverse = change.inverse(&before).unwrap();
        // A change of one direction leaves the other one as it is meanwhile.
        let ways = change.direction().filter(|way| *way != Direction::Both);
        assert!(ways.is_none() || inverse.len() == 1, "{inverse:?}");
        inverse.iter().for_each(|change| changed.apply(change));
        assert_eq!(changed, before, "{words}");
    }
    let requests = [Change::Dormant, Change::NatRestart];
    assert!(requests.iter().all(|request| before.check_inverse(request).is_err()));
}

#[test]
fn every_key() {
    let lte = link(
        "lte:down=trace:lte.down,up=trace:mahimahi:lte.down,delay=trace:delays,jitter=2ms,\
         reorder=yes,loss=ge:1%:25%,queue=64KB,aqm=codel:target=10ms,state=silent,mtu=1400,\
         metered=yes,middlebox=nat:idle=30s",
    );
    let at = vec![Span::ZERO, Span::from_millis(5), Span::from_millis(10)];
    let size = Size::from_bytes(1504);
    let trace = LinkTrace::opportunities(at, size, Span::from_millis(10)).unwrap();
    let source = "mahimahi:lte.down".to_owned();
    assert_eq!(lte.up.capacity, CapacitySpec::Trace { source, trace });
    assert!(matches!(&lte.down.delay, DelaySpec::Trace { steps, .. } if steps.steps().len() == 2));
    assert_eq!((lte.down.jitter, lte.down.reorder), (Span::from_millis(2), true));
    let ge =
        LossSpec::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
    assert_eq!(lte.up.loss, ge);
    assert_eq!(
        lte.up.queue,
        QueueSpec {
            limit: QueueLimit::Bytes(Size::from_bytes(64_000)),
            discipline: Discipline::Codel {
                target: Span::from_millis(10),
                interval: Span::from_millis(100),
            },
        }
    );
    assert_eq!((lte.state, lte.mtu, lte.metered), (LinkState::Silent, 1400, true));
    assert_eq!(lte.middlebox, Some(Middlebox::Nat { idle: Span::from_secs(30) }));
}

#[test]
fn the_name_of_a_file_may_contain_commas_and_backslashes() {
    let text = r"a:down=trace:down\, \ and up\\\,,up=trace:mahimahi:lte.down,rrc=x\,y";
    let one = link(text);
    let CapacitySpec::Trace { source, .. } = &one.down.capacity else { panic!("{one:?}") };
    assert_eq!(source, r"down, \ and up\,");
    let written = r"a:down=trace:down\, \\ and up\\\,,up=trace:mahimahi:lte.down,rrc=x\,y";
    assert_eq!((one.to_string().as_str(), link(written)), (written, one));
    let error = parse_error("a:down=trace:lte.down, and up");
    assert!(error.hint().unwrap().ends_with(r"a file as \,"), "{error:?}");
}

#[test]
fn a_setting_of_one_direction_overrides_that_of_both() {
    for text in ["a:down-delay=9ms,delay=1ms", "a:delay=1ms,down-delay=9ms"] {
        let link = link(text);
        assert_eq!(link.down.delay, DelaySpec::Constant(Span::from_millis(9)), "{text}");
        assert_eq!(link.up.delay, DelaySpec::Constant(Span::from_millis(1)), "{text}");
    }
}

#[test]
fn values_with_few_words() {
    let of = |text: &str| link(&format!("a:{text}")).down;
    assert_eq!(of("queue=unlimited").queue.limit, QueueLimit::Unlimited);
    assert_eq!(of("queue=100p").queue.limit, QueueLimit::Packets(100));
    assert_eq!(of("queue=20ms").queue.limit, QueueLimit::Time(Span::from_millis(20)));
    assert_eq!(of("aqm=drop-head").queue.discipline, Discipline::DropHead);
    assert_eq!(of("loss=0.1%").loss, LossSpec::Independent(0.001));
    assert_eq!(of("loss=none").loss, LossSpec::None);
    assert_eq!(of("down=unlimited").capacity, CapacitySpec::Unlimited);
    assert_eq!(of("down=0bit").capacity, CapacitySpec::Constant(Rate::ZERO));
    assert_eq!(link("a:middlebox=none").middlebox, None);
    assert_eq!(link("a:middlebox=strip-mptcp").middlebox, Some(Middlebox::StripMptcp));
    let nat = Some(Middlebox::Nat { idle: Span::from_secs(120) });
    assert_eq!(link("a:middlebox=nat").middlebox, nat);
}

#[test]
fn a_radio_is_a_name_or_a_file() {
    let radio = |source: &str, text: Option<&str>| {
        Some(RadioSpec { source: source.to_owned(), text: text.map(str::to_owned) })
    };
    assert_eq!(link("a:rrc=none").radio, None);
    assert_eq!(link("a:rrc=lte").radio, radio("lte", None));
    for file in ["radio.toml", "my/radio"] {
        assert_eq!(link(&format!("a:rrc={file}")).radio, radio(file, Some("hello\n")));
    }
    assert_eq!(parse_error("a:rrc=x.toml").to_string(), "rrc: cannot read `x.toml`: no such file");
    let message = "rrc: cannot read `broken.toml`: the file is not UTF-8 text";
    assert_eq!(parse_error("a:rrc=broken.toml").to_string(), message);
    // A radio can sleep only while its link runs; its profile is set only before.
    let error = parse_error("a:rrc=dormant");
    assert_eq!(error, LinkError::NotRunning("rrc=dormant"));
    assert!(error.hint().unwrap().contains("rrc=lte"));
    assert_eq!(changes(["rrc=dormant"], &mut files), Ok(vec![Change::Dormant]));
    assert_eq!(Change::Dormant.to_string(), "rrc=dormant");
    let error = parse_error("a:middlebox=restart");
    assert_eq!(error, LinkError::NotRunning("middlebox=restart"));
    assert!(error.hint().unwrap().contains("middlebox=nat"));
    assert_eq!(changes(["middlebox=restart"], &mut files), Ok(vec![Change::NatRestart]));
    assert_eq!(Change::NatRestart.to_string(), "middlebox=restart");
    let (plain, nat) = (link("a"), link("a:middlebox=nat"));
    assert_eq!(plain.check_change(&Change::NatRestart), Err(LinkError::NoNat("a".to_owned())));
    assert_eq!(nat.check_change(&Change::NatRestart), Ok(()));
    assert_eq!(nat.check_change(&Change::Dormant), Err(LinkError::NoRadio("a".to_owned())));
    for word in ["rrc=lte", "rrc=none", "rrc=radio.toml"] {
        let error = changes([word], &mut files).unwrap_err();
        assert_eq!(error, LinkError::FixedKey("rrc"));
        assert!(error.hint().unwrap().contains("rrc=dormant"));
    }
}

#[test]
fn a_signal_is_a_table_in_a_file() {
    let file = "walk, then stand.csv";
    let bytes = files(file).unwrap();
    let trace = Arc::new(SignalTrace::parse(&bytes).unwrap());
    let signal = SignalSpec { source: file.to_owned(), trace };
    let text = r"wifi:signal=trace:walk\, then stand.csv";
    assert_eq!(link(text).signal, Some(signal.clone()));
    assert_eq!(link(text).to_string(), text);
    assert_eq!(link("wifi:signal=none").signal, None);
    let words = format!("signal=trace:{file}");
    let [change] = &changes([&words[..]], &mut files).unwrap()[..] else { panic!() };
    assert_eq!((change, change.to_string()), (&Change::Signal(Some(signal)), words));
    let none = changes(["signal=none"], &mut files).unwrap();
    assert_eq!(
        (&none[..], none[0].to_string()),
        (&[Change::Signal(None)][..], "signal=none".into())
    );

    let error = |text: &str| {
        let error = parse_error(text);
        (error.to_string(), error.hint().unwrap_or_default())
    };
    assert_eq!(error("wifi:signal=trace:x").0, "signal: cannot read `x`: no such file");
    let (message, hint) = error("wifi:signal=trace:prose");
    let reason = "line 1: `hello` is none of time, rssi, rsrp, rsrq, snr and cqi";
    assert_eq!(message, format!("signal: `prose`: {reason}"));
    assert!(hint.contains("time,rssi,snr"), "{hint}");
    for value in ["", "-61", "trace:", "walk.csv"] {
        let expected = format!("signal: `{value}` is not a signal; write trace:FILE or none");
        assert_eq!(error(&format!("wifi:signal={value}")).0, expected);
    }
}

#[test]
fn errors_have_a_message_and_a_hint() {
    let said = |text: &str| {
        let error = parse_error(text);
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let (message, hint) = said("wifi:deley=1ms");
    assert_eq!(
        (message.as_str(), hint.as_str()),
        ("a link has no key `deley`", "did you mean `delay`?")
    );
    let (_, hint) = said("wifi:colour=red");
    assert!(hint.starts_with("the keys are down, up, delay"), "{hint}");
    assert_eq!(parse_error("wifi:delay=1ms,delay=2ms"), LinkError::DuplicateKey("delay"));
    assert_eq!(parse_error("wifi:fast"), LinkError::NotASetting("fast".into()));
    for name in ["", "Wifi", "wi fi", "-a", "9", "5-", "a-name-too-long", "wifi/0"] {
        assert!(matches!(parse_error(name), LinkError::Name(_)), "{name}");
    }
    assert_eq!(said("a:down=trace:x").0, "down: cannot read `x`: no such file");
    let (message, hint) = said("a:down=trace:prose");
    assert!(message.starts_with("down: `prose`: the format of the trace is unknown"));
    assert_eq!(hint, "name the format, like trace:mahimahi:FILE");
    assert_eq!(
        said("a:delay=trace:lte.down").0,
        "delay: `lte.down`: a `mahimahi` trace contains no delay"
    );
    for text in [
        "a:down=10",
        "a:down=10mbps",
        "a:delay=14",
        "a:jitter=-1ms",
        "a:reorder=maybe",
        "a:loss=1",
        "a:loss=ge:1%",
        "a:loss=ge:1%:2%:3%",
        "a:loss=200%",
        "a:queue=0",
        "a:queue=100",
        "a:aqm=red",
        "a:aqm=codel:target",
        "a:aqm=codel:interval=0s",
        "a:aqm=drop-tail:x",
        "a:state=down",
        "a:mtu=1279",
        "a:mtu=65536",
        "a:metered=2",
        "a:middlebox=nat:idle",
        "a:middlebox=proxy",
        "a:delay=",
        "a:rrc=",
    ] {
        assert!(matches!(parse_error(text), LinkError::Value { .. }), "{text}");
    }
}

#[test]
fn a_running_link_accepts_only_some_settings() {
    let read = changes(["up-loss=1%", "loss=none", "state=silent"], &mut files).unwrap();
    assert_eq!(
        read,
        [
            Change::Loss(Direction::Both, LossSpec::None),
            Change::State(LinkState::Silent),
            Change::Loss(Direction::Up, LossSpec::Independent(0.01)),
        ]
    );
    assert_eq!(changes(["mtu=1400"], &mut files), Err(LinkError::FixedKey("mtu")));
    let mut wifi = link("wifi:aqm=codel,queue=100p");
    for change in changes(["down-queue=9p"], &mut files).unwrap() {
        wifi.apply(&change);
    }
    assert_eq!(wifi, link("wifi:aqm=codel,up-queue=100p,down-queue=9p"));
}

#[test]
fn every_key_is_documented() {
    let source = include_str!("../link_text.rs");
    for key in KEYS.iter().filter(|key| !key.contains('-')) {
        let documented = |line: &str| {
            line.starts_with("//! |")
                && line.split('|').nth(1).unwrap().contains(&format!("`{key}`"))
        };
        assert!(source.lines().any(documented), "{key}");
    }
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        any::<u64>().prop_map(Span::from_nanos),
        (0_u64..100_000).prop_map(Span::from_micros),
    ]
}

fn delays() -> impl Strategy<Value = Span> {
    prop_oneof![
        (0..=trace_file::MAX_DELAY.as_nanos()).prop_map(Span::from_nanos),
        (0_u64..100_000).prop_map(Span::from_micros),
    ]
}

fn directions() -> impl Strategy<Value = DirectionSpec> {
    let capacity = prop_oneof![
        Just(CapacitySpec::Unlimited),
        any::<u64>().prop_map(|bps| CapacitySpec::Constant(Rate::from_bps(bps))),
        (0_u64..10_000).prop_map(|mbps| CapacitySpec::Constant(Rate::from_mbps(mbps))),
    ];
    let p = || 0.0..=1.0;
    let loss = prop_oneof![
        Just(LossSpec::None),
        (0.000_001..=1.0).prop_map(LossSpec::Independent),
        (p(), p(), p(), p()).prop_map(|(to_bad, to_good, loss_good, loss_bad)| {
            LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad }
        }),
    ];
    let limit = prop_oneof![
        Just(QueueLimit::Unlimited),
        any::<u64>().prop_map(QueueLimit::Packets),
        spans().prop_map(QueueLimit::Time),
        any::<u64>().prop_map(|bytes| QueueLimit::Bytes(Size::from_bytes(bytes))),
    ];
    let discipline = prop_oneof![
        Just(Discipline::DropTail),
        Just(Discipline::DropHead),
        (spans(), 1..u64::MAX).prop_map(|(target, interval)| Discipline::Codel {
            target,
            interval: Span::from_nanos(interval),
        }),
    ];
    (capacity, delays(), delays(), any::<bool>(), loss, limit, discipline).prop_map(
        |(capacity, delay, jitter, reorder, loss, limit, discipline)| DirectionSpec {
            capacity,
            delay: DelaySpec::Constant(delay),
            jitter,
            reorder,
            loss,
            queue: QueueSpec { limit, discipline },
        },
    )
}

fn links() -> impl Strategy<Value = LinkSpec> {
    let middlebox = prop_oneof![
        Just(None),
        Just(Some(Middlebox::StripMptcp)),
        spans().prop_map(|idle| Some(Middlebox::Nat { idle })),
    ];
    let state =
        prop_oneof![Just(LinkState::Up), Just(LinkState::Silent), Just(LinkState::NoCarrier)];
    let both = prop_oneof![
        (directions(), directions()),
        directions().prop_map(|direction| (direction.clone(), direction)),
    ];
    let radio = prop_oneof![
        Just(None),
        Just(Some(RadioSpec { source: "lte".to_owned(), text: None })),
        Just(Some(RadioSpec { source: "radio.toml".to_owned(), text: Some("hello\n".to_owned()) })),
    ];
    let signal = prop_oneof![Just("wifi:signal=none"), Just("wifi:signal=trace:a:b")];
    let signal = signal.prop_map(|text| link(text).signal);
    let ends = prop_oneof![
        Just((None, None)),
        Just((Some("phone".to_owned()), None)),
        Just((Some("laptop".to_owned()), Some("phone".to_owned()))),
    ];
    let about = (1280..=u16::MAX, any::<bool>(), state);
    let plain = "[a-z][a-z0-9-]{2,9}".prop_map(|name| (name, None));
    let shares = prop_oneof![Just(None), Just(Some("home".to_owned()))];
    let names = prop_oneof![plain, ("(bt|wifi)[0-9]{0,4}", shares)];
    (names, both, about, middlebox, radio, signal, ends).prop_map(
        |((name, air), (down, up), about, middlebox, radio, signal, (device, peer))| {
            let (mtu, metered, state) = about;
            LinkSpec {
                name,
                device,
                peer,
                air,
                down,
                up,
                mtu,
                middlebox,
                radio,
                signal,
                metered,
                state,
            }
        },
    )
}

proptest! {
    #[test]
    fn written_links_parse_back_to_the_same_value(spec in links()) {
        prop_assert_eq!(link(&spec.to_string()), spec);
    }

    #[test]
    fn no_text_panics(text in "[a-z:=,.0-9%-]{0,60}") {
        let _ = LinkSpec::parse(&text, &mut files);
    }

    #[test]
    fn every_text_can_be_escaped(parts in proptest::collection::vec("[a,\\\\]{0,6}", 1..4)) {
        let escaped: Vec<String> = parts.iter().map(|part| write::escaped(part)).collect();
        prop_assert_eq!(split_at_commas(&escaped.join(",")), parts);
    }
}

#[test]
fn a_name_that_the_kernel_takes_for_all_interfaces_is_refused_in_words() {
    for name in ["all", "default", "lo", "internet0"] {
        let error = parse_error(&format!("{name}:delay=1ms"));
        assert_eq!(error, LinkError::Reserved(name.to_owned()));
        assert!(error.hint().unwrap().contains(&format!("{name}1")), "{name}");
    }
}

#[test]
fn a_link_may_be_called_5g() {
    for name in ["5g", "3g-east", "0a"] {
        assert_eq!(link(&format!("{name}:delay=1ms")).name, name);
    }
}

#[test]
fn a_delay_of_a_day_is_a_slip_of_the_pen() {
    for text in ["a:delay=20h", "a:up-delay=3601s", "a:jitter=2h"] {
        let said = parse_error(text).to_string();
        assert!(said.contains("at most 1h"), "{text}: {said}");
    }
    let day = |text: &str| trace_file::delay(text.as_bytes(), None);
    assert!(day("0 3600001\n").is_err() && day("0 3600000\n").is_ok());
    let json = "[{\"duration_ms\": 1, \"bandwidth_kbps\": 1, \"latency_ms\": 7200001}]";
    assert!(day(json).is_err());
    assert!(
        matches!(link("a:delay=1h").up.delay, DelaySpec::Constant(span) if span == trace_file::MAX_DELAY)
    );
}
