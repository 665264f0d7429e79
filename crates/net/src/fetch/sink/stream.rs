//! The destination for a reader that takes the bytes in order.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::SinkError;

/// Maximum length of a merged piece.
const MAX_PIECE: usize = 256 << 10;
/// Maximum number of pieces that wait for the reader, in addition to those in [`ReorderBuffer`].
const MAX_QUEUED_PIECES: usize = 2;

/// The bytes of an object, in order, from [`Client::stream`].
///
/// If the body is not read, no more bytes are requested. The body also ends if the transfer fails:
/// only the result of the transfer shows whether all bytes arrived.
///
/// [`Client::stream`]: crate::fetch::Client::stream
#[derive(Debug)]
pub struct Body {
    pieces: mpsc::Receiver<Bytes>,
    /// Rest of a piece that did not fit into the reader's buffer.
    remainder: Bytes,
}

impl Body {
    /// Returns the next bytes; `None` after the last ones. Cancel safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self.remainder.is_empty() {
            true => self.pieces.recv().await,
            false => Some(std::mem::take(&mut self.remainder)),
        }
    }

    /// A body without bytes.
    #[cfg(feature = "gateway")]
    pub(in crate::fetch) fn closed() -> Self {
        Self { pieces: mpsc::channel(1).1, remainder: Bytes::new() }
    }

    /// As [`Body::next`], for a task that polls.
    #[cfg(feature = "gateway")]
    pub(in crate::fetch) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.remainder.is_empty() {
            true => self.pieces.poll_recv(context),
            false => Poll::Ready(Some(std::mem::take(&mut self.remainder))),
        }
    }

    /// As [`Body::next`], but blocks the thread.
    ///
    /// # Panics
    /// If called in an asynchronous task.
    pub fn blocking_next(&mut self) -> Option<Bytes> {
        match self.remainder.is_empty() {
            true => self.pieces.blocking_recv(),
            false => Some(std::mem::take(&mut self.remainder)),
        }
    }
}

impl AsyncRead for Body {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.remainder.is_empty() {
            match ready!(self.pieces.poll_recv(context)) {
                Some(piece) => self.remainder = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let fits = self.remainder.len().min(buffer.remaining());
        buffer.put_slice(&self.remainder[..fits]);
        self.remainder.advance(fits);
        Poll::Ready(Ok(()))
    }
}

/// The writing end of a [`Body`].
#[derive(Debug)]
pub(in crate::fetch) struct Stream {
    reorder_buffer: ReorderBuffer,
    reader: mpsc::Sender<Bytes>,
    hasher: Option<Sha256>,
}

impl Stream {
    pub(in crate::fetch) fn new() -> (Self, Body) {
        let (reader, pieces) = mpsc::channel(MAX_QUEUED_PIECES);
        let stream = Self { reorder_buffer: ReorderBuffer::default(), reader, hasher: None };
        (stream, Body { pieces, remainder: Bytes::new() })
    }

    /// Hashes all bytes that the reader takes. Without effect after the first byte.
    pub(in crate::fetch) fn enable_hash(&mut self) {
        if self.reorder_buffer.next == 0 {
            self.hasher.get_or_insert_default();
        }
    }

    /// The SHA-256 of the bytes that the reader has received; `None` if they were not hashed from
    /// the first one.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        self.hasher.clone().map(|hash| hash.finalize().into())
    }

    pub(super) fn put(&mut self, at: u64, piece: &[u8]) {
        self.reorder_buffer.put(at, piece);
    }

    /// Discards the bytes; fails if the reader has received any.
    pub(super) fn restart(&mut self) -> Result<(), SinkError> {
        if self.reorder_buffer.next > 0 {
            return Err(SinkError::AlreadyDelivered);
        }
        self.reorder_buffer = ReorderBuffer::default();
        Ok(())
    }

