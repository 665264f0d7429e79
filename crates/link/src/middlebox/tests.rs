use std::net::IpAddr;

use etherparse::{
    IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpFragOffset, IpHeaders, Ipv6FragmentHeader,
    PacketBuilder, SlicedPacket, TcpHeader, TransportSlice, icmpv4, icmpv6,
};
use proptest::prelude::*;

use super::*;
use crate::segment::test_packets::{V4, V6, offloaded, tcp, udp, v4, v6, verify};
use crate::segment::{Gso, finish_checksum, plan, wire};

const EXTERNAL: [u8; 4] = [100, 64, 1, 1];
const INSIDE: [u8; 4] = V4.0;
const SERVER: [u8; 4] = V4.1;
const OTHER_SERVER: [u8; 4] = [198, 18, 0, 2];
const IDLE: Span = Span::from_secs(30);
const PLAIN: Offload = Offload {
    needs_csum: false,
    csum_start: 0,
    csum_offset: 0,
    gso: Gso::None,
    gso_size: 0,
    hdr_len: 0,
    ecn: false,
};

fn nat() -> Middlebox {
    Middlebox::nat(EXTERNAL.into(), IDLE)
}

fn at(seconds: u64) -> Time {
    Time::from_millis(seconds * 1_000)
}

/// Returns source and destination as `address:port`, or `address#identifier` for an echo.
fn endpoints(packet: &[u8]) -> (String, String) {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let net = sliced.net.unwrap();
    let (from, to): (IpAddr, IpAddr) = match (net.ipv4_ref(), net.ipv6_ref()) {
        (Some(ip), _) => (ip.header().source().into(), ip.header().destination().into()),
        (_, Some(ip)) => (ip.header().source().into(), ip.header().destination().into()),
        _ => unreachable!(),
    };
    match sliced.transport {
        Some(TransportSlice::Tcp(t)) => {
            (format!("{from}:{}", t.source_port()), format!("{to}:{}", t.destination_port()))
        }
        Some(TransportSlice::Udp(u)) => {
            (format!("{from}:{}", u.source_port()), format!("{to}:{}", u.destination_port()))
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let id = u16::from_be_bytes([icmp.bytes5to8()[0], icmp.bytes5to8()[1]]);
            (format!("{from}#{id}"), format!("{to}#{id}"))
        }
        _ => (from.to_string(), to.to_string()),
    }
}

fn datagram(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    udp(v4(from.0, to.0, 7, 0), (from.1, to.1), b"some payload")
}

fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), syn: bool) -> Vec<u8> {
    let mut header = TcpHeader::new(from.1, to.1, 1_000, 500);
    header.syn = syn;
    header.ack = !syn;
    header.acknowledgment_number = 5_000;
    tcp(v4(from.0, to.0, 7, 0), &header, if syn { b"" } else { b"data" })
}

/// Passes a packet, verifies the result and returns its ends; `None` if it was dropped.
fn pass(
    middlebox: &mut Middlebox,
    now: Time,
    from: Side,
    packet: &mut [u8],
) -> Option<(String, String)> {
    match middlebox.pass(now, from, packet, &PLAIN) {
        Verdict::Forward => {
            verify(packet);
            Some(endpoints(packet))
        }
        Verdict::Drop => None,
        answer => panic!("{answer:?}"),
    }
}

fn out(middlebox: &mut Middlebox, now: Time, mut packet: Vec<u8>) -> Option<(String, String)> {
    pass(middlebox, now, Side::Inside, &mut packet)
}

fn back(middlebox: &mut Middlebox, now: Time, mut packet: Vec<u8>) -> Option<(String, String)> {
    pass(middlebox, now, Side::Outside, &mut packet)
}

fn pair(from: &str, to: &str) -> Option<(String, String)> {
    Some((from.to_owned(), to.to_owned()))
}

#[test]
fn a_port_is_preserved_if_it_is_free() {
    let mut nat = nat();
    let one = out(&mut nat, at(0), datagram((INSIDE, 5_000), (SERVER, 53)));
    assert_eq!(one, pair("100.64.1.1:5000", "198.18.0.1:53"));
    let (_, second) = ([10, 64, 1, 2], [10, 64, 1, 3]);
    let other = out(&mut nat, at(0), datagram((second, 5_000), (SERVER, 53))).unwrap().0;
    let port: u16 = other.strip_prefix("100.64.1.1:").unwrap().parse().unwrap();
    assert!(port != 5_000 && port >= FIRST_PORT);
    // Each answer reaches its host.
    let answer = back(&mut nat, at(1), datagram((SERVER, 53), (EXTERNAL, 5_000)));
    assert_eq!(answer, pair("198.18.0.1:53", "10.64.1.2:5000"));
    let answer = back(&mut nat, at(1), datagram((SERVER, 53), (EXTERNAL, port)));
    assert_eq!(answer, pair("198.18.0.1:53", "10.64.1.3:5000"));
    // TCP has separate ports.
    let tcp = out(&mut nat, at(1), segment((second, 5_000), (SERVER, 443), true));
    assert_eq!(tcp, pair("100.64.1.1:5000", "198.18.0.1:443"));
}

