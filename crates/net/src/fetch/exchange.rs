//! One request and its response, over HTTP/1.1 or HTTP/2.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use h2::{FlowControl, Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use manyways_proto::fetch::{
    ContentRange, Head, PathError, PathErrorKind, Range, RedirectConfig, RedirectError, Redirects,
    Scheme, Validator, parse_http_date, parse_retry_after,
};
use manyways_unit::{Size, Span, Time};
use tokio::sync::Notify;

use super::dial::{Connection, MAX_FIELDS, MAX_HEAD, Sender};
use super::digest;
use super::discarded::{CancelledStreams, DiscardedBytes};
use super::location::{Location, escape_bytes};
use super::worker::{Answer, RequestParams};
use crate::path::plain;

/// Digest of the whole object, also in the response to a range request (RFC 9530 §3).
/// `Content-Digest` would be the digest of the part.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Default `User-Agent`; a configured header takes precedence.
const DEFAULT_USER_AGENT: &str = concat!("manyways/", env!("CARGO_PKG_VERSION"));

/// A failed request.
pub(super) struct RequestError {
    pub(super) error: PathError,
    /// Whether no byte of a response had arrived, so that the request can be repeated.
    pub(super) is_retryable: bool,
    /// The connection; `None` if it is no longer usable.
    pub(super) connection: Option<Connection>,
}

impl From<PathError> for RequestError {
    fn from(error: PathError) -> Self {
        Self { error, is_retryable: false, connection: None }
    }
}

/// A response whose body has not been read.
pub(super) struct PendingResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

/// The body of a response. If dropped before its end, it resets the stream or closes the
/// connection.
pub(super) struct Body {
    connection: Option<Connection>,
    incoming: Stream,
    discarded: DiscardedBytes,
    credit: Credit,
    /// Bytes that were read.
    read: usize,
    /// Length of the last piece until the transfer has taken it.
    undelivered: usize,
    ended: bool,
}

/// The credit that the server of an HTTP/2 stream has, granted by the core.
#[derive(Clone, Default)]
pub(super) struct Credit(Arc<Mutex<CreditState>>, Arc<Notify>);

#[derive(Default)]
struct CreditState {
    /// `None` before the response, and for HTTP/1.1.
    control: Option<FlowControl>,
    bytes: usize,
    /// Whether at most `bytes` are read, for HTTP/1.1.
    is_limited: bool,
}

impl Credit {
    /// Creates the credit of an HTTP/1.1 response, which has no flow control: the body is read only
    /// up to the credit, and TCP delays the server.
    pub(super) fn limited() -> Self {
        let credit = Self::default();
        credit.lock().is_limited = true;
        credit
    }

    /// Waits until more than `read` bytes may be read.
    async fn wait_past(&self, read: usize) {
        loop {
            {
                let granted = self.lock();
                if !granted.is_limited || granted.bytes > read {
                    return;
                }
            }
            self.1.notified().await;
        }
    }

    /// Lets the server send `bytes` more bytes. In total, at most the number of read bytes is
    /// granted.
    pub(super) fn grant(&self, bytes: usize) {
        let mut granted = self.lock();
        if granted.is_limited && granted.control.is_none() {
            granted.bytes = granted.bytes.saturating_add(bytes);
            self.1.notify_one();
            return;
        }
        if let Some(control) = &mut granted.control
            // This fails only if the stream has ended, which the next read reports.
            && control.release_capacity(bytes).is_ok()
        {
            granted.bytes += bytes;
        }
    }

