use super::*;

fn after(head: &[u8], packet: &[u8]) -> Vec<u8> {
    [head, packet].concat()
}

/// The packet in Ethernet after these bytes.
fn framed(head: &[u8], packet: &[u8]) -> Vec<u8> {
    after(head, &ethernet(0x0800, packet))
}

fn obstacle(packet: &[u8]) -> Option<Unread> {
    let found = read(LinkType::RAW, packet).unwrap();
    assert_eq!((found.is_tunnelled, found.length), (false, packet.len()), "the outer packet");
    unread(&found)
}

#[test]
fn reserved_bits_of_tunnels_are_ignored() {
    let packet = v4(6, b"payload");
    let raw = |packet: &[u8]| is_the_packet(LinkType::RAW, packet);
    for head in [
        [0x0c, 0, 0, 3, 0, 0, 42, 0],
        [0x88, 0, 0, 5, 0, 0, 42, 0],
        [0x88, 8, 0, 5, 0, 0, 42, 0],
        [8, 0, 0, 0, 0, 0, 42, 1],
    ] {
        raw(&udp(50_000, 4789, &framed(&head, &packet)));
        raw(&udp(50_000, 8472, &framed(&head, &packet)));
    }
    assert_eq!(obstacle(&udp(9, 4789, &framed(&[0x80, 0, 0, 5, 0, 0, 42, 0], &packet))), None);
    // Bits 6 to 12 of GRE are ignored, and packets with bits 1, 4 or 5 are discarded.
    for flags in [0x0200_u16, 0x0100, 0x0080, 0x0008, 0x03f8] {
        raw(&v4(47, &after(&[&flags.to_be_bytes()[..], &[8, 0]].concat(), &packet)));
    }
    for flags in [0x4000_u16, 0x0800, 0x0400, 0x0002] {
        let discarded = v4(47, &after(&[&flags.to_be_bytes()[..], &[8, 0]].concat(), &packet));
        assert_eq!(obstacle(&discarded), Some(Unread::Gre(0x0800, Obstacle::Unsupported)));
    }
}

#[test]
fn the_type_of_the_content_is_in_vxlan_gpe_and_geneve() {
    let packet = v4(6, b"payload");
    let raw = |packet: &[u8]| is_the_packet(LinkType::RAW, packet);
    let gpe = |flags, content| [flags, 0, 0, content, 0, 0, 42, 7];
    raw(&udp(9, 4790, &after(&gpe(0x0c, 1), &packet)));
    raw(&udp(9, 4790, &framed(&gpe(0x0e, 3), &packet)));
    raw(&udp(9, 4790, &framed(&gpe(0x08, 0), &packet)));
    raw(&udp(9, 4790, &after(&[&gpe(0x0c, 5)[..], &[0, 1, 0x31, 64]].concat(), &packet)));
    let gpe = |flags, content| obstacle(&udp(9, 4790, &after(&gpe(flags, content), &packet)));
    assert_eq!(gpe(0x0c, 4), Some(Unread::Udp(4790, Obstacle::Unsupported)));
    assert_eq!(gpe(0x0d, 1), Some(Unread::Udp(4790, Obstacle::NotIp)));
    assert_eq!((gpe(0x1c, 1), gpe(0x04, 1)), (None, None), "another version, or no network");

    raw(&udp(9, 6081, &framed(&[0, 0, 0x65, 0x58, 0, 0, 42, 7], &packet)));
    let options = [2, 0x7f, 8, 0, 0, 0, 42, 0, 1, 2, 0x80, 1, 9, 9, 9, 9];
    raw(&udp(9, 6081, &after(&options, &packet)));
    let geneve = |head: [u8; 8]| obstacle(&udp(9, 6081, &after(&head, &packet)));
    let of = |why| Some(Unread::Udp(6081, why));
    assert_eq!(geneve([0, 0x80, 8, 0, 0, 0, 42, 0]), of(Obstacle::NotIp), "control");
    assert_eq!(geneve([0, 0, 0x89, 0x4f, 0, 0, 42, 0]), of(Obstacle::Unsupported), "NSH");
    assert_eq!(geneve([0, 0, 0, 1, 0, 0, 42, 0]), of(Obstacle::Unsupported), "no EtherType");
    assert_eq!(geneve([0x3f, 0, 8, 0, 0, 0, 42, 0]), of(Obstacle::Broken), "long options");
    assert_eq!(geneve([0x40, 0, 8, 0, 0, 0, 42, 0]), None, "another version");
}

