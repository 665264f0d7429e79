use manyways_unit::Size;

use super::*;
use crate::sample::{ID, crypto, hello, sealed};
use crate::udp::Protocol;
use rustls::quic::Version;

const PHONE: [u8; 4] = [192, 0, 2, 9];
const SERVER: [u8; 4] = [192, 0, 2, 1];
/// A DNS query whose ID looks like the first byte of a QUIC header, followed by bytes like an
/// unknown version.
const DNS: &[u8] = b"\xc7\x1d\x01\0\0\x01\0\0\0\0\0\0\x04test\0\0\x01\0\x01";

/// Passes a datagram between a port of the client and a port of the server.
fn handle_datagram(
    table: &mut Table,
    millis: u64,
    [port, service]: [u16; 2],
    is_up: bool,
    payload: &[u8],
) -> Option<Exchange> {
    let ((from, source), (to, destination)) = match is_up {
        true => ((port, PHONE), (service, SERVER)),
        false => ((service, SERVER), (port, PHONE)),
    };
    let packet = frame::IpPacket {
        source: source.into(),
        destination: destination.into(),
        protocol: 17,
        payload: &[],
        payload_length: payload.len() + 8,
        length: payload.len() + 28,
        fragment: None,
        ecn: if is_up { 2 } else { 7 },
        id: 0,
        hop_limit: 64,
        is_tunnelled: false,
    };
    let datagram =
        Datagram { source_port: from, destination_port: to, payload, length: payload.len() };
    table.handle(Time::from_millis(millis), &packet, &datagram, payload == DNS).exchange
}

fn pass(table: &mut Table, secs: u64, port: u16, is_up: bool) {
    handle_datagram(table, secs * 1_000, [port, 53], is_up, b"what");
}

fn ended(table: &mut Table) -> Vec<EndedFlow> {
    std::iter::from_fn(|| table.poll()).collect()
}

fn ports(table: &mut Table) -> Vec<u16> {
    ended(table).iter().map(|flow| flow.client.port()).collect()
}

#[test]
fn both_directions_are_one_flow_with_counts_of_each() {
    let mut table = Table::new(Limits::default());
    for (secs, is_up) in [(1, true), (2, false), (3, false), (7, true), (9, false)] {
        pass(&mut table, secs, 5_000, is_up);
    }
    table.finish();
    let [EndedFlow { client, server, flow, exchange }] = &ended(&mut table)[..] else {
        panic!("one flow");
    };
    assert_eq!((*client, *server), ((PHONE, 5_000).into(), (SERVER, 53).into()));
    assert_eq!((flow.protocol(), *exchange, table.len()), (Protocol::Unknown, None, 0));
    let seconds = |secs| Time::ZERO + Span::from_secs(secs);
    assert_eq!((flow.started(), flow.last()), (seconds(1), seconds(9)));
    assert_eq!(flow.longest_gap(), Span::from_secs(4));
    let (up, down) = (flow.sent(Endpoint::Client).unwrap(), flow.sent(Endpoint::Server).unwrap());
    assert_eq!(
        (up.packets, up.payload, up.ip_size),
        (2, Size::from_bytes(8), Size::from_bytes(64))
    );
    assert_eq!((up.ecn, down.ecn), ([0, 0, 2, 0], [0, 0, 0, 3]));
    assert_eq!((up.longest_gap, down.longest_gap), (Span::from_secs(6), Span::from_secs(6)));
    assert_eq!((down.first, down.last), (seconds(2), seconds(9)));
}

#[test]
fn who_begins_is_the_client_but_not_a_service() {
    let mut table = Table::new(Limits::default());
    handle_datagram(&mut table, 0, [5_000, 443], false, b"answer");
    handle_datagram(&mut table, 0, [5_001, 9_000], false, b"peer");
    handle_datagram(&mut table, 0, [123, 123], false, b"time");
    table.finish();
    for EndedFlow { client, server, flow, .. } in ended(&mut table) {
        let is_service = server.port() == 443;
        assert_eq!(client.ip() == IpAddr::from(PHONE), is_service, "{client} to {server}");
        assert_eq!(flow.sent(Endpoint::Server).is_some(), is_service);
        assert_eq!(flow.sent(Endpoint::Client).is_some(), !is_service);
    }
}

