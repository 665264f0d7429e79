use proptest::prelude::*;
use simple_dns::rdata::{A, AAAA, CNAME, RData};
use simple_dns::{CLASS, Name, Packet, Question, ResourceRecord, TYPE};

use super::*;

fn query_packet(name: &str, kind: TYPE) -> Packet<'_> {
    let mut packet = Packet::new_query(7);
    let name = Name::new_unchecked(name);
    packet.questions.push(Question::new(name, kind.into(), CLASS::IN.into(), false));
    packet
}

fn reply<'a>(name: &'a str, answers: Vec<(&'a str, u32, RData<'a>)>) -> Packet<'a> {
    let mut packet = Packet::new_reply(7);
    packet.questions = query_packet(name, TYPE::A).questions;
    packet.answers = answers
        .into_iter()
        .map(|(of, ttl, data)| ResourceRecord::new(Name::new_unchecked(of), CLASS::IN, ttl, data))
        .collect();
    packet
}

fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    packet.build_bytes_vec_compressed().unwrap()
}

fn a(n: u8) -> RData<'static> {
    RData::A(A { address: u32::from_be_bytes([192, 0, 2, n]) })
}

fn cname(target: &str) -> RData<'_> {
    RData::CNAME(CNAME(Name::new_unchecked(target)))
}

fn answered(name: &str, addresses: &[(&str, u64)]) -> Option<Answer> {
    let addresses = addresses
        .iter()
        .map(|(address, seconds)| (address.parse().unwrap(), Span::from_secs(*seconds)));
    let name = HostName::parse(name.as_bytes()).unwrap();
    Some(Answer { id: 7, name, addresses: addresses.collect() })
}

#[test]
fn a_query_has_its_id_name_and_type() {
    for (kind, number) in [(TYPE::A, 1), (TYPE::AAAA, 28), (TYPE::HTTPS, 65)] {
        let name = HostName::parse(b"www.example.com").unwrap();
        let bytes = bytes(&query_packet("WWW.example.com", kind));
        assert_eq!(query(&bytes), Some(Query { id: 7, name, kind: number }));
        assert_eq!(answer(&bytes), None);
    }
    assert_eq!(query(&bytes(&reply("a.example", Vec::new()))), None);
}

#[test]
fn addresses_are_distinct_and_have_lifetimes() {
    let six = RData::AAAA(AAAA { address: 1 });
    let packet = reply(
        "A.example",
        vec![
            ("a.example", 60, a(1)),
            ("a.EXAMPLE", 30, a(2)),
            ("b.example", 60, a(3)),
            ("a.example", 90, a(1)),
            ("a.example", u32::MAX, six),
        ],
    );
    let expected = [("192.0.2.1", 60), ("192.0.2.2", 30), ("::1", 0)];
    assert_eq!(answer(&bytes(&packet)), answered("a.example", &expected));
    assert_eq!(answer(&bytes(&reply("a.example", Vec::new()))), answered("a.example", &[]));
}

#[test]
fn addresses_of_aliases_belong_to_the_queried_name() {
    let packet = reply(
        "www.example.com",
        vec![
            // Servers may send the records in any order.
            ("edge.cdn.example", 300, a(1)),
            ("www.example.com", 20, cname("Shop.CDN.example")),
            ("shop.cdn.example", 600, cname("edge.cdn.example")),
            ("shop.cdn.example", 300, a(9)),
        ],
    );
    let expected = answered("www.example.com", &[("192.0.2.1", 20)]);
    assert_eq!(answer(&bytes(&packet)), expected);
}

#[test]
fn aliases_in_a_circle_end() {
    let circle = vec![
        ("a.example", 9, cname("b.example")),
        ("b.example", 9, cname("a.example")),
        ("c.example", 9, a(1)),
    ];
    assert_eq!(answer(&bytes(&reply("a.example", circle))), answered("a.example", &[]));
}

#[test]
fn the_number_of_addresses_is_limited() {
    let packet = reply("a.example", (0..200).map(|n| ("a.example", 60, a(n))).collect());
    let addresses = answer(&bytes(&packet)).unwrap().addresses;
    assert_eq!(addresses.len(), MAX_ADDRESSES);
}

