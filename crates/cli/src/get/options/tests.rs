use super::*;

#[test]
fn values_are_checked() {
    assert_eq!(allowance("500MB"), Ok(MeteredUse::Limit(Size::from_bytes(500_000_000))));
    assert_eq!(allowance("1000000"), Ok(MeteredUse::Limit(Size::from_bytes(1_000_000))));
    assert_eq!(allowance("no"), Ok(MeteredUse::Forbidden));
    let words = "`1e6` is not a limit; write yes, no, or a size like 500MB (500000000 bytes)";
    assert_eq!(allowance("1e6").unwrap_err().to_string(), words);
    let hash = "ab".repeat(32);
    assert_eq!(checksum(&format!("sha256:{hash}")).map(|hash| hash.0), Ok([0xab; 32]));
    for wrong in [hash.as_str(), "sha256:ab", &format!("md5:{hash}")] {
        assert!(checksum(wrong).is_err());
    }
}

#[test]
fn only_a_loopback_address_is_listened_at() {
    for fine in ["127.0.0.1:8080", "127.1.2.3:0", "[::1]:80"] {
        assert!(listen_address(fine).is_ok(), "{fine}");
    }
    for (wrong, words) in [
        ("0.0.0.0:80", "not a loopback address"),
        ("192.0.2.1:80", "not a loopback address"),
        ("[::]:80", "not a loopback address"),
        ("8080", "like 127.0.0.1:8080"),
        ("127.0.0.1", "like 127.0.0.1:8080"),
        ("localhost:80", "like 127.0.0.1:8080"),
    ] {
        let error = listen_address(wrong).unwrap_err();
        assert!(error.contains(words), "{wrong}: {error}");
    }
}

#[test]
fn name_servers_are_addresses() {
    let read = dns("wlan0=192.0.2.1, fd00::1").map(|dns| (dns.network, dns.servers.len()));
    assert_eq!(read, Ok(("wlan0".to_owned(), 2)));
    for wrong in ["192.0.2.1", "=192.0.2.1", "wlan0=", "wlan0=a.example", "wlan0=192.0.2.1:53"] {
        assert!(dns(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_time_for_retries_is_in_seconds_or_has_a_unit() {
    for (text, expected) in [("300", 300), ("300s", 300), ("5min", 300), ("0", 0), ("1h", 3_600)] {
        assert_eq!(seconds(text), Ok(Span::from_secs(expected)), "{text}");
    }
    for wrong in ["", "-1", "5 days", "soon"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}
