//! From segments to flows: what became of the bytes of a connection, as a capture point between its
//! ends can tell.
//!
//! A [`Table`] has a connection for each pair of ends. A [`Connection`] is told of each segment as it passes, with the packet's own time, and knows no
//! other. It has a [`Stream`] for what each end sends, and [`Releases`] for what the other end's
//! acknowledgements set free.

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