#[test]
fn errors_and_other_messages_yield_no_answer() {
    let good = bytes(&reply("a.example", vec![("a.example", 60, a(1))]));
    assert!(answer(&good).is_some());
    // A query, another opcode, NXDOMAIN, no question, two questions, and more records than present.
    for (at, value) in [(2, 0), (2, 0xa0), (3, 3), (5, 0), (5, 2), (7, 2), (6, 0xff), (10, 0xff)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(answer(&bad), None, "{value} at {at}");
    }
    let mut two = query_packet("a.example", TYPE::A);
    two.questions.extend(query_packet("b.example", TYPE::A).questions);
    assert_eq!(query(&bytes(&two)), None);
    // Another class, of the question and of the record.
    let class = 12 + "a.example".len() + 2 + 2;
    let mut bad = good.clone();
    bad[class + 1] = 3;
    assert_eq!(answer(&bad), None);
    let mut bad = good.clone();
    bad[class + 2 + 2 + 2 + 1] = 3;
    assert_eq!(answer(&bad), answered("a.example", &[]));
}

#[test]
fn names_that_are_not_host_names_are_rejected() {
    for name in ["1.2.0.192", "a b.example", "a\\.b", ""] {
        assert_eq!(answer(&bytes(&reply(name, Vec::new()))), None, "{name}");
    }
    // A dot inside a label does not split the label.
    let mut trick = bytes(&reply("axb.example", Vec::new()));
    trick[14] = b'.';
    assert_eq!(answer(&trick), None);
}

#[test]
fn a_name_that_points_to_itself_is_refused() {
    let mut bytes = bytes(&query_packet("a.example", TYPE::A));
    bytes[12..14].copy_from_slice(&[0xc0, 12]);
    assert_eq!(query(&bytes), None);
}

#[test]
fn a_stream_has_lengths_between_its_messages() {
    let message = bytes(&query_packet("a.example", TYPE::A));
    let mut stream = (message.len() as u16).to_be_bytes().to_vec();
    stream.extend_from_slice(&message);
    stream.extend_from_slice(b"\0");
    assert_eq!(tcp_message(&stream), Peek::Complete(&message[..]));
    let whole = stream.len() - 1;
    assert_eq!(tcp_message(&stream[..whole - 1]), Peek::More(whole));
    assert_eq!(tcp_message(&stream[..2]), Peek::More(whole));
    assert_eq!(tcp_message(&stream[..1]), Peek::More(2));
    assert_eq!(tcp_message(&[0, 0, 1]), Peek::No);
}

proptest! {
    #[test]
    fn a_beginning_or_a_changed_answer_never_panics(
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let packet = reply(
            "a.example",
            vec![("a.example", 9, cname("b.example")), ("b.example", 9, a(1))],
        );
        let mut bytes = bytes(&packet);
        let whole = answer(&bytes);
        let beginning = answer(&bytes[..cut.index(bytes.len())]);
        prop_assert!(beginning.is_none() || beginning == whole);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = answer(&bytes);
        let _ = query(&bytes);
    }
}

/// The same response as read by another parser, which also rejects trailing bytes and invalid
/// records that do not matter here.
fn as_others_read(bytes: &[u8]) -> Option<(u16, String, usize)> {
    let packet = Packet::parse(bytes).ok()?;
    let name = packet.questions.first()?.qname.to_string().to_ascii_lowercase();
    Some((packet.id(), name, packet.answers.len()))
}

proptest! {
    #[test]
    fn another_parser_reads_the_same(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let packet = reply(
            "www.a.example",
            vec![("www.a.example", 9, cname("b.a.example")), ("b.a.example", 9, a(1))],
        );
        let mut bytes = bytes(&packet);
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        if let (Some(answered), Some((id, name, answers))) = (answer(&bytes), as_others_read(&bytes)) {
            prop_assert_eq!((answered.id, answered.name.to_string()), (id, name));
            prop_assert!(answered.addresses.len() <= answers);
        }
    }
}
