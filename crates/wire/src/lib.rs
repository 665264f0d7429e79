//! The bytes of others as messages: which host a connection is for, and what a packet says.
//!
//! [`capture`] reads the files that captures are kept in, [`frame`] finds the IP packet in a frame
//! of any link, [`tcp`], [`mptcp`] and [`udp`] read its header and options. [`tls`], [`http`],
//! [`quic`], [`dns`], [`dhcp`] and [`bluetooth`] read the messages above, from bytes in the order of
//! a [`stream`]. A host's name is a [`HostName`]; the result of reading the beginning of a stream is
//! a [`Peek`].
//!
//! The crate keeps no table of flows (`manyways-flows` does). It sends nothing, decrypts nothing
//! that is secret and opens nothing. Any input is possible: a broken or hostile message is refused
//! at a bounded cost.
#![forbid(unsafe_code)]

pub mod bluetooth;
pub mod capture;
pub mod dhcp;
pub mod dns;
mod escape;
pub mod frame;
pub mod http;
pub mod mptcp;
mod name;
mod peek;
pub mod quic;
#[cfg(test)]
mod sample;
pub mod stream;
pub mod tcp;
pub mod tls;
pub mod udp;

pub use name::HostName;
pub use peek::{LIMIT, Peek};
