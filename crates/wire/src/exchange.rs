//! The HTTP exchanges in the bytes of a connection that a proxy passes on unchanged.
//!
//! An observer ([`http1::Observer`] for HTTP/1, [`http2::Observer`] for HTTP/2) gets the bytes of
//! both directions, complete and in order, and reports heads, bodies and ends as [`Event`]s. It
//! never holds bytes back: a body is reported in the pieces in which it arrives. The bytes of an
//! endpoint must be observed before the other endpoint gets them: a response does not precede its
//! request. For captures, in which bytes are missing, see
//! [`http::Transactions`](crate::http::Transactions).

pub mod http1;
pub mod http2;

use crate::archive::{Field, Protocol};
use crate::stream::Endpoint;

/// Number of an exchange of its connection: from 0 in HTTP/1, the number of the stream in HTTP/2.
pub type StreamId = u64;

/// A part of an exchange.
///
/// Of one stream, a [`Request`](Self::Request) comes first, and at most one
/// [`Response`](Self::Response) follows, also before the end of the request. The last event is the
/// [`End`](Self::End) of the second endpoint, an [`Abort`](Self::Abort), or
/// [`Upgraded`](Self::Upgraded). An `Abort` after the `End` of the server cuts only the request: the
/// response is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Request(StreamId, RequestHead),
    /// An interim response (1xx).
    Interim(StreamId, u16, Vec<Field>),
    Response(StreamId, ResponseHead),
    /// Bytes of a body, without the framing of the transfer.
    Body(StreamId, Endpoint, &'a [u8]),
    /// The message of an endpoint is complete.
    End(StreamId, Endpoint, Trailers),
    /// An endpoint ended the exchange early.
    Abort(StreamId, Endpoint),
    /// All further bytes of the connection, or of the stream in HTTP/2, belong to another protocol:
    /// after `Upgrade`, or after `CONNECT`.
    Upgraded(StreamId),
}

/// Fields after a body.
pub type Trailers = Vec<Field>;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub method: String,
    /// The target as sent: in HTTP/2 `:path`, or for `CONNECT` without it `:authority`.
    pub target: String,
    /// `:scheme` of HTTP/2.
    pub scheme: Option<String>,
    /// `:authority` of HTTP/2, else the field `Host`.
    pub authority: Option<String>,
    pub protocol: Protocol,
    /// In the order and case of the wire, without pseudo fields.
    pub fields: Vec<Field>,
    /// `Content-Length`.
    pub length: Option<u64>,
}

/// The head of a final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    pub reason: String,
    pub protocol: Protocol,
    pub fields: Vec<Field>,
    /// `Content-Length`, unless the response has no body.
    pub length: Option<u64>,
}

/// Bytes that are not of the protocol, so that the rest of the connection cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {} sends {what}", endpoint_name(*from))]
pub struct Fault {
    pub from: Endpoint,
    /// The fault, in words that complete "the server sends".
    pub what: &'static str,
}

/// Reads a decimal number without a sign.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn endpoint_name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Client => "client",
        Endpoint::Server => "server",
    }
}
