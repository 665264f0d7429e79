//! Values derived from MPTCP keys: token, initial data sequence number, and HMAC of joins.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Values derived from an endpoint's key (RFC 6824, 3.2 and 3.1; RFC 8684 uses SHA-256 instead of
/// SHA-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DerivedValues {
    /// Token of the endpoint.
    pub token: u32,
    /// Data sequence number of the first byte that the endpoint sends.
    pub idsn: u64,
}

/// Derives the values of a key in the given MPTCP version.
pub(super) fn derive_values(version: u8, key: u64) -> DerivedValues {
    let key = key.to_be_bytes();
    let hash = match version {
        0 => Sha1::digest(key).to_vec(),
        _ => Sha256::digest(key).to_vec(),
    };
    let token = hash.first_chunk().copied().map_or(0, u32::from_be_bytes);
    let low = hash.last_chunk().copied().map_or(0, u64::from_be_bytes);
    DerivedValues { token, idsn: low.wrapping_add(1) }
}

/// Returns the truncated HMAC in the SYN/ACK of a join (RFC 8684, 3.2). `keys` and `nonces` begin
/// with those of the endpoint that sends the SYN/ACK.
pub(super) fn syn_ack_hmac(version: u8, keys: [u64; 2], nonces: [u32; 2]) -> u64 {
    let (key, message) = (keys.map(u64::to_be_bytes), nonces.map(u32::to_be_bytes));
    let tag = match version {
        0 => compute_hmac::<Hmac<Sha1>>(key.as_flattened(), message.as_flattened()),
        _ => compute_hmac::<Hmac<Sha256>>(key.as_flattened(), message.as_flattened()),
    };
    tag.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// HMAC accepts keys of any length, so the list is never empty.
fn compute_hmac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Vec::new() };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}
