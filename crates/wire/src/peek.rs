//! Results of reading the beginning of a stream.

/// Maximum number of bytes read before a peek gives up. A typical first message of a client has a
/// tenth of this, including post-quantum key shares and cookies.
pub const MAX_PEEK_LENGTH: usize = 16 * 1024;

/// The result of reading the first bytes of a stream. The input always starts at offset 0 of the
/// stream: with more bytes, [`Peek::Complete`] and [`Peek::No`] do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek<T> {
    /// The message, or all of its parts that are needed.
    Complete(T),
    /// The bytes may be the beginning of a message. The complete message ends at or after this
    /// offset, which is always more than the available bytes. The result may be known before that
    /// offset.
    More(usize),
    /// The bytes are not this protocol, or nothing that a well-behaved client sends.
    No,
}

impl<T> Peek<T> {
    /// The message; `None` for the other results.
    pub fn complete(self) -> Option<T> {
        match self {
            Self::Complete(message) => Some(message),
            Self::More(_) | Self::No => None,
        }
    }

    /// [`Peek::More`] for a message of `whole` bytes; [`Peek::No`] if it is longer than
    /// [`MAX_PEEK_LENGTH`].
    pub(crate) fn more_within_limit(whole: usize) -> Self {
        if whole > MAX_PEEK_LENGTH { Self::No } else { Self::More(whole) }
    }
}
