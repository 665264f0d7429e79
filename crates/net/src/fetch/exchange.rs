//! One request and its answer, over HTTP/1.1 or HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use h2::{FlowControl, Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use manyways_proto::fetch::{ContentRange, Fault, FaultClass, Head, Range, Validator};

use super::dial::{Connection, Sender, plain};
use super::late::{Cancelled, Late};
use super::location::Location;
use super::worker::Ask;

/// A chain of redirects may be so long.
const MOST_REDIRECTS: u32 = 10;
/// The body of a redirect is read to keep the connection, if it is no longer than this…
const REDIRECT_BODY: u64 = 64 * 1024;
/// …and comes within this time.
const REDIRECT_TIME: Duration = Duration::from_secs(1);
/// Nobody's default user agent is worth more than this one.
const AGENT: &str = concat!("manyways/", env!("CARGO_PKG_VERSION"));

/// A request that broke off.
pub(super) struct Broken {
    pub(super) fault: Fault,
    /// No byte of an answer had come, so it is safe to send it again.
    pub(super) unanswered: bool,
    /// The connection, where it can still be used.
    pub(super) connection: Option<Connection>,
}

impl Broken {
    pub(super) fn unfit(words: impl Into<String>) -> Self {
        Fault::lasting(FaultClass::Unfit, words).into()
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Self { fault, unanswered: false, connection: None }
    }
}

/// An answer whose body is yet to come.
pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

/// The body of an answer; dropped before its end, it resets the stream or closes the connection.
pub(super) struct Body {
    connection: Option<Connection>,
    incoming: Stream,
    late: Late,
    /// The last piece, which also takes this much of an HTTP/2 stream's window.
    unreleased: usize,
    ended: bool,
}

impl Drop for Body {
    fn drop(&mut self) {
        if !self.ended {
            self.late.add(match &mut self.incoming {
                Stream::Http1(_) => self.unreleased,
                // The last piece, and those that wait behind it.
                Stream::Http2(_, body) => body.flow_control().used_capacity(),
            } as u64);
        }
    }
}

enum Stream {
    Http1(Incoming),
    Http2(Reset, RecvStream),
}

/// Resets an HTTP/2 stream with CANCEL unless its end was seen.
struct Reset(Option<SendStream<Bytes>>, Cancelled);

impl Drop for Reset {
    fn drop(&mut self) {
        if let Some(mut stream) = self.0.take() {
            self.1.up_to(stream.stream_id().as_u32());
            stream.send_reset(Reason::CANCEL);
        }
    }
}

/// Sends the request and waits for the head of the answer.
pub(super) async fn send(mut connection: Connection, ask: &Ask) -> Result<Answer, Broken> {
    let version = match connection.sender {
        Sender::Http1(_) => Version::HTTP_11,
        Sender::Http2(_) => Version::HTTP_2,
    };
    let request = request(ask, version)?;
    let lost = |fault: Fault| Broken { fault, unanswered: true, connection: None };
    let (parts, incoming) = match &mut connection.sender {
        Sender::Http1(sender) => {
            sender.ready().await.map_err(|error| lost(http1_fault(&error)))?;
            let response = sender.send_request(request).await;
            let (parts, body) = response.map_err(|error| lost(http1_fault(&error)))?.into_parts();
            (parts, Stream::Http1(body))
        }
        Sender::Http2(sender) => {
            let mut ready = sender.clone().ready().await.map_err(|e| lost(http2_fault(&e)))?;
            let (response, stream) = ready
                .send_request(request.map(|_| ()), true)
                .map_err(|error| lost(http2_fault(&error)))?;
            let reset = Reset(Some(stream), connection.cancelled.clone());
            let (parts, body) = response.await.map_err(|e| lost(http2_fault(&e)))?.into_parts();
            (parts, Stream::Http2(reset, body))
        }
    };
    let late = connection.late.clone();
    let connection = Some(connection);
    let body = Body { connection, incoming, late, unreleased: 0, ended: false };
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

fn request(ask: &Ask, version: Version) -> Result<Request<Empty<Bytes>>, Fault> {
    let origin = ask.location.origin();
    let authority = origin.authority();
    let uri = match version {
        Version::HTTP_2 => format!("{}://{authority}{}", origin.scheme(), ask.location.target()),
        _ => ask.location.target().to_owned(),
    };
    let mut headers = (*ask.headers).clone();
    if ask.home.origin() == origin {
        for (name, value) in ask.private.iter() {
            headers.append(name.clone(), value.clone());
        }
    }
    let mut set = |name: HeaderName, value: &str| -> Result<(), Fault> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Fault::lasting(FaultClass::Protocol, format!("{name} cannot be sent")))?;
        headers.insert(name, value);
        Ok(())
    };
    if version != Version::HTTP_2 {
        set(header::HOST, &authority)?;
    }
    // Ranges of a compressed body would be ranges of something else.
    set(header::ACCEPT_ENCODING, "identity")?;
    if let Some(Range { start, end }) = ask.range {
        let last = if end == u64::MAX { String::new() } else { (end - 1).to_string() };
        set(header::RANGE, &format!("bytes={start}-{last}"))?;
        if let Some(validator) = &ask.if_range {
            set(header::IF_RANGE, validator.as_str())?;
        }
    }
    for (name, value) in [(header::USER_AGENT, AGENT), (header::ACCEPT, "*/*")] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    let mut request = Request::builder()
        .method(Method::GET)
        .version(version)
        .uri(uri)
        .body(Empty::new())
        .map_err(|_| Fault::lasting(FaultClass::Protocol, "the URL cannot be sent"))?;
    *request.headers_mut() = headers;
    Ok(request)
}

