//! What the first bytes of a stream say so far.

/// The most bytes of a stream that are looked at before a peek gives up. What a client says first
/// is a tenth of it, keys against quantum computers and cookies included.
pub const LIMIT: usize = 16 * 1024;

/// What the first bytes of a stream say so far. It is always asked about the stream from its start:
/// with more bytes, [`Peek::Complete`] and [`Peek::No`] stay what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek<T> {
    /// The message was there, or as much of it as can matter.
    Complete(T),
    /// It may become one. The whole of it has at least this many bytes from the start of the
    /// stream, always more than are there now. What matters may be there earlier.
    More(usize),
    /// It is not this protocol, or nothing that a well-behaved client sends.
    No,
}

impl<T> Peek<T> {
    /// The message, when it was there.
    pub fn complete(self) -> Option<T> {
        match self {
            Self::Complete(message) => Some(message),
            Self::More(_) | Self::No => None,
        }
    }

    /// `More` of a message that must end within [`LIMIT`], or else `No`.
    pub(crate) fn more_within_limit(whole: usize) -> Self {
        if whole > LIMIT { Self::No } else { Self::More(whole) }
    }
}
