//! Counts received bytes that the transfer discards: those of cancelled HTTP/2 streams, and unread
//! bytes in the kernel when a connection is closed. Also keeps a connection readable after the
//! server has closed it.
//!
//! Bytes in flight when a connection is closed cannot be counted.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bound of the unread bytes that are counted; receive buffers are smaller.
const MAX_UNREAD: u64 = 64 << 20;
/// Length of an HTTP/2 frame header (RFC 9113 §4.1).
const FRAME_HEADER_LENGTH: usize = 9;
/// Type of DATA frames (RFC 9113 §6.1).
const DATA_FRAME: u8 = 0;

/// Counter of a path's late bytes, over all its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct DiscardedBytes(Arc<AtomicU64>);

impl DiscardedBytes {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes since the previous call.
    pub(super) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Cancelled streams of a connection that are remembered: their last bytes arrive within one or two
/// round trips.
const MAX_CANCELLED_STREAMS: usize = 16;

/// The latest cancelled HTTP/2 streams of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct CancelledStreams(Arc<Mutex<VecDeque<u32>>>);

impl CancelledStreams {
    pub(super) fn add(&self, stream: u32) {
        let mut streams = self.lock();
        if streams.len() == MAX_CANCELLED_STREAMS {
            streams.pop_front();
        }
        streams.push_back(stream);
    }

    fn contains(&self, stream: u32) -> bool {
        self.lock().contains(&stream)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TCP connection that counts its unread bytes when it is closed.
///
/// A server often sends its reason before it closes a connection: GOAWAY or a TLS alert. A PING or
/// WINDOW_UPDATE that is sent at that time fails, and a caller that stops at this error never reads
/// the reason. Therefore a write to a closed connection seems to succeed. The reader receives the
/// remaining bytes first, and then the error of the write.
pub(super) struct DrainingStream {
    stream: TcpStream,
    discarded: DiscardedBytes,
    /// Whether no more bytes can be sent.
    is_write_closed: bool,
    /// The error of the failed write, until the reader has received it.
    write_error: Option<io::Error>,
}

impl DrainingStream {
    pub(super) fn new(stream: TcpStream, late: DiscardedBytes) -> Self {
        Self { stream, discarded: late, is_write_closed: false, write_error: None }
    }

    fn on_written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match polled {
            Poll::Ready(Err(error))
                if matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset) =>
            {
                (self.is_write_closed, self.write_error) = (true, Some(error));
                Poll::Ready(Ok(bytes))
            }
            polled => polled,
        }
    }
}

impl Drop for DrainingStream {
    fn drop(&mut self) {
        let (mut buffer, mut unread) = ([0; 16 * 1024], 0);
        while let Ok(read @ 1..) = self.stream.try_read(&mut buffer) {
            unread += read as u64;
            if unread >= MAX_UNREAD {
                break;
            }
        }
        self.discarded.add(unread);
    }
}

/// A stream of HTTP/2 frames that counts received bytes of cancelled streams.
pub(super) struct FrameCounter<S> {
    stream: S,
    discarded: DiscardedBytes,
    cancelled_streams: CancelledStreams,
    header: [u8; FRAME_HEADER_LENGTH],
    /// Received bytes of the frame header.
    header_bytes: usize,
    /// Remaining bytes of the payload.
    payload_remaining: usize,
    /// Whether the payload belongs to a cancelled stream.
    is_cancelled: bool,
}

impl<S> FrameCounter<S> {
    pub(super) fn new(stream: S, discarded: DiscardedBytes, cancelled: CancelledStreams) -> Self {
        let head = [0; FRAME_HEADER_LENGTH];
        Self {
            stream,
            discarded,
            cancelled_streams: cancelled,
            header: head,
            header_bytes: 0,
            payload_remaining: 0,
            is_cancelled: false,
        }
    }

