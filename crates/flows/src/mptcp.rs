//! Multipath TCP (RFC 8684; version 0: RFC 6824): groups TCP flows into connections and attributes
//! the data of a connection to its subflows.
//!
//! [`Connections`] takes each segment with an MPTCP option and each flow that has ended, and
//! returns a [`Connection`] when all of its subflows have ended.
//!
//! # Assignment of joins The SYN of an MP_JOIN has the token of its receiver: the first bits of a
//! hash of the receiver's key, which passed in the handshake of the primary subflow. The tokens of
//! both endpoints are stored, and a join belongs to the connection of its token. Addresses are not
//! compared, because a join may go to another address of the server, or pass a NAT.
//!
//! Tokens have 32 bits, and two servers may use the same token. The join then belongs to the latest
//! of these connections until the SYN/ACK of the join passes: its HMAC depends on both keys and
//! identifies the connection. Joins with a token of no known connection (the capture began later)
//! are subflows of one connection without a primary subflow. A flow without either handshake in the
//! capture is not a subflow of any connection.

mod connection;
mod connections;
mod key;
mod ranges;
mod state;
#[cfg(test)]
mod tests;

pub use self::connection::{Advertised, Connection, Fallback, Role, Subflow};
pub use self::connections::{Connections, Dropped, FlowSummary, Limits};
pub use self::state::MAX_ADDRESSES;
