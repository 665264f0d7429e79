//! When TLS records arrive.
//!
//! The bytes of a record can be read when its last byte has arrived. That can be a round trip after the
//! first one: many servers send records of 16 KB, more than a first congestion window. The time that
//! a server took ends with the first one.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use manyways_unit::Time;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

/// Length of the header of a record, whose last two bytes have the length of the rest (RFC 8446, 5.1).
const HEADER: usize = 5;

/// When the first byte of the last record arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrival(Rc<Cell<Time>>);

impl Arrival {
    pub(super) fn time(&self) -> Time {
        self.0.get()
    }
}

/// The stream under TLS. It gives the bytes of one record at a time, so that [`Arrival`] belongs to the
/// record whose bytes were decrypted last.
#[derive(Debug)]
pub(super) struct Records<S, N> {
    stream: S,
    /// The clock.
    now: N,
    header: [u8; HEADER],
    /// Bytes of the header that have arrived.
    filled: usize,
    /// Bytes of the record behind its header that have not.
    left: usize,
    arrival: Arrival,
}

impl<S, N: Fn() -> Time> Records<S, N> {
    pub(super) fn new(stream: S, now: N) -> Self {
        let arrival = Arrival(Rc::new(Cell::new(now())));
        Self { stream, now, header: [0; HEADER], filled: 0, left: 0, arrival }
    }

    pub(super) fn arrival(&self) -> Arrival {
        self.arrival.clone()
    }

    fn on_read(&mut self, bytes: &[u8]) {
        if self.left > 0 {
            self.left -= bytes.len().min(self.left);
            return;
        }
        if self.filled == 0 && !bytes.is_empty() {
            self.arrival.0.set((self.now)());
        }
        for byte in bytes {
            if let Some(place) = self.header.get_mut(self.filled) {
                *place = *byte;
                self.filled += 1;
            }
        }
        if self.filled == HEADER {
            let [.., high, low] = self.header;
            self.left = usize::from(u16::from_be_bytes([high, low]));
            self.filled = 0;
        }
    }
}

impl<S: AsyncRead + Unpin, N: Fn() -> Time + Unpin> AsyncRead for Records<S, N> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = if self.left > 0 { self.left } else { HEADER - self.filled };
        let place = buffer.initialize_unfilled_to(most.min(buffer.remaining()));
        let mut part = ReadBuf::new(place);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let length = part.filled().len();
        self.on_read(part.filled());
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, N: Unpin> AsyncWrite for Records<S, N> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A stream of TLS over [`Records`]. It is read one record at a time, so that [`Arrival`] belongs to the
/// bytes that were read last. A stream of TLS itself goes on with the next record while there is one.
#[derive(Debug)]
pub(super) struct ByRecord<S>(S);

impl<S> ByRecord<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(stream)
    }
}

