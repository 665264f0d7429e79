//! Handshake bytes out of the records around them (RFC 8446, 5.1).

use super::hello;

/// The content type of handshake messages.
const HANDSHAKE: u8 = 22;
/// A record's type, version and length.
const HEADER: usize = 5;
/// The most that a record may carry in the clear.
const FRAGMENT_LIMIT: usize = 1 << 14;

/// What the records at the start of a stream carry.
pub(super) struct Records {
    /// The bytes of the first handshake message as far as they are there.
    pub(super) message: Vec<u8>,
    /// How many bytes are missing before more of the message can come.
    pub(super) header_missing: usize,
    /// What comes after `message` is no record of a handshake.
    pub(super) broken: bool,
}

/// Joins what the records carry, up to the end of the first message.
pub(super) fn join(bytes: &[u8]) -> Records {
    let mut records = Records { message: Vec::new(), header_missing: 0, broken: false };
    let mut rest = bytes;
    while hello::whole(&records.message).is_none_or(|whole| records.message.len() < whole) {
        // The first versions of TLS and the last one all say 3 here, or middleboxes drop them.
        let begins = [(0, HANDSHAKE), (1, 3)];
        if begins.iter().any(|(at, value)| rest.get(*at).is_some_and(|byte| byte != value)) {
            records.broken = true;
            break;
        }
        let Some((header, after)) = rest.split_first_chunk::<HEADER>() else {
            records.header_missing = HEADER - rest.len();
            break;
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        // An empty one is forbidden for a handshake: a peer could send them for ever.
        if !(1..=FRAGMENT_LIMIT).contains(&length) {
            records.broken = true;
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
