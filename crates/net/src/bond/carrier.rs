//! Carriers: messages of the mux over TCP with TLS, or over QUIC.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use manyways_proto::bond::carrier::{INITIAL_RTT, MAX_UNSENT, UnsentLimit};
use manyways_proto::bond::dial::{CarrierEnd, CarrierTransport};
use manyways_proto::bond::path::TransportStats;
use manyways_proto::mux::{DecodeError, LoanMessage, Message, Payload, Seed, TransportInfo};
use manyways_proto::relay::{Frame, FrameError};
use manyways_sys::socket::{is_writable, set_notsent_lowat, tcp_state};
use manyways_unit::{Rate, Size, Span};
use rustls::Connection;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::descriptors::Descriptor;
use super::quic::QuicCarrier;
use super::seal::{Opener, SealError, Sealer, Way};

/// Maximum bytes of one read.
const READ_CHUNK: usize = 256 << 10;
/// Payloads below this size are copied out of the read buffer. A reference to a few bytes would
/// keep the whole buffer in memory.
pub(super) const COPY_THRESHOLD: usize = 8 << 10;
/// Bytes of applications, as the payload of a message.
#[derive(Clone, Debug)]
pub(super) struct Chunk(pub(super) Bytes);

impl Payload for Chunk {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn slice(&self, from: usize, to: usize) -> Self {
        Self(self.0.slice(from..to))
    }

    fn empty() -> Self {
        Self(Bytes::new())
    }

    fn join(first: &Self, second: &Self) -> Self {
        Self([&first.0[..], &second.0[..]].concat().into())
    }
}

/// An authenticated TLS connection with its partly read and partly written messages.
pub(super) struct TcpCarrier {
    pub(super) stream: Rc<TcpStream>,
    tls: Connection,
    /// Encoded messages that are not encrypted yet.
    plain: Vec<u8>,
    wire: Wire,
    limit: UnsentLimit,
    /// The limit that is set in the kernel (TCP_NOTSENT_LOWAT), in bytes.
    lowat: u64,
    /// Unsent bytes in the kernel at the latest query, plus the bytes written since then.
    unsent: u64,
    /// Encrypted bytes of the connection, by direction.
    received: u64,
    sent: u64,
    /// Of the socket, at a gateway.
    pub(super) descriptor: Option<Descriptor>,
}

/// The form of messages on a carrier.
enum Wire {
    Plain(PlainWire),
    /// At an end of a path over a lender.
    Sealed(Box<SealedWire>),
    /// At a lender, with the beginning of an incomplete frame.
    Relay(BytesMut),
}

#[derive(Default)]
struct PlainWire {
    decoder: Decoder,
    /// Whether frames follow, which [`TcpCarrier::seal`] or [`TcpCarrier::relay`] takes over.
    is_over: bool,
}

struct SealedWire {
    sealer: Sealer,
    opener: Opener,
    /// The beginning of an incomplete frame.
    begun: BytesMut,
}

/// A message or event that arrives on a carrier.
pub(super) enum Received {
    Message(Message<Chunk>),
    /// The lender has dropped the next message that needs an ACK.
    Dropped,
    /// The lender stops to lend.
    Leave,
    /// At a lender.
    Frame(Frame<Bytes>),
}

