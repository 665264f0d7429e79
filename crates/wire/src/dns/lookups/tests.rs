use proptest::prelude::*;
use simple_dns::rdata::{A, CNAME, OPT, PTR, RData, SOA};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord, TYPE};

use super::*;
use crate::HostName;
use crate::dns::{Answer, Kind, Rcode};
use std::net::IpAddr;

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 9], 5_000);
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 53], 53);

fn up() -> (SocketAddr, SocketAddr) {
    (CLIENT.into(), SERVER.into())
}

fn down() -> (SocketAddr, SocketAddr) {
    (SERVER.into(), CLIENT.into())
}

fn millis(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn message<'a>(id: u16, name: &'a str, kind: TYPE) -> Packet<'a> {
    let mut packet = Packet::new_query(id);
    let name = Name::new_unchecked(name);
    packet.questions.push(simple_dns::Question::new(name, kind.into(), CLASS::IN.into(), false));
    packet
}

fn reply<'a>(
    id: u16,
    name: &'a str,
    kind: TYPE,
    answers: Vec<(&'a str, u32, RData<'a>)>,
) -> Packet<'a> {
    let mut packet = Packet::new_reply(id);
    packet.questions = message(id, name, kind).questions;
    packet.answers = answers
        .into_iter()
        .map(|(of, ttl, data)| ResourceRecord::new(Name::new_unchecked(of), CLASS::IN, ttl, data))
        .collect();
    packet
}

fn bytes(packet: &Packet<'_>) -> Vec<u8> {
    packet.build_bytes_vec_compressed().unwrap()
}

fn question(id: u16, name: &str) -> Vec<u8> {
    bytes(&message(id, name, TYPE::A))
}

fn answer(id: u16, name: &str) -> Vec<u8> {
    bytes(&reply(id, name, TYPE::A, vec![(name, 60, a(1))]))
}

fn a(n: u8) -> RData<'static> {
    RData::A(A { address: u32::from_be_bytes([203, 0, 113, n]) })
}

fn address(n: u8) -> IpAddr {
    [203, 0, 113, n].into()
}

fn cname(target: &str) -> RData<'_> {
    RData::CNAME(CNAME(Name::new_unchecked(target)))
}

/// Processes a complete message in a datagram.
fn pass(
    lookups: &mut Lookups,
    now: u64,
    ends: (SocketAddr, SocketAddr),
    message: &[u8],
) -> Option<Resolution> {
    let info = lookups.handle(millis(now), Transport::Udp, ends.0, ends.1, message, message.len());
    info.resolution
}

fn drain(lookups: &mut Lookups) -> Vec<Lookup> {
    std::iter::from_fn(|| lookups.poll()).collect()
}

/// All lookups after the end of the capture.
fn all(mut lookups: Lookups) -> Vec<Lookup> {
    lookups.finish();
    assert!(lookups.is_empty());
    drain(&mut lookups)
}

