//! Every application over every network: a client that takes connections in, a gateway that takes
//! them on, and carriers between the two.

pub mod allow;
mod carrier;
pub mod client;
mod connect;
pub mod door;
pub mod gateway;
mod greeting;
pub mod intercept;
pub mod key;
pub mod networks;
mod quic;
mod session;
mod socks;
mod tls;
mod udp;

pub use greeting::GreetError;
