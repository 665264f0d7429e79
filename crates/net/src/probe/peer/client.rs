//! The client's side of a control connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use manyways_sys::socket::set_receive_buffer;
use manyways_unit::{Size, Span};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, Take, WriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::line::LineReader;
use super::message::{Order, PROTOCOL, REPORT_INTERVAL, Reply, encode};
use super::token::Token;
use crate::bond::{PrivateKey, PublicKey, client_tls};
use crate::path::{PathSpec, plain, socket, udp_socket};
use crate::probe::contract::{ProbeError, Reservation, Run};

/// A probe server, and the key by which it knows this client.
#[derive(Clone, Debug)]
pub struct ProbeServer {
    /// Name or address.
    pub host: String,
    pub port: u16,
    /// Of the server.
    pub key: PublicKey,
    pub own_key: Arc<PrivateKey>,
}

/// The bytes of a control connection, at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlCost {
    /// Messages of the server.
    messages: u64,
}

impl ControlCost {
    /// Payload of the handshake of TLS with its tickets, and the orders.
    pub(crate) const HANDSHAKE: u64 = 3_000;
    /// Payload of a message of the server with its head of TLS.
    pub(crate) const MESSAGE: u64 = 180;
    /// Of IPv6 and TCP with options.
    const HEADERS: u64 = 72;
    /// Messages without a transfer. The one about a burst counts as three.
    const FEW: u64 = 8;
    /// Time for which the server continues after a transfer.
    const LATE: Span = Span::from_secs(3);

    /// Of a measurement without messages about its progress.
    pub(crate) fn short() -> Self {
        Self { messages: Self::FEW }
    }

    /// Of a transfer with this duration.
    pub(crate) fn transfer(duration: Span) -> Self {
        let reports = (duration + Self::LATE).as_nanos() / REPORT_INTERVAL.as_nanos();
        Self { messages: Self::FEW + reports }
    }

    /// The server's payload.
    fn payload(self) -> u64 {
        self.messages * Self::MESSAGE
    }

    /// An acknowledgement for each message. Content counts twice, because small packets have more
    /// headers than content.
    pub(crate) fn up(self) -> Size {
        let acks = self.messages * Self::HEADERS;
        Size::from_bytes(2 * Self::HANDSHAKE + acks + Reservation::HANDSHAKE)
    }

    pub(crate) fn down(self) -> Size {
        let content = Self::HANDSHAKE + self.payload();
        Size::from_bytes(2 * content + Reservation::HANDSHAKE)
    }
}

/// Of sockets for bursts: a tenth of a second of small datagrams at 100 Mbit/s.
pub(crate) const RECEIVE_BUFFER: Size = Size::from_bytes(8 << 20);

impl ProbeServer {
    pub const DEFAULT_PORT: u16 = 7_464;

    /// Name and port, for results.
    pub fn name(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A control connection.
pub(crate) struct Control {
    server: SocketAddr,
    path: PathSpec,
    /// A server that sends more has no connection any longer.
    lines: LineReader<Take<ReadHalf<TlsStream<TcpStream>>>>,
    writer: WriteHalf<TlsStream<TcpStream>>,
    _reservation: Reservation,
}

impl Control {
    pub(crate) async fn connect(
        run: &mut Run,
        server: &ProbeServer,
        cost: ControlCost,
    ) -> Result<Self, ProbeError> {
        let address = SocketAddr::new(run.resolve(&server.host).await?, server.port);
        let mut reservation = run.reserve(cost.up(), cost.down())?;
        let path = run.path().clone();
        let connect = async { socket(&path, address)?.connect(address).await };
        let stream = connect.await.map_err(|error| ProbeError::connect(&path, address, error))?;
        reservation.of(&stream);
        let _ = stream.set_nodelay(true);
        let tls = client_tls(&server.own_key, server.key, PROTOCOL)
            .map_err(|error| ProbeError::Server(error.to_string()))?;
        let name = ServerName::IpAddress(address.ip().into());
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| {
            ProbeError::Server(format!(
                "the server at {address} has another key, or is no probe server: {}",
                plain(&error)
            ))
        })?;
        let (reader, writer) = tokio::io::split(stream);
        let lines = LineReader::new(reader.take(cost.payload()));
        Ok(Self { server: address, path, lines, writer, _reservation: reservation })
    }

    /// The address of the server.
    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    /// Begins a measurement.
    pub(crate) async fn order(&mut self, order: Order) -> Result<Token, ProbeError> {
        self.send(order).await?;
        loop {
            match self.reply().await? {
                Reply::Ready { token } => return Ok(token),
                Reply::Refused { reason } => {
                    return Err(ProbeError::Server(format!("the server refuses: {reason}")));
                }
                // Of the previous measurement.
                _ => {}
            }
        }
    }

    pub(crate) async fn send(&mut self, order: Order) -> Result<(), ProbeError> {
        let written = async {
            self.writer.write_all(&encode(&order)).await?;
            self.writer.flush().await
        };
        written.await.map_err(|error| self.lost(error))
    }

    /// The next message of the server.
    pub(crate) async fn reply(&mut self) -> Result<Reply, ProbeError> {
        match self.lines.next().await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) if self.lines.reader().limit() == 0 => Err(ProbeError::Server(format!(
                "the server at {} sends more messages than a measurement has",
                self.server
            ))),
            Ok(None) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: io::Error) -> ProbeError {
        if !self.path.has_carrier() {
            return ProbeError::InterfaceLost(self.path.name.clone());
        }
        // The server reports a key that is not in its allow file only after the handshake of TLS 1.3.
        if error.to_string().contains("AccessDenied") || error.to_string().contains("certificate") {
            return ProbeError::Server(format!(
                "the server at {} does not know the key of this client",
                self.server
            ));
        }
        ProbeError::Server(format!(
            "the connection to the server at {} was lost: {}",
            self.server,
            plain(&error)
        ))
    }

    /// Opens the data connection of a measurement.
    pub(crate) async fn data(&self, token: Token) -> Result<TcpStream, ProbeError> {
        let connect = async {
            let mut stream = socket(&self.path, self.server)?.connect(self.server).await?;
            stream.write_all(&token.tcp_head()).await?;
            Ok(stream)
        };
        connect.await.map_err(|error| ProbeError::connect(&self.path, self.server, error))
    }

    /// A socket for datagrams to the server.
    pub(crate) async fn datagrams(&self) -> Result<UdpSocket, ProbeError> {
        let open = async {
            let socket = UdpSocket::from_std(udp_socket(&self.path, self.server)?)?;
            // For the datagrams that arrive while this process does not run.
            let _ = set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER);
            socket.connect(self.server).await?;
            Ok(socket)
        };
        open.await.map_err(|error| ProbeError::io(&self.path, "open a UDP socket", error))
    }
}
