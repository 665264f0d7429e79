//! The ServerHello (RFC 8446, 4.1.3; RFC 5246, 7.4.1.3).

use super::Version;
use super::fields::{End, Fields};
use super::hello::{self, ALPN, SUPPORTED_VERSIONS};
use crate::LIMIT;

const SERVER_HELLO: u8 = 2;
const PRE_SHARED_KEY: u16 = 41;
/// The random value of a HelloRetryRequest: SHA-256 of `HelloRetryRequest` (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Number of random bytes that suffice to recognize a HelloRetryRequest.
const ENOUGH: usize = 8;

/// The choices of a server. A value is `None` if missing or truncated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Whether the complete ServerHello was captured.
    pub is_whole: bool,
    /// Negotiated version.
    pub version: Option<Version>,
    /// Cipher suite, as on the wire.
    pub suite: Option<u16>,
    /// Negotiated protocol (ALPN); encrypted since TLS 1.3.
    pub protocol: Option<Vec<u8>>,
    /// Whether the message is a HelloRetryRequest; `None` if truncated before.
    pub(super) asks_again: Option<bool>,
    /// Whether the server accepted a pre-shared key (TLS 1.3).
    pub(super) takes_key: bool,
    pub(super) session: Option<Vec<u8>>,
}

impl Choice {
    /// Reads a handshake message, complete or truncated. `None` if the message is not a ServerHello
    /// or is invalid.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let whole = hello::whole(message).filter(|whole| *whole <= LIMIT)?;
        if message.first() != Some(&SERVER_HELLO) {
            return None;
        }
        let there = message.get(hello::HEADER..message.len().min(whole))?;
        let body = Fields { there, length: whole - hello::HEADER };
        let mut choice = Self::default();
        let mut legacy = None;
        match choice.fill(body, &mut legacy) {
            Ok(()) => choice.is_whole = true,
            Err(End::Missing) => {}
            Err(End::Broken) => return None,
        }
        // TLS 1.3 is announced in an extension, and its cipher suites belong to no other version
        // (RFC 8446, B.4). A truncated message may have had the extension.
        if choice.version.is_none() {
            let is_old =
                choice.is_whole || legacy.is_some_and(|version| version < Version::TLS_1_2);
            choice.version = match choice.suite {
                Some(suite) if suite >> 8 == 0x13 => Some(Version::TLS_1_3),
                _ => legacy.filter(|_| is_old),
            };
        }
        Some(choice)
    }

    fn fill(&mut self, mut body: Fields<'_>, legacy: &mut Option<Version>) -> Result<(), End> {
        let version = body.number(2)?;
        if version >> 8 != 3 {
            return Err(End::Broken);
        }
        *legacy = Some(Version(version as u16));
        let random = body.part(RETRY.len())?.there;
        let is_retry = RETRY.starts_with(random);
        self.asks_again = (!is_retry || random.len() >= ENOUGH).then_some(is_retry);
        let session = body.sized(1)?;
        if session.length > 32 {
            return Err(End::Broken);
        }
        self.session = Some(session.bytes()?.to_vec());
        self.suite = Some(body.number(2)? as u16);
        body.number(1)?;
        // Extensions are optional before TLS 1.3.
        let length = if body.length == 0 { 0 } else { body.number(2)? };
        let mut extensions = body.part(length)?;
        if body.length != 0 {
            return Err(End::Broken);
        }
        while extensions.length > 0 {
            let kind = extensions.number(2)? as u16;
            let mut value = extensions.sized(2)?;
            match kind {
                SUPPORTED_VERSIONS => self.version = Some(Version(value.number(2)? as u16)),
                ALPN => self.protocol = hello::protocol_list(value)?.into_iter().next(),
                PRE_SHARED_KEY => self.takes_key = value.bytes().map(|_| true)?,
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
        let whole = Choice::read(&message).unwrap();
        assert!(whole.is_whole && whole.takes_key);
        assert_eq!((whole.version, whole.suite), (Some(Version::TLS_1_3), Some(0x1301)));
        assert_eq!((whole.asks_again, whole.session), (Some(false), Some(vec![9; 32])));
        for end in 4..message.len() {
            let choice = Choice::read(&message[..end]).unwrap();
            assert!(!choice.is_whole && !choice.takes_key);
            // The cipher suite alone determines the version.
            let is_suite_there = end >= 4 + 2 + 32 + 33 + 2;
            assert_eq!(choice.suite.is_some(), is_suite_there, "{end}");
            assert_eq!(choice.version.is_some(), is_suite_there, "{end}");
            assert_eq!(choice.asks_again, (end > 6).then_some(false), "{end}");
        }
        assert!((0..4).all(|end| Choice::read(&message[..end]).is_none()));
    }

    #[test]
    fn an_ambiguous_truncated_hello_has_no_version() {
        let mut message = message([7; 32], 0xc02f, &[extension(35, &[]), alpn(&["h2"])]);
        let whole = Choice::read(&message).unwrap();
        assert_eq!(whole.version, Some(Version::TLS_1_2));
        assert_eq!(whole.protocol.as_deref(), Some(&b"h2"[..]));
        let cut = &message[..message.len() - 1];
        assert_eq!(Choice::read(cut).unwrap().version, None);
        // A legacy version below TLS 1.2 is the actual version.
        message[5] = 1;
        assert_eq!(Choice::read(&message[..60]).unwrap().version, Some(Version::TLS_1_0));
    }

    #[test]
    fn a_hello_retry_request_is_recognized_by_its_random() {
        let message = message(RETRY, 0x1301, &[extension(43, &[3, 4])]);
        assert_eq!(Choice::read(&message).unwrap().asks_again, Some(true));
        let asks = |known: usize| Choice::read(&message[..6 + known]).unwrap().asks_again;
        assert_eq!([0, ENOUGH - 1, ENOUGH].map(asks), [None, None, Some(true)]);
        let mut other = message.clone();
        other[6 + 31] ^= 1;
        assert_eq!(Choice::read(&other).unwrap().asks_again, Some(false));
    }

    #[test]
    fn invalid_server_hellos_are_rejected() {
        let good = message([7; 32], 0x1301, &[extension(43, &[3, 4])]);
        for (at, to) in [(0, 1), (1, 1), (4, 2), (38, 33), (75, 1), (79, 9)] {
            let mut bad = good.clone();
            bad[at] = to;
            assert_eq!(Choice::read(&bad), None, "{at}");
        }
    }
}
