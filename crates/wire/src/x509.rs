//! X.509 certificates (RFC 5280): the names for which one is valid, and the kind of its key.
//!
//! Nothing is verified.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::archive::KeyKind;

/// Maximum number of names that are read. Certificate authorities issue at most some hundreds.
pub const MAX_NAMES: usize = 10_000;

/// Tags of ASN.1 (X.690).
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// Alternatives of GeneralName (RFC 5280, 4.2.1.6).
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// The field `extensions` of a certificate.
const EXTENSIONS: u8 = 0xa3;
/// The field `version` of a certificate.
const VERSION: u8 = 0xa0;

/// Object identifiers.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Values of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// DNS names and addresses of subjectAltName, in their order. The common name is ignored, as in
    /// browsers.
    pub names: Vec<String>,
    /// `None` for other algorithms.
    pub key: Option<KeyKind>,
}

/// Reads a certificate in DER. Returns `None` if it is not one.
pub fn certificate(der: &[u8]) -> Option<Certificate> {
    let mut signed = Reader(Reader(der).value(SEQUENCE)?);
    let mut fields = Reader(signed.value(SEQUENCE)?);
    if fields.tag() == Some(VERSION) {
        fields.next()?;
    }
    fields.value(INTEGER)?;
    // Signature algorithm, issuer, validity, subject.
    for _ in 0..4 {
        fields.value(SEQUENCE)?;
    }
    let key = key_kind(fields.value(SEQUENCE)?);
    let mut names = Vec::new();
    for (tag, value) in fields {
        if tag == EXTENSIONS {
            names = alternative_names(value)?;
        }
    }
    Some(Certificate { names, key })
}

fn key_kind(info: &[u8]) -> Option<KeyKind> {
    let mut info = Reader(info);
    let mut algorithm = Reader(info.value(SEQUENCE)?);
    let kind = algorithm.value(OBJECT_IDENTIFIER)?;
    if kind == RSA {
        // A bit string begins with the number of unused bits.
        let (_, key) = info.value(BIT_STRING)?.split_first()?;
        let modulus = Reader(Reader(key).value(SEQUENCE)?).value(INTEGER)?;
        let start = modulus.iter().position(|byte| *byte != 0)?;
        let modulus = modulus.get(start..)?;
        let bits = 8 * modulus.len() - modulus.first()?.leading_zeros() as usize;
        return u16::try_from(bits).ok().map(KeyKind::Rsa);
    }
    match kind == EC {
        true => match algorithm.value(OBJECT_IDENTIFIER)? {
            P256 => Some(KeyKind::P256),
            P384 => Some(KeyKind::P384),
            _ => None,
        },
        false => (kind == ED25519).then_some(KeyKind::Ed25519),
    }
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut extensions = Reader(Reader(extensions).value(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Reader(extension);
        if extension.value(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
            continue;
        }
        // Before the value, there may be the flag `critical`.
        for (tag, value) in extension {
            if tag == OCTET_STRING {
                let names = Reader(Reader(value).value(SEQUENCE)?);
                return Some(names.filter_map(name).take(MAX_NAMES).collect());
            }
        }
    }
    Some(Vec::new())
}

fn name((tag, value): (u8, &[u8])) -> Option<String> {
    match (tag, value.len()) {
        (DNS_NAME, _) if value.iter().all(u8::is_ascii_graphic) => {
            String::from_utf8(value.to_vec()).ok()
        }
        (IP_ADDRESS, 4) => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).to_string()),
        (IP_ADDRESS, 16) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).to_string()),
        _ => None,
    }
}

/// Reads values in DER one after another. Ends at a value that is cut off or has an indefinite
/// length.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn tag(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Reads the next value, which has this tag.
    fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        let [tag, first, rest @ ..] = rest else { return None };
        let (length, rest) = match usize::from(*first) {
            short @ 0..=0x7f => (short, rest),
            long => {
                let (digits, rest) = rest.split_at_checked(long & 0x7f)?;
                if !(1..=4).contains(&digits.len()) {
                    return None;
                }
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with `openssl req -x509`, with the names below.
    const RSA_CERTIFICATE: &[u8] = include_bytes!("x509/rsa.der");

    #[test]
    fn names_and_keys_are_read() {
        let read = certificate(RSA_CERTIFICATE).unwrap();
        assert_eq!(read.names, ["site.example", "*.site.example", "192.0.2.7", "2001:db8::7"]);
        assert_eq!(read.key, Some(KeyKind::Rsa(2_048)));
        for (der, key, names) in [
            (&include_bytes!("x509/p256.der")[..], KeyKind::P256, &["a.example"][..]),
            (include_bytes!("x509/p384.der"), KeyKind::P384, &["a.example"]),
            (include_bytes!("x509/ed25519.der"), KeyKind::Ed25519, &[]),
        ] {
            let read = certificate(der).unwrap();
            assert_eq!(
                (read.key, read.names.iter().map(String::as_str).collect()),
                (Some(key), names.to_vec())
            );
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_certificate_or_another_one() {
        for length in 0..RSA_CERTIFICATE.len() {
            assert_eq!(certificate(&RSA_CERTIFICATE[..length]), None, "{length}");
            for change in [1, 0x7f, 0x80, 0xff] {
                let mut changed = RSA_CERTIFICATE.to_vec();
                changed[length] ^= change;
                // Must not panic.
                let _ = certificate(&changed);
            }
        }
        assert_eq!(certificate(&[0x30, 0x80, 0, 0]), None, "indefinite length");
        assert_eq!(certificate(&[0x30, 0x85, 0, 0, 0, 0, 1, 0]), None);
    }
}
