//! The ServerHello (RFC 8446, 4.1.3; RFC 5246, 7.4.1.3).

use super::Version;
use super::cursor::{Cursor, FieldError};
use super::hello::{self, ALPN, SUPPORTED_VERSIONS};
use crate::MAX_PEEK_LENGTH;

const SERVER_HELLO: u8 = 2;
const PRE_SHARED_KEY: u16 = 41;
/// The random value of a HelloRetryRequest: SHA-256 of `HelloRetryRequest` (RFC 8446, 4.1.3).
const HELLO_RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Number of random bytes that suffice to recognize a HelloRetryRequest.
const MIN_RETRY_PREFIX: usize = 8;

/// The choices of a server. A value is `None` if missing or truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// Whether the complete ServerHello was captured.
    pub is_complete: bool,
    /// Negotiated version.
    pub version: Option<Version>,
    /// Cipher suite, as on the wire.
    pub cipher_suite: Option<u16>,
    /// Negotiated protocol (ALPN); encrypted since TLS 1.3.
    pub protocol: Option<Vec<u8>>,
    /// Whether the message is a HelloRetryRequest; `None` if truncated before.
    pub(super) is_retry_request: Option<bool>,
    /// Whether the server accepted a pre-shared key (TLS 1.3).
    pub(super) accepts_psk: bool,
    pub(super) session_id: Option<Vec<u8>>,
}

