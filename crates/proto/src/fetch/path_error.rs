//! Faults of a path.

use std::fmt;

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PathErrorKind {
    /// The name could not be resolved.
    Dns,
    /// The name does not exist.
    NoSuchName,
    /// The connection could not be established.
    Connect,
    /// The server refused the connection.
    Refused,
    /// The caller permits no connection to the server's addresses.
    Forbidden,
    /// The TLS handshake failed.
    Tls,
    /// The server does not speak TLS.
    NotTls,
    /// The TLS handshake failed because of a certificate.
    Certificate,
    /// The connection broke.
    Reset,
    /// The body ended before its announced length.
    Truncated,
    /// The server takes no more requests on this connection (GOAWAY).
    GoAway,
    /// The server objects to the load (ENHANCE_YOUR_CALM).
    EnhanceYourCalm,
    /// The server did not process the request (REFUSED_STREAM).
    RefusedStream,
    /// The server refuses HTTP/2 for this origin (HTTP_1_1_REQUIRED, INADEQUATE_SECURITY). The next
    /// connection of the path uses HTTP/1.1.
    Http1Required,
    /// The received bytes violate the protocol.
    Protocol,
    /// Nothing was received until the idle timeout.
    Stalled,
    /// The path's interface is down.
    LinkDown,
    /// A redirect from `https` to `http`.
    Downgrade,
    /// The network answers in place of the server, and probably wants a login.
    CaptivePortal,
    /// The response cannot be used; see [`UnusableResponse`](super::UnusableResponse).
    UnusableResponse,
    /// The server does not serve the request now: 503, 429 and other statuses that may change.
    Unavailable,
}

impl PathErrorKind {
    /// Whether nothing was reached, for example because the network is without connectivity. A
    /// server or a middlebox that responds may cause the other kinds.
    pub(super) fn is_silence(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::Stalled | Self::LinkDown)
    }

    /// Whether the connection of the path was lost. A refusal of the server is none.
    pub(super) fn is_loss(self) -> bool {
        matches!(self, Self::Reset | Self::Truncated | Self::Stalled | Self::LinkDown)
    }

    /// Whether the server, or its name, is not available: an attempt soon after has little prospect.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::NoSuchName | Self::Unavailable)
    }
}

/// A fault of a path, with a text for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathError {
    pub kind: PathErrorKind,
    /// One clause without a full stop, for example "connection refused by 192.0.2.1".
    pub message: String,
    /// Whether a retry may succeed.
    pub is_retryable: bool,
}

impl PathError {
    /// Creates a fault after which the path may be retried.
    pub fn transient(class: PathErrorKind, words: impl Into<String>) -> Self {
        Self { kind: class, message: words.into(), is_retryable: true }
    }

    /// Creates a fault that a retry cannot solve.
    pub fn permanent(class: PathErrorKind, words: impl Into<String>) -> Self {
        Self { kind: class, message: words.into(), is_retryable: false }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