    /// Makes h2 send pending credit. h2 sends a WINDOW_UPDATE only if the pending credit is at
    /// least half of the server's remaining window, and checks this only during calls. Without this
    /// call, earlier credit would never be sent.
    fn flush_window_update(&self) {
        if let Some(control) = &mut self.lock().control {
            let _ = control.release_capacity(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CreditState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let waiting = match &mut self.incoming {
            Stream::Http1(_) => 0,
            // Read bytes count as used capacity until they are granted again.
            Stream::Http2(_, body) => {
                let withheld = self.read.saturating_sub(self.credit.lock().bytes);
                body.flow_control().used_capacity().saturating_sub(withheld)
            }
        };
        self.discarded.add((self.undelivered + waiting) as u64);
    }
}

enum Stream {
    Http1(Incoming),
    Http2(ResetOnDrop, RecvStream),
}

/// Resets an HTTP/2 stream with CANCEL unless its end was received.
struct ResetOnDrop(Option<SendStream<Bytes>>, CancelledStreams);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        if let Some(mut stream) = self.0.take() {
            self.1.add(stream.stream_id().as_u32());
            stream.send_reset(Reason::CANCEL);
        }
    }
}

/// Sends the request and waits for the response head.
pub(super) async fn send(
    mut connection: Connection,
    ask: &RequestParams,
) -> Result<PendingResponse, RequestError> {
    let version = match connection.sender {
        Sender::Http1(_) => Version::HTTP_11,
        Sender::Http2(_) => Version::HTTP_2,
    };
    let request = request(ask, version)?;
    let lost = |fault: PathError| {
        // The core connects the path again, with another HTTP version.
        let is_retryable = fault.kind != PathErrorKind::Http1Required;
        RequestError { error: fault, is_retryable, connection: None }
    };
    let (parts, incoming) = match &mut connection.sender {
        Sender::Http1(sender) => {
            sender.ready().await.map_err(|error| lost(http1_error(&error)))?;
            let response = sender.send_request(request).await;
            let (parts, body) = response.map_err(|error| lost(http1_error(&error)))?.into_parts();
            (parts, Stream::Http1(body))
        }
        Sender::Http2(sender) => {
            let sender = sender.clone();
            let failed = |error: h2::Error| lost(http2_failure(&connection, &error));
            let mut ready = sender.ready().await.map_err(failed)?;
            let (response, stream) =
                ready.send_request(request.map(|_| ()), true).map_err(failed)?;
            let reset = ResetOnDrop(Some(stream), connection.cancelled_streams.clone());
            let response = response.await.map_err(|error| match rejected_head(&error) {
                Some(fault) => RequestError::from(fault),
                None => failed(error),
            })?;
            let (parts, body) = response.into_parts();
            (parts, Stream::Http2(reset, body))
        }
    };
    let discarded = connection.discarded.clone();
    let connection = Some(connection);
    let credit = ask.credit.clone();
    let mut body =
        Body { connection, incoming, discarded, credit, read: 0, undelivered: 0, ended: false };
    if let Stream::Http2(_, stream) = &mut body.incoming {
        let control = Some(stream.flow_control().clone());
        *body.credit.lock() = CreditState { control, bytes: 0, is_limited: false };
    }
    Ok(PendingResponse { status: parts.status, headers: parts.headers, body })
}

fn request(ask: &RequestParams, version: Version) -> Result<Request<Empty<Bytes>>, PathError> {
    let origin = ask.location.origin();
    let authority = origin.authority();
    let uri = match version {
        Version::HTTP_2 => format!("{}://{authority}{}", origin.scheme(), ask.location.target()),
        _ => ask.location.target().to_owned(),
    };
    let mut headers = (*ask.headers).clone();
    if ask.original.origin() == origin {
        for (name, value) in ask.private_headers.iter() {
            headers.append(name.clone(), value.clone());
        }
    }
    let mut set = |name: HeaderName, value: &str| -> Result<(), PathError> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            PathError::permanent(PathErrorKind::Protocol, format!("{name} cannot be sent"))
        })?;
        headers.insert(name, value);
        Ok(())
    };
    if version != Version::HTTP_2 {
        set(header::HOST, &authority)?;
    }
    // Ranges of a compressed body would not be ranges of the object.
    set(header::ACCEPT_ENCODING, "identity")?;
    if let Some(Range { start, end }) = ask.range {
        let last = if end == u64::MAX { String::new() } else { (end - 1).to_string() };
        set(header::RANGE, &format!("bytes={start}-{last}"))?;
        if let Some(validator) = &ask.if_range {
            set(header::IF_RANGE, validator.as_str())?;
        }
    }
    for (name, value) in [(header::USER_AGENT, DEFAULT_USER_AGENT), (header::ACCEPT, "*/*")] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    let mut request = Request::builder()
        .method(Method::GET)
        .version(version)
        .uri(uri)
        .body(Empty::new())
        .map_err(|_| PathError::permanent(PathErrorKind::Protocol, "the URL cannot be sent"))?;
    *request.headers_mut() = headers;
    Ok(request)
}

