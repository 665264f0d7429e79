//! The start of a carrier: the TLS handshake, then hello and welcome.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use manyways_proto::bond::dial::{CarrierEnd, FailureKind, Reason};
use manyways_proto::mux::{
    DecodeError, Hello, LoanMessage, Message, RefuseCode, TicketId, VERSION, Welcome,
};
use manyways_unit::Span;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::carrier::{CarrierError, CarrierIo, Chunk};

/// The failure to establish a carrier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The interface of the path is down.
    #[error("its link is down")]
    LinkDown,
    /// The gateway has no address of a family that the path has.
    #[error("this network and the gateway have no address family in common")]
    NoAddress,
    /// The gateway cannot be reached.
    #[error("no connection to {0}: {error}", error = crate::path::plain(.1))]
    Connect(SocketAddr, #[source] io::Error),
    /// The gateway does not answer.
    #[error("no answer from the gateway")]
    Timeout,
    /// The gateway has another key than the configured one.
    #[error("the gateway has another key than the one that was given")]
    WrongGateway,
    /// The key of this client is not in the gateway's allow file.
    #[error("the gateway does not know this key")]
    UnknownKey,
    /// The peer does not use the protocol of `manyways bond`.
    #[error("the other end does not speak the protocol of manyways bond: {0}")]
    WrongProtocol(#[source] ForeignMessage),
    /// The gateway refuses the carrier, with a code and a text.
    #[error("the gateway refuses: {1}")]
    Refused(RefuseCode, String),
    /// The peer uses another version of the protocol.
    #[error("the other end speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u8),
    /// Another session than that of the working carriers.
    #[error("the answer is of an earlier or later session")]
    OtherSession,
    /// The gateway permits no lenders.
    #[error("the gateway permits no lenders")]
    NoLending,
    /// The gateway gives no ticket for the lender.
    #[error("the gateway gives no ticket: {0}")]
    NoTicket(String),
    /// There is no connection to the lender.
    #[error("no connection to {0}: {error}", error = crate::path::plain(.1))]
    LenderAway(SocketAddr, #[source] io::Error),
    /// Another device has the address of the lender.
    #[error("another device answers at its address")]
    WrongLender,
    /// The lender does not know this device.
    #[error("it is no longer paired with this device")]
    NotPaired,
    /// The lender does not lend now.
    #[error("{0}")]
    LenderRefused(String),
    /// The connection was lost.
    #[error("the connection broke: {0}")]
    ConnectionLost(#[source] LossCause),
    /// QUIC cannot be set up.
    #[error("QUIC cannot be set up: {0}")]
    Quic(#[source] super::quic::SetupError),
}

/// A message that a peer of `manyways bond` does not send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignMessage {
    /// In the TLS handshake.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// In the QUIC handshake.
    #[error("{0}")]
    Quic(#[from] quinn::ConnectionError),
    /// In the first message.
    #[error("{0}")]
    Message(#[from] DecodeError),
    /// The first message is neither a hello nor a welcome.
    #[error("the first message is not a hello or a welcome")]
    OtherMessage,
}

/// The cause of a lost connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossCause {
    /// Before the end of the TLS handshake.
    #[error("{}", crate::path::plain(.0))]
    Io(#[source] io::Error),
    /// Reported by QUIC.
    #[error("{0}")]
    Quic(#[from] quinn::ConnectionError),
    /// Before the welcome.
    #[error("{0}")]
    Carrier(#[from] CarrierError),
}

/// The failure of an attempt to connect. Two failures are equal if their messages are equal.
#[derive(Clone, Debug)]
pub(super) struct AttemptError(pub(super) Arc<HandshakeError>);

impl PartialEq for AttemptError {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Reason for AttemptError {
    fn kind(&self) -> FailureKind {
        match &*self.0 {
            HandshakeError::Refused(RefuseCode::UnknownSession, _) => FailureKind::UnknownSession,
            HandshakeError::Timeout => FailureKind::Timeout,
            HandshakeError::LenderAway(..) => FailureKind::Absent,
            HandshakeError::ConnectionLost(LossCause::Carrier(error))
                if error.end() == CarrierEnd::Forged =>
            {
                FailureKind::Forged
            }
            HandshakeError::Connect(_, error)
                if error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                FailureKind::Refused
            }
            error if error.is_permanent() => FailureKind::Permanent,
            _ => FailureKind::Transient,
        }
    }
}

impl HandshakeError {
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::LinkDown | Self::NoAddress | Self::Connect(..) | Self::Timeout => {
                "check that the gateway runs at this address and that its firewall permits the port"
            }
            Self::WrongGateway => {
                "compare --gateway-key with what `manyways bond gateway` prints when it starts"
            }
            Self::UnknownKey => {
                "add this client's public key (`manyways bond keygen --show`) to the gateway's \
                 allow-file"
            }
            Self::WrongProtocol(_) => "is there another service at this address?",
            Self::Version(_) | Self::Refused(RefuseCode::Version, _) => {
                "install the same version of manyways at both ends"
            }
            Self::NoLending => "start the gateway without --no-lenders",
            Self::LenderAway(..) => "check that `manyways bond lend` runs there",
            Self::WrongLender | Self::NotPaired => "pair the two devices again: manyways bond pair",
            Self::NoTicket(_)
            | Self::LenderRefused(_)
            | Self::Refused(..)
            | Self::OtherSession
            | Self::ConnectionLost(_)
            | Self::Quic(_) => {
                return None;
            }
        })
    }

    /// Whether further attempts fail too, until one of the two endpoints is changed.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::WrongGateway
                | Self::UnknownKey
                | Self::WrongProtocol(_)
                | Self::Version(_)
                | Self::Refused(RefuseCode::Version, _)
                | Self::NoLending
                | Self::WrongLender
                | Self::NotPaired
        )
    }

    /// Converts the error of a TLS handshake with a gateway.
    pub(super) fn from_tls_io(error: io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls {
            Some(tls) => Self::from_tls(tls.clone()),
            None => Self::ConnectionLost(LossCause::Io(error)),
        }
    }

    /// Converts the error of a QUIC handshake with a gateway. The error code of a TLS alert is
    /// 0x100 plus the number of the alert (RFC 9001, 4.8).
    pub(super) fn from_quic(error: quinn::ConnectionError) -> Self {
        use quinn::ConnectionError::{ConnectionClosed, TimedOut, TransportError};
        const ALERT: u64 = 0x100;
        let code = match &error {
            TransportError(error) => u64::from(error.code),
            ConnectionClosed(frame) => u64::from(frame.error_code),
            TimedOut => return Self::Timeout,
            _ => 0,
        };
        let by_us = matches!(error, TransportError(_));
        match code.checked_sub(ALERT).map(|alert| AlertDescription::from(alert as u8)) {
            Some(AlertDescription::AccessDenied) if by_us => Self::WrongGateway,
            Some(AlertDescription::AccessDenied) => Self::UnknownKey,
            Some(_) => Self::WrongProtocol(error.into()),
            None => Self::ConnectionLost(error.into()),
        }
    }

    fn from_tls(error: TlsError) -> Self {
        match error {
            TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                Self::WrongGateway
            }
            TlsError::AlertReceived(AlertDescription::AccessDenied) => Self::UnknownKey,
            other => Self::WrongProtocol(other.into()),
        }
    }

    fn from_carrier(io: &CarrierIo, error: CarrierError) -> Self {
        match error {
            CarrierError::Tls(error) => Self::from_tls(error),
            CarrierError::Message(DecodeError::WrongProtocol) => {
                Self::WrongProtocol(ForeignMessage::OtherMessage)
            }
            // TLS excludes damage, so a first message that cannot be decoded is from another
            // protocol.
            CarrierError::Message(error) => Self::WrongProtocol(error.into()),
            other => match io.close_reason() {
                // A QUIC client completes its handshake before the gateway verifies its key.
                Some(reason) => Self::from_quic(reason),
                None => Self::ConnectionLost(other.into()),
            },
        }
    }
}

/// Reads the first message of the peer, and the messages that arrived with it.
async fn read_first_message(
    io: &mut CarrierIo,
) -> Result<(Message<Chunk>, Vec<Message<Chunk>>), HandshakeError> {
    let heard = io.messages().await;
    let mut messages = heard.map_err(|error| HandshakeError::from_carrier(io, error))?;
    let rest = messages.split_off(1);
    match messages.pop() {
        Some(first) => Ok((first, rest)),
        None => Err(HandshakeError::Timeout),
    }
}

async fn flush(io: &mut CarrierIo) -> Result<(), HandshakeError> {
    io.flush_all().await.map_err(|error| HandshakeError::from_carrier(io, error))
}

/// Sends the client's hello. Returns the gateway's welcome, and the messages that arrived with it.
pub(super) async fn send_hello(
    io: &mut CarrierIo,
    hello: Hello,
) -> Result<(Welcome, Vec<Message<Chunk>>), HandshakeError> {
    io.queue(&Message::Hello(hello));
    flush(io).await?;
    match read_first_message(io).await? {
        (Message::Welcome(welcome), _) if welcome.version != VERSION => {
            Err(HandshakeError::Version(welcome.version))
        }
        (Message::Welcome(welcome), rest) => Ok((welcome, rest)),
        (Message::Refuse(code, words), _) => Err(HandshakeError::Refused(code, words)),
        _ => Err(HandshakeError::WrongProtocol(ForeignMessage::OtherMessage)),
    }
}

/// First message of a peer of the gateway.
pub(super) enum Greeting {
    /// Of a client, with the messages that arrived with it.
    Hello(Hello, Vec<Message<Chunk>>),
    /// Of a lender.
    Redeem(TicketId),
}

/// Reads the first message of a peer.
pub(super) async fn read_greeting(io: &mut CarrierIo) -> Result<Greeting, HandshakeError> {
    match read_first_message(io).await? {
        (Message::Hello(hello), _) if hello.version != VERSION => {
            let words = format!("this gateway speaks version {VERSION} of the protocol");
            send_refusal(io, RefuseCode::Version, words).await;
            Err(HandshakeError::Version(hello.version))
        }
        (Message::Hello(hello), rest) => Ok(Greeting::Hello(hello, rest)),
        (Message::Loan(LoanMessage::Redeem { ticket }), _) => Ok(Greeting::Redeem(ticket)),
        _ => Err(HandshakeError::WrongProtocol(ForeignMessage::OtherMessage)),
    }
}

/// Sends the queued request to join, and reads the answer of a lender: the round-trip time of its
/// connection to the gateway.
pub(super) async fn join(io: &mut CarrierIo) -> Result<Span, HandshakeError> {
    flush(io).await?;
    match read_first_message(io).await? {
        (Message::Loan(LoanMessage::Joined { rtt }), _) => Ok(rtt),
        (Message::Refuse(_, words), _) => Err(HandshakeError::LenderRefused(words)),
        _ => Err(HandshakeError::WrongProtocol(ForeignMessage::OtherMessage)),
    }
}

pub(super) async fn send_welcome(
    io: &mut CarrierIo,
    welcome: Welcome,
) -> Result<(), HandshakeError> {
    io.queue(&Message::Welcome(welcome));
    flush(io).await
}

/// Refuses a carrier. Errors are ignored, because the client need not receive the refusal.
pub(super) async fn send_refusal(io: &mut CarrierIo, code: RefuseCode, words: String) {
    io.queue(&Message::Refuse(code, words));
    let _ = flush(io).await;
    if let CarrierIo::Quic(io) = io {
        io.finish().await;
    }
}