impl<S: AsyncBufRead + Unpin> AsyncRead for ByRecord<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(Pin::new(&mut self.0).poll_fill_buf(context))?;
        let length = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..length]);
        Pin::new(&mut self.0).consume(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ByRecord<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy_bidirectional, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    use super::super::connection::server_config;
    use super::*;
    use crate::authority::Authority;
    use crate::path::{self, Trust};

    /// A record of application data.
    fn record(length: u8) -> Vec<u8> {
        [&[23, 3, 3, 0, length][..], &vec![length; usize::from(length)]].concat()
    }

    #[tokio::test]
    async fn a_record_arrives_with_its_first_byte() {
        let (mut server, client) = duplex(1_000);
        let time = Rc::new(Cell::new(Time::ZERO));
        let clock = Rc::clone(&time);
        let mut records = Records::new(client, move || clock.get());
        let arrival = records.arrival();
        let at = |millis| time.set(Time::from_millis(millis));
        let mut read = Vec::new();
        let first = record(200);
        // The header itself can be cut.
        let pieces = [&first[..3], &first[3..100], &first[100..]];
        for (piece, millis) in pieces.into_iter().zip([10, 20, 30]) {
            server.write_all(piece).await.unwrap();
            at(millis);
            let wanted = read.len() + piece.len();
            while read.len() < wanted {
                records.read_buf(&mut read).await.unwrap();
            }
            assert_eq!(arrival.time(), Time::from_millis(10));
        }
        // Two records at once, the first of them without bytes.
        let rest = [record(0), record(3)].concat();
        server.write_all(&rest).await.unwrap();
        drop(server);
        at(40);
        let empty = records.read_buf(&mut read).await.unwrap();
        assert_eq!((empty, arrival.time()), (HEADER, Time::from_millis(40)));
        at(50);
        records.read_to_end(&mut read).await.unwrap();
        assert_eq!(arrival.time(), Time::from_millis(50));
        assert_eq!(read, [first, rest].concat());
    }

    /// Both ends of TLS, and the wire between them.
    async fn connected<N: Fn() -> Time + Unpin>(
        now: N,
    ) -> (client::TlsStream<Records<DuplexStream, N>>, DuplexStream, DuplexStream, impl AsyncWrite)
    {
        let authority = Authority::distrusted().unwrap();
        let certificate = authority.issue(&["a.example".to_owned()], None).unwrap();
        let acceptor: TlsAcceptor = Arc::new(server_config(certificate, None).unwrap()).into();
        let connector: TlsConnector =
            path::tls::config(&Trust::AnyCertificate, &[]).unwrap().into();
        let (client, mut client_wire) = duplex(1 << 20);
        let (server, mut server_wire) = duplex(1 << 20);
        let name = "a.example".try_into().unwrap();
        let hands = async {
            tokio::try_join!(
                connector.connect(name, Records::new(client, now)),
                acceptor.accept(server)
            )
        };
        let (client, server) = tokio::select! {
            hands = hands => hands.unwrap(),
            _ = copy_bidirectional(&mut client_wire, &mut server_wire) => unreachable!(),
        };
        (client, client_wire, server_wire, server)
    }

    #[tokio::test]
    async fn what_is_read_arrived_with_its_own_record() {
        let time = Rc::new(Cell::new(Time::ZERO));
        let clock = Rc::clone(&time);
        let (client, mut to_client, mut from_server, mut server) =
            connected(move || clock.get()).await;
        let arrival = client.get_ref().0.arrival();
        let mut client = ByRecord::new(client);
        let at = |millis| time.set(Time::from_millis(millis));
        // Records of 16,384 and 7,616 bytes.
        server.write_all(&[7; 24_000]).await.unwrap();
        server.flush().await.unwrap();
        let overhead = HEADER + 17;
        let mut sent = vec![0; 24_000 + 2 * overhead];
        from_server.read_exact(&mut sent).await.unwrap();
        let mut read = vec![0; 30_000];
        let mut found = Vec::new();
        // The third piece has the end of the first record and the start of the second.
        let ends = [0, 10_000, 20_000, sent.len()];
        for (piece, millis) in ends.windows(2).zip([10, 20, 30]) {
            to_client.write_all(&sent[piece[0]..piece[1]]).await.unwrap();
            at(millis);
            poll_fn(|context| {
                let mut buffer = ReadBuf::new(&mut read);
                while Pin::new(&mut client).poll_read(context, &mut buffer).is_ready() {
                    found.push((buffer.filled().len(), millis, arrival.time()));
                    buffer.clear();
                }
                Poll::Ready(())
            })
            .await;
        }
        let first = Time::from_millis(10);
        let second = Time::from_millis(20);
        assert_eq!(found, [(16_384, 20, first), (7_616, 30, second)]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_record_are_passed_on() {
        let (mut server, client) = duplex(70_000);
        let mut records = Records::new(client, || Time::ZERO);
        let bytes: Vec<u8> = (0..65_000_u32).map(|number| (number / 7) as u8 | 128).collect();
        server.write_all(&bytes).await.unwrap();
        drop(server);
        let mut read = Vec::new();
        records.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, bytes);
    }
}
