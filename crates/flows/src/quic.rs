//! QUIC connections, from their unprotected parts: Initial packets, header fields, sizes and times
//! (RFC 9000, RFC 9001; version 2: RFC 9369).

mod flow;
mod handshake;
mod requests;
mod spin;

pub(crate) use flow::FULL;
pub use flow::Flow;
pub use handshake::Handshake;
pub use requests::CONFIRMS;
pub use spin::Spin;
