//! Every application over every network: a client that takes connections in, a gateway that takes
//! them on, and carriers between the two.

pub mod allow;
mod carrier;
pub mod client;
mod connect;
pub mod control;
mod datagrams;
pub mod door;
pub mod event;
mod facts;
pub mod gateway;
mod handshake;
pub mod hold;
pub mod intake;
pub mod intercept;
pub mod journal;
pub mod key;
mod labels;
mod limit;
pub mod metrics;
pub mod networks;
mod quic;
mod race;
pub mod rules;
pub mod scrape;
mod session;
mod socks;
pub mod status;
mod strangers;
mod surroundings;
mod tally;
mod timer;
mod tls;
mod udp;
pub mod usage;
mod whose;
pub mod why;

pub use carrier::CarrierError;
pub use handshake::HandshakeError;
pub use manyways_proto::bond::dial::{CarrierTransport, TransportChoice};