#[test]
fn mapping_and_filtering_are_endpoint_independent() {
    let mut nat = nat();
    out(&mut nat, at(0), datagram((INSIDE, 5_000), (SERVER, 53)));
    let again = out(&mut nat, at(1), datagram((INSIDE, 5_000), (OTHER_SERVER, 99)));
    assert_eq!(again, pair("100.64.1.1:5000", "198.18.0.2:99"));
    assert_eq!(nat.counters().mappings, 1);
    let stranger = back(&mut nat, at(2), datagram(([203, 0, 113, 9], 1), (EXTERNAL, 5_000)));
    assert_eq!(stranger, pair("203.0.113.9:1", "10.64.1.2:5000"));
    assert_eq!(back(&mut nat, at(2), datagram((SERVER, 53), (EXTERNAL, 5_001))), None);
    // No outside endpoint can reach an inside address directly.
    assert_eq!(back(&mut nat, at(2), datagram((SERVER, 53), (INSIDE, 5_000))), None);
    // No inside endpoint may use the address of the NAT.
    assert_eq!(out(&mut nat, at(2), datagram((EXTERNAL, 6_000), (SERVER, 53))), None);
    // No hairpinning.
    assert_eq!(out(&mut nat, at(2), datagram((INSIDE, 6_000), (EXTERNAL, 5_000))), None);
    assert_eq!(nat.counters().dropped, 4);
}

#[test]
fn an_idle_mapping_is_forgotten_and_a_used_one_is_not() {
    let mut nat = nat();
    out(&mut nat, at(0), datagram((INSIDE, 5_000), (SERVER, 53)));
    out(&mut nat, at(0), datagram((INSIDE, 6_000), (SERVER, 53)));
    assert!(back(&mut nat, at(20), datagram((SERVER, 53), (EXTERNAL, 5_000))).is_some());
    let last = at(50) - Span::from_nanos(1);
    assert!(back(&mut nat, last, datagram((SERVER, 53), (EXTERNAL, 5_000))).is_some());
    assert_eq!(back(&mut nat, last, datagram((SERVER, 53), (EXTERNAL, 6_000))), None);
    assert_eq!((nat.counters().expired, nat.counters().mappings), (1, 1));
    let end = last + IDLE;
    assert_eq!(back(&mut nat, end, datagram((SERVER, 53), (EXTERNAL, 5_000))), None);
    assert_eq!((nat.counters().expired, nat.counters().mappings), (2, 0));
    // A datagram from inside creates a new mapping.
    assert!(out(&mut nat, end, datagram((INSIDE, 5_000), (SERVER, 53))).is_some());
    assert_eq!(nat.counters().created, 3);
}

#[test]
fn a_restart_removes_all_mappings() {
    let Middlebox::Nat(mut nat) = nat() else { unreachable!() };
    let parts = fragments(&udp(v4(INSIDE, SERVER, 1, 0), (5_000, 53), &[7; 3_000]), 1_480);
    let pass =
        |nat: &mut Nat, from: Side, mut packet: Vec<u8>| nat.pass(at(1), from, &mut packet, &PLAIN);
    let answer = datagram((SERVER, 53), (EXTERNAL, 5_000));
    assert_eq!(pass(&mut nat, Side::Inside, parts[0].clone()), Verdict::Forward);
    assert_eq!(pass(&mut nat, Side::Inside, parts[1].clone()), Verdict::Forward);
    assert_eq!(pass(&mut nat, Side::Outside, answer.clone()), Verdict::Forward);
    nat.restart();
    assert_eq!(pass(&mut nat, Side::Outside, answer), Verdict::Drop);
    assert_eq!(pass(&mut nat, Side::Inside, parts[1].clone()), Verdict::Drop);
    assert_eq!((nat.counters().mappings, nat.counters().expired), (0, 0));
    // The table works as before.
    assert_eq!(pass(&mut nat, Side::Inside, parts[0].clone()), Verdict::Forward);
    assert_eq!((nat.counters().mappings, nat.counters().created), (1, 2));
}

