//! The decisions of `manyways bond`: when a client dials which path over which transport, how an
//! application's flow is routed, the state of each path, and which sessions a gateway keeps.
//! [`crate::mux`] schedules the bytes.
//!
//! Each core has the interface `handle(now, input)`, `poll(now) -> Option<Output>`, `next_wakeup()
//! -> Option<Time>`. Every timeout of the bond is a field of a core's `Config`. `manyways bond`
//! uses the [`Default`].

pub mod budget;
pub mod carrier;
pub mod choice;
pub mod delay_gate;
pub mod dial;
pub mod egress;
pub mod first_bytes;
pub mod idle;
pub mod interception;
pub mod io_limits;
pub mod networks;
pub mod pairing;
pub mod path;
pub mod rate_limit;
pub mod routing;
pub mod session;
pub mod tickets;
pub mod usage;
