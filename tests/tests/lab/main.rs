//! `manyways lab` from the user's side: real kernel stacks, real servers, and no remaining state.
//!
//! No test measures time. A test waits for an event, with a deadline that only a hang reaches.

mod air;
mod change;
mod cleanup;
mod coupled;
mod device;
mod devices;
mod far_hosts;
mod mptcp;
mod nat;
mod odd_links;
mod radio;
mod records;
mod refusals;
mod routed_hop;
mod running;
mod scenarios;
mod signal;
mod terminal;
mod users;
