use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use proptest::prelude::*;
use simple_dns::{Question, rdata::CNAME};

use super::*;

fn zone() -> Zone {
    let mut zone = Zone::default();
    zone.insert("origin.lab", vec!["10.9.0.1".parse().unwrap(), "fd00:9::1".parse().unwrap()]);
    zone.insert("WWW.Example.com.", vec!["10.9.0.2".parse().unwrap()]);
    let many = (1..=100).map(|host| IpAddr::from([10, 9, 1, host])).collect();
    zone.insert("many.lab", many);
    zone
}

fn query(name: &str, kind: TYPE, udp_size: Option<u16>) -> Vec<u8> {
    let mut packet = Packet::new_query(0x1234);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(
        Name::new(name).unwrap(),
        QTYPE::TYPE(kind),
        QCLASS::CLASS(CLASS::IN),
        false,
    ));
    *packet.opt_mut() =
        udp_size.map(|udp_packet_size| OPT { opt_codes: Vec::new(), udp_packet_size, version: 0 });
    packet.build_bytes_vec().unwrap()
}

fn addresses(reply: &[u8]) -> Vec<IpAddr> {
    let reply = Packet::parse(reply).unwrap();
    reply
        .answers
        .iter()
        .map(|record| match &record.rdata {
            RData::A(a) => IpAddr::V4(a.address.into()),
            RData::AAAA(a) => IpAddr::V6(a.address.into()),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn ask(name: &str, kind: TYPE) -> Vec<u8> {
    answer(&zone(), &query(name, kind, None), Transport::Udp).unwrap()
}

#[test]
fn names_are_compared_without_case() {
    assert_eq!(addresses(&ask("origin.lab", TYPE::A)), ["10.9.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(addresses(&ask("ORIGIN.lab", TYPE::AAAA)), ["fd00:9::1".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        addresses(&ask("www.example.COM", TYPE::A)),
        ["10.9.0.2".parse::<IpAddr>().unwrap()]
    );
    let bytes = ask("oRiGiN.lab", TYPE::A);
    let reply = Packet::parse(&bytes).unwrap();
    assert_eq!(reply.id(), 0x1234);
    assert!(reply.has_flags(PacketFlag::RESPONSE | PacketFlag::AUTHORITATIVE_ANSWER));
    assert_eq!(reply.questions[0].qname.to_string(), "oRiGiN.lab", "the case is kept");
    assert_eq!(reply.answers[0].ttl, 1);
}

#[test]
fn no_such_name_and_no_such_record_are_two_things() {
    let bytes = ask("nobody.lab", TYPE::A);
    assert_eq!(Packet::parse(&bytes).unwrap().rcode(), RCODE::NameError);
    let bytes = ask("origin.lab", TYPE::MX);
    let reply = Packet::parse(&bytes).unwrap();
    assert_eq!((reply.rcode(), reply.answers.len()), (RCODE::NoError, 0));
}

#[test]
fn other_names_are_for_another_server() {
    let other = decide(&zone(), &query("example.org", TYPE::A, None), Transport::Udp);
    let Verdict::Forward(bytes) = other else { panic!("{other:?}") };
    assert_eq!(Packet::parse(&bytes).unwrap().rcode(), RCODE::NameError);
    let ours = decide(&zone(), &query("lab", TYPE::A, None), Transport::Udp);
    assert!(matches!(ours, Verdict::Answer(_)));
    let close = decide(&zone(), &query("collab", TYPE::A, None), Transport::Udp);
    assert!(matches!(close, Verdict::Forward(_)));
}

#[test]
fn an_answer_that_is_too_long_is_cut_for_udp_alone() {
    let size = |udp_size, transport| {
        let bytes = answer(&zone(), &query("many.lab", TYPE::A, udp_size), transport).unwrap();
        let reply = Packet::parse(&bytes).unwrap();
        assert_eq!(reply.opt().is_some(), udp_size.is_some());
        (reply.answers.len(), reply.has_flags(PacketFlag::TRUNCATION), bytes.len())
    };
    let (answers, cut, length) = size(None, Transport::Udp);
    assert_eq!((answers, cut), (0, true));
    assert!(length <= MAX_PLAIN_UDP);
    // A size that no link carries in one packet is limited.
    assert_eq!(size(Some(65535), Transport::Udp).0, 0);
    let (answers, cut, length) = size(None, Transport::Tcp);
    assert_eq!((answers, cut), (100, false));
    assert!(length > usize::from(MAX_EDNS_UDP));
}

#[test]
fn queries_that_are_refused_or_ignored() {
    let rcode = |bytes: &[u8]| {
        Packet::parse(&answer(&zone(), bytes, Transport::Udp).unwrap()).unwrap().rcode()
    };
    assert_eq!(answer(&zone(), b"", Transport::Udp), None);
    assert_eq!(answer(&zone(), &[0; 11], Transport::Udp), None);
    // A response is never answered.
    assert_eq!(answer(&zone(), &ask("origin.lab", TYPE::A), Transport::Udp), None);
    let good = query("origin.lab", TYPE::A, None);
    assert_eq!(rcode(&good[..good.len() - 3]), RCODE::FormatError);
    let mut two = good.clone();
    two[5] = 2;
    assert_eq!(rcode(&two), RCODE::FormatError);
    let mut many = good.clone();
    many[6] = 0xff;
    assert_eq!(rcode(&many), RCODE::FormatError);
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert_eq!(rcode(&update), RCODE::NotImplemented);
    let mut chaos = good.clone();
    let class = chaos.len() - 1;
    chaos[class] = 3;
    assert_eq!(rcode(&chaos), RCODE::Refused);
    // A name that points at itself must not block the thread.
    let mut circle = good[..HEADER_SIZE].to_vec();
    circle.extend([0xc0, 12, 0, 1, 0, 1]);
    assert_eq!(rcode(&circle), RCODE::FormatError);
}

/// Binds UDP and TCP on one port of loopback.
fn sockets() -> (UdpSocket, TcpListener, SocketAddr) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address) {
            return (udp, tcp, address);
        }
    }
}

fn over_tcp(stream: &mut TcpStream, query: &[u8]) -> Vec<u8> {
    let length = u16::try_from(query.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, query].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).unwrap();
    reply
}

