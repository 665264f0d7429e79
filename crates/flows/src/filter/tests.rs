use proptest::prelude::*;

use super::*;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error: FilterError| panic!("{text}: {error} at {:?}", error.at))
}

/// The filter with all implied qualifiers.
fn displayed(text: &str) -> String {
    filter(text).to_string()
}

#[derive(Debug)]
struct Sample {
    datagram: IpPacket<'static>,
    frame: Vec<u8>,
    length: usize,
}

fn sample(from: &str, to: &str, protocol: u8, payload: &'static [u8]) -> Sample {
    let datagram = IpPacket {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol,
        payload,
        payload_length: payload.len(),
        length: payload.len() + 20,
        fragment: None,
        ecn: 0,
        id: 0,
        hop_limit: 64,
        is_tunnelled: false,
    };
    Sample { datagram, frame: [[0; 12].as_slice(), &[0x08, 0x00]].concat(), length: 100 }
}

impl Sample {
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            link: LinkType::ETHERNET,
            frame: &self.frame,
            length: self.length,
            datagram: Ok(&self.datagram),
        }
    }

    fn matches(&self, text: &str) -> bool {
        filter(text).matches(&self.candidate())
    }
}

/// TCP or UDP from port 40,000 to port 80.
const TO_WEB: &[u8] = &[0x9c, 0x40, 0, 80, 0, 0, 0, 0];

#[test]
fn hosts_networks_ports_and_protocols_are_told_apart() {
    let web = sample("10.1.2.3", "192.0.2.7", TCP, TO_WEB);
    for text in [
        "host 10.1.2.3",
        "10.1.2.3",
        "src 10.1.2.3",
        "ip src host 10.1.2.3",
        "dst host 192.0.2.7",
        "net 10.1.0.0/16",
        "net 10.1",
        "src net 10",
        "net 10.1.2.0 mask 255.255.255.0",
        "src or dst net 192.0.2.0/24",
        "src and dst net 0.0.0.0/0",
        "port 80",
        "port http",
        "tcp port 80",
        "dst port 80",
        "tcp src port 40000",
        "portrange 79-81",
        "portrange http-https",
        "tcp",
        "ip",
        "proto 6",
        "ip proto tcp",
        "proto \\tcp",
        "len >= 100",
        "len=100",
        "less 100",
        "greater 100",
        "not udp",
        "! udp",
        "!udp&&tcp",
        "not arp",
        "not vlan",
        "(tcp or udp) and (port 80 or 443)",
        "port 443 or 80",
        "port (443 or 80)",
        "not port 443 and 80",
    ] {
        assert!(web.matches(text), "{text}");
        assert!(!web.matches(&format!("not ({text})")), "{text}");
    }
    for text in [
        "src 192.0.2.7",
        "dst net 10.0.0.0/8",
        "src and dst net 10.0.0.0/8",
        "src port 80",
        "udp port 80",
        "portrange 81-90",
        "ip6",
        "udp",
        "icmp",
        "arp",
        "vlan",
        "less 99",
        "len != 100",
        "len > 100",
        "tcp port 443 or 53",
    ] {
        assert!(!web.matches(text), "{text}");
    }
    let six = sample("2001:db8::5", "::ffff:192.0.2.1", UDP, &[0, 53, 0x9c, 0x40]);
    for text in [
        "ip6 and udp",
        "net 2001:db8::/32",
        "host 2001:DB8::5",
        "src port domain",
        "ip6 host ::1 or 2001:db8::5",
    ] {
        assert!(six.matches(text), "{text}");
    }
    assert!(!six.matches("ip") && !six.matches("tcp port 53"));
}

#[test]
fn ports_that_are_not_there_match_nothing() {
    let cut = sample("10.0.0.1", "10.0.0.2", TCP, &[0, 80, 0]);
    assert!(cut.matches("tcp") && !cut.matches("port 80"));
    let mut later = sample("10.0.0.1", "10.0.0.2", UDP, TO_WEB);
    assert!(later.matches("port 80"));
    later.datagram.fragment =
        Some(frame::Fragment { id: 1, offset: 8, has_more: false, tunnel: 0 });
    assert!(later.matches("udp") && !later.matches("port 80"));
    let ping = sample("10.0.0.1", "10.0.0.2", 1, TO_WEB);
    assert!(ping.matches("icmp") && !ping.matches("port 80") && !ping.matches("icmp6"));
}

