//! The two directions of a connection, as a passive observer reads them.
//!
//! A reader of messages takes one [`Piece`] after the other; [`Turns`] infers [`Exchange`]s from the
//! directions alone.

mod piece;
mod turns;

pub use piece::Piece;
pub use turns::{Exchange, Turns};

/// One of two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// It began.
    Client,
    /// The other one.
    Server,
}

impl End {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