    fn observe(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_remaining == 0 {
                let take = bytes.len().min(FRAME_HEADER_LENGTH - self.header_bytes);
                let (now, later) = bytes.split_at(take);
                self.header[self.header_bytes..self.header_bytes + take].copy_from_slice(now);
                (bytes, self.header_bytes) = (later, self.header_bytes + take);
                if self.header_bytes < FRAME_HEADER_LENGTH {
                    return;
                }
                self.header_bytes = 0;
                let [a, b, c, kind, _, s @ ..] = self.header;
                self.payload_remaining = u32::from_be_bytes([0, a, b, c]) as usize;
                // The first bit of the stream identifier is reserved (RFC 9113 §4.1).
                let stream = u32::from_be_bytes(s) & 0x7fff_ffff;
                self.is_cancelled = kind == DATA_FRAME && self.cancelled_streams.contains(stream);
            }
            let take = bytes.len().min(self.payload_remaining);
            self.payload_remaining -= take;
            bytes = &bytes[take..];
            if self.is_cancelled {
                self.discarded.add(take as u64);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameCounter<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.observe(&buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameCounter<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl AsyncRead for DrainingStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() == before {
            // The failed write cleared the socket error, so that the kernel now reports only the
            // end of the stream.
            if let Some(error) = this.write_error.take() {
                return Poll::Ready(Err(error));
            }
        }
        read
    }
}

impl AsyncWrite for DrainingStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_write_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.on_written(polled, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if this.is_write_closed {
            return Poll::Ready(Ok(bytes));
        }
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.on_written(polled, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_write_closed {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

    use super::*;

    fn frame(kind: u8, stream: u32, payload: usize) -> Vec<u8> {
        let mut frame = (payload as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, 0]);
        frame.extend((stream | 0x8000_0000).to_be_bytes());
        frame.resize(FRAME_HEADER_LENGTH + payload, 7);
        frame
    }

    #[tokio::test]
    async fn only_bodies_of_cancelled_streams_count() {
        let wire = [
            frame(4, 0, 12),
            frame(1, 3, 40),
            frame(0, 1, 1_000),
            frame(0, 3, 300),
            frame(0, 3, 0),
            frame(0, 5, 10_000),
        ]
        .concat();
        // The result does not depend on how the bytes are divided.
        for piece in [1, 8, 9, 10, 977, wire.len()] {
            let (discarded, cancelled) = (DiscardedBytes::default(), CancelledStreams::default());
            cancelled.add(1);
            cancelled.add(3);
            let mut frames = FrameCounter::new(wire.as_slice(), discarded.clone(), cancelled);
            let mut buffer = vec![0; piece];
            let mut read = Vec::new();
            while let Ok(length @ 1..) = frames.read(&mut buffer).await {
                read.extend_from_slice(&buffer[..length]);
            }
            assert_eq!(read, wire);
            assert_eq!(discarded.take(), 1_300, "pieces of {piece}");
            assert_eq!(discarded.take(), 0);
        }
    }

    #[tokio::test]
    async fn what_nobody_read_counts_when_the_connection_is_closed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(&[7; 5_000]).await.unwrap();
        let discarded = DiscardedBytes::default();
        let mut near = DrainingStream::new(near, discarded.clone());
        let mut wanted = [0; 1_000];
        near.read_exact(&mut wanted).await.unwrap();
        near.stream.readable().await.unwrap();
        drop(near);
        assert_eq!(discarded.take(), 4_000);
    }

    #[tokio::test]
    async fn who_hangs_up_is_heard_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut near = DrainingStream::new(near, DiscardedBytes::default());
        near.write_all(b"unheard").await.unwrap();
        far.readable().await.unwrap();
        far.write_all(b"why").await.unwrap();
        // The kernel resets a connection that is closed with unread bytes.
        drop(far);
        while !near.stream.ready(Interest::WRITABLE).await.unwrap().is_write_closed() {
            tokio::task::yield_now().await;
        }
        for _ in 0..2 {
            near.write_all(b"more").await.unwrap();
        }
        let mut heard = Vec::new();
        let end = near.read_to_end(&mut heard).await.unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(heard, b"why");
        near.shutdown().await.unwrap();
    }
}
