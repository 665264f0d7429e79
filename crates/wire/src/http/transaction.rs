//! A request and its response.

use std::borrow::Cow;

use manyways_unit::{Rate, Size, Span, Time};

use super::{Authority, ContentRange, RequestedRange};

/// A request and its response, as far as captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Number of earlier exchanges on the connection.
    pub index: u64,
    /// `None` if only the response was captured: the capture began later, or the server sent a
    /// response without a request before it closed an idle connection.
    pub request: Option<Request>,
    /// `None` if no final response was captured.
    pub response: Option<Response>,
    /// Whether the request began before an earlier response was complete. `None` if the request or
    /// all bytes of the server are missing.
    pub is_pipelined: Option<bool>,
    /// Whether an interim response preceded: 100 (Continue), 103 (Early Hints).
    pub has_interim: bool,
    pub outcome: Outcome,
}

/// A request. Values missing from a truncated header are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// At most 32 characters.
    pub method: Cow<'static, str>,
    /// Authority of the absolute URL, or of the `Host` field.
    pub host: Option<Authority>,
    /// Identifies host and target: the first 8 bytes, big-endian, of the SHA-256 of the host in
    /// lower case and the target without scheme and authority. The query is included, because video
    /// players use one path for all videos and name the video in the query. The port and the
    /// requested range are not included. The hash protects a URL only against readers that cannot
    /// try all likely URLs.
    pub resource: Option<u64>,
    /// The `User-Agent` field, at most [`MAX_USER_AGENT_LENGTH`](super::MAX_USER_AGENT_LENGTH)
    /// characters.
    pub user_agent: Option<Box<str>>,
    /// The requested range.
    pub range: Option<Box<RequestedRange>>,
    /// Time of the first byte.
    pub first: Time,
    /// Time of the last byte captured before the response was complete.
    pub last: Time,
    /// Bytes of header and body up to that time.
    pub length: u64,
    /// Whether the header was truncated or could not be read.
    pub is_truncated: bool,
    /// Whether the end of the request was captured; never true for a truncated header.
    pub is_complete: bool,
}

/// A response. Values missing from a truncated header are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code; `None` if bytes without a known header were captured.
    pub status: Option<u16>,
    /// Type and subtype in lower case, without parameters: at most
    /// [`MAX_CONTENT_TYPE_LENGTH`](super::MAX_CONTENT_TYPE_LENGTH) characters.
    pub content_type: Option<Box<str>>,
    /// Content codings in lower case, for example `gzip`: at most
    /// [`MAX_CONTENT_CODING_LENGTH`](super::MAX_CONTENT_CODING_LENGTH) characters.
    pub coding: Option<Box<str>>,
    /// The value of `Content-Length`, even if the response has no body.
    pub content_length: Option<u64>,
    /// How the body is delimited; `None` if unknown.
    pub framing: Option<Framing>,
    /// Captured part of the body.
    pub body: CapturedBody,
    /// The range that the body contains.
    pub content_range: Option<Box<ContentRange>>,
    /// Time of the first byte of the final response.
    pub first: Time,
    /// Time of the last byte: t′ in section 4 of the paper on campus Wi-Fi.
    pub last: Time,
    /// Number of bytes, including headers, interim responses and framing.
    pub length: u64,
    /// Whether the header was truncated or could not be read.
    pub is_truncated: bool,
}

/// How a body is delimited (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// No body, because of the method or the status code.
    NoBody,
    Length,
    /// By chunks.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// Number of counted bytes of a body, and what they include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedBody {
    /// Content, still coded.
    Content(u64),
    /// Content and chunk framing, which could not be followed.
    Framed(u64),
    /// Body and header, because the end of the header is unknown.
    WithHeader(u64),
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The complete response was captured.
    Complete,
    /// The end of the response is unknown; it is taken to be the start of the next response or the
    /// end of the connection.
    Inferred,
    /// The response ended HTTP on the connection: an upgrade or a tunnel.
    Switched,
    /// The server closed the connection before the end of the response.
    ClosedEarly,
    /// The connection was reset before the end of the response.
    Reset,
    /// The connection was still open at the end of the capture.
    Open,
    /// No byte of the server was captured.
    ServerNotCaptured,
}

/// Statistics of the ended exchanges of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of captured requests, including unfinished ones.
    pub requests: u64,
    /// Number of requests with at least a partial response. The other values are about these.
    pub answered: u64,
    /// Total time from a request to the end of its response: the sum of t′ᵢ − tᵢ. Time in which
    /// several requests were open counts once.
    pub download_time: Span,
    /// Bytes of the responses.
    pub downloaded: Size,
    /// Total time between the end of a response and the next request, without an open request: T_G.
    pub idle_time: Span,
    /// Start of the first request, t₁, with or without a response.
    pub first_request: Option<Time>,
    /// Time of the last byte of a response, t′ₙ.
    pub last_data: Option<Time>,
}

impl Transaction {
    /// From the first byte of the request to the first byte of the response: the application
    /// response time at the capture point.
    pub fn response_time(&self) -> Option<Span> {
        let (request, response) = (self.request.as_ref()?, self.response.as_ref()?);
        Some(response.first.since(request.first))
    }

    /// From the first byte of the request to the last byte of the response.
    pub fn download_time(&self) -> Option<Span> {
        let (request, response) = (self.request.as_ref()?, self.response.as_ref()?);
        Some(response.last.since(request.first))
    }
}

impl CapturedBody {
    /// Length of the content; `None` if unknown.
    pub fn content(self) -> Option<u64> {
        match self {
            Self::Content(length) => Some(length),
            Self::Framed(_) | Self::WithHeader(_) => None,
        }
    }

    /// Number of counted bytes of any kind.
    pub fn byte_count(self) -> u64 {
        let (Self::Content(length) | Self::Framed(length) | Self::WithHeader(length)) = self;
        length
    }
}

impl Summary {
    /// Servicing rate: downloaded bytes divided by the download time. `None` without a download.
    pub fn servicing_rate(&self) -> Option<Rate> {
        (!self.download_time.is_zero()).then(|| Rate::of(self.downloaded, self.download_time))
    }

    /// Counts an ended exchange.
    pub(super) fn add(&mut self, request: Option<&Request>, response: Option<&Response>) {
        let Some(response) = response else { return };
        let before = self.last_data;
        let last = before.map_or(response.last, |before| before.max(response.last));
        self.last_data = Some(last);
        let Some(request) = request else { return };
        let from = before.map_or(request.first, |before| before.max(request.first));
        self.answered += 1;
        self.idle_time += before.map_or(Span::ZERO, |before| request.first.since(before));
        self.download_time += last.since(from);
        let downloaded = self.downloaded.as_bytes().saturating_add(response.length);
        self.downloaded = Size::from_bytes(downloaded);
    }
}
