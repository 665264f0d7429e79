//! Every decision of `manyways bond` that is not about bytes: when a client dials which path over
//! which transport, what becomes of an application's flow, which state a path is in, and which
//! sessions a gateway keeps. [`crate::mux`] decides about the bytes.
//!
//! Each core has the shape of all cores here: `handle(now, input)`, `poll(now) -> Option<Output>`,
//! `next_wakeup() -> Option<Time>`. Every time limit of the bond is a field of a core's `Config`,
//! whose [`Default`] is what `manyways bond` uses.

pub mod carrier;
pub mod delay_gate;
pub mod dial;
pub mod egress;
pub mod first_bytes;
pub mod happy_eyeballs;
pub mod idle;
pub mod interception;
pub mod io_limits;
pub mod networks;
pub mod path;
pub mod rate_limit;
pub mod routing;
pub mod session;
pub mod usage;
