//! A carrier: messages over TCP in TLS records, and what the kernel says of the connection; or the
//! same over QUIC.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use manyways_proto::bond::carrier::{INITIAL_RTT, MAX_UNSENT, UnsentLimit};
use manyways_proto::bond::dial::CarrierTransport;
use manyways_proto::bond::path::TransportStats;
use manyways_proto::mux::{Condition, DecodeError, Message, Payload};
use manyways_sys::socket::{is_writable, set_notsent_lowat, tcp_state};
use manyways_unit::{Rate, Size, Span};
use rustls::Connection;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::quic::QuicCarrier;

/// One read takes this many bytes at most.
const READ_CHUNK: usize = 256 << 10;
/// A message's payload is copied out of what was read where it is shorter: a few bytes would keep all
/// of what was read in memory.
const COPY_BELOW: usize = 8 << 10;
/// The bytes of applications.
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

/// An authenticated connection, and what of it is half read or half written.
pub(super) struct TcpCarrier {
    pub(super) stream: Rc<TcpStream>,
    tls: Connection,
    /// Messages that were not encrypted yet.
    plain: Vec<u8>,
    decoder: Decoder,
    limit: UnsentLimit,
    /// What the kernel was told of the limit.
    lowat: u64,
    /// Bytes that wait in the kernel, as it told last, and those that were written since.
    unsent: u64,
    /// Bytes of the connection that came and went, encrypted.
    received: u64,
    sent: u64,
}

/// Why a carrier has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The peer has closed it.
    #[error("the connection ended")]
    Closed,
    /// The peer says that the interface at its end does not work.
    #[error("the device's link is down")]
    LinkDown,
    /// The peer has sent nothing for the idle timeout of QUIC.
    #[error("the other end has said nothing for long")]
    IdleTimeout,
    /// Its socket does not work.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A record of TLS is wrong.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// A message of the peer is wrong.
    #[error("{0}")]
    Message(#[from] DecodeError),
}

impl TcpCarrier {
    pub(super) fn new(stream: TcpStream, mut tls: Connection) -> Self {
        // What is written is encrypted at once and handed on; it never waits for the buffer.
        tls.set_buffer_limit(None);
        let _ = stream.set_nodelay(true);
        let mut carrier = Self {
            stream: Rc::new(stream),
            tls,
            plain: Vec::new(),
            decoder: Decoder::default(),
            limit: UnsentLimit::default(),
            lowat: 0,
            unsent: 0,
            received: 0,
            sent: 0,
        };
        carrier.set_lowat(UnsentLimit::default().bytes());
        carrier
    }

    fn set_lowat(&mut self, bytes: u64) {
        if set_notsent_lowat(self.stream.as_fd(), Size::from_bytes(bytes)).is_ok() {
            self.lowat = bytes;
        }
    }

    /// What the kernel tells of the connection now; `None` where it tells nothing.
    pub(super) fn condition(&mut self) -> Option<Condition> {
        let state = tcp_state(self.stream.as_fd()).ok()?;
        let rtt = state.rtt.unwrap_or(INITIAL_RTT);
        let bytes = |packets: u32| Size::from_bytes(u64::from(packets) * state.mss.as_bytes());
        let window = bytes(state.cwnd);
        let rate = Rate::of(window, rtt.max(Span::from_micros(50)));
        self.unsent = state.unsent.as_bytes();
        let unsent = state.unsent + Size::from_bytes(self.waiting() as u64);
        // The kernel tells when half of this is free.
        if let Some(bytes) = self.limit.observe(rate) {
            self.set_lowat(bytes);
        }
        Some(Condition {
            rtt,
            least_rtt: state.min_rtt.unwrap_or(rtt),
            rtt_var: state.rtt_var.unwrap_or_default(),
            window,
            slow_start: state.cwnd < state.ssthresh,
            in_flight: Some(bytes(state.unacked.saturating_sub(state.sacked))),
            unsent,
            rate,
            acknowledged: state.bytes_acked.as_bytes(),
            departed: state.bytes_sent.as_bytes(),
            datagram: None,
        })
    }