#[test]
fn who_is_silent_for_long_is_over() {
    let mut table = Table::new(Limits { idle: Span::from_secs(120), ..Limits::default() });
    pass(&mut table, 0, 1_025, true);
    pass(&mut table, 1, 1_026, true);
    pass(&mut table, 100, 1_025, true);
    pass(&mut table, 130, 1_027, true);
    assert_eq!((ports(&mut table), table.len()), (vec![1_026], 2));
    pass(&mut table, 221, 1_027, true);
    assert_eq!((ports(&mut table), table.evicted()), (vec![1_025], 0));
    // Also if a datagram of the flow arrives before its turn.
    pass(&mut table, 222, 1_028, true);
    pass(&mut table, 222, 1_029, true);
    pass(&mut table, 343, 1_029, true);
    assert_eq!((ports(&mut table), table.len()), (vec![1_027, 1_028, 1_029], 1));
}

#[test]
fn a_clock_that_steps_back_ends_flows_as_one_that_steps_forward() {
    let mut table = Table::new(Limits::default());
    let at = |secs| Time::ZERO + Span::from_secs(secs);
    pass(&mut table, 10_000, 1_025, true);
    pass(&mut table, 10_000, 1_026, true);
    pass(&mut table, 9_800, 1_025, true);
    pass(&mut table, 9_000, 1_025, true);
    let [EndedFlow { flow, .. }] = &ended(&mut table)[..] else { panic!("one flow") };
    assert_eq!((flow.first(), flow.started(), flow.last()), (at(10_000), at(9_800), at(10_000)));
    let sent = flow.sent(Endpoint::Client).unwrap();
    assert_eq!((sent.first, sent.last, sent.packets), (at(9_800), at(10_000), 2));
    table.advance(at(9_300));
    assert_eq!((ports(&mut table), table.len()), (vec![], 2));
    table.advance(at(9_301));
    let mut over = ports(&mut table);
    over.sort_unstable();
    assert_eq!(over, [1_025, 1_026]);
}

#[test]
fn there_is_a_limit() {
    let mut table = Table::new(Limits { flows: 10, ..Limits::default() });
    for port in 0..1_000 {
        pass(&mut table, 0, port, true);
        assert!(table.len() <= 11);
    }
    assert_eq!(table.evicted(), 989);
    assert_eq!(ports(&mut table).len(), 989);
    assert!(table.examinations.len() <= 11);
}

/// The first datagram of a QUIC client, with the given connection ID of the server.
fn initial(id: &[u8]) -> Vec<u8> {
    sealed(Version::V1, id, 0, &[], &crypto(0, &hello(Version::V1)))
}

#[test]
fn a_port_that_is_used_again_is_another_flow() {
    let mut table = Table::new(Limits::default());
    let ports = [5_000, 8_443];
    for round in 0..1_000_u64 {
        let at = round * 100;
        let id = [ID, &round.to_be_bytes()].concat();
        handle_datagram(&mut table, at, ports, true, &initial(&id));
        handle_datagram(&mut table, at + 30, ports, true, &initial(&id));
        handle_datagram(&mut table, at + 60, ports, true, &[0x40; 40]);
        assert_eq!(ended(&mut table).len(), usize::from(round > 0));
        assert!(table.examinations.len() <= MAX_STALE_ENTRIES + 3, "{}", table.examinations.len());
    }
    // A late copy does not begin a flow.
    handle_datagram(
        &mut table,
        99_999,
        ports,
        true,
        &initial(&[ID, &999_u64.to_be_bytes()].concat()),
    );
    table.finish();
    let [last] = &ended(&mut table)[..] else { panic!("one is left") };
    assert_eq!(last.flow.sent(Endpoint::Client).unwrap().packets, 4);
}