fn only(lookups: Lookups) -> Lookup {
    let mut all = all(lookups);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn name(lookup: &Lookup) -> &str {
    lookup.question.as_ref().map_or("-", |question| &question.name)
}

#[test]
fn a_query_is_joined_with_its_response() {
    let mut lookups = Lookups::default();
    assert_eq!(pass(&mut lookups, 1_000, up(), &question(7, "WWW.Example.com")), None);
    let records = vec![
        ("www.example.com", 300, cname("Shop.CDN.example")),
        ("shop.cdn.example", 20, a(1)),
        ("shop.cdn.example", 30, a(2)),
        ("shop.cdn.example", 30, a(1)),
    ];
    let answer = bytes(&reply(7, "WWW.Example.com", TYPE::A, records));
    let resolved = pass(&mut lookups, 1_023, down(), &answer);
    let host = HostName::parse(b"www.example.com").unwrap();
    let addresses = [(1, 20), (2, 30)].map(|(n, ttl)| (address(n), Span::from_secs(ttl)));
    let answered = Answer { id: 7, name: host, addresses: addresses.to_vec() };
    let client = IpAddr::from(CLIENT.0);
    assert_eq!(resolved, Some(Resolution::Addresses { client, answered }));
    let expected = Lookup {
        client: CLIENT.into(),
        server: SERVER.into(),
        transport: Transport::Udp,
        id: 7,
        question: Some(Question { name: "www.example.com".into(), kind: Kind::A, class: 1 }),
        queried_at: Some(millis(1_000)),
        queries: 1,
        is_ambiguous: false,
        response: Some(Response {
            at: millis(1_023),
            responses: 1,
            rcode: Rcode::NO_ERROR,
            answer_count: Some(4),
            addresses: vec![address(1), address(2)],
            canonical_name: Some("shop.cdn.example".into()),
            ttl: Some(Span::from_secs(20)),
            is_truncated: false,
            is_incomplete: false,
        }),
    };
    assert_eq!(expected.latency(), Some(Span::from_millis(23)));
    assert_eq!(only(lookups), expected);
}

#[test]
fn a_retransmitted_query_makes_the_response_ambiguous() {
    let mut lookups = Lookups::default();
    for now in [0, 1_000] {
        pass(&mut lookups, now, up(), &question(7, "a.example"));
    }
    for now in [1_010, 1_020] {
        assert!(pass(&mut lookups, now, down(), &answer(7, "a.example")).is_some());
    }
    // The client missed the response.
    pass(&mut lookups, 2_000, up(), &question(7, "a.example"));
    let lookup = only(lookups);
    assert_eq!(
        (lookup.queried_at, lookup.queries, lookup.is_ambiguous),
        (Some(millis(0)), 3, true)
    );
    assert_eq!(lookup.latency(), Some(Span::from_millis(1_010)));
    assert_eq!(lookup.response.unwrap().responses, 2);
    // Retransmitted only after the response: the latency is that of the first query.
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, up(), &question(7, "a.example"));
    pass(&mut lookups, 10, down(), &answer(7, "a.example"));
    pass(&mut lookups, 1_000, up(), &question(7, "a.example"));
    let lookup = only(lookups);
    assert_eq!((lookup.queries, lookup.is_ambiguous), (2, false));
    assert_eq!(lookup.latency(), Some(Span::from_millis(10)));
}

#[test]
fn an_unanswered_query_ends_after_its_timeout() {
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, up(), &question(1, "a.example"));
    pass(&mut lookups, 10_000, up(), &question(2, "b.example"));
    pass(&mut lookups, 20_000, up(), &question(1, "a.example"));
    pass(&mut lookups, 30_000, up(), &question(3, "c.example"));
    assert_eq!(lookups.poll(), None);
    pass(&mut lookups, 30_001, down(), &answer(3, "c.example"));
    let over = drain(&mut lookups);
    assert_eq!(over.iter().map(name).collect::<Vec<_>>(), ["a.example"]);
    assert_eq!((over[0].queries, &over[0].response, over[0].latency()), (2, &None, None));
    // Answered lookups end earlier; unanswered ones at the end of the capture.
    pass(&mut lookups, 35_001, up(), &question(4, "d.example"));
    assert_eq!((drain(&mut lookups).len(), lookups.len()), (0, 3));
    pass(&mut lookups, 35_002, up(), &question(5, "e.example"));
    let over = drain(&mut lookups);
    assert_eq!(over.iter().map(name).collect::<Vec<_>>(), ["c.example"]);
    let left: Vec<Lookup> = all(lookups);
    assert_eq!(left.iter().map(name).collect::<Vec<_>>(), ["b.example", "d.example", "e.example"]);
}

#[test]
fn an_unsolicited_response_has_no_query_time() {
    let mut lookups = Lookups::default();
    assert!(pass(&mut lookups, 5, down(), &answer(7, "a.example")).is_some());
    assert!(pass(&mut lookups, 6, down(), &answer(7, "a.example")).is_some());
    let lookup = only(lookups);
    assert_eq!((lookup.client, lookup.server), up());
    assert_eq!((lookup.queried_at, lookup.queries, lookup.latency()), (None, 0, None));
    assert_eq!(name(&lookup), "a.example");
    assert_eq!(lookup.response.unwrap().responses, 2);
}

