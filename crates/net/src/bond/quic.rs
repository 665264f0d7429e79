//! A carrier over QUIC: one connection, with one stream for the messages of streams and DATAGRAM
//! frames (RFC 9221) for the datagrams of applications.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::bond::carrier::{self, RttVariation, UnsentLimit};
use manyways_proto::bond::path::TransportStats;
use manyways_proto::mux::{Message, TransportInfo};
use manyways_unit::{Rate, Size, Span};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, ConnectionId, ConnectionIdGenerator, Endpoint,
    EndpointConfig, IdleTimeout, RecvStream, SendStream, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;

use super::carrier::{CarrierError, Chunk, Decoder};
use super::gateway_proof::GatewayProof;
use super::key::PrivateKey;

/// Maximum bytes of one read.
const READ_CHUNK: usize = 64 << 10;
/// Error code that closes the carrier.
const CLOSE_CARRIER: VarInt = VarInt::from_u32(0);
/// Error code that closes the carrier and ends the session.
const CLOSE_SESSION: VarInt = VarInt::from_u32(1);
/// Receive window of QUIC, in bytes. The mux has a separate flow control.
const RECEIVE_WINDOW: u32 = 64 << 20;

/// A QUIC connection with its one stream.
pub(super) struct QuicCarrier {
    pub(super) connection: Connection,
    send: SendStream,
    receive: RecvStream,
    plain: Vec<u8>,
    written: usize,
    decoder: Decoder,
    unsent: UnsentLimit,
    rtt_variation: RttVariation,
    /// Owns the socket of a client's connection.
    _endpoint: Option<Endpoint>,
}

impl QuicCarrier {
    pub(super) fn new(
        connection: Connection,
        (send, receive): (SendStream, RecvStream),
        endpoint: Option<Endpoint>,
    ) -> Self {
        Self {
            connection,
            send,
            receive,
            plain: Vec::new(),
            written: 0,
            decoder: Decoder::default(),
            unsent: UnsentLimit::default(),
            rtt_variation: RttVariation::default(),
            _endpoint: endpoint,
        }
    }

    /// Returns the state of the connection for the scheduler.
    pub(super) fn transport_info(&mut self) -> TransportInfo {
        let stats = self.connection.stats();
        let rtt = Span::from(stats.path.rtt);
        let window = Size::from_bytes(stats.path.cwnd);
        let rate = Rate::of(window, rtt.max(Span::from_micros(50)));
        self.unsent.observe(rate);
        // Unacknowledged bytes may fill the window, plus the limit of unsent bytes.
        self.connection.set_send_window(window.as_bytes() + self.unsent.bytes());
        TransportInfo {
            rtt,
            min_rtt: rtt,
            rtt_var: self.rtt_variation.observe(rtt),
            congestion_window: window,
            slow_start: false,
            in_flight: None,
            unsent: Size::from_bytes((self.plain.len() - self.written) as u64),
            rate,
            acknowledged: stats.frame_rx.acks,
            sent: 0,
            max_datagram: self.connection.max_datagram_size(),
        }
    }

    /// Returns the counters of the connection.
    pub(super) fn transport_stats(&self) -> TransportStats {
        let path = self.connection.stats().path;
        let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        TransportStats {
            rtt: Some(Span::from(path.rtt)),
            min_rtt: None,
            has_backlog: self.written < self.plain.len(),
            sent_packets: count(path.sent_packets),
            retransmitted_packets: count(path.lost_packets),
        }
    }

    pub(super) fn writable_bytes(&self) -> usize {
        usize::try_from(self.unsent.bytes()).unwrap_or(usize::MAX)
    }

    pub(super) fn received(&self) -> u64 {
        self.connection.stats().udp_rx.bytes
    }

    pub(super) fn sent(&self) -> u64 {
        self.connection.stats().udp_tx.bytes
    }

