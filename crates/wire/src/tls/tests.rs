use std::sync::Arc;

use proptest::prelude::*;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::*;
use crate::sample::{alpn, config, extension, message, records, sized, sni};

/// The first flight of rustls, in records of at most `record` bytes including their headers.
fn rustls(server: &str, protocols: &[&str], record: Option<usize>) -> Vec<u8> {
    let mut config = Arc::unwrap_or_clone(config(protocols));
    config.max_fragment_size = record;
    let server = ServerName::try_from(server.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn expected(name: Option<&str>, protocols: &[&str]) -> ClientHello {
    ClientHello {
        server_name: name.map(|name| HostName::parse(name.as_bytes()).unwrap()),
        protocols: protocols.iter().map(|name| name.as_bytes().to_vec()).collect(),
    }
}

/// Checks that each beginning of `bytes` yields `More`, or the complete result, and that `More`
/// never requests more than that needs.
fn check_every_beginning(bytes: &[u8], expected: &ClientHello) {
    assert_eq!(client_hello(bytes), Peek::Complete(expected.clone()));
    for end in 0..bytes.len() {
        match client_hello(&bytes[..end]) {
            Peek::Complete(hello) => assert_eq!(&hello, expected, "after {end} bytes"),
            Peek::More(whole) => assert!(whole > end && whole <= bytes.len(), "{whole} at {end}"),
            Peek::No => panic!("no hello after {end} of {} bytes", bytes.len()),
        }
    }
}

#[test]
fn the_hello_of_rustls_is_read_from_its_first_bytes() {
    let bytes = rustls("Shop.Example.com", &["h2", "http/1.1"], None);
    check_every_beginning(&bytes, &expected(Some("shop.example.com"), &["h2", "http/1.1"]));
    let bytes = rustls("a.example", &[], None);
    check_every_beginning(&bytes, &expected(Some("a.example"), &[]));
    let bytes = rustls("192.0.2.1", &["h2"], None);
    check_every_beginning(&bytes, &expected(None, &["h2"]));
}

#[test]
fn a_hello_may_be_spread_over_records() {
    let bytes = rustls("shop.example.com", &["h2"], Some(32));
    assert!(bytes.len() > 5 * 32);
    check_every_beginning(&bytes, &expected(Some("shop.example.com"), &["h2"]));
    let message = message(&[sni(b"a.example"), alpn(&["h2"])]);
    check_every_beginning(&records(&message, 1), &expected(Some("a.example"), &["h2"]));
}

#[test]
fn long_key_shares_and_grease_extensions_have_no_effect() {
    let grease = extension(0x2a2a, &[]);
    let share = extension(51, &[1; 1300]);
    let ech = extension(0xfe0d, &[2; 300]);
    let hello = [grease, share, alpn(&["\u{a}\u{a}", "h2"]), ech, sni(b"public.example")];
    let bytes = records(&message(&hello), 1 << 14);
    check_every_beginning(&bytes, &expected(Some("public.example"), &["\u{a}\u{a}", "h2"]));
}

#[test]
fn the_result_does_not_wait_for_long_key_shares() {
    let keys = extension(51, &[1; 1300]);
    let hello = message(&[sni(b"a.example"), alpn(&["h2"]), keys, extension(45, &[1, 1])]);
    let bytes = records(&hello, 1 << 14);
    assert!(matches!(client_hello(&bytes[..400]), Peek::Complete(_)));
    let Peek::More(whole) = client_hello(&bytes[..60]) else { panic!("the hello is incomplete") };
    assert_eq!(whole, bytes.len());
}

#[test]
fn bytes_after_the_hello_are_ignored() {
    let mut bytes = records(&message(&[sni(b"a.example")]), 100);
    bytes.extend_from_slice(b"early data, or anything");
    assert_eq!(client_hello(&bytes), Peek::Complete(expected(Some("a.example"), &[])));
}

#[test]
fn a_hello_without_extensions_has_no_name() {
    let body = [&[3, 1][..], &[7; 32], &[0], &sized(2, &[0, 10]), &sized(1, &[0])].concat();
    let bytes = records(&[&[1][..], &sized(3, &body)].concat(), 100);
    check_every_beginning(&bytes, &expected(None, &[]));
}

#[test]
fn invalid_server_names_are_ignored() {
    let far = "a.".repeat(128);
    let names = [&b"192.0.2.1"[..], b"", b"a b", b"a/../b", b"\0", b"::1", far.as_bytes()];
    for name in names {
        let bytes = records(&message(&[sni(name), alpn(&["h2"])]), 1 << 14);
        assert_eq!(client_hello(&bytes), Peek::Complete(expected(None, &["h2"])), "{name:?}");
    }
}

#[test]
fn a_server_name_that_is_not_a_host_name_is_kept_as_sent() {
    let of = |name: &[u8]| {
        let message = message(&[sni(name), alpn(&["h2"])]);
        let hello = ClientHelloDetails::read(&message, Transport::Tcp).unwrap();
        (hello.server_name.as_ref().map(ToString::to_string), hello.sni().map(str::to_owned))
    };
    for name in ["192.0.2.1", "::1", "[2001:db8::1]", "shop.example:443", "127.1", "a b", "a\nb"] {
        assert_eq!(of(name.as_bytes()), (None, Some(name.to_owned())));
    }
    let shop = Some("shop.example".to_owned());
    assert_eq!(of(b"Shop.Example."), (shop.clone(), shop));
    assert_eq!(of(b""), (None, None));
    assert_eq!(of(b"\xffa.example"), (None, Some("\u{fffd}a.example".to_owned())));
    assert_eq!(of(&[b'a'; 9_000]).1.map(|name| name.len()), Some(253));
}

#[test]
fn other_protocols_are_recognized_at_once() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x02",
        b"\x15\x03\x01\0\x02\x01\0",
        // A ServerHello, an empty record, and a record that is too long.
        b"\x16\x03\x03\0\x7a\x02",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\x40\x01",
        // A ClientHello that is too short, and one that is too long.
        b"\x16\x03\x01\0\x10\x01\0\0\x0c",
        b"\x16\x03\x01\x02\0\x01\x01\0\0\x03\x03",
    ] {
        assert_eq!(client_hello(bytes), Peek::No, "{bytes:02x?}");
    }
    assert_eq!(client_hello(b""), Peek::More(5 + 45));
}

