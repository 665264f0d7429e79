//! The flows that UDP datagrams add up to.
//!
//! A [`Table`] has a [`Flow`] for each pair of ends, which counts what each of them sends and follows
//! QUIC where it is that.

mod flow;
mod table;

pub use flow::{Flow, Protocol, Sent};
pub use table::{Ended, Limits, Passing, Table};