#[test]
fn a_forgotten_connection_hangs() {
    let mut nat = nat();
    assert!(out(&mut nat, at(0), segment((INSIDE, 5_000), (SERVER, 443), true)).is_some());
    assert!(out(&mut nat, at(29), segment((INSIDE, 5_000), (SERVER, 443), false)).is_some());
    assert!(back(&mut nat, at(58), segment((SERVER, 443), (EXTERNAL, 5_000), false)).is_some());
    assert_eq!(out(&mut nat, at(88), segment((INSIDE, 5_000), (SERVER, 443), false)), None);
    assert_eq!(back(&mut nat, at(88), segment((SERVER, 443), (EXTERNAL, 5_000), false)), None);
    assert!(out(&mut nat, at(89), segment((INSIDE, 5_000), (SERVER, 443), true)).is_some());
}

#[test]
fn an_expired_connection_is_reset_if_configured() {
    for v6_ in [false, true] {
        let nat = Nat::new(EXTERNAL.into(), IDLE).with_unmapped_tcp(UnmappedTcp::Reset);
        let mut nat = Middlebox::Nat(Box::new(nat));
        let mut header = TcpHeader::new(5_000, 443, 1_000, 500);
        (header.ack, header.acknowledgment_number) = (true, 77);
        let build = |header: &TcpHeader| {
            let ip = if v6_ { v6(V6.0, V6.1, 2) } else { v4(INSIDE, SERVER, 3, 3) };
            tcp(ip, header, b"data")
        };
        let mut packet = build(&header);
        let asked = endpoints(&packet);
        let Verdict::Answer { length } = nat.pass(at(0), Side::Inside, &mut packet, &PLAIN) else {
            panic!("no answer");
        };
        verify(&packet[..length]);
        assert_eq!(endpoints(&packet[..length]), (asked.1.clone(), asked.0.clone()));
        let reset = |packet: &[u8]| match SlicedPacket::from_ip(packet).unwrap().transport {
            Some(TransportSlice::Tcp(tcp)) => {
                assert!(tcp.rst());
                (tcp.sequence_number(), tcp.acknowledgment_number(), tcp.ack())
            }
            _ => panic!("no TCP"),
        };
        assert_eq!(reset(&packet[..length]), (77, 0, false));
        (header.ack, header.fin) = (false, true);
        let mut packet = build(&header);
        let Verdict::Answer { length } = nat.pass(at(0), Side::Inside, &mut packet, &PLAIN) else {
            panic!("no answer");
        };
        verify(&packet[..length]);
        assert_eq!(reset(&packet[..length]), (0, 1_005, true));
        header.rst = true;
        let mut packet = build(&header);
        assert_eq!(nat.pass(at(0), Side::Inside, &mut packet, &PLAIN), Verdict::Drop);
    }
}

#[test]
fn the_one_idle_longest_makes_room() {
    let mut nat = Middlebox::Nat(Box::new(Nat::new(EXTERNAL.into(), IDLE).with_max_mappings(2)));
    out(&mut nat, at(0), datagram((INSIDE, 1_001), (SERVER, 53)));
    out(&mut nat, at(1), datagram((INSIDE, 1_002), (SERVER, 53)));
    out(&mut nat, at(2), datagram((INSIDE, 1_001), (SERVER, 53)));
    out(&mut nat, at(3), datagram((INSIDE, 1_003), (SERVER, 53)));
    assert_eq!(back(&mut nat, at(4), datagram((SERVER, 53), (EXTERNAL, 1_002))), None);
    assert!(back(&mut nat, at(4), datagram((SERVER, 53), (EXTERNAL, 1_001))).is_some());
    assert!(back(&mut nat, at(4), datagram((SERVER, 53), (EXTERNAL, 1_003))).is_some());
    let counters = nat.counters();
    assert_eq!((counters.mappings, counters.created, counters.evicted), (2, 3, 1));
}

#[test]
fn a_full_table_still_finds_ports() {
    let mut nat = nat();
    // All hosts use the same ports.
    for host in 0..=255_u8 {
        for port in 0..70 {
            let from = ([10, 64, 2, host], u16::MAX - port);
            let seen = out(&mut nat, at(0), datagram(from, (SERVER, 53))).unwrap().0;
            let seen: u16 = seen.strip_prefix("100.64.1.1:").unwrap().parse().unwrap();
            assert!(seen >= FIRST_PORT);
        }
    }
    let counters = nat.counters();
    assert_eq!(counters.mappings as usize, MAX_MAPPINGS);
    assert_eq!(counters.created, 256 * 70);
    assert_eq!(counters.evicted as usize, 256 * 70 - MAX_MAPPINGS);
}

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    let mut nat = nat();
    out(&mut nat, at(0), datagram(([10, 64, 1, 9], 5_000), (SERVER, 53)));
    let mut packet = datagram((INSIDE, 5_000), (SERVER, 53));
    packet[26..28].fill(0);
    assert!(pass(&mut nat, at(0), Side::Inside, &mut packet).is_some());
    assert_eq!(packet[26..28], [0, 0]);
}