    /// How many bytes it takes before it is to be flushed.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.lowat.saturating_sub(self.unsent)).unwrap_or(usize::MAX)
    }

    /// Bytes that are encrypted and not in the kernel.
    fn waiting(&self) -> usize {
        // The library tells only whether there are any: one record is assumed.
        if self.tls.wants_write() { 16 << 10 } else { 0 }
    }

    /// Queues a message.
    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
        message.encode_head(payload.len(), &mut self.plain);
        self.plain.extend_from_slice(payload);
    }

    /// Writes what is queued. Whether the kernel took all and takes more.
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

    /// Asks the kernel, which takes more than the limit in one write. Where it has enough, the socket
    /// is ready when half of the limit has gone.
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

    /// Reads what is there, and calls `with` for each message.
    pub(super) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        mut with: impl FnMut(Message<Chunk>),
    ) -> Result<(), CarrierError> {
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

    /// Decrypts what was read, first what came with the handshake.
    pub(super) fn decrypt(&mut self, with: impl FnMut(Message<Chunk>)) -> Result<(), CarrierError> {
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // Tells the peer why.
                let _ = self.flush();
                return Err(error.into());
            }
        };
        let mut more = state.plaintext_bytes_to_read();
        let begun = &mut self.decoder.0;
        begun.reserve(more);
        while more > 0 {
            let start = begun.len();
            begun.resize(start + more, 0);
            let count = self.tls.reader().read(&mut begun[start..])?;
            begun.truncate(start + count);
            more -= count.max(1).min(more);
        }
        self.decoder.decode(with)?;
        if state.peer_has_closed() {
            return Err(CarrierError::Closed);
        }
        Ok(())
    }
}

/// Finds messages in a stream of bytes.
#[derive(Default)]
pub(super) struct Decoder(
    /// The beginning of a message whose rest has not come.
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
        while let Some((message, length)) = Message::decode(&self.0)? {
            let size = message.payload().map_or(0, |data| data.len());
            // The payload is always the end of a message.
            if size >= COPY_BELOW {
                let message = message.map(|_| ());
                let mut whole = self.0.split_to(length);
                whole.advance(length - size);
                let bytes = whole.freeze();
                with(message.map(|()| Chunk(bytes)));
            } else {
                let message = message.map(|data| Chunk(Bytes::copy_from_slice(data)));
                self.0.advance(length);
                with(message);
            }
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
    /// What the transport counts; `None` where the kernel tells nothing.
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

    /// What the scheduler has to know of the transport; `None` where the kernel tells nothing.
    pub(super) fn condition(&mut self) -> Option<Condition> {
        match self {
            Self::Tcp(io) => io.condition(),
            Self::Quic(io) => Some(io.condition()),
        }
    }

    /// How many bytes it takes before it is to be flushed.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Tcp(io) => io.room(),
            Self::Quic(io) => io.room(),
        }
    }

    /// Queues a message.
    pub(super) fn queue(&mut self, message: &Message<Chunk>) {
        match self {
            Self::Tcp(io) => io.queue(message),
            Self::Quic(io) => io.queue(message),
        }
    }

    /// Writes what is queued. Whether all was taken.
    pub(super) fn flush(&mut self) -> Result<bool, CarrierError> {
        match self {
            Self::Tcp(io) => io.flush(),
            Self::Quic(io) => io.flush(),
        }
    }

    /// Writes all that is queued.
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

    /// Waits for messages.
    pub(super) async fn messages(&mut self) -> Result<Vec<Message<Chunk>>, CarrierError> {
        let (mut buffer, mut messages) = (Vec::new(), Vec::new());
        match self {
            Self::Tcp(io) => {
                io.decrypt(|message| messages.push(message))?;
                while messages.is_empty() {
                    io.stream.ready(Interest::READABLE).await?;
                    io.read(&mut buffer, |message| messages.push(message))?;
                }
            }
            Self::Quic(io) => {
                poll_fn(|context| {
                    let read = io.poll_read(context, &mut buffer, |message| messages.push(message));
                    match read {
                        Ok(()) if messages.is_empty() => Poll::Pending,
                        // Messages that came before the end count.
                        Err(_) if !messages.is_empty() => Poll::Ready(Ok(())),
                        done => Poll::Ready(done),
                    }
                })
                .await?;
            }
        }
        Ok(messages)
    }

    /// Bytes of the connection that came and went, encrypted.
    pub(super) fn byte_counts(&self) -> (u64, u64) {
        match self {
            Self::Tcp(io) => (io.received, io.sent),
            Self::Quic(io) => (io.received(), io.sent()),
        }
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(io) => io.stream.peer_addr().ok(),
            Self::Quic(io) => Some(io.peer()),
        }
    }

    /// What carries it.
    pub(super) fn transport(&self) -> CarrierTransport {
        match self {
            Self::Tcp(_) => CarrierTransport::Tcp,
            Self::Quic(_) => CarrierTransport::Quic,
        }
    }

    /// Why a QUIC connection has ended; `None` before that, and for TCP.
    pub(super) fn close_reason(&self) -> Option<quinn::ConnectionError> {
        match self {
            Self::Tcp(_) => None,
            Self::Quic(io) => io.connection.close_reason(),
        }
    }

    /// Tells the peer that the carrier ends; with `bye`, the session.
    pub(super) fn close(&self, bye: bool) {
        if let Self::Quic(io) = self {
            io.close(bye);
        }
    }
}

/// The library writes through this, as many records at a time as the kernel takes.
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