impl ServerHello {
    /// Reads a handshake message, complete or truncated. `None` if the message is not a ServerHello
    /// or is invalid.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let whole = hello::message_length(message).filter(|whole| *whole <= MAX_PEEK_LENGTH)?;
        if message.first() != Some(&SERVER_HELLO) {
            return None;
        }
        let there = message.get(hello::HEADER..message.len().min(whole))?;
        let body = Cursor { captured: there, length: whole - hello::HEADER };
        let mut server_hello = Self::default();
        let mut legacy = None;
        match server_hello.parse(body, &mut legacy) {
            Ok(()) => server_hello.is_complete = true,
            Err(FieldError::Truncated) => {}
            Err(FieldError::Overlong) => return None,
        }
        // TLS 1.3 is announced in an extension, and its cipher suites belong to no other version
        // (RFC 8446, B.4). A truncated message may have had the extension.
        if server_hello.version.is_none() {
            let is_old = server_hello.is_complete
                || legacy.is_some_and(|version| version < Version::TLS_1_2);
            server_hello.version = match server_hello.cipher_suite {
                Some(suite) if suite >> 8 == 0x13 => Some(Version::TLS_1_3),
                _ => legacy.filter(|_| is_old),
            };
        }
        Some(server_hello)
    }

    fn parse(
        &mut self,
        mut body: Cursor<'_>,
        legacy: &mut Option<Version>,
    ) -> Result<(), FieldError> {
        let version = body.number(2)?;
        if version >> 8 != 3 {
            return Err(FieldError::Overlong);
        }
        *legacy = Some(Version(version as u16));
        let random = body.take(HELLO_RETRY_RANDOM.len())?.captured;
        let is_retry = HELLO_RETRY_RANDOM.starts_with(random);
        self.is_retry_request = (!is_retry || random.len() >= MIN_RETRY_PREFIX).then_some(is_retry);
        let session = body.prefixed(1)?;
        if session.length > 32 {
            return Err(FieldError::Overlong);
        }
        self.session_id = Some(session.bytes()?.to_vec());
        self.cipher_suite = Some(body.number(2)? as u16);
        body.number(1)?;
        // Extensions are optional before TLS 1.3.
        let length = if body.length == 0 { 0 } else { body.number(2)? };
        let mut extensions = body.take(length)?;
        if body.length != 0 {
            return Err(FieldError::Overlong);
        }
        while extensions.length > 0 {
            let kind = extensions.number(2)? as u16;
            let mut value = extensions.prefixed(2)?;
            match kind {
                SUPPORTED_VERSIONS => self.version = Some(Version(value.number(2)? as u16)),
                ALPN => self.protocol = hello::protocol_list(value)?.into_iter().next(),
                PRE_SHARED_KEY => self.accepts_psk = value.bytes().map(|_| true)?,
                _ => drop(value.bytes()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{alpn, extension, sized};

    fn message(random: [u8; 32], suite: u16, extensions: &[Vec<u8>]) -> Vec<u8> {
        let body = [
            &[3, 3][..],
            &random,
            &sized(1, &[9; 32]),
            &suite.to_be_bytes(),
            &[0],
            &sized(2, &extensions.concat()),
        ];
        [&[SERVER_HELLO][..], &sized(3, &body.concat())].concat()
    }

    #[test]
    fn a_truncated_server_hello_is_read_as_far_as_possible() {
        let [share, version] = [extension(51, &[1; 36]), extension(43, &[3, 4])];
        let key = extension(41, &[0, 0]);
        let message = message([7; 32], 0x1301, &[share, version, key]);
        let whole = ServerHello::read(&message).unwrap();
        assert!(whole.is_complete && whole.accepts_psk);
        assert_eq!((whole.version, whole.cipher_suite), (Some(Version::TLS_1_3), Some(0x1301)));
        assert_eq!((whole.is_retry_request, whole.session_id), (Some(false), Some(vec![9; 32])));
        for end in 4..message.len() {
            let server_hello = ServerHello::read(&message[..end]).unwrap();
            assert!(!server_hello.is_complete && !server_hello.accepts_psk);
            // The cipher suite alone determines the version.
            let is_suite_there = end >= 4 + 2 + 32 + 33 + 2;
            assert_eq!(server_hello.cipher_suite.is_some(), is_suite_there, "{end}");
            assert_eq!(server_hello.version.is_some(), is_suite_there, "{end}");
            assert_eq!(server_hello.is_retry_request, (end > 6).then_some(false), "{end}");
        }
        assert!((0..4).all(|end| ServerHello::read(&message[..end]).is_none()));
    }

    #[test]
    fn an_ambiguous_truncated_hello_has_no_version() {
        let mut message = message([7; 32], 0xc02f, &[extension(35, &[]), alpn(&["h2"])]);
        let whole = ServerHello::read(&message).unwrap();
        assert_eq!(whole.version, Some(Version::TLS_1_2));
        assert_eq!(whole.protocol.as_deref(), Some(&b"h2"[..]));
        let cut = &message[..message.len() - 1];
        assert_eq!(ServerHello::read(cut).unwrap().version, None);
        // A legacy version below TLS 1.2 is the actual version.
        message[5] = 1;
        assert_eq!(ServerHello::read(&message[..60]).unwrap().version, Some(Version::TLS_1_0));
    }

    #[test]
    fn a_hello_retry_request_is_recognized_by_its_random() {
        let message = message(HELLO_RETRY_RANDOM, 0x1301, &[extension(43, &[3, 4])]);
        assert_eq!(ServerHello::read(&message).unwrap().is_retry_request, Some(true));
        let asks =
            |known: usize| ServerHello::read(&message[..6 + known]).unwrap().is_retry_request;
        assert_eq!([0, MIN_RETRY_PREFIX - 1, MIN_RETRY_PREFIX].map(asks), [None, None, Some(true)]);
        let mut other = message.clone();
        other[6 + 31] ^= 1;
        assert_eq!(ServerHello::read(&other).unwrap().is_retry_request, Some(false));
    }

    #[test]
    fn invalid_server_hellos_are_rejected() {
        let good = message([7; 32], 0x1301, &[extension(43, &[3, 4])]);
        for (at, to) in [(0, 1), (1, 1), (4, 2), (38, 33), (75, 1), (79, 9)] {
            let mut bad = good.clone();
            bad[at] = to;
            assert_eq!(ServerHello::read(&bad), None, "{at}");
        }
    }
}
