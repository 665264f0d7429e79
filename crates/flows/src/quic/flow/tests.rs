use Endpoint::{Client, Server};
use proptest::prelude::*;
use rustls::Side;
use rustls::quic::Version;

use super::*;
use crate::quic::MAX_ACK_ONLY_LEN;
use crate::sample::{ID, crypto, hello, sealed_by};
use crate::sample::{alpn, extension, sized, sni};

/// Connection IDs of the endpoints.
const PHONE: &[u8] = b"me";
const SITE: &[u8] = b"the site";

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn span(millis: u64) -> Option<Span> {
    Some(Span::from_millis(millis))
}

/// The client's first datagram with a part of the ClientHello, to a server with connection ID `to`.
fn initial(version: Version, to: &[u8], frames: &[u8]) -> Vec<u8> {
    sealed_by(Side::Client, version, [to, PHONE], 0, &[], frames, 1_162)
}

fn first() -> Vec<u8> {
    initial(Version::V1, ID, &crypto(0, &hello(Version::V1)))
}

/// The ServerHello and the rest of its datagram.
fn answer(version: Version, from: &[u8]) -> Vec<u8> {
    let frames = [&[2, 0, 0, 0, 0][..], &crypto(0, &[2; 90])].concat();
    let hello = sealed_by(Side::Server, version, [PHONE, from], 0, &[], &frames, 0);
    let kind = if matches!(version, Version::V2) { 3 } else { 2 };
    [hello, long(version, kind, [PHONE, from], 1_100)].concat()
}

/// A packet with a long header and `sealed` encrypted bytes.
fn long(version: Version, kind: u8, [to, from]: [&[u8]; 2], sealed: u16) -> Vec<u8> {
    let wire = if matches!(version, Version::V2) { VERSION_2 } else { VERSION_1 };
    let mut bytes = [&[0xc3 | kind << 4][..], &wire.to_be_bytes()].concat();
    for id in [to, from] {
        bytes.push(id.len() as u8);
        bytes.extend(id);
    }
    bytes.extend((sealed | 0x4000).to_be_bytes());
    bytes.resize(bytes.len() + usize::from(sealed), 0xa5);
    bytes
}

/// A packet with a short header, of `length` bytes.
fn short(to: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = [&[0x41][..], to].concat();
    bytes.resize(length.max(bytes.len()), 0x5a);
    bytes
}

/// The client's response to the ServerHello.
fn finished(version: Version) -> Vec<u8> {
    let kind = if matches!(version, Version::V2) { 3 } else { 2 };
    [long(version, kind, [SITE, PHONE], 60), short(SITE, 200)].concat()
}

/// State of a connection after these datagrams, and the exchanges that it returned.
fn after(datagrams: &[(u64, Endpoint, &[u8])]) -> (Flow, Vec<Exchange>) {
    let mut flow = Flow::new();
    let mut exchanges = Vec::new();
    for (at, from, bytes) in datagrams {
        exchanges.extend(flow.handle(ms(*at), *from, bytes, bytes.len()));
    }
    exchanges.extend(flow.end());
    (flow, exchanges)
}

fn assert_shop_hello(flow: &Flow) {
    let hello = flow.client_hello().expect("the hello was read");
    assert_eq!(hello.server_name.as_ref().unwrap().as_str(), "shop.example.com");
    assert_eq!(*hello.protocols, [b"h3"]);
}

#[test]
fn a_handshake_tells_all_that_is_not_secret() {
    for (version, wire) in [(Version::V1, VERSION_1), (Version::V2, VERSION_2)] {
        let (flow, _) = after(&[
            (100, Client, &initial(version, ID, &crypto(0, &hello(version)))),
            (140, Server, &answer(version, SITE)),
            (
                141,
                Server,
                &long(version, if wire == VERSION_2 { 3 } else { 2 }, [PHONE, SITE], 900),
            ),
            (150, Client, &finished(version)),
            (190, Server, &short(PHONE, 300)),
        ]);
        assert_eq!(flow.is_quic(), Some(true));
        assert_eq!([Client, Server].map(|end| flow.version(end)), [Some(wire); 2]);
        assert_eq!([Client, Server].map(|end| flow.id_length(end)), [Some(2), Some(8)]);
        assert_shop_hello(&flow);
        assert!(matches!(flow.hello, HelloState::Read(_)));
        let handshake = flow.handshake();
        assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (span(40), span(10)));
        let Handshake {
            client_initial: began,
            server_initial: answer,
            client_reply: reply,
            completed: done,
            ..
        } = *handshake;
        assert_eq!([began, answer, reply, done], [100, 140, 150, 150].map(|at| Some(ms(at))));
        assert_eq!(flow.long_headers(), 5);
        assert!(!flow.was_retried() && !flow.was_negotiated() && !flow.has_early_data());
    }
}

