//! Parsers for protocols of the network: from captured or received bytes to typed messages.
//!
//! [`capture`] reads capture files, [`frame`] finds the IP packet in a frame of any link layer, and
//! [`tcp`], [`mptcp`], [`udp`] and [`icmp`] read its header and options. [`tls`], [`http`], [`quic`],
//! [`dns`], [`dhcp`] and [`bluetooth`] read the messages above, from the ordered bytes of a
//! [`stream`], and [`x509`] certificates. The name of a host is a [`HostName`]; the result of
//! reading the beginning of a stream is a [`Peek`]. An [`archive`] is a recording of HTTP traffic,
//! which the observers of [`exchange`] make from passing bytes, and [`har`] its file format. A
//! [`manifest`] lists the parts of a film of adaptive streaming, and [`mp4`] reads the index of its files.
//! A [`film`] is written: manifests, and segments with given lengths.
//!
//! The crate keeps no flow table (`manyways-flows` does), sends nothing, opens no file or socket,
//! and decrypts only packets whose keys are public (QUIC Initial packets). Input is untrusted: a
//! broken or hostile message is rejected at a bounded cost.
#![forbid(unsafe_code)]

pub mod archive;
pub mod bluetooth;
pub mod capture;
pub mod dhcp;
pub mod dns;
mod escape;
pub mod exchange;
pub mod film;
pub mod frame;
pub mod har;
pub mod http;
pub mod icmp;
pub mod manifest;
pub mod mp4;
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
pub mod x509;

pub use name::HostName;
pub use peek::{MAX_PEEK_LENGTH, Peek};
