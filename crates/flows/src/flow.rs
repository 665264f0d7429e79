//! TCP flows: the outcome of the bytes of each connection, as seen from a capture point between its
//! endpoints.
//!
//! A [`Table`] has a connection for each pair of endpoints. A [`Connection`] takes each segment
//! with the capture time of its packet and uses no other clock. It has a [`Stream`] for the data of
//! each endpoint, and [`AckClock`] for the segments that the other endpoint's ACKs release.

mod ack_clock;
mod connection;
mod initial_window;
mod limit;
mod offset;
mod queue;
mod reassembly;
mod slab;
mod stream;
mod table;

pub use ack_clock::AckClock;
pub use connection::{Connection, Handshake, HeldPacket, ReceiveWindows, SynOptions};
pub use initial_window::Estimate;
pub use limit::{LimitedBy, SenderLimit};
pub use reassembly::{MAX_PENDING_BYTES, MAX_PENDING_PIECES, Reassembler};
pub use stream::{
    AckOutcome, Counts, MAX_HOLES, MAX_UNACKED_SEGMENTS, Retransmissions, SegmentOutcome, Stream,
};
pub use table::{Flow, FlowContext, Limits, Table};