#[test]
fn a_response_to_another_question_is_not_trusted() {
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, up(), &question(7, "a.example"));
    assert_eq!(pass(&mut lookups, 1, down(), &answer(7, "b.example")), None);
    // Another ID, client, server and transport.
    pass(&mut lookups, 2, down(), &answer(8, "a.example"));
    let (server, mut other) = down();
    other.set_port(5_001);
    pass(&mut lookups, 3, (server, other), &answer(7, "a.example"));
    let another = ([198, 51, 100, 54], 53).into();
    pass(&mut lookups, 4, (another, CLIENT.into()), &answer(7, "a.example"));
    let answer = answer(7, "a.example");
    lookups.handle(millis(5), Transport::Tcp, up().1, up().0, &answer, answer.len());
    assert_eq!(lookups.unanswered.len(), 1);
    pass(&mut lookups, 6, down(), &answer);
    let all = all(lookups);
    assert_eq!(all.len(), 6);
    let asked: Vec<_> = all.iter().filter(|lookup| lookup.queried_at.is_some()).collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].latency(), Some(Span::from_millis(6)));
}

#[test]
fn a_reused_id_starts_another_lookup() {
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, up(), &question(7, "a.example"));
    pass(&mut lookups, 1, up(), &question(7, "b.example"));
    assert_eq!(drain(&mut lookups).iter().map(name).collect::<Vec<_>>(), ["a.example"]);
    pass(&mut lookups, 2, down(), &answer(7, "b.example"));
    pass(&mut lookups, 3, up(), &bytes(&message(7, "b.example", TYPE::AAAA)));
    let over = drain(&mut lookups);
    assert_eq!(over.iter().map(name).collect::<Vec<_>>(), ["b.example"]);
    assert_eq!(over[0].latency(), Some(Span::from_millis(1)));
    assert_eq!(only(lookups).question.unwrap().kind, Kind::AAAA);
}

#[test]
fn a_clock_that_steps_back_gives_no_latency() {
    let mut lookups = Lookups::default();
    pass(&mut lookups, 1_000, up(), &question(7, "a.example"));
    pass(&mut lookups, 900, down(), &answer(7, "a.example"));
    assert_eq!(only(lookups).latency(), None);
    // The response was captured first, although its time is after the query.
    let mut lookups = Lookups::default();
    pass(&mut lookups, 1_000, down(), &answer(7, "a.example"));
    pass(&mut lookups, 980, up(), &question(7, "a.example"));
    assert_eq!(only(lookups).latency(), Some(Span::from_millis(20)));
}

#[test]
fn errors_have_their_codes() {
    for (code, text) in [
        (RCODE::ServerFailure, "SERVFAIL"),
        (RCODE::NameError, "NXDOMAIN"),
        (RCODE::Refused, "REFUSED"),
    ] {
        let mut packet = reply(7, "a.example", TYPE::A, vec![("a.example", 60, a(1))]);
        *packet.rcode_mut() = code;
        packet.set_flags(PacketFlag::TRUNCATION);
        let soa = RData::SOA(SOA {
            mname: Name::new_unchecked("ns.example"),
            rname: Name::new_unchecked("mail.example"),
            serial: 1,
            refresh: 2,
            retry: 3,
            expire: 4,
            minimum: 5,
        });
        let owner = Name::new_unchecked("example");
        packet.name_servers.push(ResourceRecord::new(owner, CLASS::IN, 5, soa));
        let mut lookups = Lookups::default();
        assert_eq!(pass(&mut lookups, 0, down(), &bytes(&packet)), None);
        let reply = only(lookups).response.unwrap();
        assert_eq!((reply.rcode.to_string().as_str(), reply.is_truncated), (text, true));
        assert_eq!((reply.answer_count, reply.is_incomplete), (Some(1), false));
    }
    // The upper bits of the rcode are in the OPT record.
    let mut packet = reply(7, "a.example", TYPE::A, Vec::new());
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: 1_232, version: 0 });
    let mut bad = bytes(&packet);
    let upper = bad.len() - 6;
    bad[upper] = 1;
    let mut lookups = Lookups::default();
    assert_eq!(pass(&mut lookups, 0, down(), &bad), None);
    let reply = only(lookups).response.unwrap();
    assert_eq!(reply.rcode.to_string(), "BADVERS");
    assert_eq!((reply.ttl, reply.canonical_name, reply.addresses.len()), (None, None, 0));
    assert_eq!([Kind(65).to_string(), Kind(4_711).to_string()], ["HTTPS", "TYPE4711"]);
    assert_eq!([Rcode(23).to_string(), Rcode(12).to_string()], ["BADCOOKIE", "RCODE12"]);
}