#[test]
fn quic_is_found_by_what_it_says() {
    let rtp = [0x80, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8];
    let first = initial(ID);
    for (service, payload, times, expected) in [
        (8_443, &first[..], 1, Protocol::Quic),
        (443, &[0x5f; 40], 30, Protocol::MaybeQuic),
        (8_443, &[0x5f; 40], 30, Protocol::Unknown),
        (443, &[0x17; 40], 1, Protocol::Unknown),
        (443, &[], 1, Protocol::Unknown),
        (4_000, &rtp, 20, Protocol::Unknown),
        (4_000, &rtp, 3, Protocol::Unknown),
        (123, &[0xe3; 48], 2, Protocol::Unknown),
        (4_000, &[], 1, Protocol::Unknown),
        (53, DNS, 1, Protocol::Dns),
        (443, DNS, 1, Protocol::Dns),
    ] {
        let mut table = Table::new(Limits::default());
        for n in 0..times {
            handle_datagram(&mut table, n, [5_000, service], true, payload);
        }
        table.finish();
        let [ended] = &ended(&mut table)[..] else { panic!("one flow") };
        assert_eq!(ended.flow.protocol(), expected, "{service} {payload:x?}");
        let is_quic = [Protocol::Quic, Protocol::MaybeQuic].contains(&expected);
        assert_eq!(ended.flow.quic().is_some(), is_quic);
    }
    // Versions from before the standard, on any port.
    for (payload, name) in [
        (&b"\x0d12345678Q039 ..."[..], "Q039"),
        (b"\xc3Q046\x5012345678 ...", "Q046"),
        (b"\xc0T051\x0812345678\0 ...", "T051"),
        (b"\xff\xff\0\0\x12\x55 12345678 12345678 ...", "draft-18"),
        (b"\xc0\xff\0\0\x1d\x0812345678\0\0\x04 ...", "draft-29"),
        (b"\xc0\xfa\xce\xb0\x02\x0812345678\0\0\x04 ...", "mvfst faceb002"),
    ] {
        for service in [443, 8_443] {
            let mut table = Table::new(Limits::default());
            for n in 0..30 {
                handle_datagram(&mut table, n, [5_000, service], n % 2 == 0, payload);
            }
            table.finish();
            let flow = table.poll().unwrap().flow;
            let version = flow.quic().and_then(|quic| quic.undecrypted_version());
            let found = version.map(manyways_wire::quic::version::name);
            assert_eq!((flow.protocol(), found.as_deref()), (Protocol::Quic, Some(name)));
        }
    }
    // After another protocol on the same ports.
    let mut table = Table::new(Limits::default());
    handle_datagram(&mut table, 0, [5_000, 8_443], true, b"\x00\x01\x00\x00 a hole is made");
    handle_datagram(&mut table, 1, [5_000, 8_443], true, &first);
    table.finish();
    let flow = table.poll().unwrap().flow;
    let name = flow.quic().and_then(|quic| quic.client_hello()?.server_name.clone());
    assert_eq!(name.unwrap().as_str(), "shop.example.com");
    assert_eq!(flow.quic().and_then(|quic| quic.undecrypted_version()), None);
}

#[test]
fn exchanges_are_given_out_as_they_end() {
    let mut table = Table::new(Limits::default());
    let ports = [5_000, 443];
    let mut all = Vec::new();
    for (at, is_up) in [(0, true), (50, false), (100, true), (170, false)] {
        all.extend(handle_datagram(&mut table, at, ports, is_up, &[0x40; 400]));
    }
    table.finish();
    all.extend(table.poll().unwrap().exchange);
    let times: Vec<Span> = all.iter().map(Exchange::response_time).collect();
    assert_eq!(times, [Span::from_millis(50), Span::from_millis(70)]);
}

#[test]
fn time_ends_what_was_silent_without_a_datagram() {
    let mut table = Table::new(Limits { idle: Span::from_secs(120), ..Limits::default() });
    for port in 1..=9 {
        pass(&mut table, 0, port, true);
    }
    pass(&mut table, 100, 5, false);
    let at = |secs: u64| Time::from_millis(secs * 1_000);
    table.advance(at(120));
    assert_eq!(table.len(), 9);
    table.advance(at(121));
    assert_eq!((ports(&mut table).len(), table.len()), (8, 1));
    table.advance(at(221));
    assert_eq!((ports(&mut table), table.evicted()), (vec![5], 0));
}
