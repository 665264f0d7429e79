use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Bytes of each element, by its ID and whether it is a reverse one.
type Values = HashMap<(u16, bool), Vec<u8>>;

/// Export time, sequence number and records of a message.
type Message = (u32, u32, Vec<Values>);

/// Independent reader of a file (RFC 7011).
fn read(mut file: &[u8]) -> Vec<Message> {
    let mut templates: HashMap<u16, Vec<(u16, u16, bool)>> = HashMap::new();
    let mut messages = Vec::new();
    while !file.is_empty() {
        let word = |at: usize| u16::from_be_bytes([file[at], file[at + 1]]);
        let long = |at: usize| u32::from_be_bytes(*file[at..].first_chunk().unwrap());
        assert_eq!((word(0), long(12)), (10, 1));
        let (message, rest) = file.split_at(word(2).into());
        let (time, sequence) = (long(4), long(8));
        let (mut sets, mut records) = (&message[16..], Vec::new());
        while !sets.is_empty() {
            let word = |at: usize| u16::from_be_bytes([sets[at], sets[at + 1]]);
            let (number, length) = (word(0), usize::from(word(2)));
            assert!(length > 4, "an empty set");
            let mut set = &sets[4..length];
            sets = &sets[length..];
            while !set.is_empty() {
                let mut take = |count: usize| {
                    let (taken, behind) = set.split_at(count);
                    set = behind;
                    taken.to_vec()
                };
                let word = |bytes: Vec<u8>| u16::from_be_bytes([bytes[0], bytes[1]]);
                if number == 2 {
                    let (template, count) = (word(take(2)), word(take(2)));
                    let fields = (0..count).map(|_| {
                        let (element, length) = (word(take(2)), word(take(2)));
                        let is_reverse = element >= 1 << 15;
                        if is_reverse {
                            assert_eq!(take(4), 29_305_u32.to_be_bytes());
                        }
                        (element & 0x7fff, length, is_reverse)
                    });
                    templates.insert(template, fields.collect());
                    continue;
                }
                let mut values = Values::new();
                for (element, length, is_reverse) in &templates[&number] {
                    let length = match length {
                        65_535 => usize::from(take(1)[0]),
                        length => usize::from(*length),
                    };
                    assert!(values.insert((*element, *is_reverse), take(length)).is_none());
                }
                records.push(values);
            }
        }
        messages.push((time, sequence, records));
        file = rest;
    }
    messages
}

fn unsigned(values: &Values, element: u16, is_reverse: bool) -> u64 {
    values[&(element, is_reverse)].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn ip(values: &Values, four: u16, six: u16) -> IpAddr {
    match values.get(&(four, false)) {
        Some(bytes) => IpAddr::from(*bytes.first_chunk::<4>().unwrap()),
        None => IpAddr::from(*values[&(six, false)].first_chunk::<16>().unwrap()),
    }
}

/// Returns the flow of a record.
fn flow(values: &Values) -> Biflow {
    let sent = |is_reverse| EndpointCounters {
        packets: unsigned(values, 2, is_reverse),
        octets: unsigned(values, 1, is_reverse),
        payload: unsigned(values, 401, is_reverse),
    };
    let time = |element| {
        let stamp = unsigned(values, element, false);
        let seconds = (stamp >> 32) - 2_208_988_800;
        Time::from_nanos(seconds * 1_000_000_000 + (((stamp & 0xffff_ffff) * 1_000_000_000) >> 32))
    };
    let (started, ended) = (time(156), time(157));
    assert_eq!(unsigned(values, 152, false), started.as_nanos() / 1_000_000);
    assert_eq!(unsigned(values, 153, false), ended.as_nanos() / 1_000_000);
    assert_eq!(unsigned(values, 239, false), 1);
    Biflow {
        id: unsigned(values, 148, false),
        protocol: values[&(4, false)][0],
        client: (ip(values, 8, 27), unsigned(values, 7, false) as u16),
        server: (ip(values, 12, 28), unsigned(values, 11, false) as u16),
        started,
        ended,
        forward: sent(false),
        reverse: if values.contains_key(&(2, true)) {
            sent(true)
        } else {
            EndpointCounters::default()
        },
        application: String::from_utf8(values[&(96, false)].clone()).unwrap(),
    }
}

fn written(flows: &[Biflow]) -> Vec<u8> {
    let (mut writer, mut file) = (Writer::new(), Vec::new());
    flows.iter().for_each(|flow| writer.push(flow, &mut file));
    writer.finish(&mut file);
    file
}

fn any_flow() -> impl Strategy<Value = Biflow> {
    let addresses = prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|both| both.map(IpAddr::from)),
        any::<[[u8; 16]; 2]>().prop_map(|both| both.map(IpAddr::from)),
    ];
    let sent = || {
        any::<[u64; 3]>().prop_map(|[packets, octets, payload]| EndpointCounters {
            packets,
            octets,
            payload,
        })
    };
    let reverse = prop_oneof![Just(EndpointCounters::default()), sent()];
    // Up to the wrap of NTP's seconds.
    let times = (0_u64..2_000_000_000_000_000_000, 0_u64..80_000_000_000_000);
    (addresses, any::<[u16; 2]>(), any::<(u64, u8)>(), times, sent(), reverse, "[a-zé]{0,9}")
        .prop_map(
            |([client, server], ports, (id, protocol), (start, length), forward, reverse, name)| {
                Biflow {
                    id,
                    protocol,
                    client: (client, ports[0]),
                    server: (server, ports[1]),
                    started: Time::from_nanos(start),
                    ended: Time::from_nanos(start + length),
                    forward,
                    reverse,
                    application: name,
                }
            },
        )
}