/// The reason for the end of a carrier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// Closed by the peer, or closed because the peer violated the protocol.
    #[error("the connection ended")]
    Closed,
    /// The peer reports that the interface of the path is down.
    #[error("the device's link is down")]
    LinkDown,
    /// Nothing was received for the idle timeout of QUIC.
    #[error("the peer has been silent for too long")]
    IdleTimeout,
    /// An error of the socket or of the QUIC connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// An error of TLS.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// A message of the peer cannot be decoded.
    #[error("{0}")]
    Message(#[from] DecodeError),
    /// The lender of the path does not do its part.
    #[error("{0}")]
    Seal(#[from] SealError),
    /// The same, as the gateway reports it.
    #[error("the gateway reports that the lender changed messages on their way")]
    SealAtGateway,
    /// An end of a path does not send frames.
    #[error("{0}")]
    Frame(#[from] FrameError),
}

impl CarrierError {
    pub(super) fn end(&self) -> CarrierEnd {
        match self {
            Self::IdleTimeout => CarrierEnd::Idle,
            Self::Closed => CarrierEnd::Closed,
            Self::Seal(error) if error.is_forged() => CarrierEnd::Forged,
            Self::SealAtGateway => CarrierEnd::Forged,
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => CarrierEnd::Closed,
            _ => CarrierEnd::Broken,
        }
    }
}

impl TcpCarrier {
    pub(super) fn new(stream: TcpStream, mut tls: Connection) -> Self {
        // One flush may write more than the default limit of the library.
        tls.set_buffer_limit(None);
        let _ = stream.set_nodelay(true);
        let mut carrier = Self {
            stream: Rc::new(stream),
            tls,
            plain: Vec::new(),
            wire: Wire::Plain(PlainWire::default()),
            limit: UnsentLimit::default(),
            lowat: 0,
            unsent: 0,
            received: 0,
            sent: 0,
            descriptor: None,
        };
        carrier.set_lowat(UnsentLimit::default().bytes());
        carrier
    }

    /// Seals all further messages for the other end of a path over a lender: `way` is that of sent
    /// messages. Returns false if the library has no keys.
    pub(super) fn seal(&mut self, seed: &Seed, way: Way) -> bool {
        let (sealer, opener) = (Sealer::new(seed, way), Opener::new(seed, way.opposite()));
        let (Some(sealer), Some(opener)) = (sealer, opener) else { return false };
        let begun = self.take_begun();
        self.wire = Wire::Sealed(Box::new(SealedWire { sealer, opener, begun }));
        true
    }

    /// Reads frames from now on, for the other connection of a lender.
    pub(super) fn relay(&mut self) {
        self.wire = Wire::Relay(self.take_begun());
    }

    /// Takes the received bytes that are not decoded.
    fn take_begun(&mut self) -> BytesMut {
        match &mut self.wire {
            Wire::Plain(wire) => std::mem::take(&mut wire.decoder.0),
            Wire::Sealed(wire) => std::mem::take(&mut wire.begun),
            Wire::Relay(begun) => std::mem::take(begun),
        }
    }

    fn set_lowat(&mut self, bytes: u64) {
        if set_notsent_lowat(self.stream.as_fd(), Size::from_bytes(bytes)).is_ok() {
            self.lowat = bytes;
        }
    }

    /// Returns the kernel's state of the connection; `None` if the kernel does not report it.
    pub(super) fn transport_info(&mut self) -> Option<TransportInfo> {
        let state = tcp_state(self.stream.as_fd()).ok()?;
        let rtt = state.rtt.unwrap_or(INITIAL_RTT);
        let bytes = |packets: u32| Size::from_bytes(u64::from(packets) * state.mss.as_bytes());
        let window = bytes(state.cwnd);
        let rate = Rate::of(window, rtt.max(Span::from_micros(50)));
        self.unsent = state.unsent.as_bytes();
        let unsent = state.unsent + Size::from_bytes(self.unflushed_bytes() as u64);
        // The socket becomes writable when the unsent bytes are below half of this limit.
        if let Some(bytes) = self.limit.observe(rate) {
            self.set_lowat(bytes);
        }
        Some(TransportInfo {
            rtt,
            min_rtt: state.min_rtt.unwrap_or(rtt),
            rtt_var: state.rtt_var.unwrap_or_default(),
            congestion_window: window,
            slow_start: state.cwnd < state.ssthresh,
            in_flight: Some(state.in_flight()),
            unsent,
            rate,
            acknowledged: state.bytes_acked.as_bytes(),
            sent: state.bytes_sent.as_bytes(),
            max_datagram: None,
        })
    }

    /// Returns the bytes that can be queued before the next flush.
    pub(super) fn writable_bytes(&self) -> usize {
        usize::try_from(self.lowat.saturating_sub(self.unsent)).unwrap_or(usize::MAX)
    }

    /// Returns an estimate of the encrypted bytes that are not in the kernel.
    fn unflushed_bytes(&self) -> usize {
        // The library reports only whether there are any; one full record is assumed.
        if self.tls.wants_write() { 16 << 10 } else { 0 }
    }

    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        match &mut self.wire {
            Wire::Plain(_) | Wire::Relay(_) => {
                let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
                message.encode_head(payload.len(), &mut self.plain);
                self.plain.extend_from_slice(payload);
            }
            Wire::Sealed(wire) => wire.sealer.seal(message, &mut self.plain),
        }
    }

    /// Returns the encrypted bytes of the connection: received, sent.
    pub(super) fn byte_counts(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// Returns the bytes that are queued for the next flush.
    pub(super) fn queued_bytes(&self) -> usize {
        self.plain.len()
    }

    /// Queues a frame: at a lender any one, at an end of its path a recall.
    pub(super) fn queue_frame(&mut self, frame: &Frame<Bytes>) {
        let sealed = match frame {
            Frame::Sealed { sealed, .. } => &sealed[..],
            _ => &[],
        };
        frame.encode_head(sealed.len(), &mut self.plain);
        self.plain.extend_from_slice(sealed);
    }

    /// Writes queued messages. Returns whether the kernel took all of them and accepts more.
    pub(super) fn flush(&mut self) -> Result<bool, CarrierError> {
        if !self.plain.is_empty() {
            self.tls.writer().write_all(&self.plain)?;
            self.plain.clear();
            if self.plain.capacity() > MAX_UNSENT as usize {
                self.plain = Vec::new();
            }
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.stream)) {
                Ok(0) => return Err(CarrierError::Closed),
                Ok(bytes) => {
                    self.sent += bytes as u64;
                    self.unsent += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.unsent < self.lowat || self.has_space()?)
    }

    /// Returns whether the kernel accepts more bytes; one write may exceed the limit. If the result
    /// is false, the socket becomes writable when the unsent bytes are below half of the limit.
    fn has_space(&mut self) -> io::Result<bool> {
        let ask = || match is_writable(self.stream.as_fd())? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        match self.stream.try_io(Interest::WRITABLE, ask) {
            Ok(()) => {
                self.unsent = self.lowat / 2;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads at most `READ_CHUNK` bytes and calls `with` for each complete message.
    pub(super) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        mut with: impl FnMut(Received),
    ) -> Result<(), CarrierError> {
        // Unexpected frames of a peer must not fill the memory.
        if matches!(&self.wire, Wire::Plain(wire) if wire.is_over) {
            return Err(DecodeError::WrongProtocol.into());
        }
        buffer.resize(READ_CHUNK, 0);
        let count = match self.stream.try_read(buffer) {
            Ok(0) => return Err(CarrierError::Closed),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.received += count as u64;
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest)?;
            self.decrypt(&mut with)?;
        }
        Ok(())
    }

    /// Decrypts received records. The first call processes the bytes that arrived with the
    /// handshake.
    pub(super) fn decrypt(&mut self, mut with: impl FnMut(Received)) -> Result<(), CarrierError> {
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // Sends the TLS alert that contains the reason.
                let _ = self.flush();
                return Err(error.into());
            }
        };
        let mut more = state.plaintext_bytes_to_read();
        let begun = match &mut self.wire {
            Wire::Plain(wire) => &mut wire.decoder.0,
            Wire::Sealed(wire) => &mut wire.begun,
            Wire::Relay(begun) => begun,
        };
        begun.reserve(more);
        while more > 0 {
            let start = begun.len();
            begun.resize(start + more, 0);
            let count = self.tls.reader().read(&mut begun[start..])?;
            begun.truncate(start + count);
            more -= count.max(1).min(more);
        }
        match &mut self.wire {
            Wire::Plain(wire) => wire.decode(|message| with(Received::Message(message)))?,
            Wire::Sealed(wire) => wire.opener.open(&mut wire.begun, with)?,
            Wire::Relay(begun) => take_frames(begun, with)?,
        }
        if state.peer_has_closed() {
            return Err(CarrierError::Closed);
        }
        Ok(())
    }
}

/// Takes the complete frames at the start of `bytes`, and calls `with` for each.
fn take_frames(bytes: &mut BytesMut, mut with: impl FnMut(Received)) -> Result<(), FrameError> {
    while let Some((frame, length)) = Frame::decode(bytes)? {
        let frame = frame.map(<[u8]>::len);
        let mut whole = bytes.split_to(length);
        if let Frame::Sealed { sealed, .. } = frame {
            whole.advance(length - sealed);
        }
        let sealed = match whole.len() >= COPY_THRESHOLD {
            true => whole.freeze(),
            false => Bytes::copy_from_slice(&whole),
        };
        with(Received::Frame(frame.map(|_| sealed)));
    }
    Ok(())
}

/// Decodes messages from a stream of bytes.
#[derive(Default)]
pub(super) struct Decoder(
    /// The beginning of an incomplete message.
    BytesMut,
);

impl Decoder {
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        with: impl FnMut(Message<Chunk>),
    ) -> Result<(), DecodeError> {
        self.0.extend_from_slice(bytes);
        self.decode(with)
    }

    fn decode(&mut self, mut with: impl FnMut(Message<Chunk>)) -> Result<(), DecodeError> {
        while let Some(message) = self.next()? {
            with(message);
        }
        Ok(())
    }

    /// Takes the next complete message.
    fn next(&mut self) -> Result<Option<Message<Chunk>>, DecodeError> {
        let Some((message, length)) = Message::decode(&self.0)? else { return Ok(None) };
        let size = message.payload().map_or(0, |data| data.len());
        // The payload is always the end of a message.
        if size >= COPY_THRESHOLD {
            let message = message.map(|_| ());
            let mut whole = self.0.split_to(length);
            whole.advance(length - size);
            let bytes = whole.freeze();
            return Ok(Some(message.map(|()| Chunk(bytes))));
        }
        let message = message.map(|data| Chunk(Bytes::copy_from_slice(data)));
        self.0.advance(length);
        Ok(Some(message))
    }
}

