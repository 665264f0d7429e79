use crate::sample::{alpn, extension, sized, sni};
use crate::tls::{ClientHelloDetails, Transport, Version};

fn numbers(hex: &str) -> Vec<u8> {
    hex.split(',')
        .filter(|text| !text.is_empty())
        .flat_map(|text| u16::from_str_radix(text, 16).unwrap().to_be_bytes())
        .collect()
}

/// A ClientHello with these cipher suites and extensions.
fn hello(suites: &str, extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &sized(1, &[9; 32]),
        &sized(2, &numbers(suites)),
        &sized(1, &[0]),
        &sized(2, &extensions.concat()),
    ];
    [&[1][..], &sized(3, &body.concat())].concat()
}

/// Extensions of these types, in order; those that JA4 reads have the given content.
fn extensions(kinds: &str, protocols: &[&str], signatures: &str) -> Vec<Vec<u8>> {
    let kinds = kinds.split(',').map(|kind| u16::from_str_radix(kind, 16).unwrap());
    let all = kinds.map(|kind| match kind {
        0 => sni(b"shop.example.com"),
        0x0d => extension(kind, &sized(2, &numbers(signatures))),
        0x10 => alpn(protocols),
        0x2b => extension(kind, &sized(1, &numbers("4a4a,0303,0304"))),
        _ => extension(kind, b"anything"),
    });
    all.collect()
}

fn ja4(message: &[u8], carrier: Transport) -> String {
    let client_hello = ClientHelloDetails::read(message, carrier).expect("a valid hello");
    client_hello.ja4.expect("a complete hello").into()
}

const SUITES: &str = "1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035";
const KINDS: &str =
    "001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015";
const SIGNATURES: &str = "0403,0804,0401,0503,0805,0501,0806,0601";

/// The example in the specification of JA4.
#[test]
fn the_published_example() {
    let all = extensions(KINDS, &["h2", "http/1.1"], SIGNATURES);
    let message = hello(SUITES, &all);
    assert_eq!(ja4(&message, Transport::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    assert_eq!(ja4(&message, Transport::Quic), "q13d1516h2_8daaf6152771_e5627efa2ab1");
}

#[test]
fn grease_values_are_ignored_everywhere() {
    let kinds = format!("2a2a,{KINDS},fafa");
    let all = extensions(&kinds, &["h2"], &format!("0a0a,{SIGNATURES}"));
    let message = hello(&format!("1a1a,{SUITES},dada"), &all);
    assert_eq!(ja4(&message, Transport::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    // A value that only resembles GREASE counts.
    let message = hello(&format!("1a2a,{SUITES}"), &all);
    assert!(ja4(&message, Transport::Tcp).starts_with("t13d1616h2_"));
}

#[test]
fn the_order_matters_for_signatures_only() {
    let mut all = extensions(KINDS, &["h2"], SIGNATURES);
    all.reverse();
    let suites: Vec<&str> = SUITES.split(',').rev().collect();
    let message = hello(&suites.join(","), &all);
    assert_eq!(ja4(&message, Transport::Tcp), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    let other = extensions(KINDS, &["h2"], "0804,0403,0401,0503,0805,0501,0806,0601");
    let message = hello(SUITES, &other);
    assert!(!ja4(&message, Transport::Tcp).ends_with("e5627efa2ab1"));
}

#[test]
fn without_signatures_there_is_no_underscore() {
    let all = extensions(KINDS, &["h2"], "");
    let message = hello(SUITES, &all);
    assert_eq!(ja4(&message, Transport::Tcp), "t13d1516h2_8daaf6152771_6d807ffa2a79");
}

#[test]
fn missing_parts_are_zeros() {
    assert_eq!(ja4(&hello("0a0a", &[]), Transport::Tcp), "t12i000000_000000000000_000000000000");
    // Server name and protocols are in the first part only.
    let all = extensions("0000,0010", &["h2"], "");
    assert_eq!(ja4(&hello("0a0a", &all), Transport::Tcp), "t12d0002h2_000000000000_000000000000");
    // The counts have an upper limit of 99.
    let many = vec!["1301"; 120].join(",");
    assert!(ja4(&hello(&many, &[]), Transport::Tcp).starts_with("t12i990000_"));
}

#[test]
fn protocols_that_are_not_text_are_shown_in_hex() {
    for (name, shown) in [
        (&b"h2"[..], "h2"),
        (b"http/1.1", "h1"),
        (b"h", "hh"),
        (b"", "00"),
        (b"\xab", "ab"),
        (b"\xab\xcd", "ad"),
        (b"\x30\xab", "3b"),
        (b"\x30\x31\xab\xcd", "3d"),
        (b"\x30\xab\xcd\x31", "01"),
    ] {
        let list = extension(16, &sized(2, &sized(1, name)));
        let message = hello("1301", &[list]);
        let expected = format!("t12i0101{shown}_");
        assert!(ja4(&message, Transport::Tcp).starts_with(&expected), "{name:02x?}");
    }
}

#[test]
fn the_version_is_the_newest_listed_or_the_legacy_version() {
    for (listed, own, shown) in [
        (Some("0301,0302"), 3, "11"),
        (Some("0304,7f1c"), 3, "00"),
        (Some("0a0a"), 3, "12"),
        (None, 1, "10"),
        (None, 0, "s3"),
    ] {
        let listed = listed.map(|listed| extension(0x2b, &sized(1, &numbers(listed))));
        let mut message = hello("1301", &Vec::from_iter(listed));
        message[5] = own;
        assert_eq!(&ja4(&message, Transport::Tcp)[1..3], shown);
    }
}

#[test]
fn a_truncated_hello_has_no_fingerprint() {
    let all = extensions(KINDS, &["h2", "http/1.1"], SIGNATURES);
    let message = hello(SUITES, &all);
    let whole = ClientHelloDetails::read(&message, Transport::Tcp).unwrap();
    for end in 0..message.len() {
        let Some(client_hello) = ClientHelloDetails::read(&message[..end], Transport::Tcp) else {
            assert!(end < 6, "nothing after {end} bytes");
            continue;
        };
        assert!(!client_hello.is_complete && client_hello.ja4.is_none());
        assert_eq!(client_hello.legacy_version, Version::TLS_1_2);
        assert!(
            client_hello.server_name.is_none() || client_hello.server_name == whole.server_name
        );
        assert!(client_hello.protocols.is_empty() || client_hello.protocols == whole.protocols);
        assert!(client_hello.versions.is_empty() || client_hello.versions == whole.versions);
    }
    // Bytes after the message are ignored.
    let more = [&message[..], b"more"].concat();
    assert_eq!(ClientHelloDetails::read(&more, Transport::Tcp), Some(whole));
}
