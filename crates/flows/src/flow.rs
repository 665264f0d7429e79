//! TCP flows: the outcome of the bytes of each connection, as seen from a capture point between its
//! endpoints.
//!
//! A [`Table`] has a connection for each pair of endpoints. A [`Connection`] takes each segment
//! with the capture time of its packet and uses no other clock. It has a [`Stream`] for the data of
//! each endpoint, and [`Releases`] for the segments that the other endpoint's ACKs release.

mod connection;
mod first_window;
mod limit;
mod order;
mod place;
mod queue;
mod release;
mod slab;
mod stream;
mod table;

pub use connection::{Connection, Handshake, Hello, Windows};
pub use first_window::Estimate;
pub use limit::{Limit, LimitedBy};
pub use order::{HELD_BYTES, HELD_PIECES, Order};
pub use release::Releases;
pub use stream::{Acked, Again, Counts, HOLES, OUTSTANDING, Seen, Stream};
pub use table::{Flow, Limits, Passing, Table};
