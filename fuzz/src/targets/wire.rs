//! What passes by and is only looked at: hellos, heads, messages of name servers.

use std::fmt::Debug;

use manyways_trace::Time;
use manyways_wire::device::{dhcp, ja4, user_agent as sight_of};
use manyways_wire::quic::Initials;
use manyways_wire::server::{Organisations, registered_domain};
use manyways_wire::{HostName, LIMIT, Peek, dns, http, tls};
use rustls::Side;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::Version;

pub(super) const HELLO_WORDS: &[&str] = &[
    "\u{16}\u{3}\u{1}\0",
    "\u{1}\0\0",
    "\0\0\0\u{e}\0\u{c}\0\0\u{9}a.example",
    "\0\u{10}\0\u{5}\0\u{3}\u{2}h2",
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

/// More bytes change no answer, and a hint asks for more than there is, but not for too much.
fn steady<T: PartialEq + Debug>(bytes: &[u8], peek: fn(&[u8]) -> Peek<T>) -> Peek<T> {
    let whole = peek(bytes);
    for end in [bytes.len() / 4, bytes.len() / 2, bytes.len().saturating_sub(1), bytes.len()] {
        match peek(&bytes[..end]) {
            Peek::More(hint) => assert!(end < hint && hint <= LIMIT, "{hint} at {end}"),
            said => assert_eq!(said, whole, "after {end} bytes"),
        }
    }
    whole
}

fn good_name(name: &HostName) {
    assert!((1..=253).contains(&name.as_str().len()));
    assert_eq!(HostName::parse(name.as_str().as_bytes()).as_ref(), Some(name));
}

pub(super) fn tls_hello(bytes: &[u8]) {
    if let Peek::Complete(hello) = steady(bytes, tls::client_hello) {
        good_hello(&hello);
    }
}

fn good_hello(hello: &tls::ClientHello) {
    hello.server_name.iter().for_each(good_name);
    assert!(hello.protocols.len() <= tls::PROTOCOL_LIMIT);
}

pub(super) fn http_head(bytes: &[u8]) {
    let Peek::Complete(head) = steady(bytes, http::head) else { return };
    head.name().into_iter().for_each(good_name);
    if let http::Head::Connect { target, length } = head {
        assert!(target.port.is_some() && length <= bytes.len());
    }
}

/// A datagram, and the same as the beginning of a stream.
pub(super) fn dns_message(bytes: &[u8]) {
    if let Peek::Complete(message) = dns::framed(bytes) {
        let _ = dns::answer(message);
    }
    let question = dns::question(bytes);
    question.iter().for_each(|asked| good_name(&asked.name));
    let Some(answered) = dns::answer(bytes) else { return };
    assert_eq!(question, None);
    good_name(&answered.name);
    assert!(answered.addresses.len() <= dns::ADDRESS_LIMIT);
    let mut names = dns::Names::new(dns::Limits { addresses: 8, ..dns::Limits::default() });
    names.learn(Time::ZERO, &answered);
    assert_eq!(names.len(), answered.addresses.len().min(8));
    for (address, _) in answered.addresses.iter().rev().take(8) {
        assert_eq!(names.newest(Time::ZERO, *address), Some(&answered.name));
    }
}

/// A datagram; then the same bytes as what a packet carries, or two, behind a good seal: no change
/// of a sealed packet is ever opened.
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
        Peek::Complete(hello) => good_hello(&hello),
        Peek::More(hint) => assert!((1..=LIMIT).contains(&hint)),
        Peek::No => {}
    }
}

/// A client's Initial packet that carries these frames, as a real one seals it.
fn sealed(version: Version, number: u8, frames: &[u8]) -> Vec<u8> {
    const ID: &[u8] = b"fuzzing.";
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
    let keys = suite.expect("ring can do QUIC").keys(ID, Side::Client, version);
    let (kind, wire) = match version {
        Version::V2 => (0xd0, [0x6b, 0x33, 0x43, 0xcf]),
        _ => (0xc0, [0, 0, 0, 1]),
    };
    // The header's sample begins three bytes behind a number of one byte.
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

/// What a text tells is believable or nothing, whatever the text is of.
pub(super) fn user_agent(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let sights =
        [sight_of(&text), dhcp(Some(&text), Some(&text)), ja4(&text).and_then(|t| t.sight)];
    for sight in sights.into_iter().flatten() {
        assert!((0.0..=1.0).contains(&sight.confidence));
        assert!(sight.robot || sight.system.is_some() || sight.handheld.is_some());
    }
    if let Some(name) = HostName::parse(bytes) {
        let domain = registered_domain(&name).unwrap_or_default();
        assert!(name.as_str().ends_with(domain));
    }
}

/// Every prefix of a good table has somebody at its beginning, and nobody's address is read out of
/// a bad one.
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
