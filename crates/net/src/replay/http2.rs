//! Connections of HTTP/2 (RFC 9113).
//!
//! A response whose body is in memory goes to the `h2` crate at once and without a copy; only the windows
//! of the client limit it. The crate takes turns among the streams, one frame of each.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use manyways_model::matching::Request;
use manyways_wire::archive::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_MATCHED_BODY;
use super::contents::{End, Pieces};
use super::head::{Head, to_map};
use super::http1::MAX_HEAD;
use super::log::Served;
use super::responder::{Content, Reply, Response};
use super::service::{Peer, Service};

/// Streams of a connection that a client may open at a time.
pub const MAX_STREAMS: u32 = 256;
/// Window for the body of a request.
const STREAM_WINDOW: u32 = 1 << 20;
/// Window for the bodies of all requests of a connection.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Pieces of a long body that the connection has not sent.
const PIECES_AHEAD: u32 = 4;

/// Bytes on their way to a client.
struct Piece {
    bytes: Bytes,
    /// In the last piece of a response: its entry in the log.
    entry: Option<Box<Entry>>,
    /// Free when the piece is sent.
    _permit: Option<OwnedSemaphorePermit>,
}

/// An entry that is added to the log when it is dropped: with the last byte of its response.
struct Entry {
    service: Arc<Service>,
    served: Option<Served>,
}

/// Serves a connection until its end.
pub(super) async fn serve<S>(service: &Arc<Service>, peer: &Peer, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32);
    let mut connection = match builder.handshake::<S, Piece>(io).await {
        Ok(connection) => connection,
        Err(error) => return tracing::debug!("connection {}: {error}", peer.number),
    };
    while let Some(accepted) = connection.accept().await {
        let (request, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => return tracing::debug!("connection {}: {error}", peer.number),
        };
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            let (reply, entry) = decide(service, peer, &parts, &[]);
            // Most responses need no task.
            if let Some((reply, entry, stream)) = answer_at_once(reply, entry, stream) {
                tokio::spawn(answer(reply, entry, stream));
            }
        } else {
            tokio::spawn(exchange(service.clone(), *peer, parts, body, stream));
        }
    }
}

/// Reads the body of a request, and answers it.
async fn exchange(
    service: Arc<Service>,
    peer: Peer,
    parts: http::request::Parts,
    mut body: RecvStream,
    mut stream: SendResponse<Piece>,
) {
    let expects = parts.headers.get("expect").is_some_and(|value| value == "100-continue");
    if expects && let Ok(interim) = http::Response::builder().status(100).body(()) {
        // A stream that was reset fails below.
        let _ = stream.send_informational(interim);
    }
    let mut kept = Vec::new();
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { return };
        let room = MAX_MATCHED_BODY - kept.len();
        kept.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
        if body.flow_control().release_capacity(piece.len()).is_err() {
            return;
        }
    }
    let (reply, entry) = decide(&service, &peer, &parts, &kept);
    answer(reply, entry, stream).await;
}

fn decide(
    service: &Arc<Service>,
    peer: &Peer,
    parts: &http::request::Parts,
    body: &[u8],
) -> (Reply, Entry) {
    let at = service.clock.now();
    let uri = &parts.uri;
    let fields: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let host = || parts.headers.get("host")?.to_str().ok();
    let authority = uri.authority().map(|authority| authority.as_str()).or_else(host);
    let request = Request {
        method: parts.method.as_str(),
        scheme: uri.scheme_str().unwrap_or(peer.scheme),
        authority: authority.unwrap_or_default(),
        path: uri.path().as_bytes(),
        query: uri.query().map(str::as_bytes),
        fields: &fields,
        body,
        connection: Some(peer.number),
    };
    let (reply, served) = service.decide(peer, &request, Protocol::Http2, at);
    (reply, Entry { service: service.clone(), served: Some(served) })
}

/// Sends a response that is complete, in memory and due. Returns any other.
fn answer_at_once(
    reply: Reply,
    entry: Entry,
    mut stream: SendResponse<Piece>,
) -> Option<(Reply, Entry, SendResponse<Piece>)> {
    let is_due = reply.think.is_zero() && reply.interim.is_empty() && reply.end == End::Complete;
    let Some(response) = reply.response.as_ref().filter(|_| is_due) else {
        return Some((reply, entry, stream));
    };
    let contents = entry.service.responder.contents();
    let ready = match &response.content {
        Content::None => Some(Bytes::new()),
        Content::Text(text) => Some(text.clone()),
        Content::Recorded { exchange, range } => {
            contents.ready_pieces(*exchange, range).and_then(|pieces| pieces.as_whole())
        }
    };
    let Some(bytes) = ready else { return Some((reply, entry, stream)) };
    // An error means that the stream was reset, or the connection ended.
    let _ = send_whole(response, bytes, entry, &mut stream);
    None
}

/// Sends a complete response.
fn send_whole(
    response: &Response,
    bytes: Bytes,
    mut entry: Entry,
    stream: &mut SendResponse<Piece>,
) -> Result<(), h2::Error> {
    let has_trailers = !response.trailers.is_empty();
    entry.begin();
    let mut sending =
        stream.send_response(message(&response.head)?, bytes.is_empty() && !has_trailers)?;
    if bytes.is_empty() {
        entry.end();
        drop(entry);
    } else {
        sending.send_data(Piece::last(bytes, entry), !has_trailers)?;
    }
    if has_trailers {
        sending.send_trailers(to_map(response.trailers.iter()))?;
    }
    Ok(())
}

