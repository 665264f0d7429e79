//! What goes wrong on one path.

use std::fmt;

/// What went wrong on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultClass {
    /// The name was not resolved.
    Dns,
    /// No connection came about.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke.
    Reset,
    /// The body ended before its announced length.
    Truncated,
    /// The server said that it takes no more requests on this connection.
    GoAway,
    /// The server finds that it is asked too much (ENHANCE_YOUR_CALM).
    Calm,
    /// What came is not HTTP.
    Protocol,
    /// Nothing came for too long.
    Stalled,
    /// The path's interface is gone.
    Down,
    /// The answer cannot be used; see `Unfit`.
    Unfit,
}

/// A fault of a path, with words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What kind of fault.
    pub class: FaultClass,
    /// One clause without a full stop: "connection refused by 192.0.2.1".
    pub words: String,
    /// Trying again may help.
    pub again: bool,
}

impl Fault {
    /// A fault after which the path may be tried again.
    pub fn passing(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: true }
    }

    /// A fault that will not go away.
    pub fn lasting(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: false }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
