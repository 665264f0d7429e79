//! Parsers of observed traffic: TLS hellos, HTTP heads, DNS messages.

use std::fmt::Debug;

use manyways_flows::align::{self, ChainDirection, Point, PointLocation, ProxyLog, Report, Track};
use manyways_flows::device::{dhcp, ja4, user_agent as sight_of};
use manyways_flows::server::{Organisations, registered_domain};
use manyways_unit::{Span, Time};
use manyways_wire::icmp::{self, Icmp};
use manyways_wire::quic::Initials;
use manyways_wire::stream::{Endpoint, Piece};
use manyways_wire::{HostName, MAX_PEEK_LENGTH, Peek, dns, frame, http, tls, udp, x509};
use rustls::Side;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::Version;

pub(super) const HELLO_WORDS: &[&str] = &[
    "\u{16}\u{3}\u{1}\0",
    "\u{1}\0\0",
    "\0\0\0\u{e}\0\u{c}\0\0\u{9}a.example",
    "\0\u{10}\0\u{5}\0\u{3}\u{2}h2",
];
pub(super) const SESSION_WORDS: &[&str] = &[
    "\u{16}\u{3}\u{1}\0",
    "\u{16}\u{3}\u{3}\0",
    "\u{17}\u{3}\u{3}\0",
    "\u{14}\u{3}\u{3}\0\u{1}\u{1}",
    "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{28}",
    "\u{2}\0\0",
    "\u{4}\0\0",
    "\0\u{2b}\0\u{2}\u{3}\u{4}",
];
pub(super) const HEAD_WORDS: &[&str] = &[
    "\r\n",
    "Host: ",
    "CONNECT ",
    "GET http://",
    " HTTP/1.1\r\n",
    "[::1]",
    ":443",
    "@",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];
pub(super) const PROXY_WORDS: &[&str] = &[
    "GET http://a.example/ HTTP/1.1\r\n",
    "CONNECT a:1 HTTP/1.1\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: ",
    "Proxy-Authorization: Basic eA==\r\n",
    "\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "\r\n ",
    " :",
    "\0",
];
pub(super) const TRANSACTION_WORDS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\n<HTTP/1.1 200 OK\r\n\r\n",
    "\n>HEAD / HTTP/1.1\r\n\r\n",
    "\n~",
    "HTTP/1.1 100 \r\n\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "Range: bytes=0-9\r\n",
    "Content-Range: bytes 0-9/10\r\n",
    "CONNECT a:1 HTTP/1.1\r\n\r\n",
];
pub(super) const MESSAGE_WORDS: &[&str] = &[
    "\u{7}example\u{4}test\0",
    "\0\u{1}\0\u{1}",
    "\0\u{1c}\0\u{1}",
    "\0\u{5}\0\u{1}\0\0\0\u{9}",
    "\0\u{41}\0\u{1}",
];
pub(super) const AGENT_WORDS: &[&str] = &[
    "Mozilla/5.0 (",
    "Macintosh; Intel Mac OS X 10_15_7)",
    "iPhone; CPU iPhone OS 16_5 like Mac OS X)",
    "Linux; Android 13; ",
    "Windows NT 10.0",
    " Darwin/22.6.0",
    " Mobile",
    "bot/",
    "\u{fc}",
];
pub(super) const TABLE_WORDS: &[&str] =
    &["192.0.2.0/24", "2001:db8::/32", ",", "\"", "\n", "AS64496", "#", "::/0", "0.0.0.0/0"];

pub(super) const QUIC_WORDS: &[&str] =
    &["\u{40}\0\0\0\u{1}\u{8}", "\0\0\0\0", "k3C\u{4f}", "\0\0\u{1}", "\u{1}\u{4}\u{40}"];
pub(super) const LOG_WORDS: &[&str] =
    &["time,stream,offset,point\n", "1700000000.000000001,", ",read\n", ",write\n", "# "];