#[test]
fn what_is_no_ip_packet_is_matched_by_what_is_known_of_it() {
    let candidate = |opaque| Candidate {
        link: LinkType::ETHERNET,
        frame: &[],
        length: 60,
        datagram: Err(opaque),
    };
    let arp = candidate(SkipReason::Protocol(0x0806));
    for text in ["arp", "not ip", "not port 80", "len < 64", "not host 10.0.0.1"] {
        assert!(filter(text).matches(&arp), "{text}");
    }
    assert!(!filter("ip or ip6 or tcp or host 10.0.0.1 or net 0.0.0.0/0").matches(&arp));
    assert!(!filter("arp").matches(&candidate(SkipReason::Control)));
}

/// An ARP or RARP packet from 10.0.0.1 for 10.0.0.2, behind some VLAN tags.
fn arp(protocol: u16, tags: usize) -> Vec<u8> {
    let tags = [0x81, 0, 0, 7].repeat(tags);
    let head = [&[0xff; 6][..], &[2; 6], &tags, &protocol.to_be_bytes()].concat();
    let ends = [&[2; 6][..], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat();
    [&head[..], &[0, 1, 8, 0, 6, 4, 0, 1], &ends].concat()
}

/// The results are those of tcpdump 4.99 on these packets; behind VLANs of `vlan and (FILTER)`.
#[test]
fn hosts_and_networks_are_also_those_of_arp() {
    for (protocol, word, other) in [(ARP, "arp", "rarp"), (RARP, "rarp", "arp")] {
        for tags in 0..3 {
            let frame = arp(protocol, tags);
            let of = |frame: &[u8], text: &str| {
                let length = frame.len();
                let datagram = Err(SkipReason::Protocol(protocol));
                let link = LinkType::ETHERNET;
                filter(text).matches(&Candidate { link, frame, length, datagram })
            };
            for text in [
                "host 10.0.0.1",
                "host 10.0.0.2",
                "src host 10.0.0.1",
                "dst 10.0.0.2",
                "src or dst host 10.0.0.2",
                "src net 10 and dst net 10",
                "src and dst net 10.0.0.0/30",
                "net 0.0.0.0/0",
                &format!("{word} host 10.0.0.1 and {word}"),
                &format!("{word} dst net 10.0.0.0 mask 255.0.0.0"),
                &format!("not {other}"),
                "not ip host 10.0.0.1",
            ] {
                assert!(of(&frame, text), "{word} {tags}: {text}");
            }
            for text in [
                "host 10.0.0.3",
                "src host 10.0.0.2",
                "dst host 10.0.0.1",
                "net 192.0.2.0/24",
                "ip host 10.0.0.1",
                "tcp src host 10.0.0.1",
                "host 2001:db8::1",
                "net ::/0",
                &format!("{other} host 10.0.0.1"),
                "not host 10.0.0.1",
            ] {
                assert!(!of(&frame, text), "{word} {tags}: {text}");
            }
            // The address of the target is not in the captured bytes.
            assert!(!of(&frame[..frame.len() - 1], "host 10.0.0.1"));
            assert!(of(&frame[..frame.len() - 1], word));
        }
    }
    let packet = sample("10.0.0.1", "10.0.0.2", UDP, TO_WEB);
    assert!(packet.matches("ip host 10.0.0.1") && !packet.matches("arp host 10.0.0.1"));
}

#[test]
fn vlans_are_those_of_the_frame() {
    let mut tagged = sample("10.0.0.1", "10.0.0.2", TCP, TO_WEB);
    tagged.frame = [&[0; 12][..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 9, 8, 0]].concat();
    assert!(["vlan", "vlan 7", "vlan 9 and vlan 7", "port 80"].iter().all(|t| tagged.matches(t)));
    assert!(!tagged.matches("vlan 8"));
}

#[test]
fn and_and_or_bind_alike_and_a_value_alone_is_what_the_one_before_is() {
    for (text, full) in [
        ("port 80 or 443", "port 80 or port 443"),
        ("tcp port 80 or 443", "tcp and port 80 or (tcp and port 443)"),
        ("not host 10.0.0.1 and 10.0.0.2", "not host 10.0.0.1 and host 10.0.0.2"),
        ("tcp or udp and port 53", "tcp or udp and port 53"),
        ("tcp or (udp and port 53)", "tcp or (udp and port 53)"),
        ("src 10.0.0.1 or dst 10.0.0.2", "src host 10.0.0.1 or dst host 10.0.0.2"),
        ("10.0.0.1 or 10.0.0.0/8", "host 10.0.0.1 or net 10.0.0.0/8"),
        ("src net 10 or 172.16/12", "src net 10.0.0.0/8 or src net 172.16.0.0/12"),
        ("src and dst port ntp", "src port 123 and dst port 123"),
        ("dst or src port 53", "port 53"),
        ("ip6 port 80", "ip6 and port 80"),
        ("portrange 90-80", "portrange 80-90"),
        ("less 80 and vlan and vlan 5", "len <= 80 and vlan and vlan 5"),
        ("proto 89 or ospf", ""),
        ("tcp and tcp and tcp", "tcp and tcp and tcp"),
        ("host ::ffff:10.0.0.1", "host 10.0.0.1"),
        ("ip host 10.0.0.1", "ip and host 10.0.0.1"),
        (
            "rarp src host 10.0.0.1 or 10.0.0.2",
            "rarp and src host 10.0.0.1 or (rarp and src host 10.0.0.2)",
        ),
    ] {
        if full.is_empty() {
            assert!(text.parse::<Filter>().is_err(), "{text}");
            continue;
        }
        assert_eq!(displayed(text), full);
        assert_eq!(filter(full), filter(text), "{text}");
    }
}

#[test]
fn an_error_says_where_and_what() {
    for (text, at, words) in [
        ("", 0..0, "empty"),
        ("  ", 0..2, "empty"),
        ("tcp and", 7..7, "a test"),
        ("tcp prot 80", 4..8, "and, or, or the end"),
        ("port htttp", 5..10, "not a port"),
        ("port 70000", 5..10, "not a port"),
        ("port 80-90", 5..10, "a range"),
        ("portrange 80", 10..12, "not a range"),
        ("port", 4..4, "a port"),
        ("host and tcp", 5..8, "an address"),
        ("host www.example.net", 5..20, "not an address"),
        ("host 10.0.0.0/8", 5..15, "not a host"),
        ("net 10.0.0.1/8", 4..14, "beyond"),
        ("net 10.0.0.0/33", 4..15, "not a number up to 32"),
        ("net 10.0.0.0 mask 255.0.255.0", 18..29, "not a mask"),
        ("ip6 host 10.0.0.1", 9..17, "IPv6"),
        ("icmp port 80", 10..12, "without ports"),
        ("80 or 443", 0..2, "the kind of"),
        ("tcp and 443", 8..11, "the kind of"),
        ("http", 0..4, "the kind of"),
        ("(tcp or udp", 0..1, "not closed"),
        ("tcp)", 3..4, "no parenthesis"),
        ("tcp or )", 7..8, "a test"),
        ("tcp[13] & 2 != 0", 0..4, "`tcp[` is not supported"),
        ("ether host 1:2:3:4:5:6", 0..5, "not supported"),
        ("tcp;udp", 3..4, "no meaning"),
        ("tcp & udp", 4..5, "no meaning"),
        ("host ü", 5..7, "not an address"),
        ("foo", 0..3, "not a word"),
        ("len 80", 4..6, "one of"),
        ("len > x", 6..7, "not a number"),
        ("vlan 4096", 5..9, "up to 4095"),
        ("proto 256", 6..9, "not a protocol"),
        ("src proto 6", 10..11, "one endpoint"),
        ("arp host ::1", 9..12, "ARP"),
        ("arp port 80", 9..11, "without ports"),
        ("arp proto 6", 10..11, "one endpoint"),
    ] {
        let error = text.parse::<Filter>().expect_err(text);
        assert!(error.to_string().contains(words), "{text}: {error}");
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(!error.kind.hint().is_empty());
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let is_large = |text: String| {
        let error = text.parse::<Filter>().expect_err("it is too large");
        assert_eq!(error.kind, FilterErrorKind::TooLarge);
    };
    is_large(format!("{}tcp{}", "(".repeat(5_000), ")".repeat(5_000)));
    is_large(format!("{}tcp", "not ".repeat(5_000)));
    is_large(format!("tcp{}", " or udp".repeat(5_000)));
    assert!(!filter(&format!("udp{}", " or udp".repeat(900))).to_string().is_empty());
}

fn primitives() -> impl Strategy<Value = Primitive> {
    let way = prop_oneof![Just(Dir::Either), Just(Dir::Source), Just(Dir::Destination)];
    let order = prop::sample::select(Comparison::ALL.map(|(_, comparison)| comparison).to_vec());
    // Few values, so that some of them match.
    let address = (0_u32..4, 28_u8..=32).prop_map(|(low, length)| {
        let bits = (0x0a00_0000 | low) & u32::MAX << (32 - length);
        Prefix::new(std::net::Ipv4Addr::from(bits).into(), length).unwrap()
    });
    let port = (78_u16..82, 0_u16..3);
    prop_oneof![
        (way.clone(), address)
            .prop_map(|(direction, prefix)| Primitive::Address(direction, prefix)),
        (way, port).prop_map(|(direction, (first, more))| Primitive::Port(
            direction,
            first,
            first + more
        )),
        prop_oneof![Just(4), Just(6)].prop_map(Primitive::Version),
        prop_oneof![Just(6), Just(17), Just(1), any::<u8>()].prop_map(Primitive::Protocol),
        prop_oneof![Just(ARP), Just(RARP)].prop_map(Primitive::Ether),
        prop::option::of(0_u16..10).prop_map(Primitive::Vlan),
        (order, 58_u32..63).prop_map(|(comparison, length)| Primitive::Length(comparison, length)),
    ]
}

fn expressions() -> impl Strategy<Value = Expression> {
    primitives().prop_map(Expression::Primitive).prop_recursive(6, 40, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(one, other)| one.and(other)),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| one.or(other)),
            inner.prop_map(|one| Expression::Not(Box::new(one))),
        ]
    })
}