#[test]
fn a_datagrams_checksum_never_becomes_none() {
    // One of 65,536 payloads has a checksum of zero, which would mean that there is none.
    let mut zeros = 0;
    for payload in 0..=u16::MAX {
        let mut packet = udp(v4(INSIDE, SERVER, 7, 0), (5_000, 53), &payload.to_be_bytes());
        nat().pass(at(0), Side::Inside, &mut packet, &PLAIN);
        verify(&packet);
        assert_ne!(packet[26..28], [0, 0]);
        zeros += u32::from(packet[26..28] == [0xff, 0xff]);
    }
    assert_eq!(zeros, 1);
}

fn echo(from: [u8; 4], to: [u8; 4], id: u16, request: bool) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ip(v4(from, to, 7, 0));
    let builder =
        if request { builder.icmpv4_echo_request(id, 3) } else { builder.icmpv4_echo_reply(id, 3) };
    builder.write(&mut packet, b"ping").unwrap();
    packet
}

#[test]
fn echoes_are_translated_by_their_identifier() {
    let mut nat = nat();
    assert_eq!(
        out(&mut nat, at(0), echo(INSIDE, SERVER, 9, true)),
        pair("100.64.1.1#9", "198.18.0.1#9")
    );
    let second = out(&mut nat, at(0), echo([10, 64, 1, 3], SERVER, 9, true)).unwrap().0;
    let id: u16 = second.strip_prefix("100.64.1.1#").unwrap().parse().unwrap();
    assert_ne!(id, 9);
    assert_eq!(
        back(&mut nat, at(1), echo(SERVER, EXTERNAL, id, false)),
        pair("198.18.0.1#9", "10.64.1.3#9")
    );
    assert_eq!(back(&mut nat, at(1), echo(SERVER, EXTERNAL, 9, true)), None, "a request");
    assert_eq!(back(&mut nat, at(31), echo(SERVER, EXTERNAL, 9, false)), None, "forgotten");
}

/// Builds an ICMP error from `from` to `to` that quotes `length` bytes of a packet.
fn error(from: [u8; 4], to: [u8; 4], quoted: &[u8], length: usize) -> Vec<u8> {
    let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port);
    let mut packet = Vec::new();
    PacketBuilder::ip(v4(from, to, 7, 0))
        .icmpv4(kind)
        .write(&mut packet, &quoted[..length.min(quoted.len())])
        .unwrap();
    packet
}

/// Returns the packet that an error quotes.
fn quote(packet: &[u8]) -> &[u8] {
    let (_, rest) = IpHeaders::from_slice(packet).unwrap();
    &rest.payload[8..]
}

#[test]
fn errors_from_outside_are_translated_inside() {
    for length in [28, 32, 64] {
        let mut nat = nat();
        out(&mut nat, at(0), datagram(([10, 64, 1, 9], 5_000), (SERVER, 1)));
        let original = datagram((INSIDE, 5_000), (SERVER, 53));
        let mut sent = original.clone();
        let seen = pass(&mut nat, at(0), Side::Inside, &mut sent).unwrap().0;
        assert_ne!(seen, "100.64.1.1:5000", "the port had to change");
        let mut packet = error([192, 0, 2, 1], EXTERNAL, &sent, length);
        let got = pass(&mut nat, at(1), Side::Outside, &mut packet).unwrap();
        assert_eq!(got.1.split('#').next(), Some("10.64.1.2"));
        // The error quotes the packet that the device sent, checksums included.
        let quoted = quote(&packet);
        assert_eq!(quoted, &original[..quoted.len()]);
        // About a packet that was never sent.
        let strange = datagram((EXTERNAL, 1_234), (SERVER, 53));
        let mut packet = error([192, 0, 2, 1], EXTERNAL, &strange, 64);
        assert_eq!(pass(&mut nat, at(1), Side::Outside, &mut packet), None);
        let mut packet = error([192, 0, 2, 1], EXTERNAL, &original, 64);
        assert_eq!(pass(&mut nat, at(1), Side::Outside, &mut packet), None);
    }
}