#[test]
fn erspan_of_every_type_is_read() {
    let packet = v4(6, b"payload");
    let raw = |head: &[u8]| is_the_packet(LinkType::RAW, &v4(47, &framed(head, &packet)));
    raw(&[0, 0, 0x88, 0xbe]);
    let sequenced =
        |number: [u8; 2], rest: &[u8]| [&[0x10, 0][..], &number, &[0, 0, 0, 9], rest].concat();
    raw(&sequenced([0x88, 0xbe], &[0x10, 5, 0, 1, 0, 0, 0, 3]));
    let third = [0x20, 5, 0, 1, 1, 2, 3, 4, 0, 0, 0x80, 0];
    raw(&sequenced([0x22, 0xeb], &third));
    let subheader = [0x20, 5, 0, 1, 1, 2, 3, 4, 0, 0, 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    raw(&sequenced([0x22, 0xeb], &subheader));
    let ip = [0x20, 5, 0, 1, 1, 2, 3, 4, 0, 0, 0x08, 0];
    let ip = v4(47, &after(&sequenced([0x22, 0xeb], &ip), &packet));
    is_the_packet(LinkType::RAW, &ip);
    let other = v4(47, &framed(&sequenced([0x88, 0xbe], &[0x30; 8]), &packet));
    assert_eq!(obstacle(&other), Some(Unread::Gre(0x88be, Obstacle::Unsupported)));
}

#[test]
fn pptp_is_read_up_to_the_length_in_its_header() {
    let packet = v4(6, b"payload");
    let pptp = |flags: u16, length: u16, fields: usize, content: &[u8]| {
        let head = [flags, 0x880b, length, 7].map(u16::to_be_bytes).concat();
        v4(47, &[&head[..], &vec![9; 4 * fields], content].concat())
    };
    let ppp = after(&[0xff, 3, 0, 0x21], &packet);
    let raw = |packet: &[u8]| is_the_packet(LinkType::RAW, packet);
    raw(&pptp(0x3001, 31, 1, &ppp));
    raw(&pptp(0x3081, 31, 2, &ppp));
    raw(&pptp(0x3001, 31, 1, &[&ppp[..], b"padding"].concat()));
    let of = |packet: &[u8]| obstacle(packet).map(|unread| (unread.number(), unread.obstacle()));
    let why = |obstacle| Some((0x880b, Some(obstacle)));
    assert_eq!(of(&pptp(0x2081, 0, 1, &[])), why(Obstacle::NotIp), "an acknowledgment");
    assert_eq!(of(&pptp(0x3001, 99, 1, &ppp)), why(Obstacle::Broken), "beyond the packet");
    assert_eq!(of(&pptp(0x1001, 31, 1, &ppp)), why(Obstacle::Unsupported), "no key");
    let encrypted = pptp(0x3001, 8, 1, &[0xff, 3, 0, 0xfd, 1, 2, 3, 4]);
    assert_eq!(of(&encrypted), why(Obstacle::Encrypted));
    let control = pptp(0x3001, 8, 1, &[0xff, 3, 0xc0, 0x21, 1, 2, 3, 4]);
    assert_eq!(of(&control), why(Obstacle::NotIp));
}

#[test]
fn cisco_hdlc_and_ppi_are_read() {
    let packet = v4(6, b"payload");
    is_the_packet(LinkType::CISCO_HDLC, &after(&[0x0f, 0, 8, 0], &packet));
    is_the_packet(LinkType::CISCO_HDLC, &after(&[0x8f, 0, 0x88, 0x47, 0, 1, 0x31, 64], &packet));
    is_the_packet(LinkType::PPP_HDLC, &after(&[0x0f, 0, 8, 0], &packet));
    is_the_packet(LinkType::PPP_HDLC, &after(&[0xff, 3, 0, 0x21], &packet));
    let ppi = |link: u8, fields: &[u8]| {
        [&[0, 0, 8 + fields.len() as u8, 0, link, 0, 0, 0], fields].concat()
    };
    is_the_packet(LinkType::PPI, &framed(&ppi(1, &[]), &packet));
    is_the_packet(LinkType::PPI, &after(&ppi(12, &[7; 20]), &packet));
    let wifi = [&[0x08, 1][..], &[0; 22], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat();
    is_the_packet(LinkType::PPI, &after(&[ppi(105, &[7; 24]), wifi].concat(), &packet));
}

#[test]
fn unread_content_has_its_number_a_reason_and_a_hint() {
    let inner = v4(6, b"payload");
    let arp = ethernet(0x0806, &[0; 28]);
    let gre = |number: u16, content: &[u8]| {
        v4(47, &[&[0, 0], &number.to_be_bytes()[..], content].concat())
    };
    for (packet, words, is_hinted) in [
        (v4(1, &[8, 0, 0, 0]), "IP protocol 1 (ICMP)", false),
        (v4(50, &[7; 20]), "IP protocol 50 (ESP): encrypted or compressed", true),
        (v4(115, &[7; 20]), "IP protocol 115 (L2TPv3): not read", true),
        (v4(200, &[7; 20]), "IP protocol 200", false),
        (v4(4, &[]), "IP protocol 4 (IPv4): truncated or broken", true),
        (v4(47, &[0]), "IP protocol 47 (GRE): truncated or broken", true),
        (gre(0x883e, &inner), "GRE protocol 0x883e (WCCP): not read", true),
        (gre(0x8200, &inner), "GRE protocol 0x8200 (Aruba): not read", true),
        (gre(0x1234, &inner), "GRE protocol 0x1234: not read", true),
        (gre(0x0004, &inner), "GRE protocol 0x0004: not read", true),
        (gre(0x2001, &inner), "GRE protocol 0x2001 (NHRP): no IP packet inside", false),
        (gre(0x0800, &[]), "GRE protocol 0x0800 (IPv4): no IP packet inside", false),
        (gre(0x6558, &arp), "GRE protocol 0x6558 (Ethernet): no IP packet inside", false),
        (gre(0x6558, &arp[..9]), "GRE protocol 0x6558 (Ethernet): truncated or broken", true),
        (
            udp(9, 4789, &[&[8, 0, 0, 0, 0, 0, 1, 0], &arp[..]].concat()),
            "UDP port 4789 (VXLAN): no IP packet inside",
            false,
        ),
        (
            udp(9, 5247, &[1, 0x10, 2, 0, 0, 0, 0, 0]),
            "UDP port 5247 (CAPWAP): encrypted or compressed",
            true,
        ),
        (udp(3544, 9, &v6(6, b"payload")), "UDP port 3544 (Teredo): not read", true),
        (
            udp(2152, 2152, &[&[0x30, 0xff, 0, 42, 0, 0, 0, 1], &arp[..]].concat()),
            "UDP port 2152 (GTP-U): not read",
            true,
        ),
    ] {
        let unread = obstacle(&packet).unwrap_or_else(|| panic!("{words}"));
        assert_eq!((unread.to_string().as_str(), unread.hint().is_some()), (words, is_hinted));
    }
    // Other datagrams at the ports of tunnels are not tunnels.
    for port in [2152, 3544, 4789, 4790, 5247, 6081] {
        assert_eq!(obstacle(&udp(port, 40_000, b"\xc0not a tunnel")), None);
        assert_eq!(obstacle(&udp(40_000, port, b"\xc0not a tunnel")), None);
    }
    assert_eq!(obstacle(&udp(53, 40_000, &inner)), None);
}
