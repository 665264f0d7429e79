//! Faults of a path.

use std::fmt;

/// Kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultClass {
    /// The name could not be resolved.
    Dns,
    /// The connection could not be established.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke.
    Reset,
    /// The body ended before its announced length.
    Truncated,
    /// The server takes no more requests on this connection (GOAWAY).
    GoAway,
    /// The server objects to the load (ENHANCE_YOUR_CALM).
    Calm,
    /// The received bytes violate the protocol.
    Protocol,
    /// Nothing was received until the idle timeout.
    Stalled,
    /// The path's interface is down.
    Down,
    /// The response cannot be used; see [`Unfit`](super::Unfit).
    Unfit,
}

/// A fault of a path, with a text for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub class: FaultClass,
    /// One clause without a full stop, for example "connection refused by 192.0.2.1".
    pub words: String,
    /// Whether a retry may succeed.
    pub again: bool,
}

impl Fault {
    /// Creates a fault after which the path may be retried.
    pub fn passing(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: true }
    }

    /// Creates a fault that a retry cannot solve.
    pub fn lasting(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: false }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