#[test]
fn errors_from_outside_about_tcp_and_echoes_are_translated() {
    let mut nat = nat();
    for original in [segment((INSIDE, 5_000), (SERVER, 443), true), echo(INSIDE, SERVER, 8, true)] {
        // Another host has the port, so that it changes.
        let mut first = original.clone();
        first[15] = 200;
        let fix = crate::segment::checksum::sum(&first[..10]);
        let rest = crate::segment::checksum::sum(&first[12..20]);
        let sum = !crate::segment::checksum::add(fix, rest);
        first[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(nat.pass(at(0), Side::Inside, &mut first, &PLAIN), Verdict::Forward);
        let mut sent = original.clone();
        pass(&mut nat, at(0), Side::Inside, &mut sent).unwrap();
        assert_ne!(sent[20..26], original[20..26]);
        let mut packet = error(SERVER, EXTERNAL, &sent, 40);
        pass(&mut nat, at(1), Side::Outside, &mut packet).unwrap();
        let quoted = quote(&packet);
        assert_eq!(quoted, &original[..quoted.len()]);
    }
    // An echo reply did not pass through this NAT.
    out(&mut nat, at(1), echo(INSIDE, SERVER, 77, true));
    let mut packet = error(SERVER, EXTERNAL, &echo(EXTERNAL, SERVER, 77, false), 40);
    assert_eq!(pass(&mut nat, at(1), Side::Outside, &mut packet), None);
}

#[test]
fn errors_from_inside_are_translated_too() {
    let mut nat = nat();
    out(&mut nat, at(0), datagram(([10, 64, 1, 9], 5_000), (SERVER, 1)));
    let mut sent = datagram((INSIDE, 5_000), (SERVER, 53));
    let seen = pass(&mut nat, at(0), Side::Inside, &mut sent).unwrap().0;
    let port: u16 = seen.rsplit(':').next().unwrap().parse().unwrap();
    let arriving = datagram((SERVER, 53), (EXTERNAL, port));
    let mut arrived = arriving.clone();
    pass(&mut nat, at(0), Side::Outside, &mut arrived).unwrap();
    let mut packet = error(INSIDE, SERVER, &arrived, 64);
    let got = pass(&mut nat, at(1), Side::Inside, &mut packet).unwrap();
    assert_eq!(got.0.split('#').next(), Some("100.64.1.1"));
    assert_eq!(quote(&packet), arriving);
    // About a packet that was never let in.
    let never = datagram((SERVER, 53), (INSIDE, 4_999));
    let mut packet = error(INSIDE, SERVER, &never, 64);
    assert_eq!(pass(&mut nat, at(1), Side::Inside, &mut packet), None);
    // An error does not refresh a mapping.
    let mut packet = error(INSIDE, SERVER, &arrived, 64);
    assert!(pass(&mut nat, at(29), Side::Inside, &mut packet).is_some());
    assert_eq!(back(&mut nat, at(30), datagram((SERVER, 53), (EXTERNAL, port))), None);
}

/// Splits a datagram into fragments of at most `size` payload bytes, a multiple of 8.
fn fragments(whole: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (IpHeaders::Ipv4(header, _), rest) = IpHeaders::from_slice(whole).unwrap() else {
        unreachable!()
    };
    let payload = rest.payload;
    (0..payload.len())
        .step_by(size)
        .map(|begin| {
            let end = payload.len().min(begin + size);
            let mut header = header.clone();
            header.dont_fragment = false;
            header.more_fragments = end < payload.len();
            header.fragment_offset = IpFragOffset::try_new((begin / 8) as u16).unwrap();
            header.set_payload_len(end - begin).unwrap();
            header.header_checksum = header.calc_header_checksum();
            [&header.to_bytes()[..], &payload[begin..end]].concat()
        })
        .collect()
}

/// Reassembles fragments that arrived in order.
fn reassembled(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for fragment in fragments {
        payload.extend_from_slice(&fragment[20..]);
    }
    let (IpHeaders::Ipv4(mut header, _), _) = IpHeaders::from_slice(&fragments[0]).unwrap() else {
        unreachable!()
    };
    header.more_fragments = false;
    header.set_payload_len(payload.len()).unwrap();
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], &payload].concat()
}

#[test]
fn fragments_follow_the_first_one() {
    let mut nat = nat();
    let whole = udp(v4(INSIDE, SERVER, 99, 0), (5_000, 53), &[7; 3_000]);
    let mut parts = fragments(&whole, 1_480);
    assert_eq!(parts.len(), 3);
    // A later fragment before the first one belongs to no known packet.
    assert_eq!(out(&mut nat, at(0), parts[1].clone()), None);
    for part in &mut parts {
        assert_eq!(nat.pass(at(0), Side::Inside, part, &PLAIN), Verdict::Forward);
    }
    let got = reassembled(&parts);
    verify(&got);
    assert_eq!(Some(endpoints(&got)), pair("100.64.1.1:5000", "198.18.0.1:53"));

    let answer = udp(v4(SERVER, EXTERNAL, 98, 0), (53, 5_000), &[8; 3_000]);
    let mut parts = fragments(&answer, 1_480);
    assert_eq!(back(&mut nat, at(1), parts[2].clone()), None);
    for part in &mut parts {
        assert_eq!(nat.pass(at(1), Side::Outside, part, &PLAIN), Verdict::Forward);
    }
    let got = reassembled(&parts);
    verify(&got);
    assert_eq!(Some(endpoints(&got)), pair("198.18.0.1:53", "10.64.1.2:5000"));
    let late = fragments(&answer, 1_480).remove(2);
    assert_eq!(back(&mut nat, at(31), late), None, "half a minute is enough");
}

