//! Messages become connections, and connections become rows of tables.
//!
//! [`flow`], [`udp`], [`quic`] and [`mptcp`] follow connections packet by packet, at the packets'
//! own times. [`device`] and [`server`] say who is at the two ends, [`concurrency`] counts the
//! connections that an end has at once, and [`align`] matches what passed at several capture points.
//! [`analysis`] does all of this with the packets of a capture, or with those that a [`filter`]
//! matches, and makes rows of documented tables; [`export`] writes such rows in other tools' formats.
//!
//! The crate opens nothing and reads no clock.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod align;
pub mod analysis;
mod columns;
pub mod concurrency;
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
