//! The number of a measurement, which its data begin with.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The first bytes of a data connection. No TLS hello begins with them.
pub(crate) const MAGIC: [u8; 4] = *b"mwp1";
/// Bytes before the data of a TCP connection.
pub(crate) const TCP_HEAD: usize = MAGIC.len() + Token::LENGTH;
/// Bytes of a datagram before its padding: token, sequence number, time.
pub(crate) const UDP_HEAD: usize = Token::LENGTH + 16;

/// A random number that only the client of a control connection knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; Self::LENGTH]);

impl Token {
    pub(crate) const LENGTH: usize = 16;

    /// A new token; `None` if the system returns no random numbers.
    pub(crate) fn generate() -> Option<Self> {
        let mut bytes = [0; Self::LENGTH];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The head of a data connection.
    pub(crate) fn tcp_head(self) -> [u8; TCP_HEAD] {
        let mut head = [0; TCP_HEAD];
        head[..MAGIC.len()].copy_from_slice(&MAGIC);
        head[MAGIC.len()..].copy_from_slice(&self.0);
        head
    }

    /// The token in the head of a data connection.
    pub(crate) fn from_tcp_head(head: &[u8; TCP_HEAD]) -> Option<Self> {
        let token = head.strip_prefix(&MAGIC)?;
        Some(Self(token.try_into().ok()?))
    }

    /// Writes the head of a datagram.
    pub(crate) fn write_datagram(self, datagram: &mut [u8], sequence: u64, nanos: u64) {
        let Some(head) = datagram.first_chunk_mut::<UDP_HEAD>() else { return };
        head[..16].copy_from_slice(&self.0);
        head[16..24].copy_from_slice(&sequence.to_be_bytes());
        head[24..32].copy_from_slice(&nanos.to_be_bytes());
    }

    /// Token, sequence number and time of a datagram.
    pub(crate) fn read_datagram(datagram: &[u8]) -> Option<(Self, u64, u64)> {
        let head: &[u8; UDP_HEAD] = datagram.first_chunk()?;
        let token: [u8; 16] = head[..16].try_into().ok()?;
        let number = |at: usize| head[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        Some((Self(token), number(16)?, number(24)?))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom("a token has 32 hexadecimal digits");
        if text.len() != 2 * Self::LENGTH || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; Self::LENGTH];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_every_form() {
        let token = Token::generate().unwrap();
        assert_ne!(token, Token::generate().unwrap());
        assert_eq!(Token::from_tcp_head(&token.tcp_head()), Some(token));
        let text = serde_json::to_string(&token).unwrap();
        assert_eq!(serde_json::from_str::<Token>(&text).unwrap(), token);
        for wrong in ["\"\"", "\"00\"", "\"zz\"", "7"] {
            assert!(serde_json::from_str::<Token>(wrong).is_err(), "{wrong}");
        }
        let mut datagram = [0; 40];
        token.write_datagram(&mut datagram, 5, 7);
        assert_eq!(Token::read_datagram(&datagram), Some((token, 5, 7)));
        assert_eq!(Token::read_datagram(&datagram[..31]), None);
    }
}
