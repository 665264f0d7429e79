//! Connections of HTTP/1.
//!
//! Requests of a connection are answered one after the other, also those that came together. The think
//! time of each counts from the arrival of its last byte.

mod frame;
mod request;

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use manyways_unit::Time;
use manyways_wire::archive::Protocol;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use self::frame::Framing;
use self::request::{Body, Fault, Head, take_head};
pub use self::request::{MAX_FIELDS, MAX_HEAD};
use super::contents::{End, Pieces};
use super::head::{HeadField, put_fields};
use super::log::Served;
use super::responder::{Reply, Response};
use super::service::{Peer, Service};

/// Time without a byte of a request after which a connection is closed.
pub const MAX_IDLE: Duration = Duration::from_secs(300);
/// Room for a read.
const READ: usize = 16 << 10;
/// Buffers of one write.
const MAX_SLICES: usize = 8;
/// Time and bytes that a closed connection is still read, so that the kernel does not answer late bytes of
/// the client with a reset, which would destroy the response.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 1 << 20);

/// A connection with its input.
struct Connection<'s, S> {
    service: &'s Service,
    peer: &'s Peer,
    io: S,
    input: BytesMut,
    /// When the last input came.
    arrived: Time,
    /// Bytes to be written, reused by all responses.
    output: Vec<Bytes>,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Request,
    /// It ends regularly.
    Close,
    /// It ends as if the server broke off.
    Abort,
}