fn samples() -> impl Strategy<Value = Sample> {
    let protocol = prop_oneof![Just(TCP), Just(UDP), Just(1)];
    let payload = prop_oneof![Just(TO_WEB), Just(&[0_u8, 79, 0, 81][..]), Just(&[0_u8][..])];
    (0_u8..4, 0_u8..4, protocol, payload, 57_usize..64, any::<bool>()).prop_map(
        |(from, to, protocol, payload, length, is_tagged)| {
            let mut sample =
                sample(&format!("10.0.0.{from}"), &format!("10.0.0.{to}"), protocol, payload);
            sample.length = length;
            if is_tagged {
                sample.frame = [&[0; 12][..], &[0x81, 0, 0, to, 8, 0]].concat();
            }
            sample
        },
    )
}

proptest! {
    #[test]
    fn what_is_said_is_read_as_it_was_meant(expression in expressions()) {
        let filter = Filter { expression };
        let read: Filter = filter.to_string().parse().unwrap();
        prop_assert_eq!(&read, &filter, "{}", filter);
    }

    #[test]
    fn not_swaps_and_with_or(one in expressions(), other in expressions(), sample in samples()) {
        let not = |one: Expression| Expression::Not(Box::new(one));
        let candidate = sample.candidate();
        let left = not(one.clone().and(other.clone())).matches(&candidate);
        prop_assert_eq!(left, not(one.clone()).or(not(other.clone())).matches(&candidate));
        let left = not(one.clone().or(other.clone())).matches(&candidate);
        prop_assert_eq!(left, not(one).and(not(other)).matches(&candidate));
    }

    #[test]
    fn either_end_is_one_of_both(port in 78_u16..82, sample in samples()) {
        let of = |direction| Expression::Primitive(Primitive::Port(direction, port, port)).matches(&sample.candidate());
        prop_assert_eq!(of(Dir::Either), of(Dir::Source) || of(Dir::Destination));
    }

    #[test]
    fn any_text_is_a_filter_or_an_error_within_it(text in "\\PC{0,60}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.at.end <= text.len() && text.get(error.at).is_some());
        }
    }

    #[test]
    fn any_words_are_a_filter_or_an_error_within_them(
        words in prop::collection::vec(prop::sample::select(vec![
            "tcp", "ip6", "src", "dst", "and", "or", "not", "(", ")", "host", "net", "port", "80",
            "portrange", "1-2", "10.0.0.1", "10/8", "::1", "len", ">=", "vlan", "less", "proto", "arp",
            "rarp",
        ]), 0..12)
    ) {
        let text = words.join(" ");
        match text.parse::<Filter>() {
            Ok(filter) => prop_assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter),
            Err(error) => prop_assert!(text.get(error.at).is_some()),
        }
    }
}