#[test]
fn inconsistent_lengths_are_rejected() {
    let good = message(&[sni(b"a.example"), alpn(&["h2"])]);
    // The lengths of session ID, cipher suites, compression methods and extensions, and those
    // inside extensions.
    for at in [38, 71, 72, 77, 79, 80, 83, 84, 85, 86, 88, 89] {
        let mut bad = good.clone();
        bad[at] = 0xff;
        assert_eq!(client_hello(&records(&bad, 1 << 14)), Peek::No, "at {at}");
    }
}

#[test]
fn fields_beyond_their_limits_are_rejected() {
    let start = [&[3, 3][..], &[7; 32]].concat();
    let rest = [&sized(2, &[0, 10])[..], &sized(1, &[0])].concat();
    let extensions = sized(2, &[sni(b"a.example"), alpn(&["h2"])].concat());
    for (session, end, good) in [(32, &[][..], true), (33, &[], false), (32, &[0], false)] {
        let body = [&start[..], &sized(1, &vec![9; session]), &rest, &extensions, end].concat();
        let bytes = records(&[&[1][..], &sized(3, &body)].concat(), 1 << 14);
        assert_eq!(client_hello(&bytes).complete().is_some(), good, "{session}, {end:?}");
    }
}

#[test]
fn another_record_type_ends_the_hello() {
    let message = message(&[extension(51, &[1; 600]), sni(b"a.example")]);
    let mut bytes = records(&message[..300], 300);
    bytes.extend_from_slice(b"\x17\x03\x03\0\x01\0");
    assert_eq!(client_hello(&bytes), Peek::No);
}

#[test]
fn the_number_of_protocols_is_limited() {
    let bytes = records(&message(&[alpn(&["x"; 500]), sni(b"a.example")]), 1 << 14);
    let hello = client_hello(&bytes).complete().unwrap();
    assert_eq!(hello, expected(Some("a.example"), &["x"; MAX_PROTOCOLS]));
}

#[test]
fn records_of_one_byte_are_not_waited_for_beyond_the_limit() {
    let bytes = records(&message(&[extension(51, &[1; 4000]), sni(b"a.example")]), 1);
    assert!(bytes.len() > MAX_PEEK_LENGTH);
    assert_eq!(client_hello(&bytes), Peek::No);
}

proptest! {
    #[test]
    fn any_hello_in_any_records(
        labels in prop::collection::vec("[a-z0-9_]([a-z0-9-]{0,20}[a-z])", 1..5),
        protocols in prop::collection::vec("[ -~]{1,12}", 0..4),
        padding in prop::collection::vec((1000_u16..2000, 0_usize..400), 0..4),
        size in 1_usize..600,
        order in any::<[prop::sample::Index; 2]>(),
    ) {
        // If the last label is not a word, a name like 0xa is an address.
        let name = format!("{}.example", labels.join("."));
        let protocols: Vec<&str> = protocols.iter().map(String::as_str).collect();
        let mut extensions: Vec<Vec<u8>> =
            padding.iter().map(|(kind, length)| extension(*kind, &vec![0; *length])).collect();
        for (index, extension) in order.iter().zip([sni(name.as_bytes()), alpn(&protocols)]) {
            extensions.insert(index.index(extensions.len() + 1), extension);
        }
        let bytes = records(&message(&extensions), size);
        check_every_beginning(&bytes, &expected(Some(&name), &protocols));
    }

    #[test]
    fn a_changed_hello_never_panics_and_more_bytes_never_change_an_answer(
        at in 0_usize..230,
        to in any::<u8>(),
        cut in 0_usize..230,
    ) {
        let mut bytes = records(&message(&[sni(b"a.example"), alpn(&["h2"])]), 50);
        let at = at % bytes.len();
        bytes[at] = to;
        let some = client_hello(&bytes[..cut.min(bytes.len())]);
        let all = client_hello(&bytes);
        prop_assert!(matches!(some, Peek::More(_)) || some == all, "{some:?} {all:?}");
    }
}
