//! What follows from keys: a connection's token, its first byte's number, and who may join.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use ring::hmac::{self, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256};

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
    let algorithm = if version == 0 { &SHA1_FOR_LEGACY_USE_ONLY } else { &SHA256 };
    let hash = digest(algorithm, &key.to_be_bytes());
    // Neither hash is shorter than that.
    let token = hash.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes);
    let low = hash.as_ref().last_chunk().copied().map_or(0, u64::from_be_bytes);
    Hashed { token, first: low.wrapping_add(1) }
}

/// The first half of the hash with which the end that a subflow goes to answers (RFC 8684, 3.2):
/// first its own key and number, then those of who asks.
pub(super) fn answer(version: u8, keys: [u64; 2], nonces: [u32; 2]) -> u64 {
    let algorithm = if version == 0 { HMAC_SHA1_FOR_LEGACY_USE_ONLY } else { HMAC_SHA256 };
    let key = hmac::Key::new(algorithm, keys.map(u64::to_be_bytes).as_flattened());
    let tag = hmac::sign(&key, nonces.map(u32::to_be_bytes).as_flattened());
    tag.as_ref().first_chunk().copied().map_or(0, u64::from_be_bytes)
}
