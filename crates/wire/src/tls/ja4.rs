//! JA4: a fingerprint that is the same for all ClientHellos of one client program (FoxIO, JA4 TLS
//! client fingerprint: version, name, counts and protocol in clear text, then two hashes).

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::hello::{ALPN, HelloValues, SERVER_NAME};
use super::{Transport, Version, is_grease};

/// Number of hexadecimal digits of a hash.
const HASH_DIGITS: usize = 12;

/// The fingerprint of a complete ClientHello.
pub(super) fn fingerprint(hello: &HelloValues, carrier: Transport) -> String {
    let mut suites = without_grease(&hello.cipher_suites);
    let mut extensions = without_grease(&hello.extensions);
    let signatures = without_grease(&hello.signatures);
    let carrier = match carrier {
        Transport::Tcp => 't',
        Transport::Quic => 'q',
    };
    let newest = hello.versions.iter().flatten().copied().filter(|version| !is_grease(*version));
    let version = version(Version(newest.max().unwrap_or(hello.version)));
    // The presence of a name counts, not its validity.
    let name = if extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let protocol = hello.protocols.iter().flatten().next().map_or(&[][..], Vec::as_slice);
    let counts = [suites.len(), extensions.len()].map(|count| count.min(99));
    let start = format!(
        "{carrier}{version}{name}{:02}{:02}{}",
        counts[0],
        counts[1],
        first_and_last(protocol)
    );

    extensions.retain(|kind| ![SERVER_NAME, ALPN].contains(kind));
    suites.sort_unstable();
    extensions.sort_unstable();
    let mut said = list(&extensions);
    if !said.is_empty() && !signatures.is_empty() {
        said = format!("{said}_{}", list(&signatures));
    }
    format!("{start}_{}_{}", hash(&list(&suites)), hash(&said))
}

/// The numbers without GREASE values.
fn without_grease(numbers: &[u16]) -> Vec<u16> {
    numbers.iter().copied().filter(|number| !is_grease(*number)).collect()
}

fn version(version: Version) -> &'static str {
    match version {
        Version::TLS_1_3 => "13",
        Version::TLS_1_2 => "12",
        Version::TLS_1_1 => "11",
        Version::TLS_1_0 => "10",
        Version::SSL_3_0 => "s3",
        _ => "00",
    }
}

/// The first and the last character of a protocol name, or of its hexadecimal form if one of the
/// two is neither a letter nor a digit.
fn first_and_last(name: &[u8]) -> String {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return "00".to_owned() };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from).iter().collect();
    }
    format!("{:x}{:x}", first >> 4, last & 15)
}

fn list(numbers: &[u16]) -> String {
    let mut text = String::with_capacity(numbers.len() * 5);
    for (offset, number) in numbers.iter().enumerate() {
        // Writing to a `String` never fails.
        let _ = write!(text, "{}{number:04x}", if offset == 0 { "" } else { "," });
    }
    text
}

/// The beginning of the hash of a text; zeros for an empty text.
fn hash(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(HASH_DIGITS);
    }
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}
