//! All that a client's hello says.

use std::fmt;

use super::hello::{self, Depth, Draft, Stop};
use super::{Carrier, ja4};
use crate::HostName;

/// The most versions that are taken from one hello.
pub const VERSION_LIMIT: usize = 16;

const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const ENCRYPTED_HELLO: u16 = 0xfe0d;

/// A version of TLS as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    /// SSL 3.0.
    pub const SSL_3_0: Self = Self(0x300);
    /// TLS 1.0.
    pub const TLS_1_0: Self = Self(0x301);
    /// TLS 1.1.
    pub const TLS_1_1: Self = Self(0x302);
    /// TLS 1.2.
    pub const TLS_1_2: Self = Self(0x303);
    /// TLS 1.3.
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

/// Whether a number is one of those that are made up so that servers get used to new ones
/// (RFC 8701).
pub fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// What a client offers, from as much of its hello as there is. Where that is cut, what is none or
/// empty may only be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// All of the hello was there.
    pub is_whole: bool,
    /// The version in the hello's own field, which says at most TLS 1.2.
    pub legacy_version: Version,
    /// The versions that it really offers, where it lists them; without made-up ones, and none
    /// after the first [`VERSION_LIMIT`].
    pub versions: Box<[Version]>,
    /// As in [`ClientHello`](super::ClientHello).
    pub server_name: Option<HostName>,
    /// As in [`ClientHello`](super::ClientHello).
    pub protocols: Box<[Vec<u8>]>,
    /// The real hello is encrypted within this one (ECH), or it looks as if (GREASE of ECH looks
    /// the same, which is what it is for).
    pub encrypts_hello: bool,
    /// It has a key of an earlier session (TLS 1.3).
    pub has_key: bool,
    /// It sends data before the server has answered.
    pub sends_early: bool,
    /// JA4, of a whole hello only.
    pub ja4: Option<Box<str>>,
    /// The session that it would go on with (before TLS 1.3); none when it is cut before.
    pub(super) session: Option<Box<[u8]>>,
}

impl Offer {
    /// Reads a handshake message of which the end may be missing: the inside of TLS records, or of
    /// CRYPTO frames of QUIC. None when it is no client's hello, or is broken, or would be longer
    /// than [`LIMIT`](crate::LIMIT), or when there is not even its version.
    pub fn read(message: &[u8], carrier: Carrier) -> Option<Self> {
        let mut draft = Draft::default();
        let is_whole = match hello::walk(message, Depth::All, &mut draft) {
            Ok(()) => true,
            Err(Stop::Short { .. }) if draft.version != 0 => false,
            Err(Stop::Short { .. } | Stop::Broken) => return None,
        };
        let ja4 = is_whole.then(|| ja4::of(&draft, carrier).into());
        let has = |kind| draft.extensions.contains(&kind);
        let (encrypts_hello, has_key, sends_early) =
            (has(ENCRYPTED_HELLO), has(PRE_SHARED_KEY), has(EARLY_DATA));
        let versions = draft.versions.into_iter().flatten().filter(|version| !is_grease(*version));
        Some(Self {
            is_whole,
            legacy_version: Version(draft.version),
            versions: versions.take(VERSION_LIMIT).map(Version).collect(),
            server_name: draft.name.flatten(),
            protocols: draft.protocols.unwrap_or_default().into(),
            encrypts_hello,
            has_key,
            sends_early,
            ja4,
            session: draft.session.map(Into::into),
        })
    }

    /// The newest version that it offers; none where the hello is cut and lists none before.
    pub fn newest_version(&self) -> Option<Version> {
        let listed = self.versions.iter().max().copied();
        listed.or(self.is_whole.then_some(self.legacy_version))
    }
}