impl Answer {
    /// Where the answer sends us, if it does.
    pub(super) fn redirect(&self) -> Option<String> {
        let moved = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let target = self.headers.get(header::LOCATION).filter(|_| moved)?;
        Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
    }

    /// Reads a short body away, to keep the connection.
    pub(super) async fn skip(self) -> Option<Connection> {
        let mut body = self.body;
        let read = async {
            let mut left = REDIRECT_BODY;
            while let Ok(Some(bytes)) = body.next().await {
                left = left.checked_sub(bytes.len() as u64)?;
                body.release();
            }
            Some(())
        };
        match tokio::time::timeout(REDIRECT_TIME, read).await {
            Ok(Some(())) => body.connection.take(),
            _ => None,
        }
    }

    /// What the head says, and the body.
    pub(super) fn split(self) -> (Head, Body) {
        (head(self.status, &self.headers), self.body)
    }
}

fn head(status: StatusCode, headers: &HeaderMap) -> Head {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(header::CONTENT_LENGTH).and_then(|digits| digits.parse().ok());
    let encoded = text(header::CONTENT_ENCODING).is_some_and(|coding| {
        !coding.trim().is_empty() && !coding.eq_ignore_ascii_case("identity")
    });
    Head {
        status: status.as_u16(),
        length,
        content_range: headers
            .get(header::CONTENT_RANGE)
            .map(|value| ContentRange::parse(value.as_bytes())),
        validator: Validator::choose(
            text(header::ETAG),
            text(header::LAST_MODIFIED),
            text(header::DATE),
        ),
        refuses_ranges: text(header::ACCEPT_RANGES)
            .is_some_and(|units| units.trim().eq_ignore_ascii_case("none")),
        encoded,
    }
}

impl Body {
    /// The next piece, or `None` at the proper end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            match &mut self.incoming {
                Stream::Http1(body) => match body.frame().await {
                    None => {
                        self.ended = true;
                        return Ok(None);
                    }
                    Some(Err(error)) => return Err(http1_fault(&error).into()),
                    Some(Ok(frame)) => {
                        // Trailers say nothing about bytes.
                        if let Ok(bytes) = frame.into_data()
                            && !bytes.is_empty()
                        {
                            self.unreleased = bytes.len();
                            return Ok(Some(bytes));
                        }
                    }
                },
                Stream::Http2(reset, body) => match body.data().await {
                    None => {
                        self.ended = true;
                        reset.0 = None;
                        return Ok(None);
                    }
                    Some(Err(error)) => {
                        let connection = self.connection.take().filter(|_| !error.is_io());
                        let broken = Broken::from(http2_fault(&error));
                        return Err(Broken { connection, ..broken });
                    }
                    Some(Ok(bytes)) => {
                        self.unreleased += bytes.len();
                        if bytes.is_empty() {
                            self.release();
                            continue;
                        }
                        return Ok(Some(bytes));
                    }
                },
            }
        }
    }

    /// The last piece was taken: the server may send as much more.
    pub(super) fn release(&mut self) {
        let piece = std::mem::take(&mut self.unreleased);
        if let Stream::Http2(_, body) = &mut self.incoming {
            let control: &mut FlowControl = body.flow_control();
            // It fails only where the stream is gone, which the next read tells.
            let _ = control.release_capacity(piece);
        }
    }

    /// The connection, after the end of the body.
    pub(super) fn into_connection(mut self) -> Option<Connection> {
        self.connection.take()
    }
}

/// Where a redirect leads.
pub(super) fn follow(from: &Location, target: &str, hops: u32) -> Result<Location, Fault> {
    let unfit = |words: String| Fault::lasting(FaultClass::Unfit, words);
    if hops > MOST_REDIRECTS {
        return Err(unfit(format!("the server redirects more than {MOST_REDIRECTS} times")));
    }
    let to = from
        .join(target)
        .map_err(|error| unfit(format!("the server redirects to an unusable address: {error}")))?;
    if from.origin().secure && !to.origin().secure {
        return Err(unfit(format!("the server redirects from https to {to}, which is not safe")));
    }
    Ok(to)
}

fn http1_fault(error: &hyper::Error) -> Fault {
    let (class, words) = if error.is_parse() {
        (FaultClass::Protocol, "the server does not answer in HTTP/1.1".to_owned())
    } else if error.is_incomplete_message() || error.is_body_write_aborted() {
        (FaultClass::Truncated, "the server closed the connection too early".to_owned())
    } else {
        (FaultClass::Reset, format!("the connection broke: {}", innermost(error)))
    };
    Fault::passing(class, words)
}

fn http2_fault(error: &h2::Error) -> Fault {
    let reason = error.reason();
    let (class, words) = if error.is_go_away() && error.is_remote() {
        let why = reason.filter(|reason| *reason != Reason::NO_ERROR);
        let why = why.map_or_else(String::new, |reason| format!(": {}", reason.description()));
        (FaultClass::GoAway, format!("the server takes no more requests (GOAWAY){why}"))
    } else if let Some(reason) = reason.filter(|_| error.is_remote()) {
        (FaultClass::Reset, format!("the server reset the stream: {}", reason.description()))
    } else if error.is_io() {
        let inner = error.get_io().map(plain).unwrap_or_default();
        (FaultClass::Reset, format!("the connection broke: {inner}"))
    } else {
        (FaultClass::Protocol, format!("the HTTP/2 exchange failed: {error}"))
    };
    Fault::passing(class, words)
}

fn innermost(error: &hyper::Error) -> String {
    let mut last: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.downcast_ref::<std::io::Error>().map_or_else(|| last.to_string(), plain)
}
