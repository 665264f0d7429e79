//! What the bytes of others say as they pass: which host a connection is for.
//!
//! [`tls`], [`http`] and [`quic`] read the first bytes that a client sends, [`dns`] reads answers of
//! name servers, and [`dns::Names`] remembers for an address which names it was asked by. A name
//! that comes out is a [`HostName`]; what comes out of the beginning of a stream is a [`Peek`].
//!
//! This crate only reads. It answers nobody, decrypts nothing that is secret and opens nothing, and
//! what it reads may be anything: a broken or hostile message is no message, at a bounded cost.
#![forbid(unsafe_code)]

pub mod dns;
pub mod http;
mod name;
mod peek;
pub mod quic;
pub mod tls;

pub use name::HostName;
pub use peek::{LIMIT, Peek};