#[test]
fn a_hello_in_two_datagrams_is_one_flight() {
    let hello = hello(Version::V1);
    let (flow, _) = after(&[
        (0, Client, &initial(Version::V1, ID, &crypto(0, &hello[..90]))),
        (3, Client, &initial(Version::V1, ID, &crypto(90, &hello[90..]))),
        (43, Server, &answer(Version::V1, SITE)),
        (44, Server, &answer(Version::V1, SITE)),
        (50, Client, &finished(Version::V1)),
    ]);
    assert_shop_hello(&flow);
    let handshake = flow.handshake();
    assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (span(40), span(7)));
}

/// A ClientHello with extensions 0, 0x10, 0x0d, 0x2b, a GREASE value and 0x39 (QUIC transport
/// parameters), and with a long key share at the end.
fn long_hello() -> Vec<u8> {
    let extensions = [
        sni(b"shop.example.com"),
        extension(0x3a3a, &[]),
        extension(0x0d, &sized(2, &[4, 3, 8, 4])),
        alpn(&["h3"]),
        extension(0x2b, &sized(1, &[3, 4])),
        extension(0x39, b"parameters"),
        extension(0x33, &[7; 1_300]),
    ];
    let suites = [0x13, 3, 0x1a, 0x1a, 0x13, 1, 0x13, 2];
    let body =
        [&[3, 3][..], &[7; 32], &[0], &sized(2, &suites), &[1, 0], &sized(2, &extensions.concat())];
    [&[1][..], &sized(3, &body.concat())].concat()
}

/// Computed manually: three suites and six extensions without GREASE;
/// `printf 1301,1302,1303 | sha256sum` and `printf 000d,002b,0033,0039_0403,0804 | sha256sum`.
const JA4: &str = "q13d0306h3_55b375c5d22e_b27c2b71ce49";

#[test]
fn the_fingerprint_waits_for_the_whole_hello_and_the_name_does_not() {
    let hello = long_hello();
    let [first, second] = [(0, &hello[..900]), (900, &hello[900..])]
        .map(|(at, part)| initial(Version::V1, ID, &crypto(at, part)));
    let mut flow = Flow::new();
    flow.handle(ms(0), Client, &first, first.len());
    assert_shop_hello(&flow);
    assert_eq!(flow.client_hello().unwrap().ja4, None);
    // A copy of the known part, and then the rest.
    flow.handle(ms(1), Client, &first, first.len());
    flow.handle(ms(2), Client, &second, second.len());
    assert_shop_hello(&flow);
    assert!(matches!(flow.hello, HelloState::Read(_)), "nothing is held for what will not come");
    assert_eq!(flow.client_hello().unwrap().ja4.as_deref(), Some(JA4));

    // In reverse order the ClientHello is complete at once or not at all.
    let (flow, _) = after(&[(0, Client, &second), (1, Client, &first)]);
    assert_eq!(flow.client_hello().unwrap().ja4.as_deref(), Some(JA4));
}

#[test]
fn where_the_end_of_a_hello_did_not_pass_its_name_stays() {
    let part = initial(Version::V1, ID, &crypto(0, &long_hello()[..900]));
    let answered = (40, Server, &answer(Version::V1, SITE)[..]);
    let finished = finished(Version::V1);
    for last in [answered, (50, Client, &finished)] {
        let (flow, _) = after(&[(0, Client, &part), last]);
        assert_shop_hello(&flow);
        assert!(matches!(flow.hello, HelloState::Read(_)));
        let hello = flow.client_hello().unwrap();
        assert!(!hello.is_complete && hello.ja4.is_none());
    }
    // The wait ends after this many datagrams.
    let mut flow = Flow::new();
    for at in 0..=manyways_wire::quic::MAX_DATAGRAMS as u64 {
        assert!(!matches!(flow.hello, HelloState::Read(_)));
        flow.handle(ms(at), Client, &part, part.len());
    }
    assert_shop_hello(&flow);
    assert!(matches!(flow.hello, HelloState::Read(_)));
}

