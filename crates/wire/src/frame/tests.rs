mod encapsulations;
mod wifi;

use proptest::prelude::*;

use super::*;

const ALICE: [u8; 4] = [192, 0, 2, 1];
const BOB: [u8; 4] = [198, 51, 100, 2];

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let head = [&[0x45, 0x02][..], &length.to_be_bytes(), &[0, 7, 0, 0, 64, protocol, 0, 0]];
    [&head.concat()[..], &ALICE, &BOB, payload].concat()
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let head = [&[0x60, 0x30, 0, 0][..], &length, &[next, 63]].concat();
    [&head[..], &address(1), &address(2), payload].concat()
}

fn address(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    [address[0], address[1], address[15]] = [0x20, 0x01, last];
    address
}

fn udp(from: u16, to: u16, content: &[u8]) -> Vec<u8> {
    let length = (8 + content.len()) as u16;
    let head = [from, to, length, 0].map(u16::to_be_bytes).concat();
    v4(17, &[&head[..], content].concat())
}

fn ethernet(protocol: u16, content: &[u8]) -> Vec<u8> {
    [&[1; 6][..], &[2; 6], &protocol.to_be_bytes(), content].concat()
}

fn read(link: LinkType, frame: &[u8]) -> Result<IpPacket<'_>, SkipReason> {
    ip_packet(link, frame, frame.len())
}

/// Checks that the frame contains the IP packet used by most of these tests.
fn is_the_packet(link: LinkType, frame: &[u8]) {
    let found = read(link, frame).unwrap_or_else(|reason| panic!("{link:?}: {reason:?}"));
    let expected = IpPacket {
        source: ALICE.into(),
        destination: BOB.into(),
        protocol: 6,
        payload: b"payload",
        payload_length: 7,
        length: 27,
        fragment: None,
        ecn: 2,
        id: 7,
        hop_limit: 64,
        is_tunnelled: found.is_tunnelled,
    };
    assert_eq!(found, expected, "{link:?}");
    // A shorter part of the frame contains the same packet or none.
    for end in 0..frame.len() {
        match ip_packet(link, &frame[..end], frame.len()) {
            Ok(cut) if !found.is_tunnelled || cut.is_tunnelled => {
                assert_eq!(IpPacket { payload: found.payload, ..cut }, found);
                assert!(found.payload.starts_with(cut.payload));
            }
            Ok(outer) => assert!(matches!(outer.protocol, 4 | 17 | 41 | 47), "{outer:?}"),
            Err(reason) => assert_eq!(reason, SkipReason::Broken, "{link:?} {end}"),
        }
    }
}

#[test]
fn ip_is_found_on_every_link_type() {
    let packet = v4(6, b"payload");
    let after = |head: &[u8]| [head, &packet].concat();
    for link in [LinkType::RAW, LinkType::IPV4] {
        is_the_packet(link, &packet);
    }
    is_the_packet(LinkType::ETHERNET, &ethernet(0x0800, &packet));
    // Ethernet frames are padded to their minimum length.
    let padded = [ethernet(0x0800, &packet), vec![0xee; 19]].concat();
    assert_eq!(read(LinkType::ETHERNET, &padded).unwrap().payload, b"payload");
    is_the_packet(LinkType::SLL, &after(&[&[0; 14][..], &[8, 0]].concat()));
    is_the_packet(LinkType::SLL2, &after(&[&[8, 0][..], &[0; 18]].concat()));
    is_the_packet(LinkType::NULL, &after(&[2, 0, 0, 0]));
    is_the_packet(LinkType::NULL, &after(&[0, 0, 0, 2]));
    is_the_packet(LinkType::LOOP, &after(&[0, 0, 0, 2]));
    is_the_packet(LinkType::PPP, &after(&[0xff, 3, 0, 0x21]));
    is_the_packet(LinkType::PPP, &after(&[0, 0x21]));
    is_the_packet(LinkType::PPP, &after(&[0x21]));
    is_the_packet(LinkType::PPPOE, &after(&[0x11, 0, 0, 9, 0, 29, 0, 0x21]));
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    for (kind, flags, header) in [(0x08, 1, 24), (0x08, 3, 30), (0x88, 1, 26), (0x88, 0x83, 36)] {
        let mut head = vec![0; header];
        [head[0], head[1]] = [kind, flags];
        head.extend(snap);
        is_the_packet(LinkType::WIFI, &after(&head));
        let radiotap = [&[0, 0, 12, 0][..], &[7; 8], &head].concat();
        is_the_packet(LinkType::RADIOTAP, &after(&radiotap));
    }
}

