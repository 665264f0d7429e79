//! Where the energy of a radio goes, and how to save it.
//!
//! After the last packet a cellular radio stays awake for seconds, in case another one comes: the
//! tail, which can take more than all packets together. [`workload`] makes traces of what
//! applications send, [`Packet`] by packet.

mod draw;
mod packet;
pub mod workload;

pub use draw::Draw;
pub use packet::{Direction, Packet};
