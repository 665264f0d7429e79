//! The bond: a client that intercepts connections, a gateway that connects them to servers, and the
//! carriers between the two.

pub mod allow;
mod carrier;
pub mod client;
pub mod control;
mod datagrams;
pub mod delay_gate;
pub mod enforcer;
pub mod event;
mod flow_counters;
mod flow_facts;
pub mod gateway;
pub mod gateway_status;
mod handshake;
pub mod host_networks;
mod http_connect;
pub mod interception;
pub mod interception_scope;
pub mod journal;
pub mod key;
pub mod listeners;
pub mod metrics;
pub mod metrics_server;
mod path_monitor;
mod pending_handshakes;
mod process_lookup;
mod quic;
mod race;
mod rate_limit;
mod session;
mod socks;
pub mod status;
mod timer;
mod tls;
mod udp;
pub mod usage;
pub mod why;

pub use carrier::CarrierError;
pub use handshake::HandshakeError;
pub use manyways_proto::bond::dial::{CarrierTransport, TransportChoice};

#[cfg(test)]
mod tests;