impl PlainWire {
    /// Decodes messages up to the one after which the peer sends frames. One read decrypts several
    /// times, so the frames may come in a later call.
    fn decode(&mut self, mut with: impl FnMut(Message<Chunk>)) -> Result<(), DecodeError> {
        while !self.is_over
            && let Some(message) = self.decoder.next()?
        {
            self.is_over = matches!(
                message,
                Message::Loan(LoanMessage::Redeemed | LoanMessage::Joined { .. })
            );
            with(message);
        }
        Ok(())
    }
}

/// A carrier over TCP or QUIC.
pub(super) enum CarrierIo {
    Tcp(Box<TcpCarrier>),
    Quic(Box<QuicCarrier>),
}

impl CarrierIo {
    /// Returns the counters of the transport; `None` if the kernel does not report them.
    pub(super) fn transport_stats(&self) -> Option<TransportStats> {
        match self {
            Self::Tcp(io) => {
                let state = tcp_state(io.stream.as_fd()).ok()?;
                Some(TransportStats {
                    rtt: state.rtt,
                    min_rtt: state.min_rtt,
                    has_backlog: !state.unsent.is_zero(),
                    sent_packets: state.data_packets,
                    retransmitted_packets: state.total_retrans,
                })
            }
            Self::Quic(io) => Some(io.transport_stats()),
        }
    }

