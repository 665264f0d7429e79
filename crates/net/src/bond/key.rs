//! The Ed25519 keys of clients and gateways.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::base64;

/// The DER that precedes the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A public key. Its text is 44 characters of base64, as in WireGuard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// An Ed25519 private key.
pub struct PrivateKey {
    der: PrivatePkcs8KeyDer<'static>,
    public: PublicKey,
}

/// The failure to read or write a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    File(PathBuf, #[source] io::Error),
    /// The file does not contain an Ed25519 private key in PEM.
    #[error("{} holds no Ed25519 private key in PEM", .0.display())]
    NotAKey(PathBuf),
    /// Other users can read the file.
    #[error("{} can be read by other users than its owner", .0.display())]
    InsecurePermissions(PathBuf),
    /// The text is not a public key.
    #[error(
        "{0:?} is not a public key: one has 44 characters, as `manyways bond keygen` prints it"
    )]
    NotPublic(String),
    /// The system returned no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl PublicKey {
    /// Returns the key in a SubjectPublicKeyInfo; `None` if it is not Ed25519.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        Some(Self(spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?))
    }

    /// Returns the key as a SubjectPublicKeyInfo.
    pub(super) fn spki(&self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&base64::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = || KeyError::NotPublic(text.to_owned());
        let bytes = base64::decode(text.as_bytes()).ok_or_else(wrong)?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl PrivateKey {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system returns no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::Random)?;
        let der = PrivatePkcs8KeyDer::from(document.as_ref().to_vec());
        Self::from_der(der).ok_or(KeyError::Random)
    }

    fn from_der(der: PrivatePkcs8KeyDer<'static>) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { der, public })
    }

    /// Reads a PEM file that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read it, or it does not contain an Ed25519 key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |error| KeyError::File(path.to_owned(), error);
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        let text = fs::read(path).map_err(failed)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(&text)
            .ok()
            .and_then(|der| Self::from_der(der.clone_key()))
            .ok_or_else(|| KeyError::NotAKey(path.to_owned()))?;
        // Checked last: the mode of a file without a key does not matter.
        if mode & 0o077 != 0 {
            return Err(KeyError::InsecurePermissions(path.to_owned()));
        }
        Ok(key)
    }

    /// Writes a new file that only its owner can read.
    ///
    /// # Errors
    /// If the file exists, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let failed = |error| KeyError::File(path.to_owned(), error);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(self.pem().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    fn pem(&self) -> String {
        let text = base64::encode(self.der.secret_pkcs8_der());
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns another secret for this purpose, from which the key cannot be computed.
    pub(super) fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.der.secret_pkcs8_der());
        let mut secret = [0; 32];
        secret.copy_from_slice(hmac::sign(&key, purpose).as_ref());
        secret
    }

    pub(super) fn der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.der.clone_key())
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the private key of {}", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_for_its_owner_alone_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = PrivateKey::generate().unwrap();
        key.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(PrivateKey::read(&path).unwrap().public(), key.public());
        // An existing key is never overwritten.
        assert!(matches!(key.write(&path), Err(KeyError::File(..))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(PrivateKey::read(&path), Err(KeyError::InsecurePermissions(_))));
    }

    #[test]
    fn a_public_key_is_44_characters() {
        let key = PrivateKey::generate().unwrap().public();
        let text = key.to_string();
        assert_eq!(text.len(), 44);
        assert_eq!(text.parse::<PublicKey>().unwrap(), key);
        assert_eq!(PublicKey::from_spki(&key.spki()), Some(key));
        for wrong in ["", "AAAA", &text[1..], "not a key"] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
    }
}
