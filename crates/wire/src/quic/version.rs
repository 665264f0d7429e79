//! Versions of QUIC, including those from before the standard.

use super::header::{VERSION_1, VERSION_2};

/// Drafts of version 1 (RFC 9000, 15, and its drafts).
const DRAFTS: std::ops::RangeInclusive<u32> = 0xff00_0001..=0xff00_0022;
/// The last draft whose long headers have both lengths of connection IDs in one byte.
const LAST_SHARED_LENGTHS: u32 = 0xff00_0015;
/// Drafts in mvfst, the implementation of Meta (IETF wiki, QUIC versions).
const MVFST: std::ops::RangeInclusive<u32> = 0xface_b000..=0xface_b00f;
/// Google's QUIC has the version in letters: `Q046`, with TLS `T051`.
const GOOGLE: std::ops::RangeInclusive<u32> = 0..=99;
/// The first version of Google's QUIC with long headers, and the last one with both lengths of
/// connection IDs in one byte.
const GOOGLE_LONG_HEADERS: u32 = 44;
const GOOGLE_SHARED_LENGTHS: u32 = 46;

/// Returns the name of a version: `1`, `2`, `draft-29`, `Q046`, `T051`, `mvfst faceb002`, or else
/// its number.
pub fn name(version: u32) -> String {
    let [letter, rest @ ..] = version.to_be_bytes();
    match version {
        VERSION_1 => "1".to_owned(),
        VERSION_2 => "2".to_owned(),
        _ if DRAFTS.contains(&version) => format!("draft-{:02}", version & 0xff),
        _ if MVFST.contains(&version) => format!("mvfst {version:08x}"),
        _ if google(version).is_some() => {
            format!("{}{}", char::from(letter), String::from_utf8_lossy(&rest))
        }
        _ => format!("{version:#010x}"),
    }
}

/// Whether a version is one from before the standard. Other protocols have one of these numbers with
/// negligible probability.
pub fn is_early(version: u32) -> bool {
    DRAFTS.contains(&version) || MVFST.contains(&version) || google(version).is_some()
}

/// Whether the Initial packets of a version can be decrypted.
pub fn is_decrypted(version: u32) -> bool {
    [VERSION_1, VERSION_2].contains(&version)
}

/// Returns the version of Google's QUIC in the public header of a client's datagram, which the
/// versions before Q044 have (draft-hamilton-early-deployment-quic-00, 6.1).
pub fn in_public_header(datagram: &[u8]) -> Option<u32> {
    const VERSION: u8 = 0x01;
    const RESET: u8 = 0x02;
    const CONNECTION_ID: u8 = 0x08;
    const UNUSED: u8 = 0xc0;
    let flags = *datagram.first()?;
    if flags & (VERSION | CONNECTION_ID) != VERSION | CONNECTION_ID || flags & (RESET | UNUSED) != 0
    {
        return None;
    }
    let version = u32::from_be_bytes(*datagram.get(9..)?.first_chunk()?);
    google(version).is_some_and(|number| number < GOOGLE_LONG_HEADERS).then_some(version)
}

/// Whether the lengths of both connection IDs are in one byte of a long header.
pub(super) fn shares_lengths(version: u32) -> bool {
    let is_old_draft = DRAFTS.contains(&version) && version <= LAST_SHARED_LENGTHS;
    is_old_draft || google(version).is_some_and(|number| number <= GOOGLE_SHARED_LENGTHS)
}

/// The number of a version of Google's QUIC.
fn google(version: u32) -> Option<u32> {
    let [letter, b'0', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = version.to_be_bytes() else {
        return None;
    };
    let number = u32::from(tens - b'0') * 10 + u32::from(ones - b'0');
    (matches!(letter, b'Q' | b'T') && GOOGLE.contains(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::header::DRAFT_VERSIONS;
    use super::*;

    #[test]
    fn versions_have_the_names_of_their_authors() {
        for (version, expected, early) in [
            (1, "1", false),
            (0x6b33_43cf, "2", false),
            (0xff00_001d, "draft-29", true),
            (0xff00_0005, "draft-05", true),
            (0xff00_0023, "0xff000023", false),
            (0xface_b002, "mvfst faceb002", true),
            (u32::from_be_bytes(*b"Q043"), "Q043", true),
            (u32::from_be_bytes(*b"T051"), "T051", true),
            (u32::from_be_bytes(*b"X051"), "0x58303531", false),
            (u32::from_be_bytes(*b"Q143"), "0x51313433", false),
            (0x1a2a_3a4a, "0x1a2a3a4a", false),
        ] {
            assert_eq!((name(version), is_early(version)), (expected.to_owned(), early));
            assert!(!(early && is_decrypted(version)));
        }
        assert!(DRAFT_VERSIONS.into_iter().all(is_early));
    }

    #[test]
    fn the_public_header_has_a_version_where_its_flags_say_so() {
        let of = |flags: u8, version: &[u8]| {
            in_public_header(&[&[flags][..], &[7; 8], version, &[1; 20]].concat())
        };
        let q43 = Some(u32::from_be_bytes(*b"Q043"));
        for flags in [0x09, 0x0d, 0x19, 0x39] {
            assert_eq!(of(flags, b"Q043"), q43);
        }
        for flags in [0x08, 0x01, 0x0b, 0x49, 0x89] {
            assert_eq!(of(flags, b"Q043"), None, "{flags:x}");
        }
        // Later versions have long headers.
        assert_eq!([b"Q046", b"Z043"].map(|version| of(0x09, version)), [None; 2]);
        assert_eq!(in_public_header(&[9; 12]), None);
    }
}