#[test]
fn the_resolver_serves_both_transports_and_stops() {
    let (udp, tcp, address) = sockets();
    let resolver = Resolver::start(zone(), udp, tcp, None).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client.send(b"short").unwrap();
    client.send(&query("origin.lab", TYPE::A, None)).unwrap();
    let mut buffer = [0; 2048];
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(addresses(&buffer[..length]).len(), 1);

    let mut stream = TcpStream::connect(address).unwrap();
    // Two queries on one connection, the first one in pieces.
    let question = query("many.lab", TYPE::A, None);
    let framed = [&u16::try_from(question.len()).unwrap().to_be_bytes(), &question[..]].concat();
    stream.write_all(&framed[..1]).unwrap();
    stream.write_all(&framed[1..20]).unwrap();
    stream.write_all(&framed[20..]).unwrap();
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let mut reply = vec![0; usize::from(u16::from_be_bytes(head))];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(addresses(&reply).len(), 100);
    assert_eq!(addresses(&over_tcp(&mut stream, &query("origin.lab", TYPE::AAAA, None))).len(), 1);

    let counters = resolver.counters();
    assert_eq!(counters, Counters { queries: 4, responses: 3, forwarded: 0, ignored: 1 });
    resolver.stop();
    // Its sockets are closed: the same port can be bound again.
    UdpSocket::bind(address).unwrap();
    assert_eq!(stream.read(&mut head).unwrap(), 0);
}