#[test]
fn many_fragmented_packets_are_forgotten_in_order() {
    let mut nat = nat();
    let parts = |id| fragments(&udp(v4(INSIDE, SERVER, id, 0), (5_000, 53), &[7; 3_000]), 1_480);
    for id in 0..200 {
        assert!(nat.pass(at(0), Side::Inside, &mut parts(id)[0], &PLAIN) == Verdict::Forward);
    }
    let known = |nat: &mut Middlebox, id: u16| {
        nat.pass(at(0), Side::Inside, &mut parts(id)[1], &PLAIN) == Verdict::Forward
    };
    assert!(known(&mut nat, 199) && known(&mut nat, 136));
    assert!(!known(&mut nat, 135));
}

#[test]
fn ipv6_is_let_out_and_its_answers_in() {
    let mut nat = nat();
    let datagram = |from: ([u8; 16], u16), to: ([u8; 16], u16)| {
        udp(v6(from.0, to.0, 0), (from.1, to.1), b"some payload")
    };
    let (inside, server) = (V6.0, V6.1);
    let unchanged = |packet: Vec<u8>| Some(endpoints(&packet));
    let answer = || datagram((server, 53), (inside, 5_000));
    assert_eq!(back(&mut nat, at(0), answer()), None);
    let question = datagram((inside, 5_000), (server, 53));
    assert_eq!(out(&mut nat, at(0), question.clone()), unchanged(question));
    assert_eq!(back(&mut nat, at(29), answer()), unchanged(answer()));
    assert_eq!(back(&mut nat, at(59), answer()), None);
    // TCP without a SYN creates no mapping.
    let mut header = TcpHeader::new(5_000, 443, 1, 1);
    header.ack = true;
    assert_eq!(out(&mut nat, at(60), tcp(v6(inside, server, 1), &header, b"x")), None);
    (header.ack, header.syn) = (false, true);
    assert!(out(&mut nat, at(60), tcp(v6(inside, server, 1), &header, b"")).is_some());
}

#[test]
fn ipv6_echoes_and_errors_are_let_in_where_they_answer_something() {
    let mut nat = nat();
    let (inside, server) = (V6.0, V6.1);
    let icmp = |from, to, kind: Icmpv6Type, payload: &[u8]| {
        let mut packet = Vec::new();
        PacketBuilder::ip(v6(from, to, 0)).icmpv6(kind).write(&mut packet, payload).unwrap();
        packet
    };
    let header = IcmpEchoHeader { id: 4, seq: 1 };
    let request = icmp(inside, server, Icmpv6Type::EchoRequest(header), b"ping");
    let reply = icmp(server, inside, Icmpv6Type::EchoReply(header), b"ping");
    let unreachable = |quoted: &[u8]| {
        let code = icmpv6::DestUnreachableCode::Port;
        icmp(server, inside, Icmpv6Type::DestinationUnreachable(code), quoted)
    };
    assert_eq!(back(&mut nat, at(0), reply.clone()), None);
    assert_eq!(back(&mut nat, at(0), unreachable(&request)), None);
    assert!(out(&mut nat, at(0), request.clone()).is_some());
    assert!(back(&mut nat, at(0), reply.clone()).is_some());
    assert!(back(&mut nat, at(0), unreachable(&request)).is_some());
    assert_eq!(back(&mut nat, at(0), unreachable(&reply)), None, "the device never sent that");
    let strange = icmp(server, inside, Icmpv6Type::EchoRequest(header), b"ping");
    assert_eq!(back(&mut nat, at(0), strange), None);
}

#[test]
fn ipv6_fragments_follow_the_first_one() {
    let mut nat = nat();
    let fragment = |from, to, id, offset: u16, more, payload: &[u8]| {
        let IpHeaders::Ipv6(header, mut extensions) = v6(from, to, 0) else { unreachable!() };
        extensions.fragment = Some(Ipv6FragmentHeader::new(
            etherparse::IpNumber::UDP,
            IpFragOffset::try_new(offset).unwrap(),
            more,
            id,
        ));
        let mut ip = IpHeaders::Ipv6(header, extensions);
        ip.set_next_headers(etherparse::IpNumber::UDP);
        ip.set_payload_len(payload.len()).unwrap();
        let mut packet = Vec::new();
        ip.write(&mut packet).unwrap();
        packet.extend_from_slice(payload);
        packet
    };
    let whole = udp(v6(V6.0, V6.1, 0), (5_000, 53), &[1; 2_000]);
    let (first, rest) = whole[40..].split_at(1_400);
    let forward = |nat: &mut Middlebox, side, mut packet: Vec<u8>| {
        let before = packet.clone();
        let verdict = nat.pass(at(0), side, &mut packet, &PLAIN);
        assert_eq!(packet, before);
        verdict == Verdict::Forward
    };
    assert!(!forward(&mut nat, Side::Inside, fragment(V6.0, V6.1, 5, 175, false, rest)));
    assert!(forward(&mut nat, Side::Inside, fragment(V6.0, V6.1, 5, 0, true, first)));
    assert!(forward(&mut nat, Side::Inside, fragment(V6.0, V6.1, 5, 175, false, rest)));
    assert!(!forward(&mut nat, Side::Inside, fragment(V6.0, V6.1, 6, 175, false, rest)));
    assert!(!forward(&mut nat, Side::Outside, fragment(V6.1, V6.0, 5, 175, false, rest)));
}

