//! Analysis of captured packets: flows, and rows of tables about them.
//!
//! [`flow`], [`udp`], [`quic`] and [`mptcp`] follow connections packet by packet, at the packets'
//! own times. [`device`] and [`server`] classify the two endpoints of a flow, and
//! [`align`] matches the same bytes at several capture points. [`analysis`] applies all of these to the packets of a capture, or to the packets that
//! match a [`filter`], and returns rows of documented tables; [`export`] writes these rows in the
//! formats of other tools.
//!
//! The crate opens no files or sockets and reads no clock.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod align;
pub mod analysis;
mod columns;
mod concurrency;
pub mod device;
pub mod export;
pub mod filter;
pub mod flow;
pub mod mptcp;
pub mod quic;
#[cfg(test)]
#[path = "../../wire/src/sample.rs"]
mod sample;
pub mod server;
pub mod udp;

pub use self::columns::SCHEMA;
