//! Every application over every network: a client that takes connections in, a gateway that takes
//! them on, and carriers between the two.

mod carrier;
pub mod key;
mod session;
mod tls;