#[test]
fn other_protocols_pass_over_ipv6_only() {
    let raw = |mut ip: IpHeaders| {
        ip.set_next_headers(etherparse::IpNumber::GRE);
        ip.set_payload_len(8).unwrap();
        let mut packet = Vec::new();
        ip.write(&mut packet).unwrap();
        packet.extend([0; 8]);
        packet
    };
    let mut nat = nat();
    let mut drop = raw(v4(INSIDE, SERVER, 1, 0));
    assert_eq!(nat.pass(at(0), Side::Inside, &mut drop, &PLAIN), Verdict::Drop);
    let mut inward = raw(v6(V6.1, V6.0, 0));
    assert_eq!(nat.pass(at(0), Side::Outside, &mut inward, &PLAIN), Verdict::Drop);
    let mut outward = raw(v6(V6.0, V6.1, 0));
    assert_eq!(nat.pass(at(0), Side::Inside, &mut outward, &PLAIN), Verdict::Forward);
    assert_eq!(nat.pass(at(0), Side::Outside, &mut inward, &PLAIN), Verdict::Forward);
}

/// Options of a SYN as an MPTCP host sends them, with MP_CAPABLE at an odd offset.
const SYN_OPTIONS: [u8; 24] =
    [2, 4, 5, 180, 1, 4, 2, 1, 1, 30, 12, 0x01, 0x81, 1, 2, 3, 4, 5, 6, 7, 8, 3, 3, 7];

#[test]
fn mptcp_is_taken_out() {
    let mut strip = Middlebox::strip_mptcp();
    for ip in [v4(INSIDE, SERVER, 1, 2), v6(V6.0, V6.1, 3)] {
        let mut header = TcpHeader::new(5_000, 443, 1, 1);
        header.syn = true;
        header.set_options_raw(&SYN_OPTIONS).unwrap();
        let mut packet = tcp(ip.clone(), &header, b"");
        assert_eq!(strip.pass(at(0), Side::Inside, &mut packet, &PLAIN), Verdict::Forward);
        let mut options = SYN_OPTIONS;
        options[9..21].fill(1);
        header.set_options_raw(&options).unwrap();
        assert_eq!(packet, tcp(ip, &header, b""));
        verify(&packet);
    }
    assert_eq!(strip.counters().stripped, 2);
}

#[test]
fn a_sum_that_is_still_to_be_computed_stays() {
    let mut header = TcpHeader::new(5_000, 443, 1, 1);
    header.set_options_raw(&SYN_OPTIONS).unwrap();
    let mut packet = tcp(v4(INSIDE, SERVER, 1, 0), &header, b"");
    let offload = offloaded(&mut packet, None);
    Middlebox::strip_mptcp().pass(at(0), Side::Outside, &mut packet, &offload);
    finish_checksum(&mut packet, &offload);
    verify(&packet);
}

#[test]
fn options_that_make_no_sense_stay_as_they_are() {
    for options in [
        [30, 0, 1, 1], // a length below two
        [1, 1, 1, 30], // no length at all
        [1, 1, 30, 9], // beyond the header
        [0, 30, 3, 1], // after the end
        [8, 4, 30, 2], // inside another option
    ] {
        let mut header = TcpHeader::new(5_000, 443, 1, 1);
        header.set_options_raw(&options).unwrap();
        let before = tcp(v4(INSIDE, SERVER, 1, 0), &header, b"x");
        let mut packet = before.clone();
        Middlebox::strip_mptcp().pass(at(0), Side::Outside, &mut packet, &PLAIN);
        assert_eq!(packet, before);
    }
}

/// A packet from inside, before any offload.
fn outward() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..3_000);
    // Few ports, so that hosts use the same ones.
    (0..4_usize, (1..6_u16, 1..9_u16), 0..=6_usize, 2..12_u8, payload).prop_map(
        |(kind, (port, other), options, host, payload)| {
            let from = [10, 64, 1, host];
            match kind {
                0 => udp(v4(from, SERVER, other, options), (port, other), &payload),
                1 => echo(from, SERVER, port, true),
                _ => {
                    let mut header = TcpHeader::new(port, other, 1, 1);
                    header.syn = true;
                    header.set_options_raw(&vec![1; options * 4]).unwrap();
                    tcp(v4(from, SERVER, 1, options), &header, &payload)
                }
            }
        },
    )
}

