//! The two directions of a connection, as read by a passive observer.
//!
//! Parsers take one [`Piece`] after the other; [`ExchangeDetector`] infers [`Exchange`]s from the
//! directions only.

mod exchanges;
mod piece;

pub use exchanges::{Exchange, ExchangeDetector};
pub use piece::Piece;

/// An endpoint of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The endpoint that initiated the connection.
    Client,
    /// The endpoint that accepted the connection.
    Server,
}

impl Endpoint {
    /// The opposite endpoint.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