/// Sends interim responses and the response at their times.
async fn answer(reply: Reply, entry: Entry, mut stream: SendResponse<Piece>) {
    // An error means that the stream was reset, or the connection ended.
    let _ = try_answer(reply, entry, &mut stream).await;
}

async fn try_answer(
    reply: Reply,
    mut entry: Entry,
    stream: &mut SendResponse<Piece>,
) -> Result<(), h2::Error> {
    let service = entry.service.clone();
    let start = entry.at();
    let Some(response) = &reply.response else {
        service.alarm.until(start + reply.think).await;
        if reply.end == End::Open {
            let _ = poll_fn(|context| stream.poll_reset(context)).await;
        }
        stream.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    };
    let interim = async {
        for (after, head) in reply.interim.iter().filter(|(_, head)| head.status != 100) {
            service.alarm.until(start + *after).await;
            stream.send_informational(message(head)?)?;
        }
        Ok::<(), h2::Error>(())
    };
    let (pieces, sent) = tokio::join!(service.open(&response.content), interim);
    sent?;
    let mut pieces = match pieces {
        Ok(pieces) => pieces,
        Err(error) => {
            tracing::warn!("{}: {error}", entry.url());
            stream.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        }
    };
    service.alarm.until(start + reply.think).await;
    match (pieces.as_whole(), reply.end) {
        (Some(bytes), End::Complete) => send_whole(response, bytes, entry, stream),
        _ => {
            entry.begin();
            let sending = stream.send_response(message(&response.head)?, false)?;
            send_pieces(response, &mut pieces, reply.end, entry, sending).await
        }
    }
}

/// Sends a body in pieces, a few at a time, or one that does not end regularly.
async fn send_pieces(
    response: &Response,
    pieces: &mut Pieces,
    end: End,
    mut entry: Entry,
    mut sending: SendStream<Piece>,
) -> Result<(), h2::Error> {
    let permits = Arc::new(Semaphore::new(PIECES_AHEAD as usize));
    let has_trailers = !response.trailers.is_empty();
    let mut left = response.length;
    let mut is_broken = false;
    while left > 0
        && let Some(piece) = pieces.next().await
    {
        let bytes = match piece {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!("{}: {error}", entry.url());
                is_broken = true;
                break;
            }
        };
        // The semaphore is never closed.
        let permit = permits.clone().acquire_owned().await.ok();
        left = left.saturating_sub(bytes.len() as u64);
        entry.count(bytes.len());
        let is_last = left == 0 && end == End::Complete;
        if is_last {
            let mut piece = Piece::last(Bytes::new(), entry);
            piece.bytes = bytes;
            sending.send_data(piece, !has_trailers)?;
            if has_trailers {
                sending.send_trailers(to_map(response.trailers.iter()))?;
            }
            return Ok(());
        }
        sending.send_data(Piece { bytes, entry: None, _permit: permit }, false)?;
    }
    // A reset would discard the pieces that are not sent.
    let _ = permits.acquire_many(PIECES_AHEAD).await;
    if !is_broken && left == 0 {
        entry.end();
    }
    drop(entry);
    if end == End::Open && !is_broken {
        let _ = poll_fn(|context| sending.poll_reset(context)).await;
    }
    sending.send_reset(Reason::INTERNAL_ERROR);
    Ok(())
}

/// The head of a response, final or interim.
fn message(head: &Head) -> Result<http::Response<()>, h2::Error> {
    let mut message = http::Response::new(());
    // Archives have no other numbers.
    *message.status_mut() =
        http::StatusCode::from_u16(head.status).map_err(|_| Reason::INTERNAL_ERROR)?;
    *message.headers_mut() = head.http2();
    Ok(message)
}

impl Piece {
    /// The last piece of a response.
    fn last(bytes: Bytes, mut entry: Entry) -> Self {
        entry.count(bytes.len());
        Self { bytes, entry: Some(Box::new(entry)), _permit: None }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.sent(self.bytes.len());
        }
    }
}

impl Entry {
    fn at(&self) -> manyways_unit::Time {
        self.served.as_ref().map(|served| served.at).unwrap_or_default()
    }

    fn url(&self) -> &str {
        self.served.as_ref().map_or("", |served| &served.url)
    }

    fn begin(&mut self) {
        let now = self.service.clock.now();
        self.change(|served| served.first_byte = Some(now));
    }

    fn count(&mut self, bytes: usize) {
        self.change(|served| served.bytes += bytes as u64);
    }

    /// The last byte is sent.
    fn end(&mut self) {
        let now = self.service.clock.now();
        self.change(|served| served.last_byte = Some(now));
    }

    /// The last piece is gone, without these bytes.
    fn sent(&mut self, unsent: usize) {
        if unsent == 0 {
            self.end();
        } else {
            self.change(|served| served.bytes -= unsent as u64);
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Served)) {
        self.served.as_mut().map(change);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(served) = self.served.take() {
            self.service.log.add(served);
        }
    }
}

#[cfg(test)]
mod tests;
