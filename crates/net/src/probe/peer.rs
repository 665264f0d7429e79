//! The protocol between a probe and a probe server.
//!
//! One TCP and one UDP port serve all. A control connection over TLS, authenticated by raw public
//! keys on both sides, carries [`message::Order`]s and [`message::Reply`]s as lines of JSON. The
//! data of a measurement have connections and datagrams of their own, without TLS, which begin with
//! the token of the measurement.

pub(super) mod client;
pub(super) mod line;
pub mod message;
pub(super) mod token;