#[test]
fn any_name_can_be_asked_for() {
    let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)];
    let long: Vec<&[u8]> = long.iter().map(|label| label.as_bytes()).collect();
    let names: [(&[&[u8]], &str); 5] = [
        (&[], "."),
        (&[b"_IPP", b"_tcp", b"local"], "_ipp._tcp.local"),
        (&[b"a.b", b"\\", b"x"], "a\\.b.\\\\.x"),
        (&[b"My Printer\x00\xff"], "my\\032printer\\000\\255"),
        (&long, &[&["a"; 63], &["b"; 63][..]].concat().concat()),
    ];
    for (labels, text) in names {
        let mut lookups = Lookups::default();
        let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            query.push(label.len() as u8);
            query.extend_from_slice(label);
        }
        query.extend([0, 0, 255, 0, 1]);
        pass(&mut lookups, 0, up(), &query);
        let question = only(lookups).question.unwrap();
        if labels.len() == 4 {
            assert_eq!(question.name.len(), 253);
            assert_eq!(question.name.replace('.', "")[..126], *text);
        } else {
            assert_eq!(*question.name, *text);
        }
        assert_eq!(question.kind.to_string(), "ANY");
    }
}

#[test]
fn too_long_and_circular_names_are_rejected() {
    let mut lookups = Lookups::default();
    let header = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let mut long = header.to_vec();
    for _ in 0..4 {
        long.push(63);
        long.extend([b'a'; 63]);
    }
    for bad in [
        [&long, &[0, 0, 1, 0, 1][..]].concat(),
        // Pointers to themselves, forwards, into the header, through labels back to their
        // beginning, and a reserved label type.
        [&header[..], &[0xc0, 12, 0, 1, 0, 1]].concat(),
        [&header[..], &[0xc0, 20, 0, 1, 0, 1, 0, 0, 0, 0]].concat(),
        [&header[..], &[0xc0, 4, 0, 1, 0, 1]].concat(),
        [&header[..], &[1, b'a', 0xc0, 12, 0, 1, 0, 1]].concat(),
        [&header[..], &[0x41, b'a', 0, 0, 1, 0, 1]].concat(),
    ] {
        assert_eq!(pass(&mut lookups, 0, up(), &bad), None);
    }
    assert_eq!((lookups.unparsed(), lookups.len()), (6, 0));
    // A name may have as many pointers as labels, but not more.
    for (pointers, is_read) in [(127, true), (128, false)] {
        // A record whose owner is the end of the chain, after a record that contains the chain.
        let mut message = vec![0, 7, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 1];
        message.extend([0, 0, 99, 0, 1, 0, 0, 0, 0]);
        message.extend((pointers as u16 * 2).to_be_bytes());
        let mut target = 12;
        for _ in 0..pointers {
            let next = message.len() as u16;
            message.extend((0xc000_u16 | target).to_be_bytes());
            target = next;
        }
        message.extend((0xc000_u16 | target).to_be_bytes());
        message.extend([0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4]);
        assert_eq!(Message::read(&message).unwrap().is_complete, is_read, "{pointers}");
    }
}

#[test]
fn a_broken_record_ends_the_message() {
    let records = vec![
        ("a.example", 60, a(1)),
        ("a.example", 60, cname("bc.example")),
        ("a.example", 60, a(2)),
    ];
    let good = bytes(&reply(7, "a.example", TYPE::A, records));
    let whole = Message::read(&good).unwrap();
    assert_eq!((whole.answers.len(), whole.is_complete), (3, true));
    // The alias ends before its record, an address has three bytes, or more than present.
    let alias = 12 + 9 + 2 + 4 + 16 + 12;
    assert_eq!(good[alias..alias + 3], *b"\x02bc");
    for (at, value, remaining) in [(alias, 0, 1), (alias - 12 - 5, 3, 0), (good.len() - 5, 5, 2)] {
        let mut bad = good.clone();
        bad[at] = value;
        let broken = Message::read(&bad).unwrap();
        assert_eq!(
            (broken.answers.len(), broken.is_complete),
            (remaining, false),
            "{value} at {at}"
        );
    }
}