/// More bytes do not change a result. A hint is above the available bytes and at most
/// [`MAX_PEEK_LENGTH`].
fn check_stable<T: PartialEq + Debug>(bytes: &[u8], peek: fn(&[u8]) -> Peek<T>) -> Peek<T> {
    let whole = peek(bytes);
    for end in [bytes.len() / 4, bytes.len() / 2, bytes.len().saturating_sub(1), bytes.len()] {
        match peek(&bytes[..end]) {
            Peek::More(hint) => assert!(end < hint && hint <= MAX_PEEK_LENGTH, "{hint} at {end}"),
            said => assert_eq!(said, whole, "after {end} bytes"),
        }
    }
    whole
}

fn check_name(name: &HostName) {
    assert!((1..=253).contains(&name.as_str().len()));
    assert_eq!(HostName::parse(name.as_str().as_bytes()).as_ref(), Some(name));
}

pub(super) fn tls_hello(bytes: &[u8]) {
    if let Peek::Complete(hello) = check_stable(bytes, tls::client_hello) {
        check_fields(&hello);
    }
}

fn check_fields(hello: &tls::ClientHello) {
    hello.server_name.iter().for_each(check_name);
    assert!(hello.protocols.len() <= tls::MAX_PROTOCOLS);
}

/// A connection as pieces: the direction (lowest bit), the number of captured and of missing bytes,
/// and the captured bytes. It is parsed from its first byte on, and as if from its middle. If no
/// bytes are missing, the segmentation does not change the result.
pub(super) fn tls_session(bytes: &[u8]) {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while let Some(([kind, there, missing], after)) = rest.split_first_chunk::<3>() {
        let (known, after) = after.split_at(after.len().min(usize::from(*there)));
        let from = if kind & 1 == 0 { Endpoint::Client } else { Endpoint::Server };
        let length = match missing {
            255 => u64::MAX,
            missing => known.len() as u64 + u64::from(*missing) * 50,
        };
        let at = Time::from_millis((pieces.len() as u64) << (kind >> 5));
        pieces.push((from, Piece { at, bytes: known, length }));
        rest = after;
    }
    let is_whole = pieces.iter().all(|(_, piece)| piece.length == piece.bytes.len() as u64);
    let whole = run_session(tls::Session::default(), &pieces);
    let _ = run_session(tls::Session::midway(), &pieces);
    if is_whole && whole.boundary_losses() == 0 && whole.is_tls() == Some(true) {
        let cut: Vec<_> = pieces
            .iter()
            .flat_map(|(from, piece)| {
                piece.bytes.chunks(1).map(|byte| (*from, Piece::captured(piece.at, byte)))
            })
            .collect();
        let cut = run_session(tls::Session::default(), &cut);
        assert_eq!(
            (whole.client_hello(), whole.server_hello()),
            (cut.client_hello(), cut.server_hello())
        );
        assert_eq!((whole.times(), whole.exchanges()), (cut.times(), cut.exchanges()));
        assert_eq!((whole.alerts(), whole.closed()), (cut.alerts(), cut.closed()));
    }
}