#[test]
fn nobody_knows_which_copy_is_answered() {
    let (hello, answer) = (first(), answer(Version::V1, SITE));
    let (flow, _) = after(&[
        (0, Client, &hello),
        (900, Client, &hello),
        (940, Server, &answer),
        (950, Client, &finished(Version::V1)),
    ]);
    assert_eq!((flow.handshake().server_rtt(), flow.handshake().client_flights), (None, 2));
    assert_eq!(flow.handshake().client_rtt(), span(10));

    let (flow, _) = after(&[
        (0, Client, &hello),
        (40, Server, &answer),
        (900, Client, &hello),
        (940, Server, &answer),
        (950, Client, &finished(Version::V1)),
    ]);
    assert_eq!(flow.handshake().server_rtt(), span(40));
    assert_eq!((flow.handshake().client_rtt(), flow.handshake().server_flights), (None, 2));
}

#[test]
fn what_is_only_an_acknowledgement_gets_no_reply() {
    let ack = sealed_by(Side::Server, Version::V1, [PHONE, SITE], 0, &[], &[2, 0, 0, 0, 0], 0);
    let (flow, _) = after(&[
        (0, Client, &first()),
        (40, Server, &ack),
        (90, Server, &answer(Version::V1, SITE)),
        (97, Client, &finished(Version::V1)),
    ]);
    let handshake = flow.handshake();
    assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (span(40), span(7)));
}

#[test]
fn who_uses_the_servers_id_has_read_its_answer() {
    let reply = |to: &[u8]| {
        sealed_by(Side::Client, Version::V1, [to, PHONE], 1, &[], &[2, 0, 0, 0, 0], 1_162)
    };
    let replied = |id: &[u8]| {
        let datagrams: [(u64, Endpoint, &[u8]); 4] = [
            (0, Client, &first()),
            (40, Server, &answer(Version::V1, id)),
            (50, Client, &reply(id)),
            (55, Client, &finished(Version::V1)),
        ];
        after(&datagrams).0.handshake().client_rtt()
    };
    assert_eq!(replied(SITE), span(10));
    assert_eq!(replied(b""), span(10));
    // A server that keeps the ID that the client chose proves nothing.
    assert_eq!(replied(ID), span(15));
}

#[test]
fn half_a_capture_tells_half() {
    let (flow, _) = after(&[(0, Client, &first()), (90, Client, &finished(Version::V1))]);
    assert_shop_hello(&flow);
    assert_eq!(flow.is_quic(), Some(true));
    assert_eq!((flow.handshake().server_rtt(), flow.handshake().client_rtt()), (None, None));
    let (flow, _) =
        after(&[(0, Server, &answer(Version::V1, SITE)), (9, Server, &short(PHONE, 90))]);
    assert_eq!((flow.is_quic(), flow.version(Server)), (Some(true), Some(VERSION_1)));
    assert_eq!((flow.handshake().server_rtt(), flow.handshake().client_initial), (None, None));
    assert!(flow.client_hello().is_none());
    // A clock that steps back.
    let (flow, _) = after(&[(50, Client, &first()), (40, Server, &answer(Version::V1, SITE))]);
    assert_eq!(flow.handshake().server_rtt(), None);
}

#[test]
fn cut_datagrams_have_times_but_no_hello() {
    let mut flow = Flow::new();
    for (at, from, bytes) in [
        (0, Client, first()),
        (40, Server, answer(Version::V1, SITE)),
        (50, Client, long(Version::V1, 2, [SITE, PHONE], 60)),
        (60, Client, short(SITE, 90)),
    ] {
        flow.handle(ms(at), from, &bytes[..bytes.len().min(54)], bytes.len());
    }
    assert_eq!(flow.is_quic(), Some(true));
    assert!(flow.client_hello().is_none());
    let handshake = flow.handshake();
    assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (span(40), span(10)));
}

#[test]
fn a_retry_begins_it_anew() {
    let retry = [&[0xf0, 0, 0, 0, 1, 2][..], PHONE, &[6], b"retry!", &[9; 30]].concat();
    let hello = crypto(0, &hello(Version::V1)[..60]);
    let again =
        sealed_by(Side::Client, Version::V1, [b"retry!", PHONE], 1, b"token", &hello, 1_162);
    let (flow, _) = after(&[
        (0, Client, &initial(Version::V1, ID, &hello)),
        (50, Server, &retry),
        (70, Client, &again),
        (110, Server, &answer(Version::V1, b"retry!")),
        // The same ID as before proves nothing.
        (115, Client, &again),
        (130, Client, &finished(Version::V1)),
    ]);
    assert!(flow.was_retried() && !flow.was_negotiated());
    let handshake = flow.handshake();
    assert_eq!((handshake.client_initial, handshake.client_flights), (Some(ms(0)), 1));
    assert_eq!((handshake.server_rtt(), handshake.client_rtt()), (span(40), span(20)));
}