#[test]
fn too_many_connections_end_the_one_that_is_silent_longest() {
    let (udp, tcp, address) = sockets();
    let _resolver = Resolver::start(zone(), udp, tcp, None).unwrap();
    let question = query("origin.lab", TYPE::A, None);
    let mut streams: Vec<TcpStream> = Vec::new();
    for _ in 0..=16 {
        let mut stream = TcpStream::connect(address).unwrap();
        over_tcp(&mut stream, &question);
        streams.push(stream);
    }
    assert_eq!(streams[0].read(&mut [0; 2]).unwrap(), 0, "the first one was ended");
    over_tcp(&mut streams[1], &question);
    over_tcp(&mut streams[16], &question);
    // A client that announces a query that is too long loses the connection.
    let mut liar = TcpStream::connect(address).unwrap();
    liar.write_all(&[0xff, 0xff]).unwrap();
    assert_eq!(liar.read(&mut [0; 2]).unwrap(), 0);
}

#[test]
fn other_names_are_handed_to_the_upstream_server() {
    let (udp, tcp, upstream_address) = sockets();
    let mut outside = Zone::default();
    outside.insert("example.org", (1..=100).map(|h| IpAddr::from([10, 7, 0, h])).collect());
    let upstream = Resolver::start(outside, udp, tcp, None).unwrap();
    let (udp, tcp, address) = sockets();
    let resolver = Resolver::start(zone(), udp, tcp, Some(upstream_address)).unwrap();

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    let exchange = |question: &[u8]| {
        let mut buffer = [0; 2048];
        client.send(question).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    };
    let reply = exchange(&query("nobody.org", TYPE::A, None));
    let reply = Packet::parse(&reply).unwrap();
    assert_eq!((reply.id(), reply.rcode()), (0x1234, RCODE::NameError));
    assert!(reply.opt().is_none(), "the asker did not use EDNS");
    // The upstream server limits UDP responses to 1232 bytes, and this response is longer.
    let reply = exchange(&query("example.org", TYPE::A, Some(4096)));
    assert!(Packet::parse(&reply).unwrap().has_flags(PacketFlag::TRUNCATION));
    exchange(&query("nobody.lab", TYPE::A, None));
    assert_eq!(resolver.counters().forwarded, 2);
    assert_eq!(upstream.counters().queries, 2);
}

#[test]
fn an_upstream_answer_fits_its_question_or_is_none() {
    let question = query("example.org", TYPE::A, None);
    let asked = upstream_query(&question, 7).unwrap();
    let asked = Packet::parse(&asked).unwrap();
    assert_eq!((asked.id(), asked.opt().unwrap().udp_packet_size), (7, 4096));

    let mut reply = asked.clone().into_reply();
    let name = Name::new("example.org").unwrap();
    let alias = RData::CNAME(CNAME(Name::new("cdn.example.net").unwrap()));
    reply.answers.push(ResourceRecord::new(name, CLASS::IN, 60, alias));
    let bytes = reply.build_bytes_vec().unwrap();
    let back = upstream_response(&question, &bytes, Transport::Udp).unwrap();
    let back = Packet::parse(&back).unwrap();
    assert_eq!((back.id(), back.answers.len(), back.opt().is_some()), (0x1234, 1, false));

    let another = query("example.net", TYPE::A, None);
    assert_eq!(upstream_response(&another, &bytes, Transport::Udp), None);
    assert_eq!(upstream_response(&question, &question, Transport::Udp), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_zone_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for transport in [Transport::Udp, Transport::Tcp] {
            answer(&zone(), &bytes, transport);
            upstream_response(&query("example.org", TYPE::A, None), &bytes, transport);
            upstream_response(&bytes, &bytes, transport);
        }
        upstream_query(&bytes, 1);
    }

    /// A valid query with a few changed bytes gets deeper than random bytes. Every response can be
    /// parsed and fits.
    #[test]
    fn every_answer_can_be_read(
        changes in proptest::collection::vec((0_usize..60, any::<u8>()), 0..5),
        edns in proptest::option::of(any::<u16>()),
    ) {
        let mut bytes = query("many.lab", TYPE::A, edns);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(reply) = answer(&zone(), &bytes, Transport::Udp) {
            let read = Packet::parse(&reply).unwrap();
            prop_assert!(read.has_flags(PacketFlag::RESPONSE));
            prop_assert!(reply.len() <= usize::from(MAX_EDNS_UDP));
        }
    }
}