impl PendingResponse {
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// Target of a redirect; `None` if the response is not a redirect.
    pub(super) fn redirect(&self) -> Option<String> {
        let moved = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let target = self.headers.get(header::LOCATION).filter(|_| moved)?;
        Some(escape_bytes(target.as_bytes()))
    }

    /// Reads and discards a short body in order to keep the connection; `None` if the body is too
    /// long or too slow.
    pub(super) async fn drain(self, config: &RedirectConfig) -> Option<Connection> {
        let mut body = self.body;
        let read = async {
            let mut remaining = config.max_body.as_bytes();
            while let Ok(Some(bytes)) = body.next().await {
                remaining = remaining.checked_sub(bytes.len() as u64)?;
                body.on_delivered();
                body.credit.grant(bytes.len());
            }
            Some(())
        };
        match tokio::time::timeout(config.max_body_time.into(), read).await {
            Ok(Some(())) => body.connection.take(),
            _ => None,
        }
    }

    /// Returns the head and the body.
    pub(super) fn into_parts(self, ask: &RequestParams) -> (Answer, Body) {
        let lines: Vec<&[u8]> =
            self.headers.get_all(REPR_DIGEST).iter().map(HeaderValue::as_bytes).collect();
        let other_host = ask.location.other_host(&ask.original).map(str::to_owned);
        let head = Head { other_host, ..head(self.status, &self.headers) };
        let announced = digest::parse(&lines.join(&b", "[..]));
        let location = Arc::clone(&ask.location);
        (Answer { head, headers: self.headers, location, announced }, self.body)
    }
}

fn head(status: StatusCode, headers: &HeaderMap) -> Head {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // The entity tag may contain any byte above 127 (RFC 9110 §8.8.3).
    let etag = headers.get(header::ETAG).and_then(|tag| std::str::from_utf8(tag.as_bytes()).ok());
    let encoded = text(header::CONTENT_ENCODING).is_some_and(|coding| {
        !coding.trim().is_empty() && !coding.eq_ignore_ascii_case("identity")
    });
    // The first part of the value is the media type.
    let is_page = text(header::CONTENT_TYPE)
        .and_then(|value| value.split(';').next())
        .is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("text/html"));
    let mut directives = headers.get_all(header::CACHE_CONTROL).iter();
    let must_not_be_stored = directives.any(|value| {
        let mut directives = value.as_bytes().split(|byte| *byte == b',');
        directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-store"))
    });
    Head {
        status: status.as_u16(),
        length: content_length(headers),
        content_range: headers
            .get(header::CONTENT_RANGE)
            .map(|value| ContentRange::parse(value.as_bytes())),
        validator: Validator::choose(etag, text(header::LAST_MODIFIED), text(header::DATE)),
        refuses_ranges: text(header::ACCEPT_RANGES)
            .is_some_and(|units| units.trim().eq_ignore_ascii_case("none")),
        is_encoded: encoded,
        retry_after: text(header::RETRY_AFTER).and_then(|value| {
            let date = text(header::DATE).and_then(parse_http_date);
            parse_retry_after(value, date.unwrap_or_else(system_time))
        }),
        is_redirected: false,
        other_host: None,
        is_uncacheable_page: is_page && must_not_be_stored,
    }
}