    /// Queues a message. A datagram is passed to QUIC at once.
    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        if matches!(message, Message::Datagram { .. } | Message::Part { .. }) {
            let mut bytes = Vec::new();
            let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
            message.encode_head(payload.len(), &mut bytes);
            bytes.extend_from_slice(payload);
            // A datagram that exceeds the MTU is lost, for example after the MTU of a network
            // has decreased.
            if let Err(error) = self.connection.send_datagram(Bytes::from(bytes)) {
                tracing::debug!("datagram lost: {error}");
            }
            return;
        }
        let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
        message.encode_head(payload.len(), &mut self.plain);
        self.plain.extend_from_slice(payload);
    }

    /// Writes queued messages. Returns whether QUIC took all of them.
    pub(super) fn flush(&mut self) -> Result<bool, CarrierError> {
        match self.poll_flush(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    pub(super) fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CarrierError>> {
        while self.written < self.plain.len() {
            let rest = &self.plain[self.written..];
            match std::pin::Pin::new(&mut self.send).poll_write(context, rest) {
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(connection_error(&error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.plain.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Ends the stream, and waits until the peer has received all of it. Closing the connection
    /// discards bytes that the peer has not received.
    pub(super) async fn finish(&mut self) {
        let _ = self.send.finish();
        let _ = self.send.stopped().await;
    }

    /// Reads all available bytes, and calls `with` for each complete message.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        mut with: impl FnMut(Message<Chunk>),
    ) -> Result<(), CarrierError> {
        buffer.resize(READ_CHUNK.max(buffer.len()), 0);
        loop {
            match self.receive.poll_read(context, buffer) {
                Poll::Ready(Ok(0)) => return Err(CarrierError::Closed),
                Poll::Ready(Ok(count)) => self.decoder.take(&buffer[..count], &mut with)?,
                Poll::Ready(Err(error)) => {
                    return Err(match self.connection.close_reason() {
                        Some(ConnectionError::ApplicationClosed(closed)) => {
                            if closed.error_code == CLOSE_SESSION {
                                with(Message::Bye);
                            }
                            CarrierError::Closed
                        }
                        Some(ConnectionError::TimedOut) => CarrierError::IdleTimeout,
                        // The gateway has restarted.
                        Some(ConnectionError::Reset) => {
                            CarrierError::Io(io::ErrorKind::ConnectionReset.into())
                        }
                        _ => connection_error(&error),
                    });
                }
                Poll::Pending => return Ok(()),
            }
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Closes the connection, so that the peer does not wait for its timeout; with `bye`, also the
    /// session. Data in flight is lost, and a bye message would be lost too.
    pub(super) fn close(&self, bye: bool) {
        self.connection.close(if bye { CLOSE_SESSION } else { CLOSE_CARRIER }, b"");
    }
}

fn connection_error(error: &dyn std::fmt::Display) -> CarrierError {
    CarrierError::Io(io::Error::other(error.to_string()))
}

/// Decodes the message in a DATAGRAM frame; `None` if it is invalid, or not allowed there.
pub(super) fn datagram(bytes: &Bytes) -> Option<Message<Chunk>> {
    let (message, _) = Message::decode(bytes).ok()??;
    let message = message.map(|data| Chunk(bytes.slice_ref(data)));
    matches!(message, Message::Datagram { .. } | Message::Part { .. }).then_some(message)
}

fn transport(idle_timeout: Span) -> Arc<TransportConfig> {
    let idle_timeout: Option<IdleTimeout> = Duration::from(idle_timeout).try_into().ok();
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .max_idle_timeout(idle_timeout)
        .congestion_controller_factory(Arc::new(CubicConfig::default()));
    Arc::new(config)
}

/// The failure to set up QUIC.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// TLS has no cipher suite for Initial packets.
    #[error("{0}")]
    CipherSuite(#[from] NoInitialCipherSuite),
    /// The connection cannot be started.
    #[error("{0}")]
    Connect(#[from] quinn::ConnectError),
    /// An error of the socket.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

/// Creates a client's configuration from its TLS configuration.
pub(super) fn client_config(
    tls: &rustls::ClientConfig,
    proof: &Arc<GatewayProof>,
) -> Result<ClientConfig, SetupError> {
    let tls = QuicClientConfig::try_from(tls.clone())?;
    let mut config = ClientConfig::new(Arc::new(tls));
    let proof = Arc::clone(proof);
    config.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&proof.create())));
    config.transport_config(transport(carrier::Config::default().quic_idle_timeout));
    Ok(config)
}

/// Creates a gateway's endpoint on a socket. The shorter idle timeout of both sides counts.
///
/// A gateway that has restarted answers packets of earlier connections with a stateless reset (RFC
/// 9000 §10.3), so that its clients connect again at once: the key of resets comes from its private
/// key.
pub(super) fn gateway_endpoint(
    socket: std::net::UdpSocket,
    tls: &rustls::ServerConfig,
    key: &PrivateKey,
    idle_timeout: Span,
) -> Result<Endpoint, SetupError> {
    let tls = QuicServerConfig::try_from(tls.clone())?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(idle_timeout));
    let runtime = Arc::new(TokioRuntime);
    let resets = hmac::Key::new(hmac::HMAC_SHA256, &key.derive(b"manyways bond, QUIC resets, 1"));
    let mut endpoint = EndpointConfig::new(Arc::new(resets));
    endpoint.cid_generator(|| Box::new(RandomIds));
    Ok(Endpoint::new(endpoint, Some(config), socket, runtime)?)
}

/// Closes all connections of an endpoint, and accepts no more.
pub(super) fn close_endpoint(endpoint: &Endpoint) {
    endpoint.close(CLOSE_SESSION, b"");
}

/// Length of a gateway's connection IDs in bytes.
const ID_LENGTH: usize = 8;

/// Random connection IDs: those of an earlier process are valid, too. The default generator would
/// have another key after a restart, and ignore their packets.
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_LENGTH];
        // If the system has no random numbers, TLS fails.
        let _ = SystemRandom::new().fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Creates a client's endpoint on a socket.
pub(super) fn client_endpoint(socket: std::net::UdpSocket) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
}

/// Returns the certificates of the peer, which are raw public keys (RFC 7250).
pub(super) fn certificates(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    connection.peer_identity()?.downcast().ok().map(|found| *found)
}
