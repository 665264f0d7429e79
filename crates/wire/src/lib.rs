//! What the bytes of others say as they pass: which host a connection is for, and what a capture
//! holds.
//!
//! [`tls`], [`http`] and [`quic`] read the first bytes that a client sends, [`dns`] reads answers of
//! name servers, [`dns::Names`] remembers for an address which names it was asked by, and
//! [`dns::Lookups`] joins questions with answers. [`dhcp`] tells which host has which address. A name
//! that comes out is a [`HostName`]; what comes out of the beginning of a stream is a [`Peek`].
//!
//! [`capture`] goes through the files that captures are kept in, [`frame`] finds the IP packet in a
//! frame of any link, [`tcp`] reads the segment in that, and [`flow`] follows what a connection's
//! segments add up to; [`mptcp`] says which of them belong together. [`udp`] does as much for
//! datagrams, and [`bluetooth`] for what passes between a Bluetooth host and its controller.
//!
//! [`device`] and [`server`] say who is at the two ends of a connection, as far as that can be
//! told, and [`concurrency`] how many connections an end has at once. [`align`] matches what
//! passed at several capture points.
//!
//! [`analysis`] does all of this with the packets of a capture, or with those that a [`filter`]
//! matches, and makes rows of a [`table`] of what comes out. [`export`] writes such rows in formats
//! of others.
//!
//! This crate only reads. It answers nobody, decrypts nothing that is secret and opens nothing, and
//! what it reads may be anything: a broken or hostile message is no message, at a bounded cost.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod align;
pub mod analysis;
pub mod bluetooth;
mod bounded;
pub mod capture;
pub mod concurrency;
pub mod device;
pub mod dhcp;
pub mod dns;
mod escape;
pub mod export;
pub mod filter;
pub mod flow;
pub mod frame;
pub mod http;
pub mod mptcp;
mod name;
mod peek;
mod prefix;
pub mod quic;
mod ranges;
pub mod server;
pub mod table;
pub mod tcp;
pub mod tls;
pub mod udp;

pub use name::HostName;
pub use peek::{LIMIT, Peek};
pub use prefix::Prefix;