#[test]
fn addresses_have_names() {
    for (asked, is) in [
        ("9.113.0.203.in-addr.arpa", Some("203.0.113.9")),
        (
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.B.d.0.1.0.0.2.ip6.arpa",
            Some("2001:db8::1"),
        ),
        ("113.0.203.in-addr.arpa", None),
        ("1.9.113.0.203.in-addr.arpa", None),
        ("9.113.0.256.in-addr.arpa", None),
        ("+9.113.0.1.in-addr.arpa", None),
        ("8.b.d.0.1.0.0.2.ip6.arpa", None),
        ("1.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", None),
        ("10.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", None),
        ("a.example", None),
    ] {
        let target = RData::PTR(PTR(Name::new_unchecked("Host.Example")));
        let packet = reply(7, asked, TYPE::PTR, vec![(asked, 60, target)]);
        let expected = is.map(|address| Resolution::Pointer {
            address: address.parse().unwrap(),
            name: HostName::parse(b"host.example").unwrap(),
            lifetime: Span::from_secs(60),
        });
        let mut lookups = Lookups::default();
        assert_eq!(pass(&mut lookups, 0, down(), &bytes(&packet)), expected, "{asked}");
    }
}

#[test]
fn a_truncated_message_is_read_as_far_as_possible() {
    let records = vec![
        ("www.example.com", 300, cname("cdn.example")),
        ("cdn.example", 200, a(1)),
        ("cdn.example", 20, a(2)),
    ];
    let query = question(7, "www.example.com");
    let answer = bytes(&reply(7, "www.example.com", TYPE::A, records));
    let mut last = (false, 0);
    for cut in 0..=answer.len() {
        let mut lookups = Lookups::default();
        let asked = &query[..cut.min(query.len())];
        lookups.handle(millis(0), Transport::Udp, up().0, up().1, asked, query.len());
        lookups.handle(millis(9), Transport::Udp, up().1, up().0, &answer[..cut], answer.len());
        if cut < 4 {
            assert_eq!((lookups.unparsed(), lookups.len()), (2, 0));
            continue;
        }
        let lookup = only(lookups);
        assert_eq!(lookup.latency(), Some(Span::from_millis(9)), "{cut}");
        assert_eq!(lookup.question.is_some(), cut >= query.len(), "{cut}");
        let reply = lookup.response.unwrap();
        assert_eq!(reply.answer_count, (cut >= 12).then_some(3));
        assert_eq!(reply.is_incomplete, cut < answer.len());
        // A longer beginning contains at least the records of a shorter one.
        let now = (reply.canonical_name.is_some(), reply.addresses.len());
        assert!(now >= last && now.1 <= last.1 + 1, "{now:?} after {last:?}");
        last = now;
    }
    assert_eq!(last, (true, 2));
}

#[test]
fn the_response_completes_a_truncated_query() {
    let (query, answer) = (question(7, "a.example"), answer(7, "a.example"));
    let mut lookups = Lookups::default();
    lookups.handle(millis(0), Transport::Udp, up().0, up().1, &query[..20], query.len());
    pass(&mut lookups, 9, down(), &answer);
    let lookup = only(lookups);
    assert_eq!((name(&lookup), lookup.latency()), ("a.example", Some(Span::from_millis(9))));
    // An error response without a question.
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, up(), &query);
    pass(&mut lookups, 9, down(), &[0, 7, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]);
    let lookup = only(lookups);
    assert_eq!(name(&lookup), "a.example");
    assert_eq!(lookup.response.unwrap().rcode, Rcode(1));
}