#[test]
fn ip_is_found_inside_vlans_pppoe_and_mpls() {
    let packet = v4(6, b"payload");
    let after = |head: &[u8]| [head, &packet].concat();
    let vlans = after(&[0, 5, 0x81, 0, 0, 6, 8, 0]);
    is_the_packet(LinkType::ETHERNET, &ethernet(0x8100, &after(&[0, 5, 8, 0])));
    for outer in [0x88a8, 0x9100, 0x9200] {
        is_the_packet(LinkType::ETHERNET, &ethernet(outer, &vlans));
    }
    let pppoe = after(&[0x11, 0, 0, 9, 0, 29, 0, 0x21]);
    is_the_packet(LinkType::ETHERNET, &ethernet(0x8864, &pppoe));
    let labels = after(&[0, 1, 0x20, 64, 0, 1, 0x31, 64]);
    is_the_packet(LinkType::ETHERNET, &ethernet(0x8847, &labels));
    let wire = [&[0, 1, 0x31, 64, 0, 0, 0, 0][..], &ethernet(0x0800, &packet)].concat();
    is_the_packet(LinkType::ETHERNET, &ethernet(0x8847, &wire));
    // The length field of IEEE 802.3, and padding after the packet.
    let snap = after(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    is_the_packet(LinkType::ETHERNET, &ethernet(snap.len() as u16, &snap));
}

#[test]
fn ip_in_tunnels() {
    let packet = v4(6, b"payload");
    let after = |head: &[u8]| [head, &packet].concat();
    let framed = |head: &[u8]| [head, &ethernet(0x0800, &packet)].concat();
    let raw = |packet: &[u8]| is_the_packet(LinkType::RAW, packet);
    raw(&v4(4, &packet));
    raw(&v6(4, &packet));
    raw(&v4(47, &after(&[0, 0, 8, 0])));
    raw(&v4(47, &after(&[0x30, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 2])));
    raw(&v4(47, &framed(&[0, 0, 0x65, 0x58])));
    raw(&udp(50_000, 4789, &framed(&[8, 0, 0, 0, 0, 0, 42, 0])));
    raw(&udp(2152, 2152, &after(&[0x30, 0xff, 0, 27, 0, 0, 0, 1])));
    raw(&udp(2152, 2152, &after(&[0x32, 0xff, 0, 31, 0, 0, 0, 1, 0, 9, 0, 0])));
    let extended = [0x34, 0xff, 0, 35, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
    raw(&udp(2152, 2152, &after(&extended)));
    raw(&udp(5247, 40_000, &framed(&[0, 0x10, 2, 0, 0, 0, 0, 0])));
    let mut native = vec![0, 0x10, 3, 0, 0, 0, 0, 0];
    native.extend([&[8, 1][..], &[0; 22], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat());
    raw(&udp(40_000, 5247, &after(&native)));
    // Nested tunnels.
    let inner = udp(2152, 2152, &after(&[0x30, 0xff, 0, 27, 0, 0, 0, 1]));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &ethernet(0x0800, &inner)].concat();
    let found = udp(50_000, 4789, &vxlan);
    let found = read(LinkType::RAW, &found).unwrap();
    assert_eq!((found.payload, found.is_tunnelled), (&b"payload"[..], true));
}

#[test]
fn a_tunnel_that_is_not_read_is_a_packet() {
    let inner = ethernet(0x0800, &v4(6, b"payload"));
    for (what, packet) in [
        ("GTP's echo", udp(2152, 2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0])),
        ("GTP's empty extension", udp(2152, 2152, &[0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0])),
        ("VXLAN without a network", udp(9, 4789, &[0; 40])),
        ("encrypted CAPWAP", udp(9, 5247, &[&[1, 0x10, 2, 0, 0, 0, 0, 0][..], &inner].concat())),
        ("a keep-alive of CAPWAP", udp(9, 5247, &[0, 0x10, 2, 8, 0, 0, 0, 0, 1])),
        ("a later part of CAPWAP", udp(9, 5247, &[0, 0x10, 2, 0x80, 0, 1, 0, 8, 1])),
        ("PPTP", v4(47, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("nothing", v4(4, &[])),
    ] {
        let found = read(LinkType::RAW, &packet).unwrap();
        assert_eq!((found.is_tunnelled, found.length), (false, packet.len()), "{what}");
    }
}

#[test]
fn tunnels_end() {
    let mut packet = v4(6, b"payload");
    for _ in 0..20 {
        packet = v4(4, &packet);
    }
    assert_eq!(read(LinkType::RAW, &packet).unwrap().protocol, 4);
    let mut vlans = Vec::new();
    for _ in 0..20 {
        vlans.extend([0, 5, 0x81, 0]);
    }
    assert_eq!(read(LinkType::ETHERNET, &ethernet(0x8100, &vlans)), Err(SkipReason::Broken));
}

#[test]
fn extension_headers_and_fragments() {
    let chain = [
        &[43, 0, 1, 4, 0, 0, 0, 0][..],
        &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[51, 0, 0, 0, 0, 0, 0, 0],
        &[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        b"payload",
    ]
    .concat();
    let packet = v6(0, &chain);
    let found = read(LinkType::RAW, &packet).unwrap();
    assert_eq!((found.protocol, found.payload, found.payload_length), (6, &b"payload"[..], 7));
    assert_eq!((found.ecn, found.hop_limit, found.length), (3, 63, packet.len()));
    for end in 0..packet.len() {
        let cut = ip_packet(LinkType::RAW, &packet[..end], packet.len());
        assert_eq!(cut.is_ok(), end >= 40);
    }

    let part = |offset: u16, more: u16| {
        let field = (offset | more).to_be_bytes();
        v6(44, &[&[6, 0][..], &field, &[0, 0, 0, 9], b"\x3c\0abcdef"].concat())
    };
    let fragment = |packet: &[u8]| read(LinkType::RAW, packet).unwrap().fragment;
    let expected = |offset, has_more| Some(Fragment { id: 9, offset, has_more, tunnel: 0 });
    assert_eq!(fragment(&part(0, 1)), expected(0, true));
    assert_eq!(fragment(&part(64, 0)), expected(64, false));
    assert_eq!(fragment(&part(0, 0)), None, "not a fragment");
    assert_eq!(read(LinkType::RAW, &part(64, 1)).unwrap().payload_length, 8);

    let mut packet = v4(51, &[&[6, 1][..], &[0; 10], b"payload"].concat());
    assert_eq!(read(LinkType::RAW, &packet).unwrap().payload, b"payload");
    [packet[6], packet[7]] = [0x20, 3];
    let found = read(LinkType::RAW, &packet).unwrap();
    assert_eq!(found.fragment, Some(Fragment { id: 7, offset: 24, has_more: true, tunnel: 0 }));
    assert_eq!((found.protocol, found.payload_length), (51, 19), "a later fragment has no header");
    [packet[6], packet[7]] = [0x20, 0];
    let found = read(LinkType::RAW, &packet).unwrap();
    assert_eq!((found.protocol, found.payload_length), (51, 19), "the header may be divided");
    let whole =
        v6(44, &[&[60, 0, 0, 1, 0, 0, 0, 9][..], &[6, 0, 1, 4, 0, 0, 0, 0], b"TCP"].concat());
    let found = read(LinkType::RAW, &whole).unwrap();
    assert_eq!((found.protocol, found.payload_length), (60, 11));
}

#[test]
fn fragments_know_the_tunnels_around_them() {
    let mut inner = v4(17, b"abcdefgh");
    inner[6] = 0x20;
    let vxlan = |from: u16, vni: u8| {
        let head = [8, 0, 0, 0, 0, 0, vni, 0];
        udp(from, 4789, &[&head[..], &ethernet(0x0800, &inner)].concat())
    };
    let gre = |key: u8| v4(47, &[&[0x20, 0, 8, 0, 0, 0, 0, key][..], &inner].concat());
    let gtp = |session: u8| {
        let length = (inner.len() as u16).to_be_bytes();
        udp(2152, 2152, &[&[0x30, 0xff][..], &length, &[0, 0, 0, session], &inner].concat())
    };
    let other_end = |mut packet: Vec<u8>| {
        packet[15] ^= 1;
        packet
    };
    let packets = [
        inner.clone(),
        vxlan(1, 1),
        vxlan(1, 2),
        other_end(vxlan(1, 1)),
        gre(1),
        gre(2),
        gtp(1),
        gtp(2),
        v4(4, &inner),
        other_end(v4(4, &inner)),
        v4(4, &v4(4, &inner)),
    ];
    let tunnel = |packet: &[u8]| read(LinkType::RAW, packet).unwrap().fragment.unwrap().tunnel;
    assert_eq!(tunnel(&inner), 0);
    assert_eq!(tunnel(&vxlan(1, 1)), tunnel(&vxlan(2, 1)), "any port of the source");
    let tunnels: std::collections::BTreeSet<u32> = packets.iter().map(|one| tunnel(one)).collect();
    assert_eq!(tunnels.len(), packets.len());
}

#[test]
fn merged_packets_have_no_length() {
    for mut packet in [v4(6, &[7; 90]), v6(6, &[7; 90])] {
        let field = if packet[0] >> 4 == 4 { 2..4 } else { 4..6 };
        packet[field].fill(0);
        let header = packet.len() - 90;
        let found = ip_packet(LinkType::RAW, &packet, 70_000 + header).unwrap();
        assert_eq!((found.payload_length, found.payload.len()), (70_000, 90));
    }
}

#[test]
fn another_protocol_is_found_behind_the_same_headers() {
    let tagged = ethernet(0x8100, &[0, 5, 0x88, 0xa8, 0, 6, 0x08, 0x06, 1, 2, 3]);
    let of = |link, frame| other_protocol(link, frame);
    assert_eq!(of(LinkType::ETHERNET, &tagged), Some((0x0806, &[1, 2, 3][..])));
    assert_eq!(of(LinkType::ETHERNET, &tagged[..22]), Some((0x0806, &[][..])));
    assert_eq!(of(LinkType::ETHERNET, &tagged[..21]), None);
    let cooked = [&[0; 14][..], &[0x80, 0x35, 9]].concat();
    assert_eq!(of(LinkType::SLL, &cooked), Some((0x8035, &[9][..])));
    for (link, frame) in [
        (LinkType::ETHERNET, ethernet(0x0800, &v4(6, b""))),
        (LinkType::RAW, tagged.clone()),
        (LinkType(999), tagged.clone()),
        (LinkType::ETHERNET, ethernet(0x8100, &[0, 5, 0x81, 0].repeat(20))),
    ] {
        assert_eq!(other_protocol(link, &frame), None, "{link:?}");
    }
}

#[test]
fn frames_without_ip_have_a_reason() {
    let beacon = [0x80, 0, 0, 0];
    let null = [0x48, 1, 0, 0];
    let protected = [0x08, 0x41, 0, 0];
    let cooked = [&[0; 14][..], &[0, 0xf9], &[0; 20]].concat();
    for (link, frame, reason) in [
        (LinkType(147), b"x".to_vec(), SkipReason::Link(LinkType(147))),
        (LinkType::ETHERNET, ethernet(0x0806, &[0; 28]), SkipReason::Protocol(0x0806)),
        (LinkType::SLL, cooked, SkipReason::Protocol(0x00f9)),
        (LinkType::ETHERNET, ethernet(38, &[0x42, 0x42, 3, 0]), SkipReason::Control),
        (LinkType::ETHERNET, ethernet(60, &[0xfe, 0xfe, 3, 0x83]), SkipReason::Llc(0xfe)),
        (LinkType::NULL, vec![16, 0, 0, 0, 1, 2, 3], SkipReason::Family(16)),
        (LinkType::PPP, vec![0xff, 3, 0, 0xfd, 1], SkipReason::Ppp(0xfd)),
        (LinkType::PPP, vec![0xff, 3, 0, 0x53, 1], SkipReason::Encrypted),
        (LinkType::CISCO_HDLC, vec![0x8f, 0, 0x80, 0x35, 0, 0, 0, 2], SkipReason::Control),
        (LinkType::CISCO_HDLC, vec![0x8f, 0, 0x20, 0, 1], SkipReason::Protocol(0x2000)),
        (LinkType::PPI, vec![0, 0, 8, 0, 147, 0, 0, 0, 1], SkipReason::Link(LinkType(147))),
        (LinkType::PPI, vec![0, 0, 7, 0, 1, 0, 0, 0, 1], SkipReason::Broken),
        (LinkType::WIFI, beacon.to_vec(), SkipReason::Control),
        (LinkType::WIFI, null.to_vec(), SkipReason::Control),
        (LinkType::WIFI, protected.to_vec(), SkipReason::Encrypted),
        (LinkType::PPP, vec![0xc0, 0x21, 1], SkipReason::Control),
        (LinkType::RAW, vec![0x55; 40], SkipReason::Broken),
        (LinkType::RAW, vec![0x44; 40], SkipReason::Broken),
        (LinkType::RAW, Vec::new(), SkipReason::Broken),
    ] {
        assert_eq!(read(link, &frame), Err(reason), "{link:?} {frame:x?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_on_any_link_type_are_read(
        link in prop::sample::select(vec![
            0_u16, 1, 9, 50, 51, 101, 104, 105, 108, 113, 127, 192, 228, 276,
        ]),
        beginning in prop::sample::select(vec![
            ethernet(0x8100, &[]),
            ethernet(0x8847, &[]),
            ethernet(0x86dd, &[0x60]),
            v4(47, &[0; 8]),
            udp(2152, 2152, &[0x37, 0xff]),
            udp(9, 4789, &[8, 0, 0, 0, 0, 0, 1, 0]),
            udp(9, 5247, &[0, 0x10, 3, 0]),
            udp(9, 4790, &[0x0c, 0, 0, 3]),
            udp(9, 6081, &[2, 0, 0x65, 0x58]),
            v4(47, &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20]),
            v4(47, &[0x30, 0x81, 0x88, 0x0b]),
            vec![0, 0, 18, 0, 2, 0, 0, 0x80],
            vec![0, 0, 8, 0, 105, 0, 0, 0, 0x88, 1],
            [&[0x88, 1][..], &[0; 22], &[0x80, 0], &[0; 12], &[0, 9]].concat(),
            v6(0, &[43, 0]),
            Vec::new(),
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        more in 0_usize..100_000,
    ) {
        let frame = [beginning, bytes].concat();
        if let Ok(found) = ip_packet(LinkType(link), &frame, frame.len() + more) {
            prop_assert!(found.payload.len() <= found.payload_length);
            prop_assert!(found.payload_length <= found.length);
            prop_assert!(found.protocol == 6 || found.protocol == 17 || unread(&found).is_some());
        }
        for found in further_packets(LinkType(link), &frame, frame.len() + more).flatten() {
            prop_assert!(found.payload.len() <= found.payload_length);
        }
    }
}
