//! Keys of a client's Initial packets, which any observer can derive (RFC 9001, 5).

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{Aead, Payload};
use hkdf::Hkdf;
use sha2::Sha256;

/// Length of an AEAD nonce (RFC 9001, 5.3).
const NONCE_LEN: usize = 12;

/// Versions of QUIC whose Initial packets can be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Version 1 (RFC 9001).
    One,
    /// Version 2 (RFC 9369).
    Two,
}

/// Keys for a client's Initial packets.
pub(super) struct Keys {
    header: Aes128,
    payload: Aes128Gcm,
    iv: [u8; NONCE_LEN],
}

impl Version {
    fn salt(self) -> [u8; 20] {
        match self {
            Self::One => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
                0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            Self::Two => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
                0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
        }
    }

    /// Labels of the key, of the IV and of the header protection key.
    fn labels(self) -> [&'static str; 3] {
        match self {
            Self::One => ["quic key", "quic iv", "quic hp"],
            Self::Two => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
        }
    }
}

impl Keys {
    /// Derives the keys from the destination connection ID of the client's first packet.
    pub(super) fn of_client(version: Version, destination: &[u8]) -> Option<Self> {
        let initial = Hkdf::<Sha256>::new(Some(&version.salt()), destination);
        let mut secret = [0; 32];
        expand(&initial, "client in", &mut secret)?;
        let secret = Hkdf::<Sha256>::from_prk(&secret).ok()?;

        let [key, iv, header] = version.labels();
        let mut bytes = [0; 16];
        expand(&secret, key, &mut bytes)?;
        let payload = Aes128Gcm::new(&bytes.into());
        expand(&secret, header, &mut bytes)?;
        let header = Aes128::new(&bytes.into());
        let mut nonce = [0; NONCE_LEN];
        expand(&secret, iv, &mut nonce)?;
        Some(Self { header, payload, iv: nonce })
    }

    /// The header protection mask (RFC 9001, 5.4).
    pub(super) fn mask(&self, sample: &[u8]) -> Option<[u8; 5]> {
        let mut block = aes::Block::try_from(sample).ok()?;
        self.header.encrypt_block(&mut block);
        block.first_chunk().copied()
    }

    /// Decrypts the payload of a packet.
    pub(super) fn open(&self, number: u32, header: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        self.payload.decrypt(&nonce.into(), Payload { msg: sealed, aad: header }).ok()
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
fn expand(secret: &Hkdf<Sha256>, label: &str, out: &mut [u8]) -> Option<()> {
    const PREFIX: &str = "tls13 ";
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let named = u8::try_from(PREFIX.len() + label.len()).ok()?;
    let info = [&length[..], &[named], PREFIX.as_bytes(), label.as_bytes(), &[0]];
    secret.expand_multi_info(&info, out).ok()
}