#[test]
fn other_messages_yield_no_lookup() {
    let mut lookups = Lookups::default();
    let query = question(0, "printer.local");
    let ends = |from: u16, to: u16| ((CLIENT.0, from).into(), (SERVER.0, to).into());
    pass(&mut lookups, 0, ends(5_353, 5_353), &query);
    pass(&mut lookups, 0, ends(5_000, 5_353), &query);
    pass(&mut lookups, 0, ends(5_000, 5_355), &query);
    pass(&mut lookups, 0, ends(5_000, 443), &query);
    assert_eq!((lookups.multicast(), lookups.unparsed(), lookups.len()), (2, 0, 0));
    // A query from port 53, a response to it, an incomplete message, and an update.
    pass(&mut lookups, 0, ends(53, 5_000), &query);
    pass(&mut lookups, 0, ends(5_000, 53), &answer(7, "a.example"));
    pass(&mut lookups, 0, up(), &[0, 7, 1]);
    let mut update = query.clone();
    update[2] |= 5 << 3;
    pass(&mut lookups, 0, up(), &update);
    assert_eq!((lookups.unparsed(), lookups.len()), (4, 0));
    // A name server may query another one from port 53.
    pass(&mut lookups, 0, ends(53, 53), &query);
    assert_eq!((lookups.unparsed(), lookups.len()), (4, 1));
}

#[test]
fn the_number_of_lookups_is_limited() {
    let limits = LookupLimits { lookups: 10, ..LookupLimits::default() };
    let mut lookups = Lookups::new(limits);
    // Answered lookups are removed first.
    for id in 0..10 {
        pass(&mut lookups, 0, up(), &question(id, "a.example"));
        if id % 2 == 1 {
            pass(&mut lookups, 1, down(), &answer(id, "a.example"));
        }
    }
    let mut ids = Vec::new();
    for id in 10..18 {
        pass(&mut lookups, 2, up(), &question(id, "a.example"));
        assert_eq!(lookups.len(), 10);
        ids.extend(drain(&mut lookups).iter().map(|lookup| lookup.id));
    }
    assert_eq!(ids, [1, 3, 5, 7, 9, 0, 2, 4]);
    assert_eq!(lookups.evicted(), 3);
}

#[test]
fn the_number_of_records_read_is_limited() {
    let records = (0..600).map(|_| ("a.example", 60, a(1))).collect();
    let packet = bytes(&reply(7, "a.example", TYPE::A, records));
    let mut lookups = Lookups::default();
    pass(&mut lookups, 0, down(), &packet);
    let reply = only(lookups).response.unwrap();
    assert_eq!(
        (reply.answer_count, reply.is_incomplete, reply.addresses.len()),
        (Some(600), true, 1)
    );
    assert_eq!(Message::read(&packet).unwrap().answers.len(), 512);
}

proptest! {
    #[test]
    fn every_lookup_is_returned_once_and_no_input_panics(
        steps in prop::collection::vec(
            (0_u64..9_000, any::<bool>(), 0_u16..4, "[ab]", any::<prop::sample::Index>(),
                prop::option::of((any::<prop::sample::Index>(), any::<u8>()))), 1..80),
    ) {
        let mut lookups = Lookups::new(LookupLimits { lookups: 4, ..LookupLimits::default() });
        let (mut now, mut passed) = (0, 0);
        for (wait, is_up, id, name, cut, change) in steps {
            now += wait;
            let mut message = if is_up { question(id, &name) } else { answer(id, &name) };
            if let Some((at, to)) = change {
                let at = at.index(message.len());
                message[at] = to;
            }
            let cut = cut.index(message.len() + 1);
            let ends = if is_up { up() } else { down() };
            let before = lookups.unparsed();
            lookups.handle(millis(now), Transport::Udp, ends.0, ends.1, &message[..cut], message.len());
            passed += 1 - (lookups.unparsed() - before);
            prop_assert!(lookups.len() <= 4);
        }
        let rows = all(lookups);
        let times = |row: &Lookup| u64::from(row.queries + row.response.as_ref().map_or(0, |r| r.responses));
        prop_assert_eq!(rows.iter().map(times).sum::<u64>(), passed);
    }

    #[test]
    fn any_bytes_can_pass(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        more in 0_usize..9,
        is_up in any::<bool>(),
    ) {
        let mut lookups = Lookups::default();
        let ends = if is_up { up() } else { down() };
        lookups.handle(millis(1), Transport::Udp, ends.0, ends.1, &bytes, bytes.len() + more);
        for lookup in all(lookups) {
            let names = lookup.question.iter().map(|question| &question.name);
            let canonical = lookup.response.iter().filter_map(|reply| reply.canonical_name.as_ref());
            prop_assert!(names.chain(canonical).all(|name| name.len() <= 1_016));
        }
    }
}