    /// Returns the transport's state for the scheduler; `None` if the kernel does not report it.
    pub(super) fn transport_info(&mut self) -> Option<TransportInfo> {
        match self {
            Self::Tcp(io) => io.transport_info(),
            Self::Quic(io) => Some(io.transport_info()),
        }
    }

    /// Returns the bytes that can be queued before the next flush.
    pub(super) fn writable_bytes(&self) -> usize {
        match self {
            Self::Tcp(io) => io.writable_bytes(),
            Self::Quic(io) => io.writable_bytes(),
        }
    }

    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        match self {
            Self::Tcp(io) => io.queue(message),
            Self::Quic(io) => io.queue(message),
        }
    }

    /// Writes queued messages. Returns whether the transport took all of them.
    pub(super) fn flush(&mut self) -> Result<bool, CarrierError> {
        match self {
            Self::Tcp(io) => io.flush(),
            Self::Quic(io) => io.flush(),
        }
    }

    /// Writes all queued messages; waits while the transport accepts no more.
    pub(super) async fn flush_all(&mut self) -> Result<(), CarrierError> {
        match self {
            Self::Tcp(io) => {
                while !io.flush()? {
                    io.stream.ready(Interest::WRITABLE).await?;
                }
                Ok(())
            }
            Self::Quic(io) => poll_fn(|context| io.poll_flush(context)).await,
        }
    }

    /// Waits until at least one message has arrived.
    pub(super) async fn messages(&mut self) -> Result<Vec<Message<Chunk>>, CarrierError> {
        let (mut buffer, mut messages) = (Vec::new(), Vec::new());
        match self {
            Self::Tcp(io) => {
                let take = |messages: &mut Vec<_>, received| {
                    if let Received::Message(message) = received {
                        messages.push(message);
                    }
                };
                io.decrypt(|received| take(&mut messages, received))?;
                while messages.is_empty() {
                    io.stream.ready(Interest::READABLE).await?;
                    io.read(&mut buffer, |received| take(&mut messages, received))?;
                }
            }
            Self::Quic(io) => {
                poll_fn(|context| {
                    let read = io.poll_read(context, &mut buffer, |message| messages.push(message));
                    match read {
                        Ok(()) if messages.is_empty() => Poll::Pending,
                        // Messages that arrived before the end are returned first.
                        Err(_) if !messages.is_empty() => Poll::Ready(Ok(())),
                        done => Poll::Ready(done),
                    }
                })
                .await?;
            }
        }
        Ok(messages)
    }

    /// Returns the encrypted bytes of the connection: received, sent.
    pub(super) fn byte_counts(&self) -> (u64, u64) {
        match self {
            Self::Tcp(io) => io.byte_counts(),
            Self::Quic(io) => (io.received(), io.sent()),
        }
    }

    /// Returns the bytes that one unit of `acknowledged` in its [`TransportInfo`] stands for, at
    /// most: QUIC counts frames.
    pub(super) fn bytes_per_acknowledgement(&self) -> u64 {
        match self {
            Self::Tcp(_) => 1,
            Self::Quic(_) => 400,
        }
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(io) => io.stream.peer_addr().ok(),
            Self::Quic(io) => Some(io.peer()),
        }
    }

    pub(super) fn transport(&self) -> CarrierTransport {
        match self {
            Self::Tcp(_) => CarrierTransport::Tcp,
            Self::Quic(_) => CarrierTransport::Quic,
        }
    }

    /// Returns the reason for the end of a QUIC connection; `None` before the end, and for TCP.
    pub(super) fn close_reason(&self) -> Option<quinn::ConnectionError> {
        match self {
            Self::Tcp(_) => None,
            Self::Quic(io) => io.connection.close_reason(),
        }
    }

    /// Closes a QUIC carrier; with `bye`, the session ends too. Does nothing over TCP.
    pub(super) fn close(&self, bye: bool) {
        if let Self::Quic(io) = self {
            io.close(bye);
        }
    }
}

/// Passes records of the TLS library to the kernel, several with one call.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
