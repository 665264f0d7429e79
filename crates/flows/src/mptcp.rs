//! Multipath TCP: which TCP flows are subflows of one connection, and what went over which of them
//! (RFC 8684; version 0 is RFC 6824).
//!
//! [`Connections`] is told of each segment that has an option, and of each flow that is over, and
//! gives a [`Connection`] when all of its subflows are.
//!
//! # Who joins whom
//! A join's SYN has the token of the end that it goes to: the beginning of a hash of that end's key,
//! which passed in the handshake of the connection's primary subflow. So both ends' tokens are kept,
//! and the end whose token it is receives the join. Addresses do not count: a join may go to another
//! one of the server's, or through an address translator.
//!
//! Tokens have 32 bits, and two servers may happen to use the same one. Then the connection that
//! began last has the join until the answer passes: its hash is made of both keys, which shows whose
//! join it is. Joins with a token that nobody is known to have (the capture began later) are
//! subflows of one connection without a primary one. A flow of which neither kind of handshake
//! passed is alone.

mod connection;
mod connections;
mod key;
mod ranges;
mod state;
#[cfg(test)]
mod tests;

pub use self::connection::{Advertised, Connection, Fallback, Role, Subflow};
pub use self::connections::{Connections, Dropped, Limits, Summary};
pub use self::state::ADDRESSES;
