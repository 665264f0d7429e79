//! How a carrier begins: TLS, then one message in each direction.

use std::time::Duration;

use manyways_proto::mux::{DecodeError, Hello, Message, RefuseCode, VERSION, Welcome};
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::carrier::{CarrierError, Chunk, Io};

/// Connecting, TLS and greetings together may take so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why no carrier came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreetError {
    /// The network does not lead there, or nobody answers.
    #[error("{0}")]
    Connect(String),
    /// It took too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    /// The gateway's key is another one.
    #[error("the gateway has another key than the one that was given")]
    WrongGateway,
    /// The gateway does not let this key in.
    #[error("the gateway does not know this key")]
    UnknownKey,
    /// The other end speaks TLS, but not this protocol.
    #[error("the other end does not speak the protocol of manyways bond: {0}")]
    NotOurs(String),
    /// The gateway said no.
    #[error("the gateway refuses: {1}")]
    Refused(RefuseCode, String),
    /// The other end speaks another version.
    #[error("the other end speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u8),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl GreetError {
    /// What can be done about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connect(_) | Self::Timeout => {
                "is the gateway running there, and does its firewall let the port through?"
            }
            Self::WrongGateway => {
                "compare --gateway-key with what `manyways bond gateway` prints when it starts"
            }
            Self::UnknownKey => {
                "add this client's public key (`manyways bond keygen --show`) to the gateway's \
                 allow-file"
            }
            Self::NotOurs(_) => "is there another service at this address?",
            Self::Version(_) => "install the same version of manyways at both ends",
            Self::Refused(..) | Self::Broken(_) => return None,
        })
    }

    /// Whether trying again is of no use until somebody changes something.
    pub fn lasts(&self) -> bool {
        matches!(self, Self::WrongGateway | Self::UnknownKey | Self::NotOurs(_) | Self::Version(_))
    }

    /// What a TLS handshake with a gateway failed of.
    pub(super) fn of_handshake(error: &std::io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls {
            Some(tls) => Self::of_tls(tls),
            None => Self::Broken(crate::fetch::dial::plain(error)),
        }
    }

    /// What a QUIC handshake with a gateway failed of. TLS tells why by the number of its alert.
    pub(super) fn of_quic(error: &quinn::ConnectionError) -> Self {
        use quinn::ConnectionError::{ConnectionClosed, TimedOut, TransportError};
        const ALERT: u64 = 0x100;
        let code = match error {
            TransportError(error) => u64::from(error.code),
            ConnectionClosed(frame) => u64::from(frame.error_code),
            TimedOut => return Self::Timeout,
            _ => 0,
        };
        let by_us = matches!(error, TransportError(_));
        match code.checked_sub(ALERT).map(|alert| AlertDescription::from(alert as u8)) {
            Some(AlertDescription::AccessDenied) if by_us => Self::WrongGateway,
            Some(AlertDescription::AccessDenied) => Self::UnknownKey,
            Some(_) => Self::NotOurs(error.to_string()),
            None => Self::Broken(error.to_string()),
        }
    }

    fn of_tls(error: &TlsError) -> Self {
        match error {
            TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                Self::WrongGateway
            }
            TlsError::AlertReceived(AlertDescription::AccessDenied) => Self::UnknownKey,
            other => Self::NotOurs(other.to_string()),
        }
    }

    fn of_carrier(io: &Io, error: CarrierError) -> Self {
        match error {
            CarrierError::Tls(error) => Self::of_tls(&error),
            CarrierError::Message(DecodeError::NotOurs) => {
                Self::NotOurs("it greets in another way".to_owned())
            }
            // Nothing has been said before, so it is not that something broke on the way.
            CarrierError::Message(error) => Self::NotOurs(error.to_string()),
            other => match io.close_reason() {
                // With QUIC the client has finished its handshake before it is judged.
                Some(reason) => Self::of_quic(&reason),
                None => Self::Broken(other.to_string()),
            },
        }
    }
}

/// The first message of the other end, and those that came with it.
async fn first(io: &mut Io) -> Result<(Message<Chunk>, Vec<Message<Chunk>>), GreetError> {
    let heard = io.messages().await;
    let mut messages = heard.map_err(|error| GreetError::of_carrier(io, error))?;
    let rest = messages.split_off(1);
    match messages.pop() {
        Some(first) => Ok((first, rest)),
        None => Err(GreetError::Timeout),
    }
}

async fn flush(io: &mut Io) -> Result<(), GreetError> {
    io.flush_all().await.map_err(|error| GreetError::of_carrier(io, error))
}

/// The client's part: says hello, and hears what the gateway allows.
pub(super) async fn hello(
    io: &mut Io,
    hello: Hello,
) -> Result<(Welcome, Vec<Message<Chunk>>), GreetError> {
    io.queue(&Message::Hello(hello));
    flush(io).await?;
    match first(io).await? {
        (Message::Welcome(welcome), _) if welcome.version != VERSION => {
            Err(GreetError::Version(welcome.version))
        }
        (Message::Welcome(welcome), rest) => Ok((welcome, rest)),
        (Message::Refuse(code, words), _) => Err(GreetError::Refused(code, words)),
        _ => Err(GreetError::NotOurs("it did not greet".to_owned())),
    }
}

/// The gateway's part: hears who wants what.
pub(super) async fn hear(io: &mut Io) -> Result<(Hello, Vec<Message<Chunk>>), GreetError> {
    match first(io).await? {
        (Message::Hello(hello), _) if hello.version != VERSION => {
            let words = format!("this gateway speaks version {VERSION} of the protocol");
            refuse(io, RefuseCode::Version, words).await;
            Err(GreetError::Version(hello.version))
        }
        (Message::Hello(hello), rest) => Ok((hello, rest)),
        _ => Err(GreetError::NotOurs("it did not greet".to_owned())),
    }
}

pub(super) async fn welcome(io: &mut Io, welcome: Welcome) -> Result<(), GreetError> {
    io.queue(&Message::Welcome(welcome));
    flush(io).await
}

/// Says no; whether it is heard does not matter.
pub(super) async fn refuse(io: &mut Io, code: RefuseCode, words: String) {
    io.queue(&Message::Refuse(code, words));
    let _ = flush(io).await;
    if let Io::Quic(io) = io {
        io.finish().await;
    }
}