/// Reads the length of the body. The same length may occur several times (RFC 9110 §8.6), and
/// `Transfer-Encoding` takes precedence over it (RFC 9112 §6.3).
fn content_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    let fields = headers.get_all(header::CONTENT_LENGTH).iter();
    let values = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    let mut lengths = values.map(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    let length = lengths.next()??;
    lengths.all(|other| other == Some(length)).then_some(length)
}

/// Time since 1970.
#[expect(clippy::disallowed_methods, reason = "a date of a server is compared with the calendar")]
fn system_time() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Time::ZERO + since.map_or(Span::ZERO, Span::from)
}

impl Body {
    /// Returns the next piece; `None` at the proper end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            match &mut self.incoming {
                Stream::Http1(body) => {
                    self.credit.wait_past(self.read).await;
                    match body.frame().await {
                        None => {
                            self.ended = true;
                            return Ok(None);
                        }
                        Some(Err(error)) => return Err(http1_error(&error).into()),
                        Some(Ok(frame)) => {
                            // Trailers contain no bytes of the object.
                            if let Ok(bytes) = frame.into_data()
                                && !bytes.is_empty()
                            {
                                self.read += bytes.len();
                                self.undelivered = bytes.len();
                                return Ok(Some(bytes));
                            }
                        }
                    }
                }
                Stream::Http2(reset, body) => match body.data().await {
                    None => {
                        self.ended = true;
                        reset.0 = None;
                        return Ok(None);
                    }
                    Some(Err(error)) => {
                        let held = self.connection.take();
                        let fault = match &held {
                            Some(connection) => http2_failure(connection, &error),
                            None => http2_error(&error),
                        };
                        let connection = held.filter(|_| !error.is_io());
                        return Err(RequestError { connection, ..RequestError::from(fault) });
                    }
                    Some(Ok(bytes)) => {
                        self.credit.flush_window_update();
                        if bytes.is_empty() {
                            continue;
                        }
                        self.read += bytes.len();
                        self.undelivered = bytes.len();
                        return Ok(Some(bytes));
                    }
                },
            }
        }
    }

    /// Notes that the transfer has taken the last piece.
    pub(super) fn on_delivered(&mut self) {
        self.undelivered = 0;
    }

    /// Returns the connection after the end of the body.
    pub(super) fn into_connection(mut self) -> Option<Connection> {
        self.connection.take()
    }
}

/// Returns the target of a redirect if it is followed.
pub(super) fn follow_redirect(
    from: &Location,
    target: &str,
    redirects: &mut Redirects,
) -> Result<Location, PathError> {
    let unfit = |words: String| PathError::permanent(PathErrorKind::UnusableResponse, words);
    let to = from
        .join(target)
        .map_err(|error| unfit(format!("the server redirects to an unusable address: {error}")))?;
    let scheme = |location: &Location| match location.origin().secure {
        true => Scheme::Https,
        false => Scheme::Http,
    };
    match redirects.follow(scheme(from), scheme(&to)) {
        Ok(()) => Ok(to),
        Err(RedirectError::TooMany(most)) => {
            Err(unfit(format!("the server redirects more than {most} times")))
        }
        Err(RedirectError::Downgrade) => {
            let words = format!("the server redirects from https to {to}, which is not safe");
            Err(PathError::permanent(PathErrorKind::Downgrade, words))
        }
    }
}