proptest! {
    #[test]
    fn flows_come_back(flows in prop::collection::vec(any_flow(), 0..40)) {
        let messages = read(&written(&flows));
        let found: Vec<Biflow> =
            messages.iter().flat_map(|(_, _, records)| records).map(flow).collect();
        prop_assert_eq!(found, flows);
    }
}

fn a_flow(number: u64) -> Biflow {
    Biflow {
        id: number,
        protocol: 6,
        client: ([192, 0, 2, 1].into(), 40_000),
        server: ([198, 51, 100, 1].into(), 443),
        started: Time::from_millis(1_000),
        ended: Time::from_millis(1_001 + number),
        forward: EndpointCounters { packets: 1, octets: 60, payload: 0 },
        reverse: EndpointCounters {
            packets: u64::from(!number.is_multiple_of(3)),
            octets: 0,
            payload: 0,
        },
        application: "tls".to_owned(),
    }
}

#[test]
fn many_flows_are_several_messages() {
    let flows: Vec<Biflow> = (0..2_000).map(a_flow).collect();
    let messages = read(&written(&flows));
    assert!(messages.len() > 5, "{}", messages.len());
    let mut before = 0;
    for (time, sequence, records) in &messages {
        assert_eq!(*sequence, before);
        before += records.len() as u32;
        // A message contains only flows that have ended before its export time.
        let last = records.iter().map(flow).map(|flow| flow.ended).max().unwrap();
        let export = Time::from_millis(u64::from(*time) * 1_000);
        assert!(last <= export && export <= last + manyways_unit::Span::from_secs(1));
    }
    assert_eq!(before, 2_000);
}

#[test]
fn a_file_without_a_flow_has_templates() {
    let file = written(&[]);
    assert!(file.len() > 100);
    assert_eq!(read(&file), [(0, 0, Vec::new())]);
}

#[test]
fn a_row_is_a_flow_where_it_says_enough() {
    let row = |server: &'static str, port: u64| {
        let time = |nanos| Value::Time(Time::from_nanos(nanos));
        vec![
            Value::Count(9),
            "10.0.0.1".into(),
            Value::Count(40_000),
            server.into(),
            Value::Count(port),
            time(5),
            time(6),
            Value::Count(3),
            Value::Count(2),
            Value::Count(180),
            Value::Count(120),
            Value::Count(20),
            Value::Absent,
            "http".into(),
        ]
    };
    let flow = Biflow::of(6, row("192.0.2.1", 80)).unwrap();
    assert_eq!(flow.forward, EndpointCounters { packets: 3, octets: 180, payload: 20 });
    assert_eq!(flow.reverse, EndpointCounters { packets: 2, octets: 120, payload: 0 });
    assert_eq!((flow.id, flow.application.as_str()), (9, "http"));
    assert_eq!(Biflow::of(6, row("nobody", 80)), None);
    assert_eq!(Biflow::of(6, row("2001:db8::1", 80)), None);
    assert_eq!(Biflow::of(6, row("192.0.2.1", 1 << 16)), None);
    assert_eq!(Biflow::of(6, row("192.0.2.1", 80)[..13].to_vec()), None);
    assert_eq!(truncate(&"é".repeat(40)).len(), MAX_NAME_LEN);
}