#[test]
fn what_stands_behind_a_packet_may_be_none() {
    let other = long(Version::V1, 2, [b"other", SITE], 60);
    let answer = [answer(Version::V1, SITE), other].concat();
    let padded = [first(), vec![0; 90]].concat();
    let stray = [padded.clone(), short(b"other", 90)].concat();
    let begun = [first(), short(b"other id", 90)].concat();
    for up in [padded, stray, begun] {
        let (flow, _) = after(&[(0, Client, &up), (40, Server, &answer)]);
        assert_shop_hello(&flow);
        assert_eq!((flow.handshake().completed, flow.long_headers()), (None, 3));
    }
}

#[test]
fn early_data_may_overtake_the_hello() {
    let (flow, _) =
        after(&[(0, Client, &long(Version::V1, 1, [ID, PHONE], 300)), (1, Client, &first())]);
    assert_shop_hello(&flow);
}

#[test]
fn versions_are_negotiated() {
    let unknown = 0x1a2a_3a4a_u32.to_be_bytes();
    let mut greased = first();
    greased[1..5].copy_from_slice(&unknown);
    let list = [&[0xff, 0, 0, 0, 0, 2][..], PHONE, &[8], ID, &VERSION_1.to_be_bytes()].concat();
    let (flow, _) = after(&[(0, Client, &greased)]);
    assert_eq!((flow.is_quic(), flow.version(Client)), (None, Some(0x1a2a_3a4a)));
    let (flow, _) = after(&[
        (0, Client, &greased),
        (30, Server, &list),
        (35, Client, &first()),
        (75, Server, &answer(Version::V1, SITE)),
        (80, Client, &finished(Version::V1)),
    ]);
    assert!(flow.was_negotiated() && !flow.was_retried());
    assert_eq!(flow.is_quic(), Some(true));
    assert_eq!((flow.version(Client), flow.version(Server)), (Some(0x1a2a_3a4a), Some(VERSION_1)));
    assert_shop_hello(&flow);
    assert_eq!(flow.handshake().server_rtt(), span(40));
    // The client may choose another ID for itself then.
    let renamed = sealed_by(Side::Client, Version::V1, [ID, b"new"], 0, &[], &[1], 1_162);
    let (flow, _) = after(&[(0, Client, &greased), (30, Server, &list), (35, Client, &renamed)]);
    assert_eq!(flow.id_length(Client), Some(3));
    // A Version Negotiation for another client.
    let other = [&[0xff, 0, 0, 0, 0, 2][..], b"no", &[8], ID, &VERSION_1.to_be_bytes()].concat();
    let (flow, _) = after(&[(0, Client, &greased), (30, Server, &other)]);
    assert_eq!((flow.is_quic(), flow.was_negotiated()), (None, false));
}

#[test]
fn a_version_that_nobody_knows_is_quic_where_both_speak_it() {
    let mut up = first();
    let mut down = answer(Version::V1, SITE);
    for bytes in [&mut up, &mut down] {
        bytes[1..5].copy_from_slice(&0xbabe_b00c_u32.to_be_bytes());
    }
    let (flow, _) = after(&[(0, Client, &up), (30, Server, &down)]);
    assert_eq!((flow.is_quic(), flow.version(Server)), (Some(true), Some(0xbabe_b00c)));
    down[6] ^= 1;
    let mut datagrams: Vec<(u64, Endpoint, &[u8])> = vec![(0, Client, &up)];
    datagrams.resize(usize::try_from(MAX_UNDECIDED).unwrap(), (30, Server, &down));
    assert_eq!(after(&datagrams).0.is_quic(), None);
    datagrams.push((31, Server, &down));
    assert_eq!(after(&datagrams).0.is_quic(), Some(false));
}

