//! The part of a lender: a device that passes a path of another one's bond on.
//!
//! A lent path has two connections with a buffer between them: the *pipe* between the primary device
//! and the lender, and the connection of the lender to the gateway. The messages of the mux are sealed
//! between primary and gateway, one in each [`Frame`]. The lender sees only their class, number and
//! length. [`Lane`] is its buffer for one direction: it passes control frames on first, then
//! datagrams, then bulk frames; it drops datagrams that have waited too long, and bulk frames that
//! their sender recalls.
//!
//! The design follows MPBond (§4.3.1, §4.3.2). Ours are the seal, the classes and the recall.

mod frame;
mod lane;
mod pipe_queue;

pub use frame::{Class, Frame, FrameError, MAX_SEALED};
pub use lane::{Lane, LaneError, LaneStatus};
pub use pipe_queue::{MAX_QUEUE, PipeQueue, QUEUE_INTERVAL};
