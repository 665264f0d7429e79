//! QUIC connections, from their unprotected parts: Initial packets, header fields, sizes and times
//! (RFC 9000, RFC 9001; version 2: RFC 9369).

mod flow;
mod handshake;
mod requests;
mod spin;

pub use flow::Flow;
pub(crate) use flow::MIN_INITIAL_DATAGRAM;
pub use handshake::Handshake;
pub use requests::MAX_ACK_ONLY_LEN;
pub use spin::Spin;