/// Returns the answer to a packet: its ends swapped, and for an echo request the reply.
fn answer(packet: &[u8]) -> Vec<u8> {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let ip = sliced.net.unwrap().ipv4_ref().unwrap().header().to_header();
    let (from, to) = (ip.destination, ip.source);
    match sliced.transport.unwrap() {
        TransportSlice::Tcp(t) => {
            segment((from, t.destination_port()), (to, t.source_port()), false)
        }
        TransportSlice::Udp(u) => datagram((from, u.destination_port()), (to, u.source_port())),
        TransportSlice::Icmpv4(icmp) => {
            echo(from, to, u16::from_be_bytes([icmp.bytes5to8()[0], icmp.bytes5to8()[1]]), false)
        }
        _ => unreachable!(),
    }
}

proptest! {
    #[test]
    fn out_and_back_restores_the_addresses(
        packets in prop::collection::vec((outward(), any::<bool>(), 200..1_500_u16), 1..20),
    ) {
        let mut nat = nat();
        for (original, pending, size) in packets {
            let before = endpoints(&original);
            let mut packet = original.clone();
            let transport_is_icmp = original[9] == 1;
            let offload = if pending && !transport_is_icmp {
                offloaded(&mut packet, Some(size))
            } else {
                PLAIN
            };
            let verdict = nat.pass(at(0), Side::Inside, &mut packet, &offload);
            prop_assert_eq!(verdict, Verdict::Forward);
            // Each wire packet is correct, segmented or not.
            let plan = plan(&packet, &offload).unwrap();
            let mut wires = Vec::new();
            for index in 0..plan.segments {
                let mut one = Vec::new();
                wire(&packet, &offload, &plan, index, &mut one);
                verify(&one);
                wires.push(one);
            }
            let seen = endpoints(&wires[0]);
            prop_assert!(seen.0.starts_with("100.64.1.1"));
            prop_assert_eq!(&seen.1.split(['#', ':']).next(), &before.1.split(['#', ':']).next());
            let mut back = answer(&wires[0]);
            prop_assert_eq!(nat.pass(at(0), Side::Outside, &mut back, &PLAIN), Verdict::Forward);
            verify(&back);
            prop_assert_eq!(endpoints(&back).1, before.0);
        }
    }

    #[test]
    fn any_bytes_are_safe(
        packets in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..200), any::<[u8; 10]>()), 1..20),
    ) {
        let reset = Nat::new(EXTERNAL.into(), IDLE).with_unmapped_tcp(UnmappedTcp::Reset);
        let mut boxes = [nat(), Middlebox::Nat(Box::new(reset)), Middlebox::strip_mptcp()];
        for (device, packet, header) in packets {
            let side = if device { Side::Inside } else { Side::Outside };
            for middlebox in &mut boxes {
                middlebox.pass(at(0), side, &mut packet.clone(), &Offload::from_bytes(&header));
            }
        }
    }

    /// Slightly damaged packets get further than random bytes.
    #[test]
    fn damaged_packets_are_safe(
        packets in prop::collection::vec((outward(), any::<[(prop::sample::Index, u8); 3]>()), 1..10),
        lengths in prop::collection::vec(0..120_usize, 10),
    ) {
        let reset = Nat::new(EXTERNAL.into(), IDLE).with_unmapped_tcp(UnmappedTcp::Reset);
        let mut boxes = [nat(), Middlebox::Nat(Box::new(reset)), Middlebox::strip_mptcp()];
        for ((packet, damage), length) in packets.into_iter().zip(lengths) {
            let error = error(SERVER, EXTERNAL, &packet, length);
            for (side, mut packet) in [(Side::Inside, packet), (Side::Outside, error)] {
                for (at, byte) in damage {
                    let at = at.index(packet.len().min(80));
                    packet[at] = byte;
                }
                if length % 3 == 0 {
                    packet.truncate(length);
                }
                for middlebox in &mut boxes {
                    middlebox.pass(at(0), side, &mut packet.clone(), &PLAIN);
                }
            }
        }
    }
}

#[test]
fn noise_is_dropped_by_a_nat_and_not_by_a_stripper() {
    let mut noise = [0xff; 40];
    assert_eq!(nat().pass(at(0), Side::Inside, &mut noise, &PLAIN), Verdict::Drop);
    let mut strip = Middlebox::strip_mptcp();
    assert_eq!(strip.pass(at(0), Side::Inside, &mut noise, &PLAIN), Verdict::Forward);
    assert_eq!(noise, [0xff; 40]);
}
