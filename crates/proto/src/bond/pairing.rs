//! Pairing of two devices by a code: the decisions, and the messages.
//!
//! The lender shows a code of six digits, and its user types it at the other device. Both prove with
//! SPAKE2 (RFC 9382) that they know it, together with their public keys. A proof costs one of three
//! guesses; a code is for two minutes and for one device. So a stranger's chance is 3 in a million. A
//! device that ends the connection before its proof has learnt nothing about the code: the lender
//! proves last.

use std::net::SocketAddr;

use manyways_unit::{Span, Time};

/// Number of wrong guesses after which a code is not valid.
const GUESSES: u8 = 3;
/// Time for which a code is valid.
const LIFETIME: Span = Span::from_secs(120);
/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: usize = 512;
/// Maximum length of a device's name in bytes.
pub const MAX_NAME: usize = 32;
/// Maximum number of a gateway's addresses.
const MAX_ADDRESSES: usize = 8;

/// The code that a lender shows.
#[derive(Clone, Debug)]
pub struct Code {
    digits: String,
    until: Time,
    guesses: u8,
}

/// Why a lender does not accept a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    #[error("the lender shows no code: `manyways bond lend --pair` there shows one")]
    None,
    #[error("the code is older than {} minutes: a new one is needed", LIFETIME.as_secs_f64() / 60.0)]
    Expired,
    #[error("the code is wrong; {0} more tries")]
    Wrong(u8),
    #[error("the code was wrong {GUESSES} times: a new one is needed")]
    TooManyGuesses,
}

impl Code {
    /// Creates a code from a random number.
    pub fn new(now: Time, random: u32) -> Self {
        let digits = format!("{:06}", random % 1_000_000);
        Self { digits, until: now + LIFETIME, guesses: GUESSES }
    }

    /// Returns the six digits.
    pub fn digits(&self) -> &str {
        &self.digits
    }

    pub fn is_valid(&self, now: Time) -> bool {
        now < self.until && self.guesses > 0
    }

    /// Begins the exchange with a device, and returns the digits. Several devices may begin.
    ///
    /// # Errors
    /// If the code is not valid.
    pub fn begin(&self, now: Time) -> Result<String, CodeError> {
        if self.guesses == 0 {
            return Err(CodeError::TooManyGuesses);
        }
        if now >= self.until {
            return Err(CodeError::Expired);
        }
        Ok(self.digits.clone())
    }

    /// Spends a guess on the proof of a device, before the proof is verified.
    ///
    /// # Errors
    /// If the code is not valid any longer.
    pub fn spend(&mut self, now: Time) -> Result<(), CodeError> {
        self.begin(now)?;
        self.guesses -= 1;
        Ok(())
    }

    /// Returns the guess of a right proof, if the devices have not paired for another reason.
    pub fn give_back(&mut self) {
        self.guesses = (self.guesses + 1).min(GUESSES);
    }

    /// Returns what a device learns whose proof was wrong.
    pub fn wrong(&self) -> CodeError {
        match self.guesses {
            0 => CodeError::TooManyGuesses,
            left => CodeError::Wrong(left),
        }
    }
}

/// A message of a pairing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PairMessage {
    /// The part of SPAKE2: first of the client, then of the lender.
    Exchange(Vec<u8>),
    /// Proof of the code, and the name of the device: first of the client, then of the lender.
    Confirm { proof: [u8; 32], name: String },
    /// Client to lender: the gateway that the lender may dial.
    Gateway { key: [u8; 32], addresses: Vec<SocketAddr> },
    /// Lender to client: the devices are paired.
    Done,
    /// The pairing has failed, for this reason.
    Failed(String),
}

/// Bytes that are not a message of a pairing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the other end does not pair as manyways does")]
pub struct InvalidPairMessage;

mod kind {
    pub const EXCHANGE: u8 = 0;
    pub const CONFIRM: u8 = 1;
    pub const GATEWAY: u8 = 2;
    pub const DONE: u8 = 3;
    pub const FAILED: u8 = 4;
}