fn http1_error(error: &hyper::Error) -> PathError {
    // hyper has a method for this error only with its server.
    if error.is_parse() && error.to_string() == "message head is too large" {
        let limit = Size::from_bytes(MAX_HEAD.into());
        let words = format!(
            "the response head is larger than {limit} or has more than {MAX_FIELDS} fields"
        );
        return PathError::permanent(PathErrorKind::UnusableResponse, words);
    }
    let (class, words) = if error.is_parse() {
        (PathErrorKind::Protocol, "the server does not answer in HTTP/1.1".to_owned())
    } else if error.is_incomplete_message() || error.is_body_write_aborted() {
        (PathErrorKind::Truncated, "the server closed the connection too early".to_owned())
    } else if error.is_closed() || error.is_canceled() {
        (PathErrorKind::Reset, "the connection was closed before the request".to_owned())
    } else {
        (PathErrorKind::Reset, format!("the connection broke: {}", innermost_message(error)))
    };
    PathError::transient(class, words)
}

/// The error of a response head that h2 does not accept; `None` for other errors.
fn rejected_head(error: &h2::Error) -> Option<PathError> {
    let limit = Size::from_bytes(MAX_HEAD.into());
    let words = match error.reason().filter(|_| error.is_library())? {
        // h2 does not distinguish a head that is too large from other violations.
        Reason::PROTOCOL_ERROR if error.is_reset() => {
            format!("the response head violates HTTP/2 or is larger than {limit}")
        }
        Reason::ENHANCE_YOUR_CALM if !is_of_head(error) => return None,
        Reason::ENHANCE_YOUR_CALM | Reason::COMPRESSION_ERROR => {
            format!("the response head is larger than {limit} or consists of too many frames")
        }
        _ => return None,
    };
    Some(PathError::permanent(PathErrorKind::UnusableResponse, words))
}

/// Whether h2 ends the connection because of a head, and not because of many other frames. h2 has no
/// method for this.
fn is_of_head(error: &h2::Error) -> bool {
    let words = error.to_string();
    ["header_list_way_too_large", "too_many_continuations"].iter().any(|why| words.contains(why))
}

/// The error of an exchange, which is another one if the server has refused HTTP/2.
fn http2_failure(connection: &Connection, error: &h2::Error) -> PathError {
    connection.http1_origins.observe(&connection.origin, error);
    if connection.http1_origins.contains(&connection.origin) {
        let words = "the server requires HTTP/1.1 instead of HTTP/2";
        return PathError::transient(PathErrorKind::Http1Required, words);
    }
    http2_error(error)
}

fn http2_error(error: &h2::Error) -> PathError {
    let reason = error.reason();
    let (class, words) = if error.is_remote() && reason == Some(Reason::ENHANCE_YOUR_CALM) {
        (
            PathErrorKind::EnhanceYourCalm,
            "the server asks for fewer frames (ENHANCE_YOUR_CALM)".to_owned(),
        )
    } else if error.is_go_away() && error.is_remote() {
        let why = reason.filter(|reason| *reason != Reason::NO_ERROR);
        let why = why.map_or_else(String::new, |reason| format!(": {}", reason.description()));
        (PathErrorKind::GoAway, format!("the server takes no more requests (GOAWAY){why}"))
    } else if error.is_remote() && reason == Some(Reason::REFUSED_STREAM) {
        let words = "the server refused to process the request (REFUSED_STREAM)".to_owned();
        (PathErrorKind::RefusedStream, words)
    } else if let Some(reason) = reason.filter(|_| error.is_remote()) {
        (PathErrorKind::Reset, format!("the server reset the stream: {}", reason.description()))
    } else if error.is_io() {
        let inner = error.get_io().map(plain).unwrap_or_default();
        (PathErrorKind::Reset, format!("the connection broke: {inner}"))
    } else if let Some(reason) = reason {
        let words = format!("the server breaks the rules of HTTP/2 ({})", reason.description());
        (PathErrorKind::Protocol, words)
    } else {
        (PathErrorKind::Protocol, format!("the HTTP/2 exchange failed: {error}"))
    };
    PathError::transient(class, words)
}

fn innermost_message(error: &hyper::Error) -> String {
    let mut last: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.downcast_ref::<std::io::Error>().map_or_else(|| last.to_string(), plain)
}
