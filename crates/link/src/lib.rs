//! A link emulator as a pure core under virtual time.
//!
//! A [`Pipe`] is one direction of a link: a queue, a wire with a capacity that may change, loss and
//! delay. It takes [`Packet`]s and reports which of their segments are delivered or dropped, and
//! when. Two pipes make a link. [`distance`] has the way between a link and hosts behind it.
//!
//! This crate reads no clock and opens no files, and a pipe contains no bytes of packets: the shell
//! keeps the buffers and finds them by [`Packet::id`]. The same seed and the same input produce the
//! same output, so that one core serves simulations under virtual time and emulation under real
//! time.
#![forbid(unsafe_code)]

mod capacity;
mod codel;
mod delay;
pub mod distance;
mod flight;
mod loss;
pub mod medium;
pub mod middlebox;
mod packet;
mod pipe;
mod queue;
pub mod schedule;
pub mod segment;
pub mod settings;
mod stats;

pub use packet::{Cause, Output, Packet};
pub use pipe::Pipe;
pub use stats::{Count, Stats};