impl PairMessage {
    /// Returns the bytes of the message: the type and its fields.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Exchange(part) => {
                out.push(kind::EXCHANGE);
                out.extend(part);
            }
            Self::Confirm { proof, name } => {
                out.push(kind::CONFIRM);
                out.extend(proof);
                out.extend(name.as_bytes());
            }
            Self::Gateway { key, addresses } => {
                out.push(kind::GATEWAY);
                out.extend(key);
                // A name may have more addresses than a device accepts.
                let addresses = addresses.iter().take(MAX_ADDRESSES);
                let texts: Vec<String> = addresses.map(SocketAddr::to_string).collect();
                out.extend(texts.join(" ").as_bytes());
            }
            Self::Done => out.push(kind::DONE),
            Self::Failed(reason) => {
                out.push(kind::FAILED);
                let end = reason.floor_char_boundary(MAX_MESSAGE - 1);
                out.extend(&reason.as_bytes()[..end]);
            }
        }
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// If the bytes are not a message, or a name or reason could manipulate a terminal.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidPairMessage> {
        let (kind, rest) = bytes.split_first().ok_or(InvalidPairMessage)?;
        let key = || rest.split_first_chunk::<32>().ok_or(InvalidPairMessage);
        if bytes.len() > MAX_MESSAGE {
            return Err(InvalidPairMessage);
        }
        Ok(match *kind {
            kind::EXCHANGE => Self::Exchange(rest.to_vec()),
            kind::CONFIRM => {
                let (proof, name) = key()?;
                let name = text(name)?;
                if !is_device_name(&name) {
                    return Err(InvalidPairMessage);
                }
                Self::Confirm { proof: *proof, name }
            }
            kind::GATEWAY => {
                let (key, addresses) = key()?;
                let addresses = text(addresses)?;
                let addresses: Result<Vec<SocketAddr>, _> =
                    addresses.split(' ').map(str::parse).collect();
                let addresses = addresses.map_err(|_| InvalidPairMessage)?;
                if addresses.len() > MAX_ADDRESSES {
                    return Err(InvalidPairMessage);
                }
                Self::Gateway { key: *key, addresses }
            }
            kind::DONE if rest.is_empty() => Self::Done,
            kind::FAILED => Self::Failed(text(rest)?),
            _ => return Err(InvalidPairMessage),
        })
    }
}

/// Whether a text can be the name of a device: letters, digits, `-` and `_`, as in a policy.
pub fn is_device_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(fits)
}

fn text(bytes: &[u8]) -> Result<String, InvalidPairMessage> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidPairMessage)?;
    if text.chars().any(char::is_control) {
        return Err(InvalidPairMessage);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_millis(secs * 1_000)
    }

    #[test]
    fn three_wrong_guesses_end_a_code() {
        let mut code = Code::new(at(0), 4_000_042);
        assert_eq!(code.digits(), "000042");
        for left in [CodeError::Wrong(2), CodeError::Wrong(1), CodeError::TooManyGuesses] {
            assert!(code.is_valid(at(1)));
            assert_eq!(code.begin(at(1)), Ok("000042".to_owned()));
            assert_eq!(code.spend(at(1)), Ok(()));
            assert_eq!(code.wrong(), left);
        }
        assert!(!code.is_valid(at(1)));
        assert_eq!(code.begin(at(1)), Err(CodeError::TooManyGuesses));
    }

    #[test]
    fn devices_that_guess_at_once_have_three_guesses_together() {
        let mut code = Code::new(at(0), 1);
        for _ in 0..10 {
            assert!(code.begin(at(1)).is_ok(), "a device that has proved nothing spends no guess");
        }
        let spent = (0..10).filter(|_| code.spend(at(1)).is_ok()).count();
        assert_eq!(spent, 3);
        code.give_back();
        assert!(code.is_valid(at(1)));
    }

    #[test]
    fn a_code_expires() {
        let mut code = Code::new(at(0), 1);
        assert!(code.begin(at(119)).is_ok());
        assert_eq!(code.begin(at(120)), Err(CodeError::Expired));
        assert_eq!(code.spend(at(120)), Err(CodeError::Expired));
        assert!(!code.is_valid(at(120)));
    }

    fn messages() -> impl Strategy<Value = PairMessage> {
        let addresses = prop::collection::vec(any::<SocketAddr>(), 1..=MAX_ADDRESSES);
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64).prop_map(PairMessage::Exchange),
            (any::<[u8; 32]>(), "[a-zA-Z0-9_-]{1,32}")
                .prop_map(|(proof, name)| PairMessage::Confirm { proof, name }),
            (any::<[u8; 32]>(), addresses).prop_map(|(key, addresses)| {
                // The text of an IPv6 address has no flow label.
                let addresses = addresses
                    .into_iter()
                    .map(|address| SocketAddr::new(address.ip(), address.port()))
                    .collect();
                PairMessage::Gateway { key, addresses }
            }),
            Just(PairMessage::Done),
            "[a-zäöü€ ]{0,80}".prop_map(PairMessage::Failed),
        ]
    }

    proptest! {
        #[test]
        fn written_messages_are_read(message in messages()) {
            prop_assert_eq!(PairMessage::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            let _ = PairMessage::decode(&bytes);
        }
    }

    #[test]
    fn a_gateway_with_many_addresses_has_some_of_them() {
        let addresses = (0..20).map(|at| SocketAddr::from(([192, 0, 2, at], 4433))).collect();
        let message = PairMessage::Gateway { key: [1; 32], addresses };
        let Ok(PairMessage::Gateway { addresses, .. }) = PairMessage::decode(&message.encode())
        else {
            panic!("{message:?} is not read")
        };
        assert_eq!(addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn names_that_could_manipulate_a_terminal_or_a_policy_are_refused() {
        for wrong in
            ["", "my phone", "phone\u{1b}[2J", "a,b", "name-of-a-device-with-33-characters"]
        {
            let message = PairMessage::Confirm { proof: [0; 32], name: wrong.to_owned() };
            assert_eq!(PairMessage::decode(&message.encode()), Err(InvalidPairMessage), "{wrong}");
        }
    }
}