    /// Whether the reader has received all bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.reorder_buffer.pieces.is_empty()
    }

    /// Passes the next piece to the reader when it has room. Returns the offset up to which the
    /// reader has received all. Cancel safe.
    pub(super) async fn deliver(&mut self) -> Result<u64, SinkError> {
        if !self.reorder_buffer.is_ready() {
            self.reader.closed().await;
            return Err(SinkError::ReaderClosed);
        }
        let room = self.reader.reserve().await.map_err(|_| SinkError::ReaderClosed)?;
        if let Some(piece) = self.reorder_buffer.take() {
            if let Some(hash) = &mut self.hasher {
                hash.update(&piece);
            }
            room.send(Bytes::from(piece));
        }
        Ok(self.reorder_buffer.next)
    }
}

/// Puts pieces in order. The core bounds the pieces by the requests that it sends.
#[derive(Debug, Default)]
struct ReorderBuffer {
    /// Pieces by their offset, without overlaps.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// All bytes before this offset were taken.
    next: u64,
}

impl ReorderBuffer {
    fn put(&mut self, at: u64, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        // Small pieces would have more overhead than content.
        if let Some((start, before)) = self.pieces.range_mut(..at).next_back()
            && start + before.len() as u64 == at
            && before.len() + piece.len() <= MAX_PIECE
        {
            before.extend_from_slice(piece);
        } else {
            self.pieces.insert(at, piece.to_vec());
        }
    }

    fn is_ready(&self) -> bool {
        self.pieces.first_key_value().is_some_and(|(at, _)| *at == self.next)
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        if !self.is_ready() {
            return None;
        }
        let (at, piece) = self.pieces.pop_first()?;
        self.next = at + piece.len() as u64;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_in_order_and_once(
            lengths in prop::collection::vec(1usize..3000, 1..60),
            order in prop::collection::vec(any::<u16>(), 60),
            takes in prop::collection::vec(any::<bool>(), 60),
        ) {
            let byte = |at: u64| (at % 251) as u8;
            let mut pieces = Vec::new();
            let mut end = 0;
            for length in lengths {
                pieces.push((end, length));
                end += length as u64;
            }
            let mut shuffled: Vec<_> = pieces.iter().copied().zip(order).collect();
            shuffled.sort_by_key(|(_, key)| *key);
            let (mut buffer, mut out) = (ReorderBuffer::default(), Vec::new());
            let mut put = vec![false; end as usize];
            for (((at, length), _), take) in shuffled.into_iter().zip(takes) {
                let bytes: Vec<u8> = (at..at + length as u64).map(byte).collect();
                buffer.put(at, &bytes);
                put[at as usize..at as usize + length].fill(true);
                if take {
                    while let Some(piece) = buffer.take() {
                        out.extend(piece);
                    }
                    // All bytes before the first gap were taken.
                    let first_gap = put.iter().position(|put| !put).unwrap_or(put.len());
                    prop_assert_eq!(out.len(), first_gap);
                }
            }
            while let Some(piece) = buffer.take() {
                out.extend(piece);
            }
            prop_assert!(buffer.pieces.is_empty());
            prop_assert!(out.iter().zip(0..).all(|(found, at)| *found == byte(at)));
            prop_assert_eq!(out.len() as u64, end);
        }
    }

    #[tokio::test]
    async fn a_reader_may_read_little_at_a_time_and_go_away() {
        use tokio::io::AsyncReadExt;
        let (mut stream, mut body) = Stream::new();
        stream.enable_hash();
        stream.put(3, b"def");
        stream.put(0, b"abc");
        assert_eq!(stream.deliver().await.unwrap(), 3);
        let mut two = [0; 2];
        body.read_exact(&mut two).await.unwrap();
        assert_eq!((&two, body.next().await.as_deref()), (b"ab", Some(&b"c"[..])));
        assert_eq!(stream.deliver().await.unwrap(), 6);
        assert_eq!(stream.sha256().unwrap()[..3], [0xbe, 0xf5, 0x7e]);
        assert!(matches!(stream.restart(), Err(SinkError::AlreadyDelivered)));
        drop(body);
        assert!(matches!(stream.deliver().await, Err(SinkError::ReaderClosed)));
    }
}
