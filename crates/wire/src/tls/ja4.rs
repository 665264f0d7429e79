//! JA4: a fingerprint that is the same for all ClientHellos of one client program (FoxIO, JA4 TLS
//! client fingerprint: version, name, counts and protocol in clear text, then two hashes).

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::hello::{ALPN, Draft, SERVER_NAME};
use super::{Carrier, Version, is_grease};

/// Number of hexadecimal digits of a hash.
const SHOWN: usize = 12;

/// The fingerprint of a complete ClientHello.
pub(super) fn of(hello: &Draft, carrier: Carrier) -> String {
    let mut suites = known(&hello.suites);
    let mut extensions = known(&hello.extensions);
    let signatures = known(&hello.signatures);
    let carrier = match carrier {
        Carrier::Tcp => 't',
        Carrier::Quic => 'q',
    };
    let newest = hello.versions.iter().flatten().copied().filter(|version| !is_grease(*version));
    let version = version(Version(newest.max().unwrap_or(hello.version)));
    // The presence of a name counts, not its validity.
    let name = if extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let protocol = hello.protocols.iter().flatten().next().map_or(&[][..], Vec::as_slice);
    let counts = [suites.len(), extensions.len()].map(|count| count.min(99));
    let start =
        format!("{carrier}{version}{name}{:02}{:02}{}", counts[0], counts[1], ends(protocol));

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
fn known(numbers: &[u16]) -> Vec<u16> {
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
fn ends(name: &[u8]) -> String {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return "00".to_owned() };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from).iter().collect();
    }
    format!("{:x}{:x}", first >> 4, last & 15)
}

fn list(numbers: &[u16]) -> String {
    let mut text = String::with_capacity(numbers.len() * 5);
    for (place, number) in numbers.iter().enumerate() {
        // Writing to a `String` never fails.
        let _ = write!(text, "{}{number:04x}", if place == 0 { "" } else { "," });
    }
    text
}

/// The beginning of the hash of a text; zeros for an empty text.
fn hash(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(SHOWN);
    }
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}")).collect()
}
