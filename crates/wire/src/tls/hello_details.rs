//! The offer of a client: all values of a ClientHello.

use std::fmt;

use super::hello::{self, Depth, HelloError, HelloValues};
use super::{Transport, ja4};
use crate::HostName;

/// Maximum number of versions read from a ClientHello.
pub const MAX_VERSIONS: usize = 16;

const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// A TLS version, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    pub const SSL_3_0: Self = Self(0x300);
    pub const TLS_1_0: Self = Self(0x301);
    pub const TLS_1_1: Self = Self(0x302);
    pub const TLS_1_2: Self = Self(0x303);
    pub const TLS_1_3: Self = Self(0x304);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0x300 => f.write_str("SSL 3.0"),
            minor @ 0x301..=0x304 => write!(f, "TLS 1.{}", minor - 0x301),
            other => write!(f, "{other:#06x}"),
        }
    }
}

/// Whether a number is a GREASE value, reserved to keep servers tolerant of new values (RFC 8701).
pub fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// The values of a ClientHello, complete or truncated. In a truncated one, empty values may only be
/// missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHelloDetails {
    /// Whether the complete ClientHello was captured.
    pub is_complete: bool,
    /// `legacy_version`, at most TLS 1.2.
    pub legacy_version: Version,
    /// The listed versions (`supported_versions`) without GREASE values; at most the first
    /// [`MAX_VERSIONS`].
    pub versions: Box<[Version]>,
    /// As in [`ClientHello`](super::ClientHello).
    pub server_name: Option<HostName>,
    /// Start of a server name that is not a host name, such as an address, which RFC 6066 (3)
    /// forbids, or a name with a port: up to 253 bytes of any characters.
    pub other_name: Option<Box<str>>,
    /// As in [`ClientHello`](super::ClientHello).
    pub protocols: Box<[Vec<u8>]>,
    /// Whether the message has an Encrypted ClientHello, or a GREASE value of that extension, which
    /// looks the same by design.
    pub has_ech: bool,
    /// Whether the client has a pre-shared key of an earlier session (TLS 1.3).
    pub has_psk: bool,
    /// Whether the client sends early data.
    pub has_early_data: bool,
    /// JA4 fingerprint; `None` if truncated.
    pub ja4: Option<Box<str>>,
    /// Session ID for resumption (before TLS 1.3); `None` if truncated before.
    pub(super) session_id: Option<Box<[u8]>>,
}

impl ClientHelloDetails {
    /// Reads a handshake message, complete or truncated: the content of TLS records or of QUIC
    /// CRYPTO frames. `None` if the message is not a ClientHello, is invalid, is longer than
    /// [`MAX_PEEK_LENGTH`](crate::MAX_PEEK_LENGTH), or ends before its version.
    pub fn read(message: &[u8], carrier: Transport) -> Option<Self> {
        let mut draft = HelloValues::default();
        let is_whole = match hello::parse(message, Depth::All, &mut draft) {
            Ok(()) => true,
            Err(HelloError::Incomplete { .. }) if draft.version != 0 => false,
            Err(HelloError::Incomplete { .. } | HelloError::Invalid) => return None,
        };
        let ja4 = is_whole.then(|| ja4::fingerprint(&draft, carrier).into());
        let has = |kind| draft.extensions.contains(&kind);
        let (encrypts_hello, has_key, sends_early) =
            (has(ENCRYPTED_CLIENT_HELLO), has(PRE_SHARED_KEY), has(EARLY_DATA));
        let versions = draft.versions.into_iter().flatten().filter(|version| !is_grease(*version));
        Some(Self {
            is_complete: is_whole,
            legacy_version: Version(draft.version),
            versions: versions.take(MAX_VERSIONS).map(Version).collect(),
            server_name: draft.name.flatten(),
            other_name: draft.other_name,
            protocols: draft.protocols.unwrap_or_default().into(),
            has_ech: encrypts_hello,
            has_psk: has_key,
            has_early_data: sends_early,
            ja4,
            session_id: draft.session_id.map(Into::into),
        })
    }

    /// The server name as sent, whether or not it is a host name.
    pub fn sni(&self) -> Option<&str> {
        self.server_name.as_ref().map(HostName::as_str).or(self.other_name.as_deref())
    }

    /// The newest offered version; `None` if the list was truncated.
    pub fn newest_version(&self) -> Option<Version> {
        let listed = self.versions.iter().max().copied();
        listed.or(self.is_complete.then_some(self.legacy_version))
    }
}
