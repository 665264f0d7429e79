//! A carrier over QUIC: one ordinary connection, one stream for all messages of streams, and
//! unreliable datagrams for those of applications.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::{Condition, Message};
use manyways_unit::{Rate, Size, Span};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, RecvStream,
    SendStream, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::pki_types::CertificateDer;

use super::carrier::{CarrierError, Chunk, Decoder, Vitals};

/// A connection that is silent for so long is forgotten at both ends; a client that has something
/// to say begins another.
const IDLE: Duration = Duration::from_secs(60);
/// One read takes so much at most.
const READ: usize = 64 << 10;
/// What waits at this end beyond the congestion window: so long, but no less and no more.
const UNSENT_TIME: Span = Span::from_millis(5);
const LEAST_UNSENT: u64 = 6 << 10;
const MOST_UNSENT: u64 = 1 << 20;
/// How a connection is closed: it alone, or the session with it.
const ENDED: VarInt = VarInt::from_u32(0);
const BYE: VarInt = VarInt::from_u32(1);
/// The window for what comes; credit of streams is granted above this.
const RECEIVE: u32 = 64 << 20;

/// A QUIC connection with its one stream.
pub(super) struct QuicCarrier {
    pub(super) connection: Connection,
    send: SendStream,
    receive: RecvStream,
    plain: Vec<u8>,
    written: usize,
    decoder: Decoder,
    unsent: u64,
    rtt: Option<Span>,
    deviation: Span,
    /// Keeps the socket of a client's connection.
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
            unsent: LEAST_UNSENT,
            rtt: None,
            deviation: Span::ZERO,
            _endpoint: endpoint,
        }
    }

    /// What the connection says of itself.
    pub(super) fn condition(&mut self) -> Condition {
        let stats = self.connection.stats();
        let rtt = Span::from(stats.path.rtt);
        let before = self.rtt.replace(rtt).unwrap_or(rtt);
        let change = rtt.saturating_sub(before) + before.saturating_sub(rtt);
        self.deviation = Span::from_nanos((self.deviation.as_nanos() * 3 + change.as_nanos()) / 4);
        let window = Size::from_bytes(stats.path.cwnd);
        let rate = Rate::of(window, rtt.max(Span::from_micros(50)));
        let unsent = rate.size_in(UNSENT_TIME).as_bytes().clamp(LEAST_UNSENT, MOST_UNSENT);
        if unsent > self.unsent * 5 / 4 || unsent < self.unsent * 3 / 4 {
            self.unsent = unsent;
        }
        // What is written and not acknowledged may fill the window, and wait a little.
        self.connection.set_send_window(window.as_bytes() + self.unsent);
        Condition {
            rtt,
            least_rtt: rtt,
            rtt_var: self.deviation.max(Span::from_nanos(rtt.as_nanos() / 8)),
            window,
            slow_start: false,
            in_flight: None,
            unsent: Size::from_bytes((self.plain.len() - self.written) as u64),
            rate,
            acknowledged: stats.frame_rx.acks,
            departed: 0,
            datagram: self.connection.max_datagram_size(),
        }
    }

    pub(super) fn vitals(&self) -> Vitals {
        let path = self.connection.stats().path;
        let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        Vitals {
            rtt: Some(Span::from(path.rtt)),
            least_rtt: None,
            backlog: self.written < self.plain.len(),
            packets: count(path.sent_packets),
            lost: count(path.lost_packets),
        }
    }

    pub(super) fn room(&self) -> usize {
        usize::try_from(self.unsent).unwrap_or(usize::MAX)
    }

    pub(super) fn received(&self) -> u64 {
        self.connection.stats().udp_rx.bytes
    }

    pub(super) fn sent(&self) -> u64 {
        self.connection.stats().udp_tx.bytes
    }

    /// Queues a message; one that may be lost goes at once.
    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        if matches!(message, Message::Datagram { .. } | Message::Half { .. }) {
            let mut bytes = Vec::new();
            let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
            message.encode_head(payload.len(), &mut bytes);
            bytes.extend_from_slice(payload);
            // One that does not fit any more is lost, as on a network whose MTU fell.
            if let Err(error) = self.connection.send_datagram(Bytes::from(bytes)) {
                tracing::debug!("a datagram is lost: {error}");
            }
            return;
        }
        let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
        message.encode_head(payload.len(), &mut self.plain);
        self.plain.extend_from_slice(payload);
    }

    /// Writes what is queued. Whether all was taken.
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
                Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(&error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.plain.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Says nothing more, and waits until the other end has what was said: what it has not when the
    /// connection is closed is never sent.
    pub(super) async fn finish(&mut self) {
        let _ = self.send.finish();
        let _ = self.send.stopped().await;
    }

    /// Reads all that is there.
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        mut with: impl FnMut(Message<Chunk>),
    ) -> Result<(), CarrierError> {
        buffer.resize(READ.max(buffer.len()), 0);
        loop {
            match self.receive.poll_read(context, buffer) {
                Poll::Ready(Ok(0)) => return Err(CarrierError::Closed),
                Poll::Ready(Ok(count)) => self.decoder.take(&buffer[..count], &mut with)?,
                Poll::Ready(Err(error)) => {
                    return Err(match self.connection.close_reason() {
                        Some(ConnectionError::ApplicationClosed(closed)) => {
                            if closed.error_code == BYE {
                                with(Message::Bye);
                            }
                            CarrierError::Closed
                        }
                        Some(ConnectionError::TimedOut) => CarrierError::IdleTimeout,
                        _ => broken(&error),
                    });
                }
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// The other end's addresses, as it is seen.
    pub(super) fn peer(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// The other end has to be told, or it would wait for long. With `bye` the session is over;
    /// what is under way does not arrive any more, so the message of that name would not either.
    pub(super) fn close(&self, bye: bool) {
        self.connection.close(if bye { BYE } else { ENDED }, b"");
    }
}

fn broken(error: &dyn std::fmt::Display) -> CarrierError {
    CarrierError::Io(io::Error::other(error.to_string()))
}

/// The message in a datagram; nothing where it is none of those that may come so.
pub(super) fn datagram(bytes: &Bytes) -> Option<Message<Chunk>> {
    let (message, _) = Message::decode(bytes).ok()??;
    let message = message.map(|data| Chunk(bytes.slice_ref(data)));
    matches!(message, Message::Datagram { .. } | Message::Half { .. }).then_some(message)
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(RECEIVE))
        .receive_window(VarInt::from_u32(RECEIVE))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE.as_millis() as u32))))
        .congestion_controller_factory(Arc::new(CubicConfig::default()));
    Arc::new(config)
}

/// Why QUIC cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// TLS has no cipher suite for QUIC's first packets.
    #[error("{0}")]
    CipherSuite(#[from] NoInitialCipherSuite),
    /// A connection cannot begin.
    #[error("{0}")]
    Connect(#[from] quinn::ConnectError),
    /// The socket does not work.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

/// A client's configuration out of that of TLS.
pub(super) fn client_config(tls: &rustls::ClientConfig) -> Result<ClientConfig, SetupError> {
    let tls = QuicClientConfig::try_from(tls.clone())?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport());
    Ok(config)
}

/// A gateway's endpoint on a socket.
pub(super) fn gateway_endpoint(
    socket: std::net::UdpSocket,
    tls: &rustls::ServerConfig,
) -> Result<Endpoint, SetupError> {
    let tls = QuicServerConfig::try_from(tls.clone())?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport());
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?)
}

/// A client's endpoint on a socket.
pub(super) fn client_endpoint(socket: std::net::UdpSocket) -> io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
}

/// The certificates, here raw keys, that the other end has shown.
pub(super) fn certificates(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    connection.peer_identity()?.downcast().ok().map(|found| *found)
}