fn run_session(mut session: tls::Session, pieces: &[(Endpoint, Piece<'_>)]) -> tls::Session {
    let mut exchanges = 0;
    for (from, piece) in pieces {
        session.handle(*from, piece);
        exchanges += u64::from(session.poll().is_some());
    }
    session.end();
    exchanges += u64::from(session.poll().is_some());
    assert_eq!(session.exchanges(), exchanges);
    assert!(session.alerts().len() <= tls::MAX_ALERTS);
    if let Some(client_hello) = session.client_hello() {
        client_hello.server_name.iter().for_each(check_name);
        assert!(client_hello.protocols.len() <= tls::MAX_PROTOCOLS);
        assert!(client_hello.versions.len() <= tls::MAX_VERSIONS);
        // The parts have at least 1, 10, 12 and 12 characters, and no bytes that are not ASCII.
        let is_good = |ja4: &str| ja4.is_ascii() && ja4.len() == 36;
        assert!(
            client_hello.ja4.as_deref().is_none_or(is_good)
                && client_hello.ja4.is_some() == client_hello.is_complete
        );
    }
    session
}

pub(super) fn http_head(bytes: &[u8]) {
    let Peek::Complete(head) = check_stable(bytes, http::head) else { return };
    head.name().into_iter().for_each(check_name);
    if let http::Head::Connect { target, length } = head {
        assert!(target.port.is_some() && length <= bytes.len());
    }
}

/// A request to an HTTP proxy, with the beginning of its body. The header for the server has only one
/// reading, and contains no field for the proxy.
pub(super) fn proxy_head(bytes: &[u8]) {
    let whole = http::proxy_head(bytes);
    for end in [bytes.len() / 4, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match http::proxy_head(&bytes[..end]) {
            Ok(None) => {}
            early => assert_eq!(format!("{early:?}"), format!("{whole:?}"), "after {end} bytes"),
        }
    }
    let Ok(Some(read)) = whole else { return };
    assert!(read.length <= bytes.len());
    let http::ProxyRequest::Forward { target, head, mut body } = read.request else { return };
    if let http::Host::Name(name) = &target.host {
        check_name(name);
    }
    let rest = &bytes[read.length..];
    let (mut same, mut taken) = (body, 0);
    for part in rest.chunks(3) {
        taken += same.take(part);
    }
    assert_eq!(body.take(rest), taken);
    assert_eq!(body.is_complete(), same.is_complete());
    let text = String::from_utf8_lossy(&head).to_lowercase();
    assert_eq!(text.matches("\r\nhost:").count(), 1, "{text}");
    assert_eq!(text.matches("\r\nconnection: close\r\n").count(), 1, "{text}");
    assert!(!text.contains("\r\nproxy-") && text.matches("\r\ncontent-length:").count() <= 1);
    // Another reader, with lower limits.
    if let Peek::Complete(again) = http::head(&head) {
        assert_eq!(again, http::Head::Request(Some(target)), "{text}");
    }
}

/// Both directions of a connection. A line that begins with `>` starts bytes from the client, with
/// `<` bytes from the server; the preceding line end is dropped. `~` stands for 100 unknown bytes
/// in the current direction. The segmentation does not change the result.
pub(super) fn http_transactions(bytes: &[u8]) {
    let whole = transactions(bytes, usize::MAX);
    assert_eq!(whole, transactions(bytes, 7));
    for one in whole {
        assert!(one.response.is_none_or(|said| said.body.byte_count() <= said.length));
    }
}

fn transactions(bytes: &[u8], max: usize) -> Vec<http::Transaction> {
    let (mut follower, mut from, mut ended) =
        (http::Transactions::default(), Endpoint::Client, vec![]);
    let (mut rest, mut at) = (bytes, Time::ZERO);
    while !rest.is_empty() {
        let is_mark = |pair: &[u8]| pair[0] == b'\n' && b"<>~".contains(&pair[1]);
        let end = rest.windows(2).position(is_mark);
        for part in rest[..end.unwrap_or(rest.len())].chunks(max) {
            follower.handle(from, &Piece::captured(at, part));
        }
        ended.extend(std::iter::from_fn(|| follower.poll()));
        rest = end.map_or(&[], |end| &rest[end + 1..]);
        at += Span::from_millis(1);
        if let Some((mark, behind)) = rest.split_first() {
            rest = behind;
            match mark {
                b'>' => from = Endpoint::Client,
                b'<' => from = Endpoint::Server,
                _ => follower.handle(from, &Piece::uncaptured(at, 100)),
            }
        }
    }
    follower.finish();
    ended.extend(std::iter::from_fn(|| follower.poll()));
    assert_eq!(
        follower.summary().answered > 0,
        ended.iter().any(|one| one.download_time().is_some())
    );
    assert!(ended.is_empty() || follower.is_http() == Some(true));
    ended
}

/// A certificate.
pub(super) fn certificate(bytes: &[u8]) {
    let Some(read) = x509::certificate(bytes) else { return };
    assert!(read.names.len() <= x509::MAX_NAMES);
    assert!(read.names.iter().all(|name| name.is_ascii()));
}

/// A log, and its evaluation with the captures of a proxy.
pub(super) fn align_log(bytes: &[u8]) {
    let Ok(log) = ProxyLog::read(bytes) else { return };
    for name in log.points() {
        assert!(!name.is_empty() && name.len() <= align::MAX_LINE_LEN);
    }
    let point = |location| {
        let mut track = Track::new(ChainDirection::Forward, "a", None);
        let payload: Vec<u8> = (0..100).collect();
        track.push(Piece::captured(Time::from_millis(1_000), &payload));
        Point { location, clock: 0, tracks: vec![track] }
    };
    let points = [point(PointLocation::PhoneIn), point(PointLocation::PhoneOut)];
    let report = Report::new(&points, Some(&log));
    for part in &report.parts {
        assert!(part.all.bytes <= 100 && part.all.min <= part.all.max);
    }
}

/// A datagram, and the same bytes as the start of a stream.
/// ICMP messages, as raw sockets receive them.
pub(super) fn icmp_message(bytes: &[u8]) {
    let _ = (Icmp::read_v4(bytes), Icmp::read_v6(bytes));
    if let Some(message) = icmp::payload_v4(bytes) {
        assert!(message.len() + 20 <= bytes.len());
        let _ = Icmp::read_v4(message);
    }
}

pub(super) fn dns_message(bytes: &[u8]) {
    if let Peek::Complete(message) = dns::tcp_message(bytes) {
        let _ = dns::answer(message);
    }
    let question = dns::query(bytes);
    question.iter().for_each(|asked| check_name(&asked.name));
    let Some(answered) = dns::answer(bytes) else { return };
    assert_eq!(question, None);
    check_name(&answered.name);
    assert!(answered.addresses.len() <= dns::MAX_ADDRESSES);
    let mut names = dns::Names::new(dns::Limits { addresses: 8, ..dns::Limits::default() });
    names.learn(Time::ZERO, &answered);
    assert_eq!(names.len(), answered.addresses.len().min(8));
    for (address, _) in answered.addresses.iter().rev().take(8) {
        assert_eq!(names.newest(Time::ZERO, *address), Some(&answered.name));
    }
}

/// A datagram. Then the same bytes as the frames of one or two packets with a valid seal: mutated
/// sealed packets would never be decrypted.
pub(super) fn quic_initial(bytes: &[u8]) {
    check_hello(Initials::new().datagram(bytes));
    let bytes = &bytes[..bytes.len().min(8 * 1024)];
    check_hello(Initials::new().datagram(&sealed(Version::V2, 0, bytes)));
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut initials = Initials::new();
    for (number, frames) in [first, second, bytes].into_iter().enumerate() {
        check_hello(initials.datagram(&sealed(Version::V1, number as u8, frames)));
    }
}

fn check_hello(said: Peek<tls::ClientHello>) {
    match said {
        Peek::Complete(hello) => check_fields(&hello),
        Peek::More(hint) => assert!((1..=MAX_PEEK_LENGTH).contains(&hint)),
        Peek::No => {}
    }
}

/// A client's Initial packet with these frames, protected as by a real client.
fn sealed(version: Version, number: u8, frames: &[u8]) -> Vec<u8> {
    const ID: &[u8] = b"fuzzing.";
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    let keys = suite.expect("ring can do QUIC").keys(ID, Side::Client, version);
    let (kind, wire) = match version {
        Version::V2 => (0xd0, [0x6b, 0x33, 0x43, 0xcf]),
        _ => (0xc0, [0, 0, 0, 1]),
    };
    // The sample for header protection begins three bytes after a packet number of one byte.
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(3), 0);
    let length = (1 + payload.len() + 16) as u32 | 0x8000_0000;
    let mut header =
        [&[kind], &wire[..], &[ID.len() as u8], ID, &[0, 0], &length.to_be_bytes(), &[number]]
            .concat();
    let tag = keys.local.packet.encrypt_in_place(number.into(), &header, &mut payload);
    payload.extend_from_slice(tag.expect("a packet can be sealed").as_ref());
    let (first, rest) = header.split_at_mut(1);
    let at = rest.len() - 1;
    let hidden =
        keys.local.header.encrypt_in_place(&payload[3..19], &mut first[0], &mut rest[at..]);
    hidden.expect("a header can be hidden");
    [header, payload].concat()
}

/// Datagrams, each preceded by a byte and a length. The byte selects direction, time, truncation
/// and protection as a client's first packet. All belong to one connection, and to a table of two
/// flows.
pub(super) fn quic_flow(bytes: &[u8]) {
    let mut now = Time::from_millis(1_000);
    let mut connection = manyways_flows::quic::Flow::new();
    let limits = manyways_flows::udp::Limits { flows: 2, idle: Span::from_secs(1) };
    let mut table = manyways_flows::udp::Table::new(limits);
    let (mut rest, mut fed) = (bytes, 0);
    while let Some((&[what, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]) & 0xfff);
        let (datagram, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        let sealed = if what & 2 != 0 { sealed(Version::V1, what >> 4, datagram) } else { vec![] };
        let whole = if what & 2 != 0 { &sealed } else { datagram };
        let captured = if what & 4 != 0 { &whole[..whole.len() / 2] } else { whole };
        // Some steps go back in time.
        now = match what >> 3 & 7 {
            0 => Time::from_nanos(now.as_nanos() / 2),
            step => now + Span::from_micros(1 << (step * 3)),
        };
        let (from, ports) = if what & 1 == 0 {
            (Endpoint::Client, [5_000 + u16::from(what >> 7), 443])
        } else {
            (Endpoint::Server, [443, 5_000])
        };
        let times = connection.handle(now, from, captured, whole.len());
        assert!(times.is_none_or(|exchange| exchange.request_start <= exchange.response_start));
        let hello = connection.client_hello();
        assert!(hello.is_none_or(|hello| hello.ja4.is_some() == hello.is_complete));
        let packet = frame::IpPacket {
            source: [192, 0, 2, what & 1].into(),
            destination: [192, 0, 2, !what & 1].into(),
            protocol: 17,
            payload: &[],
            payload_length: whole.len() + 8,
            length: whole.len() + 28,
            fragment: None,
            ecn: what,
            id: 0,
            hop_limit: 64,
            is_tunnelled: false,
        };
        let [from, to] = ports;
        let datagram = udp::Datagram {
            source_port: from,
            destination_port: to,
            payload: captured,
            length: whole.len(),
        };
        table.handle(now, &packet, &datagram, what == u8::MAX);
        assert!(table.len() <= 3);
        fed += 1;
    }
    connection.end();
    if let Some(client_hello) = connection.client_hello() {
        client_hello.server_name.iter().for_each(check_name);
        assert!(client_hello.protocols.len() <= tls::MAX_PROTOCOLS);
        assert!(client_hello.ja4.as_ref().is_none_or(|ja4| ja4.starts_with('q')));
    }
    table.finish();
    let count =
        |flow: &manyways_flows::udp::Flow, end| flow.sent(end).map_or(0, |sent| sent.packets);
    let passed: u64 = std::iter::from_fn(|| table.poll())
        .map(|ended| count(&ended.flow, Endpoint::Client) + count(&ended.flow, Endpoint::Server))
        .sum();
    assert_eq!(passed, fed);
}

/// A recognized text yields plausible properties, for any kind of text.
pub(super) fn user_agent(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sights =
        [sight_of(&text), dhcp(Some(&text), Some(&text)), ja4(&text).and_then(|t| t.device)];
    for properties in sights.into_iter().flatten() {
        assert!((0.0..=1.0).contains(&properties.confidence));
        assert!(properties.robot || properties.system.is_some() || properties.handheld.is_some());
    }
    if let Some(name) = HostName::parse(bytes) {
        let domain = registered_domain(&name).unwrap_or_default();
        assert!(name.as_str().ends_with(domain));
    }
}

/// Every prefix of a valid table has an organisation for its first address, and an error of an
/// invalid table has its line.
pub(super) fn organisations(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    match Organisations::read(bytes) {
        Err(error) => assert!((1..=lines).contains(&error.line)),
        Ok(table) => {
            assert!(table.len() <= lines);
            for line in String::from_utf8_lossy(bytes).lines() {
                let first = line.trim().trim_start_matches('"').split(['/', ',', '"']).next();
                let Some(Ok(address)) = first.map(str::parse) else { continue };
                assert!(table.of(address).is_some(), "{address}");
            }
        }
    }
}
