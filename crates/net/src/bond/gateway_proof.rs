//! A proof in the first packet of a client that it knows the public key of the gateway.
//!
//! A gateway checks it before it computes a signature or keeps a place, so that strangers do not
//! compete with its clients; WireGuard's mac1 serves the same end. It does not authenticate the
//! client: a peer that has seen the first packet of one can repeat it, and competes with clients,
//! within the share of its network.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::key::PublicKey;

/// Bytes of a proof: the longest connection ID of QUIC (RFC 9000 §17.2).
pub(super) const LENGTH: usize = 20;
/// Random bytes at its start. The rest is a truncated HMAC-SHA256.
const NONCE: usize = 8;
/// Begins the ALPN protocol ID (RFC 7301) in which TLS over TCP carries a proof.
const ALPN_PREFIX: &[u8] = b"manyways-bond-proof/1 ";

/// Makes and checks proofs of a gateway's public key.
pub(super) struct GatewayProof(hmac::Key);

impl GatewayProof {
    pub(super) fn new(gateway: &PublicKey) -> Self {
        let key = [&b"manyways bond, proof of the gateway's key, 1"[..], &gateway.0].concat();
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// Makes a new proof, which differs from earlier ones.
    pub(super) fn create(&self) -> [u8; LENGTH] {
        let mut proof = [0; LENGTH];
        // If the system has no random numbers, TLS fails first.
        let _ = SystemRandom::new().fill(&mut proof[..NONCE]);
        let (nonce, rest) = proof.split_at_mut(NONCE);
        let tag = hmac::sign(&self.0, nonce);
        rest.copy_from_slice(&tag.as_ref()[..LENGTH - NONCE]);
        proof
    }

    pub(super) fn is_valid(&self, proof: &[u8]) -> bool {
        let Some((nonce, rest)) = proof.split_at_checked(NONCE) else { return false };
        // A peer that guesses one learns nothing that the public key does not tell.
        proof.len() == LENGTH && hmac::sign(&self.0, nonce).as_ref().starts_with(rest)
    }

    /// The ALPN protocol ID with a new proof.
    pub(super) fn protocol(&self) -> Vec<u8> {
        [ALPN_PREFIX, &self.create()].concat()
    }

    /// Whether one of the protocol IDs of a client has a proof.
    pub(super) fn is_in<'a>(&self, protocols: impl IntoIterator<Item = &'a [u8]>) -> bool {
        protocols
            .into_iter()
            .any(|id| id.strip_prefix(ALPN_PREFIX).is_some_and(|proof| self.is_valid(proof)))
    }
}

impl fmt::Debug for GatewayProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayProof")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_gateway_and_of_all_its_bytes() {
        let (own, other) = (PublicKey([7; 32]), PublicKey([8; 32]));
        let proofs = GatewayProof::new(&own);
        let proof = proofs.create();
        assert!(proofs.is_valid(&proof) && GatewayProof::new(&own).is_valid(&proof));
        assert_ne!(proof, proofs.create());
        assert!(!GatewayProof::new(&other).is_valid(&proof));
        for place in 0..LENGTH {
            let mut wrong = proof;
            wrong[place] ^= 1;
            assert!(!proofs.is_valid(&wrong), "{place}");
            assert!(!proofs.is_valid(&proof[..place]), "{place}");
        }
        assert!(!proofs.is_valid(&[&proof[..], &[0]].concat()));
    }

    #[test]
    fn tls_carries_a_proof_beside_the_protocol() {
        let proofs = GatewayProof::new(&PublicKey([7; 32]));
        let protocol = proofs.protocol();
        assert!(protocol.len() <= 255);
        assert!(proofs.is_in([b"h2", &protocol[..]]));
        assert!(!proofs.is_in([b"h2", ALPN_PREFIX]));
        assert!(!proofs.is_in([&proofs.create()[..]]));
    }
}