/// Why a connection ended.
enum Failure {
    /// The client did, or is idle.
    Io,
    Fault(Fault),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

/// Serves a connection until its end. `input` has bytes that were read already.
pub(super) async fn serve<S>(service: &Service, peer: &Peer, io: S, input: BytesMut)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let arrived = service.clock.now();
    let mut connection = Connection { service, peer, io, input, arrived, output: Vec::new() };
    loop {
        match connection.exchange().await {
            Ok(Next::Request) => {}
            Ok(Next::Close) => return connection.close().await,
            Ok(Next::Abort) | Err(Failure::Io) => return,
            Err(Failure::Fault(fault)) => {
                if connection.refuse(fault).await.is_ok() {
                    connection.close().await;
                }
                return;
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Reads a request, and answers it.
    async fn exchange(&mut self) -> Result<Next, Failure> {
        let mut searched = 0;
        let bytes = loop {
            if let Some(head) = take_head(&mut self.input, &mut searched).map_err(Failure::Fault)? {
                break head;
            }
            self.read().await?;
        };
        let head = Head::parse(&bytes).map_err(Failure::Fault)?;
        let mut body = Body::new(head.framing);
        let mut is_complete = body.take(&mut self.input).map_err(Failure::Fault)?;
        if !is_complete && head.expects {
            self.write_one(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n")).await?;
        }
        while !is_complete {
            self.read().await?;
            is_complete = body.take(&mut self.input).map_err(Failure::Fault)?;
        }
        let request = head.request(self.peer.scheme, &body.kept, self.peer.number);
        let protocol = if head.is_http10 { Protocol::Http10 } else { Protocol::Http11 };
        let (reply, mut served) = self.service.decide(self.peer, &request, protocol, self.arrived);
        drop(body);
        let end = reply.end;
        let sent = self.answer(reply, head.is_http10, &mut served).await;
        self.service.log.add(served);
        match (sent?, end) {
            (Next::Abort, _) | (_, End::Abort) => Ok(Next::Abort),
            (_, End::Open) => {
                self.hold().await?;
                Ok(Next::Abort)
            }
            (next, End::Complete) => Ok(if head.closes { Next::Close } else { next }),
        }
    }

    /// Sends the interim responses and the response at their times.
    async fn answer(
        &mut self,
        reply: Reply,
        is_http10: bool,
        served: &mut Served,
    ) -> io::Result<Next> {
        let service = self.service;
        let start = served.at;
        let Some(response) = &reply.response else {
            service.alarm.until(start + reply.think).await;
            return Ok(Next::Abort);
        };
        let pieces = if reply.interim.is_empty() || is_http10 {
            service.open(&response.content).await
        } else {
            let interim = async {
                for (after, head) in reply.interim.iter().filter(|(_, head)| head.status != 100) {
                    service.alarm.until(start + *after).await;
                    self.write_one(head.http1()).await?;
                }
                io::Result::Ok(())
            };
            let (pieces, sent) = tokio::join!(service.open(&response.content), interim);
            sent?;
            pieces
        };
        match pieces {
            Ok(pieces) => {
                service.alarm.until(start + reply.think).await;
                self.respond(response, pieces, reply.end, is_http10, served).await
            }
            Err(error) => {
                tracing::warn!("{}: {error}", served.url);
                Ok(Next::Abort)
            }
        }
    }

    async fn respond(
        &mut self,
        response: &Response,
        mut pieces: Pieces,
        end: End,
        is_http10: bool,
        served: &mut Served,
    ) -> io::Result<Next> {
        let frame = frame::frame(response, is_http10);
        self.output.push(frame.head);
        served.first_byte = Some(self.service.clock.now());
        loop {
            let piece = if pieces.is_ended() { None } else { pieces.next().await };
            let Some(piece) = piece else { break };
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    tracing::warn!("{}: {error}", served.url);
                    self.write().await?;
                    return Ok(Next::Abort);
                }
            };
            served.bytes += piece.len() as u64;
            if frame.framing == Framing::Chunked {
                self.output.push(Bytes::from(format!("{:x}\r\n", piece.len())));
                self.output.push(piece);
                self.output.push(Bytes::from_static(b"\r\n"));
            } else {
                self.output.push(piece);
            }
            if !pieces.is_ended() {
                self.write().await?;
            }
        }
        if frame.framing == Framing::Chunked && end == End::Complete {
            self.output.push(last_chunk(&response.trailers));
        }
        self.write().await?;
        served.last_byte = Some(self.service.clock.now());
        Ok(if frame.closes { Next::Close } else { Next::Request })
    }

    /// Waits until the client closes the connection.
    async fn hold(&mut self) -> io::Result<()> {
        loop {
            self.input.clear();
            self.read_within(None).await?;
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        self.read_within(Some(MAX_IDLE)).await
    }

    async fn read_within(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.input.reserve(READ);
        let read = self.io.read_buf(&mut self.input);
        let count = match limit {
            Some(limit) => timeout(limit, read).await.map_err(|_| io::ErrorKind::TimedOut)??,
            None => read.await?,
        };
        self.arrived = self.service.clock.now();
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    async fn write_one(&mut self, bytes: Bytes) -> io::Result<()> {
        self.output.push(bytes);
        self.write().await
    }

    /// Writes the output.
    async fn write(&mut self) -> io::Result<()> {
        let (io, output) = (&mut self.io, &mut self.output);
        let mut at = 0;
        while at < output.len() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let filled = output.iter().skip(at).zip(&mut slices);
            let count = filled.map(|(bytes, slice)| *slice = IoSlice::new(bytes)).count();
            let slices = slices.get(..count).unwrap_or_default();
            let mut written = std::future::poll_fn(|context| {
                Pin::new(&mut *io).poll_write_vectored(context, slices)
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while let Some(bytes) = output.get_mut(at)
                && (written > 0 || bytes.is_empty())
            {
                let part = written.min(bytes.len());
                bytes.advance(part);
                written -= part;
                at += usize::from(bytes.is_empty());
            }
        }
        output.clear();
        io.flush().await
    }

    /// Refuses a request.
    async fn refuse(&mut self, fault: Fault) -> io::Result<()> {
        let status = match fault {
            Fault::Malformed => "400 Bad Request",
            Fault::TooLong => "431 Request Header Fields Too Large",
            Fault::Coding => "501 Not Implemented",
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.output.clear();
        self.write_one(Bytes::from(head)).await
    }

    /// Closes the connection, and reads what the client still sends.
    async fn close(&mut self) {
        let (time, most) = LINGER;
        let drain = async {
            self.io.shutdown().await?;
            let mut read = 0;
            while read < most {
                self.input.clear();
                self.input.reserve(READ);
                match self.io.read_buf(&mut self.input).await? {
                    0 => break,
                    count => read += count,
                }
            }
            io::Result::Ok(())
        };
        // The connection ends in any case.
        let _ = timeout(time, drain).await;
    }
}

/// The end of a chunked body, with its trailers.
fn last_chunk(trailers: &[HeadField]) -> Bytes {
    if trailers.is_empty() {
        return Bytes::from_static(b"0\r\n\r\n");
    }
    let mut out = BytesMut::from(&b"0\r\n"[..]);
    put_fields(trailers, &mut out);
    out.put_slice(b"\r\n");
    out.freeze()
}

#[cfg(test)]
mod tests;