#[test]
fn what_is_not_quic_is_dropped() {
    let first = first();
    let with = |at: usize, to: u8| {
        let mut bytes = first.clone();
        bytes[at] = to;
        bytes
    };
    for (bytes, expected) in [
        // DTLS, STUN, and long headers without the fixed bit, with an ID that is too long, and with
        // a packet that is longer than its datagram.
        (vec![0x16, 0xfe, 0xfd, 0, 0], Some(false)),
        (vec![0, 1, 0, 8, 0x21], Some(false)),
        (with(0, 0x83), Some(false)),
        (with(5, 21), Some(false)),
        (with(17, 0x7f), Some(false)),
        (first[..40].to_vec(), None),
        (short(SITE, 60), None),
    ] {
        let (flow, _) = after(&[(0, Client, &bytes)]);
        assert_eq!(flow.is_quic(), expected, "{:x?}", &bytes[..5]);
    }
    // The fixed bit may be clear after negotiation.
    let mut reply = finished(Version::V1);
    reply[0] &= !0x40;
    let (flow, _) = after(&[
        (0, Client, &first),
        (40, Server, &answer(Version::V1, SITE)),
        (60, Client, &reply),
    ]);
    assert_eq!((flow.is_quic(), flow.handshake().client_rtt()), (Some(true), span(20)));
}

#[test]
fn early_data_is_seen_and_is_a_request() {
    let early = [first(), long(Version::V1, 1, [ID, PHONE], 300)].concat();
    let (flow, exchanges) = after(&[
        (0, Client, &early),
        (40, Server, &[answer(Version::V1, SITE), short(PHONE, 500)].concat()),
    ]);
    assert!(flow.has_early_data());
    let [exchange] = exchanges[..] else { panic!("one request") };
    assert_eq!(exchange.response_time(), Span::from_millis(40));
    assert_eq!(exchange.response.as_bytes(), 500);
    // A later connection ID, without its Initial packet.
    let (flow, _) = after(&[(0, Client, &long(Version::V1, 1, [ID, PHONE], 300))]);
    assert!(flow.has_early_data() && flow.handshake().client_initial.is_none());
}

/// A connection whose handshake ends at 150, 40 from the server.
fn established() -> Flow {
    after(&[
        (100, Client, &first()),
        (140, Server, &answer(Version::V1, SITE)),
        (150, Client, &long(Version::V1, 2, [SITE, PHONE], 60)),
        (151, Client, &short(SITE, 40)),
    ])
    .0
}

/// Times of requests and responses.
fn exchanges(datagrams: &[(u64, Endpoint, usize)]) -> Vec<[u64; 4]> {
    let mut flow = established();
    let mut all = Vec::new();
    for (at, from, length) in datagrams {
        all.extend(flow.handle(ms(*at), *from, &short(SITE, *length), *length));
    }
    all.extend(flow.end());
    assert_eq!(flow.inferred_response_times().count(), all.len() as u64);
    let times =
        |it: &Exchange| [it.request_end, it.response_start].map(|at| at.as_nanos() / 1_000_000);
    let sizes = |it: &Exchange| [it.request.as_bytes(), it.response.as_bytes()];
    all.iter().map(|it| [times(it), sizes(it)].concat().try_into().unwrap()).collect()
}

#[test]
fn requests_are_told_from_acknowledgements_by_their_size() {
    let told = exchanges(&[
        (200, Client, 300),
        (202, Client, 100),
        (242, Server, MAX_ACK_ONLY_LEN),
        (262, Server, 1_000),
        (263, Client, 35),
        (264, Server, 1_200),
        (265, Client, MAX_ACK_ONLY_LEN),
        (300, Server, 200),
        (400, Client, MAX_ACK_ONLY_LEN + 1),
        (450, Server, 90),
    ]);
    assert_eq!(told, [[202, 262, 400, 2_400], [400, 450, 81, 90]]);
}

#[test]
fn nothing_is_answered_sooner_than_the_server_is_reached() {
    // A second request during the response to the first.
    let told = exchanges(&[
        (200, Client, 300),
        (250, Server, 1_000),
        (255, Client, 200),
        (256, Server, 1_000),
        (274, Server, 1_000),
        (300, Server, 500),
    ]);
    assert_eq!(told, [[200, 250, 300, 3_000], [255, 300, 200, 500]]);
}

#[test]
fn probes_for_longer_packets_are_no_requests() {
    let told = exchanges(&[
        (200, Client, 300),
        (250, Server, 1_000),
        (260, Client, 1_350),
        (330, Server, 1_000),
        (340, Client, 1_350),
        (400, Server, 1_000),
    ]);
    assert_eq!(told, [[200, 250, 300, 2_000], [340, 400, 1_350, 1_000]]);
}

