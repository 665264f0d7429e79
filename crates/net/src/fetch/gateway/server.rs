//! Connections of players: HTTP/1.1, and HTTP/2 with its preface on the same port.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Shared;

/// Open connections of players; further ones wait to be accepted.
pub const MAX_CONNECTIONS: usize = 64;
/// Length of the head of a request.
pub const MAX_REQUEST_HEAD: usize = 32 << 10;
/// Fields of the head of a request over HTTP/1.1.
pub const MAX_REQUEST_FIELDS: usize = 100;
/// Time that a connection of HTTP/1.1 may be without a request, or take for the head of one.
pub const MAX_IDLE: Duration = Duration::from_secs(90);
/// Requests at a time on a connection of HTTP/2.
const MAX_STREAMS: u32 = 32;
/// Bytes of a response that a connection of HTTP/2 buffers for each stream.
const MAX_SEND_BUFFER: usize = 256 << 10;
/// The first bytes of a connection of HTTP/2. No method of HTTP/1.1 begins like them (RFC 9113, 3.4).
const PREFACE: [u8; 4] = *b"PRI ";
/// Wait after a failed `accept`, which fails while descriptors are short.
const RETRY: Duration = Duration::from_millis(20);

/// Accepts connections for ever. They end with this future.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let permit = Arc::clone(&permits).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("no connection was accepted: {error}");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if let Err(error) = serve_one(shared, stream).await {
                tracing::debug!("a connection of a player ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn serve_one(shared: Arc<Shared>, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let is_http2 = timeout(MAX_IDLE, begins_with_preface(&stream)).await??;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let stream = TokioIo::new(stream);
    let served = match is_http2 {
        true => {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_REQUEST_HEAD as u32)
                .max_send_buf_size(MAX_SEND_BUFFER)
                .serve_connection(stream, service)
                .await
        }
        false => {
            hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(MAX_IDLE)
                .max_headers(MAX_REQUEST_FIELDS)
                .max_buf_size(MAX_REQUEST_HEAD)
                .serve_connection(stream, service)
                .await
        }
    };
    served.map_err(io::Error::other)
}

/// Whether a client begins with HTTP/2, without reading its bytes.
async fn begins_with_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut start).await?;
        if count == 0 || start[..count] != PREFACE[..count] {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // A peek at bytes that are there already is ready at once.
        tokio::time::sleep(RETRY).await;
    }
}
