//! What follows from keys: a connection's token, its first byte's number, and who may join.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What an end's key says about it (RFC 6824, 3.2 and 3.1; RFC 8684 has SHA-256 in the same place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    /// What the end calls the connection.
    pub token: u32,
    /// The number of the first byte that it sends.
    pub first: u64,
}

/// Of the key of an end, in a connection of this version.
pub(super) fn hashed(version: u8, key: u64) -> Hashed {
    let key = key.to_be_bytes();
    let hash = match version {
        0 => Sha1::digest(key).to_vec(),
        _ => Sha256::digest(key).to_vec(),
    };
    let token = hash.first_chunk().copied().map_or(0, u32::from_be_bytes);
    let low = hash.last_chunk().copied().map_or(0, u64::from_be_bytes);
    Hashed { token, first: low.wrapping_add(1) }
}

/// The first half of the hash with which the end that a subflow goes to answers (RFC 8684, 3.2):
/// first its own key and number, then those of who asks.
pub(super) fn answer(version: u8, keys: [u64; 2], nonces: [u32; 2]) -> u64 {
    let (key, message) = (keys.map(u64::to_be_bytes), nonces.map(u32::to_be_bytes));
    let tag = match version {
        0 => tag::<Hmac<Sha1>>(key.as_flattened(), message.as_flattened()),
        _ => tag::<Hmac<Sha256>>(key.as_flattened(), message.as_flattened()),
    };
    tag.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// HMAC takes keys of any length, so the list is never empty.
fn tag<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Vec::new() };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}
