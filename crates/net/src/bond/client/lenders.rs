//! Paths of a client over lenders.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use manyways_proto::bond::dial;
use manyways_proto::mux::{Feedback, Input, LoanMessage, Message, Seed, TicketId};
use manyways_proto::sched::PathId;
use manyways_sys::socket::{set_user_timeout, tcp_state};
use manyways_unit::Span;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Connection};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

use super::{Client, Path, TrafficEvent};
use crate::bond::carrier::{CarrierError, CarrierIo, TcpCarrier};
use crate::bond::handshake::{self, HandshakeError, LossCause};
use crate::bond::key::PublicKey;
use crate::bond::seal::Way;
use crate::bond::tls;
use crate::path::PathSpec;

/// Name in the handshakes, without meaning.
const SERVER_NAME: &str = "lender.invalid";
/// Keepalive of an idle pipe, so that both ends notice that the other device is away.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Time for which data may stay unacknowledged, or the other device may accept none, before it counts
/// as away. A lender accepts none while its network is slow.
const PIPE_TIMEOUT: Span = Span::from_secs(30);
/// Assumed round-trip time of a pipe of which the kernel reports none.
const PIPE_RTT: Span = Span::from_millis(10);

/// A device with which this one is paired, and that lends its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lender {
    /// Name of its path.
    pub name: String,
    /// Address at which it listens.
    pub address: SocketAddr,
    pub key: PublicKey,
    /// Number of the pairing: a lender that is paired again is dialled at once.
    pub pairing: u64,
}

/// A lender, and the TLS configuration for it.
pub(super) struct Pipe {
    lender: Lender,
    tls: Arc<ClientConfig>,
}

/// A ticket of the gateway.
pub(super) struct Ticket {
    id: TicketId,
    join: u32,
    seed: Seed,
}

/// The error of a handshake with a lender in place of the gateway.
fn of_lender(error: HandshakeError) -> HandshakeError {
    match error {
        HandshakeError::WrongGateway => HandshakeError::WrongLender,
        HandshakeError::UnknownKey => HandshakeError::NotPaired,
        other => other,
    }
}

/// Ends a pipe whose other device is away: while data waits for an acknowledgment, the kernel sends
/// no keepalive, so that there is a limit for each case.
pub(in crate::bond) fn keep_alive(stream: &tokio::net::TcpStream, limit: Span) {
    let _ = set_user_timeout(stream.as_fd(), limit);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(KEEPALIVE_PROBES);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

impl Client {
    /// Adds a path over a lender, and keeps a carrier on it while the lender is reachable.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn add_lender(&self, lender: Lender) -> Result<PathId, rustls::Error> {
        let tls = tls::client(&self.0.key, lender.key, tls::PIPE_PROTOCOL)?;
        let spec = PathSpec::lender(&lender.name);
        let pipe = Some(Arc::new(Pipe { lender, tls }));
        self.0.paths.borrow_mut().push(Path { spec, pipe, attempt: None });
        let id = self.0.dialer.borrow_mut().add_lender();
        self.pump();
        self.notify_traffic(TrafficEvent::PathsChanged);
        Ok(id)
    }

    /// Replaces the address and the key of a lender, or forgets it.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn set_lender(&self, id: PathId, lender: Option<Lender>) -> Result<(), rustls::Error> {
        let Some(lender) = lender else {
            self.dialer(dial::Input::Forget(id));
            return Ok(());
        };
        let tls = tls::client(&self.0.key, lender.key, tls::PIPE_PROTOCOL)?;
        if let Some(path) = self.0.paths.borrow_mut().get_mut(usize::from(id.0)) {
            path.pipe = Some(Arc::new(Pipe { lender, tls }));
        }
        self.dialer(dial::Input::Forget(id));
        self.dialer(dial::Input::PathChanged(id));
        Ok(())
    }

    /// Passes a message of the gateway to the attempt that waits for it.
    pub(super) fn on_loan(&self, message: LoanMessage) {
        let (path, result) = match message {
            LoanMessage::Ticket { path, ticket: id, join, seed } => {
                (path, Ok(Ticket { id, join, seed }))
            }
            LoanMessage::Refused { path, reason } => (path, Err(reason)),
            LoanMessage::Forged { path } => {
                return self.dialer(dial::Input::Forged(path, CarrierError::SealAtGateway));
            }
            _ => return,
        };
        if let Some(waiting) = self.0.tickets.borrow_mut().remove(&path) {
            let _ = waiting.send(result);
        }
    }

    pub(super) async fn connect_lender(
        &self,
        id: PathId,
        pipe: Arc<Pipe>,
    ) -> Result<(), HandshakeError> {
        if self.0.lends.get() == Some(false) {
            return Err(HandshakeError::NoLending);
        }
        let mut carrier = self.connect_pipe(&pipe).await?;
        let rtt = tcp_state(carrier.stream.as_fd()).ok().and_then(|state| state.rtt);
        let ticket = self.ticket(id, pipe.lender.key, rtt.unwrap_or(PIPE_RTT)).await?;
        self.dialer(dial::Input::Secured(id));
        let holds_acks = self.0.lending.feedback == Feedback::OnDemand;
        carrier.queue(&Message::Loan(LoanMessage::Join { ticket: ticket.id, holds_acks }));
        let mut io = CarrierIo::Tcp(Box::new(carrier));
        // With TLS 1.3, a lender may refuse the key of this device after the handshake.
        let rtt = handshake::join(&mut io).await.map_err(of_lender)?;
        let CarrierIo::Tcp(mut carrier) = io else { return Err(HandshakeError::LinkDown) };
        if !carrier.seal(&ticket.seed, Way::Up) {
            return Err(HandshakeError::LinkDown);
        }
        let attached = self.0.handle.attach_lent(id, *carrier, (ticket.join, rtt));
        let carrier =
            attached.map_err(|error| HandshakeError::ConnectionLost(LossCause::Carrier(error)))?;
        self.set_attempt(id, None);
        self.dialer(dial::Input::Connected(id, carrier));
        Ok(())
    }

    async fn connect_pipe(&self, pipe: &Pipe) -> Result<TcpCarrier, HandshakeError> {
        let away = |error: io::Error| HandshakeError::LenderAway(pipe.lender.address, error);
        let socket = match pipe.lender.address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.map_err(away)?;
        if let Some(mark) = self.0.socket_mark {
            manyways_sys::socket::set_mark(&socket, mark).map_err(away)?;
        }
        let stream = socket.connect(pipe.lender.address).await.map_err(away)?;
        keep_alive(&stream, PIPE_TIMEOUT);
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| {
            HandshakeError::ConnectionLost(LossCause::Io(io::Error::other(error)))
        })?;
        let connected = TlsConnector::from(Arc::clone(&pipe.tls)).connect(name, stream).await;
        let (stream, tls) =
            connected.map_err(|error| of_lender(HandshakeError::from_tls_io(error)))?.into_inner();
        Ok(TcpCarrier::new(stream, Connection::Client(tls)))
    }

    /// Asks the gateway for a ticket.
    async fn ticket(
        &self,
        path: PathId,
        lender: PublicKey,
        rtt: Span,
    ) -> Result<Ticket, HandshakeError> {
        let (sender, receiver) = oneshot::channel();
        self.0.tickets.borrow_mut().insert(path, sender);
        let request = LoanMessage::Request { path, lender: lender.0, rtt };
        self.0.handle.handle(Input::Loan(request));
        match receiver.await {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(reason)) => Err(HandshakeError::NoTicket(reason)),
            // Another attempt has asked since.
            Err(_) => Err(HandshakeError::Timeout),
        }
    }
}
