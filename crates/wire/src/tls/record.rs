//! Joins handshake messages from TLS records (RFC 8446, 5.1).

use super::hello;

/// Content type of handshake messages.
const HANDSHAKE: u8 = 22;
/// Type, version and length of a record.
const HEADER: usize = 5;
/// Maximum length of an unencrypted record.
const MAX_FRAGMENT_LENGTH: usize = 1 << 14;

/// Handshake bytes in the records at the start of a stream.
pub(super) struct Records {
    /// The available bytes of the first handshake message.
    pub(super) message: Vec<u8>,
    /// Number of bytes missing from the next record header.
    pub(super) header_missing: usize,
    /// Whether the bytes after `message` are not a handshake record.
    pub(super) is_invalid: bool,
}

/// Joins the content of records, up to the end of the first message.
pub(super) fn join(bytes: &[u8]) -> Records {
    let mut records = Records { message: Vec::new(), header_missing: 0, is_invalid: false };
    let mut rest = bytes;
    while hello::message_length(&records.message).is_none_or(|whole| records.message.len() < whole)
    {
        // All versions have major version 3, including TLS 1.3, for compatibility with middleboxes.
        let begins = [(0, HANDSHAKE), (1, 3)];
        if begins.iter().any(|(at, value)| rest.get(*at).is_some_and(|byte| byte != value)) {
            records.is_invalid = true;
            break;
        }
        let Some((header, after)) = rest.split_first_chunk::<HEADER>() else {
            records.header_missing = HEADER - rest.len();
            break;
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // Empty handshake records are forbidden: a peer could send them without end.
        if !(1..=MAX_FRAGMENT_LENGTH).contains(&length) {
            records.is_invalid = true;
            break;
        }
        let there = length.min(after.len());
        records.message.extend_from_slice(&after[..there]);
        rest = &after[there..];
        if there < length {
            break;
        }
    }
    records
}
