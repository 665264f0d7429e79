//! The two directions of a connection, as read by a passive observer.
//!
//! Parsers take one [`Piece`] after the other; [`Turns`] infers [`Exchange`]s from the directions
//! only.

mod piece;
mod turns;

pub use piece::Piece;
pub use turns::{Exchange, Turns};

/// An endpoint of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The endpoint that initiated the connection.
    Client,
    /// The endpoint that accepted the connection.
    Server,
}

impl End {
    /// The opposite endpoint.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