#[test]
fn a_hello_that_did_not_pass_is_not_waited_for() {
    let part = initial(Version::V1, ID, &crypto(0, &hello(Version::V1)[..60]));
    let mut flow = Flow::new();
    flow.handle(ms(0), Client, &part, part.len());
    assert!(matches!(flow.hello, HelloState::Partial(_)));
    flow.handle(ms(9), Client, &short(SITE, 40), 40);
    assert!(matches!(flow.hello, HelloState::Missing));
}

#[test]
fn the_spin_bit_is_read_where_a_version_has_one() {
    let spun = |version: Option<u32>| {
        let mut flow = established();
        flow.versions[Server as usize] = version;
        for n in 0..4_000_u64 {
            // A round trip of 50, of which 10 are on the client's side.
            for (from, at) in [(Client, n), (Server, n + 10)] {
                let mut bytes = short(SITE, 40);
                bytes[0] |= if at / 50 % 2 == 0 { 0x20 } else { 0 };
                let bit = from == Client;
                bytes[0] ^= if bit { 0x20 } else { 0 };
                flow.handle(ms(200 + n), from, &bytes, 40);
            }
        }
        let spin = flow.spin()?;
        Some([spin.server_rtt().median()?, spin.client_rtt().median()?])
    };
    // Medians have an error of at most 0.8 %.
    let halves = spun(Some(VERSION_1)).unwrap().map(|half| half.as_millis_f64());
    assert!((halves[0] / 40.0 - 1.0).abs() < 0.008, "{halves:?}");
    assert!((halves[1] / 10.0 - 1.0).abs() < 0.008, "{halves:?}");
    assert_eq!(spun(Some(0x5130_3433)), None);
    assert!(established().spin().is_none());
}

#[test]
fn a_new_initial_after_the_handshake_is_another_connection() {
    let flow = established();
    let other = initial(Version::V1, b"another id", &[1]);
    let answered = initial(Version::V1, SITE, &[2, 0, 0, 0, 0]);
    for (bytes, expected) in [(&first(), false), (&answered, false), (&other, true)] {
        assert_eq!(flow.is_new_connection(bytes, bytes.len()), expected);
    }
    assert!(!flow.is_new_connection(&other[..900], 900), "a client fills it");
    assert!(!after(&[(0, Client, &first())]).0.is_new_connection(&other, other.len()));
    assert!(after(&[(0, Client, &short(SITE, 30))]).0.is_new_connection(&other, other.len()));
}

#[test]
fn a_flow_is_small() {
    // A table may hold a million of these.
    assert!(size_of::<Flow>() <= 720, "{}", size_of::<Flow>());
    assert!(size_of::<Spin>() <= 640, "{}", size_of::<Spin>());
    assert!(size_of::<Initials>() <= 2_048, "{}", size_of::<Initials>());
    assert!(size_of::<crate::udp::Flow>() <= 256, "{}", size_of::<crate::udp::Flow>());
}

proptest! {
    #[test]
    fn any_bytes_never_panic(
        parts in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..90), 0_usize..3_000, any::<u64>()),
            0..30,
        ),
    ) {
        let mut flow = Flow::new();
        for (is_up, bytes, length, at) in &parts {
            let from = if *is_up { Client } else { Server };
            flow.is_new_connection(bytes, *length);
            Flow::is_start(bytes, *length);
            flow.handle(Time::from_nanos(*at), from, bytes, *length);
        }
        flow.end();
        let handshake = flow.handshake();
        prop_assert!(handshake.server_rtt().is_none() || handshake.client_flights == 1);
    }

    #[test]
    fn changed_datagrams_never_panic(
        changes in prop::collection::vec((0_usize..5, 0_usize..60, any::<u8>()), 0..12),
        cut in 0_usize..1_300,
    ) {
        let mut datagrams = [
            first(),
            [first(), long(Version::V1, 1, [ID, PHONE], 300)].concat(),
            answer(Version::V1, SITE),
            finished(Version::V1),
            short(PHONE, 400),
        ];
        for (which, at, to) in changes {
            datagrams[which][at] = to;
        }
        let mut flow = Flow::new();
        for (at, bytes) in datagrams.iter().enumerate() {
            let from = if at == 2 || at == 4 { Server } else { Client };
            flow.handle(ms(at as u64 * 10), from, &bytes[..cut.min(bytes.len())], bytes.len());
        }
        flow.end();
    }
}
