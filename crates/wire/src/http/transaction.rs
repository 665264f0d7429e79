//! A request and what was answered to it.

use std::borrow::Cow;

use manyways_unit::{Rate, Size, Span, Time};

use super::{Asked, Authority, ContentRange};

/// A request and its answer, as far as they passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// How many came before it on its connection.
    pub index: u64,
    /// None where the answer passed and no request to it, as when the capture began later, or
    /// when a server closes an idle connection with a word.
    pub request: Option<Request>,
    /// None where nothing of one passed, interim ones aside.
    pub response: Option<Response>,
    /// The request began before an earlier one was answered whole. None where that cannot be
    /// known: of a request that did not pass, and where nothing of the server did.
    pub is_pipelined: Option<bool>,
    /// An interim answer came before: 100 (Continue), 103 (Early Hints).
    pub has_interim: bool,
    /// How it ended.
    pub ending: Ending,
}

/// What was asked. What a cut head does not say is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method, at most 32 letters.
    pub method: Cow<'static, str>,
    /// Whom it is for, by its absolute URL or else by its `Host` field.
    pub host: Option<Authority>,
    /// A number that is the same for what has the same host and target: the first 8 bytes, the
    /// most significant first, of the SHA-256 of the host in lower case and the target from its
    /// path on. The query counts, since players ask for all videos by one path and name the video
    /// in the query; which bytes of it a flow fetches is in the `Range` field. The port does not.
    /// It hides a URL no better than the number of URLs that a reader can try.
    pub resource: Option<u64>,
    /// What the client calls itself: at most [`AGENT_LIMIT`](super::AGENT_LIMIT) letters.
    pub agent: Option<Box<str>>,
    /// Which part it wants.
    pub range: Option<Box<Asked>>,
    /// When its first byte passed.
    pub first: Time,
    /// When its last byte passed, of those that passed until it was answered whole.
    pub last: Time,
    /// Its bytes until then, head and body.
    pub length: u64,
    /// Its head was not all there, or could not be read.
    pub is_cut: bool,
    /// It passed up to its end. Never known of a cut one.
    pub is_whole: bool,
}

/// What was answered. What a cut head does not say is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, 200 say; none where bytes passed of which no head is known.
    pub status: Option<u16>,
    /// Type and subtype in lower case, without parameters: at most
    /// [`CONTENT_TYPE_LIMIT`](super::CONTENT_TYPE_LIMIT) letters.
    pub content_type: Option<Box<str>>,
    /// The content's codings in lower case, `gzip` say: at most
    /// [`CODING_LIMIT`](super::CODING_LIMIT) letters.
    pub coding: Option<Box<str>>,
    /// The length that it declares, also where no body may follow.
    pub declared: Option<u64>,
    /// What says where its body ends; none where that could not be read.
    pub framing: Option<Framing>,
    /// How much of its body passed.
    pub seen: Seen,
    /// Which part of the whole it is.
    pub content_range: Option<Box<ContentRange>>,
    /// When its first byte passed, not that of an interim answer before it.
    pub first: Time,
    /// When its last byte passed: t′ of the paper on campus Wi-Fi (section 4).
    pub last: Time,
    /// All its bytes, of heads, interim answers and framing, too.
    pub length: u64,
    /// Its head was not all there, or could not be read.
    pub is_cut: bool,
}

/// What says where a body ends (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// There is none, by the method or the status.
    Bodiless,
    /// `Content-Length`.
    Length,
    /// Its chunks.
    Chunked,
    /// The end of the connection.
    Close,
}

/// How much of a body passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// So many bytes of its content, as it is coded.
    Content(u64),
    /// So many bytes of chunks with their framing, which could not be followed.
    Framed(u64),
    /// So many with the head, whose end is not known.
    WithHead(u64),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// The answer passed up to its end.
    Whole,
    /// The answer's end is not known: it was taken for what passed until the next began, or until
    /// the connection ended.
    Guessed,
    /// The answer ends HTTP on this connection: an upgrade, or a tunnel.
    Switched,
    /// The server closed before.
    Early,
    /// The connection was reset before.
    Reset,
    /// The connection went on when the capture ended.
    Open,
    /// Nothing of the server passed here.
    Unseen,
}

/// What the transactions of a connection add up to: those that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many requests passed, those included that have not ended.
    pub requests: u64,
    /// How many of them were answered, at least in part. What follows is of these.
    pub answered: u64,
    /// How long something was asked for and not there yet: the sum of t′ᵢ − tᵢ. Time in which more
    /// than one request was open counts once.
    pub downloading: Span,
    /// The bytes of their answers.
    pub downloaded: Size,
    /// How long nothing was open between an answer's last byte and the next request: T_G.
    pub between: Span,
    /// When the first request began, t₁, answered or not.
    pub first_request: Option<Time>,
    /// When the last byte of an answer passed, t′ₙ.
    pub last_data: Option<Time>,
}

impl Transaction {
    /// From the request's first byte to the answer's first: the application response time at the
    /// capture point.
    pub fn response_time(&self) -> Option<Span> {
        let (request, response) = (self.request.as_ref()?, self.response.as_ref()?);
        Some(response.first.since(request.first))
    }

    /// From the request's first byte to the answer's last.
    pub fn downloading(&self) -> Option<Span> {
        let (request, response) = (self.request.as_ref()?, self.response.as_ref()?);
        Some(response.last.since(request.first))
    }
}

impl Seen {
    /// The content's length, where it is known.
    pub fn content(self) -> Option<u64> {
        match self {
            Self::Content(length) => Some(length),
            Self::Framed(_) | Self::WithHead(_) => None,
        }
    }

    /// What was counted.
    pub fn counted(self) -> u64 {
        let (Self::Content(length) | Self::Framed(length) | Self::WithHead(length)) = self;
        length
    }
}

impl Summary {
    /// The servicing rate: what was downloaded by how long that took. None where nothing was.
    pub fn servicing_rate(&self) -> Option<Rate> {
        (!self.downloading.is_zero()).then(|| Rate::of(self.downloaded, self.downloading))
    }

    /// Counts one that ended.
    pub(super) fn add(&mut self, request: Option<&Request>, response: Option<&Response>) {
        let Some(response) = response else { return };
        let before = self.last_data;
        let last = before.map_or(response.last, |before| before.max(response.last));
        self.last_data = Some(last);
        let Some(request) = request else { return };
        let from = before.map_or(request.first, |before| before.max(request.first));
        self.answered += 1;
        self.between += before.map_or(Span::ZERO, |before| request.first.since(before));
        self.downloading += last.since(from);
        let downloaded = self.downloaded.as_bytes().saturating_add(response.length);
        self.downloaded = Size::from_bytes(downloaded);
    }
}
