//! HTTP/2 with faulty ends of streams and connections.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::answer::{Action, CHUNKED, Reply};
use crate::http1::parse_range;
use crate::{ConnectionInfo, PortMode, Server};

/// Length of the connection preface before the client's first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Length of a frame header (RFC 9113, 4.1).
const FRAME_HEAD: usize = 9;
/// Type of a PING frame.
const PING: u8 = 6;
/// An undefined frame type, which every peer must ignore (RFC 9113, 4.1).
const UNKNOWN: u8 = 0xfa;
/// Number of the PING that ends the connection.
const MAX_PINGS: u32 = 3;

/// How the server ends a connection.
enum Goaway {
    /// GOAWAY with this code and nothing else.
    Immediate(Reason),
    /// GOAWAY; open streams continue.
    Graceful,
}

/// Answers requests until one side closes the connection.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    door: ConnectionInfo,
    manner: PortMode,
    server: &Server,
) {
    let (farewell, mut told) = mpsc::unbounded_channel();
    let pings = PingFilter {
        stream,
        manner,
        skip: PREFACE,
        header_offset: 0,
        length: 0,
        count: 0,
        goaway: farewell.clone(),
    };
    let mut builder = h2::server::Builder::new();
    if manner == PortMode::OneStream {
        builder.max_concurrent_streams(1);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(pings).await else { return };
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            Some(goaway) = told.recv() => {
                match goaway {
                    Goaway::Immediate(reason) => {
                        if reason == Reason::ENHANCE_YOUR_CALM {
                            server.log_line(&format!("{} {} calm", door.port, door.link));
                        }
                        connection.abrupt_shutdown(reason);
                    }
                    Goaway::Graceful => connection.graceful_shutdown(),
                }
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let reply =
            server.reply(door, target, header("range").and_then(parse_range), header("if-range"));
        tokio::spawn(send(respond, reply, farewell.clone()));
    }
}

async fn send(
    mut respond: SendResponse<Bytes>,
    reply: Reply,
    farewell: mpsc::UnboundedSender<Goaway>,
) {
    if reply.is_headless {
        match reply.action {
            Action::Reset(reason) => respond.send_reset(reason),
            Action::Stall => std::future::pending().await,
            _ => drop(farewell.send(Goaway::Immediate(Reason::NO_ERROR))),
        }
        return;
    }
    let mut response = http::Response::builder().status(reply.status);
    for (name, value) in reply.headers.iter().filter(|(name, _)| *name != CHUNKED) {
        response = response.header(*name, value);
    }
    if let Some(length) = reply.length {
        response = response.header("content-length", length);
    }
    let head = response.body(()).expect("the table has only fields that can be sent");
    let Ok(mut body) = respond.send_response(head, false) else { return };
    if reply.action == Action::GoAwayGracefully {
        // The receiver is dropped once the connection is closed.
        let _ = farewell.send(Goaway::Graceful);
    }
    if !send_body(&mut body, reply.body.slice(..reply.sent_length)).await {
        return;
    }
    match reply.action {
        Action::Continue | Action::Close | Action::GoAwayGracefully => {
            drop(body.send_data(Bytes::new(), true))
        }
        Action::Reset(reason) => body.send_reset(reason),
        Action::GoAway => {
            let _ = farewell.send(Goaway::Immediate(Reason::ENHANCE_YOUR_CALM));
            std::future::pending().await
        }
        Action::Stall => std::future::pending().await,
    }
}

async fn send_body(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return false;
        };
        if stream.send_data(bytes.split_to(room.min(bytes.len())), false).is_err() {
            return false;
        }
    }
    true
}

/// A connection that counts or changes the PINGs that the client sends.
struct PingFilter<S> {
    stream: S,
    manner: PortMode,
    /// Bytes before the next frame header.
    skip: usize,
    /// Position in the frame header.
    header_offset: usize,
    /// Length of the frame's payload.
    length: usize,
    count: u32,
    goaway: mpsc::UnboundedSender<Goaway>,
}

impl<S> PingFilter<S> {
    fn on_byte(&mut self, byte: &mut u8) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        match self.header_offset {
            0..=2 => self.length = (self.length << 8) | usize::from(*byte),
            3 if *byte == PING => {
                self.count += 1;
                if self.manner == PortMode::CountsPings && self.count == MAX_PINGS {
                    let _ = self.goaway.send(Goaway::Immediate(Reason::ENHANCE_YOUR_CALM));
                }
                if self.manner == PortMode::IgnoresPings {
                    *byte = UNKNOWN;
                }
            }
            _ => {}
        }
        self.header_offset += 1;
        if self.header_offset == FRAME_HEAD {
            self.skip = std::mem::take(&mut self.length);
            self.header_offset = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PingFilter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        for byte in buffer.filled_mut().get_mut(before..).unwrap_or_default() {
            self.on_byte(byte);
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PingFilter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        // With unread data the kernel would reset the connection, and the GOAWAY would be lost.
        let mut bytes = [0; 4096];
        loop {
            let mut rest = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut rest))?;
            if rest.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
